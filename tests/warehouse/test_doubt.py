"""The doubt of means: its distributions against SciPy, and how often its intervals cover."""

import math
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from scipy import stats

from kp_batch.warehouse.catalog import create_macros
from tests.bench.doubt import Cell, Coverage, coverage


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        create_macros(connection, "doubt")
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


def test_no_interval_is_given_of_four_tasks() -> None:
    for share in (None, 0.3):
        cell = Cell(4, is_skewed=False, share=share, alike=0.5, seed=1)
        assert coverage(cell, draws=20) == Coverage(
            0, given_from_ten=None, covered=None, width=None
        )
