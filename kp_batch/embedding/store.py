"""Keeps vectors on disk, found by the hash of their text.

A store grows chunk by chunk; losing chunks costs time, nothing else. It has no index: whatever is
looked for, all hashes stream by, which DuckDB joins by the million in a fraction of a second. What
is held follows what is looked for, not what is stored; where that is much, DuckDB spills it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from kp_batch.embedding.chunks import (
    HASH,
    Hashes,
    Key,
    chunk_files,
    chunk_hashes,
    chunk_names,
    count_vectors,
    read_vectors,
    write_chunk,
)
from kp_batch.files import HALF_WRITTEN
from kp_batch.sql import set_variables, sql


class VectorStore:
    """The vectors of one encoder, as they are when it is opened.

    What is looked for is a relation, in SQL, with a string column of the key's name.

    Args:
        folder: where its chunks are; there may be none.
        connection: looks things up, within its memory.
        key: whether vectors are found by the hash of their text or of its window.
    """

    def __init__(
        self, folder: Path, connection: duckdb.DuckDBPyConnection, key: Key = "text_hash"
    ) -> None:
        self._folder, self._connection = folder, connection
        self._key: Key = key
        self._chunks = chunk_names(folder)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream all hashes, a column of the key's name, and where their vectors are, `place`."""
        # A place is one number: the chunk's among the store's, and in the lower 32 bits the row.
        stored = pa.schema({self._key: pa.string(), "place": pa.int64()})
        batches = (self._batch(chunk, stored) for chunk in range(len(self._chunks)))
        stream = pa.RecordBatchReader.from_batches(stored, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def _batch(self, chunk: int, stored: pa.Schema) -> pa.RecordBatch:
        """The hashes of a chunk, where they are mapped, and their places."""
        hashes = chunk_hashes(self._folder, self._chunks[chunk], self._key)
        ends = np.arange(len(hashes) + 1, dtype=np.int32) * HASH.itemsize
        texts = pa.StringArray.from_buffers(len(hashes), pa.py_buffer(ends), pa.py_buffer(hashes))
        return pa.record_batch([texts, np.arange(len(hashes)) + (chunk << 32)], schema=stored)

    def write_missing(self, wanted: str, path: Path) -> int:
        """Write the hashes that have no vector into a Parquet file, and return their number.

        Args:
            wanted: the relation; each hash stands in it once.
            path: the file, whose column is the key.
        """
        return self._copy("missing.sql", wanted, path)

    def write_places(self, wanted: str, path: Path) -> None:
        """Write where vectors are into a Parquet file.

        Args:
            wanted: the relation, with the integer column `position`: each position stands in it
                once, a hash at as many as need it.
            path: the file: `PLACES`, ordered by position, null where there is no vector.
        """
        self._copy("places.sql", wanted, path)

    def count_others(self, wanted: str) -> int:
        """Count the vectors that `keep` would remove."""
        with self._attached():
            kept = self._connection.execute(sql(__name__, "count_kept.sql", wanted=wanted))
            [(count,)] = kept.fetchall()
        return count_vectors(self._folder) - int(count)

    def keep(self, wanted: str) -> int:
        """Remove all other vectors from the disk, and the half-written files of killed runs.

        The store cannot be used afterwards.

        Returns:
            How many vectors were removed.
        """
        held, kept = count_vectors(self._folder), 0
        names: set[str] = set()
        with self._attached():
            found = self._connection.sql(sql(__name__, "kept.sql", wanted=wanted))
            for batch in found.to_arrow_reader():
                for chunk, rows in zip(*batch.columns, strict=True):
                    names.add(self._reduced(self._chunks[chunk.as_py()], rows.values.to_numpy()))
                    kept += len(rows)
        for path in chunk_files(self._folder):  # a chunk's hashes before its vectors
            if path.name.partition(".")[0] not in names or path.suffix == HALF_WRITTEN:
                path.unlink()
        return held - kept

    def _reduced(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        """The chunk that holds these rows of another, written before any is removed."""
        hashes = chunk_hashes(self._folder, name)
        if len(rows) == len(hashes):
            return name
        places = pl.DataFrame({"row": rows}).select(pl.lit(name).alias("chunk"), "row")
        vectors = read_vectors(self._folder, places)
        windows = chunk_hashes(self._folder, name, "window_hash")
        return write_chunk(
            self._folder,
            _as_series(hashes[rows]),
            vectors,
            _as_series(windows[rows]) if len(windows) else None,
        )

    def _copy(self, query: str, wanted: str, path: Path) -> int:
        with self._attached():
            set_variables(self._connection, path=str(path))
            query = sql(__name__, query, wanted=wanted, key=self._key)
            answer = self._connection.execute(query)
            [(count,)] = answer.fetchall()
        return int(count)

    @contextmanager
    def _attached(self) -> Generator[None]:
        """Let the connection see the stream as the table stored, and the names of its chunks."""
        self._connection.register("stored", self)
        set_variables(self._connection, chunks=self._chunks)
        # DuckDB takes a stream for a single row: it would hold all of it, and let pass what is
        # looked for. Left alone, a join holds its right side.
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            yield
        finally:
            self._connection.execute("RESET disabled_optimizers")
            self._connection.unregister("stored")


def _as_series(hashes: Hashes) -> pl.Series:
    return pl.Series(hashes.astype(str))
