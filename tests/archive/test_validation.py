import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kp_batch.archive.reading import read_raw
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import CHECKS, REASONS, fault_sentence, reject_message
from kp_batch.operations import live
from kp_batch.schemas import STEP_TYPES
from tests.support import ROOT
from tests.support.make.archives import read, step, trace, write_jsonl, write_parquet
from tests.support.make.rejected_rows import ACCEPTED, EVERYTHING, GOOD, REFUSED, REFUSED_JSON
from tests.support.oracle.accepted_rows import counted, observed

NO_TYPE = f"not one of {', '.join(STEP_TYPES)}"


def codes(path: Path) -> list[list[str]]:
    return read(path)["reasons"].to_list()


def test_what_can_be_scored_is_accepted(tmp_path: Path) -> None:
    nothing = [[] for _ in ACCEPTED]
    assert codes(write_parquet(tmp_path / "a.parquet", ACCEPTED)) == nothing
    assert codes(write_jsonl(tmp_path / "a.jsonl", ACCEPTED)) == nothing


def test_each_code_has_a_row() -> None:
    refused = {code for codes, _ in REFUSED for code in codes}
    assert refused == CHECKS.keys(), "give REFUSED a row of each code"


def test_each_fault_has_its_code_from_parquet(tmp_path: Path) -> None:
    expected, traces = zip(*REFUSED, strict=True)
    assert codes(write_parquet(tmp_path / "a.parquet", traces)) == list(expected)


def test_each_fault_has_its_code_from_jsonl(tmp_path: Path) -> None:
    expected, traces = zip(*REFUSED, *REFUSED_JSON, strict=True)
    assert codes(write_jsonl(tmp_path / "a.jsonl", traces)) == list(expected)


def test_the_oracle_refuses_each_row_for_the_same_reasons() -> None:
    parts = ("metadata", "task", "outcome")  # which the oracle takes to be there
    refused = [(codes, row) for codes, row in REFUSED if all(row[part] for part in parts)]
    content = "\n".join(json.dumps(row) for _, row in refused).encode()
    rejected = counted(observed({}, {"a.jsonl": content}, prune=False)).rejected
    assert [[*row.reasons] for row in rejected] == [codes for codes, _ in refused], (
        "state the rule in _faults of tests/support/oracle/accepted_rows.py"
    )


def test_all_reasons_of_a_row_are_reported_together(tmp_path: Path) -> None:
    needed = "give EVERYTHING each fault; leave out here what another fault excludes"
    assert codes(write_parquet(tmp_path / "a.parquet", [EVERYTHING])) == [[*CHECKS]], needed
    assert codes(write_jsonl(tmp_path / "a.jsonl", [EVERYTHING])) == [[*CHECKS]], needed


def test_an_empty_object_lacks_all_that_is_needed(tmp_path: Path) -> None:
    expected = [
        *("missing_id", "bad_created_at", "empty_domain", "missing_success"),
        *("empty_objective", "no_steps", "bad_confidence"),
    ]
    assert codes(write_jsonl(tmp_path / "a.jsonl", [{}])) == [expected]
    assert codes(write_parquet(tmp_path / "a.parquet", [{}])) == [expected]


def test_only_what_the_formulas_use_is_checked(tmp_path: Path) -> None:
    odd = {**step(step_id=-1, latency_ms="soon", input=[1]), "tool": "python"}
    traces = [
        trace(steps=[odd], outcome={"confidence": 0.5, "result_summary": None}),
        trace(extra={"anything": [1]}, **{"@context": 7}),
        trace(agent_id=3, framework=[]),
        trace(id=12),
        trace(steps=[step("thought", 3), step("thought", tool=7)]),
    ]
    rows = read(write_jsonl(tmp_path / "a.jsonl", traces))
    assert rows["reasons"].to_list() == [[]] * len(traces)
    assert rows["trace_id"].to_list()[3] == "12"
    assert rows["agent_id"].to_list()[2] == "3"
    assert rows["framework"].to_list()[2] is None
    assert rows["n_tools"].to_list() == [0, 1, 1, 1, 1]


def test_every_code_has_a_sentence_for_rows_that_cannot_be_read_again() -> None:
    message = f"{CHECKS['no_steps'].message}; {CHECKS['bad_confidence'].message}"
    assert reject_message(["no_steps", "bad_confidence"], 0, None) == message
    assert reject_message(["malformed_json"], 0, None) == "line 1 is not a JSON object"


@pytest.mark.parametrize("depth", [480, 700, 900])
def test_a_value_that_is_nested_deep_is_reported(depth: int) -> None:
    deep = json.loads("[" * depth + "]" * depth)
    sentence = fault_sentence("missing_success", trace(success=deep))
    assert re.match(r"metadata.success is (\[|nested too deep to be shown, )", sentence)


def messages_of(path: Path, codes: Sequence[Sequence[str]]) -> list[str]:
    """The messages of all rows of a file, which have these codes."""
    [source] = discover([str(path)])
    raw = read_raw(source, range(len(codes)))
    return [
        reject_message(reasons, row, text) for reasons, (row, text) in zip(codes, raw, strict=True)
    ]


def test_a_row_is_reported_alike_from_parquet_and_from_jsonl(tmp_path: Path) -> None:
    reasons, traces = zip(*REFUSED, strict=True)
    as_parquet = messages_of(write_parquet(tmp_path / "a.parquet", traces), reasons)
    assert as_parquet == messages_of(write_jsonl(tmp_path / "a.jsonl", traces), reasons)


@pytest.mark.parametrize(
    ("code", "changes", "message"),
    [
        ("missing_id", {"id": None}, "id is null"),
        (
            "missing_id",
            {"id": 1.5},
            "id is 1.5, neither valid text nor a whole number",
        ),
        (
            "missing_id",
            {"id": "a\ud800"},
            'id is "a\\ud800", neither valid text nor a whole number',
        ),
        ("wrong_type", {"type": "Other"}, '@type is "Other", not "ReasoningTrace"'),
        (
            "bad_created_at",
            {"created_at": "yesterday"},
            'metadata.created_at is "yesterday", not an ISO 8601 time from year 1 to 9999',
        ),
        ("bad_created_at", {"metadata": 3}, "metadata.created_at is null"),
        ("empty_domain", {"task_domain": ""}, "metadata.task_domain is empty"),
        ("missing_success", {"success": 1}, "metadata.success is 1, neither true nor false"),
        ("no_steps", {"steps": []}, "steps is empty"),
        ("no_steps", {"steps": "thought"}, 'steps is "thought", not a list'),
        ("no_steps", {"steps": [GOOD, None]}, "steps[1] is null"),
        (
            "unknown_step_type",
            {"steps": [GOOD, None, step("dream"), step(7)]},
            f'steps[2].type is "dream", {NO_TYPE} (the first of 2 such steps)',
        ),
        (
            "bad_confidence",
            {"confidence": 1.7},
            "outcome.confidence is 1.7, not a number from 0 to 1",
        ),
        (
            "bad_confidence",
            {"confidence": math.nan},
            'outcome.confidence is "nan", not a number from 0 to 1',
        ),
        ("bad_confidence", {"confidence": 1}, "outcome.confidence is 1, not a number from 0 to 1"),
    ],
)
def test_a_fault_is_reported_with_its_place_and_value(
    code: str, changes: dict[str, Any], message: str
) -> None:
    assert fault_sentence(code, trace(**changes)) == message


def test_a_value_is_shortened_and_made_printable() -> None:
    sentence = fault_sentence("wrong_type", trace(type="\x1b[2J\u2028\ud800" + "x" * 100))
    assert sentence == '@type is "\\u001b[2J\\u2028\\ud800' + "x" * 37 + '…, not "ReasoningTrace"'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'  "id": "x",', "line 12 is not a JSON object: Extra data at character 7"),
        (b'{"id": TRUE}', "line 12 is not a JSON object: Expecting value at character 8"),
        (b'{"id": "\xff"}', "line 12 is not a JSON object: it is not UTF-8"),
        (
            b'{"id": ' + b"1" * 5_000 + b"}",
            "line 12 is not a JSON object: a number has too many digits",
        ),
        (b'["text"]', 'line 12 is ["text"], not a JSON object'),
    ],
)
def test_a_malformed_line_is_reported_with_its_number_and_place(
    tmp_path: Path, line: bytes, message: str
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [b"{}"] * 11 + [line])
    [(row, raw)] = read_raw(discover([str(path)])[0], [11])
    assert reject_message(["malformed_json"], row, raw) == message


def test_only_the_lines_that_are_no_json_are_malformed(tmp_path: Path) -> None:
    good = json.dumps(trace()).encode()
    bad = [
        *(b"{", b"}", good[:-1], good + b"}", good + b" " + good, b"{'id': 1}", b'{"id": 1,}'),
        *(b'"text"', b"[]", b"null", b"0", b"-", b"nan", b"{}{}", b"// {}", b"id,objective"),
        *(b'{"id": "\xff"}', b'{"id": "\xc3"}', b"\xff\xfe{\0}\0", b"\x1e{}", b"\0", b"{\0}"),
        *(
            b'{"id": "a\0"}',
            b'{"id": "a\tb"}',
            b'{"id": "\\u12"}',
            b'{"id": "\\x41"}',
            b'{"id": 01}',
        ),
        *(b'{"id": ' + b"1" * 5_000 + b"}",),
        *("\u2028".encode(), "\u00a0".encode(), b'{"id": TRUE}', b"{1: 2}", b'{"id"}'),
    ]
    lines = [part for line in bad for part in (line, good)]
    expected = [["malformed_json"], []] * len(bad)
    assert codes(write_jsonl(tmp_path / "a.jsonl", lines)) == expected


def test_every_code_in_the_sources_is_a_reason() -> None:
    package = ROOT / "kp_batch"
    sql = "".join(path.read_text("utf-8") for path in (package / "planning").rglob("*.sql"))
    assert set(re.findall(r"\['(\w+)'\]", sql)) == {"superseded"} < set(REASONS)
    rooms = [
        package / "bounds.py",
        package / "errors.py",
        *(package / "archive").rglob("*.py"),
    ]
    room = "".join(path.read_text("utf-8") for path in rooms)
    assert [room.count(f'"{code}"') for code in REASONS] == [1] * len(REASONS)
    assert set(REASONS) > live.NOT_NEEDED
