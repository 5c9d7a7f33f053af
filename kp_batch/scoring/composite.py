"""Facts and novelty to the score: four dimensions, weights by domain, three overrides."""

from collections.abc import Iterable, Mapping

import polars as pl

from kp_batch.contracts import DIMENSIONS
from kp_batch.scoring.profiles import DEFAULT, WeightProfile


def dimensions() -> list[pl.Expr]:
    """The three dimensions that a trace has by itself, each in 0..1.

    Formulas::

        complexity          min(1, n_types/4 * 0.5 + (0.3 if n_recoveries > 0 else 0) + n/20 * 0.2)
        tool_diversity      min(1, n_tools / max(1, n) * 3)
        outcome_confidence  confidence * (1 if success else 0.3)

    Takes the columns of `facts`, confidence and success. Returns Float64 columns.
    """
    steps = pl.col("n_steps")
    # Polars divides by a constant by multiplying with its reciprocal, which is off in the last bit;
    # by a column it divides.
    twenty = steps * 0 + 20
    recovered = pl.when(pl.col("n_recoveries") > 0).then(0.3).otherwise(0.0)
    complexity = pl.col("n_types") / 4 * 0.5 + recovered + steps / twenty * 0.2
    diversity = pl.col("n_tools") / pl.max_horizontal(1, steps) * 3
    outcome = pl.col("confidence") * pl.when("success").then(1.0).otherwise(0.3)
    return [
        pl.min_horizontal(1.0, complexity).alias("complexity"),
        pl.min_horizontal(1.0, diversity).alias("tool_diversity"),
        outcome.alias("outcome_confidence"),
    ]


def overrides() -> list[pl.Expr]:
    """Which overrides' conditions hold, whatever their effect.

    Takes the columns of `facts` and success. Returns the Boolean columns single_thought (its only
    step is a thought), recovery_bonus (more than 2 recoveries, and success) and
    low_diversity_penalty (some step carries a tool, and at most 1 distinct tool).
    """
    return [
        ((pl.col("n_steps") == 1) & (pl.col("n_thoughts") == 1)).alias("single_thought"),
        ((pl.col("n_recoveries") > 2) & pl.col("success")).alias("recovery_bonus"),
        ((pl.col("n_tools") <= 1) & (pl.col("n_tool_steps") > 0)).alias("low_diversity_penalty"),
    ]


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


def score() -> pl.Expr:
    """The composite after the overrides, each on the result of the one before.

    Formulas, in order: single_thought: 0.1; recovery_bonus: min(1, score + 0.1);
    low_diversity_penalty: max(0, score - 0.1).

    Takes composite and the columns of `overrides`. Returns Float64 in 0..1.
    """
    start = pl.when("single_thought").then(0.1).otherwise(pl.col("composite"))
    raised = pl.when("recovery_bonus").then(pl.min_horizontal(1.0, start + 0.1)).otherwise(start)
    lowered = pl.max_horizontal(0.0, raised - 0.1)
    return pl.when("low_diversity_penalty").then(lowered).otherwise(raised).alias("score")
