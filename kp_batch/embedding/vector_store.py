"""Stores vectors on disk, under the hashes of their texts.

A store grows by chunks; a chunk that is lost costs time, nothing else. There is no index: for every
lookup, all hashes are streamed through DuckDB, which joins millions in a fraction of a second. The
memory that this takes depends on the wanted hashes, not on the stored ones; DuckDB may spill it.

A chunk is two NumPy files of a common name: vectors, and their records, in each the hash of the
encoder's input and the vector's checksum. An input is a text, or, if the encoder reads no more of a
text than its window, a window. Then further files pair the hashes of texts with those of their
windows. All are mapped into memory, so that a vector is read without the others, and hashes are
streamed without being held. A chunk's records are written after its vectors, so that it appears
atomically; its name is their digest, so that files of one name are the same, whoever wrote them.

A vector is compared with its checksum whenever it is read. Those that differ can be removed: then
they are made again, as any that are missing.

Small files can be merged. They stay beside the merged one, for those who are reading them; since of
a hash in several files the one in the largest counts, nothing needs them, and pruning removes them.
"""

import hashlib
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from kp_batch.duck import SQL, Value, set_variables, sql, statement
from kp_batch.errors import DamagedVectorsError, WarehouseError
from kp_batch.files import HALF_WRITTEN, atomic_write, files_below
from kp_batch.vectors import Bools, Float32s, Int64s
from kp_batch.warehouse.bucket.location import is_remote, local_copy

# The place of a vector: the name of its chunk, and its row in it.
PLACES = pl.Schema({"chunk": pl.String, "row": pl.Int32})
HASH = np.dtype("S64")  # SHA-256 in hex
_VECTOR, _RECORD = np.dtype("<f4"), np.dtype([("hash", HASH), ("crc32", "<u4")])
_PAIR_BYTES = 2 * HASH.itemsize  # of a text and its window
Hashes = npt.NDArray[np.bytes_]
Records = npt.NDArray[np.void]  # of `_RECORD`
_VECTORS, _HASHES, _WINDOWS = ".vectors.npy", ".hashes.npy", ".windows.npy"
_MERGED_BYTES = 32 << 20  # of merged files, at the least; of less than half of it, one is small
# The name of a chunk's file, or of an unfinished one of a killed run.
_FILE = re.compile(r"[0-9a-f]{64}\.(?:vectors|hashes|windows)\.npy(?:\..+)?")
_DAMAGED = (ValueError, OSError, IndexError, EOFError, SyntaxError)  # NumPy's errors

# A text's vector is stored under the hash of its window, if that is known, or else of the text. The
# wanted hash may also be a window's. No text has the hash of a window: see `MiniLM`.
_BY_HASH = """(
    SELECT wanted.*, coalesce(window_hash, text_hash) AS hash
    FROM windows RIGHT JOIN $wanted AS wanted USING (text_hash)
)"""


class VectorStore:
    """The vectors of one encoder, as they are when the store is opened.

    The wanted vectors are a relation, in SQL, with the string column `text_hash`.

    Args:
        folder: of the chunks; it may be missing.
        connection: runs the lookups, within its memory.
    """

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder, self._connection = folder, connection
        self._chunks, self._windows = _names(folder, _HASHES), _names(folder, _WINDOWS)

    def write_missing(self, wanted: Value, path: Path) -> int:
        """Write the hashes that have no vector into a Parquet file, and return their number.

        Its column is `text_hash`; each hash is in it once.
        """
        return self._copy("missing_hashes.sql", wanted, path)

    def write_places(self, wanted: Value, path: Path) -> None:
        """Write the places of vectors into a Parquet file.

        Args:
            wanted: the relation, with the integer column `position`: each position is in it once,
                a hash any number of times.
            path: the file: `PLACES`, ordered by position, null where there is no vector.
        """
        self._copy("vector_places.sql", wanted, path)

    def count_prunable(self, wanted: Value) -> int:
        """Count the vectors that `prune_to` would remove, each hash once."""
        with self._attached():
            query = sql(__name__, "prunable.sql", wanted=_by_hash(wanted))
            [(count,)] = self._connection.execute(query).fetchall()
        return int(count)

    def count_mergeable(self, wanted: Value) -> int:
        """Count the files that `merge_small` would merge, once `prune_to` is done."""
        chunks = self._wanted_rows("stored", "hash", _by_hash(wanted))
        windows = self._wanted_rows("windows", "text_hash", wanted)
        row_bytes = (stored_dimensions(self._folder) or 0) * _VECTOR.itemsize
        groups = [
            *_merges({str(chunk): len(rows) * row_bytes for chunk, rows in chunks}),
            *_merges({str(file): len(rows) * _PAIR_BYTES for file, rows in windows}),
        ]
        return sum(map(len, groups))

    def prune_to(self, wanted: Value) -> int:
        """Remove all other vectors from the disk, and unfinished files of killed runs.

        The store cannot be used afterwards.

        Returns:
            The number of vectors that were removed, each hash once.
        """
        removed = self.count_prunable(wanted)
        names: set[str] = set()
        for chunk, rows in self._wanted_rows("stored", "hash", _by_hash(wanted)):
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
        """The wanted rows of each file, by its number; of a hash that recurs, the first row."""
        query = sql(__name__, "wanted_rows.sql", stored=stored, key=key, wanted=wanted)
        with self._attached():
            for batch in self._connection.sql(query).to_arrow_reader():
                for number, rows in zip(*batch.columns, strict=True):
                    yield number.as_py(), rows.values.to_numpy()

    def _reduce_chunk(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        """Write a chunk with some rows of another; returns its name."""
        records = _records(self._folder, name)
        if len(rows) == len(records):
            return name
        return _write_whole(self._folder, records[rows], _vectors(self._folder, name)[rows])

    def _reduce_windows(self, name: str, rows: npt.NDArray[np.int32]) -> str:
        pairs = _window_hashes(self._folder, name)
        if len(rows) == pairs.shape[1]:
            return name
        return write_windows(self._folder, *map(_as_series, pairs[:, rows]))

    def _copy(self, query: str, wanted: Value, path: Path) -> int:
        with self._attached():
            set_variables(self._connection, path=str(path), chunks=self._chunks)
            copy = self._connection.execute(sql(__name__, query, wanted=_by_hash(wanted)))
            [(count,)] = copy.fetchall()
        return int(count)

    @contextmanager
    def _attached(self) -> Generator[None]:
        """Attach streams of all hashes to the connection, for one query.

        They are the tables `stored`, of `hash`, and `windows`, of `text_hash` and `window_hash`.
        """
        chunks = ([_records(self._folder, chunk)["hash"]] for chunk in self._chunks)
        windows = (_window_hashes(self._folder, window) for window in self._windows)
        self._connection.register("stored", _stream(chunks, "hash"))
        self._connection.register("windows", _stream(windows, "text_hash", "window_hash"))
        # DuckDB estimates a stream as a single row: it would hold the stream in memory, and probe
        # it with the wanted hashes. Without these optimizers, a join holds its right side.
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
    """The columns of hashes of some files, with a column `place`.

    A place is a number: the file's index, and in the lower 32 bits the row.
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
    """The hashes as Arrow strings, without a copy where they are alone."""
    ends = np.arange(len(hashes) + 1, dtype=np.int32) * HASH.itemsize
    values = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(ends), values)


def _as_series(hashes: Hashes) -> pl.Series:
    return pl.Series(hashes.astype(str))


def _names(folder: Path, ending: str) -> list[str]:
    """The names of chunks, or of files of windows, the largest first; the folder may be missing."""
    sizes: dict[str, int] = {}
    for path in folder.glob(f"*{ending}"):
        with suppress(FileNotFoundError):  # it was removed meanwhile
            sizes[path.name.removesuffix(ending)] = path.stat().st_size
    return sorted(sizes, key=lambda name: (-sizes[name], name))


def chunk_files(folder: Path) -> list[Path]:
    """The files of the store in a folder, with unfinished ones, without others.

    Raises:
        WarehouseError: the folder is a link, or holds one.
    """
    files = files_below(folder)
    return [file for file in files if file.parent == folder and _FILE.fullmatch(file.name)]


def count_vectors(folder: Path) -> int:
    """The number of vectors in a folder."""
    return sum(len(_records(folder, name)) for name in _names(folder, _HASHES))


def stored_dimensions(folder: Path) -> int | None:
    """The dimensions of the vectors in a folder; None if no vectors there can be read."""
    names = _names(folder, _HASHES)
    for remote in (False, True):  # a local chunk needs no fetch
        for name in names:
            if _is_remote(folder, name) == remote and len(_records(folder, name)):
                return _vectors(folder, name).shape[1]
    return None


def write_chunk(folder: Path, hashes: pl.Series, vectors: Float32s) -> str:
    """Store a chunk. Done again, it is replaced by the same.

    Args:
        folder: of the store; made if it is missing.
        hashes: at least one string.
        vectors: float32, shape (hashes, dimensions).

    Returns:
        The chunk's name, a digest of its hashes and checksums.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.ascontiguousarray(vectors, dtype=_VECTOR)
    records = np.empty(len(rows), dtype=_RECORD)
    records["hash"], records["crc32"] = hashes.to_list(), _checksums(rows)
    name = hashlib.sha256(records.tobytes()).hexdigest()
    _save(folder / (name + _VECTORS), rows)
    _save(folder / (name + _HASHES), records)
    return name


def _write_whole(folder: Path, records: Records, vectors: Float32s) -> str:
    """Store a chunk of those of some vectors that are not damaged; its name, empty if all are."""
    whole = ~_are_damaged(records, vectors)
    if not whole.any():
        return ""
    return write_chunk(folder, _as_series(records["hash"][whole]), vectors[whole])


def merge_small(folder: Path) -> int:
    """Write small files once more, together, after `prune_to`; returns how many these were."""
    row_bytes = (stored_dimensions(folder) or 0) * _VECTOR.itemsize
    names = _names(folder, _HASHES)
    chunks = _merges({name: len(_records(folder, name)) * row_bytes for name in names})
    for group in chunks:
        records = np.concatenate([_records(folder, name) for name in group])
        _write_whole(folder, records, np.concatenate([_vectors(folder, name) for name in group]))
    names = _names(folder, _WINDOWS)
    windows = _merges({name: _window_hashes(folder, name).nbytes for name in names})
    for group in windows:
        pairs = np.concatenate([_window_hashes(folder, name) for name in group], axis=1)
        write_windows(folder, *map(_as_series, pairs))
    return sum(map(len, chunks + windows))


def _merges(sizes: Mapping[str, int]) -> list[list[str]]:
    """The groups of small files to merge, by their sizes in bytes; empty files are left out."""
    groups: list[list[str]] = [[]]
    together = 0
    small = (name for name, size in sizes.items() if 0 < size < _MERGED_BYTES // 2)
    for name in sorted(small, key=lambda name: (sizes[name], name)):
        if together >= _MERGED_BYTES:
            groups.append([])
            together = 0
        groups[-1].append(name)
        together += sizes[name]
    return [group for group in groups if len(group) > 1]


def write_windows(folder: Path, text_hashes: pl.Series, window_hashes: pl.Series) -> str:
    """Store the windows of texts; returns the file's name. See `write_chunk`."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = np.array([text_hashes.to_list(), window_hashes.to_list()], dtype=HASH)
    name = hashlib.sha256(pairs.tobytes()).hexdigest()
    _save(folder / (name + _WINDOWS), pairs)
    return name


def _records(folder: Path, name: str) -> Records:
    """The records of a chunk, in the order of its vectors; none if a file of it is damaged.

    The texts of a damaged chunk count as missing: they are embedded again.

    Returns:
        Of `_RECORD`, shape (vectors,), mapped into memory; shape (0,) if it is damaged.
    """
    with suppress(WarehouseError, *_DAMAGED):
        records = _mapped(folder / (name + _HASHES), _RECORD, 1)
        # Remote vectors are assumed to be undamaged until they are read.
        if _is_remote(folder, name) or len(records) == len(_vectors(folder, name)):
            return records
    return np.empty(0, dtype=_RECORD)


def _checksums(vectors: Float32s) -> npt.NDArray[np.uint32]:
    """The CRC-32 of each vector's bytes: 0.4 s for a million of 384 dimensions."""
    return np.fromiter(map(zlib.crc32, np.asarray(vectors)), np.uint32, len(vectors))


def _are_damaged(records: Records, vectors: Float32s) -> Bools:
    return _checksums(vectors) != records["crc32"]


def damaged_rows(folder: Path) -> Iterator[tuple[Path, Int64s]]:
    """The rows of damaged vectors, by the file of each chunk that has any; remote ones are passed.

    It reads all vectors of the folder.
    """
    for name in _names(folder, _HASHES):
        records = _records(folder, name)
        if len(records) and not _is_remote(folder, name):
            is_damaged = _are_damaged(records, _vectors(folder, name)) & (records["hash"] != b"")
            if is_damaged.any():
                yield folder / (name + _VECTORS), np.flatnonzero(is_damaged)


def remove_damaged(folder: Path) -> int:
    """Remove the hashes of damaged vectors, so that these are missing; returns their number.

    The files stay, so that readers find the others, and a bucket gets what changed.
    """
    count = 0
    for path, rows in damaged_rows(folder):
        hashes = path.with_name(path.name.replace(_VECTORS, _HASHES))
        records = np.array(_mapped(hashes, _RECORD, 1))
        records["hash"][rows] = b""
        _save(hashes, records)
        count += len(rows)
    return count


def _window_hashes(folder: Path, name: str) -> Hashes:
    """The hashes of texts, and of their windows: S64, shape (2, texts); (2, 0) if it is damaged."""
    with suppress(*_DAMAGED):
        pairs = _mapped(folder / (name + _WINDOWS), HASH, 2)
        if len(pairs) == 2:
            return pairs
    return np.empty((2, 0), dtype=HASH)


def read_vectors(folder: Path, places: pl.DataFrame) -> Float32s:
    """Read vectors.

    Args:
        folder: of the store.
        places: a frame with the columns of `PLACES`.

    Returns:
        float32, shape (places, dimensions).

    Raises:
        DamagedVectorsError: a vector is not the one that was stored.
        WarehouseError: a place is null, or its chunk is gone or damaged.
        OSError: the chunk cannot be fetched.
    """
    lacking = places.get_column("chunk").null_count()
    if lacking:
        raise WarehouseError(
            f"{lacking:,} of {len(places):,} vectors are not in {folder}; kp-batch run with "
            "--restore-vectors makes them again, and changes no score"
        )
    rows = places.get_column("row").to_numpy()
    gathered: Float32s | None = None
    for (name,), group in places.with_row_index("index").group_by("chunk", maintain_order=True):
        index = group.get_column("index").to_numpy()
        vectors = _whole_vectors(folder, str(name), rows[index])
        if gathered is None:
            gathered = np.empty((len(places), vectors.shape[1]), dtype=np.float32)
        gathered[index] = vectors
    return np.empty((0, 0), dtype=np.float32) if gathered is None else gathered


def _whole_vectors(folder: Path, name: str, rows: npt.NDArray[np.int32]) -> Float32s:
    """Some vectors of a chunk, compared with their checksums; see `read_vectors`."""
    vectors = _vectors(folder, name)[rows]
    is_damaged = _are_damaged(_opened(folder / (name + _HASHES), _RECORD, 1)[rows], vectors)
    if is_damaged.any():
        raise DamagedVectorsError(
            f"{folder / (name + _VECTORS)} is damaged: row {rows[int(is_damaged.argmax())]} is not "
            "the vector that was stored; a run makes it again, with --restore-vectors if it does "
            "not need it"
        )
    return vectors


def _is_remote(folder: Path, name: str) -> bool:
    return is_remote(folder / (name + _VECTORS))


def _vectors(folder: Path, name: str) -> Float32s:
    """A chunk's vectors, mapped into memory, so that only those that are used are read.

    Raises:
        WarehouseError: they are gone, or damaged.
        OSError: they cannot be fetched.
    """
    return _opened(local_copy(folder / (name + _VECTORS)), _VECTOR, 2)


def _opened(path: Path, dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """As `_mapped`.

    Raises:
        WarehouseError: the file is gone, or damaged.
    """
    try:
        return _mapped(path, dtype, dimensions)
    except _DAMAGED as error:
        raise WarehouseError(f"{path} cannot be read ({error}); run again") from error


def _mapped(path: Path, dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """Map a file into memory; a damaged one raises one of `_DAMAGED`."""
    array = np.lib.format.open_memmap(path, mode="r")
    if (array.dtype, array.ndim) != (dtype, dimensions) or not array.flags.c_contiguous:
        raise ValueError(f"an array of {array.dtype}, of shape {array.shape}")
    return array


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a file atomically."""
    with atomic_write(path, durable=True) as written, written.open("wb") as file:
        np.save(file, array, allow_pickle=False)
