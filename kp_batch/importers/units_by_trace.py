"""Gathers the units of each trace, which may lie far apart, within bounded memory."""

import json
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import cast

import duckdb
import polars as pl

from kp_batch.importers.draft import Unit
from kp_batch.importers.spool import Spool
from kp_batch.text import encodable

_UNITS = pl.Schema({"trace": pl.String, "record": pl.String, "file": pl.String, "line": pl.Int64})


@dataclass(frozen=True)
class TraceUnits:
    """All units of one trace, and the file that the first one is from."""

    trace: str
    units: list[Unit]
    file: str


class UnitsByTrace:
    """Keeps units on disk, and gives them back trace by trace.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        with self.reading("none"):  # so that there is a file
            pass

    @property
    def all_files(self) -> str:
        """The glob of the Parquet files, with the columns `file` and `trace` among others."""
        return str(self._folder / "*" / "*.parquet")

    @contextmanager
    def reading(self, file: str) -> Generator[Callable[[Unit], None]]:
        """Take the units of a file; if an error comes up, those that came before it are void."""
        spool = Spool(self._folder / f"{self._files:06d}", _UNITS)
        self._files += 1

        def add(unit: Unit) -> None:
            record = json.dumps(unit.record)
            spool.add((unit.trace, record, file, unit.line), len(record))

        try:
            yield add
            spool.close()
        except BaseException:
            shutil.rmtree(spool.folder)
            raise

    def names(self, connection: duckdb.DuckDBPyConnection) -> set[str]:
        """The ids of all traces that have a unit."""
        found = connection.sql(
            "SELECT DISTINCT trace FROM read_parquet(?)", params=[self.all_files]
        )
        return {str(trace) for (trace,) in found.fetchall()}

    def traces(self, connection: duckdb.DuckDBPyConnection) -> Iterator[TraceUnits]:
        """All traces, by their ids' bytes; a unit that stands twice is given once."""
        # By content and not by place, so that the order of files and of their lines is no matter.
        found = connection.sql(
            "SELECT trace, record, min({'file': file, 'line': line}) AS place "
            "FROM read_parquet(?) GROUP BY ALL ORDER BY trace, record",
            params=[self.all_files],
        ).to_arrow_reader(1_000)
        rows: Iterator[tuple[str, str, dict[str, object]]] = (
            (each["trace"], each["record"], each["place"])
            for batch in found
            for each in batch.to_pylist()
        )
        for trace, group in groupby(rows, key=itemgetter(0)):
            yield _gathered(trace, group)


def _loaded(record: str) -> object:
    found = json.loads(record)
    return _encodable(found) if "\\ud" in record else found


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {encodable(name): _encodable(each) for name, each in items}
    return value


def _gathered(trace: str, rows: Iterable[tuple[str, str, dict[str, object]]]) -> TraceUnits:
    units: list[Unit] = []
    places: list[str] = []
    for _, record, place in rows:
        line = place["line"]
        units.append(Unit(trace, _loaded(record), line if isinstance(line, int) else None))
        places.append(str(place["file"]))
    return TraceUnits(trace, units, min(places))
