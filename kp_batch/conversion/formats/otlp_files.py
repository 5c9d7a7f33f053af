"""Reads files of OTLP: requests as JSON or protobuf, each compressed separately or not."""

from collections.abc import Iterator, Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO

from kp_batch import bounds
from kp_batch.bounds import Budget, TooLargeError, refusal_budget
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.formats.json_files import (
    CutError,
    begins_json,
    is_zstd,
    opened,
    parsed,
    read_json_values,
    unpacked,
)
from kp_batch.conversion.formats.otlp_protobuf import NO_REQUEST, exactly, items_of, varint
from kp_batch.conversion.model import ReadItem, Refused
from kp_batch.errors import UNREADABLE_FILE, UnreadableError

_JSON = (".json", ".jsonl", ".ndjson")
_PACKED = ("", ".gz", ".zst")
ENDINGS = tuple(x + y for x in (*_JSON, ".pb", ".binpb") for y in _PACKED)
_JSON_ENDINGS = tuple(x + y for x in _JSON for y in _PACKED)
_HEAD = 64  # bytes that show what a file is
_MALFORMED = "malformed_json"
_NO_REQUEST = "no export request of OTLP"

# A request as JSON, or the items of a request in protobuf.
Request = tuple[int | None, Json | Sequence[ReadItem]] | Refused


def read_requests(path: Path) -> Iterator[Request]:
    """Read a file's requests, with their lines, or their places in a stream.

    If a stream of messages ends within one, the last item refuses the file, and the earlier ones
    still count.

    Raises:
        TooLargeError: its one request exceeds a limit, or it unpacks to too much.
        UnreadableError: it is empty, cannot be unpacked, or contains no request.
    """
    with opened(path, may_lack_end=True) as file:
        head = file.read(_HEAD)
    is_stream = is_zstd(head[4:])  # of messages that are compressed one by one
    if not is_stream and (path.name.lower().endswith(_JSON_ENDINGS) or begins_json(head)):
        return read_json_values(path)
    if not head:
        raise UnreadableError("it is empty (0 bytes)")
    return _one_request(path) if head.startswith(b"\n") else _stream(path)


def _one_request(path: Path) -> Iterator[Request]:
    """Yield the request that a file is: its first byte is the tag of the first field."""
    with opened(path, may_lack_end=True) as file:
        message = file.read(bounds.LINE_BYTES + 1)
    if len(message) > bounds.LINE_BYTES:
        raise TooLargeError
    try:
        yield None, items_of(message, None)
    except NO_REQUEST as error:
        raise UnreadableError(f"it is cut, or {_NO_REQUEST}: {error}") from error


def _stream(path: Path) -> Iterator[Request]:
    """Yield the requests of a file that has the length before each."""
    number = 0
    room = Budget(bounds.MEMBER_BYTES, "it is too large to be read: it unpacks to too much")
    with opened(path, may_lack_end=True) as file:
        try:
            for number, packed in _messages(file):
                content = _unpacked(number, packed)
                if isinstance(content, Refused):
                    yield content
                    continue
                room.take(len(content))
                yield _of_stream(number, content)
        except (CutError, EOFError, ValueError) as error:
            message = f"it is cut after {number:,} messages, or holds {_NO_REQUEST}: {error}"
            if not number:
                raise UnreadableError(message) from error
            yield Refused([UNREADABLE_FILE], message)


def _messages(file: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a stream, numbered from 1; of a too large one, the beginning.

    The Collector writes four bytes of length before each; the first of them is 0 below 16 MiB.
    Others write a varint. No message with a span is as short as 10 bytes.
    """
    length = _length if file.peek(1)[:1] < b"\n" else varint
    number, empty = 0, refusal_budget()
    while file.peek(1):
        size = length(file)
        message = exactly(file, min(size, bounds.LINE_BYTES + 1))
        for rest in range(size - len(message), 0, -bounds.LINE_BYTES):
            exactly(file, min(rest, bounds.LINE_BYTES))
        empty.take(not size)
        number += bool(size)
        if size:
            yield number, message


def _unpacked(number: int, message: bytes) -> bytes | Refused:
    """Return the content of a message, which may be compressed; if too large, its beginning."""
    if not is_zstd(message):
        return message
    try:
        with unpacked(BufferedReader(BytesIO(message))) as file:
            return file.read(bounds.LINE_BYTES + 1)
    except UnreadableError as error:
        return Refused([_MALFORMED], str(error), line=number)


def _of_stream(number: int, message: bytes) -> Request:
    if message.startswith(b"{"):
        return parsed(number, message)
    try:
        return number, items_of(message, number)
    except TooLargeError as error:
        return Refused([bounds.TOO_LARGE], str(error), line=number)
    except NO_REQUEST as error:
        return Refused([_MALFORMED], f"{_NO_REQUEST}: {error}", line=number)


def _length(file: IO[bytes]) -> int:
    """Return the length in the four bytes before a message."""
    return int.from_bytes(exactly(file, 4), "big")
