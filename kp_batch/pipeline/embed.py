"""Embeds the texts that have no vector: part by part, each kept once it is made."""

from collections.abc import Iterable
from pathlib import Path

from kp_batch.embedding.chunks import write_chunk
from kp_batch.embedding.minilm import MiniLM
from kp_batch.embedding.precision import is_native
from kp_batch.ingest.contents import stage_texts
from kp_batch.ingest.new_files import file_parts
from kp_batch.pipeline.inputs import Rows, parts_of, read_inputs, stage_inputs
from kp_batch.pipeline.loaded import EncoderName, loaded_encoder, unload
from kp_batch.pipeline.windows import embed_by_window
from kp_batch.planning.plan import Plan
from kp_batch.progress import progress, warn
from kp_batch.run import Run
from kp_batch.steps.step import Executor, step
from kp_batch.warehouse.layout import Layout


@step("embed")
def embed(run: Run, plan: Plan, executor: Executor) -> int | None:
    """Embed the texts of a plan.

    Args:
        run: the run.
        plan: what is to be done.
        executor: reads texts again that were not read for this run, and embeds them.

    Returns:
        How many windows were embedded; None if the encoder reads texts whole, or had none to read.

    Raises:
        EncoderError: the model cannot be loaded, or it returned NaN or infinity.
    """
    # Loading looks at all of a model's files: nothing is loaded where nothing is to be embedded.
    config = run.config
    name = EncoderName(config.embedder, config.precision, plan.scorer.encoder_id)
    encoder = loaded_encoder(name) if plan.texts.missing else None
    staged = [*plan.observed.texts, *_read_again(run, plan, executor)] if encoder else []
    if encoder is None or not staged:  # files changed meanwhile: the replay says what is missing
        return None
    if not is_native(encoder.precision):
        warn(
            f"{encoder.precision} is slower than float32 here: the processor does not compute in it"
        )
    staging, folder = run.staging, Layout(config.warehouse).vectors(encoder.encoder_id)
    stage_inputs(staging, staged, staging.missing, "text_hash", staging.to_embed)
    try:
        if isinstance(encoder, MiniLM):
            return embed_by_window(staging, folder, name, executor)
        parts = parts_of(staging.to_embed, encoder.chunk_size)
        with progress("embedding", plan.texts.missing, "text") as shown:
            for texts in executor.map(embed_texts, parts, staging.to_embed, name, folder):
                shown.add(texts)
        return None
    finally:
        unload()  # the memory is for the replay


def _read_again(run: Run, plan: Plan, executor: Executor) -> Iterable[Path]:
    parts = file_parts(plan.texts.sources)
    with progress("reading again", len(plan.texts.sources), "file") as shown:
        again = executor.map(stage_texts, parts, run.staging.unread, run.staging)
        for part, paths in zip(parts, again, strict=True):
            shown.add(len(part))
            yield from paths


@step("embed texts", on_gpu=True)
def embed_texts(part: Rows, to_embed: Path, name: EncoderName, vectors: Path) -> int:
    """Embed some texts and store their vectors as one chunk.

    Args:
        part: which rows of `to_embed`.
        to_embed: where each text stands; see inputs.sql.
        name: of the encoder.
        vectors: the folder of its vector store.

    Returns:
        How many texts.

    Raises:
        EncoderError: here the model has other files.
    """
    texts = read_inputs(part, to_embed, ("text_hash", "text"))
    made = loaded_encoder(name).encode(texts.get_column("text").to_list())
    write_chunk(vectors, texts.get_column("text_hash"), made)
    return len(texts)
