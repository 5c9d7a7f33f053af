"""Looks up vectors by the hashes of their texts.

A store grows by chunks; losing a chunk costs time, nothing else. There is no index: for every
lookup, all hashes are streamed through DuckDB, which joins millions in a fraction of a second. The
memory for this depends on the wanted hashes, not on the stored ones; DuckDB may spill it to the
disk.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.duck import SQL, Value, set_variables, sql, statement
from kp_batch.embedding.chunks import (
    HASH,
    HASHES,
    PAIR_BYTES,
    VECTOR,
    WINDOWS,
    Hashes,
    chunk_files,
    file_names,
    groups_to_merge,
    records_of,
    stored_dimensions,
    vectors_of,
    whole_vectors,
    window_hashes_of,
    write_whole,
    write_windows,
)
from kp_batch.errors import WarehouseError
from kp_batch.files import HALF_WRITTEN
from kp_batch.stopping import raise_if_unwanted
from kp_batch.vectors import Float32s

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# The place of a vector: the name of its chunk, and its row in the chunk.
PLACES = pl.Schema({"chunk": pl.String, "row": pl.Int32})

# A text's vector is stored under the hash of its window, if that is known, or else of the text. A
# wanted hash may also be a window's. No text has the hash of a window: see `MiniLM`. Most encoders
# have no windows; then the join would only take time.
_BY_HASH = """(
    SELECT wanted.*, coalesce(window_hash, text_hash) AS hash
    FROM windows RIGHT JOIN $wanted AS wanted USING (text_hash)
)"""
_WITHOUT_WINDOWS = "(SELECT wanted.*, text_hash AS hash FROM $wanted AS wanted)"


class VectorStore:
    """The vectors of one encoder, as they are when the store is opened.

    The wanted vectors are a relation, in SQL, with the string column `text_hash`.

    Args:
        folder: folder of the chunks; it may be missing.
        connection: runs the lookups, within its memory.
    """

    def __init__(self, folder: Path, connection: "duckdb.DuckDBPyConnection") -> None:
        self._folder, self._connection = folder, connection
        self._chunks, self._windows = file_names(folder, HASHES), file_names(folder, WINDOWS)

    def write_missing(self, wanted: Value, path: Path) -> int:
        """Write the hashes that have no vector into a Parquet file, and return their number.

        Its column is `text_hash`; each hash is in it once.
        """
        return self._copy("missing_hashes.sql", wanted, path)

    def write_places(self, wanted: Value, path: Path) -> None:
        """Write the places of vectors into a Parquet file.

        Args:
            wanted: the relation, with the integer column `position`. Each position occurs once, a
                hash any number of times.
            path: the file: `PLACES`, ordered by position, null where there is no vector.
        """
        self._copy("vector_places.sql", wanted, path)

    def write_rows_of(self, hashes: Value, wanted: Value, path: Path) -> None:
        """Write the wanted rows whose vectors have some hashes into a Parquet file.

        Args:
            hashes: a relation with the string column `hash`, each hash once, and other columns.
            wanted: the relation, with any other columns.
            path: the file; it has the columns of both.
        """
        self._copy("rows_of_hashes.sql", wanted, path, hashes=hashes)

    def count_prunable(self, wanted: Value) -> int:
        """Count the vectors that `prune_to` would remove, each hash once."""
        with self._attached():
            query = sql(__name__, "prunable.sql", wanted=self._by_hash(wanted))
            [(count,)] = self._connection.execute(query).fetchall()
        return int(count)

    def count_mergeable(self, wanted: Value) -> int:
        """Count the files that `merge_small` would merge after `prune_to`."""
        chunks = self._wanted_rows("stored", "hash", self._by_hash(wanted))
        windows = self._wanted_rows("windows", "text_hash", wanted)
        row_bytes = (stored_dimensions(self._folder) or 0) * VECTOR.itemsize
        groups = [
            *groups_to_merge({str(chunk): len(rows) * row_bytes for chunk, rows in chunks}),
            *groups_to_merge({str(file): len(rows) * PAIR_BYTES for file, rows in windows}),
        ]
        return sum(map(len, groups))

    def prune_to(self, wanted: Value) -> int:
        """Remove all other vectors from the disk, and unfinished files of killed runs.

        The store cannot be used afterwards.

        Returns:
            The number of removed vectors, each hash once.
        """
        removed = self.count_prunable(wanted)
        names: set[str] = set()
        for chunk, rows in self._wanted_rows("stored", "hash", self._by_hash(wanted)):
            names.add(self._reduce_chunk(self._chunks[chunk], rows))
        for file, rows in self._wanted_rows("windows", "text_hash", wanted):
            names.add(self._reduce_windows(self._windows[file], rows))
        for path in chunk_files(self._folder):  # a chunk's hashes before its vectors
            if path.name.partition(".")[0] not in names or path.suffix == HALF_WRITTEN:
                path.unlink()
        return removed

    def _wanted_rows(
        self, stored: str, key: str, wanted: Value
    ) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the wanted rows of each file, by number; of a repeated hash, the first."""
        query = sql(__name__, "wanted_rows.sql", stored=stored, key=key, wanted=wanted)
        with self._attached():
            for batch in self._connection.sql(query).to_arrow_reader():
                for number, rows in zip(*batch.columns, strict=True):
                    yield number.as_py(), rows.values.to_numpy()

    def _reduce_chunk(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        """Write a chunk with some rows of another one; return its name."""
        records = records_of(self._folder, name)
        if len(rows) == len(records):
            return name
        return write_whole(self._folder, records[rows], vectors_of(self._folder, name)[rows])

    def _reduce_windows(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        pairs = window_hashes_of(self._folder, name)
        if len(rows) == pairs.shape[1]:
            return name
        return write_windows(self._folder, *pairs[:, rows].astype(str))

    def _copy(self, query: str, wanted: Value, path: Path, **values: Value) -> int:
        with self._attached():
            set_variables(self._connection, path=str(path), chunks=self._chunks)
            text = sql(__name__, query, wanted=self._by_hash(wanted), **values)
            copy = self._connection.execute(text)
            [(count,)] = copy.fetchall()
        return int(count)

    def _by_hash(self, wanted: Value) -> SQL:
        """Return the wanted rows with the hash under which each one's vector is stored."""
        return statement(_BY_HASH if self._windows else _WITHOUT_WINDOWS, wanted=wanted)

    @contextmanager
    def _attached(self) -> Generator[None]:
        """Attach streams of all hashes to the connection, for one query.

        They are the tables `stored`, with `hash`, and `windows`, with `text_hash` and
        `window_hash`.

        Raises:
            OSError: a file of hashes cannot be read.
        """
        unread: list[OSError] = []
        chunks = ([x["hash"]] for x in self._read(records_of, self._chunks, unread))
        windows = self._read(window_hashes_of, self._windows, unread)
        self._connection.register("stored", _stream(chunks, "hash"))
        self._connection.register("windows", _stream(windows, "text_hash", "window_hash"))
        # DuckDB estimates a stream as a single row: it would keep the stream in memory, and probe
        # it with the wanted hashes. Without these optimizers, a join keeps its right side.
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            yield
        except Exception as error:
            if unread:  # DuckDB has only its text
                raise unread[0] from error
            raise
        finally:
            self._connection.execute("RESET disabled_optimizers")
            self._connection.unregister("stored")
            self._connection.unregister("windows")

    def _read(
        self, read: Callable[[Path, str], Any], names: Iterable[str], unread: list[OSError]
    ) -> Iterator[Any]:
        for name in names:
            try:
                yield read(self._folder, name)
            except OSError as error:
                unread.append(error)
                raise


def _stream(files: Iterable[Any], *names: str) -> "pa.RecordBatchReader":
    """Return the columns of hashes of some files, with a column `place`.

    A place is a number: the file's index, and in the lower 32 bits the row.
    """
    import pyarrow as pa

    schema = pa.schema({**dict.fromkeys(names, pa.string()), "place": pa.int64()})
    batches = (
        pa.record_batch([*map(_as_strings, columns), _places(number, len(columns[0]))], schema)
        for number, columns in enumerate(files)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _places(number: int, rows: int) -> "pa.Array":
    """Return the places of a file's rows, from their buffer: a conversion would import pandas."""
    import pyarrow as pa

    places = np.arange(rows, dtype=np.int64) + (number << 32)
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(places)])


def _as_strings(hashes: Hashes) -> "pa.StringArray":
    """Return hashes as Arrow strings, without a copy if they are contiguous."""
    import pyarrow as pa

    ends = np.arange(len(hashes) + 1, dtype=np.int32) * HASH.itemsize
    values = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(ends), values)


def check_stored(folder: Path, lacking: int, wanted: int) -> None:
    """Refuse to continue if a store lacks some of the wanted vectors.

    Raises:
        WarehouseError: the store lacks vectors.
    """
    if lacking:
        raise WarehouseError(
            f"{lacking:,} of {wanted:,} vectors are not in {folder}; kp-batch run "
            "--restore-vectors makes them again, and changes no score",
            code="missing_vectors",
        )


def read_vectors(folder: Path, places: pl.DataFrame) -> Float32s:
    """Read vectors by their places.

    Args:
        folder: folder of the store.
        places: a frame with the columns of `PLACES`.

    Returns:
        float32, shape (places, dimensions).

    Raises:
        DamagedVectorsError: a vector is not the one that was stored.
        WarehouseError: a place is null, or its chunk is gone or damaged.
        OSError: the chunk cannot be downloaded.
    """
    check_stored(folder, places.get_column("chunk").null_count(), len(places))
    rows = places.get_column("row").to_numpy()
    gathered: Float32s | None = None
    for (name,), group in places.with_row_index("index").group_by("chunk", maintain_order=True):
        raise_if_unwanted()
        index = group.get_column("index").to_numpy()
        vectors = whole_vectors(folder, str(name), rows[index])
        if gathered is None:
            gathered = np.empty((len(places), vectors.shape[1]), dtype=np.float32)
        gathered[index] = vectors
    return np.empty((0, 0), dtype=np.float32) if gathered is None else gathered
