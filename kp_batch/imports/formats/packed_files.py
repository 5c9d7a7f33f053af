"""Opens files that may be packed with gzip or zstd, which their first bytes tell."""

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from kp_batch import limits
from kp_batch.errors import UnreadableError
from kp_batch.limits import Room

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 20


class CutError(UnreadableError):
    """A packed file ends early: what stands before is sound, as far as can be told."""


def opened(path: Path, *, may_lack_end: bool = False) -> io.BufferedReader:
    """Open a file; see `unpacked`."""
    return unpacked(path.open("rb"), may_lack_end=may_lack_end)


def unpacked(file: io.BufferedReader, *, may_lack_end: bool = False) -> io.BufferedReader:
    """What a file holds, which is closed with it.

    Reading it may raise an UnreadableError, where it cannot be unpacked, or a TooLargeError, where
    that is more than a file may hold.

    Args:
        file: which may be packed.
        may_lack_end: whether its zstd may end early, as that of a file does which is written to.
    """
    head = file.peek(len(ZSTD))
    if head.startswith(_GZIP):
        return io.BufferedReader(_Unpacked(file, gzip.GzipFile(fileobj=file)), _BUFFER)
    if head.startswith(ZSTD):
        inner = _Unpacked(file, zstd.ZstdFile(file), may_lack_end=may_lack_end)
        return io.BufferedReader(inner, _BUFFER)
    return file


class _Unpacked(io.RawIOBase):
    """What a packed file holds, as far as one may."""

    def __init__(
        self,
        packed: io.BufferedReader,
        file: "gzip.GzipFile | zstd.ZstdFile",
        *,
        may_lack_end: bool = False,
    ) -> None:
        self._packed, self._file, self._may_lack_end = packed, file, may_lack_end
        most = f"{limits.MEMBER_BYTES >> 20:,} MiB"
        told = f"it is too large to be read: it unpacks to more than {most}"
        self._room = Room(limits.MEMBER_BYTES, told)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        try:
            size = self._file.readinto1(buffer)  # which keeps what stands before an early end
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
