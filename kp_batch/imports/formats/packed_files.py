"""Opens files that may be packed with gzip or zstd, which their first bytes tell."""

import gzip
import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

import zstandard

from kp_batch import limits
from kp_batch.bounded_json import Room
from kp_batch.file_faults import UnreadableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 20


def opened(path: Path) -> io.BufferedReader:
    """Open a file, unpacked.

    Reading it may raise an UnreadableError, where it cannot be unpacked, or a TooLargeError, where
    that is more than a file may hold. A zstd file may end anywhere: one that is written to has no
    end yet.
    """
    return unpacked(path.open("rb"))


def unpacked(file: io.BufferedReader) -> io.BufferedReader:
    """What a file holds, which is closed with it; see `opened`."""
    head = file.peek(len(ZSTD))
    if not head.startswith((_GZIP, ZSTD)):
        return file
    return io.BufferedReader(_Unpacked(file, is_gzip=head.startswith(_GZIP)), _BUFFER)


class _Unpacked(io.RawIOBase):
    """What a packed file holds, as far as one may."""

    def __init__(self, packed: io.BufferedReader, *, is_gzip: bool) -> None:
        self._packed = packed
        zstd = zstandard.ZstdDecompressor()
        self._file = (
            gzip.GzipFile(fileobj=packed)
            if is_gzip
            else cast("io.RawIOBase", zstd.stream_reader(packed, read_across_frames=True))
        )
        most = f"{limits.MEMBER_BYTES >> 20:,} MiB"
        told = f"it is too large to be read: it unpacks to more than {most}"
        self._room = Room(limits.MEMBER_BYTES, told)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        try:
            size = self._file.readinto(buffer) or 0
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise UnreadableError(f"it cannot be unpacked: {error}") from error
        self._room.take(size)
        return size

    def close(self) -> None:
        self._packed.close()
        super().close()
