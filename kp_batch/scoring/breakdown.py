"""A score as a sum: what each dimension and each override adds to it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kp_batch.dimensions import DIMENSIONS, OVERRIDES, Breakdown, Override, Term
from kp_batch.scoring.profiles import WeightProfile

if TYPE_CHECKING:
    import polars as pl


def breakdowns(rows: "pl.DataFrame", profiles: Iterable[WeightProfile]) -> list[Breakdown]:
    """Break scores down, by the formulas of `composite` and `score`.

    Args:
        rows: the four dimensions, the Boolean columns of the three overrides, and the profile_id
            that each row bears.
        profiles: all that the rows bear.
    """
    import polars as pl

    from kp_batch.scoring.composite import composite, overridden

    known = {each.profile_id: each for each in profiles}
    after = [each.name.prefix("after_") for each in overridden()]
    summed = rows.with_columns(composite(known.values())).with_columns(after)
    needed = [*DIMENSIONS, *OVERRIDES, "profile_id", "composite", pl.col("^after_.*$")]
    return [_breakdown(row, known[row["profile_id"]]) for row in summed.select(needed).to_dicts()]


def _breakdown(row: dict[str, float], profile: WeightProfile) -> Breakdown:
    weights = {each: float(getattr(profile, each)) for each in DIMENSIONS}
    steps = [row["composite"], *(row[f"after_{each}"] for each in OVERRIDES)]
    return Breakdown(
        profile=profile.name,
        profile_id=profile.profile_id,
        terms=tuple(
            Term(each, row[each], weight, row[each] * weight) for each, weight in weights.items()
        ),
        composite=steps[0],
        overrides=tuple(
            Override(each, bool(row[each]), after - before)
            for each, before, after in zip(OVERRIDES, steps, steps[1:], strict=False)
        ),
        score=steps[-1],
    )
