"""Which days the report shows, and in which steps: by law, and by example."""

from collections.abc import Mapping
from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.report.periods import ChartSpan, grain_of, shown_places, span
from tests.support.oracle.reports import LENGTHS

ENDED = date(2026, 2, 1)
DAY = timedelta(days=1)
# How many traces there are of a day, by days since some day: near each other, or far off.
Days = Mapping[int, int]
near, far = st.integers(0, 60), st.integers(0, 30_000)
numbers = st.one_of(st.integers(1, 3), st.integers(1, 400))
some_days = st.dictionaries(st.one_of(near, near, far), numbers, min_size=1, max_size=12)


def shown_days(days: Days) -> tuple[int, int]:
    """The first and the last day that are shown."""
    order = sorted(days)
    first, last = shown_places(np.array(order), np.array([days[day] for day in order]))
    return order[first], order[last]


def shortest(days: Days) -> tuple[int, int]:
    """Of the stretches with 98 of 100 traces the shortest, the latest of these."""
    order, total = sorted(days), sum(days.values())
    stretches = [
        (last - first, -first, last)
        for first in order
        for last in order
        if 100 * sum(n for day, n in days.items() if first <= day <= last) >= 98 * total
    ]
    _, first, last = min(stretches)
    return -first, last


@settings(max_examples=50)
@given(some_days)
def test_law_what_is_shown_has_98_of_100_traces_and_the_shortest_stretch_that_has(
    days: Days,
) -> None:
    first, last = shown_days(days)
    begin, end = shortest(days)
    assert first <= begin <= end <= last
    assert 100 * sum(n for day, n in days.items() if first <= day <= last) >= 98 * sum(
        days.values()
    )


@settings(max_examples=50)
@given(some_days)
def test_law_a_day_is_left_out_only_behind_a_gap_and_where_it_doubles_the_days(
    days: Days,
) -> None:
    first, last = shown_days(days)
    begin, end = shortest(days)
    longest = (end - begin + 1) / 10
    before = [day for day in days if day < first]
    after = [day for day in days if day > last]
    assert all(first - day > longest for day in before)
    assert all(day - last > longest for day in after)
    if before or after:
        assert max(days) - min(days) + 1 >= 2 * (last - first + 1)


@settings(max_examples=50)
@given(some_days)
def test_law_further_days_are_next_to_those_shown_unless_all_are_shown(days: Days) -> None:
    first, last = shown_days(days)
    begin, end = shortest(days)
    if (first, last) != (min(days), max(days)):
        shown = [day for day in sorted(days) if first <= day <= last]
        besides = [b - a for a, b in pairwise(shown) if a < begin or b > end]
        assert all(gap <= (end - begin + 1) / 10 for gap in besides)


def spanned(days: Days) -> ChartSpan:
    """Of days before the last run ended, or after it where they are less than 0."""
    rows = {ENDED - day * DAY: traces for day, traces in days.items()}
    frame = pl.DataFrame({"day": [*rows], "traces": [*rows.values()]})
    return span("code", frame, ENDED)


@settings(max_examples=30)
@given(some_days, st.dictionaries(st.integers(-30_000, -1), numbers, max_size=3))
def test_law_days_after_the_run_stretch_nothing(days: Days, future: Days) -> None:
    with_them, without = spanned({**days, **future}), spanned(days)
    shown = with_them.first_day, with_them.last_day, with_them.grain
    assert shown == (without.first_day, without.last_day, without.grain)
    assert with_them.last_day <= ENDED


@settings(max_examples=30)
@given(some_days)
def test_law_days_are_shown_wherever_they_are_in_time(days: Days) -> None:
    first, last = shown_days(days)
    shown = spanned({30_000 - day: traces for day, traces in days.items()})
    begin = ENDED - 30_000 * DAY
    assert (shown.first_day, shown.last_day) == (begin + first * DAY, begin + last * DAY)


def test_where_all_days_are_after_the_run_they_are_shown() -> None:
    shown = spanned({-1: 1, -3: 1})
    assert (shown.first_day, shown.last_day) == (ENDED + DAY, ENDED + 3 * DAY)


@pytest.mark.parametrize(
    ("days", "first", "last"),
    [
        ({0: 1, 100: 49, 101: 50}, 100, 101),  # 1 of 100 is left out
        ({0: 3, 100: 47, 101: 50}, 0, 101),  # 3 of 100 are not
        ({0: 2, 9: 98}, 9, 9),
        ({0: 98, 9: 2}, 0, 0),
        ({0: 49, 1: 49, 2: 2}, 0, 2),  # to leave this out would save a third
        ({0: 50, 10: 48, 11: 1, 13: 1}, 0, 13),
        ({0: 50, 9: 48, 10: 1, 100: 1}, 0, 10),  # the next day belongs to them
        ({0: 50, 9: 48, 11: 1, 100: 1}, 0, 9),  # not one behind a gap of more than a tenth
        ({0: 50, 19: 48, 21: 1, 100: 1}, 0, 21),  # of two days is a tenth of twenty
        ({0: 50, 19: 48, 22: 1, 100: 1}, 0, 19),
        ({0: 50, 9: 48, 18: 2}, 0, 18),  # less than twice as many days
        ({0: 50, 9: 48, 19: 2}, 0, 9),  # twice as many
        ({0: 2, 10: 49, 11: 49, 20: 49, 21: 49, 31: 2}, 10, 21),
        ({0: 1, 1: 1}, 0, 1),
        ({7: 1}, 7, 7),
    ],
)
def test_rare_days_far_from_all_others_are_left_out(days: Days, first: int, last: int) -> None:
    assert shown_days(days) == (first, last)


def test_of_stretches_that_are_as_short_the_latest_is_shown() -> None:
    assert shown_days({0: 1, 100: 2, 110: 195, 120: 2}) == (110, 120)


@pytest.mark.parametrize(
    ("days", "grain"),
    [
        (1, "hour"),
        (5, "hour"),
        (6, "day"),
        (79, "day"),
        (80, "week"),
        (475, "week"),
        (476, "month"),
        (1824, "month"),
        (1825, "quarter"),
        (6029, "quarter"),
        (6030, "year"),
        (32_732, "year"),
        (32_733, "decade"),
        (327_333, "decade"),
        (327_334, "century"),
        (3_652_059, "century"),
    ],
)
def test_the_unit_of_time_is_that_of_which_the_days_have_20_to_60_or_nearly(
    days: int, grain: str
) -> None:
    assert grain_of(days) == grain


@given(st.integers(1, 3_652_059))
def test_law_no_other_unit_of_time_is_nearer_to_20_to_60_steps(days: int) -> None:
    def off(grain: str) -> float:
        steps = days / LENGTHS[grain]
        return max(1, (steps / 60) ** 2, 20 / steps)

    assert off(grain_of(days)) == min(map(off, LENGTHS))


@pytest.mark.parametrize(("days", "by"), [(5 * 366, "month"), (5 * 366 + 1, "year")])
def test_days_outside_of_the_span_are_grouped_by_month_or_if_long_by_year(
    days: int, by: str
) -> None:
    assert spanned({0: 99, days: 1}).others_by == by
