"""Synthetic archives: traces that read like agents' work, come in bursts, and are bad on request.

The words stand in `sample_topics.toml`. Every day has a generator of its own, seeded by the
sample's seed and the day's number, so only one day is ever in memory.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import chain, combinations, repeat
from operator import getitem
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import numpy.typing as npt
import polars as pl

Row: TypeAlias = dict[str, Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Option = TypeVar("Option")

START: Final = np.datetime64("2026-01-05", "ms")  # a Monday, so day % 7 is the weekday
DAY_MS: Final = 86_400_000
WEEKDAY_LOAD: Final = np.array([1.0, 1.1, 1.1, 1.0, 0.9, 0.45, 0.4])
TIED_SHARE: Final = 0.04  # of traces, with the one before them in their burst
VERBATIM_SHARE: Final = 0.25  # of traces that follow another in a burst
SAME_TASK_SHARE: Final = 0.33  # likewise: its task once more, worked on anew
WORDLESS_SHARE: Final = 0.06  # of calls, which record an input and no content
DOUBLE_EVERY: Final = 5  # bad rows, of which the last has a confidence of 1.5 besides


def _texts(*names: str) -> dict[str, pl.DataType]:
    return dict.fromkeys(names, pl.String())


SCHEMA: Final = pl.Schema(
    {
        **_texts("@context", "@type", "id"),
        "metadata": pl.Struct(
            _texts("created_at", "agent_id", "framework", "task_domain")
            | {"success": pl.Boolean(), "quality_score": pl.Float64()}
            | _texts("visibility", "privacy_level")
        ),
        "task": pl.Struct(_texts("objective")),
        "steps": pl.List(
            pl.Struct(
                {"step_id": pl.Int64(), **_texts("type", "content")}
                | {"tool": pl.Struct(_texts("name", "mcp_server"))}
                | _texts("input", "output_summary")
                | {"latency_ms": pl.Float64()}
            )
        ),
        "outcome": pl.Struct({**_texts("result_summary"), "confidence": pl.Float64()}),
    }
)


class _Move(NamedTuple):
    """What one tool is asked, and what it answers."""

    tool: Mapping[str, str]
    call: str
    input: str
    gives: str
    sees: Sequence[str]
    fails: str


class _Topic(NamedTuple):
    domain: str
    steady: bool
    agents: Sequence[str]
    sentences: Mapping[str, Sequence[str]]
    cases: Sequence[Mapping[str, str]]
    slots: Mapping[str, Sequence[Any]]
    moves: Sequence[_Move]


class _Shape(NamedTuple):
    share: int
    success: float
    first: str | None = None
    moves: int = 0
    recoveries: int = 0
    last: str | None = None


class _Fault(NamedTuple):
    code: str
    at: Sequence[Any]
    put: object = None


class _Vocabulary(NamedTuple):
    """The contents of `sample_topics.toml`, which says what each part is for."""

    choices: Mapping[str, Sequence[str]]
    faults: Sequence[_Fault]
    shapes: Sequence[_Shape]  # each as often as its share
    topics: Sequence[_Topic]


class _Task(NamedTuple):
    """What a burst of traces works on, once or again and again."""

    topic: _Topic
    words: Mapping[str, object]
    angle: int
    plot: int

    def says(self, kind: str) -> str:
        place = self.angle if kind in ("objectives", "opening") else self.plot
        sentences = self.topic.sentences[kind]
        return sentences[place % len(sentences)].format_map(self.words)


class _Story(NamedTuple):
    """All of a trace that is repeated when it is told again word for word."""

    task: _Task
    success: bool
    steps: Sequence[Row]


class _Dice:
    """Uniform draws, fetched in blocks: numpy's scalar draws cost several times as much."""

    def __init__(self, rng: np.random.Generator) -> None:
        blocks: Iterator[list[float]] = (rng.random(4096).tolist() for _ in repeat(None))
        self.roll = chain.from_iterable(blocks).__next__

    def pick(self, options: Sequence[Option]) -> Option:
        return options[int(self.roll() * len(options))]


def write_sample(
    folder: Path, *, traces: int, seed: int = 0, days: int = 21, dirty: float = 0.0
) -> list[Path]:
    """Write a synthetic archive, one zstd-compressed Parquet file a UTC day from 2026-01-05 on.

    The same arguments give the same bytes. Rows stand in order of time, and a day without traces
    has no file. Bad rows are spread evenly and take every fault in turn; all others are those of
    the clean archive. A superseding row bears the id of the row before it, which is clean while
    `dirty` is at most a half.

    Args:
        folder: where the files go; made if need be, and other files in it stay.
        traces: rows of the whole archive, at least 0.
        seed: of every draw, at least 0.
        days: length of the archive in days, at least 1.
        dirty: share of bad rows, 0 to 1, rounded to whole rows; above 0 at least one row is bad.

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
    rng = np.random.default_rng(seed)
    activity = _activity(days, rng)
    counts: list[int] = rng.multinomial(traces, activity.sum(0) / activity.sum()).tolist()
    bad = _bad_rows(traces, dirty)
    paths: list[Path] = []
    for day, count in enumerate(counts):
        if count == 0:
            continue
        first = sum(counts[:day])
        rows = _day_rows(day, range(first, first + count), activity[:, day], seed)
        _spoil(rows, first, bad, seed)
        paths.append(folder / f"{START.astype('M8[D]') + day}.parquet")
        # Statistics would make a quarter of a small file, and nobody prunes by them here.
        pl.DataFrame(rows, SCHEMA, orient="row").write_parquet(
            paths[-1], compression="zstd", compression_level=6, statistics=False
        )
    return paths


@cache
def _vocabulary() -> _Vocabulary:
    raw = tomllib.loads(Path(__file__).with_name("sample_topics.toml").read_text("utf-8"))
    shapes = [_Shape(**table) for table in raw["shapes"]]
    return _Vocabulary(
        choices=raw["choices"],
        faults=[_Fault(**table) for table in raw["faults"]],
        shapes=list(chain.from_iterable(repeat(shape, shape.share) for shape in shapes)),
        topics=[_topic(table, raw["agents"][table["domain"]]) for table in raw["topics"]],
    )


def _topic(table: Row, agents: Sequence[str]) -> _Topic:
    slots: dict[str, Sequence[Any]] = {
        name: values if isinstance(values, list) else range(values["low"], values["high"])
        for name, values in table["slots"].items()
    }
    moves = [_Move(**move) for move in table["moves"]]
    steady = table.get("steady", False)
    return _Topic(table["domain"], steady, agents, table, table["cases"], slots, moves)


def _activity(days: int, rng: np.random.Generator) -> Floats:
    """Weights (topics, days): spells of one to three days, then silence of four to seven."""
    topics = _vocabulary().topics
    activity = np.zeros((len(topics), days))
    for number, topic in enumerate(topics):
        activity[number] = float(topic.steady)
        day = -int(rng.integers(8))
        while day < days:
            busy, silent = int(rng.integers(1, 4)), int(rng.integers(4, 8))
            activity[number, max(day, 0) : max(day + busy, 0)] += 0.5 + rng.gamma(2.0)
            day += busy + silent
    return activity * np.resize(WEEKDAY_LOAD, days)


def _day_rows(day: int, positions: range, weights: Floats, seed: int) -> list[Row]:
    """One day's traces, clean, in order of time; `positions` are theirs in the archive."""
    rng = np.random.default_rng([seed, day])
    dice = _Dice(rng)
    sizes, times = _bursts(len(positions), rng)
    topics = rng.choice(len(weights), len(sizes), p=weights / weights.sum())
    stories = list(_stories(topics.tolist(), sizes.tolist(), dice))
    order: list[int] = np.argsort(times, kind="stable").tolist()
    moments = np.datetime_as_string(START + day * DAY_MS + times[order], timezone="UTC")
    timed = zip(positions, order, moments.tolist(), strict=True)
    return [_row(stories[story], _trace_id(seed, at), when, dice) for at, story, when in timed]


def _bursts(count: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Sizes of the day's bursts, `count` in sum, and each trace's time in ms since midnight."""
    ends = np.unique(np.minimum(np.cumsum(rng.geometric(0.22, count)), count))
    sizes = np.diff(ends, prepend=0)
    gaps = rng.exponential(14 * 60_000, count) * (rng.random(count) > TIED_SHARE)
    elapsed = np.cumsum(gaps)
    since_start = elapsed - np.repeat(elapsed[ends - sizes], sizes)
    starts = np.repeat(rng.beta(3, 3, len(sizes)) * DAY_MS, sizes)  # noon is busiest
    return sizes, (starts + since_start).astype(np.int64) % DAY_MS


def _stories(topics: list[int], sizes: list[int], dice: _Dice) -> Iterator[_Story]:
    """Stay with one topic for a burst, now and then with its task, now and then word for word."""
    for number, size in zip(topics, sizes, strict=True):
        topic = _vocabulary().topics[number]
        task = _task(topic, dice)
        story = _story(task, dice)
        for _ in range(size):
            yield story
            lot = dice.roll()
            if lot > VERBATIM_SHARE + SAME_TASK_SHARE:
                task = _task(topic, dice)
            if lot > VERBATIM_SHARE:
                story = _story(task, dice)


def _task(topic: _Topic, dice: _Dice) -> _Task:
    words = {name: dice.pick(values) for name, values in topic.slots.items()}
    words.update(dice.pick(topic.cases))
    return _Task(topic, words, angle=dice.pick(range(3)), plot=dice.pick(range(2)))


def _story(task: _Task, dice: _Dice) -> _Story:
    shape = dice.pick(_vocabulary().shapes)
    success = dice.roll() < shape.success
    last = shape.last if success or not shape.last else "stuck"
    return _Story(task, success, list(_steps(task, shape._replace(last=last), dice)))


def _steps(task: _Task, shape: _Shape, dice: _Dice) -> Iterator[Row]:
    if shape.first:
        yield _step("thought", task.says(shape.first))
    moves = task.topic.moves
    failing = dice.pick(_subsets(shape.moves, shape.recoveries))
    for turn, number in enumerate(dice.pick(_subsets(len(moves), shape.moves))):
        yield from _turn(moves[number], task, dice, fails=turn in failing)
    if shape.last:
        yield _step("thought", task.says(shape.last))


@cache
def _subsets(total: int, size: int) -> Sequence[tuple[int, ...]]:
    return list(combinations(range(total), size))


def _turn(move: _Move, task: _Task, dice: _Dice, *, fails: bool) -> Iterator[Row]:
    asked, gives = move.input.format_map(task.words), move.gives.format_map(task.words)
    call = move.call.format_map(task.words) if dice.roll() > WORDLESS_SHARE else None
    yield _step("tool_call", call, move.tool, asked, "error" if fails else gives)
    if fails:
        yield _step("error_recovery", move.fails.format_map(task.words), move.tool, asked, gives)
    yield _step("observation", move.sees[task.plot].format_map(task.words))


def _step(
    kind: str, content: str | None, tool: Mapping[str, str] | None = None, *about: str
) -> Row:
    asked, gives = about or (None, None)
    return {"type": kind, "content": content, "tool": tool, "input": asked, "output_summary": gives}


def _row(story: _Story, trace_id: str, created_at: str, dice: _Dice) -> Row:
    """One trace as a row of the archive: a story, and what differs each time it is told."""
    topic = story.task.topic
    chosen = {name: dice.pick(options) for name, options in _vocabulary().choices.items()}
    # Agents are surer where they succeed, not always rightly; 0.2 to 0.99.
    sureness = 1 - dice.roll() * dice.roll() if story.success else dice.roll() * dice.roll()
    return {
        "@context": chosen.pop("@context"),
        "@type": "ReasoningTrace",
        "id": trace_id,
        "metadata": {
            **chosen,
            "created_at": created_at,
            "agent_id": dice.pick(topic.agents),
            "task_domain": topic.domain,
            "success": story.success,
            "quality_score": round(0.1 + 0.6 * sureness + 0.3 * dice.roll(), 2),
        },
        "task": {"objective": story.task.says("objectives")},
        "steps": [
            # Latencies have a long tail: from 90 ms, one in a hundred over two seconds.
            {"step_id": number, **step, "latency_ms": round(90 / (1 - dice.roll()) ** 0.7, 1)}
            for number, step in enumerate(story.steps)
        ],
        "outcome": {
            "result_summary": story.task.says("solved" if story.success else "unsolved"),
            "confidence": round(0.2 + 0.79 * sureness, 2),
        },
    }


def _trace_id(seed: int, position: int) -> str:
    return f"kp:trace:{uuid5(NAMESPACE_URL, f'kp-batch/sample/{seed}/{position}')}"


def _bad_rows(traces: int, dirty: float) -> Integers:
    """Positions in the archive: in the middle of as many equal stretches, so no two coincide."""
    count = min(traces, max(round(traces * dirty), int(dirty > 0)))
    return (2 * np.arange(count) + 1) * traces // (2 * max(count, 1))


def _spoil(rows: list[Row], first: int, bad: Integers, seed: int) -> None:
    """Put their faults into the bad ones among these rows; `first` is the position of rows[0]."""
    faults = _vocabulary().faults
    for number in np.flatnonzero((bad >= first) & (bad < first + len(rows))).tolist():
        position = int(bad[number])
        row = rows[position - first]
        fault = faults[number % len(faults)]
        *parents, last = fault.at
        reduce(getitem, parents, row)[last] = fault.put
        if fault.code == "superseded":  # and no second fault: this row is what remains of its trace
            row["id"] = _trace_id(seed, position - 1)
        elif number % DOUBLE_EVERY == DOUBLE_EVERY - 1:
            row["outcome"]["confidence"] = 1.5
