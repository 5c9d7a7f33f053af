"""Times in the report: which days of a scope are shown, and in which steps."""

import math
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl

from kp_batch.errors import KpBatchError

_SHOWN_SHARE = 0.98  # share of the traces in the days shown, if the others stretch them
_GAP = 0.1  # of their length: days after a shorter gap belong to them
_STRETCHED = 2  # if all days are so many times as many, the others are left out
_FEWEST, _MOST = 20, 60  # steps of a chart
_MOST_BY_UNIT = 5_000  # steps of a chart whose unit somebody chose
_DAYS = {  # days in each unit, on average
    "hour": 1 / 24,
    "day": 1,
    "week": 7,
    "month": 30.4,
    "quarter": 91.3,
    "year": 365.2,
    "decade": 3652,
    "century": 36524,
}
_INTERVALS = {"quarter": "3 months", "decade": "10 years", "century": "100 years"}
_OFFSETS = {"day": "d", "week": "w", "month": "mo", "quarter": "q", "year": "y"}  # Polars' units
_BY_MONTH = timedelta(days=5 * 366)  # the most days that are shown by month


SPANS = pl.Schema(
    {
        "domain": pl.String,
        "first_day": pl.Date,
        "last_day": pl.Date,
        "grain": pl.String,
        "step": pl.String,
        "others_by": pl.String,
    }
)


@dataclass(frozen=True)
class ChartSpan:
    """The days that the charts of a scope show, and their steps."""

    domain: str
    first_day: date
    last_day: date
    grain: str  # the unit of time of a step
    others_by: str  # the unit of time outside of the span: month or year

    def row(self) -> dict[str, Any]:
        """The span as the SQL of the report takes it."""
        return {**vars(self), "step": step_of(self.grain)}


def step_of(grain: str) -> str:
    """Return the length of a unit of time, as DuckDB has it."""
    return _INTERVALS.get(grain, f"1 {grain}")


def starting(begins: date | str, unit: str) -> str:
    """Return when a period is, in a sentence."""
    return f"on {begins}" if unit == "day" else f"in the {unit} starting {begins}"


def shift(by: int, period: str) -> str:
    """Return so many periods later, or earlier, as Polars has it; for days to years."""
    return f"{by}{_OFFSETS[period]}"


def span(domain: str, days: pl.DataFrame, ended: date | None, unit: str | None = None) -> ChartSpan:
    """Return the span of a scope.

    Args:
        domain: its label.
        days: the days on which it has traces, and how many.
        ended: the day on which the last run ended; traces of later days are implausible.
        unit: the unit of time of the steps; None: see `grain_of`.

    Raises:
        KpBatchError: the span has too many steps of this unit.
    """
    in_order = days.sort("day")
    past = in_order.filter(pl.col("day") <= ended) if ended else in_order
    shown = in_order if past.is_empty() else past
    places = shown_places(shown["day"].to_physical().to_numpy(), shown["traces"].to_numpy())
    first, last = (shown["day"][place] for place in places)
    all_days = in_order["day"][-1] - in_order["day"][0]
    others_by = "month" if all_days <= _BY_MONTH else "year"
    length = (last - first).days + 1
    if unit and length / _DAYS[unit] > _MOST_BY_UNIT:
        raise KpBatchError(
            f"{length / _DAYS[unit]:,.0f} {unit}s, from {first} to {last}, are too many to draw; "
            "choose a longer unit"
        )
    return ChartSpan(domain, first, last, unit or grain_of(length), others_by)


def shown_places(days: np.ndarray, traces: np.ndarray) -> tuple[int, int]:
    """Return the places of the first and the last day that are shown.

    These are the fewest days with 98 of 100 traces, the latest of several; and the days next to
    them, up to a gap of more than a tenth of their length. All days are shown unless they are twice
    as many.

    Args:
        days: (d,) integers, in ascending order.
        traces: (d,) how many there are on each day.
    """
    until = np.cumsum(traces)
    ends = np.searchsorted(until, until - traces + math.ceil(_SHOWN_SHARE * until[-1]))
    begins = np.flatnonzero(ends < days.size)
    lengths = days[ends[begins]] - days[begins] + 1
    best = begins.size - 1 - int(np.argmin(lengths[::-1]))
    first, last, longest = int(begins[best]), int(ends[begins[best]]), _GAP * lengths[best]
    while first > 0 and days[first] - days[first - 1] <= longest:
        first -= 1
    while last < days.size - 1 and days[last + 1] - days[last] <= longest:
        last += 1
    if days[-1] - days[0] + 1 < _STRETCHED * (days[last] - days[first] + 1):
        return 0, days.size - 1
    return first, last


def grain_of(days: int) -> str:
    """Return the unit of time of which so many days have 20 to 60, or come nearest to that.

    Twice as many steps are as bad as a quarter of the fewest: steps with few traces say little.
    """

    def off(grain: str) -> float:
        steps = days / _DAYS[grain]
        return max(1, (steps / _MOST) ** 2, _FEWEST / steps)

    return min(_DAYS, key=off)
