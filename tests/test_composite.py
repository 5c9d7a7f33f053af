from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import WeightProfile, load_profiles


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
