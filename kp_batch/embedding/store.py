"""Keeps vectors on disk, found by the hash of their text.

A store grows chunk by chunk. A chunk is two NumPy files: its vectors, mapped into memory so that
each is read without the others, and their hashes. The hashes are written last, so a chunk appears
whole or not at all. Losing chunks costs time, nothing else.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.vectors import Float32s

_NO_PLACES = pl.DataFrame(schema={"text_hash": pl.String, "chunk": pl.Int32, "row": pl.Int32})
_VECTORS, _HASHES = ".vectors.npy", ".hashes.npy"


class VectorStore:
    """The vectors of one encoder.

    Args:
        folder: where its chunks are; created by the first `add`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chunks: list[Float32s] = []
        self._names: list[str] = []  # of the chunks' files
        mapped = [
            self._map(path.name.removesuffix(_HASHES))
            for path in sorted(folder.glob(f"*{_HASHES}"))
        ]
        self._index = pl.concat([_NO_PLACES, *mapped]).unique("text_hash", keep="first")

    def __len__(self) -> int:
        return len(self._index)

    def missing(self, text_hashes: pl.Series) -> pl.Series:
        """The hashes that have no vector yet, each once, in their order."""
        wanted = pl.DataFrame({"text_hash": text_hashes}).unique(maintain_order=True)
        return wanted.join(
            self._index, on="text_hash", how="anti", maintain_order="left"
        ).get_column("text_hash")

    def add(self, text_hashes: pl.Series, vectors: Float32s) -> None:
        """Store one chunk.

        Args:
            text_hashes: at least one string, none of them stored yet.
            vectors: float32, shape (hashes, dimensions).
        """
        # No two chunks share a hash, so the first hash names the chunk.
        self._write(text_hashes[0], text_hashes, vectors)

    def gather(self, text_hashes: pl.Series) -> Float32s:
        """Read the vectors of the hashes, in their order.

        Returns:
            float32, shape (hashes, dimensions).

        Raises:
            WarehouseError: a hash has no vector.
        """
        places = pl.DataFrame({"text_hash": text_hashes}).join(
            self._index, on="text_hash", how="left", maintain_order="left"
        )
        lacking = places.get_column("chunk").null_count()
        if lacking:
            raise WarehouseError(
                f"{lacking} of {len(places)} vectors are not in {self._folder}; run again"
            )
        dimensions = self._chunks[0].shape[1] if self._chunks else 0
        gathered = np.empty((len(places), dimensions), dtype=np.float32)
        chunk, row = places.get_column("chunk").to_numpy(), places.get_column("row").to_numpy()
        for number, members in _grouped(chunk):
            gathered[members] = self._chunks[number][row[members]]
        return gathered

    def keep(self, text_hashes: pl.Series) -> int:
        """Remove all other vectors from the disk, and the half-written files of killed runs.

        The store cannot be used afterwards.

        Returns:
            How many vectors were removed.
        """
        needed = text_hashes.to_frame("text_hash")
        kept = self._index.join(needed, on="text_hash", how="semi")
        removed = len(self._index) - len(kept)
        names: set[str] = set()
        for number, vectors in enumerate(list(self._chunks)):
            rows = kept.filter(pl.col("chunk") == number).sort("row")
            if len(rows) == len(vectors):
                names.add(self._names[number])
            elif len(rows):  # written before any is removed: some texts may be gone
                hashes = rows.get_column("text_hash")
                name = hashlib.sha256("".join(hashes).encode()).hexdigest()
                self._write(name, hashes, vectors[rows.get_column("row").to_numpy()])
                names.add(name)
        for path in sorted(self._folder.iterdir()):  # a chunk's hashes before its vectors
            if path.name.partition(".")[0] not in names or path.suffix == ".part":
                path.unlink()
        return removed

    def _write(self, name: str, text_hashes: pl.Series, vectors: Float32s) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        hashes = np.array(text_hashes.to_list(), dtype="S64")
        # The hashes of a damaged chunk of that name would be taken for those of the new vectors.
        (self._folder / (name + _HASHES)).unlink(missing_ok=True)
        _save(self._folder / (name + _VECTORS), np.ascontiguousarray(vectors, dtype="<f4"))
        _save(self._folder / (name + _HASHES), hashes)
        self._index = pl.concat([self._index, self._map(name)])

    def _map(self, name: str) -> pl.DataFrame:
        """Map a chunk and return the place of each of its hashes; no places if it is damaged.

        The texts of a damaged chunk count as missing: they are embedded again, which replaces it.
        """
        try:
            hashes = np.load(self._folder / (name + _HASHES), allow_pickle=False).astype(str)
            vectors = np.load(self._folder / (name + _VECTORS), mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, IndexError, EOFError, SyntaxError):
            return _NO_PLACES
        if vectors.ndim != 2 or hashes.shape != vectors.shape[:1]:
            return _NO_PLACES
        self._chunks.append(vectors)
        self._names.append(name)
        places = pl.DataFrame({"text_hash": pl.Series(hashes, dtype=pl.String)})
        return places.with_columns(
            chunk=pl.lit(len(self._chunks) - 1, pl.Int32),
            row=pl.int_range(pl.len(), dtype=pl.Int32),
        )


def _grouped(labels: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each label with its positions."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    for members in np.split(order, bounds):
        if len(members):
            yield int(labels[members[0]]), members


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write a file so that it appears whole or not at all."""
    half_written = path.with_suffix(".part")
    with half_written.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    half_written.replace(path)
