"""The user's stdout and stderr, which a long command keeps apart from where libraries print."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from kp_batch.errors import ResourceError

_MOVED: list[tuple[TextIO | None, TextIO | None]] = []


def keep_apart(out: TextIO | None, err: TextIO | None) -> None:
    """Have the user's stdout and stderr be these from now on, whatever `sys` has."""
    _MOVED[:] = [(out, err)]


def user_out() -> TextIO | None:
    """The user's stdout; None if it is closed."""
    return _MOVED[0][0] if _MOVED else sys.stdout


def user_err() -> TextIO | None:
    """The user's stderr; None if it is closed."""
    return _MOVED[0][1] if _MOVED else sys.stderr


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Tell the user something, at once.

    Args:
        text: what it is.
        err: whether on stderr.
        nl: whether a new line follows.

    Raises:
        BrokenPipeError: who reads it has left.
        ResourceError: it cannot be written.
    """
    stream = user_err() if err else user_out()
    if stream is None:  # print would take another
        return
    with telling("stderr" if err else "stdout"):
        print(text, file=stream, end="\n" if nl else "", flush=True)


@contextmanager
def telling(name: str) -> Generator[None]:
    """Name the stream that is written where that fails.

    Raises:
        BrokenPipeError: who reads it has left.
        ResourceError: it cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ResourceError(f"{name} cannot be written: {error.strerror}") from error
