"""Blocks: the records of a few units, packed together.

A record alone packs badly, and a unit's blocks are read whole: 256 kB serves both.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa

SIZE = 256 << 10  # bytes of the contents of a block, unless one record has more
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=3))
_SCHEMA = pa.schema(
    {
        "unit": pa.string(),
        "number": pa.int64(),
        "file": pa.int64(),
        "position": pa.int64(),
        "line": pa.int64(),
        "content": pa.binary(),
        "digest": pa.binary(),
    }
)


class Record(NamedTuple):
    """What a source said in one place.

    Records are compared in the order in which they were first read.
    """

    unit: str  # the source's own: a trace, or a session
    number: int  # of the import that read it
    file: int  # its number in the store
    position: int  # among the records of the file
    line: int | None  # of the file, where it has lines
    content: bytes | None  # JSON; None where an earlier record of the unit has the same
    digest: bytes | None  # of the content; None where the record has that


def digest_of(content: bytes) -> bytes:
    """What a content is known by: 16 bytes."""
    return blake2b(content, digest_size=16).digest()


def pack(records: Iterable[Record]) -> bytes:
    """A block of records."""
    columns = [*zip(*records, strict=True)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
    return sink.getvalue().to_pybytes()


def unpack(block: bytes) -> Iterator[Record]:
    """The records of a block, in their order.

    Raises:
        pa.ArrowException: it is damaged.
    """
    with pa.ipc.open_stream(block) as reader:
        for batch in reader:
            yield from map(Record, *(column.to_pylist() for column in batch.columns))
