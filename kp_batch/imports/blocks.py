"""Blocks: the records of a few units, compressed together.

A single record compresses badly, and all blocks of a unit are read: 256 kB suits both.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, groupby, pairwise, repeat
from operator import itemgetter
from typing import NamedTuple

from kp_batch import zstd
from kp_batch.bounds import dump, parse
from kp_batch.text import encodable

_SESSION = "session "  # before the names of units that are sessions
SIZE = 256 << 10  # bytes of a block's contents, unless one record has more
_LEVEL = 6
FAULTS = (zstd.ZstdError, ValueError, LookupError, TypeError)


class Record(NamedTuple):
    """What a source contains in one place.

    Records sort in the order in which they were first read.
    """

    unit: str  # the source's own id: of a trace, or of a session
    number: int  # number of the file, among all that imports have read
    file: int  # its id in the store
    position: int  # among the records of the file
    line: int | None  # of the file, if it has lines
    content: bytes | None  # JSON; None if an earlier record of the unit has the same content
    digest: bytes | None = None  # of the content; None if the record has the content


def unit_of(trace: str) -> str:
    """Return the unit of a trace; characters that UTF-8 or SQLite's lists cannot contain go."""
    return encodable(trace).replace("\0", "\ufffd")


def session_unit(name: str) -> str:
    """Return the unit of a session of this name; no trace has this name."""
    return _SESSION + name


def is_session(unit: str) -> bool:
    """Whether a unit is a session, which contains several traces."""
    return unit.startswith(_SESSION)


def session_name(unit: str) -> str:
    """Return the name of the session of a unit."""
    return unit.removeprefix(_SESSION)


def digest_of(content: bytes) -> bytes:
    """Return the digest that identifies a content: 16 bytes."""
    return blake2b(content, digest_size=16).digest()


def pack(records: Sequence[Record], level: int = _LEVEL) -> bytes:
    """Return a block of records: the length of a table in JSON, the table, and the contents.

    It has a checksum: SQLite has none, and a letter that a disk has changed may still be JSON.
    """
    contents = [record.content for record in records]
    table = dump(
        {
            "units": [(x, len([*own])) for x, own in groupby(records, itemgetter(0))],
            "numbers": [record.number for record in records],
            "files": [record.file for record in records],
            "positions": [record.position for record in records],
            # Mostly as far from their positions, which compresses to nothing.
            "lines": [x.line if x.line is None else x.line - x.position for x in records],
            "lengths": [None if content is None else len(content) for content in contents],
            "digests": [record.digest.hex() for record in records if record.digest],
        }
    )
    texts = (content for content in contents if content is not None)
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.compress(b"".join((len(table).to_bytes(4), table, *texts)), options=options)


def unpack(block: bytes) -> Iterator[Record]:
    """Yield the records of a block, in order; raises one of `FAULTS` for a damaged block."""
    content = zstd.decompress(block)
    begin = 4 + int.from_bytes(content[:4])
    table = parse(content[4:begin])
    units = (name for unit, count in table["units"] for name in repeat(unit, count))
    places = pairwise(accumulate((x or 0 for x in table["lengths"]), initial=begin))
    digests = map(bytes.fromhex, table["digests"])
    columns = (units, *(table[x] for x in ("numbers", "files", "positions", "lines", "lengths")))
    rows = zip(*columns, places, strict=True)
    for unit, number, file, position, line, length, (start, end) in rows:
        yield Record(
            unit,
            number,
            file,
            position,
            line if line is None else line + position,
            None if length is None else content[start:end],
            next(digests) if length is None else None,
        )
