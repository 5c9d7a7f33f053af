"""The formula of the score: four dimensions, weighted by domain, then three overrides."""

from collections.abc import Iterable, Mapping

import polars as pl

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.scoring.profiles import DEFAULT, WeightProfile


def assign(profiles: Mapping[str, WeightProfile]) -> list[pl.Expr]:
    """The profile named exactly as task_domain, else `default`.

    Takes task_domain. Returns the strings profile and profile_id.
    """
    domain = pl.col("task_domain")
    name = pl.when(domain.is_in(list(profiles))).then(domain).otherwise(pl.lit(DEFAULT))
    ids = {name: each.profile_id for name, each in profiles.items()}
    return [
        name.alias("profile"),
        name.replace_strict(ids, return_dtype=pl.String).alias("profile_id"),
    ]


def composite(profiles: Iterable[WeightProfile]) -> pl.Expr:
    """The weighted sum of the dimensions.

    Formula: `C*wC + N*wN + D*wD + O*wO`, float64, summed in that order.

    Takes the four dimensions and profile_id. Returns Float64, null where `profiles` has no such
    profile_id.
    """
    known = {each.profile_id: each for each in profiles}
    terms = [
        pl.col(dimension)
        * pl.col("profile_id").replace_strict(
            {profile_id: getattr(each, dimension) for profile_id, each in known.items()},
            default=None,
            return_dtype=pl.Float64,
        )
        for dimension in DIMENSIONS
    ]
    return (terms[0] + terms[1] + terms[2] + terms[3]).alias("composite")


def overridden() -> list[pl.Expr]:
    """The composite after each of `OVERRIDES`, each on the result of the one before.

    Formulas, in order: single_thought: 0.1; recovery_bonus: min(1, score + 0.1);
    low_diversity_penalty: max(0, score - 0.1).

    Takes composite and the Boolean columns of the three overrides. Returns three Float64 columns,
    of the overrides' names.
    """
    first, second, third = OVERRIDES
    start = pl.when(first).then(0.1).otherwise(pl.col("composite"))
    raised = pl.when(second).then(pl.min_horizontal(1.0, start + 0.1)).otherwise(start)
    lowered = pl.when(third).then(pl.max_horizontal(0.0, raised - 0.1)).otherwise(raised)
    return [start.alias(first), raised.alias(second), lowered.alias(third)]


def score() -> pl.Expr:
    """The composite after all overrides, Float64 in 0..1; see `overridden`."""
    return overridden()[-1].alias("score")


def scores_by_profile(
    rows: pl.DataFrame, profiles: Mapping[str, WeightProfile]
) -> list[dict[str, float]]:
    """The score of each row under each profile, whatever its domain.

    Args:
        rows: the four dimensions, and the Boolean columns of the three overrides.
        profiles: by name.
    """
    known = rows.select(*DIMENSIONS, *OVERRIDES)
    scores = [
        known.with_columns(profile_id=pl.lit(each.profile_id))
        .with_columns(composite([each]))
        .select(score().alias(name))
        for name, each in profiles.items()
    ]
    return pl.concat(scores, how="horizontal").to_dicts()
