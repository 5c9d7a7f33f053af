"""Computes what other caches and thresholds would do to the scores, from the stored vectors."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from shlex import quote

import polars as pl

from kp_batch.embedding.chunks import stored_dimensions
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.executor import Local
from kp_batch.novelty.settings import CacheSettings, format_ttl, parse_ttl
from kp_batch.operations.sweep_replay import SWEEP_SPAN, sweep_spans
from kp_batch.operations.sweep_result import Outcome, Sweep
from kp_batch.pipeline.fit import check_vectors_fit
from kp_batch.pipeline.replay import find_vectors, with_room
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.state import State
from kp_batch.progress import progress
from kp_batch.run import Run, last_config
from kp_batch.sql import read_parquet, set_variables, sql
from kp_batch.staging import Staging
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.places import shown


def sweep(
    warehouse: Path,
    staging: Staging,
    sizes: Sequence[int] = (),
    ttls: Sequence[str] = (),
    thresholds: Sequence[float] = (),
) -> Sweep:
    """Compute the scores that a run would leave, with each combination of settings.

    They are that run's to the bit, with the weights and the encoder of the published scores. No
    model is needed, no file of the archive is read, and nothing in the warehouse changes.

    Args:
        warehouse: the folder of the tables.
        staging: an empty folder elsewhere.
        sizes: of the caches, each at least 1; none: the warehouse's own.
        ttls: of the caches, as `parse_ttl` reads them; none: the warehouse's own.
        thresholds: each 0..1; none: the warehouse's own.

    Raises:
        KpBatchError: there is no encoder.
        ResourceError: the widest windows fit into no memory.
        WarehouseError: it is no warehouse, no trace is scored in it, or vectors are missing.
    """
    run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
    scorer, asked = _scorer(run), _asked(run, sizes, ttls, thresholds)
    staging.make()
    with State(warehouse, run.tables, staging) as state:
        traces = int(state.ask("SELECT count(*) FROM published.scores").item())
        if not traces:
            where = shown(warehouse)
            raise WarehouseError(f"no trace is scored in {where}; run an archive first")
        set_variables(state.connection, replay=str(staging.replay))
        state.connection.execute(sql(__name__, "sweep_timeline.sql"))
        files = _swept(run, scorer, traces, list(asked))
        outcomes = sorted(
            _outcomes(run, state, files, asked), key=lambda row: row.task_domain or ""
        )
    return Sweep(encoder_id=scorer.encoder_id, traces=traces, outcomes=tuple(outcomes))


def _asked(
    run: Run,
    sizes: Sequence[int],
    ttls: Sequence[str],
    thresholds: Sequence[float],
) -> dict[CacheSettings, set[float]]:
    """The thresholds to be looked at with each cache, the one in force first: see `sweep`."""
    config = run.config
    asked = {_in_force(run): {config.threshold}}
    parsed = [parse_ttl(each) for each in ttls]
    for cache in product(sizes or [config.cache_size], parsed or [config.ttl]):
        known = asked.setdefault(CacheSettings(*cache), set())
        known.update(thresholds or [config.threshold])
    return asked


def _in_force(run: Run) -> CacheSettings:
    return CacheSettings(run.config.cache_size, run.config.ttl)


def _scorer(run: Run) -> Scorer:
    """What the run scores with; it has an encoder."""
    scorer = Scorer.as_published(run)
    if not scorer.has_encoder:
        raise KpBatchError(
            f"the scores in {shown(run.config.warehouse)} are computed without an encoder, so that "
            "novelty is 0.5 whatever the cache is; run the archive with an --embedder first"
        )
    return scorer


def _swept(run: Run, scorer: Scorer, traces: int, caches: Sequence[CacheSettings]) -> list[Path]:
    """Replay all traces with each cache: files of `SWEPT`."""
    vectors = Layout(run.config.warehouse).vectors(scorer.encoder_id)
    if lacking := find_vectors(run.staging, vectors):
        raise WarehouseError(_without_vectors(run, scorer, lacking))
    spans = list(sweep_spans(run.staging, caches))
    check_vectors_fit(spans, stored_dimensions(vectors) or 0)
    step = with_room(SWEEP_SPAN, spans, vectors)
    given = caches, scorer.profiles, vectors, run.staging
    files: list[Path] = []
    with progress("replaying", traces * len(caches), "trace") as bar:
        for span, file in zip(spans, Local().map(step, spans, *given), strict=True):
            files.append(file)
            bar.add((span.last - span.first) * len(caches))
    return files


def _without_vectors(run: Run, scorer: Scorer, lacking: int) -> str:
    """Say how many vectors are missing, and what to do: a run embeds what it replays."""
    archive, warehouse = run.config.archive, shown(run.config.warehouse)
    command = f"kp-batch run {' '.join(map(quote, archive))} --warehouse {quote(warehouse)}"
    return (
        f"{lacking:,} vectors of {scorer.encoder_id} are not in {warehouse}: they were lost; have "
        f"them made by a run without an encoder, {command} --embedder none, and one that goes back "
        f"with --embedder {quote(run.config.embedder)}"
    )


def _outcomes(
    run: Run, state: State, files: Iterable[Path], asked: Mapping[CacheSettings, Collection[float]]
) -> Iterator[Outcome]:
    """Aggregate what was replayed, a cache at a time, by cache size, ttl and threshold."""
    number_of = {cache: number for number, cache in enumerate(asked)}
    query = sql(__name__, "sweep.sql", files=read_parquet(*files))
    set_variables(state.connection, threshold_in_force=run.config.threshold)
    for cache in sorted(asked, key=lambda each: (each.size, each.ttl or timedelta.max)):
        set_variables(state.connection, cache=number_of[cache], thresholds=list(asked[cache]))
        for row in state.ask(query).iter_rows(named=True):
            is_in_force = cache == _in_force(run) and row["threshold"] == run.config.threshold
            yield Outcome(
                cache_size=cache.size, ttl=format_ttl(cache.ttl), in_force=is_in_force, **row
            )


def page_of(found: Sweep) -> str:
    """Write a sweep as a page: its charts and its table."""
    from kp_batch.report.sweep_page import sweep_page  # charts take a while to import

    summary = asdict(found)
    return sweep_page(pl.DataFrame(summary.pop("outcomes"), infer_schema_length=None), **summary)
