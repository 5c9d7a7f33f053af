"""The formulas in SQL against the same formulas in Polars and NumPy."""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from kp_batch.dimensions import DIMENSIONS
from kp_batch.duck import frame_of
from kp_batch.scoring.composite import composite, score
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.warehouse.catalog import create_macros
from tests.support.make.publications import publish_nothing

OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")
EDGES = (0.0, 5e-324, 0.05, 0.1, 0.3, 0.7, 0.9, 0.95, 1 - 2.0**-53, 1.0)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        create_macros(connection)
        yield connection


def profiles() -> list[WeightProfile]:
    generator = np.random.default_rng(7)
    drawn = generator.dirichlet((1, 1, 1, 1), size=40)
    weights = [*drawn.tolist(), [1.0, 0.0, 0.0, 0.0], [0.25, 0.35, 0.15, 0.25]]
    return [WeightProfile(f"p{number}", *four) for number, four in enumerate(weights)]


def scored(weighting: list[WeightProfile]) -> pl.DataFrame:
    """Rows in which every combination of overrides meets scores that they clamp."""
    generator = np.random.default_rng(11)
    rows = 8_000
    chosen = generator.integers(0, len(weighting), rows)
    drawn = {
        name: np.where(
            generator.random(rows) < 0.5,
            generator.choice(EDGES, rows),
            generator.random(rows),
        )
        for name in DIMENSIONS
    }
    flags = {name: generator.random(rows) < 0.5 for name in OVERRIDES}
    ids = [weighting[number].profile_id for number in chosen]
    return pl.DataFrame({**drawn, **flags, "profile_id": ids}).with_columns(composite(weighting))


def test_the_score_is_the_engines_to_the_bit(connection: duckdb.DuckDBPyConnection) -> None:
    weighting = profiles()
    rows = scored(weighting).with_columns(score())
    weights = [{"profile_id": profile.profile_id, **vars(profile)} for profile in weighting]
    connection.register("rows", rows.with_row_index().to_arrow())
    connection.register("weights", pl.DataFrame(weights).to_arrow())
    frame = frame_of(
        connection.sql("""
            SELECT
                composite(
                    r.complexity, r.novelty, r.tool_diversity, r.outcome_confidence,
                    w.complexity, w.novelty, w.tool_diversity, w.outcome_confidence
                ) AS weighted,
                apply_overrides(
                    weighted, single_thought, recovery_bonus, low_diversity_penalty
                ) AS overridden
            FROM rows AS r JOIN weights AS w USING (profile_id)
            ORDER BY index
        """)
    )
    assert frame["weighted"].to_list() == rows["composite"].to_list()
    assert frame["overridden"].to_list() == rows["score"].to_list()
    assert {0.0, 1.0} <= set(rows["score"])


@pytest.mark.parametrize("applied", list(product([False, True], repeat=3)))
def test_each_override_is_applied_to_what_the_one_before_left(
    connection: duckdb.DuckDBPyConnection, applied: tuple[bool, ...]
) -> None:
    flags = dict(zip(OVERRIDES, applied, strict=True))
    rows = pl.DataFrame({"composite": EDGES}).with_columns(
        *(pl.lit(value).alias(name) for name, value in flags.items())
    )
    connection.register("rows", rows.to_arrow())
    steps = "composite"
    for name in OVERRIDES:
        steps = f"apply_{name}({steps}, {name})"
    whole = f"apply_overrides(composite, {', '.join(OVERRIDES)})"
    both = frame_of(connection.sql(f"SELECT {steps} AS a, {whole} AS b FROM rows"))
    wanted = rows.select(score())["score"].to_list()
    assert both["a"].to_list() == both["b"].to_list() == wanted


def test_a_recorded_score_shows_novelty_where_more_and_less_of_it_change_the_score(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    weighting = [
        profile for profile in profiles() if profile.novelty == 0 or profile.novelty > 0.01
    ]
    rows = scored(weighting).with_columns(score().alias("recorded"))
    weights = {profile.profile_id: profile.novelty for profile in weighting}
    moved = {
        name: rows.with_columns(novelty=pl.col("novelty") + by)
        .with_columns(composite(weighting))
        .select(score().alias(name))
        for name, by in (("less", -0.01), ("more", 0.01))
    }
    rows = pl.concat([rows, *moved.values()], how="horizontal").with_columns(
        weight=pl.col("profile_id").replace_strict(weights)
    )
    connection.register("rows", rows.with_row_index().to_arrow())
    shows = frame_of(
        connection.sql(f"""
            SELECT shows_novelty(recorded, weight, {", ".join(OVERRIDES)}) AS shows
            FROM rows ORDER BY index
        """)
    ).to_series()
    changes = (rows["less"] < rows["recorded"]) & (rows["recorded"] < rows["more"])
    is_placeholder = rows["recorded"] == 0
    is_highest = rows["composite"] > 1 - 1e-9  # so that more of it gives no score
    assert (shows == (changes & ~is_placeholder)).filter(~is_highest).all()
    assert shows.n_unique() == 2


def ten_bins(values: np.ndarray) -> list[int]:
    return np.bincount(np.minimum((values * 10).astype(int), 9), minlength=10).tolist()


@pytest.mark.parametrize("rows", [1, 2, 3, 10_000])
def test_a_distribution_is_what_numpy_gives(
    connection: duckdb.DuckDBPyConnection, rows: int
) -> None:
    generator = np.random.default_rng(rows)
    values = np.where(
        generator.random(rows) < 0.2, generator.choice(EDGES, rows), generator.random(rows)
    )
    connection.register("scores", pl.DataFrame({"score": values}).to_arrow())
    [(mean, quantiles, bins)] = connection.execute(
        "SELECT score_mean(score), score_quantiles(score), score_bins(score) FROM scores"
    ).fetchall()
    assert mean == round(mean, 12) == pytest.approx(values.mean(), rel=0, abs=1e-12)
    wanted = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist()
    assert quantiles == pytest.approx(wanted, rel=0, abs=1e-12)
    assert bins == ten_bins(values)


@pytest.mark.parametrize(
    ("value", "bins", "wanted"),
    [(0.0, 10, 0), (0.1, 10, 1), (1.0, 10, 9), (1 - 2.0**-53, 10, 9), (0.5, 1, 0), (0.5, 3, 1)],
)
def test_a_bin_begins_at_its_lower_edge_and_the_last_one_ends_at_1(
    connection: duckdb.DuckDBPyConnection, value: float, bins: int, wanted: int
) -> None:
    rows = connection.execute("SELECT bin_of(?::DOUBLE, ?)", [value, bins]).fetchall()
    assert rows == [(wanted,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [([100, 200, 300], [300, 200, 100]), ([0, 200], [200, 0]), ([9999, 1, 0], [1, 9999, 7])],
)
def test_the_stability_index_counts_an_empty_bin_as_a_ten_thousandth(
    connection: duckdb.DuckDBPyConnection, first: list[int], second: list[int]
) -> None:
    p, q = ([max(n / sum(bins), 0.0001) for n in bins] for bins in (first, second))
    wanted = sum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True))
    query = "SELECT stability_index(a, b), stability_index(b, a), stability_index(a, a) FROM bins"
    connection.execute(
        "CREATE TABLE bins AS SELECT ?::BIGINT[] AS a, ?::BIGINT[] AS b", [first, second]
    )
    [(there, back, same)] = connection.execute(query).fetchall()
    assert (there, back) == (pytest.approx(wanted, abs=1e-12), pytest.approx(wanted, abs=1e-12))
    assert same == 0.0


@pytest.mark.parametrize("bins", ["[100, 99]", "[0]", "[]", "NULL"])
def test_of_few_scores_there_is_no_stability_index(
    connection: duckdb.DuckDBPyConnection, bins: str
) -> None:
    query = f"SELECT stability_index({bins}, [200, 0]), stability_index([0, 200], {bins})"
    assert connection.execute(query).fetchall() == [(None, None)]


def test_a_rank_correlation_is_spearmans_with_ties(connection: duckdb.DuckDBPyConnection) -> None:
    generator = np.random.default_rng(5)
    scopes = np.repeat(["few", "many", "one value"], [5, 900, 4])
    rows = pl.DataFrame(
        {
            "scope": scopes,
            "a": np.where(scopes == "one value", 1, generator.integers(0, 40, len(scopes))),
            "b": generator.integers(0, 9, len(scopes)),
        }
    )
    connection.register("rows", rows.to_arrow())
    correlations = connection.execute("""
        SELECT scope, rank_correlation(x, y)
        FROM (SELECT scope, average_rank(a, scope) AS x, average_rank(b, scope) AS y FROM rows)
        GROUP BY scope
    """).fetchall()
    wanted = rows.group_by("scope").agg(pl.corr("a", "b", method="spearman").fill_nan(None))
    assert dict(correlations) == pytest.approx(dict(wanted.iter_rows()), abs=1e-12)


@pytest.mark.parametrize("alias", ["kp", "other"])
def test_a_view_that_calls_a_formula_answers_in_an_attached_catalog(
    tmp_path: Path, alias: str
) -> None:
    publish_nothing(tmp_path)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'kp.duckdb'}' AS {alias} (READ_ONLY)")
        for view in ("profile_comparison", "part_effects", "score_distribution"):
            assert connection.execute(f"FROM {alias}.{view}").fetchall() == []
