"""Reading to facts beside DuckDB, which computes the same of the same files, and checks nothing."""

import os
import tempfile
from contextlib import redirect_stderr
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.archive.sources import discover
from kp_batch.config import RescoreConfig
from kp_batch.ingest.scan import read_new
from kp_batch.runs.run import Run
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.staging import Staging
from tests.bench.measuring import medians
from tests.support.make.sample import write_sample
from tests.support.make.tiny_traces import Traces, write_traces

SAMPLE, TINY, TIMES = 50_000, 200_000, 5
# Whose numbers both have.
COMPARED = (
    *("trace_id", "text_hash", "n_steps", "n_tools"),
    *("complexity", "tool_diversity", "outcome_confidence"),
)


def main() -> None:
    """Print the table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        redirect_stderr(nothing),
    ):
        bench_facts(Path(folder))


def bench_facts(folder: Path) -> None:
    write_sample(folder / "sample", traces=SAMPLE, days=100)
    write_traces(folder / "tiny", Traces(TINY))
    for name, count in (("sample", SAMPLE), ("tiny", TINY)):
        run = Run.begin(
            RescoreConfig(archive=(str(folder / name),), warehouse=folder / "warehouse"),
            datetime.now(UTC),
            Staging(folder / "staging" / name),
        )
        copied = folder / f"{name}.parquet"
        works = (partial(read, run), partial(copy_facts, folder / name, copied))
        ours, theirs = medians(*works, times=TIMES)
        print(f"{count:,} traces of the kind {name}, on {pl.thread_pool_size()} threads")
        print(f"  {'reading, checking, facts, staged':<36}{count / ours:>12,.0f} traces/s")
        print(f"  {'DuckDB, list functions, unchecked':<36}{count / theirs:>12,.0f} traces/s")
        facts = pl.read_parquet(run.staging.facts("*")).select(COMPARED).sort("trace_id")
        assert facts.equals(pl.read_parquet(copied).select(COMPARED).sort("trace_id"))


def read(run: Run) -> None:
    """Name, read, check and stage all files."""
    run.staging.make()
    read_new(run, discover(run.config.archive), ThreadExecutor())


def copy_facts(archive: Path, out: Path) -> None:
    """The counts, the text, its hash and the dimensions."""
    query = f"""
        WITH lists AS (
            SELECT
                id AS trace_id,
                task.objective || ' ' || array_to_string(
                    list_transform(steps, lambda each: coalesce(each.content, '')), ' '
                ) AS text,
                list_transform(steps, lambda each: each."type") AS types,
                list_filter(
                    list_transform(steps, lambda each: each.tool.name), lambda name: name <> ''
                ) AS tools,
                outcome.confidence * if(metadata.success, 1, 0.3)::DOUBLE AS outcome_confidence
            FROM '{archive}/*.parquet'
        ),
        counted AS (
            SELECT
                * EXCLUDE (types, tools),
                len(types)::BIGINT AS n_steps,
                list_unique(types)::BIGINT AS n_types,
                len(list_filter(types, lambda each: each = 'thought')) AS n_thoughts,
                len(list_filter(types, lambda each: each = 'error_recovery')) AS n_recoveries,
                len(tools) AS n_tool_steps,
                list_unique(tools)::BIGINT AS n_tools
            FROM lists
        )
        SELECT
            *,
            sha256(text) AS text_hash,
            least(1, n_types / 4 * 0.5::DOUBLE + if(n_recoveries > 0, 0.3, 0)::DOUBLE
                + n_steps / 20 * 0.2::DOUBLE) AS complexity,
            least(1, n_tools / greatest(1, n_steps) * 3) AS tool_diversity
        FROM counted
    """
    with duckdb.connect(config={"threads": pl.thread_pool_size()}) as connection:
        connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


if __name__ == "__main__":
    main()
