"""Scores at the bounds that questions draw, and next to them, without a run."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.make.drawn_scores import ENDED, THRESHOLD, Row, made, row, write
from tests.support.make.planted import CACHE, TTL, build_catalog
from tests.support.oracle.accepted_rows import Counted
from tests.support.oracle.history import State
from tests.support.oracle.scoring import Settings, overridden

_BEGIN = ENDED - timedelta(days=100)
_SCORES = (0.07, 0.25, 0.29, 1 / 3, 0.5, 0.57, 2 / 3, THRESHOLD, 1.0)
_SIMILARITIES = (0.5, 0.8, 0.95, 0.99, 0.999999, 1.0)
_AGES_S = (60.0, 3_600.0, 86_400.0, 604_800.0)
_NOTHING = dict.fromkeys(("complexity", "tool_diversity", "outcome_confidence"), 0.0)
_ALL = dict.fromkeys(_NOTHING, 1.0)


def scores_at_bounds(folder: Path) -> State:
    """Build a catalog over them in a folder; the state of which its questions are asked."""
    rows = [_in_one_cache(number, changes) for number, changes in enumerate(_all())]
    rows += [_alone(1_000, _BEGIN), _alone(1_001, _BEGIN + TTL)]
    drawn = made(rows)
    build_catalog(folder)
    write(drawn, folder)
    settings = Settings(cache_size=CACHE, ttl=TTL, threshold=THRESHOLD)
    scores = [{"vector": True, "source_file": None, **each} for each in drawn.archive.scores]
    return State("run 1", settings, {}, Counted([], [], 0, 0, 0), scores)


def _in_one_cache(number: int, changes: Row) -> Row:
    usual = {
        "task_domain": "any",
        "agent_id": "ab"[number % 2],
        "success": number % 3 > 0,
        "task": f"task {number // 2 % 12}",
        "cached_vectors": min(number, CACHE),
    }
    return row(number, created_at=_BEGIN + timedelta(hours=4 * number), **{**usual, **changes})


def _alone(number: int, moment: Any) -> Row:
    """In a cache that is empty again, exactly when its ttl has passed."""
    return row(number, created_at=moment, cache_group="two", cached_vectors=0, task_domain="two")


def _all() -> list[Row]:
    scores = [{"score": each} for bound in _SCORES for each in _near(bound)]
    similar = [{"max_similarity": each} for bound in _SIMILARITIES for each in _near(bound)]
    ages = [{"nearest_age_s": age + by} for age in _AGES_S for by in (-1e-6, 0.0)]
    copy = {"task": "again", "nearest_trace_id": "kp:trace:000"}
    copies = [{"task": "again"}, {**copy, "max_similarity": math.nextafter(1, 0)}]
    few = [{"task_domain": "few", "task": f"few {number}"} for number in range(5)]
    later = [{**each, "score": 0.9 + number / 100} for number, each in enumerate(few)]
    return [*copies, *few, *scores, *similar, *ages, *_recorded(), *_of_agents(), *later]


def _near(bound: float) -> list[float]:
    return [math.nextafter(bound, 0), bound, *([math.nextafter(bound, 2)] * (bound < 1))]


def _recorded() -> list[Row]:
    """Recorded scores at the threshold, at the highest, and of an empty cache."""
    empty = row(0, novelty=0.5)["score"]
    return [
        *({"recorded_score": THRESHOLD, "score": each} for each in _near(THRESHOLD)),
        *({"recorded_score": each, "score": THRESHOLD} for each in _near(THRESHOLD)),
        {"recorded_score": 1.0},
        {"recorded_score": overridden(_PENALTY, 1.0), "low_diversity_penalty": True},
        {"recorded_score": empty, "novelty": 0.9},
        {"recorded_score": empty, "novelty": 0.5},
        {"recorded_score": 1.0, **_ALL, "novelty": 0.0, "recovery_bonus": True},
        {"recorded_score": 0.0, **_NOTHING, "novelty": 1.0, "low_diversity_penalty": True},
    ]


_PENALTY = row(0, low_diversity_penalty=True)


def _of_agents() -> list[Row]:
    """As few agents as can be ranked, as many ties as may be, in one order and the other."""
    five = [("five", number, number) for number in range(5)]
    against = [("against", number, 5 - number) for number in range(5)]
    four = [("four", number, number) for number in range(4)]
    tied = [("tied", number, max(0, number - 2)) for number in range(6)]
    return [
        {"task_domain": name, "agent_id": f"agent {agent}", "score": agent / 10, "n_tools": tools}
        for name, agent, tools in (*five, *against, *four, *tied)
    ] + [{"task_domain": "equal", "score": 0.3}] * 3
