"""Why a scored trace cannot be read again from its archive."""

from collections.abc import Mapping
from typing import Literal

Unread = Literal["gone", "changed", "large", "unreadable"]
UNREAD: Mapping[Unread, str] = {
    "gone": "its file is gone from the archive",
    "changed": "its file has changed in the archive",
    "large": "its file is too large to be read again for this",
    "unreadable": "its file cannot be read",
}
