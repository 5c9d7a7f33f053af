"""What an archive was made of: `_import/_index.parquet`, for the next import into it.

A row for each trace that a file tells of, or told of in an earlier state, and one without a trace
for each file. Its stamp says what the file was when it was read; it is another one where that has
to be done again: as it could not be read, or as an import was killed before all was written.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.contracts import arrow_schema
from kp_batch.errors import KpBatchError
from kp_batch.imports.archive import Archive
from kp_batch.sql import read_parquet, set_variables, sql, statement
from kp_batch.text import one_line

_NAME = "_import/_index.parquet"
BEGUN = {"kp_batch.begun": ""}  # the metadata of an index whose import has not come to its end
_STANDING = "kp_batch.standing"  # its metadata of one that has
_ROWS = pl.Schema({"path": pl.String, "stamp": pl.String, "trace": pl.String, "told": pl.Boolean})
_READ = pl.Schema({"path": pl.String, "stamp": pl.String, "whole": pl.Boolean})


def as_standing(numbers: Mapping[str, int]) -> dict[str, str]:
    """The metadata that tells how much of each kind is refused in all, for a night without more."""
    return {_STANDING: json.dumps(numbers)}


@dataclass(frozen=True)
class Index:
    """The index of an archive, as the last import left it."""

    archive: Archive
    made_by: Mapping[str, str]  # the metadata of that import; empty where there was none
    stamps: Mapping[str, str]  # of each file that it knows: what it was when it was read
    is_done: bool = True  # whether that import came to its end
    standing: Mapping[str, int] = field(default_factory=dict[str, int])  # see `as_standing`

    @classmethod
    def of(cls, archive: Archive) -> Self:
        """The index of an archive.

        Raises:
            KpBatchError: it is damaged.
        """
        path = archive.here(_NAME)
        if not path.exists():
            return cls(archive, {}, {})
        try:
            told = pq.read_schema(path).metadata or {}
            known = pl.scan_parquet(path, glob=False).filter(pl.col("trace").is_null())
            stamps = known.select("path", "stamp").collect()
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
            raise KpBatchError(
                f"{archive.name}/{_NAME} is damaged ({one_line(str(error))}); remove it: then all "
                "files that are there are read again, and traces of others are taken for none that "
                "came before"
            ) from error
        made_by = {name.decode(): value.decode() for name, value in told.items()}
        is_done, standing = not BEGUN.keys() & made_by.keys(), made_by.get(_STANDING, "{}")
        own = {name: each for name, each in made_by.items() if name not in (*BEGUN, _STANDING)}
        return cls(archive, own, dict(stamps.iter_rows()), is_done, json.loads(standing))

    @property
    def _path(self) -> Path:
        return self.archive.here(_NAME)

    def also_told(
        self, units: str, read: Collection[str], connection: duckdb.DuckDBPyConnection
    ) -> Iterator[tuple[str, bool, set[str]]]:
        """Which other files told of the traces of units.

        Args:
            units: Parquet files with the column `trace`.
            read: files that were read as a whole by now.
            connection: joins within its memory.

        Returns:
            Of each file, its path, whether it still tells of them as far as is known, and the
            traces. Of files that were read, those that they tell of no longer.
        """
        self._put(connection, dict.fromkeys(read, ""), read, units)
        for path, told, traces in connection.execute(sql(__name__, "also_told.sql")).fetchall():
            yield path, told, set(traces)

    def traces_of(self, files: Collection[str]) -> set[str]:
        """The traces that some files told of."""
        if not self.stamps:
            return set()
        found = pl.scan_parquet(self._path, glob=False).filter(pl.col("path").is_in(list(files)))
        return set(found.select("trace").drop_nulls().collect().to_series())

    def save(
        self,
        made_by: Mapping[str, str],
        stamps: Mapping[str, str],
        whole: Collection[str],
        units: str,
        connection: duckdb.DuckDBPyConnection,
    ) -> "Index":
        """Put in what was read, and leave the rest as it is.

        Args:
            made_by: the metadata of this import, and `BEGUN` until all else is written; then that
                of `as_standing`.
            stamps: of the files that were read, and of known files that have to be read again.
            whole: those of them that no longer tell of other traces than those of their units.
            units: Parquet files with the columns `file` and `trace`, of these files and others.
            connection: sorts within its memory.

        Returns:
            The index as it is then.
        """
        self._put(connection, stamps, whole, units)
        rows = connection.sql(sql(__name__, "index.sql"))
        schema = arrow_schema(_ROWS).with_metadata(dict(made_by))
        with self.archive.writing(_NAME) as written, pq.ParquetWriter(written, schema) as writer:
            for batch in rows.to_arrow_reader(100_000):
                writer.write_batch(batch.cast(schema))
        return Index.of(self.archive)

    def _put(
        self,
        connection: duckdb.DuckDBPyConnection,
        stamps: Mapping[str, str],
        whole: Collection[str],
        units: str,
    ) -> None:
        """Give the connection what `index.sql` and `also_told.sql` ask for."""
        rows = [(path, stamp, path in whole) for path, stamp in stamps.items()]
        read = pl.DataFrame(rows, schema=_READ, orient="row")
        connection.register("read", read.to_arrow())
        connection.register("none_yet", pl.DataFrame(schema=_ROWS).to_arrow())
        set_variables(connection, units=units)
        old = read_parquet(self._path) if self.stamps else statement("none_yet")
        connection.execute(statement("CREATE OR REPLACE TEMP VIEW old AS FROM $old", old=old))
