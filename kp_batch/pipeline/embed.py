"""Embed the texts without a vector, part by part, and store the vectors of each part.

A window is the part of a text that a model reads. All texts with the same window share one vector:
attempts at one long task often differ only after their window.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np
import polars as pl

from kp_batch.duck import read_parquet, set_variables, sql
from kp_batch.embedding.chunks import stored_hashes, write_chunk, write_windows
from kp_batch.embedding.encoder import Encoder
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.minilm import MiniLM
from kp_batch.embedding.precision import Precision, is_native
from kp_batch.embedding.windows import KnownWindows, TextWindows, chunks_to_embed, window_hash
from kp_batch.errors import EncoderError
from kp_batch.ingest.scan import file_parts
from kp_batch.ingest.stage import stage_texts
from kp_batch.log import progress, warn
from kp_batch.pipeline.replay_spans import vector_bytes
from kp_batch.planning.plan import Plan
from kp_batch.planning.write_tasks import Rows
from kp_batch.runs.run import Run
from kp_batch.steps.step import Executor, step
from kp_batch.vectors import Int64s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.staging import Staging

TEXTS_PER_PART = 4_096  # tokenised at once
# Bytes of a part: it has a few long texts or many short ones.
_PART_BYTES = 64 << 20
# Windows of a chunk on a GPU, which computes them in seconds: an interruption costs no more.
# Smaller chunks would be too many files for a disk.
GPU_CHUNK_WINDOWS = 8_192
_LOADING = Lock()


class EncoderName(NamedTuple):
    """The name by which a worker loads an encoder."""

    embedder: str
    precision: Precision
    encoder_id: str


@step("embed")
def embed(run: Run, plan: Plan, executor: Executor) -> int | None:
    """Embed the texts of a plan; first read again those that this run has not read.

    Returns:
        How many windows were embedded; None if the encoder has no windows or nothing to embed.

    Raises:
        EncoderError: the model cannot be loaded, or it returned NaN or infinity.
        ResourceError: the vectors of a replay would not fit into memory.
    """
    # Loading reads all files of a model, so it happens only if there is something to embed.
    config = run.config
    name = EncoderName(config.embedder, config.precision, plan.scorer.encoder_id)
    # The parts share this encoder. It is freed with this function: the replay needs the memory.
    encoder = begun_encoder(name) if plan.texts.missing else None
    if encoder:  # a replay that does not fit is refused before this work, which may take days
        vector_bytes(plan.spans, encoder.dimensions)
    staged = [*plan.scan.texts, *_read_again(run, plan, executor)] if encoder else []
    if encoder is None or not staged:  # files changed: the replay reports it
        return None
    if not is_native(encoder.precision):
        warn(
            f"{encoder.precision} is slower than float32 on this processor; if many texts are "
            "still to come, choose float32, which embeds all texts again",
            repeated=run.published.settings.get("precision") == encoder.precision,
        )
    staging, folder = run.staging, Layout(config.warehouse).vectors(encoder.encoder_id)
    stage_inputs(staging, staged)
    if isinstance(encoder, MiniLM):
        texts = parts_of(staging.to_embed, TEXTS_PER_PART)
        return embed_by_window(texts, staging, folder, name, executor) if texts else 0
    parts = parts_of(staging.to_embed, encoder.chunk_size)
    with (
        progress("embedding", plan.texts.missing, "text") as shown,
        closing(executor.map(embed_texts, parts, staging.to_embed, name, folder)) as embedded,
    ):
        for count in embedded:
            shown.add(count)
    return None


def _read_again(run: Run, plan: Plan, executor: Executor) -> Iterable[Path]:
    parts = file_parts(plan.texts.sources)
    reading = executor.map(stage_texts, parts, run.staging.texts_to_reread, run.staging)
    with (
        progress("reading again", len(plan.texts.sources), "file") as shown,
        closing(reading) as again,
    ):
        for part, paths in zip(parts, again, strict=True):
            shown.add(len(part))
            yield from paths


@step("embed texts", on_gpu=True)
def embed_texts(part: Rows, /, to_embed: Path, name: EncoderName, vectors: Path) -> int:
    """Embed some texts of `to_embed`, and store their vectors as one chunk; return how many.

    Raises:
        EncoderError: the model's files differ on this machine.
    """
    texts = read_inputs(part, to_embed, ("text_hash", "text"))
    encoded = loaded_encoder(name).encode(texts.get_column("text").to_list())
    write_chunk(vectors, texts.get_column("text_hash"), encoded)
    return len(texts)


def embed_by_window(
    texts: Sequence[Rows], staging: Staging, vectors: Path, name: EncoderName, executor: Executor
) -> int:
    """Embed the texts of `staging.to_embed`; return how many windows were embedded.

    It is a stream: while some windows are embedded, others are stored, and the next texts are read
    and tokenised.
    """
    size = GPU_CHUNK_WINDOWS if executor.has_gpu() else MiniLM.chunk_size
    windows = 0
    tokenised = executor.map(tokenise, iter(texts), staging.to_embed, name, vectors)
    chunks = chunks_to_embed(tokenised, KnownWindows(stored_hashes(vectors)), size)
    with (
        progress("embedding", texts[-1][1], "text") as shown,
        closing(executor.map(embed_windows, chunks, name, vectors)) as embedded,
    ):
        for count, of_texts in embedded:
            windows += count
            shown.add(of_texts)
    return windows


@step("tokenise", at_once=2)  # a tokenizer uses all cores while another part is read
def tokenise(part: Rows, /, to_embed: Path, name: EncoderName, vectors: Path) -> TextWindows:
    """Tokenise some texts of `to_embed`, and store the hash of each text's window."""
    texts = read_inputs(part, to_embed, ("text_hash", "text"))
    windows = _minilm(name).windows(texts.get_column("text").to_list())
    hashes = [window_hash(window) for window in windows]
    write_windows(vectors, texts.get_column("text_hash").to_list(), hashes)
    return TextWindows(hashes, windows, len(windows))


@step("embed windows", on_gpu=True, at_once=3)  # one is prepared, one computed, one stored
def embed_windows(chunk: TextWindows, /, name: EncoderName, vectors: Path) -> tuple[int, int]:
    """Embed some windows and store their vectors; return the number of windows and of texts."""
    if chunk.windows:
        write_chunk(vectors, chunk.hashes, _minilm(name).encode_windows(chunk.windows))
    return len(chunk.windows), chunk.texts


def _minilm(name: EncoderName) -> MiniLM:
    return cast("MiniLM", loaded_encoder(name))


def stage_inputs(staging: Staging, files: Sequence[Path]) -> None:
    """Stage the place of each missing text in the files of texts, at least one; see inputs.sql."""
    paths = sorted(map(str, files))
    staged, missing = read_parquet(*paths, numbered=True), read_parquet(staging.missing)
    query = sql(__name__, "inputs.sql", staged=staged, missing=missing)
    with staging.connect() as connection:
        set_variables(connection, staged=paths, inputs=str(staging.to_embed))
        connection.execute(query)


def parts_of(inputs: Path, most: int) -> list[Rows]:
    """Cut staged inputs into parts of at most so many rows, and fewer if the rows are large."""
    sizes = pl.read_parquet(inputs, columns=["bytes"], glob=False).to_series()
    least = _PART_BYTES // most
    return list(slices(np.maximum(sizes.to_numpy(), least), least * most))


def slices(sizes: Int64s, most: int) -> Iterator[Rows]:
    """Cut rows into slices that are as large as possible, as `step.cut` does.

    Args:
        sizes: int64, shape (rows,), positive.
        most: the largest sum of sizes in a slice; a larger row is a slice by itself.
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        most_end = ends[first] - sizes[first] + most
        last = max(int(np.searchsorted(ends, most_end, side="right")), first + 1)
        yield first, last
        first = last


def read_inputs(part: Rows, inputs: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read some columns of a part of the staged inputs, in their order."""
    first, last = part
    places = pl.scan_parquet(inputs, glob=False).slice(first, last - first).collect()
    return pl.concat(
        rows_at(Path(str(path)), rows.get_column("row").to_numpy(), columns)
        for (path,), rows in places.group_by("path", maintain_order=True)
    )


def rows_at(path: Path, rows: Int64s, columns: Sequence[str]) -> pl.DataFrame:
    """Read some rows of a Parquet file, from only the row groups that contain them.

    The rows are int64, ascending, at least one.
    """
    import pyarrow.parquet as pq

    frames: list[pl.DataFrame] = []
    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        counts = [file.metadata.row_group(group).num_rows for group in groups]
        starts = np.cumsum([0, *counts])
        group_of = np.searchsorted(starts, rows, side="right") - 1
        for group in np.unique(group_of):
            table = file.read_row_group(int(group), columns=list(columns))
            frames.append(pl.DataFrame(table)[rows[group_of == group] - starts[group]])
    return pl.concat(frames)


# The encoders of this process's runs, by name, each kept alive by its runs alone.
_ENCODERS: WeakValueDictionary[EncoderName, Encoder] = WeakValueDictionary()
_OF_WORKER: list[Encoder] = []  # at most one, in a process that works for another one


def begun_encoder(name: EncoderName) -> Encoder:
    """Return the encoder of that name, which is kept while anybody who began with it keeps it.

    Raises:
        EncoderError: the model's files differ on this machine.
    """
    with _LOADING:
        return _found(name)


def loaded_encoder(name: EncoderName) -> Encoder:
    """Return a part's encoder: its run's, or in another process one that is kept there.

    Raises:
        EncoderError: the model's files differ on this machine.
    """
    with _LOADING:
        if name not in _ENCODERS:
            _OF_WORKER[:] = [_found(name)]
        return _found(name)


def _found(name: EncoderName) -> Encoder:
    if (known := _ENCODERS.get(name)) is not None:
        return known
    encoder = load_encoder(name.embedder, name.precision)
    if encoder is None or encoder.encoder_id != name.encoder_id:
        raise EncoderError(
            f"the files of the model {name.embedder} differ between this machine and the one that "
            "started the run; put the same files on each machine"
        )
    _ENCODERS[name] = encoder
    return encoder
