"""Which labels are fitted together, and what keeps a domain out."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.operations.fit_groups import Group, fit_groups
from kp_batch.scoring.profiles import DEFAULT, WeightProfile
from kp_batch.vectors import Float64s

_WEIGHTS = (0.25, 0.35, 0.15, 0.25)
Label = Callable[[Float64s, np.random.Generator], Float64s]


def by_chance(_: Float64s, draw: np.random.Generator) -> Float64s:
    return (draw.random(len(_)) < 0.5) * 1.0


def by_complexity(dimensions: Float64s, draw: np.random.Generator) -> Float64s:
    return (dimensions[:, 0] + draw.random(len(dimensions)) * 0.4 > 0.7) * 1.0


def by_novelty(dimensions: Float64s, _: np.random.Generator) -> Float64s:
    """Labels that repeat a dimension."""
    return (dimensions[:, 1] > 0.5) * 1.0


def rows_of(domain: str, number: int, label: Label, **columns: pl.Expr) -> pl.DataFrame:
    """Labelled traces of a domain, each of its own task, as fit_labelled.sql returns them."""
    draw = np.random.default_rng(number)
    dimensions = draw.random((number, 4))
    names = [f"{domain} {place}" for place in range(number)]
    rows = pl.DataFrame(dict(zip(DIMENSIONS, dimensions.T, strict=True))).with_columns(
        pl.Series("trace_id", names),
        pl.Series("objective_hash", names),
        pl.Series("label", label(dimensions, draw)),
        pl.Series("created_us", np.arange(number) * 1_000_000),
        pl.Series("score", dimensions @ _WEIGHTS),
        *(pl.lit(value=False).alias(name) for name in OVERRIDES),
        *(pl.lit(None, pl.Float64).alias(name) for name in ("success", "confidence")),
        pl.lit(None, pl.Float64).alias("recorded_score"),
        task_domain=pl.lit(domain),
        weight=pl.lit(1.0),
    )
    return rows.with_columns(**columns)


def fitted(*rows: pl.DataFrame, own: tuple[str, ...] = ()) -> Mapping[str | None, Group]:
    """Fit domains that take the weights of `default`, except those with their own."""
    every = pl.concat(rows)
    published = {
        domain: WeightProfile(domain if domain in own else DEFAULT, *_WEIGHTS)
        for domain in [*every["task_domain"].unique(), DEFAULT]
    }
    return {group.task_domain: group for group in fit_groups(every, published)}


def test_a_p_value_counts_only_domains_that_can_be_fitted() -> None:
    rows = rows_of("law", 60, by_complexity)
    few = [rows_of(f"few {number}", number, by_chance) for number in range(2, 9)]
    names = ("law", *(f"few {number}" for number in range(2, 9)))
    alone = fitted(rows, own=names)["law"].p_value
    assert fitted(rows, *few, own=names)["law"].p_value == alone < 1


def test_a_domain_with_a_leak_changes_no_other_weights() -> None:
    leaking = rows_of("law", 90, by_novelty)
    groups = fitted(leaking, rows_of("art", 80, by_chance), rows_of(DEFAULT, 70, by_chance))
    assert groups["law"].decision == "leak"
    assert {*groups[DEFAULT].rows["task_domain"]} == {"art", DEFAULT}


def test_other_domains_do_not_hide_a_leak_in_that_of_default() -> None:
    groups = fitted(rows_of("art", 80, by_chance), rows_of(DEFAULT, 70, by_novelty))
    assert groups[DEFAULT].decision == "leak"
    assert [column for column, *_ in groups[DEFAULT].leaks] == ["novelty"]
