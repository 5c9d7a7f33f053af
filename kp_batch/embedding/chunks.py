"""The files of a vector store: NumPy arrays, of vectors, of hashes, and of which text has which.

A chunk is two files of a common name: vectors, and the hashes of what the encoder read: of texts,
or, where it reads no more of a text than its window, of windows. Then further files have the hashes
of texts beside those of their windows. All are mapped into memory, so that a vector is read without
the others, and hashes pass by without being held. A chunk's hashes are written after its vectors,
so that it appears whole or not at all.
"""

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write, files_below
from kp_batch.vectors import Float32s
from kp_batch.warehouse.bucket.location import is_remote, local_copy

# Where a vector is: the name of its chunk, and its row in it.
PLACES = pl.Schema({"chunk": pl.String, "row": pl.Int32})
HASH = np.dtype("S64")  # SHA-256 in hex
_VECTOR = np.dtype("<f4")
Hashes = npt.NDArray[np.bytes_]
_VECTORS, _HASHES, _WINDOWS = ".vectors.npy", ".hashes.npy", ".windows.npy"
# Of a chunk, or what a killed run left of one.
_FILE = re.compile(r"[0-9a-f]{64}\.(?:vectors|hashes|windows)\.npy(?:\..+)?")
_DAMAGED = (ValueError, OSError, IndexError, EOFError, SyntaxError)  # what NumPy then raises


def chunk_names(folder: Path) -> list[str]:
    """The names of the chunks in a folder, ascending; the folder may be missing."""
    return _names(folder, _HASHES)


def window_names(folder: Path) -> list[str]:
    """Likewise those of the files of which text has which window."""
    return _names(folder, _WINDOWS)


def _names(folder: Path, ending: str) -> list[str]:
    return sorted(path.name.removesuffix(ending) for path in folder.glob(f"*{ending}"))


def chunk_files(folder: Path) -> list[Path]:
    """The files of the store in a folder, half-written ones, too; whatever else is not ours.

    Raises:
        WarehouseError: the folder is a link, or holds one.
    """
    files = files_below(folder)
    return [each for each in files if each.parent == folder and _FILE.fullmatch(each.name)]


def count_vectors(folder: Path) -> int:
    """How many vectors a folder holds."""
    return sum(len(chunk_hashes(folder, name)) for name in chunk_names(folder))


def stored_dimensions(folder: Path) -> int | None:
    """The dimensions of the vectors in a folder; None if it has none that can be read."""
    names = chunk_names(folder)
    for remote in (False, True):  # one that is here tells as much
        for name in names:
            if _is_remote(folder, name) == remote and len(chunk_hashes(folder, name)):
                return _vectors(folder, name).shape[1]
    return None


def write_chunk(folder: Path, hashes: pl.Series, vectors: Float32s) -> str:
    """Store a chunk. Done again, by whomever, it is replaced by itself.

    Args:
        folder: of the store; made where it is missing.
        hashes: at least one string.
        vectors: float32, shape (hashes, dimensions).

    Returns:
        The chunk's name, a digest of its hashes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = np.array(hashes.to_list(), dtype=HASH)
    name = hashlib.sha256(known.tobytes()).hexdigest()
    # The hashes of a damaged chunk of that name would be taken for those of the new vectors.
    (folder / (name + _HASHES)).unlink(missing_ok=True)
    _save(folder / (name + _VECTORS), np.ascontiguousarray(vectors, dtype=_VECTOR))
    _save(folder / (name + _HASHES), known)
    return name


def write_windows(folder: Path, text_hashes: pl.Series, window_hashes: pl.Series) -> str:
    """Store which windows texts have; returns the file's name. See `write_chunk`."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = np.array([text_hashes.to_list(), window_hashes.to_list()], dtype=HASH)
    name = hashlib.sha256(pairs.tobytes()).hexdigest()
    _save(folder / (name + _WINDOWS), pairs)
    return name


def chunk_hashes(folder: Path, name: str) -> Hashes:
    """The hashes of a chunk, in the order of its vectors; none if it is damaged.

    What a damaged chunk had counts as missing: it is embedded again, which replaces it.

    Returns:
        S64, shape (vectors,), mapped into memory; shape (0,) if it is damaged.
    """
    with suppress(WarehouseError, *_DAMAGED):
        hashes = _mapped(folder / (name + _HASHES), HASH, 1)
        # What is remote is whole, as far as is known from here.
        if _is_remote(folder, name) or len(hashes) == len(_vectors(folder, name)):
            return hashes
    return np.empty(0, dtype=HASH)


def window_hashes(folder: Path, name: str) -> Hashes:
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
        WarehouseError: a place is null, or its chunk is gone or damaged.
        OSError: the chunk cannot be fetched.
    """
    lacking = places.get_column("chunk").null_count()
    if lacking:
        raise WarehouseError(
            f"{lacking} of {len(places)} vectors are not in {folder}; a run makes those anew "
            "that it replays: of all traces with --embedder none, and then with their --embedder"
        )
    rows = places.get_column("row").to_numpy()
    gathered: Float32s | None = None
    for (name,), group in places.with_row_index("at").group_by("chunk", maintain_order=True):
        vectors = _vectors(folder, str(name))
        at = group.get_column("at").to_numpy()
        if gathered is None:
            gathered = np.empty((len(places), vectors.shape[1]), dtype=np.float32)
        gathered[at] = vectors[rows[at]]
    return np.empty((0, 0), dtype=np.float32) if gathered is None else gathered


def _is_remote(folder: Path, name: str) -> bool:
    return is_remote(folder / (name + _VECTORS))


def _vectors(folder: Path, name: str) -> Float32s:
    """A chunk's vectors, of which only those that are looked at are read.

    Raises:
        WarehouseError: they are gone, or damaged.
        OSError: they cannot be fetched.
    """
    path = local_copy(folder / (name + _VECTORS))
    try:
        return _mapped(path, _VECTOR, 2)
    except _DAMAGED as error:
        raise WarehouseError(f"{path} cannot be read ({error}); run again") from error


def _mapped(path: Path, dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """Map a file into memory; one that is not as it is written here raises one of `_DAMAGED`."""
    array = np.lib.format.open_memmap(path, mode="r")
    if (array.dtype, array.ndim) != (dtype, dimensions) or not array.flags.c_contiguous:
        raise ValueError(f"an array of {array.dtype}, of shape {array.shape}")
    return array


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a file so that it appears whole or not at all."""
    with atomic_write(path, durable=True) as written, written.open("wb") as file:
        np.save(file, array, allow_pickle=False)
