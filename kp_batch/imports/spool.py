"""Spools what an import reads to the disk, so that each part of it fits into memory.

All records of a unit are in one part, in whatever files and in whatever order they were. Parts are
ranges of a hash of the unit. Units are built and stored in its order, so that those of a part stand
in few blocks, however many parts another import had.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

import pyarrow as pa

_RUN_BYTES = 16 << 20  # of records that are gathered for a file
_SCHEMA = pa.schema(
    {
        "unit": pa.string(),
        "file": pa.int64(),
        "position": pa.int64(),
        "line": pa.int64(),
        "content": pa.large_binary(),
    }
)
Row = tuple[str, int, int, int | None, bytes]  # of `_SCHEMA`


def place_of(unit: str) -> tuple[int, str]:
    """What units are sorted by."""
    return crc32(unit.encode()), unit


def part_of(unit: str, parts: int) -> int:
    """The part, of so many, that has the records of a unit."""
    return crc32(unit.encode()) * parts >> 32


class Spool:
    """Writes runs: Arrow files, whose batches are the parts.

    Args:
        folder: for the runs; made where it is missing.
        parts: how many there are.
    """

    def __init__(self, folder: Path, parts: int) -> None:
        self._folder, self._parts = folder, parts
        self._rows: list[list[Row]] = [[] for _ in range(parts)]
        self._bytes = 0
        self._runs: list[Path] = []

    def add(self, row: Row) -> None:
        """Take a record."""
        self._rows[part_of(row[0], self._parts)].append(row)
        self._bytes += len(row[-1]) + 100
        if self._bytes > _RUN_BYTES:
            self._flush()

    def runs(self) -> Sequence[Path]:
        """The files of all records."""
        if self._bytes:
            self._flush()
        return self._runs

    def _flush(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{len(self._runs):06d}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
            for rows in self._rows:
                writer.write_batch(_batch(rows))
                rows.clear()
        self._runs.append(path)
        self._bytes = 0


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_SCHEMA)
    arrays = [pa.array(x, field.type) for x, field in zip(columns, _SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=_SCHEMA)


def rows_of_part(runs: Iterable[Path], part: int) -> Iterator[Row]:
    """The records of a part, in no special order."""
    for run in runs:
        with pa.memory_map(str(run)) as file:
            batch = pa.ipc.open_file(file).get_batch(part)
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
