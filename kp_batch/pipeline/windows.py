"""Embeds texts by their windows, what a model reads of them: each once, for all texts that have it.

Attempts at one long task often differ only behind their window.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl

from kp_batch.embedding.chunks import write_chunk, write_windows
from kp_batch.embedding.minilm import MiniLM, Window
from kp_batch.embedding.store import VectorStore
from kp_batch.files import atomic_write
from kp_batch.pipeline.inputs import Rows, parts_of, read_inputs, stage_inputs
from kp_batch.pipeline.loaded import EncoderName, loaded_encoder
from kp_batch.progress import progress
from kp_batch.sql import read_parquet, statement
from kp_batch.staging import WINDOWS, Staging
from kp_batch.steps.step import Executor, step

_TEXTS_AT_ONCE = 4_096


def embed_by_window(staging: Staging, vectors: Path, name: EncoderName, executor: Executor) -> int:
    """Embed the texts of `staging.to_embed`.

    Which windows are new is known once all texts are tokenised, so that comes first: it takes a
    hundredth of the model's time on two cores.

    Args:
        staging: the run's files.
        vectors: the folder of the vector store.
        name: of the encoder.
        executor: tokenises and embeds.

    Returns:
        How many windows were embedded.
    """
    texts = parts_of(staging.to_embed, _TEXTS_AT_ONCE)
    if not texts:
        return 0
    files: list[Path] = []
    with progress("tokenising", texts[-1][1], "text") as shown:
        tokenised = executor.map(tokenise, texts, staging, name, vectors)
        for rows, path in zip(texts, tokenised, strict=True):
            files.append(path)
            shown.add(rows[1] - rows[0])
    windows = _stage_new(staging, vectors, files)
    parts = parts_of(staging.windows_to_embed, MiniLM.chunk_size) if windows else []
    with progress("embedding", windows, "window") as shown:
        for count in executor.map(embed_windows, parts, staging, name, vectors):
            shown.add(count)
    return windows


@step("tokenise")
def tokenise(part: Rows, staging: Staging, name: EncoderName, vectors: Path) -> Path:
    """Stage the windows of some texts of `to_embed`, and store which is whose.

    Returns:
        The file, of `WINDOWS`.
    """
    texts = read_inputs(part, staging.to_embed, ("text_hash", "text"))
    windows = _minilm(name).windows(texts.get_column("text").to_list())
    hashes = pl.Series([_hash(each) for each in windows], dtype=pl.String)
    sizes = [each.nbytes for each in windows]
    rows = pl.DataFrame({"window_hash": hashes, "pieces": windows, "bytes": sizes}, schema=WINDOWS)
    path = staging.windows(part[0])
    with atomic_write(path) as written:
        rows.write_parquet(written, row_group_size=MiniLM.chunk_size)
    write_windows(vectors, texts.get_column("text_hash"), hashes)
    return path


@step("embed windows", on_gpu=True)
def embed_windows(part: Rows, staging: Staging, name: EncoderName, vectors: Path) -> int:
    """Embed some windows, and store them as one chunk; returns how many."""
    rows = read_inputs(part, staging.windows_to_embed, ("window_hash", "pieces"))
    pieces = rows.get_column("pieces")
    ends = pieces.list.len().cum_sum().to_numpy()
    windows = np.split(pieces.explode().to_numpy(), ends[:-1])
    write_chunk(vectors, rows.get_column("window_hash"), _minilm(name).encode_windows(windows))
    return len(rows)


def _minilm(name: EncoderName) -> MiniLM:
    return cast("MiniLM", loaded_encoder(name))


def _hash(window: Window) -> str:
    """The hash of a window, which no text has: none begins with this byte, as UTF-8 has none."""
    return hashlib.sha256(b"\xff" + window.astype("<u2").tobytes()).hexdigest()


def _stage_new(staging: Staging, vectors: Path, files: Sequence[Path]) -> int:
    """Stage where each window stands that has no vector; returns how many these are."""
    windows = read_parquet(*files)
    wanted = statement("(SELECT DISTINCT window_hash AS text_hash FROM $windows)", windows=windows)
    with staging.connect() as connection:
        count = VectorStore(vectors, connection).write_missing(wanted, staging.missing_windows)
    if count:
        missing, inputs = staging.missing_windows, staging.windows_to_embed
        stage_inputs(staging, files, missing, "window_hash", inputs)
    return count
