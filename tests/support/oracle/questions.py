"""What each question of the catalog answers, by its comment and its columns alone."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations, pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from tests.support.oracle import measures
from tests.support.oracle.history import History, State
from tests.support.oracle.measures import MEASURES, PARTS, USUAL, measured
from tests.support.oracle.scoring import (
    DIMENSIONS,
    Cache,
    Score,
    composite,
    day_of,
    effects,
    overridden,
    weights_at,
)
from tests.support.oracle.statistics import (
    bins,
    correlation,
    covariance,
    deviation,
    grouped,
    mean,
    median,
    rank_correlation,
    skewness,
    spread,
    stability_index,
)
from tests.support.oracle.uncertainty import calibration

Answer = list[dict[str, Any]]
OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")


def domains(state: State) -> Iterator[tuple[str, list[Score]]]:
    yield from grouped(state.scores, lambda row: str(row["task_domain"])).items()


def column(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def score_distribution(state: State) -> Answer:
    return [
        {
            "task_domain": domain,
            "traces": len(rows),
            "mean": mean(scores := column(rows, "score")),
            "stddev": deviation(scores),
            "skewness": skewness(scores),
            "min": min(scores),
            **spread(scores),
            "max": max(scores),
        }
        for domain, rows in domains(state)
    ]


def score_histogram(state: State, count: int) -> Answer:
    return [
        {"task_domain": domain, "low": place / count, "high": (place + 1) / count, "traces": number}
        for domain, rows in domains(state)
        for place, number in enumerate(bins(column(rows, "score"), count))
        if number
    ]


def trace_measures(state: State) -> Answer:
    shares = _cache_shares(state)
    return [
        measured(
            row,
            day_of(row["created_at"]),
            weights_at(state.settings, row["task_domain"], row["created_at"])[1],
            shares[row["trace_id"]],
        )
        for row in state.scores
    ]


def _cache_shares(state: State) -> dict[str, float]:
    """Which share of the traces in each one's cache was of its domain."""
    caches: dict[str | None, Cache] = {}
    domain = {row["trace_id"]: row["task_domain"] for row in state.scores}
    shares = {}
    for row in state.scores:  # in the order of the replay
        cache = caches.setdefault(row["cache_group"], Cache(state.settings))
        held = [domain[trace_id] for _, trace_id, _ in cache.at(row["created_at"])]
        if row["vector"] is not None:  # without an embedder no cache holds any
            cache.entries.append((row["created_at"], row["trace_id"], None))
        shares[row["trace_id"]] = held.count(row["task_domain"]) / max(1, len(held))
    return shares


def means_by(state: State, keys: Sequence[str], names: Sequence[str] = USUAL) -> Answer:
    return measures.means_by(trace_measures(state), keys, names)


def differences_by(state: State, unit: str, a: Any, b: Any, names: Sequence[str] = USUAL) -> Answer:
    return measures.differences_by(trace_measures(state), unit, a, b, names)


def differences_from_others(state: State, unit: str, names: Sequence[str] = USUAL) -> Answer:
    return measures.differences_from_others(trace_measures(state), unit, names)


def changes_by(
    state: State, keys: Sequence[str], period: str, names: Sequence[str] = ("score",)
) -> Answer:
    return measures.changes_by(trace_measures(state), keys, period, names)


def mean_changes(state: State, period: str) -> Answer:
    return measures.mean_changes(trace_measures(state), period)


def agent_rank_correlations(state: State) -> Answer:
    answer: Answer = []
    for domain, rows in grouped(trace_measures(state), lambda row: row["task_domain"]).items():
        agents = grouped(
            [row for row in rows if row["agent_id"] is not None], lambda row: row["agent_id"]
        )
        scores = [_mean(own, "score") for own in agents.values()]
        answer += [
            {"task_domain": domain, "measure": name, "agents": len(agents)}
            | _rank_correlation(scores, [_mean(own, name) for own in agents.values()])
            for name in ("success", "tools", "from_low_diversity_penalty")
            if agents
        ]
    return answer


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return round(math.fsum(column(rows, name)) / len(rows), 12)  # equal ones share a rank


def _rank_correlation(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | None]:
    n, found = len(ours), None
    tied = max(max(map(values.count, values)) for values in (ours, theirs))
    if n >= 5 and tied <= n / 2:
        found = rank_correlation(ours, theirs)
    if found is None:
        return dict.fromkeys(("correlation", "low", "high"))
    margin = 1.959963984540054 * math.sqrt((1 + found**2 / 2) / (n - 3))
    z = math.atanh(math.copysign(min(abs(found), 1 - 6 / (n * (n * n - 1))), found))
    return {
        "correlation": found,
        "low": -1 if found <= -1 + 1e-12 else math.tanh(z - margin),
        "high": 1 if found >= 1 - 1e-12 else math.tanh(z + margin),
    }


def cache_beginnings(state: State) -> Answer:
    return [
        {
            "cache_group": group,
            "traces": len(rows),
            "first_at": min(column(rows, "created_at")),
            "filled_at": min(
                (row["created_at"] for row in rows if not row["cache_warming_up"]), default=None
            ),
            "cache_warming_up": sum(column(rows, "cache_warming_up")),
            "novelty_warming_up": mean([row["novelty"] for row in rows if row["cache_warming_up"]]),
            "novelty_after": mean([row["novelty"] for row in rows if not row["cache_warming_up"]]),
        }
        for group, rows in grouped(state.scores, lambda row: row["cache_group"]).items()
    ]


def part_effects(state: State) -> Answer:
    answer: Answer = []
    for domain, rows in grouped(trace_measures(state), lambda row: row["task_domain"]).items():
        scores = column(rows, "score")
        spread = covariance(scores, scores)
        for part in PARTS:
            values = column(rows, f"from_{part}")
            others = [value for value in values if value]
            answer.append(
                {
                    "task_domain": domain,
                    "part": part,
                    "weight": mean(column(rows, f"weight_of_{part}"))
                    if part in DIMENSIONS
                    else None,
                    "traces": len(others),
                    "effect_where_any": mean(others),
                    "mean_effect": mean(values),
                    "share_of_variance": covariance(values, scores) / spread if spread else None,
                }
            )
    return answer


def driven(rows: Sequence[Mapping[str, Any]], weights: Sequence[Sequence[float]]) -> Answer:
    """What each part of the scores makes of these rows, each with its current weights."""
    scores = column(rows, "score")
    parts: dict[str, tuple[list[float] | None, list[float]]] = {}
    for place, name in enumerate(DIMENSIONS):
        own = [each[place] for each in weights]
        parts[name] = own, [w * row[name] for w, row in zip(own, rows, strict=True)]
    after = [effects(row, row["composite"]) for row in rows]
    for place, name in enumerate(OVERRIDES):
        parts[name] = None, [values[place + 1] - values[place] for values in after]
    return [
        {
            "part": name,
            "weight": mean(own_weights) if own_weights else None,
            "mean_effect": mean(values),
            "share_of_variance": covariance(values, scores) / spread
            if (spread := covariance(scores, scores))
            else None,
        }
        for name, (own_weights, values) in parts.items()
    ]


def confidence_calibration(state: State) -> Answer:
    answer: Answer = []
    keys = itemgetter("task_domain", "agent_id")
    for (domain, agent), rows in grouped(trace_measures(state), keys).items():
        found = measures.mean_of(rows, "overconfidence")
        answer.append(
            {
                "task_domain": domain,
                "agent_id": agent,
                "traces": found["traces"],
                "tasks": found["tasks"],
                "mean_confidence": mean(column(rows, "confidence")),
                "success_rate": mean(column(rows, "success")),
                "overconfidence": found["mean"],
                "overconfidence_low": found["low"],
                "overconfidence_high": found["high"],
                **calibration(rows),
            }
        )
    return answer


def threshold_curve(state: State, steps: int) -> Answer:
    return [
        {
            "task_domain": domain,
            "threshold": step / steps,
            "reaching": (reaching := sum(row["score"] >= step / steps for row in rows)),
            "share": reaching / len(rows),
        }
        for domain, rows in domains(state)
        for step in range(steps + 1)
    ]


def dimension_correlations(state: State) -> Answer:
    return [
        {
            "task_domain": domain,
            **{
                f"{a}_{b}": correlation(column(rows, a), column(rows, b))
                for a, b in combinations(DIMENSIONS, 2)
            },
        }
        for domain, rows in domains(state)
    ]


def dated_weights(state: State) -> Answer:
    return [
        {
            "name": name,
            "valid_from": begin,
            "valid_to": end,
            **dict(zip(DIMENSIONS, weights, strict=True)),
        }
        for name, versions in state.settings.versions.items()
        for (begin, weights), end in zip(
            versions, [*(each for each, _ in versions[1:]), None], strict=True
        )
    ]


def profile_comparison(state: State) -> Answer:
    return [
        {
            **{name: row[name] for name in ("trace_id", "created_at", "task_domain", "profile")},
            "score": row["score"],
            "other_profile": name,
            "other_score": overridden(row, composite(row, weights)),
        }
        for row in state.scores
        for name, weights in state.settings.at(row["created_at"]).items()
    ]


def what_if(state: State, *weights: float) -> Answer:
    c, n, d, o = weights
    return [
        {
            "trace_id": row["trace_id"],
            "task_domain": row["task_domain"],
            "score": (other := overridden(row, composite(row, (c, n, d, o)))),
            "published_score": row["score"],
            "change": other - row["score"],
        }
        for row in state.scores
    ]


def near_repeats(state: State, similarity: float) -> Answer:
    names = ("trace_id", "task_domain", "created_at", "max_similarity", "nearest_trace_id")
    texts = {row["trace_id"]: row["text_hash"] for row in state.scores}
    return [
        {name: row[name] for name in (*names, "nearest_age_s", "score")}
        for row in state.scores
        if (row["max_similarity"] is not None and row["max_similarity"] >= similarity)
        or (similarity <= 1 and texts.get(row["nearest_trace_id"]) == row["text_hash"])
    ]


def novelty_by(state: State, what: str) -> Answer:
    bands = {"age": _by_age, "similarity": _by_similarity, "repetition": _by_repetition}[what](
        state
    )
    number = sum(map(len, bands.values()))
    return [
        {
            "band": band,
            "traces": len(rows),
            "share": len(rows) / number,
            "mean_novelty": mean(values := column(rows, "novelty")),
            "median_novelty": median(values),
            "least_novelty": min(values),
            "greatest_novelty": max(values),
            "cache_warming_up": sum(column(rows, "cache_warming_up")),
        }
        for band, rows in bands.items()
    ]


def _by_age(state: State) -> dict[str, list[Score]]:
    edges = {
        604_800: "1 week or more",
        86_400: "1 day to 1 week",
        3_600: "1 hour to 1 day",
        60: "1 minute to 1 hour",
        0: "below 1 minute",
    }
    near = [row for row in state.scores if row["nearest_age_s"] is not None]
    return grouped(near, lambda row: next(edges[e] for e in edges if row["nearest_age_s"] >= e))


def _by_similarity(state: State) -> dict[str, list[Score]]:
    return grouped(state.scores, lambda row: _band(row["max_similarity"]))


def _band(similarity: float | None) -> str:
    if similarity is None:
        return "empty cache"
    edges = {0.999999: "the same", 0.95: "0.95 to the same", 0.8: "0.80 to 0.95"}
    edges[0.5] = "0.50 to 0.80"
    return next((name for edge, name in edges.items() if similarity >= edge), "below 0.50")


def _by_repetition(state: State) -> dict[str, list[Score]]:
    seen: dict[str, int] = {}
    bands: dict[str, list[Score]] = {}
    for row in state.scores:  # in the order of the replay
        before = seen.get(row["text_hash"], 0)
        seen[row["text_hash"]] = before + 1
        bands.setdefault(str(before) if before < 10 else "10 or more", []).append(row)
    return bands


def repeats(state: State, of: str) -> Answer:
    return [
        {
            of: value,
            "traces": len(rows),
            "texts": len({row["text_hash"] for row in rows}),
            "first_at": rows[0]["created_at"],
            "last_at": rows[-1]["created_at"],
            "mean_novelty": mean(column(rows, "novelty")),
            "success": mean([float(row["success"]) for row in rows]),
            "cache_warming_up": sum(column(rows, "cache_warming_up")),
            "first_trace_id": rows[0]["trace_id"],
        }
        for value, rows in grouped(state.scores, lambda row: row[of]).items()
        if len(rows) > 1
    ]


def novelty_weight(state: State, row: Score) -> float:
    return weights_at(state.settings, row["task_domain"], row["created_at"])[1][1]


def shows_novelty(state: State, row: Score) -> bool:
    """Whether another novelty would have given another score than the recorded one."""
    return (
        (row["recorded_score"] or 0) > 0
        and not row["single_thought"]
        and novelty_weight(state, row) > 0
        and row["recorded_score"] < overridden({**row, "single_thought": False}, 1)
    )


def score_if_empty(state: State, row: Score) -> float:
    weights = weights_at(state.settings, row["task_domain"], row["created_at"])[1]
    return overridden(row, composite({**row, "novelty": 0.5}, weights))


def implied_restarts(state: State, tolerance: float) -> Answer:
    names = ("trace_id", "created_at", "cache_group", "agent_id", "recorded_score", "score")
    return [
        {
            **{name: row[name] for name in names},
            "score_if_empty": score_if_empty(state, row),
            **{name: row[name] for name in ("cached_vectors", "source_file")},
        }
        for row in state.scores
        if shows_novelty(state, row)
        and row["cached_vectors"] > 0
        and abs(row["recorded_score"] - score_if_empty(state, row)) <= tolerance
        and abs(row["recorded_score"] - row["score"]) > tolerance
    ]


def largest_score_differences(state: State) -> Answer:
    names = ("trace_id", "created_at", "task_domain", "agent_id", "recorded_score", "score")
    more = ("max_similarity", "nearest_trace_id", "nearest_age_s", "cached_vectors", *OVERRIDES)
    return [
        {
            **{name: row[name] for name in names},
            "difference": row["score"] - row["recorded_score"],
            "novelty": row["novelty"],
            "implied_novelty": _implied_novelty(state, row),
            **{name: row[name] for name in (*more, "profile")},
        }
        for row in state.scores
        if row["recorded_score"]
    ]


def _implied_novelty(state: State, row: Score) -> float | None:
    """The novelty that would have given the recorded score."""
    if not shows_novelty(state, row):
        return None
    undone = row["recorded_score"]
    undone += 0.1 * (row["low_diversity_penalty"] - row["recovery_bonus"])
    return float(row["novelty"] + (undone - row["composite"]) / novelty_weight(state, row))


def recorded_score_differences(state: State) -> Answer:
    recorded = [row for row in state.scores if row["recorded_score"] is not None]
    groups = grouped(recorded, lambda row: (row["task_domain"], day_of(row["created_at"])))
    least = state.settings.threshold
    answer: Answer = []
    for (domain, day), rows in groups.items():
        pairs = [(row["score"], row["recorded_score"]) for row in rows if row["recorded_score"]]
        ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        answer.append(
            {
                "task_domain": domain,
                "day": day,
                "traces": len(pairs),
                "placeholders": len(rows) - len(pairs),
                "mean_difference": mean([a - b for a, b in pairs]),
                "mean_absolute_difference": mean([abs(a - b) for a, b in pairs]),
                "rank_correlation": rank_correlation(ours, theirs),
                "now_reaching": sum(a >= least > b for a, b in pairs),
                "no_longer_reaching": sum(b >= least > a for a, b in pairs),
            }
        )
    return answer


def days_without_traces(state: State) -> Answer:
    days = sorted({day_of(row["created_at"]) for row in state.scores})
    one = timedelta(days=1)
    return [
        {"first_day": a + one, "last_day": b - one, "days": (b - a).days - 1}
        for a, b in pairwise(days)
        if b - a > one
    ]


def timestamp_ties(state: State) -> Answer:
    return [
        {"created_at": when, "traces": len(rows), "trace_ids": column(rows, "trace_id")}
        for when, rows in grouped(state.scores, lambda row: row["created_at"]).items()
        if len(rows) > 1
    ]


ANSWERS: Mapping[str, Callable[..., Answer]] = MappingProxyType(
    {
        "trace_measures": trace_measures,
        "means_by": means_by,
        "differences_by": differences_by,
        "differences_from_others": differences_from_others,
        "changes_by": changes_by,
        "mean_changes": mean_changes,
        "agent_rank_correlations": agent_rank_correlations,
        "score_distribution": score_distribution,
        "score_histogram": score_histogram,
        "threshold_curve": threshold_curve,
        "part_effects": part_effects,
        "confidence_calibration": confidence_calibration,
        "cache_beginnings": cache_beginnings,
        "dimension_correlations": dimension_correlations,
        "dated_weights": dated_weights,
        "profile_comparison": profile_comparison,
        "what_if": what_if,
        "near_repeats": near_repeats,
        "novelty_by": novelty_by,
        "repeats": repeats,
        "implied_restarts": implied_restarts,
        "largest_score_differences": largest_score_differences,
        "recorded_score_differences": recorded_score_differences,
        "days_without_traces": days_without_traces,
        "timestamp_ties": timestamp_ties,
    }
)
# The arguments of macros, their ends among them.
ARGUMENTS: Mapping[str, Sequence[tuple[Any, ...]]] = MappingProxyType(
    {
        "means_by": [
            (["task_domain", "agent_id"], MEASURES),
            (["week", "score_bin", "confidence_bin"],),
            (["everything"],),
        ],
        "differences_by": [("agent_id", "a", "b", MEASURES), ("success", 0, 1)],
        "differences_from_others": [("agent_id", MEASURES), ("framework",), ("success",)],
        "changes_by": [
            (["task_domain"], "week", MEASURES),
            (["framework", "success"], "month", ["novelty", "score"]),
            (["everything"], "day"),
        ],
        "mean_changes": [(each,) for each in ("day", "week", "month", "quarter", "year")],
        "novelty_by": [("age",), ("similarity",), ("repetition",)],
        "repeats": [("text_hash",), ("objective_hash",)],
        "score_histogram": [(1,), (2,), (7,), (10,), (1000,)],
        "threshold_curve": [(1,), (3,), (4,), (100,)],
        "what_if": [
            *((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.1, 0.2, 0.3, 0.4)),
            (0.25, 0.25, 0.25, 0.250000001),  # further from 1 it is refused
        ],
        "near_repeats": [(-1,), (0,), (0.5,), (0.99,), (1,), (1.5,)],
        "implied_restarts": [(0,), (1e-6,), (0.1,), (1,)],
    }
)


def call(name: str, arguments: Sequence[Any]) -> str:
    """The query that asks a question, or for a view where there are no arguments."""
    if not arguments:
        return f"FROM {name}"
    values = ", ".join(
        str([*each]) if isinstance(each, list | tuple) else repr(each) for each in arguments
    )
    return f"FROM {name}({values})"


def distributions(states: Iterable[State]) -> Answer:
    """The view of that name: a row for each domain, and one for all, after each run."""
    return [
        {
            "run_id": state.run_id,
            "task_domain": domain,
            "traces": len(rows),
            "at_threshold": sum(column(rows, "meets_threshold")),
            "mean": mean(scores := column(rows, "score")),
            **spread(scores),
            "bins": bins(scores),
        }
        for state in states
        for domain, rows in [(None, state.scores), *domains(state)]
    ]


def drift(history: History, first: str, second: str) -> Answer:
    """Of the domains that both runs have."""
    of_runs = distributions(history.states)
    sides = [
        {row["task_domain"]: row for row in of_runs if row["run_id"] == run}
        for run in (first, second)
    ]
    return [
        {
            "task_domain": domain,
            "traces_a": a["traces"],
            "traces_b": b["traces"],
            "mean_shift": b["mean"] - a["mean"],
            **{f"{name}_shift": b[name] - a[name] for name in ("p5", "p25", "p50", "p75", "p95")},
            "stability_index": stability_index(a["bins"], b["bins"]),
        }
        for domain, a in sides[0].items()
        for b in [sides[1].get(domain)]
        if b
    ]


def rejects(state: State) -> Answer:
    """The view of that name, without messages, JSON and runs."""
    return [
        {
            "source_file": row.source_file,
            "row": row.row,
            "trace_id": row.trace_id,
            "reasons": list(row.reasons),
        }
        for row in state.count.rejected
    ]


def rejects_by_code(state: State) -> Answer:
    """On the day of these runs, whichever rejected it first."""
    codes = [(row.source_file, code) for row in state.count.rejected for code in row.reasons]
    return [
        {"source_file": path, "code": code, "rejected": len(rows)}
        for (path, code), rows in grouped(codes, lambda each: each).items()
    ]
