"""The files of a vector store.

A chunk is two NumPy files with the same name: vectors and their records. A record contains the hash
of the encoder's input and the vector's checksum. An input is a text. If the encoder reads only a
window of a text, it is a window, and further files pair the hashes of texts with those of their
windows. All files are mapped into memory, so a vector is read without the others, and hashes are
streamed. A chunk's records are written after its vectors, so it appears atomically. Its name is
the digest of its records, so files with the same name are equal, whoever wrote them.

A vector is compared with its checksum whenever it is read. Damaged vectors can be removed; then
they are made again, like missing ones.

Small files can be merged. They stay next to the merged file for current readers. If several files
contain a hash, the largest file counts, so nothing needs the small ones, and pruning removes them.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kp_batch.errors import DamagedVectorsError, WarehouseError
from kp_batch.files import atomic_write, files_below
from kp_batch.vectors import Bools, Float32s, Int64s
from kp_batch.warehouse.bucket.location import is_remote, local_copy

HASH = np.dtype("S64")  # SHA-256 in hex
VECTOR, _RECORD = np.dtype("<f4"), np.dtype([("hash", HASH), ("crc32", "<u4")])
VECTORS_PER_READ = 16_384  # when a whole store is read
PAIR_BYTES = 2 * HASH.itemsize  # of a text and its window
Hashes = npt.NDArray[np.bytes_]
Records = npt.NDArray[np.void]  # with the type `_RECORD`
_VECTORS, HASHES, WINDOWS = ".vectors.npy", ".hashes.npy", ".windows.npy"
_MERGED_BYTES = 32 << 20  # minimal size of merged files; files of less than half of it are small
# The name of a chunk's file, or of an unfinished file of a killed run.
_FILE = re.compile(r"[0-9a-f]{64}\.(?:vectors|hashes|windows)\.npy(?:\..+)?")
_IS_HEX = np.isin(np.arange(256), list(b"0123456789abcdef"))
# NumPy's errors for a damaged file, and those for a missing one. A file that cannot be read now,
# such as when too many files are open, may be undamaged.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_DAMAGED = (ValueError, IndexError, EOFError, SyntaxError, *_NO_FILE)


def file_names(folder: Path, ending: str) -> list[str]:
    """Return the names of chunks or of windows, the largest first; the folder may be missing."""
    sizes: dict[str, int] = {}
    for path in folder.glob(f"*{ending}"):
        with suppress(FileNotFoundError):  # it was removed in the meantime
            sizes[path.name.removesuffix(ending)] = path.stat().st_size
    return sorted(sizes, key=lambda name: (-sizes[name], name))


def chunk_files(folder: Path) -> list[Path]:
    """Return the files of the store in a folder, including unfinished ones.

    Raises:
        WarehouseError: the folder is a link, or contains one.
    """
    files = files_below(folder)
    return [file for file in files if file.parent == folder and _FILE.fullmatch(file.name)]


def stored_hashes(folder: Path) -> Iterator[Hashes]:
    """Yield the hashes of each chunk's vectors, without removed and damaged ones: S64, in hex."""
    for name in file_names(folder, HASHES):
        hashes = np.ascontiguousarray(records_of(folder, name)["hash"])
        letters = hashes.view(np.uint8).reshape(len(hashes), HASH.itemsize)
        yield hashes[_IS_HEX[letters].all(axis=1)]


def count_vectors(folder: Path) -> int:
    """The number of vectors in a folder."""
    return sum(len(records_of(folder, name)) for name in file_names(folder, HASHES))


def stored_dimensions(folder: Path) -> int | None:
    """Return the dimensions of a folder's vectors; None if none of them can be read."""
    names = file_names(folder, HASHES)
    for remote in (False, True):  # a local chunk needs no download
        for name in names:
            if _is_remote(folder, name) == remote and len(records_of(folder, name)):
                return vectors_of(folder, name).shape[1]
    return None


def write_chunk(folder: Path, hashes: Iterable[str], vectors: Float32s) -> str:
    """Write a chunk; writing it again replaces it with equal files.

    Args:
        folder: folder of the store; created if it is missing.
        hashes: at least one string.
        vectors: float32, shape (hashes, dimensions).

    Returns:
        The chunk's name, a digest of its hashes and checksums.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.ascontiguousarray(vectors, dtype=VECTOR)
    records = np.empty(len(rows), dtype=_RECORD)
    records["hash"], records["crc32"] = list(hashes), _checksums(rows)
    name = hashlib.sha256(records.tobytes()).hexdigest()
    _save(folder / (name + _VECTORS), rows)
    _save(folder / (name + HASHES), records)
    return name


def write_whole(folder: Path, records: Records, vectors: Float32s) -> str:
    """Write a chunk of the undamaged vectors; return its name, empty if all are damaged."""
    whole = ~_are_damaged(records, vectors)
    if not whole.any():
        return ""
    return write_chunk(folder, records["hash"][whole].astype(str), vectors[whole])


def merge_small(folder: Path) -> int:
    """Merge small files into new ones, after `prune_to`; return the number of small files."""
    row_bytes = (stored_dimensions(folder) or 0) * VECTOR.itemsize
    names = file_names(folder, HASHES)
    chunks = groups_to_merge({name: len(records_of(folder, name)) * row_bytes for name in names})
    for group in chunks:
        records = np.concatenate([records_of(folder, name) for name in group])
        write_whole(folder, records, np.concatenate([vectors_of(folder, name) for name in group]))
    names = file_names(folder, WINDOWS)
    windows = groups_to_merge({name: window_hashes_of(folder, name).nbytes for name in names})
    for group in windows:
        pairs = np.concatenate([window_hashes_of(folder, name) for name in group], axis=1)
        write_windows(folder, *pairs.astype(str))
    return sum(map(len, chunks + windows))


def groups_to_merge(sizes: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of small files to merge, by size in bytes; empty files are left out."""
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


def write_windows(folder: Path, text_hashes: Iterable[str], window_hashes: Iterable[str]) -> str:
    """Write the windows of texts; return the file's name. See `write_chunk`."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = np.array([list(text_hashes), list(window_hashes)], dtype=HASH)
    name = hashlib.sha256(pairs.tobytes()).hexdigest()
    _save(folder / (name + WINDOWS), pairs)
    return name


def records_of(folder: Path, name: str) -> Records:
    """Return the records of a chunk, in the order of its vectors; none if a file is damaged.

    The texts of a damaged chunk count as missing, so they are embedded again.

    Returns:
        Array of `_RECORD`, shape (vectors,), mapped into memory; shape (0,) if damaged.

    Raises:
        OSError: a file cannot be read.
    """
    with suppress(WarehouseError, *_DAMAGED):
        records = _mapped(folder / (name + HASHES), _RECORD, 1)
        # Remote vectors are assumed to be undamaged until they are read.
        if _is_remote(folder, name) or len(records) == len(vectors_of(folder, name)):
            return records
    return np.empty(0, dtype=_RECORD)


def _checksums(vectors: Float32s) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of each vector's bytes; a million of 384 dimensions take 0.4 s."""
    return np.fromiter(map(zlib.crc32, np.asarray(vectors)), np.uint32, len(vectors))


def _are_damaged(records: Records, vectors: Float32s) -> Bools:
    return _checksums(vectors) != records["crc32"]


def damaged_rows(folder: Path) -> Iterator[tuple[Path, Int64s]]:
    """Yield the rows of damaged vectors, with their chunk's file; remote chunks are skipped.

    It reads all vectors of the folder.
    """
    for name in file_names(folder, HASHES):
        records = records_of(folder, name)
        if len(records) and not _is_remote(folder, name):
            is_damaged = _are_damaged(records, vectors_of(folder, name)) & (records["hash"] != b"")
            if is_damaged.any():
                yield folder / (name + _VECTORS), np.flatnonzero(is_damaged)


def remove_damaged(folder: Path) -> int:
    """Remove the hashes of damaged vectors, so they count as missing; return their number.

    The files stay, so readers find the other vectors, and a bucket gets the change.
    """
    count = 0
    for path, rows in damaged_rows(folder):
        hashes = path.with_name(path.name.replace(_VECTORS, HASHES))
        records = np.array(_mapped(hashes, _RECORD, 1))
        records["hash"][rows] = b""
        _save(hashes, records)
        count += len(rows)
    return count


def window_hashes_of(folder: Path, name: str) -> Hashes:
    """Return hashes of texts, and of their windows: S64, shape (2, texts); (2, 0) if damaged.

    Raises:
        OSError: the file cannot be read.
    """
    with suppress(*_DAMAGED):
        pairs = _mapped(folder / (name + WINDOWS), HASH, 2)
        if len(pairs) == 2:
            return pairs
    return np.empty((2, 0), dtype=HASH)


def whole_vectors(folder: Path, name: str, rows: npt.NDArray[np.int32]) -> Float32s:
    """Read some vectors of a chunk, and compare their checksums; see `read_vectors`."""
    vectors = vectors_of(folder, name)[rows]
    records = _opened(folder / (name + HASHES), _RECORD, 1)[rows]
    _check_whole(folder, name, rows, _are_damaged(records, vectors))
    return vectors


def whole_chunks(folder: Path) -> Iterator[tuple[Hashes, Float32s]]:
    """Yield all vectors with their hashes, some at a time, in the order of `file_names`.

    They are compared with their checksums, and mapped into memory. Removed vectors are left out,
    and so are vectors of damaged chunks.

    Raises:
        DamagedVectorsError: a vector is not the one that was stored.
        WarehouseError: a chunk has been removed in the meantime.
        OSError: a chunk cannot be downloaded.
    """
    for name in file_names(folder, HASHES):
        records = records_of(folder, name)
        vectors = vectors_of(folder, name) if len(records) else np.empty((0, 0), dtype=VECTOR)
        for first in range(0, len(records), VECTORS_PER_READ):
            of_part = records[first : first + VECTORS_PER_READ]
            hashes, part = of_part["hash"], vectors[first : first + VECTORS_PER_READ]
            is_kept = hashes != b""
            rows = np.arange(first, first + len(of_part))
            _check_whole(folder, name, rows, _are_damaged(of_part, part) & is_kept)
            yield (hashes, part) if is_kept.all() else (hashes[is_kept], part[is_kept])


def _check_whole(
    folder: Path, name: str, rows: npt.NDArray[np.integer[Any]], is_damaged: Bools
) -> None:
    if is_damaged.any():
        raise DamagedVectorsError(
            f"{folder / (name + _VECTORS)} is damaged: row {rows[int(is_damaged.argmax())]} has "
            "changed since it was stored; kp-batch run --restore-vectors makes it again"
        )


def _is_remote(folder: Path, name: str) -> bool:
    return is_remote(folder / (name + _VECTORS))


def vectors_of(folder: Path, name: str) -> Float32s:
    """Map a chunk's vectors into memory, so only the used ones are read.

    Raises:
        WarehouseError: the chunk is gone, or damaged.
        OSError: the chunk cannot be downloaded, or not be read.
    """
    return _opened(local_copy(folder / (name + _VECTORS)), VECTOR, 2)


def _opened(path: Path, dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """Map a file into memory; see `_mapped`.

    Raises:
        WarehouseError: the file is gone, or damaged.
        OSError: the file cannot be read.
    """
    try:
        return _mapped(path, dtype, dimensions)
    except _DAMAGED as error:
        raise WarehouseError(f"{path} cannot be read ({error}); run again") from error


def _mapped(path: Path, dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """Map a file into memory; raise one of `_DAMAGED` if it is damaged."""
    array = np.lib.format.open_memmap(path, mode="r")
    if (array.dtype, array.ndim) != (dtype, dimensions) or not array.flags.c_contiguous:
        raise ValueError(f"an array of {array.dtype} with shape {array.shape}")
    return array


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a file atomically."""
    with atomic_write(path, durable=True) as written, written.open("wb") as file:
        np.save(file, array, allow_pickle=False)
