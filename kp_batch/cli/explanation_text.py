"""Formats the explanation of a trace for a terminal."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

from kp_batch.cli.breakdown_text import breakdown_lines
from kp_batch.errors import UNREAD
from kp_batch.text import age, aligned, number, of_group, one_line, padded, printable, shortened

if TYPE_CHECKING:
    from kp_batch.operations.explain import Explanation, ScoreChange
    from kp_batch.operations.neighbours import Neighbour, TextSpan
    from kp_batch.operations.warehouse_cache import CacheContents

_STEPS = 12  # shown at the most
_LINE, _ID = 120, 45  # characters
_REASONS = 3  # lines of them a run
_BESIDE = 5  # lines of two texts beside each other


def explanation_text(result: "Explanation") -> str:
    """The trace, its score as a sum, what it met, other weights, its past."""
    return "\n".join(
        [
            *_trace(result),
            *("", *_sum(result)),
            *(
                "",
                *breakdown_lines(
                    result.breakdown, result.counts, result.max_similarity, result.weights_from
                ),
            ),
            *("", *_met(result)),
            *("", *_other_profiles(result)),
            *("", *_history(result.history)),
        ]
    )


def _trace(result: "Explanation") -> Iterator[str]:
    by = [shortened(each, 30) for each in (result.agent_id, result.framework) if each]
    outcome = "success" if result.success else "failure"
    made = [_time(result.created_at), shortened(result.task_domain, 40), outcome, *by]
    row = "" if result.row is None else f", row {result.row:,}"
    yield f"trace {shortened(result.trace_id, _LINE)}"
    yield f"  made       {', '.join(made)}"
    yield f"  file       {printable(result.source_file)}{row}"
    if result.objective is None or result.steps is None:
        yield f"  text       cannot be read again: {UNREAD[result.unread or 'unreadable']}"
        return
    yield f"  objective  {shortened(one_line(result.objective), _LINE - 13)}"
    for place, step in enumerate(result.steps[:_STEPS]):
        tool = "" if step.tool is None else " " + (shortened(step.tool, 30) or '""')
        kind = f"{step.type}{tool}"
        head = "steps" if place == 0 else ""
        room = _LINE - 13 - len(kind) - 2
        yield f"  {head:<9}  {kind}: {shortened(one_line(step.content), max(room, 20))}"
    more = len(result.steps) - _STEPS
    if more > 0:
        yield f"             and {number(more, 'more step')}"
    if result.is_cut:
        yield "  text       longer than its encoder's window, which reads its beginning alone"


def _sum(result: "Explanation") -> Iterator[str]:
    reaches = "reaches" if result.breakdown.score >= result.threshold else "is below"
    # 0 stands where no engine has scored it yet.
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
            for name, score in sorted(result.by_profile.items(), key=lambda each: -each[1])
        ]
    )


def _met(result: "Explanation") -> Iterator[str]:
    if result.held:
        yield from _held(result.held, result.cache_group)
    if result.unmet:
        yield f"  {printable(result.unmet)}"
    if not result.neighbours:
        return
    yield "the nearest; what both share «marked», from shortly before they differ:"
    for each in result.neighbours:
        yield from _neighbour(each)


def _held(held: "CacheContents", cache_group: str | None) -> Iterator[str]:
    ttl = "no ttl" if held.ttl == "none" else f"a ttl of {held.ttl}"
    met = number(held.size, "trace")
    cache = f"the cache{of_group(cache_group)}, which holds {held.capacity:,}"
    yield f"it met {met} in {cache}, with {ttl}"
    if held.oldest and held.newest:
        domains = [f"{shortened(name, 30)} {count:,}" for name, count in held.domains.items()]
        more = f", {len(domains) - 5:,} more" if len(domains) > 5 else ""
        span = f"from {_time(held.oldest)} to {_time(held.newest)}"
        yield f"  made {span}: {', '.join(domains[:5])}{more}"


def _neighbour(each: "Neighbour") -> Iterator[str]:
    yield (
        f"  {each.similarity:.4f}  {shortened(each.trace_id, _ID)}, "
        f"{shortened(each.task_domain, 30)}, {age(each.age_s)} earlier"
    )
    if each.text is None or each.own_text is None:
        yield f"          its text cannot be read again: {UNREAD[each.unread or 'unreadable']}"
        return
    if each.is_same_text:
        yield "          the same text"
        return
    width = (_LINE - 11) // 2
    columns = (_lines(pieces, width) for pieces in (each.own_text, each.text))
    for left, right in zip_longest(*columns, fillvalue=""):
        yield f"    {padded(left, width)} | {right}".rstrip()


def _lines(pieces: Sequence["TextSpan"], width: int) -> list[str]:
    marked = "".join(f"«{each.text}»" if each.shared else each.text for each in pieces)
    return wrap(printable(one_line(marked)), width, max_lines=_BESIDE, placeholder=" …")


def _time(text: str) -> str:
    return f"{text[:10]} {text[11:19]} UTC"


def _history(history: Sequence["ScoreChange"]) -> Iterator[str]:
    yield "over the runs, as far back as they can be read:"
    yield from aligned(
        [
            {
                "run": each.run_id,
                "score": f"{each.score:.4f}",
                **{
                    name: "" if value is None else f"{round(value, 4) + 0.0:+.4f}"
                    for name, value in (
                        ("change", each.change),
                        ("facts", each.from_facts),
                        ("novelty", each.from_novelty),
                        ("weights", each.from_weights),
                        ("overrides", each.from_overrides),
                    )
                },
            }
            for each in history
        ]
    )
    for each in history:
        if each.reasons:
            told = printable("; ".join(each.reasons))
            lines = wrap(told, _LINE - 27, max_lines=_REASONS, placeholder=" …")
            named = zip_longest([each.run_id[:23]], lines, fillvalue="")
            yield from (f"  {name:<23}  {line}" for name, line in named)
