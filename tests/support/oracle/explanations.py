"""Why a score is what it is: its sum, and what it met."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tests.support.oracle.accepted_rows import tool_of
from tests.support.oracle.history import State
from tests.support.oracle.scoring import (
    DIMENSIONS,
    Cache,
    Score,
    Settings,
    composite,
    cosines,
    effects,
    facts,
    nearest,
    overridden,
    text_of,
    vectors_of,
    weighted,
    weights_at,
)

OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")
_NEIGHBOURS = 5
Entries = list[tuple[datetime, str, Any]]


def breakdown(row: Score, settings: Settings) -> dict[str, Any]:
    """The sum, without the ids of its weights."""
    name, weights = weights_at(settings, row["task_domain"], row["created_at"])
    values = effects(row, composite(row, weights))
    terms = [
        {"dimension": each, "value": row[each], "weight": weight, "product": row[each] * weight}
        for each, weight in zip(DIMENSIONS, weights, strict=True)
    ]
    overrides = [
        {"name": each, "applies": row[each], "change": values[at + 1] - values[at]}
        for at, each in enumerate(OVERRIDES)
    ]
    return {
        "profile": name,
        "terms": terms,
        "composite": values[0],
        "overrides": overrides,
        "score": values[-1],
    }


def by_profile(row: Score, settings: Settings) -> dict[str, float]:
    """The score under each profile as at the time of the row."""
    now = settings.at(row["created_at"])
    return {name: overridden(row, composite(row, weights)) for name, weights in now.items()}


def counts(trace: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [step["type"] for step in trace["steps"]]
    tools = [tool for tool in map(tool_of, trace["steps"]) if tool is not None]
    return {
        "n_steps": len(kinds),
        "n_types": len(set(kinds)),
        "n_recoveries": kinds.count("error_recovery"),
        "n_tool_steps": len(tools),
        "n_tools": len(set(tools)),
        "confidence": trace["outcome"]["confidence"],
        "success": trace["metadata"]["success"],
    }


def met(state: State, row: Score) -> Entries:
    """The cache of a trace when it came."""
    place = next(at for at, each in enumerate(state.scores) if each["trace_id"] == row["trace_id"])
    return _cache(state, row["cache_group"], state.scores[:place]).at(row["created_at"])


def _cache(state: State, group: str | None, rows: list[Score]) -> Cache:
    entries = [
        (each["created_at"], each["trace_id"], each["vector"])
        for each in rows
        if each["cache_group"] == group
    ]
    return Cache(state.settings, entries)


def contents(state: State, entries: Entries) -> dict[str, Any]:
    """Of a cache, without its capacity and ttl."""
    domains = {row["trace_id"]: row["task_domain"] for row in state.scores}
    return {
        "size": len(entries),
        "oldest": entries[0][0].isoformat() if entries else None,
        "newest": entries[-1][0].isoformat() if entries else None,
        "domains": dict(Counter(domains[trace_id] for _, trace_id, _ in entries)),
    }


def neighbours(state: State, entries: Entries, vector: Any, now: datetime) -> list[dict[str, Any]]:
    """The most similar first."""
    rows = {row["trace_id"]: row for row in state.scores}
    return [
        {
            "trace_id": trace_id,
            "task_domain": rows[trace_id]["task_domain"],
            "created_at": moment.isoformat(),
            "similarity": similarity,
            "age_s": (now - moment).total_seconds(),
        }
        for similarity, moment, trace_id in nearest(entries, vector)[:_NEIGHBOURS]
    ]


def nearest_of_all(
    state: State, row: Mapping[str, Any], now: datetime, most: int
) -> list[dict[str, Any]]:
    """The most similar traces of the archive, whenever they were made; not the row's own."""
    others = {
        each["trace_id"]: each for each in state.scores if each["trace_id"] != row["trace_id"]
    }
    entries = [(each["created_at"], name, each["vector"]) for name, each in others.items()]
    return [
        {
            "trace_id": trace_id,
            "task_domain": others[trace_id]["task_domain"],
            "created_at": moment.isoformat(),
            "similarity": similarity,
            "age_s": (now - moment).total_seconds(),
            "is_same_text": others[trace_id]["text_hash"] == row["text_hash"],
            "score": others[trace_id]["score"],
        }
        for similarity, moment, trace_id in nearest(entries, row["vector"])[:most]
    ]


def repeating(state: State, similarity: float) -> dict[str, float]:
    """How many traces repeat an earlier one: its text, its objective, or nearly its vector."""
    count: Counter[str] = Counter()
    for place, row in enumerate(state.scores):
        earlier = state.scores[:place]
        is_same_text = any(each["text_hash"] == row["text_hash"] for each in earlier)
        count["exact_repeats"] += is_same_text
        count["same_objective"] += any(
            each["objective_hash"] == row["objective_hash"] for each in earlier
        )
        vectors = [each["vector"] for each in earlier if each["vector"].any()]
        is_near = (vectors and row["vector"].any()) and (
            any(value >= similarity for value in cosines(vectors, row["vector"]))
            or any((vector == row["vector"]).all() for vector in vectors)
        )
        count["near_repeats"] += bool(is_near and not is_same_text)
        count["all_repeats"] += bool(is_near or is_same_text)
    names = ("exact_repeats", "near_repeats", "all_repeats", "same_objective")
    shares = dict.fromkeys(("share", "low", "high"), count["all_repeats"] / len(state.scores))
    return {name: count[name] for name in names} | shares


def newcomer(state: State, trace: Mapping[str, Any], now: datetime, group: str | None) -> Score:
    """A trace that comes next to the cache of a group, in the place of the one of its id."""
    others = [
        row
        for row in state.scores
        if row["created_at"] <= now and row["trace_id"] != trace.get("id")
    ]
    cache = _cache(state, group, others)
    vectors = vectors_of([text_of(trace)], state.settings.embedder)
    assert vectors
    row = {**facts(trace), "created_at": now, **cache.meet(now, vectors[0])}
    scored = row | weighted(row, state.settings)
    return {**scored, "neighbours": neighbours(state, cache.at(now), vectors[0], now)}
