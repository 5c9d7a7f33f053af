"""One run comes to the same trace, whichever system of spans tells it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from kp_batch.imports.run import import_traces
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.agent_runs import LOOKS, ROOT, RUNS, SYSTEMS, TRACE, Step
from tests.support.importing import imported
from tests.support.queries import ask

RULES = load_rules(
    None,
    {
        "recovery": "after_tool_error",
        "success": {"always": True},
        "confidence": {"always": 0.5},
        "task_domain": {"otherwise": "default"},
    },
)


def row_of(tmp_path: Path, system: str, run: Sequence[Step]) -> dict[str, Any]:
    folder, archive = tmp_path / system, tmp_path / f"{system} archive"
    SYSTEMS[system](folder, run)
    import_traces(FORMATS[system.partition(" ")[0]], [str(folder)], archive, RULES)
    (row,) = imported(archive).values()
    return row


def steps(row: dict[str, Any]) -> list[tuple[object, ...]]:
    """Its steps; arguments may be written with spaces or without."""
    return [
        (step["type"], step["content"], step["tool"], step["input"] and json.loads(step["input"]))
        for step in row["steps"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_system_tells_the_same_run_in_whatever_order(tmp_path: Path, name: str) -> None:
    run, types = RUNS[name]
    rows = {system: row_of(tmp_path, system, run[:: (-1) ** n]) for n, system in enumerate(SYSTEMS)}
    first = rows["otlp"]
    assert (first["id"], first["task"]["objective"]) == (f"kp:trace:{TRACE}", "where is it?")
    assert [step["type"] for step in first["steps"]] == types
    for system, row in rows.items():
        assert steps(row) == steps(first), system
        assert row["task"] == first["task"]
        assert row["native"]["system"] == system.partition(" ")[0]
        assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000000Z"


def test_a_text_that_a_model_is_given_is_no_message_of_a_user(tmp_path: Path) -> None:
    first = replace(LOOKS, given="look for it", answer="hm")
    run = [ROOT, first, replace(first, id="n", given="is it there?", answer="yes", start=2)]
    for system in [name for name in SYSTEMS if name != "otlp"]:  # in which all are messages
        row = row_of(tmp_path, system, run)
        assert row["task"]["objective"] == "look for it", system
        assert [step["content"] for step in row["steps"]] == ["hm", "yes"], system


@pytest.mark.slow
def test_and_so_it_has_the_same_complexity_and_score(tmp_path: Path) -> None:
    run, _ = RUNS["a model within the tool that a model's span holds"]
    scores: set[tuple[object, ...]] = set()
    for system in SYSTEMS:
        row_of(tmp_path, system, run)
        warehouse = tmp_path / f"{system} warehouse"
        archive = (str(tmp_path / f"{system} archive" / "*.parquet"),)
        rescore_archive(RescoreConfig(archive=archive, warehouse=warehouse, embedder="hashing"))
        scores |= {*ask(warehouse, "SELECT complexity, novelty, score FROM scores").rows()}
    assert len(scores) == 1
