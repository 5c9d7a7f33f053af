"""Embeds texts by their windows, what the model reads of them: each window once, for all its texts.

Attempts at one long task often differ only behind their window. A text whose window has a vector,
of an earlier run or of another text, gets a copy of it under its own hash.
"""

import hashlib
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import cast

import duckdb
import numpy as np
import polars as pl

from kp_batch.embedding.chunks import read_vectors, write_chunk
from kp_batch.embedding.minilm import MiniLM, Window
from kp_batch.embedding.store import VectorStore
from kp_batch.files import atomic_write
from kp_batch.pipeline.inputs import Rows, parts_of, read_inputs, stage_inputs
from kp_batch.pipeline.loaded import EncoderName, loaded_encoder
from kp_batch.progress import progress
from kp_batch.sql import set_variables, sql, statement
from kp_batch.staging import WINDOWS, Staging
from kp_batch.steps.step import Executor, step

_TEXTS_AT_ONCE = 4_096
_COPIES_AT_ONCE = 16_384


def embed_by_window(staging: Staging, vectors: Path, name: EncoderName, executor: Executor) -> int:
    """Embed the texts of `staging.to_embed`.

    Which windows are new is known once all texts are tokenised, so that comes first: it takes a
    hundredth of the model's time on two cores.

    Args:
        staging: the run's files.
        vectors: the folder of the vector store.
        name: of the encoder.
        executor: tokenises, embeds and copies.

    Returns:
        How many windows were embedded.
    """
    texts = parts_of(staging.to_embed, _TEXTS_AT_ONCE)
    if not texts:
        return 0
    files: list[Path] = []
    with progress("tokenising", texts[-1][1], "text") as shown:
        for rows, path in zip(texts, executor.map(tokenise, texts, name, staging), strict=True):
            files.append(path)
            shown.add(rows[1] - rows[0])
    windows = _stage_new(staging, vectors, files)
    parts = parts_of(staging.windows_to_embed, MiniLM.chunk_size) if windows else []
    with progress("embedding", windows, "window") as shown:
        for count in executor.map(embed_windows, parts, staging, name, vectors):
            shown.add(count)
    copies = _stage_copies(staging, vectors, files)
    firsts = range(0, copies, _COPIES_AT_ONCE)
    with progress("copying", copies, "vector") as shown:
        for count in executor.map(copy_vectors, firsts, staging, vectors):
            shown.add(count)
    return windows


@step("tokenise")
def tokenise(part: Rows, name: EncoderName, staging: Staging) -> Path:
    """Stage the windows of some texts of `to_embed`; returns the file, of `WINDOWS`."""
    texts = read_inputs(part, staging.to_embed, ("text_hash", "text"))
    windows = _minilm(name).windows(texts.get_column("text").to_list())
    path = staging.windows(part[0])
    rows = pl.DataFrame(
        {
            "text_hash": texts.get_column("text_hash"),
            "window_hash": [_hash(each) for each in windows],
            "pieces": windows,
            "bytes": [each.nbytes for each in windows],
        },
        schema=WINDOWS,
    )
    with atomic_write(path) as written:
        rows.write_parquet(written, row_group_size=MiniLM.chunk_size)
    return path


@step("embed windows", on_gpu=True)
def embed_windows(part: Rows, staging: Staging, name: EncoderName, vectors: Path) -> int:
    """Embed some windows, each for the first text that has it, and store them as one chunk."""
    columns = ("text_hash", "window_hash", "pieces")
    rows = read_inputs(part, staging.windows_to_embed, columns)
    pieces = rows.get_column("pieces")
    ends = pieces.list.len().cum_sum().to_numpy()
    windows = np.split(pieces.explode().to_numpy(), ends[:-1])
    made = _minilm(name).encode_windows(windows)
    write_chunk(vectors, rows.get_column("text_hash"), made, rows.get_column("window_hash"))
    return len(rows)


@step("copy vectors")
def copy_vectors(first: int, staging: Staging, vectors: Path) -> int:
    """Store the vectors of known windows under the hashes of more texts, as one chunk."""
    rows, places = (
        pl.scan_parquet(path, glob=False).slice(first, _COPIES_AT_ONCE).collect()
        for path in (staging.copies, staging.to_copy)
    )
    copied = read_vectors(vectors, places)
    write_chunk(vectors, rows.get_column("text_hash"), copied, rows.get_column("window_hash"))
    return len(rows)


def _minilm(name: EncoderName) -> MiniLM:
    return cast("MiniLM", loaded_encoder(name))


def _hash(window: Window) -> str:
    return hashlib.sha256(window.astype("<u2").tobytes()).hexdigest()


def _stage_new(staging: Staging, vectors: Path, files: Sequence[Path]) -> int:
    """Stage where each window stands that has no vector; returns how many these are."""
    with staging.connect() as connection:
        _view(connection, "windows", files)
        store = VectorStore(vectors, connection, "window_hash")
        wanted = statement("(SELECT DISTINCT window_hash FROM windows)")
        count = store.write_missing(wanted, staging.missing_windows)
    if count:
        inputs = staging.windows_to_embed
        stage_inputs(staging, files, staging.missing_windows, "window_hash", inputs)
    return count


def _stage_copies(staging: Staging, vectors: Path, files: Sequence[Path]) -> int:
    """Stage the texts without a vector, and where those of their windows are; returns how many."""
    with staging.connect() as connection:
        _view(connection, "windows", files)
        wanted = statement("(SELECT text_hash FROM windows)")
        count = VectorStore(vectors, connection).write_missing(wanted, staging.without_vector)
        if count:
            _view(connection, "without_vector", [staging.without_vector])
            set_variables(connection, copies=str(staging.copies))
            connection.execute(sql(__name__, "copies.sql"))
            _view(connection, "copies", [staging.copies])
            wanted = statement("(SELECT window_hash, file_row_number AS position FROM copies)")
            VectorStore(vectors, connection, "window_hash").write_places(wanted, staging.to_copy)
    return count


def _view(connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path]) -> None:
    """See files as a view, with the columns filename and file_row_number."""
    names = [escape(str(each)) for each in files]
    rows = connection.read_parquet(names, file_row_number=True, filename=True)
    rows.create_view(name)
