"""Compute what other caches and thresholds would do to the scores, from the stored vectors."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product, starmap
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.duck import read_parquet, set_variables, sql
from kp_batch.embedding.vector_store import read_vectors
from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write
from kp_batch.log import Progress, progress
from kp_batch.novelty.cache import novelty
from kp_batch.novelty.cache_settings import CacheSettings, check_cache_by, format_cache_by
from kp_batch.novelty.replay import nested_similarities, window_starts
from kp_batch.operations.forget import check_formulas
from kp_batch.operations.sweep_result import Sweep, Variants
from kp_batch.operations.sweep_values import SweepValues
from kp_batch.pipeline.replay_spans import find_vectors, with_room
from kp_batch.planning.cache_groups import group_of
from kp_batch.planning.scorer import Scorer, without_encoder
from kp_batch.planning.timeline import RANGE_ROWS, ReplaySpan
from kp_batch.planning.write_tasks import rows_in_part
from kp_batch.runs.run import Run, last_config, nothing_scored
from kp_batch.scoring.composite import composite, score
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.steps.step import ThreadExecutor, step
from kp_batch.text import format_duration
from kp_batch.vectors import Float32s
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_snapshot
from kp_batch.warehouse.staging import Staging

# Of the formulas, the files whose macros its SQL calls.
_MACROS = ("distribution", "overrides", "rank_correlation", "shows_novelty")
_SAME_SCORE = 1e-6  # recorded scores within this distance are equal, as they may be rounded
# Of each trace with each cache.
_SWEPT = ("task_domain", "novelty", "score", "current_score", "recorded_score")


@dataclass(frozen=True)
class CacheGrouping:
    """A way to group traces by cache, and the caches to replay with it."""

    cache_by: tuple[str, ...]  # see `parse_cache_by`
    thresholds: dict[CacheSettings, set[float]]  # by cache
    current: CacheSettings | None = None  # the current cache, if it is of this grouping

    @property
    def caches(self) -> list[CacheSettings]:
        """The caches; their numbers are their positions."""
        return sorted(self.thresholds, key=lambda cache: (cache.size, cache.ttl or timedelta.max))


def sweep(warehouse: Path, values: SweepValues = SweepValues()) -> Sweep:  # noqa: B008 (it is frozen)
    """Compute the scores of a run with each combination of settings.

    They equal the scores of such a run to the bit, with the published weights and encoder. This
    needs no model, reads no file of the archive, and changes nothing in the warehouse.

    Args:
        warehouse: the folder of the tables.
        values: values of the settings; the current ones are compared as well.

    Raises:
        KpBatchError: there is no encoder, or nothing that caches could be kept by.
        ResourceError: the widest windows do not fit into memory.
        WarehouseError: there is no warehouse or no scored trace, another version of kp_batch
            computed the scores, or vectors are missing.
    """
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        scorer = _scorer(run)
        check_formulas(run, "a sweep")
        groupings = _groupings(run.config, values)
        with open_snapshot(run.snapshot, staging) as snapshot:
            create_macros(snapshot.connection, *_MACROS)
            traces = int(snapshot.ask("SELECT count(*) FROM published.scores").item())
            if not traces:
                raise nothing_scored(warehouse)
            _check_keys(snapshot, groupings)
            variants: list[dict[str, Any]] = []
            with progress("replaying", traces * len(groupings), "trace") as bar:
                for number, grouping in enumerate(groupings):
                    part = replace(run, staging=Staging(staging.folder / f"{number}"))
                    files = list(_replayed(part, snapshot, scorer, grouping, bar))
                    variants += _variants(run, snapshot, files, grouping)
    variants.sort(key=lambda row: row["task_domain"] or "")
    return Sweep(encoder_id=scorer.encoder_id, traces=traces, variants=Variants.of(variants))


def _groupings(config: RescoreConfig, values: SweepValues) -> list[CacheGrouping]:
    """Return all combinations, and the current one; settings left out are the current ones."""
    current = CacheSettings(config.cache_size, config.ttl)
    own = CacheGrouping(config.cache_by, {current: {config.threshold}}, current)
    groupings = {config.cache_by: own}
    sizes, ttls = values.cache_size or [config.cache_size], values.ttl or [config.ttl]
    for names in values.cache_by or [config.cache_by]:
        grouping = groupings.setdefault(names, CacheGrouping(names, {}))
        for cache in starmap(CacheSettings, product(sizes, ttls)):
            thresholds = values.threshold or [config.threshold]
            grouping.thresholds.setdefault(cache, set()).update(thresholds)
    return sorted(groupings.values(), key=lambda grouping: grouping.cache_by)


def _scorer(run: Run) -> Scorer:
    """Return the run's scorer, which must have an encoder."""
    scorer = Scorer.as_published(run)
    if not scorer.has_encoder:
        raise without_encoder(run.config.warehouse, "novelty is 0.5 whatever the cache is")
    return scorer


def _check_keys(snapshot: OpenSnapshot, groupings: Iterable[CacheGrouping]) -> None:
    keys = snapshot.ask("SELECT DISTINCT unnest(json_keys(path_keys)) FROM published.files")
    check_cache_by(
        {name for grouping in groupings for name in grouping.cache_by}, set(keys.to_series())
    )


def _replayed(
    run: Run, snapshot: OpenSnapshot, scorer: Scorer, grouping: CacheGrouping, bar: Progress
) -> Generator[Path]:
    """Replay all traces with each cache, and yield files of `_SWEPT` and `cache`, its number."""
    run.staging.make()
    set_variables(snapshot.connection, replay=str(run.staging.replay))
    query = sql(__name__, "sweep_rows.sql", cache_group=group_of(grouping.cache_by))
    snapshot.connection.execute(query)
    folder = Layout(run.config.warehouse).vectors(scorer.encoder_id)
    if lacking := find_vectors(run.staging, folder):
        raise WarehouseError(
            f"{lacking:,} vectors of {scorer.encoder_id} are not in {shown(run.config.warehouse)}; "
            f"{run.command} --restore-vectors makes them again, and changes no score",
            code="missing_vectors",
        )
    spans = list(sweep_spans(run.staging, grouping.caches))
    sweeping = with_room(sweep_span, spans, folder)
    swept = ThreadExecutor().map(sweeping, spans, grouping, scorer.profiles, folder, run.staging)
    with closing(swept) as files:
        for span, file in zip(spans, files, strict=True):
            bar.add(span.last - span.first)
            yield file


@step("sweep span")
def sweep_span(
    span: ReplaySpan,
    /,
    grouping: CacheGrouping,
    profiles: ProfileVersions,
    folder: Path,
    staging: Staging,
) -> Path:
    """Replay one span with each cache, with the vectors of a store's folder; see `_replayed`."""
    rows, places = span.read(staging)
    own = span.first - span.warm
    caches = [cache for cache in grouping.caches if cache != grouping.current]
    # The current scores already have the novelty of the current cache.
    novelties = _novelties(rows, read_vectors(folder, places), own, caches) if caches else {}
    swept = [
        rows.slice(own)
        .with_columns(novelty=novelties.get(cache, pl.col("current_novelty")))
        .with_columns(composite(profiles.profiles))
        .with_columns(score(), cache=pl.lit(number))
        .select(*_SWEPT, "cache")
        for number, cache in enumerate(grouping.caches)
    ]
    path = staging.replayed(span.first)
    with atomic_write(path) as written:
        # A row group for each cache, so that a query for one reads no other.
        pl.concat(swept).write_parquet(written, row_group_size=span.last - span.first)
    return path


def sweep_spans(staging: Staging, caches: Sequence[CacheSettings]) -> Iterator[ReplaySpan]:
    """Cut the rows of `staging.replay` into spans, each after the widest window of its first."""
    rows = pl.scan_parquet(staging.replay, glob=False)
    last = rows.select(pl.len()).collect().item()
    limit = min(RANGE_ROWS, rows_in_part([staging.replay]))
    for first in range(0, last, limit):
        begin = rows.slice(first, 1).select("first").collect().item()
        begin = max(first - max(cache.size for cache in caches), begin)
        within = rows.slice(begin, first + 1 - begin).select(pl.col("created_at").to_physical())
        times = within.collect().to_series().to_numpy()
        starts = (window_starts(times, cache.size, cache.ttl)[-1] for cache in caches)
        yield ReplaySpan(begin + int(min(starts)), first, min(first + limit, last))


def _novelties(
    rows: pl.DataFrame, vectors: Float32s, own: int, caches: Sequence[CacheSettings]
) -> dict[CacheSettings, pl.Series]:
    """Return the novelty of the rows from `own` on, by cache."""
    times = rows.get_column("created_at").to_physical().to_numpy()
    groups = rows.get_column("first").to_numpy()
    first = np.searchsorted(groups, groups)  # a group that began before these rows begins with them
    starts = np.array([window_starts(times, cache.size, cache.ttl, first) for cache in caches])
    similarities = nested_similarities(vectors, starts, first=own)
    return {
        cache: pl.Series(novelty(each)) for cache, each in zip(caches, similarities, strict=True)
    }


def _variants(
    run: Run, snapshot: OpenSnapshot, files: Iterable[Path], grouping: CacheGrouping
) -> Iterator[dict[str, Any]]:
    """Compare the scores with each cache and threshold with the current ones, by domain."""
    query = sql(__name__, "sweep.sql", files=read_parquet(*files))
    set_variables(
        snapshot.connection, current_threshold=run.config.threshold, tolerance=_SAME_SCORE
    )
    for number, cache in enumerate(grouping.caches):
        thresholds = list(grouping.thresholds[cache])
        set_variables(snapshot.connection, cache=number, thresholds=thresholds)
        for row in snapshot.ask(query).iter_rows(named=True):
            yield {
                **row,
                "cache_by": format_cache_by(grouping.cache_by),
                "cache_size": cache.size,
                "ttl": format_duration(cache.ttl),
                "is_current": cache == grouping.current
                and row["threshold"] == run.config.threshold,
            }
