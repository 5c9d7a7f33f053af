"""The files of an imported archive: one a day, in UTC, of traces in the order of their time."""

import filecmp
import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import merge
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.contracts import TRACE, arrow_schema
from kp_batch.importers.new_traces import NewTraces, Timed
from kp_batch.sql import sql
from kp_batch.whole_files import beside

# Of a row group, which holds no more of either unless one trace does.
_ROWS = 1_000
_LETTERS = 16 << 20  # of JSON
_AT_ONCE = 64  # traces of a file that are read at once


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
        gaining, losing = (
            [day for (day,) in self._connection.execute(sql(__name__, name)).fetchall()]
            for name in ("gaining.sql", "losing.sql")
        )
        changed = {day for day in gaining if self._put(day, new, "going_for_now.sql")}
        changed |= {day for day in losing if self._put(day, new, "going.sql")}
        return len(changed)

    def _stage(self, new: str, touched: str) -> None:
        """Tell the connection which traces are new, which were read, and where these stand."""
        self._connection.execute("CREATE TABLE stands (day VARCHAR, id VARCHAR)")
        self._connection.execute(
            "CREATE TABLE touched AS SELECT DISTINCT id FROM read_parquet(?)", [touched]
        )
        # In the order of days, so that each finds its own without the others'.
        self._connection.execute(
            "CREATE TABLE new AS FROM read_parquet(?) ORDER BY day, time, id", [new]
        )
        for path in sorted(self._archive.glob("????-??-??.parquet")):
            ids = pl.read_parquet(path, columns=["id"], glob=False).to_arrow()
            self._connection.register("ids", ids)
            self._connection.execute(
                "INSERT INTO stands SELECT ?, id FROM ids SEMI JOIN touched USING (id)",
                [path.stem],
            )

    def _put(self, day: str, new: NewTraces, going: str) -> bool:
        """Write the file of a day, unless it is so already; returns whether it is another now."""
        path = self._archive / f"{day}.parquet"
        gone = self._connection.execute(sql(__name__, going), [day]).fetchall()
        stays = _stays(path, {name for (name,) in gone})
        made, rows = beside(path), 0
        try:
            with pq.ParquetWriter(made, self._schema, compression="zstd") as writer:
                for group in _groups(merge(new.of_day(day, self._connection), stays)):
                    writer.write_table(group.cast(self._schema))
                    rows += len(group)
            if not rows:
                path.unlink(missing_ok=True)
                return True
            if path.exists() and filecmp.cmp(made, path, shallow=False):
                return False
            made.replace(path)
            return True
        finally:
            made.unlink(missing_ok=True)


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
