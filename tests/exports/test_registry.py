"""Units for a registry: it takes each that is written, and what it would refuse is counted."""

import json
import random
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import kp_batch as kp
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config, scores
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.slow

CONTEXTS = ("https://openknowledgepulse.org/schema/v1", "https://knowledgepulse.dev/schema/v1")
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
DELTA = {
    "entities": [{"name": "a", "type": "b"}],
    "relationships": [{"fact": "c", "valid_from": "2026-01-05T08:00:00Z"}],
}
LOST = (("metadata", "validated_by"), ("task", "input_schema"), ("knowledge_graph_delta",))


def full(number: int) -> dict[str, Any]:
    """A unit with a value in each field."""
    tool = {"name": "" if number % 7 == 0 else f"tool-{number % 3}", "mcp_server": "local"}
    steps = [
        {"step_id": 0, "type": "thought", "content": f"words {number}"},
        {
            "step_id": 1,
            "type": "tool_call",
            "content": "call it",
            "tool": tool,
            "input": {"path": "ä.py", "depth": {"n": number}, "none": None},
            "output_summary": "one line",
            "latency_ms": 12.5,
        },
        {"step_id": 5, "type": "error_recovery", "content": "again", "latency_ms": 0},
    ]
    return {
        "@context": CONTEXTS[number % 2],
        "@type": "ReasoningTrace",
        "id": f"kp:trace:{number:08}",
        "source_skill": "review",
        "metadata": {
            "created_at": f"2026-01-{1 + number % 28:02}T08:00:00.5Z",
            "agent_id": f"agent-{number % 4}",
            "framework": "loop",
            "task_domain": ("code", "medical", "own")[number % 3],
            "success": number % 5 != 0,
            "quality_score": 0.5,
            "visibility": ("network", "org", "private")[number % 3],
            "privacy_level": ("aggregated", "federated", "private")[number // 3 % 3],
            "validated_by": ["a", "b"],
        },
        "task": {"objective": f"task {number % 50}", "input_schema": {"type": "object"}},
        "steps": steps,
        "outcome": {"result_summary": "done", "confidence": 0.8},
        "knowledge_graph_delta": DELTA,
    }


OPTIONAL = (
    *(("source_skill",), ("knowledge_graph_delta",), ("task", "input_schema")),
    *(("metadata", name) for name in ("agent_id", "framework", "validated_by")),
    *(("steps", 1, name) for name in ("content", "tool", "input", "output_summary", "latency_ms")),
    ("steps", 1, "tool", "mcp_server"),
)


def without(unit: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    unit = deepcopy(unit)
    inner: Any = unit
    for each in path[:-1]:
        inner = inner[each]
    inner.pop(path[-1], None)
    return unit


def units(count: int) -> Iterator[dict[str, Any]]:
    """Each optional field is missing in turn, then several of them."""
    chance = random.Random(7)
    for number in range(count):
        unit = full(number)
        missing = [OPTIONAL[number % len(OPTIONAL)]]
        missing = chance.sample(OPTIONAL, 4) if number >= count // 2 else missing
        for path in sorted(missing, key=len, reverse=True):
            unit = without(unit, path) if path[-1] != "mcp_server" or tool_of(unit) else unit
        yield unit


def tool_of(unit: Mapping[str, Any]) -> Any:
    return unit["steps"][1].get("tool")


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    return value is None or (isinstance(value, list) and any(map(has_null, value)))


def assert_taken(unit: Any) -> None:
    """What the registry checks, by its documentation; nothing may be null."""
    assert not has_null({**unit, "steps": [{**each, "input": 0} for each in unit["steps"]]})
    assert unit["@context"] == CONTEXTS[0]
    assert unit["@type"] == "ReasoningTrace"
    assert unit["id"].startswith("kp:trace:")
    metadata = unit["metadata"]
    assert UTC.fullmatch(metadata["created_at"])
    assert all(isinstance(metadata.get(name, ""), str) for name in ("agent_id", "framework"))
    assert isinstance(metadata["task_domain"], str)
    assert metadata["task_domain"]
    assert isinstance(metadata["success"], bool)
    assert 0 <= metadata["quality_score"] <= 1
    assert metadata["visibility"] in {"private", "org", "network"}
    assert metadata["privacy_level"] in {"aggregated", "federated", "private"}
    assert all(isinstance(each, str) for each in metadata.get("validated_by", []))
    assert isinstance(unit["task"]["objective"], str)
    assert isinstance(unit["task"].get("input_schema", {}), dict)
    assert unit["steps"]
    for each in unit["steps"]:
        assert type(each["step_id"]) is int
        assert each["step_id"] >= 0
        assert each["type"] in {"thought", "tool_call", "observation", "error_recovery"}
        assert isinstance(each.get("content", ""), str)
        assert isinstance(each.get("tool", {"name": ""})["name"], str)
        assert isinstance(each.get("input", {}), dict)
        assert isinstance(each.get("output_summary", ""), str)
        assert each.get("latency_ms", 0) >= 0
    assert isinstance(unit["outcome"]["result_summary"], str)
    assert 0 <= unit["outcome"]["confidence"] <= 1


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.telling
def test_units_come_back_from_an_import_and_a_run_with_their_scores(tmp_path: Path) -> None:
    made = list(units(500))
    write_jsonl(tmp_path / "units.jsonl", made)
    imported = invoke("import", "knowledgepulse", tmp_path / "units.jsonl", "-o", tmp_path / "in")
    assert imported.returncode == 0, imported.stderr
    run_config = config(tmp_path, tmp_path / "in")
    rescore_archive(run_config)
    wh, path = kp.Warehouse(run_config.warehouse), tmp_path / "out.jsonl"
    result = wh.export(
        path, format="registry", min_score=0, include_private=True, include_registry=True
    )
    assert (result.exported, result.not_written) == (500, {})
    score = dict(scores(run_config).select("trace_id", "score").iter_rows())
    found = {unit["id"]: unit for unit in lines(path)}
    for unit in made:
        assert_taken(found[unit["id"]])
        expected = without(without(without(unit, LOST[0]), LOST[1]), LOST[2])
        expected["@context"] = CONTEXTS[0]
        expected["metadata"] |= {"quality_score": score[unit["id"]]}
        created = unit["metadata"]["created_at"].replace(".5Z", ".500000Z")
        expected["metadata"]["created_at"] = created
        assert found[unit["id"]] == expected
    result = wh.export(tmp_path / "a.jsonl", min_score=0, include_private=True)
    assert result.exported == 500
    with pytest.raises(kp.KpBatchError, match="500 traces from a registry"):
        wh.export(path, format="registry", min_score=0, include_private=True)


def sound(**changes: Any) -> dict[str, Any]:
    made = trace(id="kp:trace:1", **changes)
    made["metadata"] |= {"visibility": "network", "privacy_level": "aggregated"}
    return made


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    unit = sound()
    inner: Any = unit
    for each in path[:-1]:
        inner = inner[each]
    inner[path[-1]] = value
    return unit


def bad(name: str) -> str:
    return f"with a value of {name} that registries refuse"


REFUSED: list[tuple[dict[str, Any], str]] = [
    (changed(("id",), "other"), "with an id that does not begin with kp:trace:"),
    (
        changed(("metadata", "visibility"), None),
        "with a visibility other than network, org, private",
    ),
    (
        changed(("metadata", "privacy_level"), None),
        "with a privacy_level other than aggregated, federated, private",
    ),
    (changed(("outcome", "result_summary"), None), "without a text in outcome.result_summary"),
    (changed(("metadata", "validated_by"), "one"), bad("validated_by")),
    (changed(("task", "input_schema"), "{}"), bad("input_schema")),
    (
        changed(("knowledge_graph_delta",), {}),
        bad("knowledge_graph_delta"),
    ),
    (changed(("steps", 1, "step_id"), -1), bad("step_id")),
    (changed(("steps", 1, "step_id"), 1.5), bad("step_id")),
    (changed(("steps", 1, "latency_ms"), -0.5), bad("latency_ms")),
    (changed(("steps", 1, "input"), "ls -l"), bad("input")),
    (changed(("steps", 1, "input"), "[1]"), bad("input")),
    (changed(("steps", 1, "output_summary"), 5), bad("output_summary")),
    (changed(("source_skill",), 5), bad("source_skill")),
    (changed(("metadata", "task_domain"), 5), bad("task_domain")),
    (changed(("task", "objective"), 7), bad("objective")),
    (changed(("steps", 1, "tool"), "grep"), bad("tool")),
    (changed(("steps", 1, "input"), "[" * 200_000), bad("input")),
    (changed(("steps", 1, "input"), '{"a": NaN}'), bad("input")),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED)
def test_what_a_registry_would_refuse_is_left_out_and_counted(
    tmp_path: Path, refused: dict[str, Any], reason: str
) -> None:
    rows = [{**refused, "id": refused["id"] + "-"}, sound(), {**sound(), "id": "kp:trace:2"}]
    rows[2]["steps"] = [step("thought", "no step_id, and nulls", tool=None, input=None)]
    write_jsonl(tmp_path / "in" / "a.jsonl", rows)
    run_config = config(tmp_path, tmp_path / "in")
    rescore_archive(run_config)
    wh, path = kp.Warehouse(run_config.warehouse), tmp_path / "out.jsonl"
    result = wh.export(path, format="registry", min_score=0)
    assert (result.exported, result.not_written) == (2, {reason: 1})
    assert [unit["id"] for unit in lines(path)] == ["kp:trace:1", "kp:trace:2"]
    for unit in lines(path):
        assert_taken(unit)
    words = ("--format", "registry", "--min-score", 0, "-o", tmp_path / "b.jsonl")
    printed = invoke("export", "--warehouse", run_config.warehouse, *words).stdout
    assert f"  left out   1 trace {reason}\n" in printed
