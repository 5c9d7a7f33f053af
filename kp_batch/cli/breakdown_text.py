"""Writes a score as a sum, for a terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kp_batch.dimensions import Breakdown, Counts
from kp_batch.text import age, aligned, number, printable, shortened

if TYPE_CHECKING:
    from kp_batch.operations.score import ScoredLine

_NAME, _FINGERPRINT = 30, 60  # characters
_WHEN = {
    "single_thought": "its only step is a thought: 0.1, whatever the composite",
    "recovery_bonus": "more than 2 error recoveries, and success",
    "low_diversity_penalty": "tools, and at most 1 distinct one",
}


def breakdown_lines(
    breakdown: Breakdown, counts: Counts, max_similarity: float | None, weights_from: str | None
) -> Iterator[str]:
    """Write each dimension, the composite, each override that applies, and the score.

    Args:
        breakdown: the score.
        counts: what the dimensions were computed from.
        max_similarity: what novelty was computed from; None where nothing came before.
        weights_from: the day or time from which the weights hold, if not always.
    """
    whys = _whys(counts, max_similarity)
    weights = f"weights of {shortened(breakdown.profile, _NAME)}"
    weights += f" from {weights_from}" if weights_from else ""
    lines = [
        *(
            (_cells(term.dimension, term.product, term.value, term.weight), whys[term.dimension])
            for term in breakdown.terms
        ),
        (
            _cells("composite", breakdown.composite),
            f"{weights} ({shortened(breakdown.profile_id, _FINGERPRINT)})",
        ),
        *(
            (_cells(each.name, each.change, sign="+"), _WHEN[each.name])
            for each in breakdown.overrides
            if each.applies
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

    name = shortened(result.trace_id or "a trace without an id", _FINGERPRINT)
    head = f"line {result.line:,}: {name}"
    if isinstance(result, Unscored):
        return f"{head} cannot be scored: {printable(result.message)}\n"
    nearest = [
        {
            "similarity": f"{each.similarity:.4f}",
            "trace": shortened(each.trace_id, _FINGERPRINT),
            "domain": shortened(each.task_domain, _NAME),
            "older by": age(each.age_s),
        }
        for each in result.neighbours
    ]
    others = (f"{shortened(name, _NAME)} {score:.4f}" for name, score in result.by_profile.items())
    return "\n".join(
        [
            f"{head}, {shortened(result.task_domain, _NAME)}: {result.score:.4f}",
            *breakdown_lines(
                result.breakdown, result.counts, result.max_similarity, result.weights_from
            ),
            *aligned(nearest),
            f"  by profile: {', '.join(others)}",
            "",
        ]
    )


def _cells(
    name: str, adds: float, value: float | None = None, weight: float | None = None, sign: str = ""
) -> dict[str, str]:
    return {
        "": name.replace("_", " "),
        "value": "" if value is None else f"{value:.4f}",
        "weight": "" if weight is None else f"{weight:g}",
        "adds": f"{adds:{sign}.4f}",
    }


def _whys(counts: Counts, max_similarity: float | None) -> dict[str, str]:
    """What each dimension was computed from, as far as that is known."""
    steps = number(counts.n_steps, "step")
    known = [
        None if counts.n_types is None else f"{counts.n_types} of 4 types of steps",
        steps,
        None if counts.n_recoveries is None else _recoveries(counts.n_recoveries),
    ]
    met = "nothing to compare with"
    if max_similarity is not None:
        met = f"1 - {max_similarity:.4f}, the greatest similarity to what came before"
    outcome = "success" if counts.success else "failure: times 0.3"
    if counts.confidence is not None:
        outcome = f"confidence {counts.confidence:g}, {outcome}"
    return {
        "complexity": ", ".join(each for each in known if each),
        "novelty": met,
        "tool_diversity": f"{number(counts.n_tools, 'distinct tool')} in {steps}",
        "outcome_confidence": outcome,
    }


def _recoveries(count: int) -> str:
    return "1 error recovery" if count == 1 else f"{count:,} error recoveries"


def _not_applied(breakdown: Breakdown) -> str:
    left = [each.name.replace("_", " ") for each in breakdown.overrides if not each.applies]
    return f"not applied: {', '.join(left)}" if left else ""
