"""The rows of the view scores: traces scored one at a time, as the contract is written down."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import numpy as np

from kp_batch.embedding.encoders import load_encoder
from tests.support.oracle.accepted_rows import Row, moment_of, tool_of

Weights = tuple[float, float, float, float]  # of the four dimensions, in this order
Version = tuple[datetime | None, Weights]  # and from when on they hold; None: from the beginning
Score = dict[str, Any]

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
BUILT_IN: Mapping[str, Weights] = MappingProxyType(
    {
        "default": (0.25, 0.35, 0.15, 0.25),
        "finance": (0.20, 0.25, 0.10, 0.45),
        "code": (0.20, 0.30, 0.30, 0.20),
        "medical": (0.15, 0.20, 0.10, 0.55),
        "customer_service": (0.20, 0.30, 0.20, 0.30),
    }
)


@dataclass(frozen=True)
class Settings:
    """What a warehouse keeps; `profiles` are those of a file, each name's in the order of time."""

    embedder: str = "hashing"
    cache_size: int = 1000
    ttl: timedelta | None = None
    cache_by: tuple[str, ...] = ()
    threshold: float = 0.75
    profiles: Mapping[str, Sequence[Version]] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, list[Version]]:
        """All weights by name: the file's, and the built-in ones where these have not begun."""
        merged: dict[str, list[Version]] = {name: [(None, own)] for name, own in BUILT_IN.items()}
        for name, versions in self.profiles.items():
            starts_late = versions[0][0] is not None
            merged[name] = [*(merged.get(name, ()) if starts_late else ()), *versions]
        return merged

    def at(self, moment: datetime) -> dict[str, Weights]:
        """The weights at a time, by name."""
        begun = {
            name: [weights for begin, weights in versions if begin is None or begin <= moment]
            for name, versions in self.versions.items()
        }
        return {name: versions[-1] for name, versions in begun.items() if versions}


def cosines(vectors: Any, vector: Any) -> list[float]:
    """By the one summation that the contract states, whose bits depend on the pair alone."""
    left = np.ascontiguousarray(vectors, dtype=np.float64)
    right = np.ascontiguousarray(np.broadcast_to(vector, left.shape), dtype=np.float64)
    return [float(value) for value in np.einsum("ij,ij->i", left, right)]


def text_of(trace: Mapping[str, Any]) -> str:
    contents = (step.get("content") or "" for step in trace["steps"])
    return f"{trace['task']['objective']} {' '.join(contents)}"


def vectors_of(texts: Sequence[str], embedder: str) -> list[Any] | None:
    """The vector of each text; None without an embedder."""
    encoder = load_encoder(embedder)
    return None if encoder is None else list(encoder.encode(list(texts)))


def group_of(row: Row, cache_by: Sequence[str]) -> str | None:
    """What tells the trace's cache from others."""
    folders = row.source_file.split("/")[:-1]
    keys = {name: unquote(value) for name, _, value in (each.partition("=") for each in folders)}
    values = {name: row.value["metadata"].get(name, keys.get(name)) for name in sorted(cache_by)}
    return json.dumps(values, separators=(",", ":")) if values else None


def facts(trace: Mapping[str, Any]) -> Score:
    """What the trace alone says."""
    metadata, steps = trace["metadata"], trace["steps"]
    kinds = [step["type"] for step in steps]
    n, types, recoveries = len(steps), len(set(kinds)), kinds.count("error_recovery")
    carried = [name for name in map(tool_of, steps) if name is not None]
    tools = len(set(carried))
    return {
        **{
            name: metadata.get(name) for name in ("agent_id", "framework", "task_domain", "success")
        },
        "source_skill": trace.get("source_skill"),
        "recorded_score": metadata.get("quality_score"),
        "confidence": trace["outcome"]["confidence"],
        "objective_hash": hashlib.sha256(trace["task"]["objective"].encode()).hexdigest()[:32],
        "complexity": min(1, types / 4 * 0.5 + (0.3 if recoveries > 0 else 0) + n / 20 * 0.2),
        "tool_diversity": min(1, tools / max(1, n) * 3),
        "outcome_confidence": trace["outcome"]["confidence"] * (1 if metadata["success"] else 0.3),
        "single_thought": kinds == ["thought"],
        "recovery_bonus": recoveries > 2 and metadata["success"],
        "low_diversity_penalty": tools <= 1 and bool(carried),
        "n_steps": n,
        "n_tools": tools,
    }


def composite(row: Mapping[str, Any], weights: Weights) -> float:
    c, n, d, o = (row[name] for name in DIMENSIONS)
    return c * weights[0] + n * weights[1] + d * weights[2] + o * weights[3]


def overridden(row: Mapping[str, Any], value: float) -> float:
    """The score of a composite, by the trace's own conditions."""
    return effects(row, value)[-1]


def effects(row: Mapping[str, Any], value: float) -> list[float]:
    """The composite, and what each override leaves of the value before it."""
    first = 0.1 if row["single_thought"] else value
    second = min(1.0, first + 0.1) if row["recovery_bonus"] else first
    third = max(0.0, second - 0.1) if row["low_diversity_penalty"] else second
    return [value, first, second, third]


def weights_at(settings: Settings, domain: str, moment: datetime) -> tuple[str, Weights]:
    now = settings.at(moment)
    name = domain if domain in now else "default"
    return name, now[name]


def weighted(row: Mapping[str, Any], settings: Settings) -> Score:
    """The profile and the score of a row with its dimensions."""
    name, weights = weights_at(settings, row["task_domain"], row["created_at"])
    value = composite(row, weights)
    score = overridden(row, value)
    return {
        "profile": name,
        "composite": value,
        "score": score,
        "meets_threshold": score >= settings.threshold,
    }


@dataclass
class Cache:
    """First in, first out: what one group of traces has left of itself."""

    settings: Settings
    entries: list[tuple[datetime, str, Any]] = field(default_factory=list)  # time, trace_id, vector
    first: datetime | None = None  # of all that came

    def at(self, now: datetime) -> list[tuple[datetime, str, Any]]:
        """What is left at that time, the oldest first."""
        ttl = self.settings.ttl
        left = [entry for entry in self.entries if ttl is None or entry[0] > now - ttl]
        return left[-self.settings.cache_size :]

    def meet(self, now: datetime, vector: Any) -> Score:
        """The novelty of a vector at that time."""
        left = self.at(now)
        near = nearest(left, vector)
        # Against a zero vector, the trace's own or one in the cache, it is 0.
        zero = [] if vector.any() and all(entry[2].any() for entry in left) else [0.0]
        similarity = max([each[0] for each in near] + zero) if left else None
        first = near[0] if near and near[0][0] == similarity else None
        return {
            "novelty": 0.5 if similarity is None else min(1.0, max(0.0, 1 - similarity)),
            "max_similarity": similarity,
            "nearest_trace_id": first and first[2],
            "nearest_age_s": first and (now - first[1]).total_seconds(),
            "cached_vectors": len(left),
            "cache_warming_up": len(left) < self.settings.cache_size
            and (self.settings.ttl is None or now < (self.first or now) + self.settings.ttl),
        }


def nearest(entries: Sequence[tuple[datetime, str, Any]], vector: Any) -> list[tuple[Any, ...]]:
    """(similarity, time, trace_id) of those with a token, the most similar and oldest first."""
    real = [entry for entry in entries if entry[2].any()]
    if not real or not vector.any():
        return []
    similar = cosines([entry[2] for entry in real], vector)
    ranked = sorted(range(len(real)), key=lambda place: (-similar[place], place))
    return [(similar[place], *real[place][:2]) for place in ranked]


def replayed(
    rows: Sequence[Row], settings: Settings, restarts: Collection[str] = ()
) -> list[Score]:
    """Score the rows that count, in the order of the replay.

    Before the traces of `restarts` their caches are emptied. The rows are those of the view scores
    without run_id, encoder_id, cache_id and profile_id, with `vector`.
    """
    traces = [row.value for row in rows]
    texts = [text_of(trace) for trace in traces]
    vectors = vectors_of(texts, settings.embedder)
    caches: dict[str | None, Cache] = {}
    scores: list[Score] = []
    for number, (row, trace, text) in enumerate(zip(rows, traces, texts, strict=True)):
        now, group = moment_of(trace), group_of(row, settings.cache_by)
        cache = caches.setdefault(group, Cache(settings))
        met: Score = {"novelty": 0.5, "cached_vectors": 0, "cache_warming_up": False}
        if trace["id"] in restarts:
            cache.entries.clear()
        if vectors is not None:
            met = cache.meet(now, vectors[number])
            cache.first = cache.first or now
            cache.entries.append((now, trace["id"], vectors[number]))
        scored = {
            "trace_id": trace["id"],
            "created_at": now,
            **facts(trace),
            "max_similarity": None,
            "nearest_trace_id": None,
            "nearest_age_s": None,
            **met,
            "cache_group": group,
            "text_hash": hashlib.sha256(text.encode()).hexdigest(),
            "source_file": row.source_file,
            "vector": None if vectors is None else vectors[number],
        }
        scores.append({**scored, **weighted(scored, settings)})
    return scores


def day_of(moment: datetime) -> Any:
    return moment.astimezone(UTC).date()
