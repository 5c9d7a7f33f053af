"""Archives of tiny traces, ten million of them in ten seconds."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl

from kp_batch.steps.step import cut

BEGIN, DAY = datetime(2016, 1, 1, tzinfo=UTC), timedelta(days=1)
_ROWS_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Traces:
    """Tiny traces, evenly over some days, in files of equal size."""

    number: int
    days: int = 3_650
    files: int = 10
    texts: int = 10**12  # distinct ones, at the most
    domains: int = 1
    agents: int = 1
    frameworks: int = 1
    letters: int = 20  # of an id
    steps: int = 1  # of a trace
    first: int = 0  # the number of the first one: what makes ids, and texts, differ
    begin: datetime = BEGIN


def write_traces(folder: Path, traces: Traces) -> None:
    """Write traces into a folder, a million at a time; a file is named by its first trace."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [traces.number * each // traces.files for each in range(traces.files + 1)]
    for group in cut(pairwise(bounds), lambda each: each[1] - each[0], _ROWS_AT_ONCE):
        begin = group[0][0]
        rows = _rows(traces, begin, group[-1][1])
        for first, last in group:
            path = folder / f"{traces.first + first:012d}.parquet"
            rows.slice(first - begin, last - first).write_parquet(path)


def _rows(traces: Traces, first: int, last: int) -> pl.DataFrame:
    place, number = pl.col("place"), pl.col("place") + traces.first
    prefix = "kp:trace:"
    step = pl.struct(
        type=pl.lit("thought"), content=pl.lit("x"), tool=pl.struct(name=pl.lit("search"))
    )
    apart = traces.days * DAY // (traces.number * timedelta(microseconds=1))
    return pl.select(place=pl.int_range(first, last, dtype=pl.Int64)).select(
        pl.lit("ReasoningTrace").alias("@type"),
        id=prefix + number.cast(pl.String).str.zfill(traces.letters - len(prefix)),
        metadata=pl.struct(
            created_at=pl.lit(traces.begin) + pl.duration(microseconds=place * apart),
            agent_id=pl.format("agent {}", number * 7919 % traces.agents),
            framework=pl.format("framework {}", number * 7919 % traces.frameworks),
            task_domain=pl.format("domain {}", place % traces.domains),
            success=pl.lit(value=True),
        ),
        task=pl.struct(objective=pl.format("task {}", number * 7919 % traces.texts)),
        steps=pl.concat_list(step).list.gather(pl.lit([0] * traces.steps)),
        outcome=pl.struct(confidence=0.5 + place % 50 / 100),
    )
