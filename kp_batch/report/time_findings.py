"""The sentences about when the traces were made, and how their scores moved with it."""

from collections.abc import Iterator

import polars as pl

from kp_batch.report.report_data import ReportData
from kp_batch.report.sentences import ENOUGH, Finding, days, tell
from kp_batch.text import are, number

_LONG = 7  # days without a trace


def of_times(data: ReportData) -> Iterator[Finding]:
    """Which times can hardly be, how the last step of time was, and the longest gap."""
    for notice in (_implausible, _lately, _gap):
        yield from notice(data)


def _implausible(data: ReportData) -> Iterator[Finding]:
    for kind, traces, first, last in data.times.iter_rows():
        dated = f"{number(traces, 'trace')} {are(traces)} dated"
        if kind == "future" and data.run:
            yield tell(
                f"{dated} in the future, {days(first, last)}: the scores are of "
                f"{data.run.finished_at:%Y-%m-%d}.",
                is_warning=True,
            )
        elif kind in ("before", "after"):
            yield tell(
                f"{dated} ten years or more {kind} nearly all others, {days(first, last)}.",
                is_warning=True,
            )


def _lately(data: ReportData) -> Iterator[Finding]:
    """Compare the last step of time that is over and has enough traces with all steps before it."""
    steps = data.over_time.filter("is_over").group_by("start")
    sums = steps.agg(pl.col("traces", "score", "novelty").sum())
    enough = sums.filter(pl.col("traces") >= ENOUGH).sort("start")
    measures = _comparable(data)
    if len(enough) > 1:
        last = enough.row(-1, named=True)
        before = sums.filter(pl.col("start") < last["start"]).sum().row(0, named=True)
        on, full = ("On", "") if data.grain == "day" else (f"In the {data.grain} from", "full ")
        means = (
            f"the mean {name} was {last[name] / last['traces']:.3f} "
            f"(before: {before[name] / before['traces']:.3f})"
            for name in measures
        )
        yield tell(
            f"{on} {last['start']}, the last {full}{data.grain} with {ENOUGH} traces or more, "
            f"{' and '.join(means)}."
        )


def _comparable(data: ReportData) -> list[str]:
    """The measures whose means compare over time: weights touch no novelty."""
    return ["score", "novelty"] if data.weights.is_empty() else ["novelty"]


def _gap(data: ReportData) -> Iterator[Finding]:
    if not data.gaps.is_empty():
        row = data.gaps.row(0, named=True)
        if row["days"] >= _LONG:
            apart = "Apart from the times warned of, the" if data.left_out else "The"
            yield tell(
                f"{apart} longest time without a trace is {number(row['days'], 'day')}, from "
                f"{row['first_day']} to {row['last_day']}."
            )
