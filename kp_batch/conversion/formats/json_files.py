"""Reads files of JSON: one value, or one per line, also compressed with gzip or zstd."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kp_batch import bounds, zstd
from kp_batch.bounds import (
    Budget,
    OtherEncodingError,
    TooLargeError,
    lines_of,
    loads,
    refusal_budget,
    utf8_lines_of,
)
from kp_batch.conversion import model
from kp_batch.conversion.conversation.messages import Json, parts_of
from kp_batch.conversion.model import ReadItem, Refused
from kp_batch.errors import UnreadableError
from kp_batch.files import open_regular
from kp_batch.magic_bytes import binary_kind

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ZSTD = b"\x28\xb5\x2f\xfd"
# A frame that may come before: pzstd writes sizes there, and readers skip it.
_SKIPPED = tuple(bytes([0x50 + kind]) + b"\x2a\x4d\x18" for kind in range(16))
_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 20
_MALFORMED = "malformed_json"
_UNFINISHED = "unfinished_line"  # a later import finds it complete


_FIRST_LINES = 100  # that show what a file is
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f]")  # early in protobuf, and never in JSON
_TOKEN = re.compile(rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?|([][{},])', re.DOTALL)
_ENDS = {b"{": b"}", b"[": b"]"}
_LINES = (".jsonl", ".ndjson")


class CutError(UnreadableError):
    """A compressed file ends early; its content up to there is valid, as far as can be seen."""


def opened(path: Path, *, may_lack_end: bool = False) -> io.BufferedReader:
    """Open a file; see `unpacked`."""
    return unpacked(open_regular(path), may_lack_end=may_lack_end)


def unpacked(file: io.BufferedReader, *, may_lack_end: bool = False) -> io.BufferedReader:
    """Return the content of a file, which is closed with it.

    Reading it may raise an UnreadableError if it cannot be unpacked, or a TooLargeError if it
    unpacks to more than a file may.

    Args:
        file: a file that may be compressed.
        may_lack_end: whether its zstd data may end early, because it is still being written.
    """
    head = file.peek(len(_ZSTD))
    if head.startswith(_GZIP):
        return io.BufferedReader(_Unpacked(file, gzip.GzipFile(fileobj=file)), _BUFFER)
    if is_zstd(head):
        inner = _Unpacked(file, zstd.ZstdFile(file), may_lack_end=may_lack_end)
        return io.BufferedReader(inner, _BUFFER)
    return file


def is_zstd(head: bytes) -> bool:
    """Whether content that begins so is compressed with zstd."""
    return head.startswith((_ZSTD, *_SKIPPED))


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, up to the limit."""

    def __init__(
        self,
        packed: io.BufferedReader,
        file: "gzip.GzipFile | zstd.ZstdFile",
        *,
        may_lack_end: bool = False,
    ) -> None:
        self._packed, self._file, self._may_lack_end = packed, file, may_lack_end
        most = f"{bounds.MEMBER_BYTES >> 20:,} MiB"
        message = f"it is too large to be read: it unpacks to more than {most}"
        self._room = Budget(bounds.MEMBER_BYTES, message)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        try:
            size = self._file.readinto1(buffer)  # keeps what comes before an early end
        except EOFError as error:
            if self._may_lack_end:
                return 0
            raise CutError(f"it cannot be unpacked: {error}") from error
        except (gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
            raise UnreadableError(f"it cannot be unpacked: {error}") from error
        self._room.take(size)
        return size

    def close(self) -> None:
        self._packed.close()
        super().close()


def begins_json(head: bytes) -> bool:
    """Whether content that begins so is JSON: an object, a list, or lines of these."""
    return head.lstrip().startswith((b"{", b"[")) and not _CONTROLS.search(head)


def beginning(path: str, head: bytes) -> bytes:
    """Return the first lines of a file of JSON, or its one value without late parts.

    Empty if it is not JSON, or its first line is longer.

    Args:
        path: path of the file; its ending shows whether it has lines.
        head: its beginning, which may be compressed.
    """
    with unpacked(io.BufferedReader(io.BytesIO(head)), may_lack_end=True) as file:
        text = file.read(model.HEAD_BYTES)
    if not begins_json(text):
        return b""
    is_of_lines = any(ending in path.lower() for ending in _LINES)
    return text[: text.rfind(b"\n") + 1] if is_of_lines else _closed(text)


def _closed(text: bytes) -> bytes:
    """Complete the values that a text begins with; an unfinished one ends after its last part."""
    complete = cut = 0  # where the last value ends, and the last part
    ends = due = b""  # brackets
    for token in _TOKEN.finditer(text):
        bracket = token[1]
        if bracket is None:  # a string
            continue
        ends = _ENDS[bracket] + ends if bracket in _ENDS else ends[bracket != b"," :]
        cut, due = token.start() if bracket == b"," else token.end(), ends
        complete = complete if ends else token.end()
    return text[: max(complete, text.rfind(b"\n") + 1)] if complete else text[:cut] + due


def read_json(path: Path) -> object:
    """Read a file's only value.

    Raises:
        TooLargeError: the value exceeds a limit.
        UnreadableError: the file is empty, cut or not JSON.
    """
    content = b""
    try:
        with opened(path) as file:  # a beginning of a large value is too large, too
            content = file.read(bounds.LINE_BYTES + 1)
        if not content:
            raise UnreadableError("it is empty (0 bytes)")
        return loads(content)
    except ValueError as error:
        kind = binary_kind(content)
        message = kind.instead_of("JSON") if kind else f"it is not JSON: {error}"
        raise UnreadableError(message) from error


def read_json_lines(
    path: Path, *, may_lack_end: bool = False
) -> Iterator[tuple[int, Json] | Refused]:
    """Read a file's lines, numbered from 1; refuse lines that are too large, or not JSON objects.

    A last line without its end waits, since it may be unfinished.

    Args:
        path: path of the file.
        may_lack_end: whether it may still be written to; see `unpacked`.

    Raises:
        TooLargeError: the file unpacks to more than a file may, or too many lines are refused.
        UnreadableError: the file is empty, is not UTF-8, or cannot be unpacked.
    """
    is_empty, room = True, refusal_budget()
    with opened(path, may_lack_end=may_lack_end) as file:
        for number, line in enumerate(utf8_lines_of(file), 1):
            is_empty = False
            broken = (_MALFORMED,) if line.endswith(b"\n") else (_MALFORMED, _UNFINISHED)
            item = parsed(number, line, broken) if line.strip() else None
            if not isinstance(item, tuple):
                room.take(1)
            if item:
                yield item
    if is_empty:
        raise UnreadableError("it is empty (0 bytes)")


def own_lines(
    path: Path, is_own: Callable[[Json], bool], what: str
) -> Iterator[tuple[int, Json] | Refused]:
    """Yield the lines of a file, if one of the first shows that it is of a kind.

    Raises:
        UnreadableError: none does, so it is not `what`.
    """
    before: list[tuple[int, Json] | Refused] | None = []  # lines
    for item in read_json_lines(path):
        if before is None:
            yield item
            continue
        before.append(item)
        if not isinstance(item, Refused) and is_own(item[1]):
            yield from before
            before = None
        elif not isinstance(item, Refused) and item[0] > _FIRST_LINES:
            break
    if before is not None:
        raise UnreadableError(f"it is not a {what}")


def records_of_lines(path: Path, record: Callable[[Json, int], ReadItem]) -> Iterator[ReadItem]:
    """Make a record of each line and its number; see `read_json_lines`.

    If `record` raises an UnreadableError, the line is refused for a missing column.
    """
    for item in read_json_lines(path):
        if isinstance(item, Refused):
            yield item
            continue
        number, line = item
        try:
            yield record(line, number)
        except UnreadableError as error:
            yield Refused(["missing_column"], str(error), line=number)


def is_empty(path: Path) -> bool:
    """Whether a file has no bytes, after unpacking."""
    with opened(path) as file:
        return not file.read(1)


def read_json_values(path: Path) -> Iterator[tuple[int | None, Json] | Refused]:
    """Read a file of one JSON object, of a list of objects, or of one object per line.

    Raises:
        TooLargeError: its one value, or a line, exceeds a limit; or it unpacks to too much.
        UnreadableError: it is empty, cannot be unpacked, or contains no object.
    """
    try:
        yield from _values_of_lines(path)
    except OtherEncodingError:  # a single value may have any
        if not (objects := _objects(path)):
            raise
        yield from ((None, each) for each in objects)


def _values_of_lines(path: Path) -> Iterator[tuple[int | None, Json] | Refused]:
    """Yield the objects of a file, one per line, unless no line begins with one."""
    lines = read_json_lines(path, may_lack_end=True)
    refused: list[Refused] = []
    for line in lines:
        if not isinstance(line, Refused):
            yield from refused
            yield line
            yield from lines
            return
        is_begun = not refused and _MALFORMED in line.reasons and _may_be_one_value(path)
        if is_begun and (objects := _objects(path)):
            yield from ((None, each) for each in objects)
            return
        refused.append(line)
    if large := next((each for each in refused if bounds.TOO_LARGE in each.reasons), None):
        raise TooLargeError(large.message)
    raise UnreadableError(f"it is not JSON: {refused[0].message}" if refused else "it is empty")


def _may_be_one_value(path: Path) -> bool:
    """Whether a file may be one value over many lines, judged by its first lines.

    This keeps a cut line from loading a file of lines into memory: if each line is an object, no
    value spans four of them.
    """
    try:
        with opened(path, may_lack_end=True) as file:
            lines = (line for line in lines_of(file) if line.strip())
            first = b"".join(islice(lines, 4))
        loads(first)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc.rstrip())  # the only fault is that it ends
    except (ValueError, TooLargeError, UnreadableError):
        return False
    return True


def parsed(
    number: int, line: bytes, broken: Sequence[str] = (_MALFORMED,)
) -> tuple[int, Json] | Refused:
    """Parse a line; refuse one that is too large, or not a JSON object.

    Args:
        number: number of the line.
        line: its content.
        broken: reasons to refuse a line that is not JSON.
    """
    try:
        value = loads(line)
    except TooLargeError as error:
        return Refused([bounds.TOO_LARGE], str(error), line=number)
    except ValueError as error:
        return Refused([*broken], f"it is not JSON: {error}", line=number)
    if not isinstance(value, dict):
        return Refused([_MALFORMED], f"it is a {type(value).__name__}, not an object", line=number)
    return number, cast("Json", value)


def _objects(path: Path) -> list[Json]:
    """Return the objects of a file that is one value over many lines; else none."""
    try:
        value = read_json(path)
    except UnreadableError:
        return []
    return [cast("Json", item) for item in parts_of(value) if isinstance(item, dict)]
