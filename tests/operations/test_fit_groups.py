"""Which labels are fitted together, and what keeps a domain out."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.operations.fit_groups import WIDEST, Group, fit_groups
from kp_batch.operations.fit_rows import conclusion_of
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


def fitted(
    *rows: pl.DataFrame, own: tuple[str, ...] = (), others: tuple[str, ...] = ()
) -> Mapping[str | None, Group]:
    """Fit domains that take the weights of `default`, except those with their own.

    Others have no labels.
    """
    every = pl.concat(rows)
    published = {
        domain: WeightProfile(domain if domain in own else DEFAULT, *_WEIGHTS)
        for domain in [*every["task_domain"].unique(), *others, DEFAULT]
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


def test_default_stands_for_domains_without_labels_too() -> None:
    rows = (rows_of("law", 90, by_novelty), rows_of("art", 80, by_chance))
    groups = fitted(*rows, rows_of(DEFAULT, 70, by_chance), own=("math",), others=("math", "war"))
    assert groups[None].domains == {"law", "art", "math", "war", DEFAULT}
    assert groups["art"].domains == {"art"}
    assert groups[DEFAULT].domains == {"art", "war", DEFAULT}  # law has a leak


def test_numbers_have_one_measure_in_all_domains() -> None:
    """Also where those of a domain are only 0 and 1."""
    numbers = rows_of("law", 90, by_chance).with_columns(pl.col("label") * 2)
    groups = fitted(numbers, rows_of("art", 80, by_chance))
    found = groups["art"].fit
    assert found is not None
    assert found.thresholds is None
    rows = groups["art"].rows
    expected = [spearmanr(rows[name], rows["label"]).statistic for name in DIMENSIONS]
    assert [each.value for each in found.alone] == pytest.approx(expected)


def test_each_domain_is_fitted() -> None:
    rows = [rows_of(f"domain {place:02}", 30, by_chance) for place in range(60)]
    assert all(group.fit for group in fitted(*rows).values())


def shifted(domain: str, number: int, rate: float) -> pl.DataFrame:
    """Labels at random, in a domain with its own rate of yes and greater dimensions, if rare."""
    draw = np.random.default_rng(number)
    verdicts = pl.Series("label", (draw.random(number) < rate) * 1.0)
    return rows_of(domain, number, by_chance).with_columns(
        verdicts, complexity=pl.col("complexity") * 0.5 + (0.5 if rate < 0.5 else 0.0)
    )


def test_domains_of_default_that_differ_are_not_compared_with_each_other() -> None:
    """Rates of yes, and dimensions, differ between domains; within each, labels are at random."""
    decisions = [
        fitted(shifted("law", 300 + seed, 0.25), shifted("art", 250 + seed, 0.7))[DEFAULT].decision
        for seed in range(5)
    ]
    assert "change" not in decisions


def test_a_leak_needs_five_of_each_label() -> None:
    one = pl.when(pl.col("novelty") == pl.col("novelty").max()).then(1.0).otherwise(0.0)
    rows = rows_of("law", 40, by_chance, confidence=pl.col("novelty")).with_columns(label=one)
    few = fitted(rows, rows_of("art", 80, by_chance))["law"]
    assert (few.leaks, few.decision) == ([], "too few labels")


def test_what_is_known_only_of_one_label_is_no_leak() -> None:
    known = pl.when(pl.col("label") == 1).then(pl.col("novelty"))
    rows = rows_of("law", 90, by_chance, weight=pl.col("novelty")).with_columns(confidence=known)
    assert fitted(rows)["law"].leaks == []


def test_labels_at_random_have_no_signal() -> None:
    found = fitted(rows_of("law", 400, by_chance))["law"]
    assert (found.decision, found.labels_needed) == ("no signal", None)


def test_more_labels_are_needed_for_narrower_intervals() -> None:
    few = fitted(rows_of("law", 60, by_two))["law"]
    assert few.decision == "too few labels"
    assert few.labels_needed is not None
    assert 60 < few.labels_needed < 1_000
    enough = fitted(rows_of("law", few.labels_needed, by_two))["law"]
    assert enough.widest is not None
    assert enough.widest < WIDEST * 1.3


def by_two(dimensions: Float64s, draw: np.random.Generator) -> Float64s:
    wanted = dimensions[:, :2].sum(1) + draw.normal(0, 0.5, len(dimensions))
    return (wanted > 1) * 1.0


def against_complexity(dimensions: Float64s, draw: np.random.Generator) -> Float64s:
    """Weights below 0 would order these labels best."""
    wanted = dimensions[:, 3] - 2 * dimensions[:, 0] + draw.normal(0, 0.2, len(dimensions))
    return (wanted > np.median(wanted)) * 1.0


def test_a_dimension_that_labels_go_against_hides_no_other() -> None:
    found = fitted(rows_of("law", 300, against_complexity))["law"]
    assert found.decision == "change"
    assert found.fit is not None
    assert found.fit.weights.values[[0, 3]] == pytest.approx([0, 1], abs=0.2)


def test_labels_needed_are_unknown_where_intervals_are() -> None:
    found = fitted(rows_of("law", 25, by_complexity))["law"]
    assert (found.decision, found.widest, found.labels_needed) == ("too few labels", 1, None)


def test_no_signal_is_the_conclusion_only_if_no_domain_has_one() -> None:
    rows = rows_of("art", 300, by_chance), rows_of("law", 60, by_two)
    groups = [*fitted(*rows, own=("art", "law")).values()]
    assert [group.decision for group in groups[1:]] == ["no signal", "too few labels"]
    assert conclusion_of(groups, "AUC").endswith("the labels are too few")
    alone = [*fitted(rows[0], own=("art",)).values()]
    assert conclusion_of(alone, "AUC").endswith("is evidently better than chance")
