"""A tokenizer and a model that take a known time, and whose vectors anybody can compute."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import polars as pl
import pytest

from kp_batch.embedding.minilm import MiniLM, Window
from kp_batch.pipeline import embed
from kp_batch.pipeline.embed import EncoderName, embed_by_window, parts_of
from kp_batch.steps.step import Executor
from kp_batch.vectors import Float32s, normalised
from kp_batch.warehouse.staging import TEXTS, Staging


class Sleeping(MiniLM):
    """Of a text the window is its first four letters; each is done by one thread at a time."""

    def __init__(self, tokenizer_s: float = 0.0, model_s: float = 0.0) -> None:
        super().__init__()
        self._seconds = (tokenizer_s, model_s)
        self._locks = (Lock(), Lock())

    def windows(self, texts: Sequence[str]) -> list[Window]:
        with self._locks[0]:
            time.sleep(self._seconds[0])
        return [np.frombuffer(text[:4].encode("utf-16-le"), np.uint16) for text in texts]

    def encode_windows(self, windows: Sequence[Window]) -> Float32s:
        with self._locks[1]:
            time.sleep(self._seconds[1])
        return np.array([vector_of(window) for window in windows])


def vector_of(window: Window) -> Float32s:
    """A unit vector that differs for each window."""
    seed = int.from_bytes(hashlib.sha256(window.tobytes()).digest()[:8], "little")
    return normalised(np.random.default_rng(seed).standard_normal(8))


def stage(staging: Staging, texts: Sequence[str]) -> list[str]:
    """Stage texts to embed, as a run stages them; returns their hashes."""
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    path = staging.texts("made")
    frame = pl.DataFrame(
        {"text_hash": hashes, "text": texts, "bytes": [len(text) for text in texts]}, schema=TEXTS
    )
    frame.write_parquet(path, row_group_size=64)
    places = frame.select(pl.lit(str(path)).alias("path"), pl.int_range(pl.len()).alias("row"))
    places.with_columns(frame.get_column("bytes")).write_parquet(staging.to_embed)
    return hashes


def embed_staged(
    encoder: Sleeping, staging: Staging, vectors: Path, executor: Executor, *, at_once: int
) -> int:
    """Embed what is staged, so many texts, and windows, at once; returns the number of windows."""
    _forget_encoders()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "load_encoder", lambda *_: encoder)
        patch.setattr(MiniLM, "chunk_size", at_once)
        name = EncoderName("minilm", "float32", encoder.encoder_id)
        parts = parts_of(staging.to_embed, at_once)
        try:
            return embed_by_window(parts, staging, vectors, name, executor)
        finally:
            _forget_encoders()


def _forget_encoders() -> None:
    embed._ENCODERS.clear()  # noqa: SLF001
    embed._OF_WORKER.clear()  # noqa: SLF001
