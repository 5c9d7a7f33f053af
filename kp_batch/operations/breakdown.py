"""The parts of a score as a table: each dimension, the composite, the overrides."""

from itertools import accumulate, pairwise

from kp_batch.dimensions import Breakdown, Counts
from kp_batch.rendering import Row, Table
from kp_batch.text import count_of, shortened

_NAME, _FINGERPRINT = 30, 60  # characters
_WHEN = {
    "single_thought": "its only step is a thought: always 0.1",
    "recovery_bonus": "more than 2 error recoveries, and success",
    "low_diversity_penalty": "all tool steps use one tool",
}


def breakdown_table(
    breakdown: Breakdown, counts: Counts, max_similarity: float | None, weights_from: str | None
) -> Table:
    """Return a row for each dimension, the composite, each override that applies, and the score.

    Each bar begins where the one before it ends.

    Args:
        breakdown: the parts of the score.
        counts: the counts from which the dimensions are computed.
        max_similarity: the greatest similarity in the cache; None if it was empty.
        weights_from: the day or time from which the weights are valid; None for always.
    """
    terms, causes = breakdown.terms, _causes(counts, max_similarity)
    overrides = [override for override in breakdown.overrides if override.applies]
    weights = f"weights of {shortened(breakdown.profile, _NAME)}"
    weights += f" from {weights_from}" if weights_from else ""
    sums = [*accumulate((term.product for term in terms), initial=0.0)]
    scores = [*accumulate((each.change for each in overrides), initial=breakdown.composite)]
    return Table(
        rows=[
            *(_cells(term.dimension, term.product, term.value, term.weight) for term in terms),
            _cells("composite", breakdown.composite),
            *(_cells(each.name, each.change, sign="+") for each in overrides),
            _cells("score", breakdown.score),
        ],
        marked=[len(terms) + len(overrides) + 1],
        remarks=[
            *(causes[term.dimension] for term in terms),
            f"{weights} ({shortened(breakdown.profile_id, _FINGERPRINT)})",
            *(_WHEN[each.name] for each in overrides),
            _not_applied(breakdown),
        ],
        bars=[
            *pairwise(sums),
            (0.0, breakdown.composite),
            *pairwise(scores),
            (0.0, breakdown.score),
        ],
    )


def _cells(
    name: str, adds: float, value: float | None = None, weight: float | None = None, sign: str = ""
) -> Row:
    return {
        "": name.replace("_", " "),
        "value": "" if value is None else f"{value:.4f}",
        "weight": "" if weight is None else f"{weight:g}",
        "adds": f"{adds:{sign}.4f}",
    }


def _causes(counts: Counts, max_similarity: float | None) -> dict[str, str]:
    """Return the known inputs of each dimension in words."""
    steps = count_of(counts.n_steps, "step")
    complexity = [
        None if counts.n_types is None else f"{counts.n_types} of 4 types of steps",
        steps,
        None if counts.n_recoveries is None else _recoveries(counts.n_recoveries),
    ]
    novelty = "nothing to compare with"
    if max_similarity is not None:
        novelty = f"1 - {max_similarity:.4f}, the greatest similarity in its cache"
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
