"""Refuse a run that does not fit into memory or onto the disk, before its work begins."""

from collections.abc import Sequence
from shutil import disk_usage

from kp_batch.duck import available_bytes, quantile_bytes
from kp_batch.embedding.chunks import stored_dimensions
from kp_batch.errors import ResourceError
from kp_batch.pipeline.embed import EncoderName, loaded_encoder
from kp_batch.pipeline.replay_spans import span_bytes
from kp_batch.planning.plan import Plan
from kp_batch.planning.timeline import ReplaySpan
from kp_batch.runs.run import Run
from kp_batch.text import count_of, size_of
from kp_batch.warehouse.layout import Layout

# The memory of everything else: libraries, DuckDB on a small machine, a part of the work.
_BASE_BYTES = 512 << 20
# A million scores took 415 MB.
_SCORE_BYTES = 415


def check_fit(run: Run, plan: Plan) -> None:
    """Refuse a run that needs more memory or disk than there is, by the numbers of its plan.

    Raises:
        ResourceError: its vectors do not fit into memory, or its files not onto the disk.
    """
    dimensions, scores = _dimensions(run, plan), plan.counts.accepted
    check_vectors_fit(plan.spans, dimensions)
    quantiles = f"the quantiles of {count_of(scores, 'score')}"
    _check_memory(quantiles, quantile_bytes(scores), "fewer traces")
    written = (
        plan.texts.missing * 4 * dimensions + sum(part.rows for part in plan.parts) * _SCORE_BYTES
    )
    free = disk_usage(run.config.warehouse).free
    if written > free:
        place = "temporary files" if run.is_temporary else run.config.warehouse
        raise ResourceError(
            f"{count_of(plan.texts.missing, 'new vector')} and the scores need about "
            f"{size_of(written)}, but the disk of {place} has only {size_of(free)} left; "
            "free some space, or choose another folder",
            code="disk_full",
        )


def check_vectors_fit(spans: Sequence[ReplaySpan], dimensions: int) -> None:
    """Refuse a replay whose widest span does not fit into memory.

    Raises:
        ResourceError: it does not fit.
    """
    widest = max((span.rows for span in spans), default=0)
    needed = span_bytes(spans, dimensions)
    _check_memory(f"the vectors of {count_of(widest, 'trace')}", needed, "a smaller cache")


def _check_memory(data: str, size: int, remedy: str) -> None:
    needed, available = _BASE_BYTES + size, available_bytes()
    if needed > available:
        raise ResourceError(
            f"{data} need about {size_of(needed)} of memory, but only {size_of(available)} are "
            f"free; use a machine with more memory, or {remedy}"
        )


def _dimensions(run: Run, plan: Plan) -> int:
    """Return the dimensions of the vectors that the run reads or computes; 0 without any."""
    if not (plan.spans or plan.texts.missing):
        return 0
    stored = stored_dimensions(Layout(run.config.warehouse).vectors(plan.scorer.encoder_id))
    name = EncoderName(run.config.embedder, run.config.precision, plan.scorer.encoder_id)
    return stored or loaded_encoder(name).dimensions
