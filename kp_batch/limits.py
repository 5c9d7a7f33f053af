"""What is too large to be read, `too_large`, and JSON of others, read within that.

Files come from others. A few kilobytes can unpack to gigabytes, and one line can hold the memory of
a machine; what passes one of these is refused by name, and the other rows and files are scored, or
imported. JSON is refused before it is parsed: as objects it takes many times what it takes as text.
"""

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from pydantic_core import from_json, to_json

LINE_BYTES = 64 << 20  # of a JSON line, a protobuf message, and a JSON document of one trace
TEXT_BYTES = 16 << 20  # of one value, in UTF-8
VALUES = 1 << 20  # of one row: objects, lists and what stands in them
RAW_BYTES = 1 << 20  # of a rejected row's JSON that is kept
ALL_RAW_BYTES = 64 << 20  # of all rejected rows' of one file, unless RATIO allows more
TRACE_BYTES = 256 << 20  # of all that an import reads of one trace, and 64 bytes for each value
MEMBER_BYTES = 2 << 30  # of gzip or zstd once unpacked; of an `.eval`, unless RATIO allows more
REFUSED = 1 << 18  # of a file's faulty or blank lines; of a file with more, an import takes nothing
UNPACKED_BYTES = 256 << 20  # of a Parquet file once unpacked, unless the next allows more
RATIO = 100  # times its size that a file may unpack to
COLUMNS = 10_000  # columns of a Parquet file, each field of a struct by itself
NESTING = 1_000  # objects and lists within each other

TOO_LARGE = "too_large"

MOST = (
    f"it may hold {LINE_BYTES >> 20} MiB and {VALUES:,} values, no text of more than "
    f"{TEXT_BYTES >> 20} MiB, and no more than {NESTING:,} objects and lists within "
    "each other"
)
_PIECE = 1 << 20  # that is read at once of what is passed over
# What a value takes besides its text, about.
VALUE_BYTES = 64
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


class Budget:
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


def trace_budget() -> Budget:
    """What may be read of one trace, by `weight`."""
    most = f"{TRACE_BYTES >> 20} MiB"
    return Budget(TRACE_BYTES, f"it is too large to be read: its parts take more than {most}")


def refusal_budget() -> Budget:
    """How many lines of a file may be refused."""
    most = f"{REFUSED:,}"
    return Budget(REFUSED, f"it is too large to be read: it has more than {most} faulty lines")


def weight(text: str | bytes) -> int:
    """What a JSON text takes once it is parsed, in bytes, about; with JSON within its strings."""
    return len(text) + VALUE_BYTES * _count(text, ",{[")


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; of one that is too large, the beginning, which is too large as well."""
    most = LINE_BYTES + 1
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
    if len(text) > LINE_BYTES or _has_too_many_values(text):
        raise TooLargeError
    try:
        value = parse(text)
    except RecursionError as error:
        raise TooLargeError from error
    nests = len(text) > NESTING and _count(text, "{[") > NESTING
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


def dump(value: object) -> bytes:
    """The JSON text of a value: UTF-8, and escapes where it holds what UTF-8 has not.

    Raises:
        RecursionError: it is nested too deep.
    """
    try:
        return to_json(value, inf_nan_mode="constants")
    except ValueError:  # half a surrogate, or deep nesting
        return json.dumps(value).encode()


def _has_too_many_values(text: str | bytes) -> bool:
    """Whether a text holds more values than a row may have: each would take far more memory."""
    if len(text) <= VALUES or _count(text, ",{[") <= VALUES:
        return False
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "replace")
    return _count(_STRING.sub("", text), ",{[") > VALUES


def _count(text: str | bytes, letters: str) -> int:
    if isinstance(text, str):
        return sum(map(text.count, letters))
    return sum(text.count(letter.encode()) for letter in letters)


def _is_nested_too_deep(value: Any) -> bool:
    """Whether more than `NESTING` objects and lists stand within each other."""
    level = [value]
    for _ in range(NESTING + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for each in inside for one in each if isinstance(one, dict | list)]
        if not level:
            return False
    return True
