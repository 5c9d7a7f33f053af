"""Refuses a run that would not fit into memory or onto the disk, before its work begins."""

from collections.abc import Sequence
from shutil import disk_usage

from kp_batch.duck import available_bytes, bytes_of_quantiles
from kp_batch.embedding.vector_store import stored_dimensions
from kp_batch.errors import ResourceError
from kp_batch.pipeline.embed import EncoderName, loaded_encoder
from kp_batch.pipeline.replay import span_bytes
from kp_batch.planning.plan import Plan
from kp_batch.planning.timeline import Span
from kp_batch.runs.run import Run
from kp_batch.text import count_of
from kp_batch.warehouse.layout import Layout

# Besides the vectors of a span: the libraries, DuckDB on a small machine, a part of the work.
_BESIDE_BYTES = 512 << 20
# A million scores took 415 MB.
_SCORE_BYTES = 415


def check_fit(run: Run, plan: Plan) -> None:
    """Refuse a run that needs more than there is, as far as its plan tells.

    Raises:
        ResourceError: its vectors fit into no memory, or what it writes onto no disk.
    """
    dimensions, scores = _dimensions(run, plan), plan.counts.accepted
    check_vectors_fit(plan.spans, dimensions)
    quantiles = f"the quantiles of {count_of(scores, 'score')}"
    _check_memory(quantiles, bytes_of_quantiles(scores), "fewer traces")
    written = (
        plan.texts.missing * 4 * dimensions + sum(part.rows for part in plan.parts) * _SCORE_BYTES
    )
    free = disk_usage(run.config.warehouse).free
    if written > free:
        raise ResourceError(
            f"{count_of(plan.texts.missing, 'new vector')} and the scores take about "
            f"{_told(written)}, and the disk of {run.config.warehouse} has {_told(free)} left; "
            "free some space, or choose another folder"
        )


def check_vectors_fit(spans: Sequence[Span], dimensions: int) -> None:
    """Refuse a replay whose widest span fits into no memory.

    Raises:
        ResourceError: it does not.
    """
    widest = max((span.last - span.warm for span in spans), default=0)
    needed = span_bytes(spans, dimensions)
    _check_memory(f"the vectors of {count_of(widest, 'trace')}", needed, "a smaller --cache-size")


def _check_memory(what: str, size: int, remedy: str) -> None:
    needed, there_is = _BESIDE_BYTES + size, available_bytes()
    if needed > there_is:
        raise ResourceError(
            f"to hold {what} at once takes about {_told(needed)} of memory, and there are "
            f"{_told(there_is)}; do it where there is more, or with {remedy}"
        )


def _dimensions(run: Run, plan: Plan) -> int:
    """Of the vectors that the run reads or makes; 0 where it has none to do with."""
    if not plan.spans:
        return 0
    stored = stored_dimensions(Layout(run.config.warehouse).vectors(plan.scorer.encoder_id))
    name = EncoderName(run.config.embedder, run.config.precision, plan.scorer.encoder_id)
    return stored or loaded_encoder(name).dimensions


def _told(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
