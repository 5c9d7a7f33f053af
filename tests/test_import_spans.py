"""One run comes to the same trace, whichever system of spans tells it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.importers.catalogue import FORMATS
from kp_batch.importers.rules import load_rules
from kp_batch.operations.importing import import_traces
from kp_batch.pipeline.rescore import rescore_archive
from tests.answers import ask
from tests.importing import imported
from tests.told_runs import SYSTEMS, TRACE, Step, call, result, says, user

RULES = load_rules(
    None,
    {
        "recovery": "after_tool_error",
        "success": {"always": True},
        "confidence": {"always": 0.5},
        "task_domain": {"otherwise": "default"},
    },
)
ASK = [user("where is it?")]
LOOK = call("look", "c1", at=1)
ROOT = Step("agent", "a", "", 0, 60, name="helper")
AFTER = [*ASK, says("hm", LOOK), result("c1", "found")]
LOOKS = Step("model", "m", "a", 1, 2, ASK, says("hm", LOOK))
LOOKED = Step("tool", "t", "a", 3, 8, {"at": 1}, "found", "look", "c1")
THERE = Step("model", "z", "a", 9, 10, AFTER, says("there"))
T, C, R = "thought", "tool_call", "observation"
# What was done, and the types of the steps that it comes to.
RUNS: dict[str, tuple[Sequence[Step], list[str]]] = {
    "a model, a tool, a model": ([ROOT, LOOKS, LOOKED, THERE], [T, C, R, T]),
    "a model within the tool that a model's span holds": (
        [
            ROOT,
            replace(LOOKS, end=8),
            replace(LOOKED, parent="m", end=7),
            Step("model", "i", "t", 4, 5, [user("look at 1")], says("it is here")),
            THERE,
        ],
        [T, C, R, R, T, T],
    ),
    "a model within a chain within a tool within a model, and no more": (
        [
            ROOT,
            Step("model", "m", "a", 1, 8, ASK, says("hm")),
            Step("tool", "t", "m", 2, 7, {"at": 1}, "found", "look", "c1"),
            Step("chain", "c", "t", 3, 6, name="inner"),
            Step("model", "i", "c", 4, 5, ASK, says("it is here")),
        ],
        [T, C, R, T],
    ),
    "an agent below an agent": (
        [
            ROOT,
            LOOKS,
            LOOKED,
            Step("agent", "b", "t", 4, 7, name="finder"),
            Step("model", "i", "b", 5, 6, [user("look at 1")], says("it is here")),
            THERE,
        ],
        [T, C, R, R, T, T],
    ),
    "a call of a model that is tried again": (
        [ROOT, replace(LOOKS, id="l", start=0.5, end=0.7, answer=None), LOOKS, LOOKED, THERE],
        [T, C, R, T],
    ),
    "a tool that is tried again": (
        [
            ROOT,
            LOOKS,
            replace(LOOKED, answer="no", failed=True, end=4),
            Step("model", "n", "a", 5, 6, [*ASK], says("again", call("look", "c2", at=1))),
            replace(LOOKED, id="u", call="c2", start=7),
            THERE,
        ],
        [T, C, R, "error_recovery", C, R, T],
    ),
    "tools at once": (
        [
            ROOT,
            replace(LOOKS, answer=says("both", LOOK, call("see", "c2", at=2))),
            replace(LOOKED, id="y", end=4),
            replace(LOOKED, id="b", name="see", call="c2", given={"at": 2}, answer="seen"),
            replace(THERE, given=[*AFTER, result("c2", "seen")]),
        ],
        [T, C, C, R, R, T],
    ),
    "spans of one call within each other": (
        [
            ROOT,
            replace(LOOKS, end=2.5),
            Step("chain", "c", "m", 1, 2.4, name="client"),
            replace(LOOKS, id="n", parent="c", start=1, end=2),
            replace(LOOKS, id="o", parent="n", start=1.5, end=2),
            LOOKED,
            replace(LOOKED, id="u", parent="t", start=3, end=7),
            THERE,
        ],
        [T, C, R, T],
    ),
    "a span around a call that tells no answer": (
        [
            ROOT,
            replace(LOOKS, answer=None, end=2.5),
            replace(LOOKS, id="n", parent="m"),
            LOOKED,
            THERE,
        ],
        [T, C, R, T],
    ),
    "a retriever, and one that a tool asks": (
        [
            ROOT,
            Step("retriever", "r", "a", 0.5, 0.9, {"query": "it"}, "a page", "find", "c0"),
            LOOKS,
            LOOKED,
            Step("chain", "c", "t", 4, 6, name="search"),
            Step("retriever", "q", "c", 5, 6, {"query": "at 1"}, "a page", "find", "c9"),
            THERE,
        ],
        [C, R, T, C, R, T],
    ),
}


def told(tmp_path: Path, system: str, run: Sequence[Step]) -> dict[str, Any]:
    folder, archive = tmp_path / system, tmp_path / f"{system} archive"
    SYSTEMS[system](folder, run)
    import_traces(FORMATS[system.partition(" ")[0]], [str(folder)], archive, RULES)
    (row,) = imported(archive).values()
    return row


def steps(row: dict[str, Any]) -> list[tuple[object, ...]]:
    """Its steps; arguments may be written with spaces or without."""
    return [
        (each["type"], each["content"], each["tool"], each["input"] and json.loads(each["input"]))
        for each in row["steps"]
    ]


@pytest.mark.parametrize("name", RUNS)
def test_every_system_tells_the_same_run(tmp_path: Path, name: str) -> None:
    run, types = RUNS[name]
    rows = {system: told(tmp_path, system, run) for system in SYSTEMS}
    first = rows["otlp"]
    assert (first["id"], first["task"]["objective"]) == (f"kp:trace:{TRACE}", "where is it?")
    assert [each["type"] for each in first["steps"]] == types
    for system, row in rows.items():
        assert steps(row) == steps(first), system
        assert row["task"] == first["task"]
        assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000000Z"


def test_and_so_it_has_the_same_complexity_and_score(tmp_path: Path) -> None:
    run, _ = RUNS["a model within the tool that a model's span holds"]
    scores: set[tuple[object, ...]] = set()
    for system in SYSTEMS:
        told(tmp_path, system, run)
        warehouse = tmp_path / f"{system} warehouse"
        archive = (str(tmp_path / f"{system} archive" / "*.parquet"),)
        rescore_archive(RescoreConfig(archive=archive, warehouse=warehouse, embedder="hashing"))
        scores |= {*ask(warehouse, "SELECT complexity, novelty, score FROM scores").rows()}
    assert len(scores) == 1
