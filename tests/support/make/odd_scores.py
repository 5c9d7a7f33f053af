"""Scores that are odd in one way each, made of planted ones, without a run."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Any

import polars as pl

from kp_batch.schemas import SCORES
from tests.support.make.drawn_scores import Drawn
from tests.support.make.planted import BEGIN, CACHE, LAST, TTL, WEIGHTS, plant
from tests.support.oracle.reports import Archive
from tests.support.oracle.scoring import Weights, composite, overridden

Row = dict[str, Any]
Odd = Callable[[random.Random, list[Row]], None]

NEVER = datetime(2100, 1, 1, tzinfo=UTC)  # no run is there that ended
_PLANTED: Weights = (0.5, 0.2, 0.1, 0.2)
_LATER: Weights = (0.2, 0.5, 0.1, 0.2)
_CHANGED = datetime.combine(LAST - timedelta(weeks=2), time(), UTC)
ODD_NAMES = (
    *('say "$HOME" `ls`', "it's", "new\nline", "\\", "!!", "x" * 60, "😀 é", "-a", "$(ls)", " "),
    *("a; DROP", "100%", "a" * 40, "{}", "a\tb"),
)
_ODD_DOMAINS = 'say "$HOME" `ls`', "it's", "\\", "!!", "100% {}", "-a"  # each its own label


def _as_planted(_: random.Random, __: list[Row]) -> None:
    pass


def _small_domains(chance: random.Random, rows: list[Row]) -> None:
    for row in rows:
        if chance.random() < 0.03:
            row["task_domain"] = f"tiny {chance.randrange(9)}"


def _one_domain(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["task_domain"] = "it's all"


def _one_task(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["objective_hash"] = "0" * 32


def _one_trace(_: random.Random, rows: list[Row]) -> None:
    del rows[1:]


def _nobody(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["agent_id"] = None


def _ties(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row |= {name: round(row[name], 1) for name in WEIGHTS}


def _all_the_same(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row.update(dict.fromkeys(WEIGHTS, 0.3), confidence=0.3, success=True)


def _all_failing(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["success"] = False


def _constant_confidence(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["confidence"] = 0.95


def _odd_agents(chance: random.Random, rows: list[Row]) -> None:
    for row in rows:
        number = int(chance.triangular(0, len(ODD_NAMES), 3))
        row["agent_id"] = chance.choice([ODD_NAMES[number], ODD_NAMES[number], None])
        row["framework"] = chance.choice([*ODD_NAMES[:4], None])
        row["confidence"] = 0.9 if number in {0, 5} else 0.5


def _odd_domains(_: random.Random, rows: list[Row]) -> None:
    names = sorted({row["task_domain"] for row in rows})
    for row in rows:
        row["task_domain"] = _ODD_DOMAINS[names.index(row["task_domain"])]


def _ranked_by_tools(chance: random.Random, rows: list[Row]) -> None:
    """Of many agents, those that use more tools score higher."""
    for row in rows:
        number = chance.randrange(12)
        row |= {"agent_id": f"a{number}", "n_tools": number + chance.randrange(2)}
        row["complexity"] += 0.03 * number - 0.15
        row["success"] = (number + row["success"]) % 3 > 0


def _ranked_backwards(chance: random.Random, rows: list[Row]) -> None:
    """Likewise, and they succeed less often."""
    _ranked_by_tools(chance, rows)
    for row in rows:
        row["success"] = chance.random() < 0.9 - 0.06 * int(row["agent_id"][1:])


def _dated_weights(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        if row["created_at"] >= _CHANGED:
            row |= {"weights": _LATER, "profile_id": "later"}


def _all_moved(_: random.Random, rows: list[Row]) -> None:
    """In the week before the last one and in the last one; the weeks before are those of code."""
    for row in rows:
        row["complexity"] += 0.2 * (row["date"] >= LAST - timedelta(weeks=1))
        if row["task_domain"] == "medical" and row["date"] < LAST:
            row["task_domain"] = "gone"


def _simple_ones_succeed(chance: random.Random, rows: list[Row]) -> None:
    """Single thoughts, which score least."""
    for row in rows:
        row["success"] = row["single_thought"] or chance.random() < 0.4


def _overrides(chance: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row["recovery_bonus"] = chance.random() < 0.3
        row["low_diversity_penalty"] = chance.random() < 0.2
        row["max_similarity"] = chance.choice([0.2, 0.97, None])


def _everywhere_warming_up(_: random.Random, rows: list[Row]) -> None:
    for row in rows:
        row |= {"cached_vectors": 3, "cache_group": row["trace_id"]}


def _two_sided(_: random.Random, rows: list[Row]) -> None:
    """What single thoughts gain is what they lose."""
    for place, row in enumerate(rows):
        row["single_thought"] = place % 50 == 0


ODD: Mapping[str, Odd] = MappingProxyType(
    {
        "as planted": _as_planted,
        "small domains": _small_domains,
        "one domain": _one_domain,
        "one task": _one_task,
        "one trace": _one_trace,
        "nobody": _nobody,
        "ties": _ties,
        "all the same": _all_the_same,
        "all failing": _all_failing,
        "constant confidence": _constant_confidence,
        "odd agents": _odd_agents,
        "odd domains": _odd_domains,
        "ranked by tools": _ranked_by_tools,
        "ranked backwards": _ranked_backwards,
        "dated weights": _dated_weights,
        "all moved": _all_moved,
        "simple ones succeed": _simple_ones_succeed,
        "overrides": _overrides,
        "everywhere warming up": _everywhere_warming_up,
        "two-sided": _two_sided,
    }
)


def make(name: str) -> Drawn:
    """The archive that is odd in that way, of the first week and the last ones."""
    chance = random.Random(name)
    is_between = pl.col("date").is_between(BEGIN, LAST - timedelta(weeks=5), closed="left")
    planted = plant(len(name)).rows.filter(~is_between)
    rows: list[Row] = [{**row, "weights": _PLANTED} for row in planted.iter_rows(named=True)]
    ODD[name](chance, rows)
    for row in rows:
        row["outcome_confidence"] = row["confidence"] * (1 if row["success"] else 0.3)
        row["composite"] = composite(row, row["weights"])
        row["score"] = overridden(row, row["composite"])
        row["meets_threshold"] = row["score"] >= 0.75
    _say_whether_caches_fill(rows)
    begins: dict[str, list[datetime | None]] = {"planted": [None], "default": [None]}
    if any(row["profile_id"] == "later" for row in rows):
        begins["default"] = [None, _CHANGED]
    tables = {
        "scores": [{column: row.get(column) for column in SCORES} for row in rows],
        "profiles": [
            {"profile_id": each, "name": name, **dict(zip(WEIGHTS, weights, strict=True))}
            | {"valid_from": valid}
            for each, name, weights, valid in (
                ("planted", "default", _PLANTED, [None]),
                ("later", "default", _LATER, [_CHANGED]),
            )[: len(begins["default"])]
        ],
        **{other: [] for other in ("runs", "distributions", "rejects")},
    }
    return Drawn(tables, Archive(rows, NEVER, begins, []))


def _say_whether_caches_fill(rows: list[Row]) -> None:
    first: dict[str, datetime] = {}
    for row in rows:
        begin = first.setdefault(row["cache_group"], row["created_at"])
        row["cache_warming_up"] = row["cached_vectors"] < CACHE and row["created_at"] - begin < TTL
