"""Small files of other systems that would take gigabytes are refused by name, and no others are."""

import json
import re
from pathlib import Path

import pytest

from kp_batch import bounds
from kp_batch.archive.file_formats import parquet_batches
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from kp_batch.imports.importing import import_traces
from tests.support.damage.import_files import request, run
from tests.support.damage.places import write, write_good
from tests.support.damage.table import damages_at, lower_limits
from tests.support.formats.kits import KITS
from tests.support.imports.importing import imported, named, refusals

ANY = {"success": {"always": True}, "confidence": {"always": 0.8}}
RULES = load_rules(None, {**ANY, "task_domain": {"otherwise": "default"}})
NATIVE = load_rules(None, {})
# What is reported of a trace of several rows, of which one is refused.
REMAINS = {"empty_objective", "no_steps"}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)
    monkeypatch.setattr("kp_batch.conversion.dialects.langsmith.MAX_LITERAL_CHARS", 1 << 10)
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 1 << 18)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("place", [place for place in KITS if damages_at(place)])
def test_what_is_too_large_or_damaged_is_refused_and_the_rest_imported(
    tmp_path: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source, archive, tried = tmp_path / "source", tmp_path / "archive", damages_at(place)
    stay = {write_good(place, source / "good")}
    stay.update(*(write(damage, place, source / damage.name) for damage in tried))
    form = FORMATS[KITS[place].name]
    rules = KITS[place].dated(NATIVE if form.decides else RULES)
    done = import_traces(form, [str(source)], archive, rules)
    assert "".join(capfd.readouterr()) == ""
    assert named(imported(archive)).keys() == {f"kp:trace:{trace}" for trace in stay}
    assert done.traces == len(stay)
    assert {*done.refused} - REMAINS == {reason for damage in tried for reason in damage.reasons}
    packed = {*source.rglob("*.parquet")} - {source / "many columns" / "a.parquet"}
    assert all(path.stat().st_size < 24_000 for path in packed)
    reported = {damage.name: set[str]() for damage in tried}
    messages = {damage.name: damage.message for damage in tried}
    for refusal in refusals(archive):
        name = Path(refusal["file"]).relative_to(source).parts[0]
        reported[name] |= {*refusal["reasons"]} - REMAINS
        assert REMAINS & {*refusal["reasons"]} or re.search(messages[name], refusal["message"])
    assert reported == {damage.name: {*damage.reasons} for damage in tried}


@pytest.mark.parametrize("more", [0, 1])
def test_a_trace_that_a_run_would_refuse_is_refused_by_its_id(tmp_path: Path, more: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(request("a" * 32, "1", "é" * (bounds.TEXT_BYTES // 2) + "x" * more), "utf-8")
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
