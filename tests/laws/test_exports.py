"""Every export has the traces that a plain search over the archive finds."""

import json
import math
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kp_batch.exports.export import ExportResult, export
from kp_batch.exports.export_options import ExportOptions
from tests.support.oracle.exports import WHERE, Exported, exported
from tests.support.oracle.history import History
from tests.support.oracle.scoring import cosines

pytestmark = pytest.mark.slow

PER = ({"task_domain": 1}, {"objective": 1}, {"agent_id": 2, "task_domain": 3}, {"profile": 1000})
# Each alone, and each with each other that has other names.
CONDITIONS: list[dict[str, Any]] = [
    *({"min_score": score} for score in (None, 0.0, 0.45, 1.0)),
    *({"domain": domains} for domains in [("code",), ("code", "medical", "none"), ("none",)]),
    *({"since": day} for day in ("2026-01-05", "2026-01-06", "2026-01-15")),
    *({"until": day} for day in ("2026-01-04", "2026-01-06", "2026-01-14")),
    *({"where": where} for where in WHERE),
    *({"distinct": bound} for bound in (0.01, 0.3, 0.7, 0.9, 0.999, 1.0)),
    *({"top": top} for top in (1, 4, 1000)),
    {"success": True},
    *({"per": per} for per in PER),
    {"include_private": True},
    {"ids": ("kp:trace:😀", "kp:trace:A", "unknown", "kp:trace:é", "kp:trace:06")},
]


def pairs() -> list[dict[str, Any]]:
    """Of each two names the first values and the last ones."""
    by_names: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one, other in combinations(CONDITIONS, 2):
        if one.keys() != other.keys():
            by_names.setdefault((*one, *other), []).append({**one, **other})
    ends = [each for own in by_names.values() for each in (own[0], own[-1])]
    return [each for each in ends if in_order(each)]


def in_order(choice: dict[str, Any]) -> bool:
    """Whether no day is after another that is to be later: such a choice is refused."""
    return choice.get("since", "") <= choice.get("until", "9999")


@pytest.mark.telling
def test_law_an_export_has_the_traces_of_a_plain_search(history: History, tmp_path: Path) -> None:
    for wanted in [*CONDITIONS, *pairs()]:
        assert_exported(history, {"min_score": 0.0} | wanted, tmp_path / "a.jsonl")


def test_law_what_reaches_the_bound_is_similar(history: History, tmp_path: Path) -> None:
    there = [trace["id"] for trace in exported(history.last, history.present()).traces]
    rows = [row for row in history.last.scores if row["trace_id"] in there]
    pairs = [
        (bound, (one["trace_id"], other["trace_id"]))
        for one, other in combinations(rows, 2)
        for bound in cosines([one["vector"]], other["vector"])
        if bound > 0 and one["text_hash"] != other["text_hash"]
    ]
    for bound, ids in pairs[:: len(pairs) // 4]:
        for each, most in ((bound, 1), (math.nextafter(bound, 1), 2)):
            choice = {"min_score": 0.0, "distinct": each}
            result = assert_exported(history, choice, tmp_path / "a.jsonl", ids)
            assert result.exported == most


def test_law_so_has_one_of_a_drawn_archive(by_chance: History, tmp_path: Path) -> None:
    chance = random.Random(len(by_chance.last.scores))
    ids = ("unknown", *(row["trace_id"] for row in by_chance.last.scores[::3]))
    conditions = [{"ids": ids} if "ids" in each else each for each in CONDITIONS]
    for _ in range(8):
        wanted = {"min_score": chance.choice([0.0, 0.4]), "distinct": chance.choice([0.5, 0.8, 1])}
        for each in chance.sample(conditions, k=2):
            wanted |= each if in_order(wanted | each) else {}
        assert_exported(by_chance, wanted, tmp_path / "a.jsonl")


def assert_exported(
    history: History, choice: dict[str, Any], path: Path, ids: tuple[str, ...] = ()
) -> ExportResult:
    """The export has what the oracle states, of the traces with these ids if there are any."""
    choice = {**choice, "ids": ids} if ids else choice
    result = export(history.warehouse, ExportOptions(**choice), path, ending=".jsonl")
    expected = exported(history.last, history.present(), **choice)
    assert_counted(result, expected)
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [row["id"] for row in rows] == [row["id"] for row in expected.traces], choice
    scores = {row["trace_id"]: row["score"] for row in history.last.scores}
    for row, trace in zip(rows, expected.traces, strict=True):
        added = {"quality_score", "quality_score_from"}
        assert row["metadata"].pop("quality_score") == scores[row["id"]]
        assert row["metadata"].pop("quality_score_from")
        before = {name: value for name, value in trace["metadata"].items() if name not in added}
        assert row == {**trace, "metadata": before}
    return result


def assert_counted(result: ExportResult, expected: Exported) -> None:
    assert result.exported == len(expected.traces)
    assert [*result.conditions.values()] == expected.conditions
    dropped = ("dropped_similar", "dropped_by_per", "dropped_by_top")
    for name in ("chosen", "private", "not_found", *dropped):
        assert getattr(result, name) == getattr(expected, name), name


@pytest.mark.telling
def test_a_parquet_file_has_the_same_traces(history: History, tmp_path: Path) -> None:
    for wanted in ({}, {"distinct": 0.7}, {"top": 5}, {"include_private": True, "distinct": 1.0}):
        choice = {"min_score": 0.0, **wanted}
        path = tmp_path / "a.parquet"
        export(history.warehouse, ExportOptions(**choice), path, ending=".parquet")
        expected = exported(history.last, history.present(), **choice)
        ids = pq.read_table(path).column("id").to_pylist()
        assert ids == [trace["id"] for trace in expected.traces]
