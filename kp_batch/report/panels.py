"""The panels of the report, in their order: a title, a chart and what it shows."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import polars as pl

from kp_batch.report import charts
from kp_batch.report.charts import Spec, as_spec
from kp_batch.report.data import ReportData
from kp_batch.text import count_of

T = TypeVar("T")


def _omitted(data: ReportData) -> Iterator[str]:
    if data.omitted:
        yield f"Left out: {count_of(data.omitted, 'trace')}, of times that are warned of above."


def _weights_over_time(data: ReportData) -> Iterator[str]:
    yield from _omitted(data)
    if not data.weights.is_empty():
        yield "Weights change within these times: how the score changes is no trend."


def _single(data: ReportData) -> Iterator[str]:
    if data.dimensions["stddev"].has_nulls():
        yield "A single trace has no deviation."


def _unlike_before(data: ReportData) -> Iterator[str]:
    if data.no_trend:
        yield f"This is no trend, since {data.no_trend}."
    if data.others:
        yield f"{data.others[:1].upper()}{data.others[1:]} are left out."
    if data.drift["stability_index"].has_nulls():
        yield "There is no stability index of fewer than 200 traces."


@dataclass(frozen=True)
class Panel(Generic[T]):
    """One chart of a page, drawn from the frame of its name, or of the name `of`, in its data."""

    name: str
    title: str
    about: str  # what the chart shows, in which units
    draw: Callable[[T, pl.DataFrame], Spec]
    of: str = ""
    is_wide: bool = False
    has_table: bool = False  # with a table of its numbers below it
    notes: Callable[[T], Iterable[str]] = lambda _: ()  # what else must be known of it
    empty: str = "Nothing to show yet: no trace is scored."

    def rows(self, data: T) -> pl.DataFrame:
        """The rows of its frame that are of a domain: what the chart is drawn from."""
        frame: pl.DataFrame = getattr(data, self.of or self.name)
        return frame.drop_nulls("domain")

    def caption(self, data: T) -> str:
        """What the chart shows, and what must be known of it; also its text for screen readers."""
        return " ".join([self.about, *self.notes(data)])

    def spec(self, data: T) -> Spec | None:
        """The chart as Vega-Lite, see `as_spec`; None if it has no rows."""
        rows = self.rows(data)
        if rows.is_empty():
            return None
        return as_spec(self.draw(data, rows), self.caption(data))


PANELS = (
    Panel(
        "histogram",
        "How scores are distributed",
        "Traces by score, in twenty bins; the dashed line is the threshold of a score worth "
        "sharing.",
        charts.histogram,
    ),
    Panel(
        "domains",
        "Domains side by side",
        "The score of each domain: 5% to 95% of its traces (line), 25% to 75% (bar), the median "
        "(tick), and the threshold (dashed).",
        charts.domains,
    ),
    Panel(
        "over_time",
        "Score and novelty over time",
        "Mean score and mean novelty, from 0 to 1, by the time of the traces (UTC); larger dots "
        "stand for more traces.",
        charts.over_time,
        is_wide=True,
        notes=_weights_over_time,
    ),
    Panel(
        "volume",
        "Traces over time",
        "How many traces were made, by the same times; lighter where the time is not over yet.",
        charts.volume,
        of="over_time",
        is_wide=True,
        notes=_omitted,
    ),
    Panel(
        "dimensions",
        "The four dimensions",
        "Mean of each dimension in each domain, from 0 to 1, and one standard deviation to either "
        "side.",
        charts.dimensions,
        has_table=True,
        notes=_single,
    ),
    Panel(
        "overrides",
        "What the overrides do",
        "By how much each override moves the mean score of each domain.",
        charts.overrides,
        has_table=True,
        empty="No override applied to any trace.",
    ),
    Panel(
        "novelty_and_age",
        "Novelty and the age of the nearest trace",
        "How many traces have which novelty (0 to 1), by how long before them the nearest one was "
        "made; the line is the mean.",
        charts.novelty_and_age,
        empty="No trace met another.",
    ),
    Panel(
        "thresholds",
        "Share over a threshold",
        "Which share of each domain's traces reaches a threshold, for every threshold from 0 to 1; "
        "the dashed line is the one in force.",
        charts.thresholds,
    ),
    Panel(
        "drift",
        "Changed since the previous run",
        "By how much the mean score of each domain moved from the previous run to the last one.",
        charts.drift,
        has_table=True,
        notes=_unlike_before,
        empty="Nothing to compare: no previous run scored any of these domains.",
    ),
    Panel(
        "recorded",
        "Beside the scores that were recorded",
        "By how much the mean score of each domain is above what live engines gave the same "
        "traces; day by day: FROM recorded_score_differences.",
        charts.recorded,
        has_table=True,
        empty="No trace carries a score that a live engine gave it.",
    ),
    Panel(
        "rejects",
        "Rejected rows and unreadable files",
        "Rows and files that could not be scored, by reason; one row may have several.",
        charts.rejects,
        has_table=True,
        empty="No row was rejected, and no file is unreadable.",
    ),
)
