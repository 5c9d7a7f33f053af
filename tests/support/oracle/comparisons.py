"""How scores moved from one run to another, and what moved them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.support.oracle.history import State
from tests.support.oracle.scoring import Score, composite, weights_at
from tests.support.oracle.statistics import (
    QUANTILES,
    bins,
    grouped,
    mean,
    quantile,
    rank_correlation,
    stability_index,
)

PARTS = ("from_facts", "from_novelty", "from_weights", "from_overrides")
Move = dict[str, Any]


def moves(first: State, second: State) -> list[Move]:
    """Each trace that both have, with both scores and the parts of its change."""
    old = {row["trace_id"]: row for row in first.scores}
    return [
        {
            "trace_id": row["trace_id"],
            "task_domain": row["task_domain"],
            "before_score": old[row["trace_id"]]["score"],
            "after_score": row["score"],
            "change": row["score"] - old[row["trace_id"]]["score"],
            "single_thought": _which(old[row["trace_id"]], row),
            **parts(old[row["trace_id"]], row, first, second),
        }
        for row in second.scores
        if row["trace_id"] in old
    ]


def parts(old: Score, new: Score, first: State, second: State) -> dict[str, float]:
    """The change of a score: each thing is put in the place of the old one, in this order."""
    change = new["score"] - old["score"]
    if old["single_thought"] or new["single_thought"]:  # which have one score, whatever else
        return dict(zip(PARTS, (0.0, 0.0, 0.0, change), strict=True))
    before = _weights(old, first)
    steps = [
        composite(old, before),
        composite({**new, "novelty": old["novelty"]}, before),
        composite(new, before),
        composite(new, _weights(new, second)),
    ]
    known = [b - a for a, b in pairwise(steps)]
    return dict(zip(PARTS, (*known, change - sum(known)), strict=True))


def _weights(row: Score, state: State) -> tuple[float, float, float, float]:
    return weights_at(state.settings, row["task_domain"], row["created_at"])[1]


def _which(old: Score, new: Score) -> str | None:
    if new["single_thought"]:
        return "after"
    return "before" if old["single_thought"] else None


def comparison(first: State, second: State) -> Mapping[str, Any]:
    """The numbers of `Comparison`, but for its movers."""
    moved = moves(first, second)
    by_domain = {None: moved, **grouped(moved, lambda move: move["task_domain"])} if moved else {}
    return {
        "before_threshold": first.settings.threshold,
        "after_threshold": second.settings.threshold,
        "in_both": len(moved),
        "only_before": len(first.scores) - len(moved),
        "only_after": len(second.scores) - len(moved),
        "before_mean": mean([row["score"] for row in first.scores]),
        "after_mean": mean([row["score"] for row in second.scores]),
        "domains": [
            {"task_domain": domain, **_of_domain(own, first, second)}
            for domain, own in by_domain.items()
        ],
    }


def _of_domain(moved: Sequence[Move], first: State, second: State) -> Move:
    old, new = ([move[f"{which}_score"] for move in moved] for which in ("before", "after"))
    pairs = list(zip(old, new, strict=True))
    return {
        "traces": len(moved),
        "before_mean": mean(old),
        "after_mean": mean(new),
        "mean_absolute_change": mean([abs(b - a) for a, b in pairs]),
        "before_quantiles": [quantile(old, share) for share in QUANTILES],
        "after_quantiles": [quantile(new, share) for share in QUANTILES],
        "stability_index": stability_index(bins(old), bins(new)),
        "rank_correlation": rank_correlation(old, new),
        "rose": sum(b > a for a, b in pairs),
        "fell": sum(b < a for a, b in pairs),
        "stayed": sum(b == a for a, b in pairs),
        **_crossings(pairs, first.settings.threshold, second.settings.threshold),
        **{name: mean([move[name] for move in moved]) for name in PARTS},
        "single_thoughts": sum(move["single_thought"] is not None for move in moved),
    }


def _crossings(pairs: Sequence[tuple[float, float]], was: float, now: float) -> Move:
    up = [b for a, b in pairs if a < was and b >= now]
    down = [b for a, b in pairs if a >= was and b < now]
    return {
        "now_reach": len(up),
        "now_reach_by_threshold": sum(b < was for b in up),
        "no_longer_reach": len(down),
        "no_longer_reach_by_threshold": sum(b >= was for b in down),
    }
