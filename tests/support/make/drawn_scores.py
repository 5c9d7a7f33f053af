"""Tables of scores without a run: such as a test states, or such as chance makes, of few values."""

import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import polars as pl

from kp_batch.schemas import SCORES, TABLES
from kp_batch.warehouse.run_record import RunCounts
from tests.support.make.planted import CACHE, TTL
from tests.support.oracle.reports import Archive, day_of
from tests.support.oracle.scoring import DIMENSIONS, Weights, composite, overridden
from tests.support.oracle.statistics import bins, grouped, spread

Row = dict[str, Any]
Begins = Mapping[str, Sequence[datetime | None]]
ENDED = datetime(2026, 2, 1, 12, 30, tzinfo=UTC)  # the last run
THRESHOLD = 0.75
_WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        "default-1": (0.25, 0.35, 0.15, 0.25),
        "default-2": (0.4, 0.2, 0.2, 0.2),
        "d0-1": (0.0, 0.5, 0.5, 0.0),
    }
)
FROM_THE_BEGINNING: Begins = MappingProxyType({"default": (None,)})
# How long ago traces are: from an hour to centuries; some archives have them in the future.
_AGO = (3e3, 1e5, 3e6, 3e7, 3e8, 6e9)
_NAMES = ("tea", "lamp", "river", "apple", "stone", "cloud", "salt")


@dataclass(frozen=True)
class Drawn:
    """The rows of the tables, and what a report is of that has these."""

    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    archive: Archive


def row(number: int, **changes: Any) -> Row:
    """A row of the view scores, with what the table has besides; `task` is what it is about."""
    task = changes.pop("task", f"task {number}")
    own: Row = {
        "trace_id": f"kp:trace:{number:03d}",
        "created_at": ENDED - timedelta(days=1),
        "task_domain": "code",
        "agent_id": "a",
        "framework": "x",
        "source_skill": None,
        "success": True,
        "confidence": 0.7,
        "recorded_score": None,
        "complexity": 0.2,
        "novelty": 0.5,
        "tool_diversity": 1.0,
        "outcome_confidence": 0.7,
        "single_thought": False,
        "recovery_bonus": False,
        "low_diversity_penalty": False,
        "n_steps": 2,
        "n_tools": 1,
        "text_hash": task,
        "objective_hash": hashlib.sha256(task.encode()).hexdigest()[:32],
        "cache_group": "one",
        "cached_vectors": CACHE,
        "max_similarity": 0.5,
        "nearest_trace_id": None,
        "nearest_age_s": None,
        "profile_id": "default-1",
        **changes,
    }
    own |= {"date": day_of(own["created_at"]), "weights": _WEIGHTS[own["profile_id"]]}
    own["profile"] = own["profile_id"].rpartition("-")[0]
    own["composite"] = composite(own, own["weights"])
    own["score"] = changes.get("score", overridden(own, own["composite"]))
    return own | {"meets_threshold": own["score"] >= THRESHOLD}


def made(
    rows: Sequence[Row],
    before: Sequence[Row] = (),
    begins: Begins = FROM_THE_BEGINNING,
    encoders: tuple[str, str] = ("a", "a"),
    reasons: Sequence[Sequence[str]] = (),
) -> Drawn:
    """The tables that two runs left.

    Args:
        rows: the scores that the last one left.
        before: those that the one before left.
        begins: from when on each weights hold.
        encoders: of each run.
        reasons: of each rejected row.
    """
    rows = _with_cache_warming_up(rows)
    runs = [_by_domain(side) for side in (before, rows)]
    tables = {
        "scores": [{name: each.get(name) for name in SCORES} for each in rows],
        "profiles": _profiles(begins),
        "runs": [_run(number, each) for number, each in enumerate(encoders)],
        "distributions": [each for number, run in enumerate(runs) for each in _spread(number, run)],
        "rejects": [{"reasons": each, "source_file": "a.jsonl", "row": 1} for each in reasons],
    }
    comparable = encoders[0] == encoders[1]
    return Drawn(tables, Archive(rows, ENDED, begins, runs, comparable, reasons))


def write(drawn: Drawn, folder: Path) -> None:
    """Replace the tables of a catalog that `planted.build_catalog` made in that folder."""
    for name, rows in drawn.tables.items():
        pl.DataFrame(rows, TABLES[name]).write_parquet(folder / f"{name}.parquet")


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    """The catalog in a folder, as `warehouse.reader.connect` opens one."""
    connection = duckdb.connect(str(folder / "kp.duckdb"), read_only=True)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def draw(seed: int) -> Drawn:
    """The archive of a seed."""
    chance = random.Random(seed)
    domains = [f"d{number}" for number in range(chance.choice([1, 2, 5, 10, 11, 16, 16]))]
    times = _Times(chance)
    begin = times.draw(chance)
    begins = {"default": [None, begin], "d0": [chance.choice([None, begin])]}
    rate = chance.choice([0.02, 0.5])  # of most traces the first domains have
    shares = [math.exp(-rate * number) for number in range(len(domains))]
    rows = [
        _score(chance, number, domain, times, begins)
        for number, domain in enumerate(chance.choices(domains, shares, k=_number(chance)))
    ]
    kept = chance.choice([0.7, 1])
    before = [each for each in rows if chance.random() < kept and each["task_domain"] != "d1"]
    before = [{**each, "score": chance.random()} for each in before]
    went = [{**each, "task_domain": "gone"} for each in before[: chance.randrange(2)]]
    encoders = chance.choice([("a", "a"), ("a", "b"), ("a", "a b"), ("a b", "a b")])
    reasons = [chance.choices(["no_steps", "bad_confidence"], k=2) for _ in range(3)]
    return made(rows, before + went, begins, encoders, reasons)


def _number(chance: random.Random) -> int:
    return chance.choice([1, chance.randint(2, 20), *[chance.randint(100, 400)] * 4])


class _Times:
    """When the traces of an archive were made."""

    def __init__(self, chance: random.Random) -> None:
        self._ago = chance.choice(_AGO)
        self._far = chance.choice([0, 0, 0.01, 0.1])  # how many are elsewhere
        self._days = chance.choice([0, 3])  # on so few days, or on any

    def draw(self, chance: random.Random) -> datetime:
        ago = chance.uniform(0, self._ago)
        if chance.random() < self._far:
            ago = chance.choice([-1e5, -1e9, 1e8, 2e9])
        if self._days:
            ago = round(ago / self._ago * self._days) * self._ago / self._days
        return ENDED - timedelta(seconds=round(ago))


def _score(chance: random.Random, number: int, domain: str, times: _Times, begins: Begins) -> Row:
    now = times.draw(chance)
    own = [begin for begin in begins.get(domain, ()) if begin is None or begin <= now]
    later = sum(begin is not None and begin <= now for begin in begins["default"])
    met = chance.random() < 0.9
    return row(
        number,
        trace_id=f"{chance.choice('aZé')}{number}",
        task=chance.choice([*_NAMES, f"{domain} {number}"]),
        created_at=now,
        task_domain=domain,
        agent_id=chance.choice([None, "a", "a", "b", "é", "Z"]),
        framework=chance.choice(["x", "y", None]),
        success=chance.random() < 0.6,
        confidence=chance.choice([0.0, 0.3, 0.7, 0.9, 1.0]),
        recorded_score=chance.choice([None, 0.0, 0.25, 0.7]),
        complexity=chance.choice([0.0, 0.2, 0.5]),
        novelty=chance.choice([0.0, 0.5, 1.0, chance.random()]),
        tool_diversity=chance.choice([0.0, 1.0]),
        outcome_confidence=chance.choice([0.0, 0.5, 1.0]),
        single_thought=chance.random() < 0.1,
        recovery_bonus=chance.random() < 0.1,
        low_diversity_penalty=chance.random() < 0.3,
        n_tools=chance.randrange(4),
        cache_group=chance.choice(["one", "two"]),
        cached_vectors=chance.choice([0, CACHE - 1, CACHE]),
        max_similarity=chance.choice([0.2, 0.95, 1.0]) if met else None,
        nearest_trace_id="a0" if met else None,
        nearest_age_s=chance.choice([0.0, 0.5, 1e5]) if met else None,
        profile_id="d0-1" if own else f"default-{1 + later}",
    )


def _with_cache_warming_up(rows: Sequence[Row]) -> list[Row]:
    groups = grouped(rows, itemgetter("cache_group"))
    first = {name: min(each["created_at"] for each in own) for name, own in groups.items()}
    return [
        {
            **each,
            "cache_warming_up": each["cached_vectors"] < CACHE
            and each["created_at"] - first[each["cache_group"]] < TTL,
        }
        for each in rows
    ]


def _by_domain(rows: Iterable[Row]) -> dict[str, list[float]]:
    return {
        name: [each["score"] for each in own]
        for name, own in grouped(rows, itemgetter("task_domain")).items()
    }


def _profiles(begins: Begins) -> list[Row]:
    return [
        {
            "profile_id": f"{name}-{number}",
            "name": name,
            **dict(zip(DIMENSIONS, _WEIGHTS[f"{name}-{number}"], strict=True)),
            "valid_from": [begin],
        }
        for name, own in begins.items()
        for number, begin in enumerate(own, 1)
    ]


def _run(number: int, encoders: str) -> Row:
    """A row of runs, of one that is done."""
    empty = {"dict[str, int]": {}, "list[str]": []}
    settings = {"embedder": "hashing", "threshold": THRESHOLD}
    as_json = {
        "config": settings,
        "inputs": {},
        "changes": [],
        "counts": {each.name: empty.get(str(each.type), 1) for each in fields(RunCounts)},
        "seconds": {},
        "versions": dict.fromkeys(("facts", "encoder", "replay", "scoring"), 1),
        "fingerprints": {"encoder_id": dict.fromkeys(encoders.split(), 1), "profile_id": {}},
        "published": {"number": number, "publication": f"{number:032x}", "settings": settings},
        "audits": [],
    }
    return {
        "run_id": f"run {number}",
        "started_at": ENDED - timedelta(days=2 - number),
        "finished_at": ENDED - timedelta(days=1 - number),
        "status": "done",
        "user": "me",
        **{name: json.dumps(value) for name, value in as_json.items()},
    }


def _spread(number: int, run: Mapping[str, Sequence[float]]) -> list[Row]:
    """The rows of distributions that a run leaves."""
    whole = [score for own in run.values() for score in own]
    sides = {None: whole, **run} if whole else {}
    return [
        {
            "run_id": f"run {number}",
            "task_domain": name,
            "traces": len(own),
            "at_threshold": sum(score >= THRESHOLD for score in own),
            "mean": round(sum(own) / len(own), 12),
            **spread(own),
            "bins": bins(own),
        }
        for name, own in sides.items()
    ]
