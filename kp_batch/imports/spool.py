"""Spools what an import reads to the disk, so each part of it fits into memory.

All records of a unit are in one part, whatever their files and their order. A part is a range of a
hash of the unit. Units are built and stored in the order of that hash, so the units of a part are
in few blocks, however many parts another import had.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from kp_batch.imports.blocks import Record, pack, unpack

RUN_BYTES = 16 << 20  # of records in memory, which become one sorted run
_LEVEL = 1  # of zstd; it is faster than the disk


def place_of(unit: str) -> tuple[int, str]:
    """Return the sort key of a unit."""
    return crc32(unit.encode()), unit


def part_of(unit: str, parts: int) -> int:
    """Return the number of the part that has the records of a unit."""
    return crc32(unit.encode()) * parts >> 32


@dataclass(frozen=True)
class SortedRun:
    """A file with some records of each part.

    Attributes:
        path: path of the file.
        places: where the block of each part begins; last, where the file ends.
    """

    path: Path
    places: Sequence[int]


class Spool:
    """Writes records into runs.

    Args:
        folder: folder for the runs; created if it is missing.
        parts: number of parts.
    """

    def __init__(self, folder: Path, parts: int) -> None:
        self._folder, self._parts = folder, parts
        self._records: list[list[Record]] = [[] for _ in range(parts)]
        self._bytes = 0
        self._runs: list[SortedRun] = []

    def add(self, record: Record) -> None:
        """Add a record."""
        self._records[part_of(record.unit, self._parts)].append(record)
        self._bytes += len(record.content or b"") + 100
        if self._bytes > RUN_BYTES:
            self._flush()

    def runs(self) -> Sequence[SortedRun]:
        """Return the runs of all records."""
        if self._bytes:
            self._flush()
        return self._runs

    def _flush(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path, places = self._folder / f"{len(self._runs):06d}", [0]
        with path.open("wb") as file:
            for records in self._records:
                places.append(places[-1] + (file.write(pack(records, _LEVEL)) if records else 0))
                records.clear()
        self._runs.append(SortedRun(path, places))
        self._bytes = 0


def records_of_part(runs: Iterable[SortedRun], part: int) -> Iterator[Record]:
    """Yield the records of a part, in any order."""
    for run in runs:
        begin, end = run.places[part : part + 2]
        if begin < end:
            with run.path.open("rb") as file:
                file.seek(begin)
                yield from unpack(file.read(end - begin))
