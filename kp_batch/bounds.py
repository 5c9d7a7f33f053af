"""Limits on what is read, and JSON from other systems, parsed within them.

A few kilobytes can unpack to gigabytes, and one line can fill the memory of a machine. A row or
file beyond a limit is refused as `too_large`; the others are scored or imported. JSON is checked
before it is parsed, because objects take many times the memory of their text.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

from pydantic_core import from_json, to_json

from kp_batch.errors import UnreadableError
from kp_batch.magic_bytes import binary_kind
from kp_batch.stopping import raise_if_unwanted

LINE_BYTES = 64 << 20  # a JSON line, a protobuf message, or a JSON document of one trace
TEXT_BYTES = 16 << 20  # one value, in UTF-8
VALUES = 1 << 20  # objects, lists and list elements in one row
RAW_BYTES = 1 << 20  # the JSON kept for one rejected row
ALL_RAW_BYTES = 64 << 20  # the JSON kept for a file's rejected rows, unless the ratio allows more
TRACE_BYTES = 256 << 20  # the parts of one trace in an import, plus 64 bytes for each value
MEMBER_BYTES = 2 << 30  # unpacked gzip or zstd; an unpacked `.eval`, unless the ratio allows more
REFUSED = 1 << 18  # faulty or blank lines in a file; an import takes nothing from a file with more
UNPACKED_BYTES = 256 << 20  # an unpacked Parquet file, unless the ratio allows more
RATIO = 100  # the ratio: the size of a file once unpacked, divided by its own size
COLUMNS = 10_000  # columns in a Parquet file; each field of a struct counts
NESTING = 1_000  # levels of objects and lists inside each other

TOO_LARGE = "too_large"

MOST = (
    f"at most {LINE_BYTES >> 20} MiB, {VALUES:,} values, texts of {TEXT_BYTES >> 20} MiB, and "
    f"{NESTING:,} levels of objects and lists are allowed"
)
_SKIPPED_BYTES = 1 << 20  # read at once from the rest of an overlong line
# Approximate size of a parsed value in addition to its text.
VALUE_BYTES = 64
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class TooLargeError(Exception):
    """Something exceeds a limit; `value` is the JSON value if it was read all the same."""

    def __init__(
        self, message: str = f"it is too large to be read: {MOST}", value: Any = None
    ) -> None:
        super().__init__(message)
        self.value = value


class Budget:
    """An amount that is used up bit by bit; `take` raises an error once it is exceeded."""

    def __init__(self, size: int, message: str) -> None:
        self._remaining, self._message = size, message

    def take(self, size: int) -> None:
        """Use some of the budget.

        Raises:
            TooLargeError: less than that remains.
        """
        self._remaining -= size
        if self._remaining < 0:
            raise TooLargeError(self._message)


def trace_budget() -> Budget:
    """Return the budget of one trace, in units of `weight`."""
    limit = f"{TRACE_BYTES >> 20} MiB"
    return Budget(TRACE_BYTES, f"it is too large to be read: its parts take more than {limit}")


def refusal_budget() -> Budget:
    """Return the budget of a file's refused lines, in lines."""
    message = f"it is too large to be read: it has more than {REFUSED:,} faulty lines"
    return Budget(REFUSED, message)


def weight(text: str | bytes) -> int:
    """Return about how many bytes a JSON text takes once parsed, including JSON in its strings."""
    return len(text) + VALUE_BYTES * _count(text, ",{[")


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Return the lines of a file, each cut to `LINE_BYTES + 1`, which is too large as well."""
    limit = LINE_BYTES + 1
    while line := file.readline(limit):
        raise_if_unwanted()
        yield line
        while len(line) >= min(limit, _SKIPPED_BYTES) and not line.endswith(b"\n"):
            line = file.readline(_SKIPPED_BYTES)


class OtherEncodingError(UnreadableError):
    """A file of lines is not in UTF-8."""


def utf8_lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Return the lines of a file, as `lines_of` does, but refuse UTF-16 and UTF-32.

    `lines_of` would cut their lines within letters, and some of them would still be read.

    Raises:
        OtherEncodingError: the file is in UTF-16 or UTF-32.
        UnreadableError: the file has no lines, for example because it is compressed.
    """
    lines = lines_of(file)
    first = [*islice(lines, 2)]  # the first line may end within a letter
    if name := _other_encoding(b"".join(first)):
        message = f"its lines are {name}, not UTF-8: convert it, as with iconv -f {name} -t UTF-8"
        raise OtherEncodingError(message)
    if kind := binary_kind(b"".join(first)):
        raise UnreadableError(kind.instead_of("lines of JSON"))
    yield from first
    yield from lines


def _other_encoding(text: bytes) -> str:
    """Return iconv's name of UTF-16 or UTF-32 if JSON begins so; else an empty text."""
    name = json.detect_encoding(text)
    if name.startswith("utf-8"):
        return ""
    # A crash of the system may leave a hole of NULs, and damaged text has no letters.
    first = text[: len(text) // 4 * 4].decode(name, "replace")[:2]
    is_text = len(first) == 2 and first.isascii() and "\0" not in first
    return re.sub("-(?=[BL]E)", "", name.upper()) if is_text else ""


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        TooLargeError: the text exceeds a limit on lines, values or nesting.
        ValueError: the text is not JSON.
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
    """Return the value of a JSON text, as `json.loads` does, in half the time.

    Raises:
        RecursionError: the text is nested too deep.
        ValueError: the text is not JSON.
    """
    try:
        return from_json(text, cache_strings="keys")
    except (TypeError, ValueError):  # also half a surrogate, another encoding, deep nesting
        return json.loads(text)


def breaks_off(text: str) -> bool:
    """Whether a text is the beginning of a JSON text, but not JSON by itself."""
    try:
        from_json(_SURROGATE.sub(r"\\u0041", text))  # a cut may leave half a surrogate pair
    except ValueError as error:
        return str(error).startswith("EOF")
    return False


def dump(value: object) -> bytes:
    """Return the JSON text of a value, in UTF-8, with escapes for what UTF-8 cannot encode.

    Raises:
        RecursionError: the value is nested too deep.
    """
    try:
        return to_json(value, inf_nan_mode="constants")
    except ValueError:  # half a surrogate, or deep nesting
        return json.dumps(value).encode()


def _has_too_many_values(text: str | bytes) -> bool:
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
    """Whether more than `NESTING` objects and lists are inside each other."""
    level = [value]
    for _ in range(NESTING + 1):
        children = (node.values() if isinstance(node, dict) else node for node in level)
        level = [one for values in children for one in values if isinstance(one, (dict, list))]
        if not level:
            return False
    return True
