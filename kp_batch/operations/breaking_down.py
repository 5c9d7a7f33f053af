"""What the score of one trace is made of, whether it is published or new."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from kp_batch.operations.explained import Counts
from kp_batch.scoring.breakdown import breakdowns
from kp_batch.scoring.profiles import WeightProfile

Row = Mapping[str, Any]


def counts_of(row: Row) -> Counts:
    """The counts of a trace.

    Args:
        row: the columns of `with_facts`, or those of `scores`, which lack some.
    """
    return Counts(
        n_steps=row["n_steps"],
        n_types=row.get("n_types"),
        n_recoveries=row.get("n_recoveries"),
        n_tool_steps=row.get("n_tool_steps"),
        n_tools=row["n_tools"],
        confidence=row.get("confidence"),
        success=row["success"],
    )


def scores_by_profile(row: Row, profiles: Mapping[str, WeightProfile]) -> dict[str, float]:
    """The score of a trace under each profile, whatever its domain.

    Args:
        row: the four dimensions, and the bools of the three overrides.
        profiles: by name.
    """
    rows = pl.DataFrame([{**row, "profile_id": each.profile_id} for each in profiles.values()])
    told = breakdowns(rows, profiles.values())
    return {name: each.score for name, each in zip(profiles, told, strict=True)}
