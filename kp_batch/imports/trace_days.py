"""In which day each trace stands: `_import/_days.parquet`, so that no other day is looked into.

Before a trace moves, the day where it goes is noted, too, with a turn above 0: so the next import
finds it in either, if this one is killed, and leaves it in the one that was put last.
"""

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.contracts import arrow_schema
from kp_batch.errors import KpBatchError
from kp_batch.imports.archive import Archive
from kp_batch.sql import sql, statement
from kp_batch.text import one_line

_NAME = "_import/_days.parquet"
_ROWS = pl.Schema({"day": pl.String, "id": pl.String, "turn": pl.Int64})


class TraceDays:
    """The table `days` of a connection: the days and ids of an archive's traces, and their turns.

    Args:
        archive: of these.
        connection: keeps them within its memory.

    Raises:
        KpBatchError: what is noted is damaged.
    """

    def __init__(self, archive: Archive, connection: duckdb.DuckDBPyConnection) -> None:
        self._archive, self._connection = archive, connection
        connection.execute("CREATE TABLE days (day VARCHAR, id VARCHAR, turn BIGINT)")
        self._take_noted()
        noted = connection.execute("SELECT DISTINCT day FROM days").fetchall()
        # All of them, where the notes are lost.
        self._take_from_files(archive.days().difference(day for (day,) in noted))

    def save(self, query: str) -> None:
        """Note what a query gives, by the name of its file."""
        rows = self._connection.sql(sql(__name__, query))
        schema = arrow_schema(_ROWS)
        with (
            self._archive.writing(_NAME) as written,
            pq.ParquetWriter(written, schema, compression="zstd") as writer,
        ):
            for batch in rows.to_arrow_reader(100_000):
                writer.write_batch(batch.cast(schema))

    def find_moving(self) -> None:
        """Tell the connection what was on its way when an import was killed, and is not `touched`.

        Its table `moving` has where such traces may stand, and `held` where they do.
        """
        query = sql(__name__, "moving.sql")
        self._connection.execute(statement("CREATE TABLE moving AS $query", query=query))
        self._connection.execute("CREATE TABLE held AS FROM moving LIMIT 0")
        may = self._connection.execute("SELECT DISTINCT day FROM moving").fetchall()
        days = self._archive.days().intersection(day for (day,) in may)
        names = {day: f"{day}.parquet" for day in sorted(days)}
        self._archive.fetch(names.values())
        for day, name in names.items():
            self._connection.register("rows", _ids_of(self._archive.here(name), day).to_arrow())
            self._connection.execute("INSERT INTO held FROM moving SEMI JOIN rows USING (day, id)")
            self._connection.unregister("rows")

    def _take_noted(self) -> None:
        path = self._archive.here(_NAME)
        if not path.exists():
            return
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    self._take(pa.table(batch))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise KpBatchError(
                f"{self._archive.name}/{_NAME} is damaged ({one_line(str(error))}); remove it: "
                "then it is made anew, of all files of the archive"
            ) from error

    def _take_from_files(self, days: set[str]) -> None:
        names = {day: f"{day}.parquet" for day in sorted(days)}
        self._archive.fetch(names.values())
        for day, name in names.items():
            self._take(_ids_of(self._archive.here(name), day).to_arrow())

    def _take(self, rows: pa.Table) -> None:
        self._connection.register("rows", rows)
        self._connection.execute("INSERT INTO days SELECT day, id, turn FROM rows")
        self._connection.unregister("rows")


def _ids_of(path: Path, day: str) -> pl.DataFrame:
    ids = pl.read_parquet(path, columns=["id"], glob=False)
    return ids.select(pl.lit(day).alias("day"), "id", pl.lit(0, pl.Int64).alias("turn"))
