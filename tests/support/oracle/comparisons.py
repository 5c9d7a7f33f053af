"""How scores moved from one run to another, and what moved them."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.support.oracle.history import State
from tests.support.oracle.scoring import Score, composite, in_force
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
            "first_score": old[row["trace_id"]]["score"],
            "second_score": row["score"],
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
    return in_force(state.settings, row["task_domain"], row["created_at"])[1]


def _which(old: Score, new: Score) -> str | None:
    if new["single_thought"]:
        return "second"
    return "first" if old["single_thought"] else None


def comparison(first: State, second: State) -> Mapping[str, Any]:
    """The numbers of `Comparison`, but for its movers."""
    moved = moves(first, second)
    by_domain = {None: moved, **grouped(moved, lambda move: move["task_domain"])} if moved else {}
    return {
        "first_threshold": first.settings.threshold,
        "second_threshold": second.settings.threshold,
        "in_both": len(moved),
        "only_in_first": len(first.scores) - len(moved),
        "only_in_second": len(second.scores) - len(moved),
        "turnover": _turnover(first, second),
        "domains": [
            {"task_domain": domain, **_of_domain(own, first, second)}
            for domain, own in by_domain.items()
        ],
    }


def _turnover(first: State, second: State) -> Move:
    """The parts of each trace, summed by domain."""
    old, new = ({row["trace_id"]: row for row in state.scores} for state in (first, second))
    domains = {key: row["task_domain"] for key, row in {**old, **new}.items()}
    before, after = ({key: row["score"] for key, row in side.items()} for side in (old, new))
    return turnover_of(before, after, domains)


def turnover_of(
    before: Mapping[str, float], after: Mapping[str, float], domains: Mapping[str, str]
) -> Move:
    """The same of two runs' scores by id, and the domains of all ids."""
    means = mean([*before.values()]), mean([*after.values()])
    both = sorted(before.keys() & after.keys())
    kept = mean([before[key] for key in both]), mean([after[key] for key in both])
    if not both and None not in means:
        kept = (mean(means),) * 2
    rows: list[Move] = []
    for domain in [None, *sorted({*domains.values()})] if domains else []:
        own = [key for key in domains if domain in {None, domains[key]}]
        came = [after[key] for key in own if key not in before]
        went = [before[key] for key in own if key not in after]
        moved = [after[key] - before[key] for key in own if key in before and key in after]
        parts: list[float | None] = [None] * 3
        if kept[0] is not None and kept[1] is not None:
            parts = [
                math.fsum((score - kept[1]) / len(after) for score in came),
                math.fsum((kept[0] - score) / len(before) for score in went),
                math.fsum(change / len(both) for change in moved),
            ]
        names = ("from_came", "from_went", "from_moved")
        rows.append(
            {
                "task_domain": domain,
                "came": len(came),
                "went": len(went),
                "came_mean": mean(came),
                "went_mean": mean(went),
                **dict(zip(names, parts, strict=True)),
            }
        )
    return {"first_mean": means[0], "second_mean": means[1], "domains": rows}


def _of_domain(moved: Sequence[Move], first: State, second: State) -> Move:
    old, new = ([move[f"{which}_score"] for move in moved] for which in ("first", "second"))
    pairs = list(zip(old, new, strict=True))
    return {
        "traces": len(moved),
        "first_mean": mean(old),
        "second_mean": mean(new),
        "mean_absolute_change": mean([abs(b - a) for a, b in pairs]),
        "first_quantiles": [quantile(old, share) for share in QUANTILES],
        "second_quantiles": [quantile(new, share) for share in QUANTILES],
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
