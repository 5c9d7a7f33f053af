"""Embeds the texts that have no vector: chunk by chunk, each kept once it is made."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.embedding.chunks import write_chunk
from kp_batch.embedding.encoders import Encoder, load_encoder
from kp_batch.errors import EncoderError
from kp_batch.executor import Executor, Step
from kp_batch.ingest.contents import stage_texts
from kp_batch.ingest.new_files import file_parts
from kp_batch.planning.plan import Plan
from kp_batch.progress import progress
from kp_batch.run import Run
from kp_batch.sql import sql
from kp_batch.vectors import Int64s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.tables import quoted

# Characters of a chunk, in UTF-8: a few long texts are a chunk as well as many short ones.
_CHUNK_BYTES = 64 << 20

Rows = tuple[int, int]  # of `staging.to_embed`, from the first to the last one, which is excluded


def embed(run: Run, plan: Plan, workers: Executor) -> None:
    """Embed the texts of a plan.

    Args:
        run: the run.
        plan: what is to be done.
        workers: read texts again that were not read for this run, and embed them.

    Raises:
        EncoderError: the model cannot be loaded, or it returned NaN or infinity.
    """
    # Loading looks at all of a model's files: nothing is loaded where nothing is to be embedded.
    encoder = load_encoder(run.config.embedder) if plan.texts.missing else None
    if encoder is None:
        return
    parts = _chunks(run, [*plan.observed.texts, *_read_again(run, plan, workers)], encoder)
    folder = Layout(run.config.warehouse).vectors(encoder.encoder_id)
    name = (run.config.embedder, encoder.encoder_id)
    with progress("embedding", plan.texts.missing, "text") as shown:
        for texts in workers.map(EMBED_TEXTS, parts, run.staging.to_embed, name, folder):
            shown.add(texts)
    loaded_encoder.cache_clear()  # the memory is for the replay


def _read_again(run: Run, plan: Plan, workers: Executor) -> Iterable[Path]:
    parts = file_parts(plan.texts.sources)
    with progress("reading again", len(plan.texts.sources), "file") as shown:
        again = workers.map(READ_AGAIN, parts, run.staging.unread, run.staging)
        for part, paths in zip(parts, again, strict=True):
            shown.add(len(part))
            yield from paths


def _chunks(run: Run, texts: list[Path], encoder: Encoder) -> list[Rows]:
    """Stage where each missing text stands, and cut them into the chunks to be embedded."""
    if not texts:  # files changed meanwhile: the replay says what is missing
        return []
    paths = sorted(map(str, texts))
    listed = ", ".join(map(quoted, paths))
    query = sql(__name__, "to_embed.sql", texts=listed, missing=quoted(str(run.staging.missing)))
    with run.staging.connect() as connection:
        connection.execute("SET VARIABLE texts = ?", [paths])
        connection.execute("SET VARIABLE to_embed = ?", [str(run.staging.to_embed)])
        connection.execute(query)
    sizes = pl.read_parquet(run.staging.to_embed, columns=["bytes"], glob=False).to_series()
    least = _CHUNK_BYTES // encoder.chunk_size
    return list(slices(np.maximum(sizes.to_numpy(), least), least * encoder.chunk_size))


def slices(sizes: Int64s, most: int) -> Iterator[Rows]:
    """Cut rows into slices, each as large as it may be, as `executor.cut` does.

    Args:
        sizes: int64, shape (rows,), positive.
        most: the size of a slice, the sum of its rows'; a row that is larger is one by itself.
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        most_end = ends[first] - sizes[first] + most
        last = max(int(np.searchsorted(ends, most_end, side="right")), first + 1)
        yield first, last
        first = last


def embed_texts(part: Rows, to_embed: Path, encoder: tuple[str, str], vectors: Path) -> int:
    """Embed some texts and store their vectors as one chunk.

    Args:
        part: which rows of `to_embed`.
        to_embed: where each text stands; see to_embed.sql.
        encoder: its name, and its id.
        vectors: the folder of its vector store.

    Returns:
        How many texts.

    Raises:
        EncoderError: here the model has other files.
    """
    first, last = part
    places = pl.scan_parquet(to_embed, glob=False).slice(first, last - first).collect()
    texts = pl.concat(
        [
            texts_at(Path(str(path)), rows.get_column("row").to_numpy())
            for (path,), rows in places.group_by("path", maintain_order=True)
        ]
    )
    made = loaded_encoder(*encoder).encode(texts.get_column("text").to_list())
    write_chunk(vectors, texts.get_column("text_hash"), made)
    return len(texts)


READ_AGAIN = Step("read again", stage_texts)
EMBED_TEXTS = Step("embed texts", embed_texts)


@lru_cache(maxsize=1)  # a process loads its model once
def loaded_encoder(name: str, encoder_id: str) -> Encoder:
    """The encoder of that name, its model loaded once.

    Raises:
        EncoderError: here the model has other files.
    """
    encoder = load_encoder(name)
    if encoder is None or encoder.encoder_id != encoder_id:
        raise EncoderError(f"the files of the model {name} are others here than where it was named")
    return encoder


def texts_at(path: Path, rows: Int64s) -> pl.DataFrame:
    """Read some rows of a file of `TEXTS`, looking only at the row groups that hold them.

    Args:
        path: of the file.
        rows: int64, ascending, at least one.
    """
    frames: list[pl.DataFrame] = []
    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        counts = [file.metadata.row_group(group).num_rows for group in groups]
        starts = np.cumsum([0, *counts])
        group_of = np.searchsorted(starts, rows, side="right") - 1
        for group in np.unique(group_of):
            table = file.read_row_group(int(group), columns=["text_hash", "text"])
            frames.append(pl.DataFrame(table)[rows[group_of == group] - starts[group]])
    return pl.concat(frames)
