"""The contents of traces: tasks drawn from `topics.toml`, and the steps that work on each."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

Row: TypeAlias = dict[str, Any]
Option = TypeVar("Option")

VERBATIM_SHARE: Final = 0.25  # of traces that follow another in a burst
SAME_TASK_SHARE: Final = 0.33  # likewise: the same task, worked on anew
WORDLESS_SHARE: Final = 0.06  # of tool calls, which record an input and no content


class _Move(NamedTuple):
    """One use of a tool: its input, and its output."""

    tool: Mapping[str, str]
    call: str
    input: str
    gives: str
    sees: Sequence[str]
    fails: str


class Topic(NamedTuple):
    """A topic of some agents in one domain, and the sentences that they choose from."""

    domain: str
    steady: bool
    agents: Sequence[str]
    sentences: Mapping[str, Sequence[str]]
    cases: Sequence[Mapping[str, str]]
    slots: Mapping[str, Sequence[Any]]
    moves: Sequence[_Move]


class _Shape(NamedTuple):
    """The course of a trace: thoughts at both ends, and moves between them."""

    share: int
    success: float
    first: str | None = None
    moves: int = 0
    recoveries: int = 0
    last: str | None = None


class Vocabulary(NamedTuple):
    """The contents of `topics.toml`, which explains each part."""

    choices: Mapping[str, Sequence[str]]
    shapes: Sequence[_Shape]  # each as often as its share
    topics: Sequence[Topic]


class _Task(NamedTuple):
    """The task that a burst of traces works on, once or repeatedly."""

    topic: Topic
    words: Mapping[str, object]
    angle: int
    plot: int

    def sentence(self, kind: str) -> str:
        place = self.angle if kind in ("objectives", "opening") else self.plot
        sentences = self.topic.sentences[kind]
        return sentences[place % len(sentences)].format_map(self.words)


class Story(NamedTuple):
    """The part of a trace that a verbatim repetition shares."""

    task: _Task
    success: bool
    steps: Sequence[Row]


class Dice:
    """Uniform draws in [0, 1), made in blocks: numpy's scalar draws take several times as long."""

    def __init__(self, rng: np.random.Generator) -> None:
        blocks: Iterator[list[float]] = (rng.random(4096).tolist() for _ in repeat(None))
        self.roll = chain.from_iterable(blocks).__next__

    def pick(self, options: Sequence[Option]) -> Option:
        """Draw one of the options, all equally likely."""
        return options[int(self.roll() * len(options))]


@cache
def vocabulary() -> Vocabulary:
    """Read `topics.toml`, once."""
    raw = tomllib.loads(Path(__file__).with_name("topics.toml").read_text("utf-8"))
    shapes = [_Shape(**table) for table in raw["shapes"]]
    return Vocabulary(
        choices=raw["choices"],
        shapes=list(chain.from_iterable(repeat(shape, shape.share) for shape in shapes)),
        topics=[_topic(table, raw["agents"][table["domain"]]) for table in raw["topics"]],
    )


def _topic(table: Row, agents: Sequence[str]) -> Topic:
    slots: dict[str, Sequence[Any]] = {
        name: values if isinstance(values, list) else range(values["low"], values["high"])
        for name, values in table["slots"].items()
    }
    moves = [_Move(**move) for move in table["moves"]]
    steady = table.get("steady", False)
    return Topic(table["domain"], steady, agents, table, table["cases"], slots, moves)


def stories(topics: list[int], sizes: list[int], dice: Dice) -> Iterator[Story]:
    """Stay with one topic for a burst, sometimes with its task, and sometimes word for word."""
    for number, size in zip(topics, sizes, strict=True):
        topic = vocabulary().topics[number]
        task = _task(topic, dice)
        story = _story(task, dice)
        for _ in range(size):
            yield story
            lot = dice.roll()
            if lot > VERBATIM_SHARE + SAME_TASK_SHARE:
                task = _task(topic, dice)
            if lot > VERBATIM_SHARE:
                story = _story(task, dice)


def _task(topic: Topic, dice: Dice) -> _Task:
    words = {name: dice.pick(values) for name, values in topic.slots.items()}
    words.update(dice.pick(topic.cases))
    return _Task(topic, words, angle=dice.pick(range(3)), plot=dice.pick(range(2)))


def _story(task: _Task, dice: Dice) -> Story:
    shape = dice.pick(vocabulary().shapes)
    success = dice.roll() < shape.success
    last = shape.last if success or not shape.last else "stuck"
    return Story(task, success, list(_steps(task, shape._replace(last=last), dice)))


def _steps(task: _Task, shape: _Shape, dice: Dice) -> Iterator[Row]:
    if shape.first:
        yield _step("thought", task.sentence(shape.first))
    moves = task.topic.moves
    failing = dice.pick(_subsets(shape.moves, shape.recoveries))
    for turn, number in enumerate(dice.pick(_subsets(len(moves), shape.moves))):
        yield from _turn(moves[number], task, dice, fails=turn in failing)
    if shape.last:
        yield _step("thought", task.sentence(shape.last))


@cache
def _subsets(total: int, size: int) -> Sequence[tuple[int, ...]]:
    return list(combinations(range(total), size))


def _turn(move: _Move, task: _Task, dice: Dice, *, fails: bool) -> Iterator[Row]:
    query, result = move.input.format_map(task.words), move.gives.format_map(task.words)
    call = move.call.format_map(task.words) if dice.roll() > WORDLESS_SHARE else None
    yield _step("tool_call", call, move.tool, query, "error" if fails else result)
    if fails:
        yield _step("error_recovery", move.fails.format_map(task.words), move.tool, query, result)
    yield _step("observation", move.sees[task.plot].format_map(task.words))


def _step(
    kind: str,
    content: str | None,
    tool: Mapping[str, str] | None = None,
    query: str | None = None,
    result: str | None = None,
) -> Row:
    step = {"type": kind, "content": content, "tool": tool}
    return {**step, "input": query, "output_summary": result}
