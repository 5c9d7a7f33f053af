"""Keeps vectors on disk, found by the hash of their text.

A store grows chunk by chunk. A chunk is two NumPy files: its vectors, mapped into memory so that
each is read without the others, and their hashes. The hashes are written last, so a chunk appears
whole or not at all. Losing chunks costs time, nothing else.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.vectors import Float32s
from kp_batch.whole_files import HALF_WRITTEN, whole

# Where a vector is: the name of its chunk, and its row in it.
PLACES = pl.Schema({"chunk": pl.String, "row": pl.Int32})
_INDEX = pl.Schema({"text_hash": pl.String, **PLACES})
_VECTORS, _HASHES = ".vectors.npy", ".hashes.npy"


class VectorStore:
    """The vectors of one encoder, as they are when it is opened.

    Args:
        folder: where its chunks are; there may be none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = (path.name.removesuffix(_HASHES) for path in sorted(folder.glob(f"*{_HASHES}")))
        chunks = [_INDEX.to_frame(), *(_index_of(folder, name) for name in names)]
        self._index = pl.concat(chunks).unique("text_hash", keep="first")

    def __len__(self) -> int:
        return len(self._index)

    def missing(self, text_hashes: pl.Series) -> pl.Series:
        """The hashes that have no vector yet, each once, in their order."""
        wanted = pl.DataFrame({"text_hash": text_hashes}).unique(maintain_order=True)
        return wanted.join(
            self._index, on="text_hash", how="anti", maintain_order="left"
        ).get_column("text_hash")

    def places(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Find where vectors are.

        Args:
            rows: a frame with the column `text_hash`.

        Returns:
            Frame of `PLACES`, in the order of the rows; null where there is no vector.
        """
        found = rows.select("text_hash").join(
            self._index.lazy(), on="text_hash", how="left", maintain_order="left"
        )
        return found.select(PLACES.names())

    def gather(self, text_hashes: pl.Series) -> Float32s:
        """Read the vectors of the hashes, in their order; see `read_vectors`."""
        rows = pl.LazyFrame({"text_hash": text_hashes})
        return read_vectors(self._folder, self.places(rows).collect())

    def keep(self, text_hashes: pl.Series) -> int:
        """Remove all other vectors from the disk, and the half-written files of killed runs.

        The store cannot be used afterwards.

        Returns:
            How many vectors were removed.
        """
        needed = text_hashes.to_frame("text_hash")
        kept = self._index.join(needed, on="text_hash", how="semi")
        held = dict(self._index.group_by("chunk").len().iter_rows())
        names: set[str] = set()
        for (name,), rows in kept.sort("chunk", "row").group_by("chunk", maintain_order=True):
            if len(rows) == held[name]:
                names.add(str(name))
            else:  # written before any is removed: some texts may be gone
                vectors = read_vectors(self._folder, rows)
                names.add(write_chunk(self._folder, rows.get_column("text_hash"), vectors))
        for path in sorted(self._folder.iterdir()):  # a chunk's hashes before its vectors
            if path.name.partition(".")[0] not in names or path.suffix == HALF_WRITTEN:
                path.unlink()
        return len(self._index) - len(kept)


def write_chunk(folder: Path, text_hashes: pl.Series, vectors: Float32s) -> str:
    """Store a chunk. Done again, by whomever, it is replaced by itself.

    Args:
        folder: of the store; made where it is missing.
        text_hashes: at least one string.
        vectors: float32, shape (hashes, dimensions).

    Returns:
        The chunk's name, a digest of its hashes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = np.array(text_hashes.to_list(), dtype="S64")
    name = hashlib.sha256(hashes.tobytes()).hexdigest()
    # The hashes of a damaged chunk of that name would be taken for those of the new vectors.
    (folder / (name + _HASHES)).unlink(missing_ok=True)
    _save(folder / (name + _VECTORS), np.ascontiguousarray(vectors, dtype="<f4"))
    _save(folder / (name + _HASHES), hashes)
    return name


def read_vectors(folder: Path, places: pl.DataFrame) -> Float32s:
    """Read vectors.

    Args:
        folder: of the store.
        places: a frame with the columns of `PLACES`.

    Returns:
        float32, shape (places, dimensions).

    Raises:
        WarehouseError: a place is null, or its chunk is gone or damaged.
    """
    lacking = places.get_column("chunk").null_count()
    if lacking:
        raise WarehouseError(f"{lacking} of {len(places)} vectors are not in {folder}; run again")
    rows = places.get_column("row").to_numpy()
    gathered: Float32s | None = None
    for (name,), group in places.with_row_index("at").group_by("chunk", maintain_order=True):
        vectors = _mapped(folder, str(name))
        at = group.get_column("at").to_numpy()
        if gathered is None:
            gathered = np.empty((len(places), vectors.shape[1]), dtype=np.float32)
        gathered[at] = vectors[rows[at]]
    return np.empty((0, 0), dtype=np.float32) if gathered is None else gathered


def _mapped(folder: Path, name: str) -> Float32s:
    """A chunk's vectors, of which only those that are looked at are read.

    Raises:
        WarehouseError: they are gone, or damaged.
    """
    path = folder / (name + _VECTORS)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise WarehouseError(f"{path} cannot be read ({error}); run again") from error


def _index_of(folder: Path, name: str) -> pl.DataFrame:
    """The place of each of a chunk's hashes; no places if it is damaged.

    The texts of a damaged chunk count as missing: they are embedded again, which replaces it.
    """
    try:
        hashes = np.load(folder / (name + _HASHES), allow_pickle=False).astype(str)
        vectors = _mapped(folder, name)
    except (WarehouseError, ValueError, OSError, IndexError, EOFError, SyntaxError):
        return _INDEX.to_frame()
    if vectors.ndim != 2 or hashes.shape != vectors.shape[:1]:
        return _INDEX.to_frame()
    places = pl.DataFrame({"text_hash": pl.Series(hashes, dtype=pl.String)})
    return places.with_columns(
        chunk=pl.lit(name), row=pl.int_range(pl.len(), dtype=pl.Int32)
    ).select(_INDEX.names())


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a file so that it appears whole or not at all."""
    with whole(path) as written, written.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
