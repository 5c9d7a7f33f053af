"""What each command prints as JSON is of the form that docs/reference has, and of no other."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import CHECKS, reasons
from kp_batch.cli import _MODULES
from kp_batch.cli import kp_batch as group
from kp_batch.operations.score import score_lines
from kp_batch.scoring.profiles import load_profiles
from tests.support.imports.importing import kp_trace, write_json
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.rejected_rows import REFUSED
from tests.support.processes.commands import invoke
from tests.support.read.schemas import NAMES, SCHEMAS, schema_files, schema_of


def valid(name: str, value: Any) -> bool:
    return Draft202012Validator(schema_of(name)).is_valid(value)


def printed(*arguments: object) -> Any:
    done = invoke(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What each command prints."""
    folder = tmp_path_factory.mktemp("answers")
    archive = folder / "archive"
    archive.mkdir()
    traces = [trace(id=str(number), objective=f"Fix the import {number}") for number in range(3)]
    write_jsonl(archive / "a.jsonl", [*traces, trace(id="bad", confidence=2)])
    to = ("--warehouse", folder / "wh")
    run = ("run", archive, *to, "--embedder", "hashing", "--max-reject-share", 1, "--no-prefect")
    plan = printed("plan", archive, *to, "--embedder", "hashing", "--json")
    audits = folder / "audits.toml"
    audits.write_text("[audits.any]\nsql = 'FROM scores'\nseverity = 'warn'\n")
    outputs = {"plan": plan, "run": printed(*run, "--json")}
    outputs["preview"] = printed(*run, "--threshold", 0.5, "--preview", "--json")
    printed(*run, "--threshold", 0.5, "--audits", audits, "--json")
    line = write_jsonl(folder / "new.jsonl", [trace(id="new")])
    unit = kp_trace("a")
    labels = write_jsonl(
        folder / "labels.jsonl", [{"trace_id": "0", "label": 1}, {"trace_id": "1", "label": 0}]
    )
    others = {
        "settings": ("settings", *to),
        "questions": ("sql",),
        "compare": ("compare", "previous", "latest", *to),
        "explain": ("explain", "2", *to),
        "verify": ("verify", *to),
        "audit": ("audit", *to),
        "status": ("status", *to),
        "sweep": ("sweep", *to, "--cache-size", 2),
        "redundancy": ("redundancy", *to),
        "fit": ("fit", labels, *to),
        "rollback": ("rollback", "previous", *to, "--dry-run"),
        "forget": ("forget", "2", *to, "--dry-run"),
        "migrate": ("migrate", *to, "--dry-run"),
        "vacuum": ("vacuum", *to, "--dry-run"),
        "export": ("export", *to, "-o", folder / "best.jsonl", "--min-score", 0),
        "import": ("import", "auto", write_json(folder / "a.json", unit), "-o", folder / "new"),
        "import-forget": ("import-forget", folder / "new", "--source", folder / "a.json"),
    }
    outputs |= {name: printed(*words, "--json") for name, words in others.items()}
    of_lines = {name: printed(name, line, *to, "--json") for name in OF_LINES}
    return outputs | of_lines | {"trace": traces[0]}


def test_a_command_has_a_schema_where_it_prints_json() -> None:
    for module in _MODULES:
        import_module(f"kp_batch.cli.{module}")
    print_json = {
        name
        for name, command in group.commands.items()
        if any("--json" in param.opts for param in command.params)
    }
    rows = {"runs", "sql"}  # their columns are those of a query
    assert {*NAMES} == (print_json - rows) | {"preview", "questions", "trace"}


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_of_its_draft(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))


def test_the_schemas_are_in_the_documentation() -> None:
    there = {path.name: path.read_text("utf-8") for path in SCHEMAS.iterdir()}
    assert there == schema_files(), "write them anew: python -m tests.support.docs.reference"


@pytest.mark.telling
@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_what_a_command_prints_is_of_its_schema_alone(
    answers: Mapping[str, Any], name: str
) -> None:
    answer = answers[name]
    Draft202012Validator(schema_of(name)).validate(answer)
    one = answer[0] if isinstance(answer, list) else answer
    for less in ({key: one[key] for key in one if key != gone} for gone in required(name)):
        assert not valid(name, [less] if isinstance(answer, list) else less)
    if name != "trace":  # which may hold more
        more = {**one, "more": 1}
        assert not valid(name, [more] if isinstance(answer, list) else more)


OF_LINES = {"score": "Scored", "similar": "SimilarTraces"}  # what a line prints, if it is a trace


def required(name: str) -> list[str]:
    """The fields that an object of that name must have, where it is of one kind alone."""
    schema = schema_of(name)
    if name in OF_LINES:
        return schema["$defs"][OF_LINES[name]]["required"]
    return (
        schema["$defs"][schema["items"]["$ref"].rpartition("/")[2]]["required"]
        if ("items" in schema)
        else schema["required"]
    )


def test_a_line_that_score_refuses_is_of_its_schema() -> None:
    [scored_line] = score_lines(BytesIO(b'{"id": "t"}'), load_profiles(), datetime.now(UTC))
    assert valid("score", json.loads(json.dumps(asdict(scored_line))))


# Values that a field may have: good ones, and ones of each other kind. A whole number is read as a
# text, which the schema says nothing of.
_OTHERS = st.sampled_from([None, "", True, False, 0.5, -0.5, 2.5, [], {}, "x", [None], {"a": 1}])
_TIMES = st.sampled_from(
    [
        *("2026-01-05", "2026-01-05T08:00", "2026-01-05 08:00:00.5+0200", "2026-01-05t08:00:60z"),
        *("2026-01-05T24:00", "2026-1-5", " 2026-01-05", "2026-01-05T08:00:00Z ", "26-01-05"),
    ]
)
_STEPS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["thought", "tool_call", "act"]) | _OTHERS},
        optional={"tool": _OTHERS, "content": _OTHERS},
    )
    | _OTHERS,
    max_size=3,
)
_FIELDS = {
    "id": _OTHERS,
    "@type": st.just("ReasoningTrace") | _OTHERS,
    "metadata": st.fixed_dictionaries(
        {},
        optional={
            "created_at": _TIMES | _OTHERS,
            "task_domain": _OTHERS,
            "success": _OTHERS,
            "agent_id": _OTHERS,
            "quality_score": _OTHERS,
        },
    )
    | _OTHERS,
    "task": st.fixed_dictionaries({}, optional={"objective": _OTHERS}) | _OTHERS,
    "outcome": st.fixed_dictionaries({}, optional={"confidence": _OTHERS | st.floats(-1, 2)})
    | _OTHERS,
    "steps": _STEPS | _OTHERS,
}


@given(st.fixed_dictionaries({}, optional=_FIELDS), st.sets(st.sampled_from(sorted(_FIELDS))))
def test_a_row_is_scored_where_it_is_of_the_schema(drawn: dict[str, Any], sound: set[str]) -> None:
    row = drawn | {name: value for name, value in trace().items() if name in sound}
    assert valid("trace", row) == accepted(row), row


def accepted(row: Any) -> bool:
    [codes] = rows_from_objects("", [(0, row)]).select(reasons()).to_series().to_list()
    return not codes


@pytest.mark.parametrize("code", CHECKS)
def test_a_row_with_a_fault_is_not_of_the_schema(code: str) -> None:
    assert any(not valid("trace", row) for codes, row in REFUSED if codes == [code]), (
        f"_VALUES of tests/support/read/schemas.py allow {code}"
    )
