"""Of every format it is carried through who did it: the agent, its model, session and version."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.archive.file_formats.parquet import is_read
from kp_batch.conversion.rules import Rules
from tests.support.formats.kits import AT, SECONDS, inspect, langfuse, langsmith, otlp, scout
from tests.support.imports.drafting import ALWAYS, always, converted
from tests.support.imports.importing import kp_trace, write_json

Row = dict[str, Any]


def written(name: str, source: Path, rules: Rules = ALWAYS) -> list[str | None]:
    """Who did the one trace of a source."""
    metadata = converted(name, source, rules).row["metadata"]
    return [metadata[key] for key in ("agent_id", "model", "session", "version")]


def lines(folder: Path, *rows: object) -> Path:
    path = write_json(folder / "rows.jsonl", None)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def spans(folder: Path, attributes: Mapping[str, str], resource: Mapping[str, str]) -> Path:
    _, request = otlp("a", str(SECONDS * 10**9), 1)["spans.jsonl"]
    (group,) = request["resourceSpans"]
    (span,) = group["scopeSpans"][0]["spans"]
    span |= {"name": "agent_run [helper]", "parentSpanId": ""}
    span["attributes"] += [{"key": x, "value": {"stringValue": attributes[x]}} for x in attributes]
    group["resource"] = {
        "attributes": [{"key": x, "value": {"stringValue": resource[x]}} for x in resource]
    }
    return write_json(folder / "spans.json", request)


@pytest.mark.parametrize(
    ("attributes", "resource", "who"),
    [
        (
            {
                "gen_ai.agent.name": "helper",
                "gen_ai.request.model": "m-1",
                "gen_ai.response.model": "m-1-2026",
                "gen_ai.conversation.id": "s",
                "gen_ai.agent.version": "2",
            },
            {"service.version": "1.0"},
            ["helper", "m-1", "s", "2"],
        ),
        (
            {"agent.name": "helper", "llm.model_name": "m-1", "session.id": "s"},
            {"service.version": "1.0"},
            ["helper", "m-1", "s", "1.0"],
        ),
        ({"openinference.span.kind": "AGENT"}, {}, ["helper", None, None, None]),
        ({}, {}, [None] * 4),
    ],
)
def test_otlp(tmp_path: Path, attributes: Row, resource: Row, who: list[str | None]) -> None:
    assert written("otlp", spans(tmp_path, attributes, resource)) == who


def test_phoenix(tmp_path: Path) -> None:
    row = {"context.trace_id": "t", "context.span_id": "s", "parent_id": ""}
    row |= {"start_time": AT, "end_time": AT}
    attributes = {"openinference.span.kind": "LLM", "input.value": "go", "output.value": "so"}
    attributes |= {"agent.name": "helper", "llm.model_name": "m-1", "session.id": "s"}
    row |= {f"attributes.{name}": value for name, value in attributes.items()}
    pl.DataFrame([row]).write_parquet(tmp_path / "spans.parquet")
    assert written("phoenix", tmp_path) == ["helper", "m-1", "s", None]


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("helper", {}),
        ("invoke_agent helper", {}),
        ("invoke_agent [helper]", {}),
        ("agent_run [helper]", None),
        ("invoke_agent 7f-1", {"attributes": {"gen_ai.agent.name": "helper"}}),
    ],
)
def test_langfuse(tmp_path: Path, name: str, metadata: object) -> None:
    root, generation = langfuse("t", AT, 1)["observations.jsonl"]
    agent = {**root, "id": "agent", "parent_observation_id": root["id"]}
    root |= {"type": "SPAN", "session_id": "s", "release": "r1"}
    agent |= {"name": name, "metadata": metadata}
    generation |= {"provided_model_name": "m-1", "metadata": {"long": "and of no use"}}
    path = lines(tmp_path, root, agent, generation)
    assert written("langfuse", path) == ["helper", "m-1", "s", "r1"]


def test_an_agent_may_have_no_name(tmp_path: Path) -> None:
    root, generation = langfuse("t", AT, 1)["observations.jsonl"]
    path = lines(tmp_path, root | {"name": "invoke_agent"}, generation)
    assert written("langfuse", path) == [None] * 4


def test_langsmith(tmp_path: Path) -> None:
    (run,) = langsmith("t", AT, 1)["runs.jsonl"]
    metadata = {"lc_agent_name": "helper", "thread_id": "s", "revision_id": "r1"}
    run["extra"] = {"metadata": {**metadata, "ls_model_name": "m-1"}}
    assert written("langsmith", lines(tmp_path, run)) == [*("helper", "m-1", "s", "r1")]


def test_atif(tmp_path: Path) -> None:
    steps = [
        {"source": "user", "message": "go", "timestamp": AT},
        {"source": "agent", "message": "so", "model_name": "m-1"},
    ]
    trajectory = {"schema_version": "ATIF-v1.6", "session_id": "s", "steps": steps}
    trajectory["agent"] = {"name": "helper", "version": "2"}
    path = write_json(tmp_path / "run.json", trajectory)
    assert written("atif", path) == ["helper", "m-1", "s", "2"]


@pytest.mark.parametrize(
    ("solver", "agent"), [("helper", "react"), (None, "helper"), ("helper", None)]
)
def test_inspect(tmp_path: Path, solver: str | None, agent: str | None) -> None:
    (log,) = inspect("t", AT, 1)["t.json"]
    begins = [{"event": "span_begin", "type": "solver", "name": "generate", "id": "1"}]
    begins += [{"event": "span_begin", "type": "agent", "name": agent, "id": "2"}] if agent else []
    log["samples"][0]["events"] = begins
    log["eval"] |= {"solver": solver, "model": "m-1"}
    path = write_json(tmp_path / "log.json", log)
    assert written("inspect", path) == ["helper", "m-1", None, None]


def test_scout(tmp_path: Path) -> None:
    (row,) = scout("t", AT, 1)["t.parquet"]
    frame = pl.DataFrame([{**row, "agent": "helper", "model": "m-1"}])
    frame.write_parquet(tmp_path / "t.parquet")
    assert written("inspect", tmp_path) == ["helper", "m-1", None, None]


def test_knowledgepulse(tmp_path: Path) -> None:
    trace = kp_trace("t")
    who = {"agent_id": "helper", "model": "m-1", "session": "s", "version": "2"}
    trace["metadata"] |= who
    path = write_json(tmp_path / "t.json", trace)
    assert written("knowledgepulse", path) == [*who.values()]


def test_a_run_does_not_read_what_is_only_carried_through() -> None:
    assert is_read("metadata.agent_id")
    assert not any(is_read(f"metadata.{field}") for field in ("model", "session", "version"))


@pytest.mark.parametrize(("field", "agent"), [("service.name", "desk"), ("team", None)])
def test_a_rule_names_another_field_for_the_agent(
    tmp_path: Path, field: str, agent: str | None
) -> None:
    attributes = {"gen_ai.agent.name": "helper", **({} if agent else {"team": ""})}
    source = spans(tmp_path, attributes, {"service.name": "desk"})
    assert written("otlp", source, always(agent_id=field))[0] == agent
