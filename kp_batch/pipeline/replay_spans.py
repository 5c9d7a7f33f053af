"""Replay spans of traces: compute the novelty of each against its cache."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.duck import available_bytes, read_parquet, set_variables, statement
from kp_batch.embedding.chunks import stored_dimensions
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.errors import ResourceError, WarehouseError
from kp_batch.files import atomic_write
from kp_batch.log import progress
from kp_batch.novelty.replay import replay_windows
from kp_batch.planning.plan import Plan
from kp_batch.planning.timeline import ReplaySpan
from kp_batch.runs.run import Run
from kp_batch.schemas import NOVELTY, TIMESTAMP
from kp_batch.steps.step import Executor, P, R, Step, step
from kp_batch.text import count_of, size_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.staging import Staging

# The novelty of a replayed trace.
REPLAYED = pl.Schema({"trace_id": pl.String, "created_at": TIMESTAMP, **NOVELTY})
_SORT = """
    COPY (FROM $rows ORDER BY created_at, trace_id)
    TO (getvariable('path')) (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16_384)
"""
# A span's vectors, and as much again for what is computed from them.
_COPIES = 2
_PRODUCT_BYTES = 256 << 20
_BASE_BYTES = 512 << 20  # the memory of everything else: libraries, DuckDB, a part of the work


@dataclass(frozen=True)
class Replayed:
    """The novelty of some traces: a file of `REPLAYED`."""

    path: Path
    first: datetime  # created_at of the earliest
    last: datetime  # created_at of the latest
    rows: int


@step("replay")
def replay_timeline(run: Run, plan: Plan, executor: Executor) -> tuple[Replayed, ...]:
    """Replay the spans of a plan, each after a warm-up with the window of its first row.

    Returns:
        The novelty of all replayed traces, in files that follow each other in time.

    Raises:
        WarehouseError: vectors are missing, or damaged.
    """
    if not plan.spans:
        return ()
    vectors = Layout(run.config.warehouse).vectors(plan.scorer.encoder_id)
    if lacking := find_vectors(run.staging, vectors):
        message = f"{lacking:,} of the vectors are not in {vectors}; run again"
        raise WarehouseError(message, code="missing_vectors")
    replaying = with_room(replay_span, plan.spans, vectors)
    replayed: list[Replayed] = []
    with (
        progress("replaying", plan.counts.replayed, "trace") as shown,
        closing(executor.map(replaying, plan.spans, vectors, run.staging)) as spans,
    ):
        for span in spans:
            replayed.append(span)
            shown.add(span.rows)
    is_in_order = all(span.last <= later.first for span, later in pairwise(replayed))
    return tuple(replayed) if is_in_order else (_in_order(replayed, run.staging),)


def _in_order(replayed: Sequence[Replayed], staging: Staging) -> Replayed:
    """Sort the rows of several groups by time; else each day's rows would be in many files."""
    rows = read_parquet(*(span.path for span in replayed))
    with staging.connect() as connection:
        set_variables(connection, path=str(staging.replayed_in_order))
        connection.execute(statement(_SORT, rows=rows))
    first, last = min(span.first for span in replayed), max(span.last for span in replayed)
    return Replayed(staging.replayed_in_order, first, last, sum(span.rows for span in replayed))


def vector_bytes(spans: Iterable[ReplaySpan], dimensions: int) -> int:
    """Return the memory for the vectors of the widest of some spans, of float32.

    A system that lacks this memory kills the process, which may be the caller's own, unless the
    replay is refused before.

    Raises:
        ResourceError: the machine has less.
    """
    widest = max((span.rows for span in spans), default=0)
    size = _COPIES * 4 * dimensions * widest
    needed, available = _BASE_BYTES + size, available_bytes()
    if needed > available:
        raise ResourceError(
            f"the vectors of {count_of(widest, 'trace')} need about {size_of(needed)} of memory, "
            f"but only {size_of(available)} are free; use a machine with more memory, or a smaller "
            "cache"
        )
    return size


def with_room(step: Step[P, R], spans: Iterable[ReplaySpan], vectors: Path) -> Step[P, R]:
    """Return the step with the memory that it needs for the widest of some spans.

    Raises:
        ResourceError: see `vector_bytes`.
    """
    needed = _PRODUCT_BYTES + vector_bytes(spans, stored_dimensions(vectors) or 0)
    return replace(step, memory=max(step.memory, needed))


def find_vectors(staging: Staging, vectors: Path) -> int:
    """Stage the places of the vectors of the rows to replay; return how many rows have none."""
    replay = read_parquet(staging.replay, numbered=True)
    rows = statement("(SELECT text_hash, file_row_number AS position FROM $replay)", replay=replay)
    with staging.connect() as connection:
        VectorStore(vectors, connection).write_places(rows, staging.vectors)
    places = pl.scan_parquet(staging.vectors, glob=False)
    return int(places.select(pl.col("chunk").null_count()).collect().item())


@step("replay span")
def replay_span(span: ReplaySpan, /, vectors: Path, staging: Staging) -> Replayed:
    """Replay one span, with vectors from a store's folder."""
    rows, places = span.read(staging)
    own = span.first - span.warm
    starts = np.maximum(rows.get_column("start").to_numpy() - span.warm, 0)
    wanted = rows.get_column("replay").to_numpy()
    result = replay_windows(read_vectors(vectors, places), starts, first=own, wanted=wanted)
    nearest = np.where(result.nearest < 0, 0, result.nearest)
    has_none = pl.Series(result.nearest < 0)
    times = rows.get_column("created_at").to_physical().to_numpy()
    age = (times[own:] - times[nearest]) / 1e6  # NumPy: Polars would multiply by the reciprocal
    novelty = pl.DataFrame(
        {
            "novelty": result.novelty,
            "max_similarity": pl.Series(result.max_similarity).fill_nan(None),
            "nearest_trace_id": rows.get_column("trace_id").gather(nearest).set(has_none, None),
            "nearest_age_s": pl.Series(age).set(has_none, None),
            "cached_vectors": result.cached_vectors,
        },
        schema=dict(NOVELTY),
    )
    own_rows = rows.select("trace_id", "created_at", "replay").slice(own).hstack(novelty)
    replayed = own_rows.filter("replay").drop("replay")
    path = staging.replayed(span.first)
    with atomic_write(path) as written:
        replayed.write_parquet(written)
    moments = replayed.get_column("created_at").sort()  # may be of several groups
    return Replayed(path, moments[0], moments[-1], len(replayed))
