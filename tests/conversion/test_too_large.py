"""Small files of other systems that would take gigabytes are refused by name, and no others are."""

import json
from pathlib import Path

import pytest

from kp_batch import limits
from kp_batch.conversion.formats import FORMATS, langsmith
from kp_batch.conversion.rules import load_rules
from kp_batch.imports.run import import_traces
from tests.support.hostile import lower_limits
from tests.support.hostile_imports import FILES, GOOD, request, run
from tests.support.importing import imported, refusals

ANY = {"success": {"always": True}, "confidence": {"always": 0.8}}
RULES = load_rules(None, {**ANY, "task_domain": {"otherwise": "default"}})
NATIVE = load_rules(None, {})
# What is reported as soon as it is known, and not only where more of it was read.
MESSAGES = {
    "otlp_spans_of_one.jsonl.gz": "its parts take more than",
    "samples.eval": "its members unpack to too much",
    "long_unit.sqlite": "it holds a unit that is too large",
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch, REFUSED=1 << 10, TRACE_BYTES=1 << 20, MEMBER_BYTES=8 << 20)
    monkeypatch.setattr(langsmith, "_LITERAL", 1 << 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_what_is_too_large_is_refused_and_the_rest_imported(tmp_path: Path, name: str) -> None:
    form, write, reasons, traces = FILES[name]
    source = tmp_path / "source"
    source.mkdir()
    GOOD[form](source)
    write(source / name)
    archive = tmp_path / "archive"
    rules = NATIVE if form == "knowledgepulse" else RULES
    done = import_traces(FORMATS[form], [str(source)], archive, rules)
    assert done.traces == 1 + len(traces)
    assert [*done.refused] == reasons
    assert {refusal["file"] for refusal in refusals(archive)} <= {str(source / name)}
    assert {f"kp:trace:{trace}" for trace in traces} <= imported(archive).keys()
    for refusal in refusals(archive):
        assert MESSAGES.get(name, "") in refusal["message"]


@pytest.mark.parametrize("more", [0, 1])
def test_a_trace_that_a_run_would_refuse_is_refused_by_its_id(tmp_path: Path, more: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(request("a", "1", "é" * (limits.TEXT_BYTES // 2) + "x" * more), "utf-8")
    import_traces(FORMATS["otlp"], [str(path)], tmp_path / "archive", RULES)
    refused = [(refusal["id"], refusal["reasons"]) for refusal in refusals(tmp_path / "archive")]
    assert refused == [(f"kp:trace:{'a' * 32}", ["too_large"])] * more


@pytest.mark.parametrize("length", [1 << 10, 1 << 11])
def test_a_long_literal_of_python_stays_a_text(tmp_path: Path, length: int) -> None:
    literal = "{'a': '" + "x" * (length - 9) + "'}"
    tool = run("tool", trace_id="a", parent_run_id="a", run_type="tool", inputs={"input": literal})
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(run('a'))}\n{json.dumps(tool)}\n", "utf-8")
    import_traces(FORMATS["langsmith"], [str(path)], tmp_path / "archive", RULES)
    [trace] = imported(tmp_path / "archive").values()
    [call] = [step for step in trace["steps"] if step["type"] == "tool_call"]
    assert list(json.loads(call["input"])) == ["a" if length == 1 << 10 else "input"]
