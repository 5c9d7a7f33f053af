"""Synthetic archives: traces that read like agents' work, come in bursts, and break on request.

The words stand in `sample_topics.toml`. Every day draws from a generator of its own, seeded by the
sample's seed and the day's number, so only one day is ever in memory.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import numpy.typing as npt
import polars as pl

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = Mapping[str, object]
Option = TypeVar("Option")

FIRST_DAY: Final = np.datetime64("2026-01-05", "ms")  # a Monday, so day % 7 is the weekday
DAY_MS: Final = 86_400_000
WEEKDAY_LOAD: Final = np.array([1.0, 1.1, 1.1, 1.0, 0.9, 0.45, 0.4])


class _Move(NamedTuple):
    """What one tool is asked, and what it answers."""

    tool: str
    call: str
    input: str
    gives: str
    sees: Sequence[str]
    fails: str
    server: str | None = None


class _Topic(NamedTuple):
    domain: str
    steady: bool
    agents: Sequence[str]
    sentences: Mapping[str, Sequence[str]]
    cases: Sequence[Mapping[str, object]]
    slots: Mapping[str, Sequence[object]]
    moves: Sequence[_Move]


class _Shape(NamedTuple):
    share: int
    success: float
    first: str | None = None
    moves: int = 0
    recoveries: int = 0
    last: str | None = None


class _Vocabulary(NamedTuple):
    """The contents of `sample_topics.toml`, which says what each part is for."""

    choices: Mapping[str, Sequence[str]]
    shapes: Sequence[_Shape]  # each as often as its share
    topics: Sequence[_Topic]


class _Step(NamedTuple):
    type: str
    content: str | None
    tool: str | None = None
    server: str | None = None
    input: str | None = None
    output_summary: str | None = None


class _Script(NamedTuple):
    """All of a trace that a repetition word for word repeats."""

    task_domain: str
    agent_id: str
    objective: str
    success: bool
    result_summary: str
    steps: Sequence[_Step]


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

    The same arguments give the same bytes. Rows stand in order of time within a file, and a day
    without traces has no file. Bad rows are spread evenly and take every row-level reject code in
    turn; all other rows are those of the clean archive, and a superseded row bears the id of the
    nearest clean row before it.

    Args:
        folder: where the files go; it is made if need be, and other files in it stay.
        traces: rows of the whole archive, at least 0.
        seed: of all draws, at least 0.
        days: length of the archive in days, at least 1.
        dirty: share of bad rows, 0 to 1, rounded to whole rows; above 0 at least one row is bad.

    Returns:
        The paths of the files, in order of time.

    Raises:
        ValueError: an argument is out of its range.
    """
    if traces < 0 or seed < 0 or days < 1 or not 0 <= dirty <= 1:
        raise ValueError(
            "expected traces and seed >= 0, days >= 1, dirty from 0 to 1; "
            f"got traces={traces}, seed={seed}, days={days}, dirty={dirty}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    weights = _activity(_vocabulary().topics, days, rng)
    counts = rng.multinomial(traces, weights.sum(axis=0) / weights.sum())
    bad = _bad_rows(traces, dirty)
    paths: list[Path] = []
    for day in np.flatnonzero(counts).tolist():
        first, count = int(counts[:day].sum()), int(counts[day])
        rows = _day_rows(day, first, count, seed, weights[:, day])
        path = folder / f"{FIRST_DAY.astype('M8[D]') + day}.parquet"
        _nest(_spoil(rows, bad, first, seed) if len(bad) else rows).write_parquet(
            path, compression="zstd"
        )
        paths.append(path)
    return paths


@cache
def _vocabulary() -> _Vocabulary:
    raw = tomllib.loads(Path(__file__).with_name("sample_topics.toml").read_text("utf-8"))
    shapes = [_Shape(**row) for row in raw["shapes"]]
    weighted = tuple(chain.from_iterable(repeat(shape, shape.share) for shape in shapes))
    topics = [_topic(row, raw["agents"][row["domain"]]) for row in raw["topics"]]
    return _Vocabulary(raw["choices"], weighted, topics)


def _topic(raw: dict[str, Any], agents: Sequence[str]) -> _Topic:
    slots: dict[str, Sequence[object]] = {
        name: range(values["low"], values["high"]) if isinstance(values, dict) else values
        for name, values in raw["slots"].items()
    }
    # str.format turns doubled braces into the single ones around a JSON object.
    moves = [
        _Move(**{**move, "input": "{" + json.dumps(move["input"]) + "}"}) for move in raw["moves"]
    ]
    return _Topic(raw["domain"], raw.get("steady", False), agents, raw, raw["cases"], slots, moves)


def _activity(topics: Sequence[_Topic], days: int, rng: np.random.Generator) -> Floats:
    """Weights (topics, days): spells of one to three days, then silence of four to seven."""
    activity = np.zeros((len(topics), days))
    for row, topic in zip(activity, topics, strict=True):
        row += 0.5 * topic.steady
        day = -int(rng.integers(8))
        while day < days:
            busy, silent = int(rng.integers(1, 4)), int(rng.integers(4, 8))
            row[max(day, 0) : max(day + busy, 0)] += 0.5 + rng.gamma(2.0)
            day += busy + silent
    return activity * np.resize(WEEKDAY_LOAD, days)


def _day_rows(day: int, first: int, count: int, seed: int, weights: Floats) -> pl.DataFrame:
    """One day's traces as flat columns, but for `steps`, in order of time."""
    rng = np.random.default_rng([seed, day])
    sizes, times = _bursts(count, rng)
    topics = rng.choice(len(weights), len(sizes), p=weights / weights.sum())
    scripts = _scripts(topics.tolist(), sizes.tolist(), _Dice(rng))
    order = np.argsort(times, kind="stable")
    scripts = [scripts[position] for position in order.tolist()]
    moments = pl.Series("created_at", FIRST_DAY + day * DAY_MS + times[order])
    schema = {**dict.fromkeys(_Script._fields[:-1], pl.String), "success": pl.Boolean}
    rows = pl.DataFrame([script[:-1] for script in scripts], schema=schema, orient="row")
    return rows.with_columns(
        moments.dt.to_string("%Y-%m-%dT%H:%M:%S%.3fZ"),
        pl.Series("id", _trace_ids(seed, range(first, first + count))),
        pl.lit("ReasoningTrace").alias("@type"),
        *(pl.Series(k, rng.choice(v, count)) for k, v in _vocabulary().choices.items()),
        *_judgements(rows["success"].to_numpy(), rng),
        _step_lists([script.steps for script in scripts], rng),
    )


def _bursts(count: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Sizes of the day's bursts, `count` in sum, and each trace's time in ms since midnight."""
    ends = np.unique(np.minimum(np.cumsum(rng.geometric(0.22, count)), count))
    sizes = np.diff(ends, prepend=0)
    gaps = rng.exponential(14 * 60_000, count)
    gaps[rng.random(count) < 0.04] = 0  # some are started together, and tie
    elapsed = np.cumsum(gaps)
    since_start = elapsed - np.repeat(elapsed[ends - sizes], sizes)
    starts = np.repeat(rng.beta(3, 3, len(sizes)) * DAY_MS, sizes)  # noon is busiest
    return sizes, (starts + since_start).astype(np.int64) % DAY_MS


def _judgements(success: npt.NDArray[np.bool_], rng: np.random.Generator) -> Iterator[pl.Series]:
    """Agents are surer where they succeed, not always rightly; raters mostly follow them."""
    sureness = np.where(success, rng.beta(6, 2, len(success)), rng.beta(1.5, 3, len(success)))
    rating = np.clip(0.2 + 0.6 * sureness + rng.normal(0, 0.1, len(success)), 0, 1)
    yield pl.Series("confidence", (0.2 + 0.79 * sureness).round(2))
    yield pl.Series("quality_score", rating.round(2))


def _scripts(topics: list[int], sizes: list[int], dice: _Dice) -> list[_Script]:
    """One topic a burst: a quarter are word for word the one before, a third its task anew."""
    scripts: list[_Script] = []
    for number, size in zip(topics, sizes, strict=True):
        topic = _vocabulary().topics[number]
        words = _new_case(topic, dice)
        scripts.append(_write_script(topic, words, dice))
        for _ in range(size - 1):
            chance = dice.roll()
            words = _new_case(topic, dice) if chance > 0.58 else words
            scripts.append(_write_script(topic, words, dice) if chance > 0.25 else scripts[-1])
    return scripts


def _new_case(topic: _Topic, dice: _Dice) -> Words:
    """The words of a task before anybody works on it, its objective among them."""
    words = {name: dice.pick(values) for name, values in topic.slots.items()}
    words.update(dice.pick(topic.cases))
    return {**words, "objective": dice.pick(topic.sentences["objectives"]).format_map(words)}


def _write_script(topic: _Topic, words: Words, dice: _Dice) -> _Script:
    shape = dice.pick(_vocabulary().shapes)
    success = dice.roll() < shape.success
    result = dice.pick(topic.sentences["solved" if success else "unsolved"]).format_map(words)
    last = shape.last if success or not shape.last else "stuck"
    steps = list(_write_steps(topic, words, shape._replace(last=last), dice))
    return _Script(
        topic.domain, dice.pick(topic.agents), str(words["objective"]), success, result, steps
    )


def _write_steps(topic: _Topic, words: Words, shape: _Shape, dice: _Dice) -> Iterator[_Step]:
    if shape.first:
        yield _Step("thought", dice.pick(topic.sentences[shape.first]).format_map(words))
    failing = dice.pick(_subsets(shape.moves, shape.recoveries))
    for turn, number in enumerate(dice.pick(_subsets(len(topic.moves), shape.moves))):
        yield from _make_move(topic.moves[number], words, dice, fails=turn in failing)
    if shape.last:
        yield _Step("thought", dice.pick(topic.sentences[shape.last]).format_map(words))


@cache
def _subsets(total: int, size: int) -> Sequence[tuple[int, ...]]:
    return tuple(combinations(range(total), size))


def _make_move(move: _Move, words: Words, dice: _Dice, *, fails: bool) -> Iterator[_Step]:
    asked, gives = move.input.format_map(words), move.gives.format_map(words)
    # Some calls have an input and no words, as in real archives.
    call = None if dice.roll() < 0.06 else move.call.format_map(words)
    answer = "error" if fails else gives
    yield _Step("tool_call", call, move.tool, move.server, asked, answer)
    if fails:
        text = move.fails.format_map(words)
        yield _Step("error_recovery", text, move.tool, move.server, asked, gives)
    yield _Step("observation", dice.pick(move.sees).format_map(words))


def _step_lists(steps: list[Sequence[_Step]], rng: np.random.Generator) -> pl.Series:
    """The column `steps`: a list of structs for each trace."""
    lengths = np.array([len(each) for each in steps])
    total = int(lengths.sum())
    schema = dict.fromkeys(_Step._fields, pl.String)
    flat = pl.DataFrame(list(chain.from_iterable(steps)), schema=schema, orient="row")
    tool = pl.struct(name="tool", mcp_server="server")
    row = pl.struct(
        *("step_id", "type", "content"),
        pl.when(pl.col("tool").is_not_null()).then(tool).alias("tool"),
        *("input", "output_summary", "latency_ms"),
    )
    numbered = flat.with_columns(
        trace=np.repeat(np.arange(len(steps)), lengths),
        step_id=np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths),
        latency_ms=rng.lognormal(6.5, 0.9, total).round(1),
    )
    return numbered.group_by("trace", maintain_order=True).agg(row.alias("steps"))["steps"]


def _trace_ids(seed: int, rows: Iterable[int]) -> list[str]:
    """The ids of these positions in the archive."""
    return [f"kp:trace:{uuid5(NAMESPACE_URL, f'kp-batch/sample/{seed}/{row}')}" for row in rows]


def _nest(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        *("@context", "@type", "id"),
        pl.struct(
            *("created_at", "agent_id", "framework", "task_domain"),
            *("success", "quality_score", "visibility", "privacy_level"),
        ).alias("metadata"),
        pl.struct("objective").alias("task"),
        "steps",
        pl.struct("result_summary", "confidence").alias("outcome"),
    )


def _bad_rows(traces: int, dirty: float) -> Integers:
    """Positions in the archive: in the middle of as many equal stretches, so no two coincide."""
    count = min(traces, max(round(traces * dirty), int(dirty > 0)))
    return ((2 * np.arange(count) + 1) * traces) // (2 * max(count, 1))


def _clean_rows_before(bad: Integers, numbers: Integers) -> Integers:
    """For these of the bad rows the nearest earlier row that is clean, or the one just before."""
    # Within a run of adjacent bad rows, position minus number is constant.
    runs = bad - np.arange(len(bad))
    before = bad[np.searchsorted(runs, runs[numbers])] - 1
    return np.where(before < 0, bad[numbers] - 1, before)


def _first_step_of_type(name: str | None) -> pl.Expr:
    kept = pl.when(pl.field("step_id") > 0).then(pl.field("type")).otherwise(pl.lit(name))
    return pl.col("steps").list.eval(pl.element().struct.with_fields(kept.alias("type")))


LATER_STEP: Final = pl.element().struct.field("step_id") > 0
# Every way to make a row bad: the columns that change, and into what. Each reject code comes once
# before any comes twice, so ten bad rows show all ten.
FAULTS: Final[Sequence[Mapping[str, pl.Expr]]] = (
    {"id": pl.lit(None)},
    {"@type": pl.lit("KnowledgeUnit")},
    {"created_at": pl.lit(None)},
    {"task_domain": pl.lit("")},
    {"success": pl.lit(None)},
    {"objective": pl.lit("")},
    {"steps": pl.lit(None)},
    {"steps": _first_step_of_type("reflection")},
    {"confidence": pl.lit(float("nan"))},
    {"id": pl.col("earlier_id"), "objective": "With corrected figures: " + pl.col("objective")},
    {"id": pl.lit("")},
    {"created_at": pl.lit("2026-02-30T08:00:00.000Z")},
    {"task_domain": pl.lit(None)},
    {"objective": pl.lit(None)},
    {"steps": pl.col("steps").list.head(0)},
    {"steps": pl.col("steps").list.eval(pl.when(LATER_STEP).then(pl.element()))},
    {"steps": _first_step_of_type(None)},
    {"confidence": pl.lit(None)},
    {"confidence": pl.lit(1.5)},
)
SUPERSEDING: Final = 9


def _spoil(rows: pl.DataFrame, bad: Integers, first: int, seed: int) -> pl.DataFrame:
    """Give the bad rows among these their faults; `first` is the archive's position of row 0."""
    numbers = np.arange(*np.searchsorted(bad, [first, first + len(rows)]))
    faults = pl.DataFrame(
        {
            "row": pl.Series(bad[numbers] - first, dtype=pl.UInt32),
            "fault": numbers % len(FAULTS),
            "second": numbers % 5 == 4,  # of two faults the second is a confidence above 1
            "earlier_id": _trace_ids(seed, _clean_rows_before(bad, numbers).tolist()),
        }
    )
    rows = rows.with_row_index("row").join(faults, on="row", how="left", maintain_order="left")
    for number, changes in enumerate(FAULTS):
        rows = rows.with_columns(
            pl.when(pl.col("fault") == number).then(to).otherwise(pl.col(column)).alias(column)
            for column, to in changes.items()
        )
    # A superseding row stays whole: it is what remains of its trace.
    second = pl.col("second") & (pl.col("fault") != SUPERSEDING)
    return rows.with_columns(confidence=pl.when(second).then(1.5).otherwise(pl.col("confidence")))
