"""`rows_from`: flat columns become rows of an archive."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import kp_batch as kp
from kp_batch.errors import SettingError

FLAT = pl.DataFrame(
    {
        "name": ["a", "b"],
        "at": ["2026-01-05", "2026-01-06"],
        "task": ["Fix it", "Add it"],
        "sure": [0.5, 1.0],
        "done": [True, False],
        "said": [["one", None], []],
        "steps": [
            [{"type": "tool_call", "content": "run", "tool": "shell"}],
            [{"type": "thought", "content": None, "tool": None}],
        ],
    }
)
FIELDS: dict[str, Any] = {
    "id": "name",
    "created_at": "at",
    "objective": "task",
    "confidence": "sure",
    "success": "done",
    "task_domain": pl.lit("code"),
}


def test_each_argument_is_a_column_an_expression_or_a_constant() -> None:
    fields = FIELDS | {"confidence": 0.8, "success": True, "model": pl.col("name") + "!"}
    more = {"agent_id": "name", "result_summary": "task", "source_skill": "at"}
    rows = kp.rows_from(FLAT, **fields, **more, steps="said").to_dicts()
    metadata = {"created_at": "2026-01-05", "task_domain": "code", "success": True}
    assert rows[0] == {
        "id": "a",
        "source_skill": "2026-01-05",
        "metadata": {**metadata, "agent_id": "a", "model": "a!"},
        "task": {"objective": "Fix it"},
        "steps": [
            {"type": "thought", "content": "one"},
            {"type": "thought", "content": None},
        ],
        "outcome": {"confidence": 0.8, "result_summary": "Fix it"},
    }
    assert rows[1]["steps"] == []


def test_the_tool_of_a_step_may_be_its_name_or_a_struct() -> None:
    named = kp.rows_from(FLAT, **FIELDS, steps="steps")
    tools = [[step["tool"] for step in steps] for steps in named["steps"].to_list()]
    assert tools == [[{"name": "shell"}], [{"name": None}]]
    nested = kp.rows_from(FLAT.with_columns(steps=named["steps"]), **FIELDS, steps="steps")
    assert nested.equals(named)
    assert kp.score(named, embedder="none").select("trace_id", "n_tools").rows() == [
        ("a", 1),
        ("b", 0),
    ]


def test_frames_of_all_kinds_give_the_same_rows() -> None:
    expected = kp.rows_from(FLAT, **FIELDS, steps="said")
    for frame in (FLAT.lazy(), FLAT.to_arrow(), FLAT.to_pandas()):
        assert kp.rows_from(frame, **FIELDS, steps="said").equals(expected)


STEPS = [{"type": "tool_call", "tool": "shell"}, {"type": "thought", "tool": None}]


@pytest.mark.parametrize(
    ("array", "lists"),
    [
        (pl.Series([["a", None], None], dtype=pl.Array(pl.String, 2)), [["a", None], None]),
        (pl.Series([STEPS, STEPS]).list.to_array(2), [STEPS, STEPS]),
        (np.array([["a", "b"], ["c", "d"]]), [["a", "b"], ["c", "d"]]),
        (np.array([["a", None], ["c", "d"]], dtype=object), [["a", None], ["c", "d"]]),
        ([np.array(["a", "b"]), np.array(["c"])], [["a", "b"], ["c"]]),
        ([np.array(STEPS, dtype=object)] * 2, [STEPS, STEPS]),
    ],
)
def test_arrays_are_read_as_lists(array: Any, lists: list[Any]) -> None:
    expected = kp.rows_from(FLAT.with_columns(said=pl.Series(lists)), **FIELDS, steps="said")
    frame = FLAT.with_columns(pl.DataFrame({"said": array}))
    assert kp.rows_from(frame, **FIELDS, steps="said").equals(expected)
    if isinstance(array, list):
        pandas = FLAT.to_pandas().assign(said=array)
        assert kp.rows_from(pandas, **FIELDS, steps="said").equals(expected)


@pytest.mark.parametrize(
    "empty",
    [
        [[], []],
        pl.Series([[], []], dtype=pl.List(pl.Float64)),
        pl.Series([[], []], dtype=pl.Array(pl.Null, 0)),
        [np.array([]), np.array([])],
        [np.array([], dtype=object), np.array([], dtype=object)],
    ],
)
def test_lists_without_any_element_are_empty_lists_of_steps(empty: Any) -> None:
    """Their type says nothing of what they would have."""
    frame = FLAT.with_columns(pl.DataFrame({"said": empty}))
    rows = kp.rows_from(frame, **FIELDS, steps="said")
    assert rows["steps"].to_list() == [[], []]
    assert rows.schema == kp.rows_from(FLAT, **FIELDS, steps="said").schema


@pytest.mark.parametrize(
    ("frame", "changes", "reason"),
    [
        (FLAT, {"steps": pl.lit([1.5])}, r"steps is of type List\(Float64\); give a list of"),
        (
            pl.DataFrame({"name": ["a"], "said": [np.array([{"type": "thought"}, "x"])]}),
            {},
            "the rows cannot be made: .*; name columns of name, said",
        ),
        (FLAT, {"agent_id": "nobody"}, "nobody.*; name columns of name, at, task"),
        (FLAT, {"steps": "task"}, "steps is of type String; give a list of structs, or of texts"),
        ([{"name": "a"}], {}, "frame is of type list; give one of polars or pandas"),
    ],
)
def test_wrong_frames_and_columns_are_refused(
    frame: Any, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingError, match=reason):
        kp.rows_from(frame, **{**FIELDS, "steps": "said", **changes})
