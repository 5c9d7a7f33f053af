"""Reads files of JSON: one value, or one a line, also with gzip."""

import gzip
import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, cast

from kp_batch.importers.draft import Refused, UnreadableError
from kp_batch.importers.messages import Json

_MALFORMED = "malformed_json"


def read_json(path: Path) -> object:
    """Read a file's one value.

    Raises:
        UnreadableError: it is empty, cut or no JSON.
    """
    content = _content(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is no JSON: {error}") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, object] | Refused]:
    """Read a file's lines, from 1 on; a line that is no JSON object is refused.

    Raises:
        UnreadableError: it is empty, or cannot be unpacked.
    """
    is_empty = True
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                is_empty = False
                if line.strip():
                    yield _parsed(number, line)
    except (EOFError, gzip.BadGzipFile) as error:
        raise UnreadableError(f"it cannot be unpacked: {error}") from error
    if is_empty:
        raise UnreadableError("it is empty (0 bytes)")


def is_empty(path: Path) -> bool:
    """Whether a file has no bytes, unpacked."""
    with _opened(path) as file:
        return not file.read(1)


def read_json_values(path: Path) -> Iterator[tuple[int | None, Json] | Refused]:
    """Read a file of one JSON object, of a list of them, or of one a line.

    Raises:
        UnreadableError: it is empty, cannot be unpacked, or holds no object.
    """
    lines = cast("Iterator[tuple[int, Json] | Refused]", read_json_lines(path))
    refused: list[Refused] = []
    for line in lines:
        if not isinstance(line, Refused):
            yield from refused
            yield line
            yield from lines
            return
        if not refused and _may_be_one_value(path) and (whole := _objects(path)):
            yield from ((None, each) for each in whole)
            return
        refused.append(line)
    raise UnreadableError(f"it is no JSON: {refused[0].message}" if refused else "it is empty")


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.name.endswith(".gz") else path.open("rb")


def _may_be_one_value(path: Path) -> bool:
    """Whether a file may be one value over many lines, as its first lines have it.

    So one line that is cut does not draw a file of lines into memory: where each is an object, no
    value goes on over four of them.
    """
    try:
        with _opened(path) as file:
            first = b"".join(islice((line for line in file if line.strip()), 4))
        if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):  # whose lines end elsewhere
            return True
        json.loads(first)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc.rstrip())  # nothing is wrong but that it goes on
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile):
        return False
    return True


def _parsed(number: int, line: bytes) -> tuple[int, object] | Refused:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Refused([_MALFORMED], f"no JSON: {error}", line=number)
    if not isinstance(value, dict):
        return Refused([_MALFORMED], f"a {type(value).__name__}, no object", line=number)
    return number, value


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, ValueError) as error:
            raise UnreadableError(f"it cannot be unpacked: {error}") from error
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
    return [cast("Json", each) for each in several if isinstance(each, Mapping)]
