"""The explanation of one score: as data, for a terminal and for a notebook."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any

import polars as pl

from kp_batch.columns import Rows, cells
from kp_batch.dimensions import Breakdown, Counts
from kp_batch.errors import UNREAD, Unread
from kp_batch.html import Displayed
from kp_batch.operations.breakdown import breakdown_table
from kp_batch.operations.neighbours import StepSummary, TracesMet
from kp_batch.operations.warehouse_cache import CacheContents
from kp_batch.rendering import Facts, Head, Long, Part, Row, SideBySide, Table, rest_in
from kp_batch.text import (
    age,
    count_of,
    group_suffix,
    moment_text,
    one_line,
    printable,
    shortened,
)
from kp_batch.warehouse.author import signed

_STEPS = 12  # shown
_LINE, _ID = 120, 45  # characters
_TEXT = 600  # characters of an objective or a step, where lines are broken
_RUNS = 10  # shown
_REASONS = 3  # lines of each run


_PARTS = ("from_facts", "from_novelty", "from_weights", "from_overrides")


class ScoreChanges(Rows):
    """The scores that a trace had, and what the run of each changed."""

    __slots__ = ()
    names = (
        *("run_id", "finished_at", "score", "change", *_PARTS),
        *("reasons", "user", "note"),
    )


@dataclass(frozen=True)
class Explanation(Displayed):
    """Why a published trace has its score; the fields are in the order of the JSON."""

    trace_id: str
    created_at: str  # ISO 8601, UTC
    task_domain: str
    agent_id: str | None
    framework: str | None
    success: bool
    source_file: str
    row: int | None  # in the file, from 0; null where it is not known any more
    unread: Unread | None  # why the following two are null
    objective: str | None
    same_objective: int  # how many other traces have the same
    steps: tuple[StepSummary, ...] | None
    is_cut: bool | None  # whether its encoder reads the text's beginning alone; null: not known
    counts: Counts
    breakdown: Breakdown
    threshold: float  # 0..1
    recorded_score: float | None  # what the live engine gave it
    weights_from: str | None  # the day or time from which its weights hold; null: always
    by_profile: dict[str, float]  # the score under each profile as at created_at
    encoder_id: str
    cache_id: str
    cache_group: str | None  # JSON of the values that choose its cache; null: one for all
    max_similarity: float | None  # null where the cache was empty
    cache: CacheContents | None  # null without an encoder
    neighbours: TracesMet
    neighbours_caveat: str | None  # why there are none, or why they differ from those of the run
    history: ScoreChanges  # the last run that changed it first
    run_id: str  # of the run that last scored it

    @property
    def terms(self) -> pl.DataFrame:
        """The terms of the composite: dimension, value, weight and product of each, 0..1."""
        return pl.DataFrame(self.breakdown.terms)

    def _parts(self) -> Iterator[Part]:
        """Yield the trace, its score, its neighbours, other weights and the history."""
        yield Head(f"trace {shortened(self.trace_id, _LINE)}")
        yield Facts([*_facts(self)])
        yield from ("", Head(_sum(self)), "")
        yield breakdown_table(self.breakdown, self.counts, self.max_similarity, self.weights_from)
        yield from ("", *_neighbours(self))
        yield from ("", Head("under the current profiles:"), Table(_other_profiles(self)))
        yield from ("", *_history(self.history))


def _facts(result: Explanation) -> Iterator[tuple[str, str]]:
    by = [shortened(name, 30) for name in (result.agent_id, result.framework) if name]
    outcome = "success" if result.success else "failure"
    origin = [moment_text(result.created_at), shortened(result.task_domain, 40), outcome, *by]
    row = "" if result.row is None else f", row {result.row:,}"
    yield "made", ", ".join(origin)
    yield "file", f"{printable(result.source_file)}{row}"
    if result.objective is None or result.steps is None:
        yield "text", f"cannot be read again: {UNREAD[result.unread or 'unreadable']}"
        return
    yield "objective", Long(shortened(one_line(result.objective), _TEXT))
    if result.same_objective:
        yield "", f"shared with {count_of(result.same_objective, 'other trace')}"
    for place, step in enumerate(result.steps[:_STEPS]):
        yield "" if place else "steps", _step_text(step)
    more = len(result.steps) - _STEPS
    if more > 0:
        yield "", f"and {count_of(more, 'more step')}"
    if result.is_cut:
        yield "text", "longer than its encoder's window, which reads its beginning alone"


def _step_text(step: StepSummary) -> Long:
    tool = "" if step.tool is None else " " + (shortened(step.tool, 30) or '""')
    kind = f"{step.type}{tool}"
    return Long(f"{kind}: {shortened(one_line(step.content), _TEXT)}")


def _sum(result: Explanation) -> str:
    reaches = "reaches" if result.breakdown.score >= result.threshold else "is below"
    # 0 is a placeholder for no score.
    live = f"; recorded live: {result.recorded_score:.4f}" if result.recorded_score else ""
    return (
        f"score {result.breakdown.score:.4f}, which {reaches} the threshold "
        f"{result.threshold}{live}"
    )


def _other_profiles(result: Explanation) -> list[Row]:
    own, score = result.breakdown.profile, result.breakdown.score
    rows = (
        {
            "profile": f"{shortened(name, 30)} (its own)" if name == own else name,
            "score": under_it,
            "change": under_it - score,
        }
        for name, under_it in sorted(result.by_profile.items(), key=lambda item: -item[1])
    )
    return cells(rows, "profile", "score", "change")


def _neighbours(result: Explanation) -> Iterator[Part]:
    if result.cache:
        yield from _cache(result.cache, result.cache_group)
        yield from _own_domain(result.cache, result.task_domain)
    if result.neighbours_caveat:
        yield f"  {printable(result.neighbours_caveat)}"
    if not result.neighbours:
        return
    yield Head("the nearest; what both share «marked», from shortly before they differ:")
    for place, neighbour in enumerate(result.neighbours):
        yield from _neighbour(neighbour, is_first=place == 0)


def _cache(contents: CacheContents, cache_group: str | None) -> Iterator[Part]:
    ttl = "no ttl" if contents.ttl == "none" else f"a ttl of {contents.ttl}"
    traces = count_of(contents.size, "trace")
    cache = f"the cache{group_suffix(cache_group)}, which holds {contents.capacity:,}"
    yield Head(f"compared with {traces} in {cache}, with {ttl}")
    if contents.oldest and contents.newest:
        domains = [f"{shortened(name, 30)} {count:,}" for name, count in contents.domains.items()]
        more = f", {len(domains) - 5:,} more" if len(domains) > 5 else ""
        span = f"from {moment_text(contents.oldest)} to {moment_text(contents.newest)}"
        yield f"  made {span}: {', '.join(domains[:5])}{more}"


def _own_domain(contents: CacheContents, task_domain: str) -> Iterator[str]:
    """Yield the share of the cache in the trace's domain: without any, every trace is novel."""
    if contents.size:
        same = contents.domains.get(task_domain, 0)
        share = f"{same:,} of these {contents.size:,} are of its own domain"
        yield f"  {share}, {shortened(task_domain, 30)}: {same / contents.size:.1%}"


def _neighbour(neighbour: Mapping[str, Any], *, is_first: bool) -> Iterator[Part]:
    about = (
        f"  {neighbour['similarity']:.4f}  {shortened(neighbour['trace_id'], _ID)}, "
        f"{shortened(neighbour['task_domain'], 30)}, {age(neighbour['age_s'])} earlier"
    )
    if neighbour["text"] is None:
        reason = UNREAD[neighbour["unread"] or "unreadable"]
        yield from (about, f"          its text cannot be read again: {reason}")
    elif neighbour["is_same_text"]:
        yield from (about, "          the same text")
    else:
        yield SideBySide(about, is_first, neighbour["own_text"], neighbour["text"])


def _history(history: ScoreChanges) -> Iterator[Part]:
    yield Head("over the runs, as far back as they can be read:")
    yield Table(cells(history[:_RUNS], "run_id", "score", "change", *_PARTS))
    if len(history) > _RUNS:
        yield f"  {count_of(len(history) - _RUNS, 'earlier run')}: {rest_in('history')}"
    authors = [each for change in history[:_RUNS] for each in _authorship(change)]
    yield Facts(authors, width=24)


def _authorship(change: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return who ran the run, and why it had work."""
    lines = [
        *wrap(signed(change["user"], change["note"]), _LINE - 27),
        *wrap(
            printable("; ".join(change["reasons"])),
            _LINE - 27,
            max_lines=_REASONS,
            placeholder=" …",
        ),
    ]
    return zip_longest([change["run_id"][:23]], lines, fillvalue="")
