"""Keeps vectors on disk, found by the hash of their text.

A store grows chunk by chunk; losing chunks costs time, nothing else. It has no index: whatever is
looked for, all hashes stream by, which DuckDB joins by the million in a fraction of a second. What
is held follows what is looked for, not what is stored; where that is much, DuckDB spills it.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from kp_batch.embedding.chunks import (
    HASH,
    Hashes,
    chunk_files,
    chunk_hashes,
    chunk_names,
    count_vectors,
    read_vectors,
    window_hashes,
    window_names,
    write_chunk,
    write_windows,
)
from kp_batch.files import HALF_WRITTEN
from kp_batch.sql import SQL, Value, set_variables, sql, statement

# A text's vector stands under the hash of its window, or else of the text itself: one in which no
# window is known, or a window that is looked for. No text has the hash of a window: see `MiniLM`.
_BY_HASH = """(
    SELECT wanted.*, coalesce(window_hash, text_hash) AS hash
    FROM windows RIGHT JOIN $wanted AS wanted USING (text_hash)
)"""


class VectorStore:
    """The vectors of one encoder, as they are when it is opened.

    What is looked for is a relation, in SQL, with the string column `text_hash`.

    Args:
        folder: where its chunks are; there may be none.
        connection: looks things up, within its memory.
    """

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder, self._connection = folder, connection
        self._chunks, self._windows = chunk_names(folder), window_names(folder)

    def write_missing(self, wanted: Value, path: Path) -> int:
        """Write the hashes that have no vector into a Parquet file, and return their number.

        Args:
            wanted: the relation.
            path: the file, whose column is `text_hash`; each hash stands in it once.
        """
        return self._copy("missing.sql", wanted, path)

    def write_places(self, wanted: Value, path: Path) -> None:
        """Write where vectors are into a Parquet file.

        Args:
            wanted: the relation, with the integer column `position`: each position stands in it
                once, a hash at as many as need it.
            path: the file: `PLACES`, ordered by position, null where there is no vector.
        """
        self._copy("places.sql", wanted, path)

    def count_others(self, wanted: Value) -> int:
        """Count the vectors that `keep` would remove."""
        kept = sum(len(rows) for _, rows in self._rows("stored", "hash", _by_hash(wanted)))
        return count_vectors(self._folder) - kept

    def keep(self, wanted: Value) -> int:
        """Remove all other vectors from the disk, and the half-written files of killed runs.

        The store cannot be used afterwards.

        Returns:
            How many vectors were removed.
        """
        held, kept = count_vectors(self._folder), 0
        names: set[str] = set()
        for chunk, rows in self._rows("stored", "hash", _by_hash(wanted)):
            names.add(self._reduced(self._chunks[chunk], rows))
            kept += len(rows)
        for file, rows in self._rows("windows", "text_hash", wanted):
            names.add(self._reduced_windows(self._windows[file], rows))
        for path in chunk_files(self._folder):  # a chunk's hashes before its vectors
            if path.name.partition(".")[0] not in names or path.suffix == HALF_WRITTEN:
                path.unlink()
        return held - kept

    def _rows(
        self, stored: str, key: str, wanted: Value
    ) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Of each file, by its number, the rows that are wanted; of a hash the first one."""
        query = sql(__name__, "kept.sql", stored=stored, key=key, wanted=wanted)
        with self._attached():
            for batch in self._connection.sql(query).to_arrow_reader():
                for number, rows in zip(*batch.columns, strict=True):
                    yield number.as_py(), rows.values.to_numpy()

    def _reduced(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        """The chunk that holds these rows of another, written before any is removed."""
        hashes = chunk_hashes(self._folder, name)
        if len(rows) == len(hashes):
            return name
        places = pl.DataFrame({"row": rows}).select(pl.lit(name).alias("chunk"), "row")
        return write_chunk(
            self._folder, _as_series(hashes[rows]), read_vectors(self._folder, places)
        )

    def _reduced_windows(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        """Likewise the file of windows."""
        pairs = window_hashes(self._folder, name)
        if len(rows) == pairs.shape[1]:
            return name
        return write_windows(self._folder, *map(_as_series, pairs[:, rows]))

    def _copy(self, query: str, wanted: Value, path: Path) -> int:
        with self._attached():
            set_variables(self._connection, path=str(path), chunks=self._chunks)
            answer = self._connection.execute(sql(__name__, query, wanted=_by_hash(wanted)))
            [(count,)] = answer.fetchall()
        return int(count)

    @contextmanager
    def _attached(self) -> Generator[None]:
        """Let the connection see all hashes stream by, for one query.

        As the tables `stored`, of `hash`, and `windows`, of `text_hash` and `window_hash`.
        """
        chunks = ([chunk_hashes(self._folder, each)] for each in self._chunks)
        windows = (window_hashes(self._folder, each) for each in self._windows)
        self._connection.register("stored", _stream(chunks, "hash"))
        self._connection.register("windows", _stream(windows, "text_hash", "window_hash"))
        # DuckDB takes a stream for a single row: it would hold all of it, and let pass what is
        # looked for. Left alone, a join holds its right side.
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            yield
        finally:
            self._connection.execute("RESET disabled_optimizers")
            self._connection.unregister("stored")
            self._connection.unregister("windows")


def _by_hash(wanted: Value) -> SQL:
    return statement(_BY_HASH, wanted=wanted)


def _stream(files: Iterable[Any], *names: str) -> pa.RecordBatchReader:
    """The columns of hashes of some files, each with its `place`.

    A place is one number: the file's among them, and in the lower 32 bits the row.
    """
    schema = pa.schema({**dict.fromkeys(names, pa.string()), "place": pa.int64()})
    batches = (
        pa.record_batch(
            [*map(_as_strings, columns), np.arange(len(columns[0])) + (number << 32)], schema
        )
        for number, columns in enumerate(files)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _as_strings(hashes: Hashes) -> pa.StringArray:
    """The hashes where they are mapped."""
    ends = np.arange(len(hashes) + 1, dtype=np.int32) * HASH.itemsize
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(ends), pa.py_buffer(hashes))


def _as_series(hashes: Hashes) -> pl.Series:
    return pl.Series(hashes.astype(str))
