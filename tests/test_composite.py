import itertools
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.scoring.composite import assign, composite, dimensions, overrides, score
from kp_batch.scoring.profiles import WeightProfile, load_profiles

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


def traces(rows: list[tuple[str, float, float, float, float]]) -> pl.DataFrame:
    names = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
    schema = {"task_domain": pl.String, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def weighted(
    rows: list[tuple[str, float, float, float, float]], profiles: Mapping[str, WeightProfile]
) -> pl.DataFrame:
    assigned = traces(rows).with_columns(assign(profiles))
    return assigned.select("profile", "profile_id", composite(profiles.values()))


share = st.floats(0, 1)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*load_profiles(), "legal"]), share, share, share, share),
        min_size=1,
        max_size=20,
    )
)
def test_law_the_composite_sums_in_one_order_to_the_bit(
    rows: list[tuple[str, float, float, float, float]],
) -> None:
    profiles = load_profiles()

    def expected(domain: str, c: float, n: float, d: float, o: float) -> float:
        by = profiles.get(domain, profiles["default"])
        return (
            c * by.complexity + n * by.novelty + d * by.tool_diversity + o * by.outcome_confidence
        )

    assert weighted(rows, profiles)["composite"].to_list() == [expected(*row) for row in rows]


@pytest.mark.parametrize(
    ("domain", "profile"),
    [
        ("finance", "finance"),
        ("customer_service", "customer_service"),
        ("default", "default"),
        ("Finance", "default"),
        ("finance ", "default"),
        (" finance", "default"),
        ("customer-service", "default"),
        ("legal", "default"),
        ("金融", "default"),
    ],
)
def test_a_profile_is_taken_by_its_exact_name_else_default(domain: str, profile: str) -> None:
    profiles = load_profiles()
    row = weighted([(domain, 1.0, 0.0, 0.0, 0.0)], profiles).row(0, named=True)
    assert row == {
        "profile": profile,
        "profile_id": profiles[profile].profile_id,
        "composite": profiles[profile].complexity,
    }


def test_a_profile_of_ones_own_is_taken() -> None:
    profiles = load_profiles() | {"Legal advice": WeightProfile("Legal advice", 0, 0, 0, 1)}
    row = weighted([("Legal advice", 1.0, 1.0, 1.0, 0.5)], profiles).row(0)
    assert row == ("Legal advice", profiles["Legal advice"].profile_id, 0.5)


def test_a_trace_is_weighted_by_the_profile_that_it_bears_whatever_its_name_means_now() -> None:
    earlier, now = WeightProfile("code", 1, 0, 0, 0), WeightProfile("code", 0, 1, 0, 0)
    rows = traces([("code", 0.25, 0.75, 0.0, 0.0)] * 2)
    borne = rows.with_columns(profile_id=pl.Series([earlier.profile_id, now.profile_id]))
    assert borne.select(composite([earlier, now, now])).to_series().to_list() == [0.25, 0.75]


def test_a_trace_that_bears_an_unknown_profile_is_not_weighted() -> None:
    rows = traces([("code", 0.25, 0.75, 0.0, 0.0)]).with_columns(profile_id=pl.lit("gone"))
    assert rows.select(composite(load_profiles().values())).item() is None


def test_no_traces_have_no_composite() -> None:
    assert weighted([], load_profiles()).is_empty()


STEPS = {
    "n_steps": 5,
    "n_thoughts": 1,
    "n_recoveries": 0,
    "success": True,
    "n_tools": 2,
    "n_tool_steps": 2,
}


@pytest.mark.parametrize(
    ("changes", "held"),
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
    changes: dict[str, Any], held: tuple[bool, bool, bool]
) -> None:
    assert pl.DataFrame([STEPS | changes]).select(overrides()).row(0) == held


@pytest.mark.parametrize(
    ("total", "held", "expected"),
    [
        (0.7, (False, False, False), 0.7),
        (0.7, (True, False, False), 0.1),
        (0.7, (False, True, False), 0.7 + 0.1),
        (0.95, (False, True, False), 1.0),
        (0.9, (False, True, False), 1.0),
        (0.7, (False, False, True), 0.7 - 0.1),
        (0.05, (False, False, True), 0.0),
        (0.1, (False, False, True), 0.0),
        (0.95, (False, True, True), 1.0 - 0.1),
        (0.05, (False, True, True), (0.05 + 0.1) - 0.1),
        (0.7, (True, False, True), 0.0),
        (0.7, (True, True, False), 0.2),
        (0.7, (True, True, True), (0.1 + 0.1) - 0.1),
    ],
)
def test_overrides_follow_each_other_within_the_bounds(
    total: float, held: tuple[bool, bool, bool], expected: float
) -> None:
    names = ("single_thought", "recovery_bonus", "low_diversity_penalty")
    frame = pl.DataFrame([{"composite": total, **dict(zip(names, held, strict=True))}])
    assert frame.select(score()).item() == expected
