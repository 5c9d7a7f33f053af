"""The uncertainty of means: its distributions against SciPy, and how often its intervals cover."""

import math
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats

from kp_batch.warehouse.catalog import create_macros
from tests.bench.uncertainty import Cell, Coverage, coverage
from tests.support.read.means import ask_of


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        create_macros(connection)
        yield connection


def test_students_quantile_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    degrees = [*np.linspace(4, 12, 161), *np.geomspace(12, 1e9, 60)]
    rows = connection.execute("SELECT student_t(unnest(?))", [degrees]).fetchall()
    wanted = stats.t.ppf(0.975, degrees)
    assert [value for (value,) in rows] == pytest.approx(wanted.tolist(), rel=1e-6)
    few = connection.execute("SELECT student_t(unnest([0, 3.999, NULL]))").fetchall()
    assert few == [(None,)] * 3


def test_a_p_value_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    pairs = [(t, df) for t in (0, 1e-9, 0.3, 1, 2, 3.5, 7, 40, 1e6) for df in (4, 4.5, 9, 80, 1e7)]
    query = """
        SELECT two_sided(normal_deviate((df - 0.5) * ln(1 + t * t / df), df))
        FROM (SELECT unnest($t)::DOUBLE AS t, unnest($df)::DOUBLE AS df)
    """
    t, df = ([pair[place] for pair in pairs] for place in (0, 1))
    rows = connection.execute(query, {"t": t, "df": df}).fetchall()
    for (value,), pair in zip(rows, pairs, strict=True):
        assert math.isclose(value, 2 * stats.t.sf(*pair), abs_tol=3e-6), pair


def test_the_uncertainty_of_what_is_the_same_on_both_sides_is_none(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sides = [0.1 + number / 1000 for number in range(800)]
    query = "SELECT of_both_sides(x, nextafter(x, 1), 1) FROM (SELECT unnest(?)::DOUBLE AS x)"
    rows = connection.execute(query, [sides]).fetchall()
    assert [value for (value,) in rows] == pytest.approx([0] * 800, abs=1e-7)


def changes(connection: duckdb.DuckDBPyConnection, *weeks: Iterable[tuple[int, float]]) -> Any:
    """The last answer of `changes_by` for attempts, a week each: the task, and the score."""
    rows = [
        {
            "objective_hash": str(task),
            "score": score,
            "day": date(2026, 1, 5 + 7 * number),
        }
        for number, week in enumerate(weeks)
        for task, score in week
    ]
    ask_of(connection, pl.DataFrame(rows))
    *_, last = connection.sql("FROM changes_by('everything', 'week')").to_arrow_table().to_pylist()
    return last


@pytest.mark.parametrize("score", [0.1, 0.7, 1 / 3])
def test_scores_that_stay_did_not_move_by_their_rounding(
    connection: duckdb.DuckDBPyConnection, score: float
) -> None:
    before = [(number % 41, score) for number in range(130)]
    for now in range(6, 60, 9):
        answer = changes(connection, before, [(number, score) for number in range(now)])
        assert answer["change"] == 0
        assert answer["p_value"] == pytest.approx(1)


def test_a_period_without_the_few_tasks_that_score_high_did_not_move(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """A tenth of the tasks does; of thirty there are none in one of 24 periods."""
    before = [(number, 0.2 if number % 10 else 0.8) for number in range(120)]
    answer = changes(connection, before, [(number, 0.2) for number in range(200, 230)])
    assert answer["change"] == pytest.approx(-0.06)
    assert answer["p_value"] > 0.05
    assert answer["high"] > 0


def test_on_the_same_tasks_a_change_has_the_uncertainty_of_pairs(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    before, now = ((0.2, 0.35, 0.5, 0.3, 0.6, 0.41), (0.3, 0.4, 0.45, 0.5, 0.71, 0.61))
    answer = changes(connection, enumerate(before), enumerate(now))
    wanted = stats.ttest_rel(now, before)
    low, high = wanted.confidence_interval()
    assert (answer["low"], answer["high"]) == pytest.approx((low, high), abs=1e-6)
    assert answer["p_value"] == pytest.approx(wanted.pvalue, abs=1e-5)


@pytest.mark.parametrize(
    ("share", "alike", "least", "most"),
    [(None, 0.5, 0.92, 0.98), (0.3, 0.0, 0.92, 1), (0.3, 1.0, 0.92, 1), (0.05, 0.3, 0.92, 1)],
)
@pytest.mark.parametrize("is_skewed", [False, True])
def test_intervals_cover_what_was_drawn(
    share: float | None, alike: float, least: float, most: float, *, is_skewed: bool
) -> None:
    found = coverage(Cell(20, is_skewed, share, alike, seed=3), draws=400)
    assert found.covered
    assert least < found.covered <= most
    assert found.given_from_ten in {None, 1}
    assert share is None or (found.overconfidence and found.overconfidence > least)


def test_no_interval_is_given_of_four_tasks() -> None:
    for share in (None, 0.3):
        cell = Cell(4, is_skewed=False, share=share, alike=0.5, seed=1)
        assert coverage(cell, draws=20) == Coverage(
            0, given_from_ten=None, covered=None, width=None, overconfidence=None
        )


def test_nothing_entered_or_exited_where_the_domains_are_the_same(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    places = range(70)
    rows = {
        "day": [date(2026, 1, 5) + timedelta(days=place // 10) for place in places],
        "task_domain": [f"domain {place % 3}" for place in places],
        "objective_hash": [*places],
        "score": [0.1 + place * 0.37 % 1 for place in places],
    }
    ask_of(connection, pl.DataFrame(rows))
    answer = connection.execute("SELECT entered, exited FROM mean_changes('day')").fetchall()
    assert answer == [(None, None), *[(0, 0)] * 6]
