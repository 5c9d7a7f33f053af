"""Reads JSON of others, and holds no more of it than `limits` allow.

What is too large is told before it is parsed: as objects it takes many times what it takes as text.
"""

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from pydantic_core import from_json

from kp_batch import limits

MOST = (
    f"it may hold {limits.LINE_BYTES >> 20} MiB and {limits.VALUES:,} values, no text of more than "
    f"{limits.TEXT_BYTES >> 20} MiB, and no more than {limits.NESTING:,} objects and lists within "
    "each other"
)
_PIECE = 1 << 20  # that is read at once of what is passed over
VALUE_BYTES = 64  # that a value takes besides its text, about
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class TooLargeError(Exception):
    """Something passes a limit.

    Args:
        message: what, and the limit.
        value: the JSON value, where it was read before it was found too large.
    """

    def __init__(
        self, message: str = f"it is too large to be read: {MOST}", value: Any = None
    ) -> None:
        super().__init__(message)
        self.value = value


class Room:
    """How much may still be taken.

    Args:
        size: of all of it.
        message: of what is raised where that is not enough.
    """

    def __init__(self, size: int, message: str) -> None:
        self._left, self._message = size, message

    def take(self, size: int) -> None:
        """Take some.

        Raises:
            TooLargeError: there is not as much left.
        """
        self._left -= size
        if self._left < 0:
            raise TooLargeError(self._message)


def room_of_trace() -> Room:
    """What may be read of one trace, by `weight`."""
    most = f"{limits.TRACE_BYTES >> 20} MiB"
    return Room(limits.TRACE_BYTES, f"it is too large to be read: its parts take more than {most}")


def room_of_refused() -> Room:
    """How many lines of a file may be refused."""
    most = f"{limits.REFUSED:,}"
    return Room(limits.REFUSED, f"it is too large to be read: it has more than {most} faulty lines")


def weight(text: str | bytes) -> int:
    """What a JSON text takes once it is parsed, in bytes, about; with JSON within its strings."""
    return len(text) + VALUE_BYTES * _count(text, ",{[")


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; of one that is too large, the beginning, which is too large as well."""
    most = limits.LINE_BYTES + 1
    while line := file.readline(most):
        yield line
        while len(line) >= min(most, _PIECE) and not line.endswith(b"\n"):
            line = file.readline(_PIECE)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        TooLargeError: it passes a limit on lines, values or nesting.
        ValueError: it is no JSON.
    """
    if len(text) > limits.LINE_BYTES or _has_too_many_values(text):
        raise TooLargeError
    try:
        value = parse(text)
    except RecursionError as error:
        raise TooLargeError from error
    nests = len(text) > limits.NESTING and _count(text, "{[") > limits.NESTING
    if nests and _is_nested_too_deep(value):
        raise TooLargeError(value=value)
    return value


def parse(text: str | bytes) -> Any:
    """The value of a JSON text, as `json.loads` has it, in half the time.

    Raises:
        RecursionError: it is nested too deep.
        ValueError: it is no JSON.
    """
    try:
        return from_json(text, cache_strings="keys")
    except (TypeError, ValueError):  # also of half a surrogate, another encoding, deep nesting
        return json.loads(text)


def _has_too_many_values(text: str | bytes) -> bool:
    """Whether a text holds more values than a row may have: each would take far more memory."""
    if len(text) <= limits.VALUES or _count(text, ",{[") <= limits.VALUES:
        return False
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "replace")
    return _count(_STRING.sub("", text), ",{[") > limits.VALUES


def _count(text: str | bytes, letters: str) -> int:
    if isinstance(text, str):
        return sum(map(text.count, letters))
    return sum(text.count(each.encode()) for each in letters)


def _is_nested_too_deep(value: Any) -> bool:
    """Whether more than `NESTING` objects and lists stand within each other."""
    level = [value]
    for _ in range(limits.NESTING + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for each in inside for one in each if isinstance(one, dict | list)]
        if not level:
            return False
    return True
