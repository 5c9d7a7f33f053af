"""The files of an imported archive: one a day, in UTC, of traces in the order of their time."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import merge
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.contracts import TRACE, arrow_schema
from kp_batch.imports.archive import Archive
from kp_batch.imports.new_traces import NewTraces, Timed
from kp_batch.imports.trace_days import TraceDays
from kp_batch.sql import sql, statement

# Of a row group, which holds no more of either unless one trace does.
_ROWS = 1_000
_LETTERS = 16 << 20  # of JSON
_AT_ONCE = 64  # traces of a file that are read at once


class DayFiles:
    """Changes the files of an archive, each whole or not at all.

    Args:
        archive: of these.
        connection: sorts within its memory.
        metadata: of each file that is written.
    """

    def __init__(
        self, archive: Archive, connection: duckdb.DuckDBPyConnection, metadata: Mapping[str, str]
    ) -> None:
        self._archive, self._connection = archive, connection
        self._schema: pa.Schema = arrow_schema(TRACE).with_metadata(dict(metadata))

    def put(self, new: NewTraces, touched: str) -> int:
        """Put traces into their days, and take out what they were before.

        Days that gain a trace come first, and keep for that while those that move to another day:
        so no trace is in none at any moment.

        Args:
            new: the traces.
            touched: Parquet files with the column `id`, of all traces that were read: those that
                are not among the new ones are gone.

        Returns:
            How many files are other than they were.
        """
        self._stage(new.keys(), touched)
        days = TraceDays(self._archive, self._connection)
        days.find_moving()
        self._connection.execute(
            statement("CREATE TABLE stands AS $rows", rows=sql(__name__, "stands.sql"))
        )
        gaining, losing = (
            [day for (day,) in self._connection.execute(sql(__name__, name)).fetchall()]
            for name in ("gaining.sql", "losing.sql")
        )
        days.save("days_meanwhile.sql")
        changed = self._put(gaining, new, "going_for_now.sql")
        changed |= self._put(losing, new, "going.sql")
        days.save("days_afterwards.sql")
        return len(changed)

    def _stage(self, new: str, touched: str) -> None:
        """Tell the connection which traces are new, and which were read."""
        self._connection.execute(
            "CREATE TABLE touched AS SELECT DISTINCT id FROM read_parquet(?)", [touched]
        )
        # In the order of days, so that each finds its own without the others'.
        self._connection.execute(
            "CREATE TABLE new AS FROM read_parquet(?) ORDER BY day, time, id", [new]
        )

    def _put(self, days: Sequence[str], new: NewTraces, going: str) -> set[str]:
        """Write and store the files of days; returns those that are others now."""
        names = {day: f"{day}.parquet" for day in days}
        self._archive.fetch(names.values())
        changed = {day for day in days if self._put_here(day, names[day], new, going)}
        self._archive.store([names[day] for day in sorted(changed)])
        return changed

    def _put_here(self, day: str, name: str, new: NewTraces, going: str) -> bool:
        path = self._archive.here(name)
        gone = self._connection.execute(sql(__name__, going), [day]).fetchall()
        traces = merge(new.of_day(day, self._connection), _stays(path, {each for (each,) in gone}))
        return self._archive.put(name, lambda written: self._write(written, traces))

    def _write(self, path: Path, traces: Iterable[Timed]) -> int:
        """Write traces; returns how many."""
        rows = 0
        with pq.ParquetWriter(path, self._schema, compression="zstd") as writer:
            for group in _groups(traces):
                writer.write_table(group.cast(self._schema))
                rows += len(group)
        return rows


def _stays(path: Path, gone: AbstractSet[str]) -> Iterator[Timed]:
    """The traces of a file but for some, in their order."""
    if not path.exists():
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_AT_ONCE):
            for row in batch.to_pylist():
                if row["id"] not in gone:
                    key = row["metadata"]["created_at"], row["id"]
                    yield key, json.dumps(row, ensure_ascii=False)


def _groups(traces: Iterable[Timed]) -> Iterator[pa.Table]:
    """Traces in row groups, whose size depends on nothing but the traces."""
    rows: list[object] = []
    letters = 0
    for _, text in traces:
        if rows and (len(rows) == _ROWS or letters + len(text) > _LETTERS):
            yield _table(rows)
            rows, letters = [], 0
        rows.append(json.loads(text))
        letters += len(text)
    if rows:
        yield _table(rows)


def _table(rows: list[object]) -> pa.Table:
    return pl.DataFrame(rows, schema=TRACE, orient="row").to_arrow()
