"""Fleets of live engines whose caches and restarts are known: what their recorded scores show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Hashing
from kp_batch.novelty.cache import VectorCache, novelty
from kp_batch.operations.sweep import sweep
from kp_batch.operations.sweep_result import Sweep
from kp_batch.operations.sweep_values import SweepValues
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.facts import with_facts
from kp_batch.scoring.profiles import load_profiles
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
SIZES = (20, 60, 200)
EVERY = ("none", "agent_id", "host", "agent_id+host")
HOSTS, AGENTS, TRACES, RESTARTS = 8, 3, 1_000, 16


@dataclass(frozen=True)
class Fleet:
    """An archive with the scores that engines recorded, rescored with the engines' caches."""

    own: RescoreConfig
    cache_by: str
    restarted: frozenset[str]  # ids of the traces whose cache was empty for it
    others: Sweep  # what was swept while the current caches were not those of the engines


OTHER_FLEETS = [
    pytest.param(each, marks=pytest.mark.torture)
    for each in (("host", 20), ("agent_id", 60), ("none", 20))
]


@pytest.fixture(scope="module", params=[("host", 60), *OTHER_FLEETS])
def fleet(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fleet:
    cache_by, size = request.param
    dice = np.random.default_rng(size)
    archive = tmp_path_factory.mktemp("fleet")
    hosts = dice.integers(0, HOSTS, TRACES).tolist()
    traces = [task(number, dice) for number in range(TRACES)]
    groups = {
        "host": hosts,
        "agent_id": [row["metadata"]["agent_id"] for row in traces],
        "none": [None] * TRACES,
    }
    begun = set(dice.choice(np.arange(HOSTS * 8, TRACES), RESTARTS, replace=False).tolist())
    recorded = live(traces, groups[cache_by], size, begun)
    for row, value in zip(traces, recorded, strict=True):
        row["metadata"]["quality_score"] = value
    for host in range(HOSTS):
        (archive / f"host={host}").mkdir()
        own = [row for row, where in zip(traces, hosts, strict=True) if where == host]
        write_jsonl(archive / f"host={host}" / "traces.jsonl", own)
    folder = tmp_path_factory.mktemp("rescored")
    rescore_archive(config(folder, archive))
    others = swept(folder / "warehouse", *EVERY)
    own = config(folder, archive, cache_by=cache_by, cache_size=size)
    rescore_archive(own)
    return Fleet(own, cache_by, frozenset(traces[number]["id"] for number in begun), others)


def task(number: int, dice: np.random.Generator) -> dict[str, Any]:
    """A trace about some words, of which tasks share many; one in eight is a single thought."""
    words = " ".join(f"word{number}" for number in dice.integers(0, 120, 8))
    kinds = dice.choice(["thought", "tool_call", "observation", "error_recovery"], 4)
    steps = [step(str(kind), words[:9], "run" if kind == "tool_call" else None) for kind in kinds]
    return trace(
        id=f"kp:trace:{number:05d}",
        created_at=(BEGIN + number * timedelta(minutes=7)).isoformat(),
        task_domain=str(dice.choice(["code", "finance", "medical", "other"])),
        agent_id=f"agent-{dice.integers(0, AGENTS)}",
        objective=words,
        confidence=round(float(dice.random()), 3),
        steps=steps if number % 8 else [step("thought", words)],
    )


def live(
    traces: list[dict[str, Any]], groups: Iterable[object], size: int, begun: set[int]
) -> list[float]:
    """The scores that an engine for each group gives, whose cache is empty when it has begun."""
    rows = with_facts(rows_from_objects("", list(enumerate(traces))), reasons())
    caches: dict[object, VectorCache] = {}
    novelties: list[float] = []
    for number, (group, vector) in enumerate(
        zip(groups, Hashing().encode(rows["text"].to_list()), strict=True)
    ):
        if number in begun or group not in caches:
            caches[group] = VectorCache(size)
        now = rows["created_at"][number]
        similarity = caches[group].max_cosine_similarity(vector, now)
        caches[group].add(vector, now)
        novelties.append(0.5 if similarity is None else float(novelty(similarity)))
    versions = load_profiles()
    scored = rows.with_columns(*assign(versions), novelty=pl.Series(novelties))
    return scored.with_columns(composite(versions.profiles)).select(score()).to_series().to_list()


def swept(warehouse: Path, *cache_by: str) -> Sweep:
    return sweep(warehouse, SweepValues(cache_by=cache_by, cache_size=SIZES))


def share(row: Mapping[str, Any]) -> float:
    assert row["recorded"] > TRACES / 2
    assert row["recorded_share"] is not None
    return float(row["recorded_share"])


def error(row: Mapping[str, Any]) -> float:
    assert row["recorded_error"] is not None
    return float(row["recorded_error"])


def test_the_caches_that_engines_had_fit_their_recorded_scores_best(fleet: Fleet) -> None:
    rows = [row for row in fleet.others.variants if row["task_domain"] is None]
    best = max(rows, key=share)
    assert (best["cache_by"], best["cache_size"]) == (fleet.cache_by, fleet.own.cache_size)
    assert best is min(rows, key=error)
    assert share(best) > max(share(row) for row in rows if row is not best) + 0.05


@pytest.mark.telling
def test_restarts_are_found_by_the_empty_cache_that_they_left(fleet: Fleet) -> None:
    implied = {
        row[0]
        for row in ask_rows(fleet.own.warehouse, "SELECT trace_id FROM implied_restarts(1e-6)")
    }
    hidden = {
        row[0]
        for row in ask_rows(fleet.own.warehouse, "SELECT trace_id FROM scores WHERE single_thought")
    }
    hits = implied & fleet.restarted
    assert len(hits) / RESTARTS >= 0.7  # the recall; an eighth of the traces are single thoughts
    assert len(hits) / len(implied) >= 0.9  # the precision
    assert fleet.restarted - implied <= hidden
