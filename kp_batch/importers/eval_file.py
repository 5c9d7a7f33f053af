"""Inspect's `.eval` files: a zip of JSON, each sample as one member or cut into chunks."""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import crc32

import pyarrow as pa

from kp_batch.importers.draft import UnreadableError
from kp_batch.importers.messages import Json

_HEADERS = ("header.json", "_journal/start.json")  # the other one while a run goes on
_WHOLE = re.compile(r"(samples/.+_epoch_\d+)\.json")
_SHELL = re.compile(r"(samples/.+_epoch_\d+)/sample\.json")
_ZSTANDARD = 93  # which Python's zipfile knows from 3.14 on


class EvalFile:
    """An open `.eval` file.

    Raises:
        UnreadableError: it is a zip, but no Inspect log.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._zip = ZipFile(self._file)
            self._members = {each.filename: each for each in self._zip.infolist()}
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

    def samples(self) -> Iterator[Json]:
        """Each sample, as logs of JSON have it; `events` is read as it is gone through."""
        for name in self._members:
            if match := _WHOLE.fullmatch(name):
                yield cast("Json", self._json(name))
            elif (match := _SHELL.fullmatch(name)) and f"{match[1]}.json" not in self._members:
                yield self._chunked(match[1])

    def _header(self) -> Json:
        for name in _HEADERS:
            found = self._json(name) if name in self._members else None
            if isinstance(found, Mapping):
                return cast("Json", found)
        raise UnreadableError("it is no Inspect log: it has no header.json")

    def _chunked(self, folder: str) -> Json:
        """A sample in chunks: its messages are places in all those that its events know."""
        shell = cast("Json", self._json(f"{folder}/sample.json"))
        known = list(self._sequence(f"{folder}/messages"))
        attachments = enumerate(self._sequence(f"{folder}/attachments"))
        metadata = f"{folder}/metadata.json"
        return {
            **shell,
            "metadata": self._json(metadata) if metadata in self._members else None,
            "messages": [
                each for start, end in shell.get("message_refs") or () for each in known[start:end]
            ],
            "attachments": {str(place): text for place, text in attachments},
            "events": self._sequence(f"{folder}/events"),
            "events_data": {"messages": known},
        }

    def _sequence(self, folder: str) -> Iterator[Any]:
        """The items of all chunks, which are named by the place of their first."""
        pattern = re.compile(rf"{re.escape(folder)}/(\d+)\.json")
        found = ((pattern.fullmatch(name), name) for name in self._members)
        for _, name in sorted((int(match[1]), name) for match, name in found if match):
            yield from cast("list[object]", self._json(name))

    def _json(self, name: str) -> object:
        member = self._members[name]
        if member.compress_type == _ZSTANDARD:
            return json.loads(self._unpacked(member))
        return json.loads(self._zip.read(member))

    def _unpacked(self, member: ZipInfo) -> bytes:
        self._file.seek(member.header_offset)
        name, extra = struct.unpack_from("<HH", self._file.read(30), 26)
        self._file.seek(name + extra, 1)
        packed = pa.BufferReader(self._file.read(member.compress_size))
        content: bytes = pa.CompressedInputStream(packed, "zstd").read()
        if crc32(content) != member.CRC:
            raise BadZipFile(f"{member.filename} is damaged")
        return content
