"""Inspect's `.eval` files: a zip of JSON, each sample as one member or cut into chunks."""

import re
import struct
from collections.abc import Iterable, Iterator
from io import BufferedReader, BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo
from zlib import crc32

from kp_batch import limits
from kp_batch.errors import UnreadableError
from kp_batch.imports.conversation.messages import Json
from kp_batch.imports.formats.packed_files import unpacked
from kp_batch.imports.model import Rejected
from kp_batch.limits import Room, TooLargeError, loads, room_of_trace, weight

_HEADERS = ("header.json", "_journal/start.json")  # the other one while a run goes on
_WHOLE = re.compile(r"(samples/.+_epoch_\d+)\.json")
_SHELL = re.compile(r"(samples/.+_epoch_\d+)/sample\.json")
_CHUNK = re.compile(r"(samples/.+_epoch_\d+/\w+)/(\d+)\.json")
_PLAIN = (ZIP_STORED, ZIP_DEFLATED)  # what else zipfile knows, it may unpack to any size at once
_ZSTANDARD = 93  # which Python's zipfile knows from 3.14 on


class EvalFile:
    """An open `.eval` file.

    Raises:
        TooLargeError: its header passes a limit, or its members unpack to more than a file may.
        UnreadableError: it is a zip, but no Inspect log.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._zip = ZipFile(self._file)
            self._check_size(path.stat().st_size)
            self._members = {each.filename: each for each in self._zip.infolist()}
            self._chunks = _chunks(self._members)
            self.header = self._header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _check_size(self, packed: int) -> None:
        """Add up what the members say: of none is more read than that."""
        if sum(each.file_size for each in self._zip.infolist()) > max(
            limits.MEMBER_BYTES, limits.RATIO * packed
        ):
            raise TooLargeError("it is too large to be read: its members unpack to too much")

    def samples(self) -> Iterator[Json | Rejected]:
        """Each sample, as logs of JSON have it; `messages` and `events` may be gone through once.

        Of events that pass a limit, this is told as they are gone through.
        """
        for name in self._members:
            try:
                sample = self._sample(name)
            except TooLargeError as error:
                yield Rejected([limits.TOO_LARGE], f"{name}: {error}")
            else:
                if sample is not None:
                    yield sample

    def _sample(self, name: str) -> Json | None:
        """The sample that a member is, or begins; None if it is another one."""
        if _WHOLE.fullmatch(name):
            return cast("Json", self._json(name, room_of_trace()))
        match = _SHELL.fullmatch(name)
        return (
            self._chunked(match[1]) if match and f"{match[1]}.json" not in self._members else None
        )

    def _header(self) -> Json:
        for name in _HEADERS:
            found = self._json(name, room_of_trace()) if name in self._members else None
            if isinstance(found, dict):
                return cast("Json", found)
        raise UnreadableError("it is no Inspect log: it has no header.json")

    def _chunked(self, folder: str) -> Json:
        """A sample in chunks: its messages are places in all those that its events know."""
        room = room_of_trace()
        shell = cast("Json", self._json(f"{folder}/sample.json", room))
        known = list(self._sequence(f"{folder}/messages", room))
        attachments = enumerate(self._sequence(f"{folder}/attachments", room))
        metadata = f"{folder}/metadata.json"
        return {
            **shell,
            "metadata": self._json(metadata, room) if metadata in self._members else None,
            "messages": (
                each for start, end in shell.get("message_refs") or () for each in known[start:end]
            ),
            "attachments": {str(place): text for place, text in attachments},
            "events": self._sequence(f"{folder}/events"),
            "events_data": {"messages": known},
        }

    def _sequence(self, folder: str, room: Room | None = None) -> Iterator[Any]:
        """The items of all chunks; without a room, of one at a time."""
        for _, name in sorted(self._chunks.get(folder, ())):
            yield from cast("list[object]", self._json(name, room or room_of_trace()))

    def _json(self, name: str, room: Room) -> object:
        content = self._content(self._members[name])
        room.take(weight(content))
        return loads(content)

    def _content(self, member: ZipInfo) -> bytes:
        """What a member holds; of one that is too large, the beginning, which is so as well."""
        most = min(member.file_size, limits.LINE_BYTES) + 1
        if member.compress_type == _ZSTANDARD:
            content = self._unpacked(member, most)
        elif member.compress_type in _PLAIN:
            with self._zip.open(member) as file:
                content = file.read(most)
        else:
            raise UnreadableError(f"{member.filename} is packed as Inspect packs nothing")
        return content

    def _unpacked(self, member: ZipInfo, most: int) -> bytes:
        self._file.seek(member.header_offset)
        name, extra = struct.unpack_from("<HH", self._file.read(30), 26)
        self._file.seek(name + extra, 1)
        packed = BytesIO(self._file.read(member.compress_size))
        with unpacked(BufferedReader(packed)) as file:
            content = file.read(most)
        is_cut = member.file_size > limits.LINE_BYTES
        if len(content) > member.file_size or not (is_cut or crc32(content) == member.CRC):
            raise BadZipFile(f"{member.filename} is damaged")
        return content


def _chunks(members: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """The chunks of each folder, with the places of their first items, by which they are named."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in members:
        if match := _CHUNK.fullmatch(name):
            found.setdefault(match[1], []).append((int(match[2]), name))
    return found
