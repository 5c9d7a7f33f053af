"""What each question of the catalog answers, by its comment and its columns alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Any

from tests.support.oracle.doubts import (
    calibration,
    changes,
    differences,
    differences_from_others,
    domain_changes,
    mean_changes,
    means,
)
from tests.support.oracle.history import History, State
from tests.support.oracle.scoring import (
    DIMENSIONS,
    Cache,
    Score,
    composite,
    day_of,
    effects,
    in_force,
    overridden,
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


_OVER_TIME = ("confidence", "overconfidence", "overconfidence_low", "overconfidence_high")
_OF_SOME = (*_OVER_TIME, "median")  # columns of `means_by` that are not in all views of means


def _by(*names: str) -> Callable[[State], Answer]:
    def answer(state: State) -> Answer:
        groups = grouped(state.scores, lambda row: tuple(row[name] for name in names))
        return [
            {**dict(zip(names, values, strict=True)), **_without(means(rows), _OF_SOME)}
            for values, rows in groups.items()
        ]

    return answer


def _over_time(name: str, begin: Callable[[datetime], Any]) -> Callable[[State], Answer]:
    def answer(state: State) -> Answer:
        groups = grouped(state.scores, lambda row: (begin(row["created_at"]), row["task_domain"]))
        lacking = (*_OVER_TIME, "tools", *OVERRIDES)
        return [
            {name: when, "task_domain": domain, **_without(means(rows), lacking)}
            for (when, domain), rows in groups.items()
        ]

    return answer


def _without(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def agent_rank_correlations(state: State) -> Answer:
    answer: Answer = []
    for domain, rows in domains(state):
        of_agent = grouped(rows, lambda row: row["agent_id"])
        found = [means(own) for agent, own in of_agent.items() if agent is not None]
        if found:
            names = ("success", "tools", "low_diversity_penalty")
            by_score = [round(row["mean"], 12) for row in found]  # equal ones share a rank
            others = {name: rank_correlation(by_score, column(found, name)) for name in names}
            answer.append({"task_domain": domain, "agents": len(found), **others})
    return answer


def means_by(state: State, name: str) -> Answer:
    groups = grouped(state.scores, lambda row: row[name])
    return [{"key": value, **means(rows)} for value, rows in groups.items()]


def differences_by(state: State, column: str, a: str, b: str) -> Answer:
    a, b = ({"true": True, "false": False}.get(each, each.strip("'")) for each in (a, b))
    return differences(state.scores, column, a, b)


def _paired(column: str) -> Callable[..., Answer]:
    return lambda state, a, b: differences_by(state, column, a, b)


def _dated(state: State) -> list[dict[str, Any]]:
    return [{**row, "day": day_of(row["created_at"])} for row in state.scores]


def changes_by(state: State, name: str, period: str) -> Answer:
    return changes(_dated(state), lambda row: row[name], period.strip("'"))


def cache_beginnings(state: State) -> Answer:
    return [
        {
            "cache_group": group,
            "traces": len(rows),
            "first_at": min(column(rows, "created_at")),
            "filled_at": min(
                (row["created_at"] for row in rows if not row["cache_filling"]), default=None
            ),
            "cache_filling": sum(column(rows, "cache_filling")),
            "novelty_filling": mean([row["novelty"] for row in rows if row["cache_filling"]]),
            "novelty_after": mean([row["novelty"] for row in rows if not row["cache_filling"]]),
        }
        for group, rows in grouped(state.scores, lambda row: row["cache_group"]).items()
    ]


def dimension_effects(state: State) -> Answer:
    return [
        {"task_domain": domain, **part}
        for domain, rows in domains(state)
        for part in driven(
            rows, [in_force(state.settings, domain, row["created_at"])[1] for row in rows]
        )
    ]


def driven(rows: Sequence[Mapping[str, Any]], weights: Sequence[Sequence[float]]) -> Answer:
    """What each part of the scores makes of these rows, each with its weights in force."""
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


def _by_confidence(state: State) -> dict[tuple[Any, ...], list[Score]]:
    return grouped(state.scores, lambda row: (row["task_domain"], row["agent_id"]))


def confidence_bins(state: State) -> Answer:
    return [
        {
            "task_domain": domain,
            "agent_id": agent,
            "low": number / 10,
            "high": number / 10 + 0.1,
            "traces": len(own),
            "stated": mean(column(own, "confidence")),
            "happened": mean([float(row["success"]) for row in own]),
        }
        for (domain, agent), rows in _by_confidence(state).items()
        for number, own in grouped(rows, lambda row: min(int(row["confidence"] * 10), 9)).items()
    ]


def confidence_calibration(state: State) -> Answer:
    answer: Answer = []
    for (domain, agent), rows in _by_confidence(state).items():
        found = means(rows)
        answer.append(
            {
                "task_domain": domain,
                "agent_id": agent,
                "traces": found["traces"],
                "tasks": found["tasks"],
                "stated": found["confidence"],
                "happened": found["success"],
                **{name: found[name] for name in _OVER_TIME[1:]},
                **calibration(rows),
            }
        )
    return answer


def week_of(moment: datetime) -> Any:
    day = day_of(moment)
    return day - timedelta(days=day.weekday())


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


def dimension_statistics(state: State) -> Answer:
    return [
        {
            "task_domain": domain,
            "traces": len(rows),
            **{name: mean(column(rows, name)) for name in DIMENSIONS},
            "cache_filling": sum(column(rows, "cache_filling")),
            **{f"{name}_deviation": deviation(column(rows, name)) for name in DIMENSIONS},
        }
        for domain, rows in domains(state)
    ]


def override_effects(state: State) -> Answer:
    answer: Answer = []
    for domain, rows in domains(state):
        for place, name in enumerate(OVERRIDES):
            after = [effects(row, row["composite"]) for row in rows if row[name]]
            changes = [values[place + 1] - values[place] for values in after]
            if changes:
                answer.append(
                    {
                        "task_domain": domain,
                        "override": name,
                        "traces": len(changes),
                        "share": len(changes) / len(rows),
                        "mean_effect": sum(changes) / len(changes),
                        "total_effect": sum(changes),
                        "effect_on_mean": sum(changes) / len(rows),
                    }
                )
    return answer


def dated_weights(state: State) -> Answer:
    return [
        {
            "name": name,
            "valid_from": begin,
            "valid_to": end,
            **dict(zip(DIMENSIONS, weights, strict=True)),
        }
        for name, versions in state.settings.versions.items()
        for (begin, weights), (end, _) in pairwise([*versions, (None, None)])
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


def near_duplicates(state: State, similarity: float) -> Answer:
    names = ("trace_id", "task_domain", "created_at", "max_similarity", "nearest_trace_id")
    texts = {row["trace_id"]: row["text_hash"] for row in state.scores}
    return [
        {name: row[name] for name in (*names, "nearest_age_s", "score")}
        for row in state.scores
        if (row["max_similarity"] is not None and row["max_similarity"] >= similarity)
        or (similarity <= 1 and texts.get(row["nearest_trace_id"]) == row["text_hash"])
    ]


def novelty_by_age(state: State) -> Answer:
    edges = (0, 60, 3_600, 86_400, 604_800)
    near = [row for row in state.scores if row["nearest_age_s"] is not None]
    bands = grouped(near, lambda row: max(edge for edge in edges if row["nearest_age_s"] >= edge))
    return [
        {
            "from_age_s": edge,
            "traces": len(rows),
            "mean_novelty": mean(column(rows, "novelty")),
            "cache_filling": sum(column(rows, "cache_filling")),
            "median_novelty": median(column(rows, "novelty")),
        }
        for edge, rows in bands.items()
    ]


def cache_share_of_domain(state: State) -> Answer:
    caches: dict[str | None, Cache] = {}
    domain = {row["trace_id"]: row["task_domain"] for row in state.scores}
    answer: Answer = []
    for row in state.scores:  # in the order of the replay
        cache = caches.setdefault(row["cache_group"], Cache(state.settings))
        held = [domain[trace_id] for _, trace_id, _ in cache.at(row["created_at"])]
        if row["vector"] is not None:  # without an embedder no cache holds any
            cache.entries.append((row["created_at"], row["trace_id"], None))
        same = held.count(row["task_domain"])
        names = ("trace_id", "task_domain", "novelty")
        numbers = {"cache_size": len(held), "same_domain": same}
        share = same / len(held) if held else None
        answer.append({**{name: row[name] for name in names}, **numbers, "share": share})
    return answer


def novelty_by_repetition(state: State) -> Answer:
    seen: dict[str, int] = {}
    times: dict[int, list[Score]] = {}
    for row in state.scores:  # in the order of the replay
        before = seen.get(row["text_hash"], 0)
        seen[row["text_hash"]] = before + 1
        times.setdefault(min(before, 10), []).append(row)
    return [
        {
            "times_before": before,
            "traces": len(rows),
            "mean_novelty": mean(values := column(rows, "novelty")),
            "cache_filling": sum(column(rows, "cache_filling")),
            "least_novelty": min(values),
            "greatest_novelty": max(values),
        }
        for before, rows in times.items()
    ]


def _band(similarity: float | None) -> str:
    if similarity is None:
        return "empty cache"
    edges = {0.999999: "the same", 0.95: "0.95 to the same", 0.8: "0.80 to 0.95"}
    edges[0.5] = "0.50 to 0.80"
    return next((name for edge, name in edges.items() if similarity >= edge), "below 0.50")


def novelty_by_similarity(state: State) -> Answer:
    return [
        {
            "similarity": band,
            "traces": len(rows),
            "share": len(rows) / len(state.scores),
            "mean_novelty": mean(column(rows, "novelty")),
            "cache_filling": sum(column(rows, "cache_filling")),
            "mean_age_s": mean(column(rows, "nearest_age_s")),
        }
        for band, rows in grouped(state.scores, lambda row: _band(row["max_similarity"])).items()
    ]


def repeated_texts(state: State) -> Answer:
    return [
        {
            "text_hash": text,
            "traces": len(rows),
            "first_at": rows[0]["created_at"],
            "last_at": rows[-1]["created_at"],
            "mean_novelty": mean(column(rows, "novelty")),
            "cache_filling": sum(column(rows, "cache_filling")),
            "first_trace_id": rows[0]["trace_id"],
        }
        for text, rows in grouped(state.scores, lambda row: str(row["text_hash"])).items()
        if len(rows) > 1
    ]


def repeated_objectives(state: State) -> Answer:
    return [
        {
            "objective_hash": objective,
            "traces": len(rows),
            "texts": len({row["text_hash"] for row in rows}),
            "first_at": rows[0]["created_at"],
            "last_at": rows[-1]["created_at"],
            "mean_novelty": mean(column(rows, "novelty")),
            "success_rate": mean([float(row["success"]) for row in rows]),
            "first_trace_id": rows[0]["trace_id"],
        }
        for objective, rows in grouped(state.scores, lambda row: str(row["objective_hash"])).items()
        if len(rows) > 1
    ]


def novelty_weight(state: State, row: Score) -> float:
    return in_force(state.settings, row["task_domain"], row["created_at"])[1][1]


def shows_novelty(state: State, row: Score) -> bool:
    """Whether another novelty would have given another score than the recorded one."""
    return (
        (row["recorded_score"] or 0) > 0
        and not row["single_thought"]
        and novelty_weight(state, row) > 0
        and row["recorded_score"] < overridden({**row, "single_thought": False}, 1)
    )


def score_if_empty(state: State, row: Score) -> float:
    weights = in_force(state.settings, row["task_domain"], row["created_at"])[1]
    return overridden(row, composite({**row, "novelty": 0.5}, weights))


def implied_restarts(state: State, tolerance: float) -> Answer:
    names = ("trace_id", "created_at", "cache_group", "agent_id", "recorded_score", "score")
    return [
        {
            **{name: row[name] for name in names},
            "score_if_empty": score_if_empty(state, row),
            **{name: row[name] for name in ("cache_size", "source_file")},
        }
        for row in state.scores
        if shows_novelty(state, row)
        and row["cache_size"] > 0
        and abs(row["recorded_score"] - score_if_empty(state, row)) <= tolerance
        and abs(row["recorded_score"] - row["score"]) > tolerance
    ]


def largest_score_differences(state: State) -> Answer:
    names = ("trace_id", "created_at", "task_domain", "agent_id", "recorded_score", "score")
    more = ("max_similarity", "nearest_trace_id", "nearest_age_s", "cache_size", *OVERRIDES)
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
        "score_distribution": score_distribution,
        "score_histogram": score_histogram,
        "means_by": means_by,
        "scores_by_domain": _by("task_domain"),
        "scores_by_agent": _by("task_domain", "agent_id"),
        "scores_by_framework": _by("task_domain", "framework"),
        "scores_by_group": _by("cache_group"),
        "scores_by_day": _over_time("day", day_of),
        "scores_by_week": _over_time("week", week_of),
        "agent_rank_correlations": agent_rank_correlations,
        "differences_by": differences_by,
        "differences_from_others": lambda state, unit: differences_from_others(state.scores, unit),
        "paired_agents": _paired("agent_id"),
        "paired_frameworks": _paired("framework"),
        "paired_groups": _paired("cache_group"),
        "changes_by": changes_by,
        "mean_changes": lambda state, period: mean_changes(_dated(state), period.strip("'")),
        "domain_changes": lambda state, period: domain_changes(_dated(state), period.strip("'")),
        "threshold_curve": threshold_curve,
        "dimension_effects": dimension_effects,
        "confidence_bins": confidence_bins,
        "confidence_calibration": confidence_calibration,
        "cache_beginnings": cache_beginnings,
        "dimension_correlations": dimension_correlations,
        "dimension_statistics": dimension_statistics,
        "override_effects": override_effects,
        "dated_weights": dated_weights,
        "profile_comparison": profile_comparison,
        "what_if": what_if,
        "cache_share_of_domain": cache_share_of_domain,
        "near_duplicates": near_duplicates,
        "novelty_by_age": novelty_by_age,
        "novelty_by_repetition": novelty_by_repetition,
        "novelty_by_similarity": novelty_by_similarity,
        "repeated_texts": repeated_texts,
        "repeated_objectives": repeated_objectives,
        "implied_restarts": implied_restarts,
        "largest_score_differences": largest_score_differences,
        "recorded_score_differences": recorded_score_differences,
        "days_without_traces": days_without_traces,
        "timestamp_ties": timestamp_ties,
    }
)
# The arguments of macros, their ends among them.
ARGUMENTS: Mapping[str, Sequence[tuple[float | str, ...]]] = MappingProxyType(
    {
        "means_by": [("framework",), ("success",)],
        "differences_by": [("success", "true", "false")],
        "differences_from_others": [("agent_id",), ("framework",), ("success",)],
        "paired_agents": [("'a'", "'b'")],
        "paired_frameworks": [],
        "paired_groups": [],
        "changes_by": [("framework", "'month'"), ("success", "'day'")],
        "mean_changes": [(f"'{each}'",) for each in ("day", "week", "month", "quarter", "year")],
        "domain_changes": [("'day'",), ("'week'",)],
        "score_histogram": [(1,), (2,), (10,), (1000,)],
        "threshold_curve": [(1,), (4,), (100,)],
        "what_if": [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.1, 0.2, 0.3, 0.4)],
        "near_duplicates": [(-1,), (0,), (0.5,), (0.99,), (1,), (1.5,)],
        "implied_restarts": [(0,), (1e-6,), (0.1,), (1,)],
    }
)


def distributions(states: Iterable[State]) -> Answer:
    """The view of that name: a row for each domain, and one for all, after each run."""
    return [
        {
            "run_id": state.run_id,
            "task_domain": domain,
            "traces": len(rows),
            "worth_sharing": sum(column(rows, "meets_threshold")),
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
