"""Gathers the units of each trace, which may lie far apart, within bounded memory."""

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.bounded_json import VALUE_BYTES, Room, TooLargeError, room_of_trace, weight
from kp_batch.imports.model import SourceRecord
from kp_batch.imports.records import Records
from kp_batch.imports.spool import Spool
from kp_batch.text import encodable

_UNITS = pl.Schema(
    {
        **dict.fromkeys(("trace", "digest", "file"), pl.String()),
        **dict.fromkeys(("line", "place", "length"), pl.Int64()),
    }
)

_Row = tuple[str, int | None, int, int]  # a unit's file and line, and the place of its record


@dataclass(frozen=True)
class TraceUnits:
    """All units of one trace.

    Attributes:
        trace: its native id.
        units: none, if they are too large.
        file: that the first one is from.
        fault: that they are too large.
    """

    trace: str
    units: list[SourceRecord]
    file: str
    fault: TooLargeError | None = None


class UnitsByTrace:
    """Keeps units on disk, and gives them back trace by trace.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._records = Records(folder / "records")
        self._files = 0
        with self.reading("none"):  # so that there is a file
            pass

    @property
    def all_files(self) -> str:
        """The glob of the Parquet files, with the columns `file` and `trace` among others."""
        return f"{escape(str(self._folder))}/*/*.parquet"

    @contextmanager
    def reading(self, file: str) -> Generator[Callable[[SourceRecord], None]]:
        """Take the units of a file; if an error comes up, those that came before it are void.

        Of a unit that cannot be written as it is nested too deep, a TooLargeError is raised.
        """
        spool, begin = Spool(self._folder / f"{self._files:06d}", _UNITS), self._records.end
        self._files += 1

        def add(unit: SourceRecord) -> None:
            try:
                record = json.dumps(unit.record)
            except RecursionError as error:
                raise TooLargeError from error
            digest = sha256(record.encode()).hexdigest()
            place = self._records.add(record)
            spool.add((encodable(unit.trace), digest, file, unit.line, *place))

        try:
            yield add
            spool.close()
        except BaseException:
            shutil.rmtree(spool.folder)
            self._records.cut(begin)
            raise

    def traces(self, connection: duckdb.DuckDBPyConnection) -> Iterator[TraceUnits]:
        """All traces, by their ids' bytes; a unit that stands twice is given once."""
        # By content and not by place, so that the order of files and of their lines is no matter.
        found = connection.sql(
            "SELECT trace, digest, min(file), min(line), any_value(place), any_value(length) "
            "FROM read_parquet(?) GROUP BY trace, digest ORDER BY trace, digest",
            params=[self.all_files],
        ).to_arrow_reader(10_000)
        rows = (row for batch in found for row in zip(*batch.to_pydict().values(), strict=True))
        for trace, group in groupby(rows, key=itemgetter(0)):
            yield self._gathered(trace, (row[2:] for row in group))

    def _gathered(self, trace: str, rows: Iterator[_Row]) -> TraceUnits:
        units: list[SourceRecord] = []
        first: str | None = None
        fault, room = None, room_of_trace()
        for file, line, place, length in rows:
            first = file if first is None else min(first, file)
            if fault:  # of the others only the first file is asked for
                continue
            try:
                units.append(SourceRecord(trace, self._record(place, length, room), line))
            except TooLargeError as error:
                units, fault = [], error
        return TraceUnits(trace, units, first or "", fault)

    def _record(self, place: int, length: int, room: Room) -> object:
        text = self._records.read(place, length)
        room.take(VALUE_BYTES + weight(text))
        if (record := json.loads(text)) is None:
            raise TooLargeError("a part of it is too large to be read")
        return record

    def close(self) -> None:
        """Close the files."""
        self._records.close()
