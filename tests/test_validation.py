import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch import live
from kp_batch.archive.validation import MESSAGES, REASONS, message
from tests.archives import read, step, trace, write_jsonl, write_parquet

ROOT = Path(__file__).parents[1]
GOOD = step()
ACCEPTED = [
    trace(),
    trace(type=None),
    trace(id=" ", task_domain=" ", objective=" "),
    trace(id="\0", objective="\0", task_domain="\0"),
    trace(agent_id=None, framework=None),
    trace(success=False),
    trace(confidence=0.0),
    trace(confidence=-0.0),
    trace(confidence=1.0),
    trace(confidence=5e-324),
    trace(created_at="0001-01-01"),
    trace(created_at="9999-12-31T23:59:59Z"),
    trace(steps=[GOOD]),
    trace(steps=[step("thought"), step("tool_call"), step("observation"), step("error_recovery")]),
    trace(steps=[step("observation", "", "")]),
    trace(steps=[GOOD] * 1_000),
    {key: value for key, value in trace().items() if not key.startswith("@")},
]
REFUSED: list[tuple[list[str], dict[str, Any]]] = [
    (["missing_id"], trace(id=None)),
    (["missing_id"], trace(id="")),
    (["wrong_type"], trace(type="Trace")),
    (["wrong_type"], trace(type="reasoningtrace")),
    (["wrong_type"], trace(type="")),
    (["wrong_type"], trace(type="ReasoningTrace ")),
    (["bad_created_at"], trace(created_at=None)),
    (["bad_created_at"], trace(created_at="")),
    (["bad_created_at"], trace(created_at="yesterday")),
    (["bad_created_at"], trace(created_at="2026-02-30T00:00:00Z")),
    (["bad_created_at"], trace(created_at="0000-12-31T23:59:59Z")),
    (["bad_created_at"], trace(created_at="0001-01-01T00:00:00+00:01")),
    (["bad_created_at"], trace(created_at="9999-12-31T23:59:59-00:01")),
    (["empty_domain"], trace(task_domain=None)),
    (["empty_domain"], trace(task_domain="")),
    (["missing_success"], trace(success=None)),
    (["empty_objective"], trace(objective=None)),
    (["empty_objective"], trace(objective="")),
    (["no_steps"], trace(steps=None)),
    (["no_steps"], trace(steps=[])),
    (["no_steps"], trace(steps=[None])),
    (["no_steps"], trace(steps=[GOOD, None, GOOD])),
    (["unknown_step_type"], trace(steps=[step(None)])),
    (["unknown_step_type"], trace(steps=[GOOD, step("")])),
    (["unknown_step_type"], trace(steps=[step("Thought"), GOOD])),
    (["unknown_step_type"], trace(steps=[GOOD, step("thought "), GOOD])),
    (["no_steps", "unknown_step_type"], trace(steps=[None, step("guess")])),
    (["bad_confidence"], trace(confidence=None)),
    (["bad_confidence"], trace(confidence=math.nan)),
    (["bad_confidence"], trace(confidence=math.inf)),
    (["bad_confidence"], trace(confidence=-math.inf)),
    (["bad_confidence"], trace(confidence=-5e-324)),
    (["bad_confidence"], trace(confidence=math.nextafter(1, 2))),
    (["missing_id", "empty_objective"], trace(id=None, objective="")),
    (["bad_created_at", "empty_domain", "missing_success"], {**trace(), "metadata": None}),
    (["empty_objective"], {**trace(), "task": None}),
    (["bad_confidence"], {**trace(), "outcome": None}),
]
# Only JSON can say these.
REFUSED_JSON: list[tuple[list[str], Any]] = [
    (["missing_id"], trace(id=1.5)),
    (["missing_id"], trace(id=True)),
    (["missing_id"], trace(id=["a"])),
    (["wrong_type"], trace(type=1)),
    (["wrong_type"], trace(type=["ReasoningTrace"])),
    (["bad_created_at"], trace(created_at=1_767_600_000)),
    (["bad_created_at"], trace(created_at={"at": "2026-01-05"})),
    (["empty_domain"], trace(task_domain={})),
    (["missing_success"], trace(success=1)),
    (["missing_success"], trace(success="true")),
    (["empty_objective"], trace(objective=["Fix"])),
    (["no_steps"], trace(steps={"type": "thought"})),
    (["no_steps"], trace(steps="thought")),
    (["no_steps"], trace(steps=[GOOD, "thought"])),
    (["no_steps"], trace(steps=[[GOOD]])),
    (["unknown_step_type"], trace(steps=[{}])),
    (["unknown_step_type"], trace(steps=[step(1), step(["thought"])])),
    (["bad_confidence"], trace(confidence="0.5")),
    (["bad_confidence"], trace(confidence=True)),
    (["bad_confidence"], trace(confidence=10**400)),
    (["bad_confidence"], trace(confidence=-(10**400))),
    (["bad_created_at", "empty_domain", "missing_success"], {**trace(), "metadata": []}),
    (["empty_objective"], {**trace(), "task": "Fix"}),
    (["bad_confidence"], {**trace(), "outcome": 0.5}),
    *((["malformed_json"], value) for value in (None, 1, "text", [], [trace()], True)),
]
EVERYTHING = trace(
    id="",
    type="x",
    created_at="x",
    task_domain="",
    success=None,
    objective="",
    steps=[None, step("x")],
    confidence=2.0,
)
EVERY_CODE = [
    *("missing_id", "wrong_type", "bad_created_at", "empty_domain", "missing_success"),
    *("empty_objective", "no_steps", "unknown_step_type", "bad_confidence"),
]


def codes(path: Path) -> list[list[str]]:
    return read(path)["reasons"].to_list()


def test_what_can_be_scored_is_accepted(tmp_path: Path) -> None:
    nothing = [[] for _ in ACCEPTED]
    assert codes(write_parquet(tmp_path / "a.parquet", ACCEPTED)) == nothing
    assert codes(write_jsonl(tmp_path / "a.jsonl", ACCEPTED)) == nothing


def test_each_fault_has_its_code_from_parquet(tmp_path: Path) -> None:
    expected, traces = zip(*REFUSED, strict=True)
    assert codes(write_parquet(tmp_path / "a.parquet", traces)) == list(expected)


def test_each_fault_has_its_code_from_jsonl(tmp_path: Path) -> None:
    expected, traces = zip(*REFUSED, *REFUSED_JSON, strict=True)
    assert codes(write_jsonl(tmp_path / "a.jsonl", traces)) == list(expected)


def test_all_reasons_of_a_row_are_told_together(tmp_path: Path) -> None:
    assert codes(write_parquet(tmp_path / "a.parquet", [EVERYTHING])) == [EVERY_CODE]
    assert codes(write_jsonl(tmp_path / "a.jsonl", [EVERYTHING])) == [EVERY_CODE]


def test_an_empty_object_lacks_all_that_is_needed(tmp_path: Path) -> None:
    unsaid = {"wrong_type", "unknown_step_type"}
    expected = [code for code in EVERY_CODE if code not in unsaid]
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


def test_every_code_has_a_sentence() -> None:
    assert list(MESSAGES) == [*EVERY_CODE, "malformed_json"]
    frame = pl.DataFrame({"reasons": [["missing_id"], ["no_steps", "bad_confidence"], []]})
    assert frame.select(message(pl.col("reasons")))["reasons"].to_list() == [
        MESSAGES["missing_id"],
        f"{MESSAGES['no_steps']}; {MESSAGES['bad_confidence']}",
        "",
    ]


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
        *(
            b'{"id": ' + b"1" * 5_000 + b"}",
            b"[" * 100_000,
            b'{"id":' * 50_000 + b"1" + b"}" * 50_000,
        ),
        *("\u2028".encode(), "\u00a0".encode(), b'{"id": TRUE}', b"{1: 2}", b'{"id"}'),
    ]
    lines = [part for line in bad for part in (line, good)]
    expected = [["malformed_json"], []] * len(bad)
    assert codes(write_jsonl(tmp_path / "a.jsonl", lines)) == expected


def test_every_code_in_the_sources_is_a_reason() -> None:
    package = ROOT / "kp_batch"
    sql = "".join(path.read_text("utf-8") for path in package.rglob("*.sql"))
    assert set(re.findall(r"\['(\w+)'\]", sql)) == {"superseded"} < set(REASONS)
    room = "".join(path.read_text("utf-8") for path in (package / "archive").rglob("*.py"))
    assert [room.count(f'"{code}"') for code in REASONS] == [1] * len(REASONS)
    faults = (package / "sample" / "faults.py").read_text("utf-8")
    assert set(re.findall(r'_Fault\("(\w+)"', faults)) < set(REASONS)
    assert set(REASONS) > live._NOT_NEEDED  # noqa: SLF001
