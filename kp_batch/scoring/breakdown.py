"""A score as a sum: what each dimension and each override adds to it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.scoring.profiles import WeightProfile

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Term:
    """What a dimension adds to the composite."""

    dimension: str
    value: float  # 0..1
    weight: float  # 0..1
    product: float


@dataclass(frozen=True)
class Override:
    """What an override does to the score that the ones before it left."""

    name: str
    applies: bool
    change: float  # of the score; may be 0 at a bound


@dataclass(frozen=True)
class Breakdown:
    """How a score comes about: the composite is the sum of the terms, the overrides change it."""

    profile: str
    profile_id: str
    terms: tuple[Term, ...]  # in the order in which they are summed
    composite: float  # 0..1
    overrides: tuple[Override, ...]  # in the order in which they follow each other
    score: float  # 0..1


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
