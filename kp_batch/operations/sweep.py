"""Computes what other caches and thresholds would do to the scores, from the stored vectors.

The fit of a cache to recorded scores allows for restarts of the live engines: where a trace's
recorded score is that of an empty cache, and not ours, its group's cache is emptied before it.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.duck import read_parquet, set_variables, sql
from kp_batch.embedding.chunks import stored_dimensions
from kp_batch.embedding.vector_store import read_vectors
from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write
from kp_batch.log import progress
from kp_batch.novelty.cache import NO_NEIGHBOUR
from kp_batch.novelty.cache_settings import (
    CacheSettings,
    check_cache_by,
    format_cache_by,
    parse_cache_by,
)
from kp_batch.novelty.replay import replay_windows, window_starts
from kp_batch.operations.forget import check_formulas
from kp_batch.operations.sweep_result import SAME_SCORE, Outcome, Sweep
from kp_batch.pipeline.preflight import check_vectors_fit
from kp_batch.pipeline.replay_spans import find_vectors, with_room
from kp_batch.planning.cache_groups import group_of
from kp_batch.planning.scorer import Scorer, without_encoder
from kp_batch.planning.timeline import RANGE_ROWS, Span
from kp_batch.planning.write_tasks import rows_in_part
from kp_batch.runs.run import Run, last_config
from kp_batch.scoring.composite import composite, score
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.steps.step import ThreadExecutor, step
from kp_batch.text import format_duration, parse_duration
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_snapshot
from kp_batch.warehouse.staging import Staging

# Of the formulas, the files whose macros its SQL calls.
_MACROS = ("distribution", "overrides", "rank_correlation", "shows_novelty")
# One trace with one cache.
SWEPT = pl.Schema(
    {
        "cache": pl.Int64,  # its number
        "task_domain": pl.String,
        "novelty": pl.Float64,
        "score": pl.Float64,
        "score_in_force": pl.Float64,
        "recorded_error": pl.Float64,  # null where the recorded score shows no novelty
        "implies_restart": pl.Boolean,  # whether an empty cache explains it, and not this one
    }
)


@dataclass(frozen=True)
class Grouping:
    """One way to group traces by cache, and the settings to sweep with it."""

    cache_by: tuple[str, ...]  # see `parse_cache_by`
    thresholds: dict[CacheSettings, set[float]]  # by cache
    published: CacheSettings | None = None  # the cache in force, if it is of this grouping

    @property
    def caches(self) -> tuple[CacheSettings, ...]:
        """The caches; their numbers are their positions."""
        return tuple(self.thresholds)


def sweep(
    warehouse: Path,
    *,
    cache_by: Sequence[str] = (),
    sizes: Sequence[int] = (),
    ttls: Sequence[str] = (),
    thresholds: Sequence[float] = (),
) -> Sweep:
    """Compute the scores that a run would leave, with each combination of settings.

    They are that run's to the bit, with the weights and the encoder of the published scores. No
    model is needed, no file of the archive is read, and nothing in the warehouse changes.

    Args:
        warehouse: the folder of the tables.
        cache_by: whose traces share a cache, as `parse_cache_by` reads it; none: the warehouse's
            own, as for the others.
        sizes: of the caches, each at least 1.
        ttls: of the caches, as `parse_duration` reads them.
        thresholds: each 0..1.

    Raises:
        KpBatchError: there is no encoder, or there is nothing by which caches are to be kept.
        ResourceError: the widest windows fit into no memory.
        WarehouseError: it is no warehouse, no trace is scored in it, by another version of
            kp_batch, or vectors are missing.
    """
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        scorer = _scorer(run)
        check_formulas(run, "a sweep")
        groupings = _groupings(run.config, cache_by, sizes, ttls, thresholds)
        with open_snapshot(run.snapshot, staging) as snapshot:
            create_macros(snapshot.connection, *_MACROS)
            traces = int(snapshot.ask("SELECT count(*) FROM published.scores").item())
            if not traces:
                where = shown(warehouse)
                raise WarehouseError(f"no trace is scored in {where}; run an archive first")
            _check_keys(snapshot, groupings)
            outcomes: list[Outcome] = []
            with progress(
                "replaying", traces * sum(len(grouping.caches) for grouping in groupings), "trace"
            ) as bar:
                for number, grouping in enumerate(groupings):
                    part = replace(run, staging=Staging(staging.folder / f"{number}"))
                    files: list[Path] = []
                    with closing(_replay(part, snapshot, scorer, grouping)) as replayed:
                        for file, rows in replayed:
                            files.append(file)
                            bar.add(rows)
                    outcomes += _outcomes(run, snapshot, files, grouping)
    outcomes.sort(key=lambda row: row.task_domain or "")
    return Sweep(encoder_id=scorer.encoder_id, traces=traces, outcomes=tuple(outcomes))


def _groupings(
    config: RescoreConfig,
    cache_by: Sequence[str],
    sizes: Sequence[int],
    ttls: Sequence[str],
    thresholds: Sequence[float],
) -> list[Grouping]:
    """All combinations, and the one in force; settings that are left out are those in force."""
    in_force = CacheSettings(config.cache_size, config.ttl)
    groupings = {
        config.cache_by: Grouping(config.cache_by, {in_force: {config.threshold}}, in_force)
    }
    parsed = [parse_duration(ttl) for ttl in ttls] or [config.ttl]
    caches = [CacheSettings(*pair) for pair in product(sizes or [config.cache_size], parsed)]
    for names in [parse_cache_by(names) for names in cache_by] or [config.cache_by]:
        grouping = groupings.setdefault(names, Grouping(names, {}))
        for cache in caches:
            grouping.thresholds.setdefault(cache, set()).update(thresholds or [config.threshold])
    return sorted(groupings.values(), key=lambda grouping: grouping.cache_by)


def _scorer(run: Run) -> Scorer:
    """The run's scorer, which must have an encoder."""
    scorer = Scorer.as_published(run)
    if not scorer.has_encoder:
        raise without_encoder(run.config.warehouse, "novelty is 0.5 whatever the cache is")
    return scorer


def _check_keys(snapshot: OpenSnapshot, groupings: Iterable[Grouping]) -> None:
    keys = snapshot.ask("SELECT DISTINCT unnest(json_keys(path_keys)) FROM published.files")
    check_cache_by(
        {name for grouping in groupings for name in grouping.cache_by}, set(keys.to_series())
    )


def _replay(
    run: Run, snapshot: OpenSnapshot, scorer: Scorer, grouping: Grouping
) -> Generator[tuple[Path, int]]:
    """Replay all traces with each cache; yields files of `SWEPT`, and how many rows each has."""
    run.staging.make()
    set_variables(snapshot.connection, replay=str(run.staging.replay))
    query = sql(__name__, "sweep_rows.sql", cache_group=group_of(grouping.cache_by))
    snapshot.connection.execute(query)
    vectors = Layout(run.config.warehouse).vectors(scorer.encoder_id)
    if lacking := find_vectors(run.staging, vectors):
        raise WarehouseError(_lost_vectors_text(run, scorer, lacking))
    spans = list(sweep_spans(run.staging, grouping.caches))
    check_vectors_fit(spans, stored_dimensions(vectors) or 0)
    sweeping = with_room(sweep_span, spans, vectors)
    swept = ThreadExecutor().map(sweeping, spans, grouping, scorer.profiles, vectors, run.staging)
    with closing(swept) as files:
        for span, file in zip(spans, files, strict=True):
            yield file, (span.last - span.first) * len(grouping.caches)


def _lost_vectors_text(run: Run, scorer: Scorer, lacking: int) -> str:
    """How many vectors are missing, and what to do."""
    return (
        f"{lacking:,} vectors of {scorer.encoder_id} are not in {shown(run.config.warehouse)}; "
        f"{run.command} --restore-vectors makes them again, and changes no score"
    )


def sweep_spans(staging: Staging, caches: Sequence[CacheSettings]) -> Iterator[Span]:
    """Cut the rows of `staging.replay` into spans, each as long as a run's.

    Args:
        staging: of one grouping.
        caches: each span begins with the window of the widest. Where scores are recorded, it begins
            with the windows of that window's rows: these may imply a restart.
    """
    rows = pl.scan_parquet(staging.replay, glob=False)
    counts = rows.select(pl.len(), pl.col("recorded_score").count()).collect()
    last, recorded = counts.row(0)
    limit = min(RANGE_ROWS, rows_in_part([staging.replay]))
    for first in range(0, last, limit):
        warm = _window(rows, first, caches)
        warm = _window(rows, warm, caches) if recorded else warm
        yield Span(warm, first, min(first + limit, last))


def _window(rows: pl.LazyFrame, row: int, caches: Sequence[CacheSettings]) -> int:
    """The first row in the window of a row, with the widest cache."""
    begin = rows.slice(row, 1).select("first").collect().item()
    begin = max(row - max(cache.size for cache in caches), begin)
    within = rows.slice(begin, row + 1 - begin).select(pl.col("created_at").to_physical())
    times = within.collect().to_series().to_numpy()
    return begin + min(int(window_starts(times, cache.size, cache.ttl)[-1]) for cache in caches)


@step("sweep span")
def sweep_span(
    span: Span, /, grouping: Grouping, profiles: ProfileVersions, vectors: Path, staging: Staging
) -> Path:
    """Replay one span with each cache of a grouping, by the vectors of a store's folder.

    Returns:
        A file of `SWEPT`: the span's rows in their order, once for each cache.
    """
    rows, places = span.read(staging)
    replay = _SpanReplay(rows, span.first - span.warm, read_vectors(vectors, places), profiles)
    swept = [
        replay.swept(cache, is_published=cache == grouping.published)
        .with_columns(cache=pl.lit(number, pl.Int64))
        .select(list(SWEPT))
        for number, cache in enumerate(grouping.caches)
    ]
    path = staging.replayed(span.first)
    with atomic_write(path) as written:
        # A row group for each cache, so that a query for one reads no other.
        pl.concat(swept).write_parquet(written, row_group_size=span.last - span.first)
    return path


class _SpanReplay:
    """Replays some rows with one cache after the other.

    Args:
        rows: see sweep_rows.sql; the first ones only fill the windows.
        own: the number of the first row whose scores count.
        vectors: of the rows.
        profiles: the weights.
    """

    def __init__(
        self, rows: pl.DataFrame, own: int, vectors: Float32s, profiles: ProfileVersions
    ) -> None:
        self._rows, self._own, self._vectors = rows, own, vectors
        self._composite = composite(profiles.profiles)
        self._times = rows.get_column("created_at").to_physical().to_numpy()
        # A group that began before these rows begins with them.
        groups = rows.get_column("first").to_numpy()
        self._first = np.searchsorted(groups, groups).astype(np.int64)
        self._recorded = rows.get_column("recorded_score").to_numpy()  # NaN: none
        self._if_empty = _scores(self._scored(0, pl.lit(NO_NEIGHBOUR)))

    def swept(self, cache: CacheSettings, *, is_published: bool) -> pl.DataFrame:
        """The rows that count, replayed with a cache, or as published: the columns of `SWEPT`."""
        starts = window_starts(self._times, cache.size, cache.ttl, self._first)
        # The rows of their windows may imply a restart, so these are scored, too.
        is_recorded = not np.isnan(self._recorded).all()
        begin = int(starts[self._own]) if is_recorded else self._own
        scored = self._published(begin) if is_published else self._replayed(begin, starts)
        error, restarts = self._errors_and_restarts(starts, _scores(scored))
        return scored.slice(self._own - begin).with_columns(
            recorded_error=pl.Series(error[self._own :]).fill_nan(None),
            implies_restart=pl.Series(restarts[self._own :]),
        )

    def _errors_and_restarts(self, starts: Int64s, scores: Float64s) -> tuple[Float64s, Bools]:
        """The rows' differences from the recorded scores after all restarts, and the restarts.

        Args:
            starts: of the rows' windows.
            scores: of the last rows.

        Returns:
            Both for all rows; NaN and false where there is no recorded score.
        """
        position = np.arange(len(starts))
        error = np.full(len(starts), np.nan)
        error[-len(scores) :] = np.abs(scores - self._recorded[-len(scores) :])
        is_explained = np.abs(self._if_empty - self._recorded) <= SAME_SCORE
        restarts = is_explained & (error > SAME_SCORE)
        emptied = np.maximum(starts, np.maximum.accumulate(np.where(restarts, position, 0)))
        if (emptied > starts)[self._own :].any():
            scores = _scores(self._replayed(self._own, emptied))
            error[self._own :] = np.abs(scores - self._recorded[self._own :])
        error[restarts] = np.nan
        return error, restarts

    def _published(self, first: int) -> pl.DataFrame:
        in_force = (pl.col(f"{name}_in_force").alias(name) for name in ("novelty", "score"))
        return self._rows.slice(first).with_columns(in_force)

    def _replayed(self, first: int, starts: Int64s) -> pl.DataFrame:
        replayed = replay_windows(self._vectors, starts, first=first)
        return self._scored(first, pl.Series(replayed.novelty))

    def _scored(self, first: int, novelty: pl.Series | pl.Expr) -> pl.DataFrame:
        rows = self._rows.slice(first).with_columns(novelty=novelty)
        return rows.with_columns(self._composite).with_columns(score())


def _scores(rows: pl.DataFrame) -> Float64s:
    return rows.get_column("score").to_numpy()


def _outcomes(
    run: Run, snapshot: OpenSnapshot, files: Iterable[Path], grouping: Grouping
) -> Iterator[Outcome]:
    """Aggregate the files of `SWEPT`, a cache at a time, by cache size, ttl and threshold."""
    query = sql(__name__, "sweep.sql", files=read_parquet(*files))
    connection, in_force = snapshot.connection, run.config.threshold
    set_variables(connection, threshold_in_force=in_force, tolerance=SAME_SCORE)
    number_of = {cache: number for number, cache in enumerate(grouping.caches)}
    for cache in sorted(number_of, key=lambda cache: (cache.size, cache.ttl or timedelta.max)):
        thresholds = list(grouping.thresholds[cache])
        set_variables(connection, cache=number_of[cache], thresholds=thresholds)
        for row in snapshot.ask(query).iter_rows(named=True):
            is_in_force = cache == grouping.published and row["threshold"] == in_force
            yield Outcome(
                cache_by=format_cache_by(grouping.cache_by),
                cache_size=cache.size,
                ttl=format_duration(cache.ttl),
                in_force=is_in_force,
                **row,
            )
