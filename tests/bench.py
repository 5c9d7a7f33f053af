"""`make bench`: each figure beside something that does comparable work in the same run.

KP_BENCH_TRACES sets the size of the archive.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import duckdb
import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import reasons
from kp_batch.config import RescoreConfig
from kp_batch.executor import Local
from kp_batch.facts import with_facts
from kp_batch.ingest.observe import Observed, observe
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.changes import detect_changes
from kp_batch.planning.rejects import stage_rejects
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.state import State
from kp_batch.planning.timeline import affected_timeline
from kp_batch.run import Run
from kp_batch.sample import write_sample
from kp_batch.staging import Staging
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.relations import parquet_relation
from kp_batch.warehouse.tables import files_of
from tests.bench_embedding import OPERATIONS, bench_embedding
from tests.bench_facts import bench_facts
from tests.bench_replay import bench_replay

ARCHIVE = int(os.environ.get("KP_BENCH_TRACES", "50_000"))
YEAR = 1_000_000_000
SHARE_OF_WINDOW = 0.6  # that 16,763 real texts filled, on average
CARD = 0.3 * 989e12  # operations a second: three tenths of what an H100 is said to do in bf16
BYTES_OF_VECTOR, BYTES_OF_SCORE = 384 * 4 + 2 * 64, 415
WEIGHTS = {"complexity": 0.1, "novelty": 0.4, "tool_diversity": 0.3, "outcome_confidence": 0.2}
T = TypeVar("T")


def main() -> None:
    """Print the tables."""
    windows = bench_embedding()
    bench_replay()
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        redirect_stderr(nothing),
    ):
        bench_facts(Path(folder) / "facts")
        bench_archive(Path(folder) / "runs")
    on_paper(windows)


def on_paper(windows: Mapping[str, float]) -> None:
    """What a billion traces a year take, of distinct texts; see the constants.

    Args:
        windows: full windows that were embedded a second, by precision.
    """
    print("on paper, a billion traces a year")
    for precision, rate in windows.items():
        hours = YEAR * SHARE_OF_WINDOW / rate / 3_600
        print(
            f"  {'embedding here, ' + precision:<36}{hours:>12,.0f} h of {24 * 365:,} h in a year"
        )
    for cards in (1, 8):
        hours = YEAR * SHARE_OF_WINDOW * OPERATIONS / (cards * CARD) / 3_600
        print(f"  {f'on {cards} H100, not measured':<36}{hours:>12,.1f} h")
    for what, size in (("vectors", BYTES_OF_VECTOR), ("scores", BYTES_OF_SCORE)):
        print(f"  {what:<36}{YEAR * size / 1e12:>12,.2f} TB")


def bench_archive(folder: Path) -> None:
    files = write_sample(folder / "archive", traces=ARCHIVE, days=100)
    last, aside = files[-1], folder / "aside.parquet"
    added = pq.read_metadata(last).num_rows
    last.rename(aside)  # until a night adds it
    config = RescoreConfig(
        archive=(str(folder / "archive"),), warehouse=folder / "warehouse", embedder="hashing"
    )
    bench_steps(config, ARCHIVE - added)
    _row("a whole run, hashing encoder", ARCHIVE - added, lambda: rescore_archive(config))
    bench_nights(config, lambda: aside.rename(last), added)


def bench_steps(config: RescoreConfig, traces: int) -> None:
    sources = discover(config.archive)
    print(f"an archive of {traces:,} traces in {len(sources)} Parquet files")
    paths = [source.path for source in sources]
    _row("pyarrow, reading every column", traces, lambda: [pq.read_table(p) for p in paths])
    rows = _row("reading", traces, lambda: [b for s in sources for b in read_rows(s)])
    _row("checking, facts", traces, lambda: [with_facts(each, reasons()) for each in rows])
    staging = Staging(config.warehouse.with_name("staging") / "bench")
    run = Run.begin(config, datetime.now(UTC), staging)
    run.staging.begin()
    scorer = Scorer.of(run)
    observed = _row("reading, checking, facts, written", traces, lambda: observe(run, Local()))
    _row("detecting changes, ordering", traces, lambda: _detect(run, observed, scorer))
    _row("scoring", traces, lambda: _score(run, scorer))


def bench_nights(config: RescoreConfig, add: Callable[[], Path], added: int) -> None:
    """What later runs take, in seconds: it does not depend on the archive's size alone."""
    print("and then")
    _seconds("nothing to do", lambda: rescore_archive(config))
    add()
    _seconds(f"a night that adds {added:,} traces", lambda: rescore_archive(config))
    anew = config.model_copy(update={"warehouse": config.warehouse.with_name("anew")})
    _seconds("the same by a whole run", lambda: rescore_archive(anew))
    assert _scores(_published(config)).equals(_scores(_published(anew)))
    profiles = config.warehouse.with_name("profiles.toml")
    weights = [f"{name} = {weight}" for name, weight in WEIGHTS.items()]
    profiles.write_text("\n".join(["[profiles.code]", *weights]))
    copied = config.warehouse.with_name("copied")
    _seconds("DuckDB, other weights, COPY", lambda: _copy_weighted(_published(config), copied))
    changed = config.model_copy(update={"profiles": profiles})
    _seconds("a profile changed", lambda: rescore_archive(changed))
    assert _scores(_published(config)).equals(_scores(sorted(copied.rglob("*.parquet"))))


def _row(label: str, count: int, work: Callable[[], T]) -> T:
    result, seconds = _timed(work)
    print(f"  {label:<36}{count / seconds:>12,.0f} traces/s", flush=True)
    return result


def _seconds(label: str, work: Callable[[], object]) -> None:
    _, seconds = _timed(work)
    print(f"  {label:<36}{seconds:>12,.2f} s", flush=True)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _detect(run: Run, observed: Observed, scorer: Scorer) -> None:
    with State(run.config.warehouse, run.tables, run.staging) as state:
        detected = detect_changes(state, observed, rejects_stand=True)
        affected_timeline(run, detected, scorer, state.fingerprints())
        stage_rejects(run, detected)


def _score(run: Run, scorer: Scorer) -> pl.DataFrame:
    rows = pl.scan_parquet(run.staging.timeline).with_columns(
        date=pl.col("created_at").dt.date(), novelty=0.5, replayed=True, in_range=True
    )
    return scorer.rescore(rows, run.run_id).collect(engine="streaming")


def _published(config: RescoreConfig) -> list[Path]:
    manifest = read_manifest(config.warehouse)
    assert manifest
    return files_of(config.warehouse, "scores", manifest.tables["scores"])


def _scores(paths: list[Path]) -> pl.DataFrame:
    rows = pl.scan_parquet(paths, hive_partitioning=False)
    return rows.select("trace_id", "composite", "score").sort("trace_id").collect()


def _copy_weighted(paths: list[Path], out: Path) -> None:
    """The arithmetic of changed weights, and all of the scores written anew, a folder a day."""
    weighted = " + ".join(f"{name} * {weight}::DOUBLE" for name, weight in WEIGHTS.items())
    query = f"""
        WITH composed AS (
            SELECT * REPLACE (
                CASE WHEN task_domain = 'code' THEN {weighted} ELSE composite END AS composite
            )
            FROM {parquet_relation("scores", paths)}
        ),
        started AS (
            SELECT *, CASE WHEN single_thought THEN 0.1 ELSE composite END AS started FROM composed
        ),
        raised AS (
            SELECT *, CASE WHEN recovery_bonus THEN least(1, started + 0.1) ELSE started END AS high
            FROM started
        )
        SELECT
            * EXCLUDE (started, high) REPLACE (
                CASE WHEN low_diversity_penalty THEN greatest(0, high - 0.1) ELSE high END AS score
            ),
            (created_at AT TIME ZONE 'UTC')::DATE AS date
        FROM raised
    """
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, PARTITION_BY (date))")


if __name__ == "__main__":
    main()
