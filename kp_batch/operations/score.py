"""Score new traces, as a live engine scores its first, or as they would come to a warehouse."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from io import BytesIO
from itertools import chain, islice
from typing import IO, Any, TypeVar

import numpy as np
import polars as pl

from kp_batch import bounds
from kp_batch.archive.file_formats.json import (
    BATCH_BYTES,
    json_object,
    line_as_json,
    line_batches,
    rows_from_objects,
)
from kp_batch.archive.validation import reasons, reject_message
from kp_batch.bounds import lines_of, utf8_lines_of
from kp_batch.columns import Rows, cells
from kp_batch.dimensions import DIMENSIONS, Breakdown, Counts
from kp_batch.errors import UnreadableError
from kp_batch.html import Displayed
from kp_batch.magic_bytes import PARQUET, kind_of
from kp_batch.novelty.cache import novelty
from kp_batch.novelty.resemblance import Similar
from kp_batch.operations.breakdown import breakdown_table
from kp_batch.rendering import Head, Part, Table, as_text
from kp_batch.schemas import TIMESTAMP
from kp_batch.scoring.composite import assign, breakdowns, scores_by_profile
from kp_batch.scoring.facts import with_facts
from kp_batch.scoring.profiles import ProfileVersions
from kp_batch.text import count_of, printable, shortened

T = TypeVar("T")
# A new trace is scored at the time of asking: neither its id nor its created_at is needed.
NOT_NEEDED = frozenset({"missing_id", "bad_created_at"})
_ROWS = 256  # scored at once
_NAME, _ID = 30, 60  # characters
_SHOWN = ("line", "trace_id", "task_domain", "score", "max_similarity", "message")
_DETECTED_BY = 16  # lines that show the kind of a file
_COLUMNS = ["row", "trace_id", "task_domain", *(field.name for field in fields(Counts))]

# The greatest similarity to a cache's traces, or None if it is empty, and the nearest traces.
Neighbours = tuple[float | None, Similar]
# Finds them for each trace of a frame of `with_facts`.
FindNeighbours = Callable[[pl.DataFrame], list[Neighbours]]


@dataclass(frozen=True)
class Scored(Displayed):
    """The score of a new trace, and its parts; the fields are in the order of the JSON."""

    line: int  # from 1
    trace_id: str | None
    task_domain: str
    score: float  # 0..1
    by_profile: dict[str, float]  # under each current profile
    weights_from: str | None  # the day or time from which its weights hold; null: always
    counts: Counts
    breakdown: Breakdown
    max_similarity: float | None  # null where the cache is empty, or nothing is compared
    neighbours: Similar

    def _parts(self) -> Iterator[Part]:
        return scored_parts(self)


@dataclass(frozen=True)
class Unscored(Displayed):
    """Why a line has no score."""

    line: int  # from 1
    trace_id: str | None
    reasons: tuple[str, ...]  # codes
    message: str


ScoredLine = Scored | Unscored


class LineScores(Rows):
    """The scores of lines, with the columns of the view `scores`; null without a score."""

    __slots__ = ()
    names = (
        *("line", "trace_id", "task_domain", "profile", *DIMENSIONS, "composite", "score"),
        *("max_similarity", "nearest_trace_id", "reasons", "message"),
    )


class ScoredLines(Displayed, list[ScoredLine]):
    """The scores of new traces, or why some have none."""

    def to_polars(self) -> pl.DataFrame:
        """Return a row for each trace, with the columns of `LineScores`."""
        return LineScores.of(map(_row, self)).to_polars()

    def _parts(self) -> Iterator[Part]:
        scored = sum(isinstance(each, Scored) for each in self)
        yield Head(f"{scored:,} of {count_of(len(self), 'trace')} scored")
        yield Table(cells(map(_row, self), *_SHOWN))


def _row(result: ScoredLine) -> dict[str, Any]:
    """Return the row of a line in `LineScores`."""
    row: dict[str, Any] = dict.fromkeys(LineScores.names) | {"reasons": ()} | vars(result)
    if isinstance(result, Scored):
        sums = result.breakdown
        row |= vars(sums) | {term.dimension: term.value for term in sums.terms}
        row["nearest_trace_id"] = next((x["trace_id"] for x in result.neighbours), None)
    return row


def no_neighbours(facts: pl.DataFrame) -> list[Neighbours]:
    """Return the neighbours of traces whose caches are empty."""
    return [(None, Similar())] * len(facts)


def score_lines(
    file: IO[bytes],
    versions: ProfileVersions,
    moment: datetime,
    find_neighbours: FindNeighbours = no_neighbours,
) -> Iterator[ScoredLine]:
    """Score new traces independently: they are not compared with each other.

    Ids and created_at are optional. Only a few lines are in memory at once.

    Args:
        file: one trace as JSON, or one on each line as JSONL.
        versions: the weights; those valid at `moment` count.
        moment: the time of scoring, with a time zone.
        find_neighbours: finds the traces that they resemble.

    Yields:
        A result for each line that is not blank, in order.

    Raises:
        UnreadableError: it is not JSON at all.
    """
    return each_line(file, lambda facts: scored(facts, versions, moment, find_neighbours))


def each_line(
    file: IO[bytes], answers: Callable[[pl.DataFrame], Iterable[T]]
) -> Iterator[T | Unscored]:
    """Answer each line of a file that is a valid trace; see `score_lines`.

    Args:
        file: a file of traces.
        answers: returns an answer for each trace of a frame of `with_facts`.

    Raises:
        UnreadableError: it is not JSON at all.
    """
    faults = reasons().list.filter(~pl.element().is_in(sorted(NOT_NEEDED)))
    for lines in _lines(file):
        objects = ((row, json_object(line)) for row, line in lines)
        facts = with_facts(rows_from_objects("", objects), faults)
        sound = facts.filter(pl.col("reasons").list.len() == 0)
        answered = iter(answers(sound))
        rows = facts.select("row", "trace_id", "reasons").to_dicts()
        for row, (_, line) in zip(rows, lines, strict=True):
            yield _unscored(row, line) if row["reasons"] else next(answered)


def _lines(file: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield some lines at a time, with their numbers from 0; a trace on many lines is one."""
    before: list[bytes] = []
    lines = lines_of(file)
    for line in lines:
        before.append(line)
        if line.strip():
            break
    begun = b"".join(before)
    is_object = begun.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    if is_object and json_object(begun) is None:  # maybe it goes on
        text = begun + file.read(BATCH_BYTES) + next(lines, b"")
        if len(text) <= bounds.LINE_BYTES and json_object(text) is not None:
            yield [(len(before) - 1, text)]
            return
        before = [*lines_of(BytesIO(text))]
    batches = line_batches(chain(before, lines), _ROWS)
    for batch in islice(batches, 1):
        _refuse_other_kinds([line for _, line in batch])
        yield batch
    yield from batches


def _refuse_other_kinds(lines: Sequence[bytes]) -> None:
    """Refuse a file in which every line would be refused.

    Raises:
        UnreadableError: the file is of another kind; the message says which.
    """
    start = b"".join(lines[:_DETECTED_BY])
    if (kind := kind_of(start)) is PARQUET:
        raise UnreadableError("it is Parquet, not JSON: kp-batch run scores such files")
    next(utf8_lines_of(BytesIO(start)))
    begins = [line.removeprefix(BOM_UTF8).lstrip()[:1] for line in lines]
    if begins[0] == b"[" and (b"{" in lines[0] or lines[0].strip() == b"["):
        raise UnreadableError(
            "it is one JSON list, not one trace per line: convert it, for example with jq -c '.[]'"
        )
    if not {b"{", b"["} & {*begins}:
        raise UnreadableError(kind.instead_of("JSON"))


def scored(
    facts: pl.DataFrame,
    versions: ProfileVersions,
    moment: datetime,
    find_neighbours: FindNeighbours,
) -> Iterator[Scored]:
    """Score the traces of a frame of `with_facts`; see `score_lines`."""
    neighbours = find_neighbours(facts)
    similarity = np.array([greatest for greatest, _ in neighbours], dtype=np.float64)  # None: NaN
    rows = facts.with_columns(
        novelty=pl.Series(novelty(similarity)), created_at=pl.lit(moment, TIMESTAMP)
    ).with_columns(assign(versions))
    current = versions.versions_at(moment)
    for row, (greatest, nearest), breakdown, by_profile in zip(
        rows.select(_COLUMNS).to_dicts(),
        neighbours,
        breakdowns(rows, versions.profiles),
        scores_by_profile(rows, versions.at(moment)),
        strict=True,
    ):
        yield Scored(
            line=row["row"] + 1,
            trace_id=row["trace_id"],
            task_domain=row["task_domain"],
            score=breakdown.score,
            by_profile=by_profile,
            weights_from=current[breakdown.profile].date,
            counts=Counts.of(row),
            breakdown=breakdown,
            max_similarity=greatest,
            neighbours=nearest,
        )


def _unscored(row: Mapping[str, Any], line: bytes) -> Unscored:
    codes, number = tuple(row["reasons"]), row["row"]
    message = reject_message(codes, number, line_as_json(line))
    return Unscored(number + 1, row["trace_id"], codes, message)


def scored_text(result: ScoredLine) -> str:
    """Format the score of a new trace for a terminal, or why it has none."""
    if isinstance(result, Unscored):
        head = line_head(result.line, result.trace_id)
        return f"{head} cannot be scored: {printable(result.message)}\n"
    return as_text([*scored_parts(result), ""])


def scored_parts(result: Scored) -> Iterator[Part]:
    """Return the text of the score of a new trace."""
    head = line_head(result.line, result.trace_id)
    yield Head(f"{head}, {shortened(result.task_domain, _NAME)}: {result.score:.4f}")
    yield breakdown_table(
        result.breakdown, result.counts, result.max_similarity, result.weights_from
    )
    nearest = ("similarity", "trace_id", "task_domain", "age_s")
    yield Table(cells(result.neighbours, *nearest))
    others = (f"{shortened(name, _NAME)} {score:.4f}" for name, score in result.by_profile.items())
    yield f"  by profile: {', '.join(others)}"


def line_head(line: int, trace_id: str | None) -> str:
    """Name the trace on a line of a file."""
    return f"line {line:,}: {shortened(trace_id or 'a trace without an id', _ID)}"
