"""The lines beside the numbers that the report begins with."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from kp_batch.report.numbers import Number, Point
from kp_batch.report.sparkline import Sparkline


def drawn(*values: float | None, form: str = ".3f", band: float | None = None) -> Sparkline | None:
    points = [
        Point(
            datetime(2026, 1, 5, tzinfo=UTC) + timedelta(weeks=step),
            value,
            None if band is None or value is None else value - band,
            None if band is None or value is None else value + band,
        )
        for step, value in enumerate(values)
    ]
    return Sparkline.of(Number("mean", "mean score", form, 0.5, None, None, "", tuple(points)))


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_the_line_goes_through_the_values_from_the_least_to_the_greatest() -> None:
    line = drawn(0.5, 0.75, 0.5, 1.0)
    assert line
    [first, begin, *others] = points(line.line)
    assert first == begin  # so that a value alone is a dot
    heights = [y for _, y in (begin, *others)]
    bottom, top = max(heights), min(heights)
    assert heights == [bottom, (bottom + top) / 2, bottom, top]
    assert 0 < top < bottom < Sparkline.height
    steps = [x for x, _ in (begin, *others)]
    apart = [after - before for before, after in pairwise(steps)]
    assert apart == pytest.approx([(Sparkline.width - 6) / 4] * 3, abs=0.15)
    assert 0 < steps[0] < steps[-1] < Sparkline.width
    assert line.last == (begin, *others)[-1]
    assert line.band == ""
    assert line.words == "2026-01-05: 0.500; 2026-01-26: 1.000"


def test_the_line_is_broken_where_there_is_no_value() -> None:
    line = drawn(0.1, 0.2, None, 0.3, None)
    assert line
    assert line.line.count("M") == 2
    assert line.last == points(line.line)[-1]
    assert line.words == "2026-01-05: 0.100; 2026-01-26: 0.300"


def test_the_band_is_as_high_as_the_interval_of_each_step() -> None:
    line = drawn(0.4, None, 0.6, band=0.2)
    assert line
    fields = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V([\d.]+)Z", line.band)
    [(left, low, high, right, _), (_, low_after, high_after, end, _)] = [
        [float(number) for number in field] for field in fields
    ]
    assert (left, end) == (3, Sparkline.width - 3)
    assert (low, high_after) == (Sparkline.height - 3, 3)
    assert low - high == pytest.approx(low_after - high_after) == 20
    assert right - left == pytest.approx((Sparkline.width - 6) / 3, abs=0.1)


def test_counts_are_drawn_from_zero() -> None:
    line = drawn(50, 100, form=",")
    assert line
    _, (_, half), (_, most) = points(line.line)
    assert most == 3
    assert half == Sparkline.height / 2


def test_values_that_are_all_the_same_are_half_way_up() -> None:
    line = drawn(0.5, 0.5)
    assert line
    assert {y for _, y in points(line.line)} == {Sparkline.height / 2}


@pytest.mark.parametrize(
    ("values", "form"), [((), ".3f"), ((0.5,), ".3f"), ((0.5, None), ".3f"), ((0, 7, 0), ",")]
)
def test_a_single_step_shows_nothing(values: tuple[float | None, ...], form: str) -> None:
    assert drawn(*values, form=form) is None


def test_shares_of_none_are_known() -> None:
    assert drawn(0.0, 0.0, form=".1%")
