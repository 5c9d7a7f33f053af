"""Whole commands on tiny traces of ten years, in seconds and in MB of anonymous memory."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, run

import duckdb
import numpy as np
import polars as pl

from kp_batch.embedding.encoders import Hashing
from kp_batch.novelty.replay import replay_windows
from kp_batch.steps.step import ThreadExecutor, step, step_seconds
from kp_batch.vectors import Float32s
from kp_batch.warehouse.snapshot import parquet_relation
from tests.bench.measuring import measured, medians
from tests.support import ROOT
from tests.support.make.publications import files_of
from tests.support.make.tiny_traces import BEGIN, Traces, write_traces

TRACES = int(os.environ.get("KP_BENCH_TRACES", "1_000_000"))
DAYS, CAPACITY, TIMES = 3_650, 1_000, 5
SPAN = 32_768  # traces that the kernel replays on a core
WEIGHTS = {"complexity": 0.4, "novelty": 0.3, "tool_diversity": 0.2, "outcome_confidence": 0.1}


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        bench_runs(Path(folder))


def bench_runs(folder: Path) -> None:
    archive, warehouse, profiles = (folder / name for name in ("archive", "warehouse", "p.toml"))
    folder.mkdir(exist_ok=True)
    lines = [f"{name} = {weight}" for name, weight in WEIGHTS.items()]
    profiles.write_text("\n".join(["[profiles.default]", *lines]))
    write_traces(archive, Traces(TRACES, days=DAYS))
    again = ("run", str(archive), "--warehouse", str(warehouse), "--no-prefect")
    print(f"commands on {TRACES:,} tiny traces of {DAYS:,} days (work: without start)")
    seconds = _run("a whole run, hashing encoder", *again, "--embedder", "hashing")
    print(f"  {'replay, in that run':<36}{TRACES / seconds['replay']:>12,.0f} traces/s")
    print(f"  {'replay of such vectors alone':<36}{_kernel_rate():>12,.0f} traces/s")
    begin, more = BEGIN + timedelta(DAYS), TRACES // 100
    write_traces(archive, Traces(more, first=TRACES, days=1, files=1, begin=begin))
    _run(f"a night that adds {more:,}", *again)
    before = _published(warehouse)
    [copied] = medians(partial(_copy_weighted, before, folder / "copied"), times=1)
    print(f"  {'DuckDB, other weights, COPY':<36}{copied:>12,.2f} s")
    _run("a preview of other weights", *again, "--profiles", str(profiles), "--preview")
    _run("other weights", *again, "--profiles", str(profiles))
    assert _scores(_published(warehouse)).equals(_scores([*(folder / "copied").rglob("*.parquet")]))
    seconds = _run("the ready audits", *again, "--audits", str(ROOT / "data" / "audits.toml"))
    print(f"  {'the audits, in that run':<36}{seconds['audit']:>12,.2f} s")
    _start_up(warehouse, again)


def _run(label: str, *arguments: str) -> Mapping[str, float]:
    """Print what a run took; returns its seconds by step."""
    taken = measured((*arguments, "--json"))
    if taken.status:
        sys.exit(taken.tail)
    summary = next(line for line in taken.tail.splitlines() if line.startswith('{"'))
    seconds: dict[str, float] = json.loads(summary)["seconds"]
    worked = sum(step_seconds(seconds).values())
    whole = f"{taken.seconds:>12,.2f} s, work {worked:>6,.2f} s{taken.peak_mb:>9,.0f} MB"
    print(f"  {label:<36}{whole}", flush=True)
    return seconds


def _start_up(warehouse: Path, again: Sequence[str]) -> None:
    """How soon the command line answers, beside what Python and DuckDB take for themselves."""
    question = ("sql", "SELECT max(run_id) FROM runs", "--warehouse", str(warehouse))
    commands = {
        "kp-batch --help": ("-m", "kp_batch", "--help"),
        "kp-batch sql": ("-m", "kp_batch", *question),
        "nothing to do": ("-m", "kp_batch", *again),
        "python, import duckdb": ("-c", "import duckdb"),
    }
    works = (
        partial(run, [sys.executable, *command], stdout=DEVNULL, stderr=DEVNULL, check=True)
        for command in commands.values()
    )
    for label, seconds in zip(commands, medians(*works, times=TIMES), strict=True):
        print(f"  {label:<36}{seconds:>12,.2f} s")


def _kernel_rate() -> float:
    """Traces a second that all cores replay at once, of vectors that are in memory."""
    texts = [f"task {number * 7919 % 10**12}" for number in range(TRACES, TRACES + SPAN)]
    vectors, cores = Hashing().encode(texts), pl.thread_pool_size()
    copies = [vectors.copy() for _ in range(cores)]
    [seconds] = medians(lambda: list(ThreadExecutor().map(_replay, copies)), times=TIMES)
    return cores * SPAN / seconds


@step("replay alone")
def _replay(vectors: Float32s) -> None:
    replay_windows(vectors, np.maximum(np.arange(len(vectors)) - CAPACITY, 0))


def _published(warehouse: Path) -> list[Path]:
    return files_of(warehouse, "scores")


def _scores(paths: list[Path]) -> pl.DataFrame:
    rows = pl.scan_parquet(paths, hive_partitioning=False)
    return rows.select("trace_id", "composite", "score").sort("trace_id").collect()


def _copy_weighted(paths: list[Path], out: Path) -> None:
    """The arithmetic of changed weights, and all of the scores written anew, a folder a day."""
    weighted = " + ".join(f"{name} * {weight}::DOUBLE" for name, weight in WEIGHTS.items())
    query = f"""
        WITH composed AS (
            SELECT * REPLACE ({weighted} AS composite) FROM {parquet_relation("scores", paths)}
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
