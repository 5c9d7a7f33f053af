"""The files of an imported archive: one a day, in UTC, of traces in the order of their time."""

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.contracts import TRACE, arrow_schema
from kp_batch.sql import sql
from kp_batch.whole_files import beside

_ROWS = 1_000  # that are held at once
_DAY = len("2026-01-31")


class DayFiles:
    """Changes the files of an archive, each whole or not at all.

    Args:
        archive: its folder.
        connection: sorts within its memory.
        metadata: of each file that is written.
    """

    def __init__(
        self, archive: Path, connection: duckdb.DuckDBPyConnection, metadata: Mapping[str, str]
    ) -> None:
        self._archive, self._connection = archive, connection
        self._schema: pa.Schema = arrow_schema(TRACE).with_metadata(dict(metadata))

    def put(self, new: str, touched: str) -> int:
        """Put traces into their days, and take out what they were before.

        Days that gain a trace come first, so that one that moves is in none at no moment.

        Args:
            new: the glob of Parquet files with the columns of `TRACE`.
            touched: a Parquet file with the column `id`, of all traces that were read: those that
                are not among the new ones are gone.

        Returns:
            How many files are other than they were.
        """
        old = [str(path) for path in sorted(self._archive.glob("????-??-??.parquet"))]
        texts = {"new": new, "touched": touched, "old": old or new, "has_old": bool(old)}
        for name, value in texts.items():
            self._connection.execute(f"SET VARIABLE {name} = ?", [value])
        days = self._connection.execute(sql(__name__, "days.sql")).fetchall()
        return sum(
            self._put_days([day for day, gains in days if gains is gaining])
            for gaining in (True, False)
        )

    def _put_days(self, days: list[str]) -> int:
        self._connection.execute("SET VARIABLE days = ?::VARCHAR[]", [days])
        rows = self._connection.sql(sql(__name__, "of_days.sql")).to_arrow_reader(_ROWS)
        left, changed = set(days), 0
        for day, batches in _by_day(rows):
            left.discard(day)
            changed += self._put_day(self._archive / f"{day}.parquet", batches)
        for day in left:  # all of its traces are gone
            (self._archive / f"{day}.parquet").unlink()
        return changed + len(left)

    def _put_day(self, path: Path, batches: Iterator[pa.RecordBatch]) -> bool:
        """Write a file, unless it is so already."""
        made = beside(path)
        try:
            with pq.ParquetWriter(made, self._schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(self._schema))
            if path.exists() and filecmp.cmp(made, path, shallow=False):
                return False
            made.replace(path)
            return True
        finally:
            made.unlink(missing_ok=True)


def _by_day(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Cut batches where a day ends; each day's have to be taken before the next one's."""
    pieces = _pieces(rows)
    held = next(pieces, None)

    def of_day(day: str) -> Iterator[pa.RecordBatch]:
        nonlocal held
        while held and held[0] == day:
            yield held[1]
            held = next(pieces, None)

    while held:
        day = held[0]
        yield day, of_day(day)


def _pieces(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Each batch's rows of one day."""
    for batch in rows:
        times = batch.column("metadata").field("created_at").to_pylist()
        days = [time[:_DAY] for time in times]
        first = 0
        for at in range(1, len(days) + 1):
            if at == len(days) or days[at] != days[first]:
                yield days[first], batch.slice(first, at - first)
                first = at
