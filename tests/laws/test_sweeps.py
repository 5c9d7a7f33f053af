"""A sweep's variants are those of plain replays."""

from datetime import timedelta
from itertools import product

import pytest

from kp_batch.operations.sweep import sweep
from kp_batch.operations.sweep_values import SweepValues
from tests.support.oracle.answers import assert_same
from tests.support.oracle.history import History
from tests.support.oracle.sweeps import Cache, variants

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)


@pytest.mark.telling
def test_law_a_sweep_replays_as_plain_loops_do(history: History) -> None:
    groupings = [(), ("agent_id",), ("host",), ("agent_id", "task_domain")]
    caches = list(product(groupings, (1, 3, 1000), (None, HOUR, 20 * HOUR)))
    assert_swept(history, caches, [0.0, 0.1, 0.45, 0.6])  # a single thought scores 0.1


def test_law_so_does_one_of_a_drawn_archive(by_chance: History) -> None:
    caches = list(product([(), ("framework",)], (2, 20), (None, HOUR)))
    assert_swept(by_chance, caches, [0.5, 1.0])


def assert_swept(history: History, caches: list[Cache], thresholds: list[float]) -> None:
    groupings, sizes, ttls = (list(dict.fromkeys(each)) for each in zip(*caches, strict=True))
    values = {"cache_size": sizes, "ttl": ttls, "threshold": thresholds}
    result = sweep(history.warehouse, SweepValues(cache_by=groupings, **values))
    assert result.traces == len(history.last.scores)
    rows = [dict(row) for row in result.variants]
    wanted = [
        {**row, "cache_by": "+".join(row["cache_by"]) or "none", "ttl": shown(row["ttl"])}
        for row in variants(history.last, caches, thresholds)
    ]
    of_swept = [row for row in rows if _is_swept(row, wanted)]
    assert_same(of_swept, wanted)
    assert {row["is_current"] for row in rows if row not in of_swept} <= {True}


def _is_swept(row: dict[str, object], wanted: list[dict[str, object]]) -> bool:
    names = ("cache_by", "cache_size", "ttl", "threshold")
    return tuple(row[name] for name in names) in {
        tuple(each[name] for name in names) for each in wanted
    }


def shown(ttl: timedelta | None) -> str:
    if ttl is None:
        return "none"
    return f"{ttl // HOUR}h"
