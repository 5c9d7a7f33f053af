"""The days and files of a synthetic archive: which topics are busy, and when their traces come.

Each day has a random generator of its own, seeded by the sample's seed and the day's number, so
that only one day is in memory at a time.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias, cast
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import numpy.typing as npt
import polars as pl

from kp_batch.schemas import TRACE
from tests.support.make.sample.faults import bad_rows, spoil
from tests.support.make.sample.tasks import Dice, Row, Story, stories, vocabulary

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

START: Final = np.datetime64("2026-01-05", "ms")  # a Monday, so day % 7 is the weekday
DAY_MS: Final = 86_400_000
WEEKDAY_LOAD: Final = np.array([1.0, 1.1, 1.1, 1.0, 0.9, 0.45, 0.4])
UNSCORED_SHARE: Final = 0.04  # of traces: their engine left its placeholder, 0
TIED_SHARE: Final = 0.04  # of traces, made at the same time as the one before in their burst

# As most archives have it: without roles, ids of calls, system messages and tools.
_SCHEMA: Final = pl.Schema(
    {
        **TRACE,
        "task": pl.Struct({"objective": pl.String}),
        "steps": pl.List(
            pl.Struct(
                [
                    field
                    for field in cast("pl.Struct", cast("pl.List", TRACE["steps"]).inner).fields
                    if field.name not in ("role", "call_id", "reasoning_chars")
                ]
            )
        ),
    }
)


def write_sample(
    folder: Path, *, traces: int, seed: int = 0, days: int = 21, dirty: float = 0.0
) -> list[Path]:
    """Write a synthetic archive, one zstd-compressed Parquet file a UTC day from 2026-01-05 on.

    The same arguments give the same bytes. Rows stand in order of time, and a day without traces
    has no file. Bad rows are spread evenly and take every fault in turn; all other rows are the
    same as in a clean archive. A superseding row bears the id of the row before it, which is clean
    if `dirty` is at most a half. See `recorded_scores` for the scores of a live engine.

    Args:
        folder: where the files go; it is made if it is missing, and other files in it stay.
        traces: the number of rows in the whole archive, at least 0.
        seed: the seed of all draws, at least 0.
        days: the length of the archive in days, at least 1.
        dirty: the share of bad rows, 0 to 1, rounded to whole rows; above 0, at least one row is
            bad.

    Returns:
        The paths of the files, in order of time.

    Raises:
        ValueError: an argument is out of its range.
    """
    if min(traces, seed, days - 1) < 0 or not 0 <= dirty <= 1:
        raise ValueError(
            "expected traces and seed from 0, days from 1, dirty from 0 to 1; "
            f"got {traces=}, {seed=}, {days=}, {dirty=}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    dated = _dated_rows(traces, seed, days, bad_rows(traces, dirty))
    return [_write(folder / f"{date}.parquet", rows) for date, rows in dated]


def _write(path: Path, rows: list[Row]) -> Path:
    # Statistics would take a quarter of a small file, and no reader prunes by them.
    pl.DataFrame(rows, _SCHEMA, orient="row").write_parquet(
        path, compression="zstd", compression_level=6, statistics=False
    )
    return path


def _dated_rows(
    traces: int, seed: int, days: int, bad: dict[int, int]
) -> Iterator[tuple[np.datetime64, list[Row]]]:
    """Every day that has traces, with its rows, the bad ones among them."""
    rng = np.random.default_rng(seed)
    activity = _activity(days, rng)
    recorded = recorded_scores(traces, seed, days)
    counts: list[int] = rng.multinomial(traces, activity.sum(0) / activity.sum()).tolist()
    first = 0
    for day, count in enumerate(counts):
        positions = range(first, first + count)
        first += count
        if not positions:
            continue
        rows = _day_rows(day, positions, activity[:, day], seed, recorded)
        for position, row in zip(positions, rows, strict=True):
            if position in bad:
                spoil(row, bad[position], trace_id(seed, position - 1))
        yield START.astype("M8[D]") + day, rows


def _activity(days: int, rng: np.random.Generator) -> Floats:
    """Weights of shape (topics, days): one to three busy days, then four to seven silent ones."""
    topics = vocabulary().topics
    activity = np.zeros((len(topics), days))
    for number, topic in enumerate(topics):
        activity[number] = float(topic.steady)
        day = -int(rng.integers(8))
        while day < days:
            busy, silent = int(rng.integers(1, 4)), int(rng.integers(4, 8))
            activity[number, max(day, 0) : max(day + busy, 0)] += 0.5 + rng.gamma(2.0)
            day += busy + silent
    return activity * np.resize(WEEKDAY_LOAD, days)


def _day_rows(
    day: int, positions: range, weights: Floats, seed: int, recorded: Sequence[float | None]
) -> list[Row]:
    """One day's clean traces, in order of time, at these positions of the archive."""
    rng = np.random.default_rng([seed, day])
    dice = Dice(rng)
    sizes, times = _bursts(len(positions), rng)
    topics = rng.choice(len(weights), len(sizes), p=weights / weights.sum())
    day_stories = list(stories(topics.tolist(), sizes.tolist(), dice))
    order: list[int] = np.argsort(times, kind="stable").tolist()
    moments = np.datetime_as_string(START + day * DAY_MS + times[order], timezone="UTC")
    events = zip(positions, order, moments.tolist(), strict=True)
    return [
        _row(day_stories[story], trace_id(seed, at), time, dice, recorded[at])
        for at, story, time in events
    ]


def _bursts(count: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """The sizes of a day's bursts, which sum to `count`, and each trace's ms since midnight."""
    ends = np.unique(np.minimum(np.cumsum(rng.geometric(0.22, count)), count))
    sizes = np.diff(ends, prepend=0)
    gaps = rng.exponential(14 * 60_000, count) * (rng.random(count) > TIED_SHARE)
    elapsed = np.cumsum(gaps)
    since_start = elapsed - np.repeat(elapsed[ends - sizes], sizes)
    starts = np.repeat(rng.beta(3, 3, len(sizes)) * DAY_MS, sizes)  # noon is busiest
    return sizes, (starts + since_start).astype(np.int64) % DAY_MS


def _row(story: Story, name: str, created_at: str, dice: Dice, recorded: float | None) -> Row:
    """One trace as a row of the archive: a story, with the details that differ each time."""
    topic = story.task.topic
    chosen = {name: dice.pick(options) for name, options in vocabulary().choices.items()}
    # Agents that succeed are surer, though not always rightly. The range is 0.2 to 0.99.
    sureness = 1 - dice.roll() * dice.roll() if story.success else dice.roll() * dice.roll()
    return {
        "@context": chosen.pop("@context"),
        "@type": "ReasoningTrace",
        "id": name,
        "metadata": {
            **chosen,
            "created_at": created_at,
            "agent_id": dice.pick(topic.agents),
            "task_domain": topic.domain,
            "success": story.success,
            "quality_score": 0.0 if dice.roll() < UNSCORED_SHARE else recorded,
        },
        "task": {"objective": story.task.sentence("objectives")},
        # Latencies begin at 90 ms, and have a long tail: one in a hundred is over two seconds.
        "steps": [
            {"step_id": number, **step, "latency_ms": round(90 / (1 - dice.roll()) ** 0.7, 1)}
            for number, step in enumerate(story.steps)
        ],
        "outcome": {
            "result_summary": story.task.sentence("solved" if story.success else "unsolved"),
            "confidence": round(0.2 + 0.79 * sureness, 2),
        },
    }


def recorded_scores(traces: int, seed: int, days: int) -> list[float | None]:
    """The scores that a live engine with the default settings gave a clean archive, in its order.

    Only the sample of the default arguments has some: a model would take a minute. To make them
    anew, see `tests.support.make.recorded`.
    """
    known = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
    is_known = [known.pop(name) for name in ("traces", "seed", "days")] == [traces, seed, days]
    return known["scores"] if is_known else [None] * traces


def trace_id(seed: int, position: int) -> str:
    """The id of the trace at a position of the archive."""
    return f"kp:trace:{uuid5(NAMESPACE_URL, f'kp-batch/sample/{seed}/{position}')}"
