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

from kp_batch.importers.draft import Unit
from kp_batch.importers.records import Records
from kp_batch.importers.spool import Spool
from kp_batch.text import encodable

_UNITS = pl.Schema(
    {
        **dict.fromkeys(("trace", "digest", "file"), pl.String()),
        **dict.fromkeys(("line", "place", "length"), pl.Int64()),
    }
)


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
    def reading(self, file: str) -> Generator[Callable[[Unit], None]]:
        """Take the units of a file; if an error comes up, those that came before it are void."""
        spool, begin = Spool(self._folder / f"{self._files:06d}", _UNITS), self._records.end
        self._files += 1

        def add(unit: Unit) -> None:
            record = json.dumps(unit.record)
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
            units: list[Unit] = []
            files: list[str] = []
            for _, _, file, line, place, length in group:
                units.append(Unit(trace, json.loads(self._records.read(place, length)), line))
                files.append(file)
            yield TraceUnits(trace, units, min(files))

    def close(self) -> None:
        """Close the files."""
        self._records.close()
