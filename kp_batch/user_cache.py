"""Files that are kept for the user, in `$XDG_CACHE_HOME/kp-batch`, by default below `~/.cache`.

What is kept there belongs to no warehouse. Losing it costs time, nothing else, so whatever is in
its way is no error. Where several processes write a file at once, the last one wins.
"""

import os
from contextlib import suppress
from pathlib import Path

from kp_batch.whole_files import whole


def kept(name: str) -> str | None:
    """Read a file; None if it is missing, or no text."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        return (cache_folder() / name).read_text("utf-8")
    return None


def keep(name: str, text: str) -> None:
    """Replace a file, whole or not at all."""
    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with whole(folder / name) as part:
            part.write_text(text, "utf-8")


def cache_folder() -> Path:
    """The folder; it may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kp-batch"
