"""`explain` and `score`: what the score of one trace is made of."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import IO, TYPE_CHECKING, TypeVar

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    json_line,
    json_option,
    option_of_warehouse,
    warehouse_option,
)
from kp_batch.dimensions import Breakdown, Counts
from kp_batch.errors import UNREAD, TraceError, UnreadableError
from kp_batch.log import echo
from kp_batch.runs.author import signed
from kp_batch.text import (
    age,
    aligned,
    count_of,
    group_suffix,
    one_line,
    padded,
    printable,
    shortened,
    time_of,
)

if TYPE_CHECKING:
    from kp_batch.operations.explain import Explanation, ScoreChange
    from kp_batch.operations.neighbours import Neighbour, TextSpan
    from kp_batch.operations.score import Scored, ScoredLine, Unscored
    from kp_batch.operations.warehouse_cache import CacheContents

T = TypeVar("T")
_STEPS = 12  # shown at the most
_LINE, _ID = 120, 45  # characters
_RUNS = 10  # shown at the most
_REASONS = 3  # lines a run, at the most
_TEXT = 5  # lines of a neighbour's text, at the most
_NAME, _FINGERPRINT = 30, 60  # characters
_WHEN = {
    "single_thought": "its only step is a thought: 0.1, whatever the composite",
    "recovery_bonus": "more than 2 error recoveries, and success",
    "low_diversity_penalty": "tools, and at most 1 distinct one",
}


@kp_batch.command()
@click.argument("trace")
@warehouse_option
@click.option("--candidate", is_flag=True, help="The score that the last run did not publish.")
@json_option
def explain(trace: str, warehouse: Path, *, candidate: bool, as_json: bool) -> None:
    """Explain the score of TRACE, an id or the beginning of one, and which traces it resembled."""
    from kp_batch.operations.explain import explain as explain_trace

    explanation = explain_trace(warehouse, trace, candidate=candidate)
    echo(json_line(explanation) if as_json else explanation_text(explanation))


def _moment(text: str) -> datetime:
    """A time as ISO 8601 has it; without a zone it is UTC."""
    if time := time_of(text):
        return time
    raise ValueError(f"{text!r} is no time such as 2026-01-31T12:00:00Z")


def _key_and_value(text: str) -> tuple[str, str | None]:
    """A key of caches and its value, which is missing where nothing follows the =."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"{text!r} is not KEY=VALUE, such as host=a")
    return key, value or None


@kp_batch.command()
@click.argument("file", type=NamedFile("rb"))
@click.option("--profiles", metavar="FILE", help="Weight by a TOML file of profiles.")
@option_of_warehouse(help="Meet the cache of this warehouse, and take its profiles.")
@click.option(
    "--at", type=Parsed(_moment), metavar="TIME", help="Score it as at this time.  [default: now]"
)
@click.option(
    "--group",
    multiple=True,
    type=Parsed(_key_and_value),
    metavar="KEY=VALUE",
    help="Meet the cache of this value, where the warehouse keeps several (--cache-by); without "
    "VALUE, that of the traces that have none. Left out, it is the trace's own.",
)
@json_option
def score(  # noqa: PLR0913 (each is an option)
    file: IO[bytes],
    *,
    profiles: str | None,
    warehouse: Path | None,
    at: datetime | None,
    group: tuple[tuple[str, str | None], ...],
    as_json: bool,
) -> None:
    """Score new traces: FILE, or - for stdin, is one as JSON, or JSONL.

    With a warehouse each is scored as if it came next there; the warehouse stays as it is.
    Without one it is scored as a live engine would score its first. --json prints a line for each.
    """
    from kp_batch.operations.score import score_lines
    from kp_batch.operations.warehouse_cache import scoring
    from kp_batch.scoring.profiles import load_profiles

    moment = at or datetime.now(UTC)
    if len(dict(group)) < len(group):
        raise click.UsageError("--group gives one of its keys twice")
    if group and warehouse is None:
        raise click.UsageError("--group is of a warehouse; name it with --warehouse")
    weights = load_profiles(profiles) if profiles else None
    with scoring(warehouse, weights, moment, dict(group)) as (versions, find_neighbours):
        answers = score_lines(file, versions, moment, find_neighbours)
        print_lines(file, answers, json_line if as_json else scored_text, "cannot be scored")


def print_lines(
    file: IO[bytes],
    answers: "Iterable[T | Unscored]",
    to_text: "Callable[[T | Unscored], str]",
    refusal: str,
) -> None:
    """Print the answer to each line of a file of traces; `refusal` tells of those without.

    Raises:
        TraceError: the file has no trace, or is of another kind, or some have no answer.
    """
    from kp_batch.operations.score import Unscored

    lines = unscored = 0
    first = ""
    try:
        for answer in answers:
            lines += 1
            if isinstance(answer, Unscored):
                unscored += 1
                first = first or f", the first on line {answer.line:,}: {answer.message}"
            echo(to_text(answer))
    except UnreadableError as error:
        raise TraceError(f"{printable(file.name)} {refusal}: {error}") from error
    if not lines:
        message = f"there is no trace in {printable(file.name)}; give one, or one on each line"
        raise TraceError(message)
    if unscored:
        raise TraceError(f"{unscored:,} of {count_of(lines, 'trace')} {refusal}{first}")


def explanation_text(result: "Explanation") -> str:
    """Format an explanation for a terminal: trace, score, neighbours, other weights, history."""
    return "\n".join(
        [
            *_trace(result),
            *("", *_sum(result)),
            "",
            *breakdown_lines(result),
            *("", *_neighbours(result)),
            *("", *_other_profiles(result)),
            *("", *_history(result.history)),
        ]
    )


def _trace(result: "Explanation") -> Iterator[str]:
    by = [shortened(name, 30) for name in (result.agent_id, result.framework) if name]
    outcome = "success" if result.success else "failure"
    origin = [moment_text(result.created_at), shortened(result.task_domain, 40), outcome, *by]
    row = "" if result.row is None else f", row {result.row:,}"
    yield f"trace {shortened(result.trace_id, _LINE)}"
    yield f"  made       {', '.join(origin)}"
    yield f"  file       {printable(result.source_file)}{row}"
    if result.objective is None or result.steps is None:
        yield f"  text       cannot be read again: {UNREAD[result.unread or 'unreadable']}"
        return
    yield f"  objective  {shortened(one_line(result.objective), _LINE - 13)}"
    if result.same_objective:
        yield f"             shared with {count_of(result.same_objective, 'other trace')}"
    for place, step in enumerate(result.steps[:_STEPS]):
        tool = "" if step.tool is None else " " + (shortened(step.tool, 30) or '""')
        kind = f"{step.type}{tool}"
        head = "steps" if place == 0 else ""
        room = _LINE - 13 - len(kind) - 2
        yield f"  {head:<9}  {kind}: {shortened(one_line(step.content), max(room, 20))}"
    more = len(result.steps) - _STEPS
    if more > 0:
        yield f"             and {count_of(more, 'more step')}"
    if result.is_cut:
        yield "  text       longer than its encoder's window, which reads its beginning alone"


def _sum(result: "Explanation") -> Iterator[str]:
    reaches = "reaches" if result.breakdown.score >= result.threshold else "is below"
    # 0 is a placeholder for no score.
    live = f"; recorded live: {result.recorded_score:.4f}" if result.recorded_score else ""
    yield (
        f"score {result.breakdown.score:.4f}, which {reaches} the threshold "
        f"{result.threshold}{live}"
    )


def _other_profiles(result: "Explanation") -> Iterator[str]:
    yield "under the profiles in force:"
    yield from aligned(
        [
            {
                "profile": shortened(name, 40) + (" (its own)" if name == own else ""),
                "score": f"{score:.4f}",
                "change": f"{score - result.breakdown.score + 0.0:+.4f}",
            }
            for own in [result.breakdown.profile]
            for name, score in sorted(result.by_profile.items(), key=lambda item: -item[1])
        ]
    )


def _neighbours(result: "Explanation") -> Iterator[str]:
    if result.cache:
        yield from _cache(result.cache, result.cache_group)
        yield from _own_domain(result.cache, result.task_domain)
    if result.neighbours_caveat:
        yield f"  {printable(result.neighbours_caveat)}"
    if not result.neighbours:
        return
    yield "the nearest; what both share «marked», from shortly before they differ:"
    for neighbour in result.neighbours:
        yield from _neighbour(neighbour)


def _cache(contents: "CacheContents", cache_group: str | None) -> Iterator[str]:
    ttl = "no ttl" if contents.ttl == "none" else f"a ttl of {contents.ttl}"
    traces = count_of(contents.size, "trace")
    cache = f"the cache{group_suffix(cache_group)}, which holds {contents.capacity:,}"
    yield f"it met {traces} in {cache}, with {ttl}"
    if contents.oldest and contents.newest:
        domains = [f"{shortened(name, 30)} {count:,}" for name, count in contents.domains.items()]
        more = f", {len(domains) - 5:,} more" if len(domains) > 5 else ""
        span = f"from {moment_text(contents.oldest)} to {moment_text(contents.newest)}"
        yield f"  made {span}: {', '.join(domains[:5])}{more}"


def _own_domain(contents: "CacheContents", task_domain: str) -> Iterator[str]:
    """How much of the cache was of the trace's domain: of a kind that it lacks, all is novel."""
    if contents.size:
        same = contents.domains.get(task_domain, 0)
        share = f"{same:,} of these {contents.size:,} are of its own domain"
        yield f"  {share}, {shortened(task_domain, 30)}: {same / contents.size:.1%}"


def _neighbour(neighbour: "Neighbour") -> Iterator[str]:
    yield (
        f"  {neighbour.similarity:.4f}  {shortened(neighbour.trace_id, _ID)}, "
        f"{shortened(neighbour.task_domain, 30)}, {age(neighbour.age_s)} earlier"
    )
    if neighbour.text is None or neighbour.own_text is None:
        reason = UNREAD[neighbour.unread or "unreadable"]
        yield f"          its text cannot be read again: {reason}"
        return
    if neighbour.is_same_text:
        yield "          the same text"
        return
    width = (_LINE - 11) // 2
    columns = (_lines(spans, width) for spans in (neighbour.own_text, neighbour.text))
    for left, right in zip_longest(*columns, fillvalue=""):
        yield f"    {padded(left, width)} | {right}".rstrip()


def _lines(spans: Sequence["TextSpan"], width: int) -> list[str]:
    marked = "".join(f"«{span.text}»" if span.shared else span.text for span in spans)
    return wrap(printable(one_line(marked)), width, max_lines=_TEXT, placeholder=" …")


def moment_text(text: str) -> str:
    """Write a time of ISO 8601 in UTC, to the second."""
    return f"{text[:10]} {text[11:19]} UTC"


def _history(history: Sequence["ScoreChange"]) -> Iterator[str]:
    yield "over the runs, as far back as they can be read:"
    yield from aligned(
        [
            {
                "run": change.run_id,
                "score": f"{change.score:.4f}",
                **{
                    name: "" if value is None else f"{round(value, 4) + 0.0:+.4f}"
                    for name, value in (
                        ("change", change.change),
                        ("facts", change.from_facts),
                        ("novelty", change.from_novelty),
                        ("weights", change.from_weights),
                        ("overrides", change.from_overrides),
                    )
                },
            }
            for change in history[:_RUNS]
        ]
    )
    if len(history) > _RUNS:
        yield f"  {count_of(len(history) - _RUNS, 'earlier run')}: see --json"
    for change in history[:_RUNS]:
        reasons = printable("; ".join(change.reasons))
        lines = [
            *wrap(signed(change.user, change.note), _LINE - 27),
            *wrap(reasons, _LINE - 27, max_lines=_REASONS, placeholder=" …"),
        ]
        rows = zip_longest([change.run_id[:23]], lines, fillvalue="")
        yield from (f"  {name:<23}  {line}" for name, line in rows)


def breakdown_lines(result: "Explanation | Scored") -> Iterator[str]:
    """Write each dimension, the composite, each override that applies, and the score."""
    breakdown, causes = result.breakdown, _causes(result.counts, result.max_similarity)
    weights = f"weights of {shortened(breakdown.profile, _NAME)}"
    weights += f" from {result.weights_from}" if result.weights_from else ""
    lines = [
        *(
            (_cells(term.dimension, term.product, term.value, term.weight), causes[term.dimension])
            for term in breakdown.terms
        ),
        (
            _cells("composite", breakdown.composite),
            f"{weights} ({shortened(breakdown.profile_id, _FINGERPRINT)})",
        ),
        *(
            (_cells(override.name, override.change, sign="+"), _WHEN[override.name])
            for override in breakdown.overrides
            if override.applies
        ),
        (_cells("score", breakdown.score), _not_applied(breakdown)),
    ]
    head, *rows = aligned([cells for cells, _ in lines])
    yield head
    for row, (_, note) in zip(rows, lines, strict=True):
        yield f"{row}    {note}".rstrip()


def scored_text(result: "ScoredLine") -> str:
    """Format the score of a new trace, or why it has none."""
    from kp_batch.operations.score import Unscored

    head = line_head(result.line, result.trace_id)
    if isinstance(result, Unscored):
        return f"{head} cannot be scored: {printable(result.message)}\n"
    nearest = [
        {
            "similarity": f"{neighbour.similarity:.4f}",
            "trace": shortened(neighbour.trace_id, _FINGERPRINT),
            "domain": shortened(neighbour.task_domain, _NAME),
            "older by": age(neighbour.age_s),
        }
        for neighbour in result.neighbours
    ]
    others = (f"{shortened(name, _NAME)} {score:.4f}" for name, score in result.by_profile.items())
    return "\n".join(
        [
            f"{head}, {shortened(result.task_domain, _NAME)}: {result.score:.4f}",
            *breakdown_lines(result),
            *aligned(nearest),
            f"  by profile: {', '.join(others)}",
            "",
        ]
    )


def line_head(line: int, trace_id: str | None) -> str:
    """Name the trace on a line of a file."""
    return f"line {line:,}: {shortened(trace_id or 'a trace without an id', _FINGERPRINT)}"


def _cells(
    name: str, adds: float, value: float | None = None, weight: float | None = None, sign: str = ""
) -> dict[str, str]:
    return {
        "": name.replace("_", " "),
        "value": "" if value is None else f"{value:.4f}",
        "weight": "" if weight is None else f"{weight:g}",
        "adds": f"{adds:{sign}.4f}",
    }


def _causes(counts: Counts, max_similarity: float | None) -> dict[str, str]:
    """The inputs of each dimension in words, as far as they are known."""
    steps = count_of(counts.n_steps, "step")
    complexity = [
        None if counts.n_types is None else f"{counts.n_types} of 4 types of steps",
        steps,
        None if counts.n_recoveries is None else _recoveries(counts.n_recoveries),
    ]
    novelty = "nothing to compare with"
    if max_similarity is not None:
        novelty = f"1 - {max_similarity:.4f}, the greatest similarity to what came before"
    outcome = "success" if counts.success else "failure: times 0.3"
    if counts.confidence is not None:
        outcome = f"confidence {counts.confidence:g}, {outcome}"
    return {
        "complexity": ", ".join(filter(None, complexity)),
        "novelty": novelty,
        "tool_diversity": f"{count_of(counts.n_tools, 'distinct tool')} in {steps}",
        "outcome_confidence": outcome,
    }


def _recoveries(count: int) -> str:
    return "1 error recovery" if count == 1 else f"{count:,} error recoveries"


def _not_applied(breakdown: Breakdown) -> str:
    names = [
        override.name.replace("_", " ") for override in breakdown.overrides if not override.applies
    ]
    return f"not applied: {', '.join(names)}" if names else ""
