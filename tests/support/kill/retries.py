"""Steps that fail once."""

import errno
from collections.abc import Callable
from typing import Any


def once_torn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; its first call fails after its work."""
    left = [OSError(errno.EIO, "Input/output error")]

    def torn(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if left:
            raise left.pop()
        return result

    return torn
