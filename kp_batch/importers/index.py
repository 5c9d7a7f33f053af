"""What an archive was made of: `_import/_index.parquet`, for the next import into it.

A row for each trace that a file tells of, and one without a trace for each file. It is written
last: who was killed before that reads the same files again, and makes the same of them.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import duckdb
import polars as pl
import pyarrow.parquet as pq

from kp_batch.sql import sql
from kp_batch.whole_files import whole

_ROWS = pl.Schema({"path": pl.String, "stamp": pl.String, "trace": pl.String})


@dataclass(frozen=True)
class Index:
    """The index of an archive, as the last import left it."""

    path: Path
    made_by: Mapping[str, str]  # the metadata of that import; empty where there was none
    stamps: Mapping[str, str]  # of each file that it knows: what it was when it was read

    @classmethod
    def of(cls, archive: Path) -> Self:
        """The index in the folder of an archive."""
        path = archive / "_import" / "_index.parquet"
        with suppress(FileNotFoundError):
            told = pq.read_schema(path).metadata or {}
            known = pl.scan_parquet(path).filter(pl.col("trace").is_null())
            stamps = known.select("path", "stamp").collect()
            made_by = {name.decode(): value.decode() for name, value in told.items()}
            return cls(path, made_by, dict(stamps.iter_rows()))
        return cls(path, {}, {})

    def traces_of(self, files: Collection[str]) -> set[str]:
        """The traces that some files told of."""
        found = self._rows().filter(pl.col("path").is_in(list(files))).select("trace")
        return set(found.drop_nulls().collect().to_series())

    def files_of(self, traces: Collection[str]) -> Mapping[str, set[str]]:
        """Which files told of any of some traces, and of which of these each one."""
        rows = self._rows().filter(pl.col("trace").is_in(list(traces))).collect()
        return {
            str(path): set(of_path.get_column("trace"))
            for (path,), of_path in rows.group_by("path")
        }

    def save(
        self,
        made_by: Mapping[str, str],
        stamps: Mapping[str, str],
        units: str,
        connection: duckdb.DuckDBPyConnection,
    ) -> None:
        """Put in what was read, and leave the rest as it is.

        Args:
            made_by: the metadata of this import.
            stamps: of the files that were read as a whole.
            units: Parquet files with the columns `file` and `trace`, of these files and others.
            connection: sorts within its memory.
        """
        self.path.parent.mkdir(exist_ok=True)
        read = pl.DataFrame({"path": list(stamps), "stamp": list(stamps.values())}, schema=_READ)
        connection.register("read", read)
        for name, value in (("units", units), ("index", str(self.path))):
            connection.execute(f"SET VARIABLE {name} = ?", [value])
        rows = connection.sql(sql(__name__, "index_again.sql" if self.stamps else "index.sql"))
        schema = pl.DataFrame(schema=_ROWS).to_arrow().schema.with_metadata(dict(made_by))
        with whole(self.path) as written, pq.ParquetWriter(written, schema) as writer:
            for batch in rows.to_arrow_reader(100_000):
                writer.write_batch(batch.cast(schema))

    def _rows(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.path) if self.stamps else pl.LazyFrame(schema=_ROWS)


_READ = pl.Schema({"path": pl.String, "stamp": pl.String})
