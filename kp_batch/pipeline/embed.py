"""Embeds texts: each chunk of vectors is stored as soon as it is made."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.reading import BATCH_ROWS
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.store import VectorStore
from kp_batch.planning.ingest import reread_texts
from kp_batch.planning.timeline import MissingTexts
from kp_batch.progress import progress
from kp_batch.staging import Staging


def embed(embedder: str, vectors: Path, texts: MissingTexts, staging: Staging) -> None:
    """Embed the texts that have no vector yet; each chunk is kept once it is made.

    Args:
        embedder: the encoder's name.
        vectors: the folder of all vector stores.
        texts: which texts.
        staging: the run's files.
    """
    # Loading looks at all of a model's files: nothing is loaded where nothing is to be embedded.
    encoder = None if texts.missing.is_empty() else load_encoder(embedder)
    if encoder is None:
        return
    store = VectorStore(vectors / encoder.encoder_id)
    given = chain(_staged(staging.rows), reread_texts(texts.sources))
    with progress("embedding", len(texts.missing), "texts") as shown:
        for chunk in _chunks(given, texts.missing, encoder.chunk_size):
            vectors_of = encoder.encode(chunk.get_column("text").to_list())
            store.add(chunk.get_column("text_hash"), vectors_of)
            shown.add(len(chunk))


def _staged(rows: Path) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(rows) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, columns=["text_hash", "text"]):
            yield cast("pl.DataFrame", pl.from_arrow(batch))


def _chunks(
    frames: Iterable[pl.DataFrame], missing: pl.Series, size: int
) -> Iterator[pl.DataFrame]:
    """Yield the missing hashes with their texts, each once, in frames of `size` rows."""
    wanted = missing.to_frame("text_hash")
    held = pl.DataFrame(schema={"text_hash": pl.String, "text": pl.String})
    for frame in frames:
        found = frame.unique("text_hash", keep="first", maintain_order=True)
        held = pl.concat([held, found.join(wanted, on="text_hash", how="semi")])
        wanted = wanted.join(held, on="text_hash", how="anti")
        while len(held) >= size:
            yield held.head(size)
            held = held.slice(size)
    if len(held):
        yield held
