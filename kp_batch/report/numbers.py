"""The three numbers at the top of the report, each with its interval."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kp_batch.report.data import ReportData
from kp_batch.report.finding import interval
from kp_batch.report.labels import ALL
from kp_batch.text import count_of


@dataclass(frozen=True)
class KeyFigure:
    """A number about a scope."""

    code: str  # traces, mean or at_threshold
    label: str  # its name
    form: str  # its format: ",", ".3f" or ".1%"
    value: float
    low: float | None  # its 95% interval; None without one
    high: float | None
    about: str  # what readers must know about it, in a few words


def numbers(data: ReportData, scope: str) -> list[KeyFigure]:
    """Return the numbers of a scope."""
    return list(_numbers(data, scope))


def _numbers(data: ReportData, scope: str) -> Iterator[KeyFigure]:
    row = next(data.of("domains", scope).iter_rows(named=True), None)
    if row is None:
        return
    traces = row["traces"]
    yield KeyFigure("traces", "traces", ",", traces, None, None, _extent(data, scope, row))
    where = _last_change(data, scope)
    median = f"median {row['p50']:.3f}{where}"
    yield KeyFigure("mean", "mean score", ".3f", row["mean"], row["low"], row["high"], median)
    yield KeyFigure(
        code="at_threshold",
        label="at threshold",
        form=".1%",
        value=row["share"],
        low=row["share_low"],
        high=row["share_high"],
        about=f"{row['at_threshold']:,} of {traces:,} reach {data.totals['threshold']:g}",
    )


def _extent(data: ReportData, scope: str, row: Mapping[str, Any]) -> str:
    span = data.spans[scope]
    when = f"on {span.first_day}"
    if span.first_day != span.last_day:
        when = f"from {span.first_day} to {span.last_day}"
    others = sum(data.of("other_times", scope)["traces"].to_list())
    apart = f"; {count_of(others, 'trace')} outside these dates" if others else ""
    of = f"{count_of(row['tasks'], 'task')}, "
    if scope == ALL and data.totals["domains"] > 1:
        of += f"{count_of(data.totals['domains'], 'domain')}, "
    return f"{of}{when}{apart}"


def _last_change(data: ReportData, scope: str) -> str:
    """Compare the last period that is over with the previous four."""
    rows = data.comparable(scope)
    if rows.is_empty():
        return ""
    last = rows.row(-1, named=True)
    is_off = not last["low"] <= 0 <= last["high"]
    is_moved = last.get("moved", is_off)
    unclear = ", no more than chance" + (" among so many domains" if is_off else "")
    return (
        f"; {data.period} starting {last['begins']}: {last['mean']:.3f}, {last['change']:+.3f} "
        f"{interval(last['low'], last['high'])} from the previous four {data.period}s"
        f"{'' if is_moved else unclear}"
    )
