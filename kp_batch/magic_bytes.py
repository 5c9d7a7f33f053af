"""What a file is by its first bytes, for those who gave another kind than is read."""

from codecs import BOM_UTF8
from dataclasses import dataclass

STARTS = 4096  # bytes that are looked at
_CONTROLS = bytes([*range(1, 8), *range(14, 27), *range(28, 32)])  # that no text has
_MOST_CONTROLS = 0.02  # of a text that is damaged; of what is packed, they are 0.09


@dataclass(frozen=True)
class Kind:
    """A kind of files: its name, and what to do with such a file."""

    name: str
    remedy: str

    def instead_of(self, wanted: str) -> str:
        """What is wrong with a file of this kind where another one is read, and what to do."""
        return f"it is {self.name}, not {wanted}: {self.remedy}"


PARQUET = Kind("Parquet", "give it the ending .parquet")
_TEXT = Kind("text", "convert it to lines of JSON")
_JSON = Kind("JSON", "put each trace on a line, and give it the ending .jsonl")
BINARY = Kind("binary", "name the file that was meant")
_BY_START = {
    b"PAR1": PARQUET,
    b"\x1f\x8b": Kind("packed by gzip", "unpack it, as with gunzip"),
    b"\x28\xb5\x2f\xfd": Kind("packed by zstd", "unpack it, as with unzstd"),
    b"BZh": Kind("packed by bzip2", "unpack it, as with bunzip2"),
    b"\xfd7zXZ\0": Kind("packed by xz", "unpack it, as with unxz"),
    b"PK\3\4": Kind("a zip archive", "unpack it, as with unzip"),
    b"SQLite format 3\0": Kind("an SQLite database", "export what it holds"),
}


def binary_kind(start: bytes) -> Kind | None:
    """The kind of a file without text that begins with these bytes; None if it may have text.

    Damage, and a hole of NULs, as a crash of a system leaves, make nothing binary: it still has
    lines of JSON.
    """
    for begin, kind in _BY_START.items():
        if start.startswith(begin):
            return kind
    start = start[:STARTS]
    controls = len(start) - len(start.translate(None, _CONTROLS))
    return BINARY if controls > _MOST_CONTROLS * len(start) and b"\n{" not in start else None


def kind_of(start: bytes) -> Kind:
    """The kind of a file that begins with these bytes."""
    if (kind := binary_kind(start)) or b"\0" in start[:STARTS]:
        return kind or BINARY
    is_json = start.removeprefix(BOM_UTF8).lstrip().startswith((b"{", b"["))
    return _JSON if is_json else _TEXT
