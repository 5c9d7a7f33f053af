"""Rules decide what a system does not tell, and nothing else."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.conversion.apply_rules import IMPORTED, apply_rules
from kp_batch.conversion.model import Native, Refused, TraceDraft
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import KpBatchError
from tests.support.processes.commands import invoke

STEPS = [{"type": "thought", "content": "so"}]


def draft(**changes: Any) -> TraceDraft:
    usual: dict[str, Any] = {
        "id": "kp:trace:a",
        "created_at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "objective": "go",
        "steps": STEPS,
        "scores": {"right": 1.0, "judge": 3.0},
        "fields": {"tags": ["new", "bill", "help"]},
    }
    return TraceDraft(**{**usual, **changes})


def rules(**changes: Any) -> Rules:
    usual: dict[str, Any] = {
        "success": {"score": "right", "at_least": 1},
        "confidence": {"score": "judge", "min": 1, "max": 5},
        "task_domain": {"from": "tags", "map": {"bill": "finance", "help": "support"}},
    }
    return load_rules(None, {**usual, **changes})


def test_a_trace_gets_what_the_rules_say() -> None:
    row = apply_rules(draft(), rules(), "otlp")
    assert not isinstance(row, Refused)
    assert row["metadata"]["created_at"] == "2026-01-02T03:04:05.000006Z"
    assert (row["metadata"]["success"], row["outcome"]["confidence"]) == (True, 0.5)
    assert row["metadata"]["task_domain"] == "finance"  # the first value that the map knows


def test_a_row_says_where_its_trace_came_from() -> None:
    row = apply_rules(draft(native=Native(log="l", sample="7", epoch=2)), rules(), "inspect")
    assert not isinstance(row, Refused)
    assert list(row) == IMPORTED.names()
    native = {"system": "inspect", "root": None, "log": "l", "sample": "7", "epoch": 2}
    assert row["native"] == native
    assert pl.DataFrame([row], IMPORTED).to_dicts()[0]["native"] == native


@pytest.mark.parametrize(
    ("rule", "scores", "success"),
    [
        ({"score": "x", "at_least": 0.5}, {"x": 0.5}, True),
        ({"score": "x", "at_least": 0.5}, {"x": 0.49}, False),
        ({"score": "x", "at_most": 0}, {"x": 0.0}, True),
        ({"score": "x", "at_most": 0}, {"x": 0.1}, False),
        ({"always": False}, {}, False),
    ],
)
def test_success(rule: dict[str, Any], scores: dict[str, float], success: object) -> None:
    row = apply_rules(draft(scores={"judge": 1, **scores}), rules(success=rule), "otlp")
    assert not isinstance(row, Refused)
    assert row["metadata"]["success"] is success


@pytest.mark.parametrize(
    ("changes", "reasons", "message"),
    [
        (
            {"scores": {"judge": 5.0}},
            ["missing_success"],
            "it has no score 'right'; its scores: judge",
        ),
        (
            {"scores": {"right": 0.0, "judge": 5.01}},
            ["bad_confidence"],
            "the score 'judge' is 5.01, outside min..max",
        ),
        ({"fields": {"tags": ["new"]}}, ["empty_domain"], "the map has none of the values new"),
        (
            {"created_at": None, "steps": [], "faults": ["invalidated"]},
            ["invalidated", "bad_created_at", "no_steps"],
            "invalidated, it has no start time, it has no steps",
        ),
    ],
)
def test_all_reasons_are_reported(changes: Any, reasons: list[str], message: str) -> None:
    refused = apply_rules(draft(**changes), rules(), "otlp")
    assert refused == Refused(reasons, message, id="kp:trace:a")


@pytest.mark.parametrize("limit", ["nan", "inf"])
def test_a_limit_is_a_finite_number(limit: str) -> None:
    for changes in (
        {"success": {"score": "right", "at_least": limit}},
        {"confidence": {"score": "judge", "max": limit}},
    ):
        with pytest.raises(KpBatchError, match="finite number"):
            rules(**changes)


@pytest.mark.parametrize("rule", [{"from": "tags"}, {"from": "tags", "map": {}}])
def test_without_a_map_the_field_names_the_domain(rule: dict[str, Any]) -> None:
    row = apply_rules(draft(fields={"tags": ["", "new", "bill"]}), rules(task_domain=rule), "otlp")
    assert not isinstance(row, Refused)
    assert row["metadata"]["task_domain"] == "new"


@pytest.mark.parametrize("fields", [{}, {"tags": []}, {"tags": [""]}])
def test_an_empty_field_names_none(fields: dict[str, list[str]]) -> None:
    refused = apply_rules(draft(fields=fields), rules(task_domain={"from": "tags"}), "otlp")
    assert refused == Refused(
        ["empty_domain"], "the field 'tags' is missing or empty", id="kp:trace:a"
    )
    row = apply_rules(
        draft(fields=fields), rules(task_domain={"from": "tags", "otherwise": "x"}), "otlp"
    )
    assert not isinstance(row, Refused)
    assert row["metadata"]["task_domain"] == "x"


def test_a_domain_is_not_empty() -> None:
    with pytest.raises(KpBatchError, match="must have from, otherwise, or both"):
        rules(task_domain={"otherwise": ""})


def test_an_unmapped_domain_may_have_another() -> None:
    row = apply_rules(
        draft(fields={}), rules(task_domain={"from": "tags", "otherwise": "default"}), "otlp"
    )
    assert not isinstance(row, Refused)
    assert row["metadata"]["task_domain"] == "default"


def test_all_faults_of_a_file_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        "recovery = 'sometimes'\n[success]\nscore = 'x'\n"
        "[confidence]\nscore = 'y'\nmin = 5\nmax = 1\n"
        "[task_domain]\nmap = {}\n[other]\n"
    )
    with pytest.raises(KpBatchError) as failed:
        load_rules(path, {})
    for fault in (
        "[success] must have either a score with at_least or at_most, or always",
        "[confidence] must have a min below its max, got 5 and 1",
        "[task_domain] must have from, otherwise, or both",
        "recovery must be 'after_tool_error', got 'sometimes'",
        "there is no key 'other'; keys: success, confidence, ",
    ):
        assert fault in str(failed.value)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            "[confidence]\nmin = 0\nmax = 1\nalways = 0.8",
            "[confidence] min and max have no effect together with always; remove them, or always",
        ),
        (
            "[success]\nalways = true\nat_least = 1",
            "[success] at_least has no effect together with always; remove it, or always",
        ),
        (
            "[success]\nalways = false\nscore = 'x'\nat_most = 1",
            (
                "[success] score and at_most have no effect together with always; remove them, "
                "or always"
            ),
        ),
        (
            "[task_domain]\notherwise = 'x'\nmap = {a = 'b'}",
            "[task_domain] map has no effect without from; give it, or remove map",
        ),
        (
            "[confidence]\nscore = 'x'\nmaxi = 1",
            "[confidence] has no key 'maxi', did you mean 'max'? keys: score, min, max, always",
        ),
        (
            "[sucess]",
            "there is no key 'sucess', did you mean 'success'? keys: "
            + ", ".join(Rules.model_fields),
        ),
        (
            "[task_domain]\nfrom = 'x'\nagent_id = 'y'",
            "[task_domain] has no key 'agent_id': write it before all tables",
        ),
        (
            "[task_domain]\nform = 'x'",
            "[task_domain] has no key 'form', did you mean 'from'? keys: from, map, otherwise",
        ),
    ],
)
def test_what_has_no_effect_is_refused_by_its_name(
    tmp_path: Path, content: str, fault: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(content)
    with pytest.raises(KpBatchError) as failed:
        load_rules(path, {})
    assert str(failed.value) == f"the rules of {path} have faults: {fault}"


def test_rules_are_stored_without_what_has_no_effect() -> None:
    of_all = rules(success={"always": True}, confidence={"always": 0.8})
    stored = of_all.as_json()
    assert '"confidence":{"always":0.8}' in stored
    assert Rules.from_json(stored) == of_all
    with_score = rules(confidence={"score": "judge"})
    assert '"confidence":{"score":"judge","min":0.0,"max":1.0}' in with_score.as_json()
    assert Rules.from_json(with_score.as_json()) == with_score


def test_rules_of_a_later_version_are_reported_as_such() -> None:
    with pytest.raises(
        KpBatchError, match=r"come from a later kp_batch .*no key 'speed'.*; install"
    ):
        Rules.from_json('{"speed":1}')


@pytest.mark.parametrize("content", ["[success", None])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "rules.toml"
    if content:
        path.write_text(content)
    with pytest.raises(KpBatchError, match=r"^the rules file .*rules.toml cannot be read: "):
        load_rules(path, {})


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--success", "score:x:high", "score:NAME:AT_LEAST or always"),
        ("--success", "always:1", "score:NAME:AT_LEAST or always"),
        ("--confidence", "0.8:0:1", "score:NAME:MIN:MAX or a number from 0 to 1"),
        ("--confidence", "2", "score:NAME:MIN:MAX or a number from 0 to 1"),
        ("--confidence", "nan", "score:NAME:MIN:MAX or a number from 0 to 1"),
        ("--confidence", "score:x:0:much", "score:NAME:MIN:MAX or a number from 0 to 1"),
        ("--domain", "=", "a field, or =DOMAIN for all"),
    ],
)
def test_an_option_says_what_it_takes(tmp_path: Path, option: str, value: str, wanted: str) -> None:
    failed = invoke("import", "otlp", "x.json", "-o", tmp_path, option, value)
    assert failed.returncode == 2
    assert failed.stderr.endswith(f"Invalid value for {option}: {wanted}, got {value!r}\n")


def test_a_fault_of_an_option_names_it(tmp_path: Path) -> None:
    rules = ("--confidence", "score:x:5:1")
    failed = invoke("import", "otlp", "x.json", "-o", tmp_path, *rules)
    assert (failed.returncode, failed.stderr) == (
        1,
        (
            "kp-batch: the rules have faults: --confidence: must have a min below its max, "
            "got 5 and 1\n"
        ),
    )
