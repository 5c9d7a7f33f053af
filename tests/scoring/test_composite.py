from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import ProfileVersions, Version, WeightProfile
from tests.support.make.profiles import always, undated


def traces(rows: list[tuple[str, float, float, float, float]]) -> pl.DataFrame:
    names = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
    schema = {"task_domain": pl.String, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def weighted(
    rows: list[tuple[str, float, float, float, float]], profiles: Mapping[str, WeightProfile]
) -> pl.DataFrame:
    assigned = traces(rows).with_columns(assign(always(profiles)))
    return assigned.select("profile", "profile_id", composite(profiles.values()))


share = st.floats(0, 1)


@pytest.mark.telling
@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.sampled_from([*undated(), "legal"]), share, share, share, share),
        min_size=1,
        max_size=20,
    )
)
def test_law_the_composite_sums_in_one_order_to_the_bit(
    rows: list[tuple[str, float, float, float, float]],
) -> None:
    profiles = undated()

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
    profiles = undated()
    row = weighted([(domain, 1.0, 0.0, 0.0, 0.0)], profiles).row(0, named=True)
    assert row == {
        "profile": profile,
        "profile_id": profiles[profile].profile_id,
        "composite": profiles[profile].complexity,
    }


def test_a_profile_of_ones_own_is_taken() -> None:
    profiles = undated() | {"Legal advice": WeightProfile("Legal advice", 0.0, 0.0, 0.0, 1.0)}
    row = weighted([("Legal advice", 1.0, 1.0, 1.0, 0.5)], profiles).row(0)
    assert row == ("Legal advice", profiles["Legal advice"].profile_id, 0.5)


def test_a_trace_is_weighted_by_the_profile_that_it_bears_whatever_its_name_means_now() -> None:
    earlier, now = WeightProfile("code", 1, 0, 0, 0), WeightProfile("code", 0, 1, 0, 0)
    rows = traces([("code", 0.25, 0.75, 0.0, 0.0)] * 2)
    borne = rows.with_columns(profile_id=pl.Series([earlier.profile_id, now.profile_id]))
    assert borne.select(composite([earlier, now, now])).to_series().to_list() == [0.25, 0.75]


def test_a_trace_that_bears_an_unknown_profile_is_not_weighted() -> None:
    rows = traces([("code", 0.25, 0.75, 0.0, 0.0)]).with_columns(profile_id=pl.lit("gone"))
    assert rows.select(composite(undated().values())).item() is None


def test_no_traces_have_no_composite() -> None:
    assert weighted([], undated()).is_empty()


@pytest.mark.parametrize(
    ("total", "applies", "expected"),
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
    total: float, applies: tuple[bool, bool, bool], expected: float
) -> None:
    names = ("single_thought", "recovery_bonus", "low_diversity_penalty")
    frame = pl.DataFrame([{"composite": total, **dict(zip(names, applies, strict=True))}])
    assert frame.select(score()).item() == expected


MOMENTS = [datetime(2026, 6, 1, tzinfo=UTC) + timedelta(microseconds=us) for us in range(6)]
versions = st.dictionaries(
    st.sampled_from(["code", "legal", "law"]),
    st.lists(st.none() | st.sampled_from(MOMENTS), min_size=1, unique=True).map(
        lambda begins: sorted(begins, key=lambda begin: (begin is not None, begin or MOMENTS[0]))
    ),
)


@pytest.mark.telling
@pytest.mark.slow
@settings(max_examples=300)
@given(
    versions,
    st.lists(st.tuples(st.sampled_from(["code", "legal", "other", ""]), st.sampled_from(MOMENTS))),
)
def test_law_a_trace_takes_the_current_weights_at_its_time(
    begins: dict[str, list[datetime | None]], rows: list[tuple[str, datetime]]
) -> None:
    """The last version that has begun, to the microsecond; else that of default."""
    profiles = {
        name: tuple(
            Version(begin, WeightProfile(name, place / 10, 1 - place / 10, 0, 0))
            for place, begin in enumerate(dates)
        )
        for name, dates in {"default": [None, MOMENTS[2]], **begins}.items()
    }

    def expected(domain: str, moment: datetime) -> WeightProfile:
        for name in (domain, "default"):
            for begin, profile in reversed(profiles.get(name, ())):
                if begin is None or begin <= moment:
                    return profile
        raise AssertionError(domain)

    schema = {"task_domain": pl.String, "created_at": pl.Datetime("us", "UTC")}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    assigned = frame.select(assign(ProfileVersions(profiles)))
    wanted = [expected(*row) for row in rows]
    assert assigned.rows() == [(profile.name, profile.profile_id) for profile in wanted]
    for row, profile in zip(rows, wanted, strict=True):
        current = ProfileVersions(profiles).at(row[1])
        assert current.get(row[0], current["default"]) == profile


@pytest.mark.telling
@pytest.mark.slow
def test_ten_thousand_dates_are_searched() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=hour) for hour in range(10_000)]
    weights = [WeightProfile("default", n / 10_000, 1 - n / 10_000, 0, 0) for n in range(10_000)]
    profiles = tuple(map(Version, [None, *hours[1:]], weights))
    frame = pl.DataFrame({"created_at": hours}).select(
        pl.col("created_at").cast(pl.Datetime("us", "UTC")), task_domain=pl.lit("code")
    )
    [_, assigned] = frame.select(assign(ProfileVersions({"default": profiles})))
    assert assigned.to_list() == [profile.profile_id for profile in weights]
