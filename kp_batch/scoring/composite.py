"""The formula of the score: four dimensions, weighted by domain, then three overrides.

Also breaks a score down: the share of each dimension and each override.
"""

from collections.abc import Iterable, Mapping

import polars as pl

from kp_batch.dimensions import DIMENSIONS, OVERRIDES, Breakdown, Override, Term
from kp_batch.schemas import TIMESTAMP
from kp_batch.scoring.profiles import DEFAULT, ProfileVersions, WeightProfile


def assign(versions: ProfileVersions) -> list[pl.Expr]:
    """Assign the profile named exactly as task_domain, else `default`, current at created_at.

    Takes task_domain, and created_at if any weights have a date. Returns the strings profile and
    profile_id.
    """
    if versions.moments:
        return _assign_by_time(versions)
    domain, by_name = pl.col("task_domain"), versions.versions
    name = pl.when(domain.is_in(list(by_name))).then(domain).otherwise(pl.lit(DEFAULT))
    ids = {name: version.profile.profile_id for name, (version,) in by_name.items()}
    return [
        name.alias("profile"),
        name.replace_strict(ids, return_dtype=pl.String).alias("profile_id"),
    ]


def _assign_by_time(versions: ProfileVersions) -> list[pl.Expr]:
    """Search twice: first for the dates that a row has passed, then for the version of its name."""
    moments, by_name = versions.moments, versions.versions
    number = {None: 0} | {moment: place for place, moment in enumerate(moments, 1)}
    first_key = {name: place * len(number) for place, name in enumerate(by_name)}
    keys = [first_key[name] + number[version.valid_from] for name, version in versions.named]
    ids = [version.profile.profile_id for _, version in versions.named]

    domain = pl.col("task_domain")
    times = pl.lit(pl.Series(moments, dtype=TIMESTAMP))
    passed = times.search_sorted(pl.col("created_at"), side="right").cast(pl.Int64)
    begins = {name: number[by_name[name][0].valid_from] for name in by_name}
    begin = domain.replace_strict(begins, default=None, return_dtype=pl.Int64)
    name = pl.when(begin <= passed).then(domain).otherwise(pl.lit(DEFAULT))
    key = name.replace_strict(first_key, return_dtype=pl.Int64) + passed
    place = pl.lit(pl.Series(keys)).search_sorted(key, side="right").cast(pl.Int64) - 1
    return [name.alias("profile"), pl.lit(pl.Series(ids)).gather(place).alias("profile_id")]


def profiles_of(table: pl.LazyFrame) -> list[WeightProfile]:
    """Read the profiles of a published table."""
    rows = table.select("name", *DIMENSIONS).collect()
    return [WeightProfile(*row) for row in rows.iter_rows()]


def composite(profiles: Iterable[WeightProfile]) -> pl.Expr:
    """The weighted sum of the dimensions.

    Formula: `C*wC + N*wN + D*wD + O*wO`, float64, summed in that order.

    Takes the four dimensions and profile_id. Returns Float64, null if `profiles` does not contain
    the profile_id.
    """
    by_id = {profile.profile_id: profile for profile in profiles}
    terms = [
        pl.col(dimension)
        * pl.col("profile_id").replace_strict(
            {profile_id: getattr(profile, dimension) for profile_id, profile in by_id.items()},
            default=None,
            return_dtype=pl.Float64,
        )
        for dimension in DIMENSIONS
    ]
    return (terms[0] + terms[1] + terms[2] + terms[3]).alias("composite")


def overridden() -> list[pl.Expr]:
    """The composite after each of `OVERRIDES`, each applied to the result of the one before.

    Formulas, in order: single_thought: 0.1; recovery_bonus: min(1, score + 0.1);
    low_diversity_penalty: max(0, score - 0.1).

    Takes composite and the Boolean columns of the three overrides. Returns three Float64 columns
    with the overrides' names.
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
    """Return the score of each row under each profile, regardless of its domain.

    Args:
        rows: the four dimensions, and the Boolean columns of the three overrides.
        profiles: by name.
    """
    ids = [profile.profile_id for profile in profiles.values()]
    under_each = rows.select(*DIMENSIONS, *OVERRIDES).join(
        pl.DataFrame({"profile_id": ids}), how="cross", maintain_order="left_right"
    )
    scores = under_each.with_columns(composite(profiles.values())).select(score()).to_series()
    parts = (scores.slice(row * len(ids), len(ids)).to_list() for row in range(len(rows)))
    return [dict(zip(profiles, part, strict=True)) for part in parts]


def breakdowns(rows: pl.DataFrame, profiles: Iterable[WeightProfile]) -> list[Breakdown]:
    """Break scores down by the formulas of `composite` and `score`.

    Args:
        rows: the four dimensions, the Boolean columns of the three overrides, and profile_id.
        profiles: all profiles of the rows.
    """
    by_id = {profile.profile_id: profile for profile in profiles}
    after = [column.name.prefix("after_") for column in overridden()]
    summed = rows.with_columns(composite(by_id.values())).with_columns(after)
    needed = [*DIMENSIONS, *OVERRIDES, "profile_id", "composite", pl.col("^after_.*$")]
    return [_breakdown(row, by_id[row["profile_id"]]) for row in summed.select(needed).to_dicts()]


def _breakdown(row: dict[str, float], profile: WeightProfile) -> Breakdown:
    weights = {name: float(getattr(profile, name)) for name in DIMENSIONS}
    steps = [row["composite"], *(row[f"after_{name}"] for name in OVERRIDES)]
    return Breakdown(
        profile=profile.name,
        profile_id=profile.profile_id,
        terms=tuple(
            Term(name, row[name], weight, row[name] * weight) for name, weight in weights.items()
        ),
        composite=steps[0],
        overrides=tuple(
            Override(name, bool(row[name]), after - before)
            for name, before, after in zip(OVERRIDES, steps, steps[1:], strict=False)
        ),
        score=steps[-1],
    )
