"""Recognise files by their first bytes, to help users who gave a file of another kind."""

from codecs import BOM_UTF8
from dataclasses import dataclass

STARTS = 4096  # bytes that are examined
_CONTROLS = bytes([*range(1, 8), *range(14, 27), *range(28, 32)])  # never in text
_MOST_CONTROLS = 0.02  # the share in damaged text; compressed data has 0.09


@dataclass(frozen=True)
class FileKind:
    """A kind of file: its name, and what to do with such a file."""

    name: str
    remedy: str

    def instead_of(self, wanted: str) -> str:
        """Say that a file of this kind was given instead of another one, and what to do."""
        return f"it is {self.name}, not {wanted}: {self.remedy}"


PARQUET = FileKind("Parquet", "give it the ending .parquet")
_TEXT = FileKind("text", "convert it to lines of JSON")
_JSON = FileKind("JSON", "put each trace on a line, and give it the ending .jsonl")
BINARY = FileKind("binary", "name the file that was meant")
_BY_START = {
    b"PAR1": PARQUET,
    b"\x1f\x8b": FileKind("packed by gzip", "unpack it, as with gunzip"),
    b"\x28\xb5\x2f\xfd": FileKind("packed by zstd", "unpack it, as with unzstd"),
    b"BZh": FileKind("packed by bzip2", "unpack it, as with bunzip2"),
    b"\xfd7zXZ\0": FileKind("packed by xz", "unpack it, as with unxz"),
    b"PK\3\4": FileKind("a zip archive", "unpack it, as with unzip"),
    b"SQLite format 3\0": FileKind("an SQLite database", "export what it holds"),
}


def binary_kind(start: bytes) -> FileKind | None:
    """Return the kind of a file without text, by its first bytes; None if it may have text.

    Damage, or a hole of NULs after a system crash, makes nothing binary: the file still has lines
    of JSON.
    """
    for begin, kind in _BY_START.items():
        if start.startswith(begin):
            return kind
    start = start[:STARTS]
    controls = len(start) - len(start.translate(None, _CONTROLS))
    return BINARY if controls > _MOST_CONTROLS * len(start) and b"\n{" not in start else None


def kind_of(start: bytes) -> FileKind:
    """Return the kind of a file that begins with these bytes."""
    if (kind := binary_kind(start)) or b"\0" in start[:STARTS]:
        return kind or BINARY
    is_json = start.removeprefix(BOM_UTF8).lstrip().startswith((b"{", b"["))
    return _JSON if is_json else _TEXT
