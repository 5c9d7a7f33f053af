import itertools
from typing import Any

import polars as pl
import pytest

from kp_batch.scoring.facts import dimensions, overrides

ONE_STEP = {
    "n_steps": 1,
    "n_types": 1,
    "n_recoveries": 0,
    "n_tools": 0,
    "confidence": 0.8,
    "success": True,
}
CONFIDENCES = (0.0, 5e-324, 0.1, 0.3, 0.5, 0.7, 0.92, 0.95, 1 - 2.0**-53, 1.0)


def expected_dimensions(  # noqa: PLR0913, the formulas' own inputs
    *, n_steps: int, n_types: int, n_recoveries: int, n_tools: int, confidence: float, success: bool
) -> tuple[float, float, float]:
    complexity = n_types / 4 * 0.5 + (0.3 if n_recoveries > 0 else 0) + n_steps / 20 * 0.2
    return (
        min(1, complexity),
        min(1, n_tools / max(1, n_steps) * 3),
        confidence * (1 if success else 0.3),
    )


def every_combination() -> list[dict[str, Any]]:
    shapes = itertools.product(range(1, 201), range(1, 5), (0, 1, 3), (0, 1, 2, 3, 7, 33, 66, 200))
    outcomes = itertools.cycle(itertools.product(CONFIDENCES, (True, False)))
    return [
        {
            "n_steps": n_steps,
            "n_types": n_types,
            "n_recoveries": n_recoveries,
            "n_tools": n_tools,
            "confidence": confidence,
            "success": success,
        }
        for (n_steps, n_types, n_recoveries, n_tools), (confidence, success) in zip(
            shapes, outcomes, strict=False
        )
    ]


def test_dimensions_equal_plain_float_arithmetic_to_the_bit() -> None:
    rows = every_combination()
    assert pl.DataFrame(rows).select(dimensions()).rows() == [
        expected_dimensions(**row) for row in rows
    ]


def test_tool_diversity_equals_plain_float_arithmetic_for_every_count_of_tools() -> None:
    rows = [
        ONE_STEP | {"n_steps": n_steps, "n_tools": n_tools}
        for n_steps in range(1, 101)
        for n_tools in range(n_steps + 1)
    ]
    assert pl.DataFrame(rows).select(dimensions()).rows() == [
        expected_dimensions(**row) for row in rows
    ]


def test_one_row_alone_has_the_same_dimensions() -> None:
    rows = every_combination()[::97]
    assert [pl.DataFrame([row]).select(dimensions()).row(0) for row in rows] == [
        expected_dimensions(**row) for row in rows
    ]


def test_a_trace_without_recoveries_and_tools() -> None:
    frame = pl.DataFrame([ONE_STEP, ONE_STEP | {"success": False}])
    assert frame.select(dimensions()).rows() == [(0.135, 0.0, 0.8), (0.135, 0.0, 0.24)]


STEPS = {
    "n_steps": 5,
    "n_thoughts": 1,
    "n_recoveries": 0,
    "success": True,
    "n_tools": 2,
    "n_tool_steps": 2,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (False, False, False)),
        ({"n_steps": 1, "n_thoughts": 1}, (True, False, False)),
        ({"n_steps": 1, "n_thoughts": 0}, (False, False, False)),
        ({"n_steps": 2, "n_thoughts": 2}, (False, False, False)),
        ({"n_recoveries": 2}, (False, False, False)),
        ({"n_recoveries": 3}, (False, True, False)),
        ({"n_recoveries": 3, "success": False}, (False, False, False)),
        ({"n_tools": 1}, (False, False, True)),
        ({"n_tools": 1, "n_tool_steps": 1}, (False, False, True)),
        ({"n_tools": 0, "n_tool_steps": 0}, (False, False, False)),
        ({"n_recoveries": 3, "n_tools": 1}, (False, True, True)),
        ({"n_steps": 1, "n_tools": 1, "n_tool_steps": 1}, (True, False, True)),
    ],
)
def test_an_override_holds_under_its_condition(
    changes: dict[str, Any], expected: tuple[bool, bool, bool]
) -> None:
    assert pl.DataFrame([STEPS | changes]).select(overrides()).row(0) == expected
