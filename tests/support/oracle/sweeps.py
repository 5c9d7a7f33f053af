"""What other caches and thresholds would do to the scores."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.oracle.history import State
from tests.support.oracle.questions import shows_novelty
from tests.support.oracle.scoring import Score, replayed
from tests.support.oracle.statistics import mean, rank_correlation

_SAME = 1e-6
Row = dict[str, Any]
Cache = tuple[tuple[str, ...], int, timedelta | None]  # whose, its size, its ttl


def variants(state: State, caches: Sequence[Cache], thresholds: Sequence[float]) -> list[Row]:
    """A row for each domain and one for all, for each combination of a cache and a threshold."""
    return [
        {
            **dict(zip(("cache_by", "cache_size", "ttl"), cache, strict=True)),
            "task_domain": domain,
            "threshold": threshold,
            "is_current": own == state.settings,
            **_scores(state, swept, own.threshold, domain),
            **_recorded(swept, domain),
        }
        for cache in caches
        for swept in [_swept(state, *cache)]
        for threshold in thresholds
        for own in [replace(swept.settings, threshold=threshold)]
        for domain in (None, *sorted({row["task_domain"] for row in state.scores}))
    ]


def _swept(state: State, cache_by: tuple[str, ...], size: int, ttl: timedelta | None) -> State:
    """The state as a run with this cache would leave it."""
    own = replace(state.settings, cache_by=cache_by, cache_size=size, ttl=ttl)
    return replace(state, settings=own, scores=replayed(state.count.accepted, own))


def _scores(state: State, swept: State, new: float, domain: str | None) -> Row:
    now, rows = ([row["score"] for row in _of(each.scores, domain)] for each in (state, swept))
    old = state.settings.threshold
    pairs = list(zip(now, rows, strict=True))
    return {
        "traces": len(rows),
        "mean_novelty": mean([row["novelty"] for row in _of(swept.scores, domain)]),
        "mean_score": mean(rows),
        "rank_correlation": rank_correlation(now, rows),
        "at_threshold": sum(b >= new for b in rows),
        "now_reach": sum(b >= new and a < old for a, b in pairs),
        "no_longer_reach": sum(b < new and a >= old for a, b in pairs),
    }


def _recorded(swept: State, domain: str | None) -> Row:
    """How near the scores are to those that live engines gave."""
    known = [row for row in _of(swept.scores, domain) if shows_novelty(swept, row)]
    errors = [abs(row["score"] - row["recorded_score"]) for row in known]
    return {
        "recorded": len(known),
        "recorded_error": mean(errors),
        "recorded_share": sum(each <= _SAME for each in errors) / len(known) if known else None,
    }


def _of(rows: Sequence[Score], domain: str | None) -> list[Score]:
    return [row for row in rows if domain in (None, row["task_domain"])]
