import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.archive.reading import read_rows, read_rows_with_raw
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import reasons
from kp_batch.schemas import FACTS, STEP_TYPES
from kp_batch.scoring.facts import FACTS_VERSION, with_facts, with_text
from tests.support.make.archives import read, step, trace, write_jsonl, write_parquet
from tests.support.make.odd_rows import write_odd_rows

COUNTS = ("n_steps", "n_types", "n_thoughts", "n_recoveries", "n_tool_steps", "n_tools")


def spec_facts(one: dict[str, Any]) -> dict[str, Any]:
    """The counts and the text of a valid trace as the specification has them."""
    steps = one["steps"]
    kinds = [step["type"] for step in steps]
    tools = [name for step in steps if (name := (step["tool"] or {}).get("name")) is not None]
    text = one["task"]["objective"] + " " + " ".join(step["content"] or "" for step in steps)
    return {
        "n_steps": len(steps),
        "n_types": len(set(kinds)),
        "n_thoughts": kinds.count("thought"),
        "n_recoveries": kinds.count("error_recovery"),
        "n_tool_steps": len(tools),
        "n_tools": len(set(tools)),
        "text": text,
        "text_hash": sha256(text.encode()).hexdigest(),
        "objective_hash": sha256(one["task"]["objective"].encode()).hexdigest()[:32],
    }


# Of all facts of `odd_rows`. A new digest needs a new version: file_ids bear it, and without it
# files that were read before keep their old facts.
VERSION_AND_DIGEST = (11, "2241ba43186cfccb5187d48b95cf975339615cdbb0152b724a05310e79f92886")


def hashes(path: Path, traces: list[dict[str, Any]]) -> list[str]:
    rows = read(write_jsonl(path / "a.jsonl", traces))
    assert rows["reasons"].to_list() == [[]] * len(traces)
    return rows["content_hash"].to_list()


tools = st.none() | st.fixed_dictionaries(
    {
        "name": st.none() | st.sampled_from(["", " ", "python", "Python", "bash"]) | st.text(),
        "mcp_server": st.none() | st.sampled_from(["local", "remote"]),
    }
)
steps = st.fixed_dictionaries(
    {"type": st.sampled_from(STEP_TYPES), "content": st.none() | st.text(), "tool": tools}
)
traces = st.builds(
    trace,
    id=st.text(min_size=1),
    type=st.sampled_from(["ReasoningTrace", None]),
    created_at=st.datetimes().map(lambda at: f"{at.isoformat()}+01:00"),
    task_domain=st.text(min_size=1),
    agent_id=st.none() | st.text(),
    success=st.booleans(),
    objective=st.text(min_size=1),
    confidence=st.floats(0, 1),
    steps=st.lists(steps, min_size=1, max_size=6),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(archive=st.lists(traces, min_size=1, max_size=5))
def test_facts_are_those_of_the_specification(
    tmp_path_factory: pytest.TempPathFactory, archive: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows = read(write_parquet(folder / "facts.parquet", archive))
    assert rows.equals(read(write_jsonl(folder / "facts.jsonl", archive)))
    names = ("text", "text_hash", "objective_hash")
    assert rows.select(*COUNTS, *names).to_dicts() == list(map(spec_facts, archive))
    assert rows["confidence"].to_list() == [one["outcome"]["confidence"] for one in archive]


def test_facts_have_their_types(tmp_path: Path) -> None:
    rows = read(write_parquet(tmp_path / "a.parquet", [trace()]))
    assert [rows.schema[name] for name in COUNTS] == [pl.Int64] * len(COUNTS)
    names = ["n_steps", "n_tools", "confidence", "text", "reasons"]
    names += ["text_hash", "objective_hash", "content_hash"]
    assert [rows.schema[name] for name in names] == [
        {**FACTS, "text": pl.String}[name] for name in names
    ]


def test_counts_of_an_example(tmp_path: Path) -> None:
    one = trace(
        objective="Why?",
        steps=[
            step("thought", "a", "search"),
            step("thought", None, ""),
            step("tool_call", "", "search"),
            {**step("tool_call", "b"), "tool": {"name": "search", "mcp_server": "another"}},
            step("error_recovery", " ", "Search"),
            step("error_recovery", "c"),
            {**step("observation"), "tool": {"name": None, "mcp_server": "local"}},
        ],
    )
    (row,) = read(write_parquet(tmp_path / "a.parquet", [one])).to_dicts()
    assert [row[name] for name in COUNTS] == [7, 4, 2, 2, 5, 3]
    assert row["text"] == "Why? a   b   c "
    assert row["text_hash"] == sha256(b"Why? a   b   c ").hexdigest()


@pytest.mark.parametrize("contents", [[None], [""], [None, None, None], ["", None, "x", None]])
def test_contents_of_null_are_joined_as_empty(tmp_path: Path, contents: list[str | None]) -> None:
    one = trace(objective="o", steps=[step(content=content) for content in contents])
    (text,) = read(write_parquet(tmp_path / "a.parquet", [one]))["text"]
    assert text == "o " + " ".join(content or "" for content in contents)


@pytest.mark.parametrize("text", ["a", "\0", "ä 日本 😀", "x" * 1_000_000, "\n\t\u2028"])
def test_text_hash_is_sha256_of_the_utf8(tmp_path: Path, text: str) -> None:
    rows = read(write_jsonl(tmp_path / "a.jsonl", [trace(objective=text, steps=[step()])]))
    assert rows["text_hash"].item() == sha256(f"{text} ".encode()).hexdigest()


UGLY = (
    "a",
    "a ",
    "A",
    " ",
    "\0",
    "a\0",
    "a\0b",
    "ä",
    "a\u0308",
    "日本 😀",
    "\n\t\u2028",
    "\ufeff",
    "7",
)


@pytest.mark.parametrize(
    ("write", "name"), [(write_jsonl, "a.jsonl"), (write_parquet, "a.parquet")]
)
def test_objective_hash_is_of_the_objective_alone(
    tmp_path: Path, write: Callable[[Path, list[dict[str, Any]]], Path], name: str
) -> None:
    objectives = [*UGLY, *UGLY, "a b", "x" * 100_000]
    steps = [[step(content=f"c{number % 3}")] for number in range(len(objectives))]
    archive = [
        trace(objective=each, steps=own) for each, own in zip(objectives, steps, strict=True)
    ]
    rows = read(write(tmp_path / name, archive))
    hashed = [sha256(each.encode()).hexdigest()[:32] for each in objectives]
    assert rows["objective_hash"].to_list() == hashed
    assert rows["reasons"].to_list() == [[]] * len(objectives)


def test_objective_hash_is_of_the_objective_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = json.dumps(trace(objective="X"))
    lines = {
        "7": "7",
        '"\\ud83d\\ude00"': "\U0001f600",
        '"a\\udc00"': "a\ufffd",
        '"\\u0000"': "\0",
        '""': "",
        "null": None,
    }
    path.write_text("".join(f"{text.replace(json.dumps('X'), each)}\n" for each in lines))
    hashed = [
        None if each is None else sha256(each.encode()).hexdigest()[:32] for each in lines.values()
    ]
    assert read(path)["objective_hash"].to_list() == hashed


@pytest.mark.parametrize("confidence", [0.0, -0.0, 5e-324, 0.1 + 0.2, 1.0])
def test_confidence_is_carried_to_the_bit_but_for_a_negative_zero(
    tmp_path: Path, confidence: float
) -> None:
    row = read(write_parquet(tmp_path / "a.parquet", [trace(confidence=confidence)])).row(
        0, named=True
    )
    assert [row[name].hex() for name in ("confidence", "outcome_confidence")] == [
        (confidence + 0.0).hex()
    ] * 2


def test_content_is_the_same_where_only_what_is_carried_along_differs(tmp_path: Path) -> None:
    one = [step("thought", "a", step_id=0), step("tool_call", "b", "t")]
    same = [
        trace(steps=one),
        trace(steps=one, id="another"),
        trace(steps=one, type=None, agent_id=None, framework="other", **{"@context": "v2"}),
        trace(steps=one, quality_score=0.5),
        trace(steps=one, created_at="2026-01-05T09:00:00.0000004+01:00"),
        trace(steps=one, outcome={"confidence": 0.8, "result_summary": "other"}),
        trace(steps=[{**step, "step_id": 9, "input": "x", "latency_ms": 1} for step in one]),
        trace(steps=[one[0], {**one[1], "tool": {"name": "t"}}]),
        trace(steps=[{"type": "thought", "content": "a"}, one[1]]),
    ]
    assert len(set(hashes(tmp_path, same))) == 1
    nothing = [trace(steps=[step(content=content)]) for content in (None, "")]
    assert len(set(hashes(tmp_path, nothing))) == 1


def test_content_differs_with_everything_that_reaches_score_or_text(tmp_path: Path) -> None:
    one = [step("thought", "a b"), step("tool_call", "c", "t")]
    different = [
        trace(steps=one),
        trace(steps=one, created_at="2026-01-05T08:00:00.000001Z"),
        trace(steps=one, task_domain="code "),
        trace(steps=one, task_domain="Code"),
        trace(steps=one, success=False),
        trace(steps=one, confidence=0.8 + 2**-53),
        trace(steps=one, confidence=0.8 - 2**-53),
        trace(steps=one, objective="Fix the import "),
        trace(steps=one, objective="Fix the export"),
        trace(steps=[step("thought", "a c"), one[1]]),
        trace(steps=one, objective="Fix the import a", id="b"),
        # The same text in other pieces.
        trace(steps=[step("thought", "a"), step("tool_call", "b c", "t")]),
        trace(
            steps=[step("thought", ""), step("tool_call", "a b c", "t")], objective="Fix the import"
        ),
        trace(steps=[step("thought", "import a b"), one[1]], objective="Fix the"),
        trace(steps=[step("thought", "a b c", "t")]),
        trace(steps=[*one, step("thought")]),
        trace(steps=one[::-1]),
        trace(steps=[step("observation", "a b"), one[1]]),
        trace(steps=[one[0], step("tool_call", "c", "T")]),
        trace(steps=[one[0], step("tool_call", "c")]),
        trace(steps=[one[0], step("tool_call", "c", "")]),
        trace(steps=[step("thought", "a b", "t"), step("tool_call", "c")]),
        trace(steps=[step("thought", "a b", 't","'), one[1]]),
    ]
    assert len(set(hashes(tmp_path, different))) == len(different)


def test_facts_change_with_their_version_alone(tmp_path: Path) -> None:
    columns = [*(name for name in FACTS if name != "file_id"), "text"]
    sources = discover(map(str, write_odd_rows(tmp_path)))
    rows = pl.concat(batch for one in sources for batch in read_rows_with_raw(one, lambda: False))
    facts = with_facts(rows, reasons()).select(columns)
    assert len(facts) == 440
    rows = facts.with_columns(pl.col("created_at").to_physical()).rows()
    assert (FACTS_VERSION, sha256(repr(rows).encode()).hexdigest()) == VERSION_AND_DIGEST, (
        "raise FACTS_VERSION unless it was, then copy this version and digest to VERSION_AND_DIGEST"
    )


def test_texts_alone_are_those_of_the_facts(tmp_path: Path) -> None:
    for path in write_odd_rows(tmp_path):
        texts = pl.concat(map(with_text, read_rows(discover([str(path)])[0])))
        assert texts.equals(read(path).select("text_hash", "text"))
