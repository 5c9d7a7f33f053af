"""Reads files of JSON: one value, or one a line, also with gzip or zstd."""

import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

from kp_batch import limits
from kp_batch.errors import UnreadableError
from kp_batch.imports.conversation.messages import Json
from kp_batch.imports.formats.packed_files import opened
from kp_batch.imports.model import Rejected
from kp_batch.limits import TooLargeError, lines_of, loads, room_of_refused

_MALFORMED = "malformed_json"


def read_json(path: Path) -> object:
    """Read a file's one value.

    Raises:
        TooLargeError: it passes a limit.
        UnreadableError: it is empty, cut or no JSON.
    """
    try:
        return loads(_content(path))
    except ValueError as error:
        raise UnreadableError(f"it is no JSON: {error}") from error


def read_json_lines(
    path: Path, *, may_lack_end: bool = False
) -> Iterator[tuple[int, object] | Rejected]:
    """Read a file's lines, from 1 on; a line that is no JSON object, or too large, is refused.

    Args:
        path: of the file.
        may_lack_end: whether it may be written to; see `unpacked`.

    Raises:
        TooLargeError: it unpacks to more than a file may hold, or too many lines are refused.
        UnreadableError: it is empty, or cannot be unpacked.
    """
    is_empty, room = True, room_of_refused()
    with opened(path, may_lack_end=may_lack_end) as file:
        for number, line in enumerate(lines_of(file), 1):
            is_empty = False
            found = parsed(number, line) if line.strip() else None
            if not isinstance(found, tuple):
                room.take(1)
            if found:
                yield found
    if is_empty:
        raise UnreadableError("it is empty (0 bytes)")


def is_empty(path: Path) -> bool:
    """Whether a file has no bytes, unpacked."""
    with opened(path) as file:
        return not file.read(1)


def read_json_values(path: Path) -> Iterator[tuple[int | None, Json] | Rejected]:
    """Read a file of one JSON object, of a list of them, or of one a line.

    Raises:
        TooLargeError: it is one value, or one line, that passes a limit; or unpacks to too much.
        UnreadableError: it is empty, cannot be unpacked, or holds no object.
    """
    found = read_json_lines(path, may_lack_end=True)
    lines = cast("Iterator[tuple[int, Json] | Rejected]", found)
    refused: list[Rejected] = []
    for line in lines:
        if not isinstance(line, Rejected):
            yield from refused
            yield line
            yield from lines
            return
        is_begun = not refused and _MALFORMED in line.reasons and _may_be_one_value(path)
        if is_begun and (whole := _objects(path)):
            yield from ((None, each) for each in whole)
            return
        refused.append(line)
    if large := next((each for each in refused if limits.TOO_LARGE in each.reasons), None):
        raise TooLargeError(large.message)
    raise UnreadableError(f"it is no JSON: {refused[0].message}" if refused else "it is empty")


def _may_be_one_value(path: Path) -> bool:
    """Whether a file may be one value over many lines, as its first lines have it.

    So one line that is cut does not draw a file of lines into memory: where each is an object, no
    value goes on over four of them.
    """
    try:
        with opened(path, may_lack_end=True) as file:
            lines = (line for line in lines_of(file) if line.strip())
            first = b"".join(islice(lines, 4))
        if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):  # whose lines end elsewhere
            return True
        loads(first)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc.rstrip())  # nothing is wrong but that it goes on
    except (ValueError, TooLargeError, UnreadableError):
        return False
    return True


def parsed(number: int, line: bytes) -> tuple[int, object] | Rejected:
    """Parse a line of this number; one that is no JSON object, or too large, is refused."""
    try:
        value = loads(line)
    except TooLargeError as error:
        return Rejected([limits.TOO_LARGE], str(error), line=number)
    except ValueError as error:
        return Rejected([_MALFORMED], f"no JSON: {error}", line=number)
    if not isinstance(value, dict):
        return Rejected([_MALFORMED], f"a {type(value).__name__}, no object", line=number)
    return number, value


def _content(path: Path) -> bytes:
    """A file's content; of one that is too large, the beginning, which is too large as well."""
    with opened(path) as file:
        content = file.read(limits.LINE_BYTES + 1)
    if not content:
        raise UnreadableError("it is empty (0 bytes)")
    return content


def _objects(path: Path) -> list[Json]:
    """The objects of a file that is one value over many lines; none if it is not."""
    try:
        found = read_json(path)
    except UnreadableError:
        return []
    several = cast("list[object]", found) if isinstance(found, list) else [found]
    return [cast("Json", each) for each in several if isinstance(each, dict)]
