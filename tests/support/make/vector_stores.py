"""A vector store that is asked by series of hashes."""

from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.embedding.vector_store import PLACES, VectorStore, read_vectors


class Opened:
    """A store as it is when it is opened, with a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.connection = folder, duckdb.connect()
        self.store = VectorStore(folder, self.connection)
        self.answer = folder.parent / "answer.parquet"
        folder.parent.mkdir(exist_ok=True)

    def missing(self, wanted: pl.Series) -> set[str]:
        self.connection.register("wanted", wanted.to_frame("text_hash").to_arrow())
        count = self.store.write_missing("wanted", self.answer)
        hashes = pl.read_parquet(self.answer)
        assert hashes.schema == {"text_hash": pl.String}
        assert len(hashes) == count
        return set(hashes.get_column("text_hash"))

    def gather(self, wanted: pl.Series) -> npt.NDArray[np.float32]:
        rows = wanted.to_frame("text_hash").with_row_index("position").reverse()
        self.connection.register("wanted", rows.to_arrow())
        self.store.write_places("wanted", self.answer)
        places = pl.read_parquet(self.answer)
        assert places.schema == PLACES
        return read_vectors(self.folder, places)

    def prune_to(self, wanted: pl.Series) -> int:
        self.connection.register("wanted", wanted.to_frame("text_hash").to_arrow())
        return self.store.prune_to("wanted")

    def count_mergeable(self, wanted: pl.Series) -> int:
        self.connection.register("wanted", wanted.to_frame("text_hash").to_arrow())
        return self.store.count_mergeable("wanted")

    def count_prunable(self, wanted: pl.Series) -> int:
        self.connection.register("wanted", wanted.to_frame("text_hash").to_arrow())
        return self.store.count_prunable("wanted")

    def rows_of(self, hashes: pl.DataFrame, wanted: pl.Series) -> list[tuple[object, ...]]:
        self.connection.register("wanted", wanted.to_frame("text_hash").to_arrow())
        self.connection.register("hashes", hashes.to_arrow())
        self.store.write_rows_of("hashes", "wanted", self.answer)
        return pl.read_parquet(self.answer).rows()
