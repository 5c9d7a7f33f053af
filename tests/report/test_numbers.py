"""The four numbers of each scope: value, uncertainty, and what must be known of it."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.report.data import ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.numbers import KeyFigure, numbers
from kp_batch.report.periods import ChartSpan
from tests.support.make.drawn_scores import opened, write
from tests.support.make.odd_scores import make
from tests.support.make.report_data import EMPTY, QUIET, Gathered
from tests.support.oracle.answers import is_near
from tests.support.oracle.findings import changes, domain_changes
from tests.support.oracle.reports import Report, means
from tests.support.oracle.statistics import median
from tests.support.oracle.uncertainty import before


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("name", ["as planted", "small domains", "one task", "one trace"])
def test_every_number_is_what_plain_loops_make(folder: Path, name: str) -> None:
    archive = make(name)
    write(archive, folder)
    with opened(folder) as connection:
        data = gather(connection)
    _assert_numbers(data, Report(archive.archive))


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_so_is_every_number_of_a_drawn_archive(drawn_report: Gathered, seed: int) -> None:
    drawn, data = drawn_report(seed)
    _assert_numbers(data, Report(drawn.archive))


def _assert_numbers(data: ReportData, report: Report) -> None:
    for scope in data.scopes:
        found = numbers(data, scope)
        assert [number.code for number in found] == ["traces", "mean", "at_threshold"]
        for number, wanted in zip(found, _wanted(report, scope), strict=True):
            _assert_same(number, wanted)


def _assert_same(number: KeyFigure, wanted: dict[str, Any]) -> None:
    assert number.about == wanted["about"]
    for name in ("value", "low", "high"):
        assert is_near(getattr(number, name), wanted[name]), (number.code, name)


def _wanted(report: Report, scope: str) -> list[dict[str, Any]]:
    rows = report.scopes[scope]
    found, threshold = means(rows), report.archive.threshold
    reach = f"{sum(row['score'] >= threshold for row in rows):,} of {len(rows):,} reach"
    return [
        {
            "value": len(rows),
            "low": None,
            "high": None,
            "about": _extent(report, scope),
        },
        {
            "value": found["mean"],
            "low": found["low"],
            "high": found["high"],
            "about": f"median {median([row['score'] for row in rows]):.3f}{_change(report, scope)}",
        },
        {
            "value": found["share"],
            "low": found["share_low"],
            "high": found["share_high"],
            "about": f"{reach} {threshold}",
        },
    ]


def _extent(report: Report, scope: str) -> str:
    rows, span = report.scopes[scope], report.spans[scope]
    tasks = len({row["objective_hash"] for row in rows})
    words = [f"{tasks:,} task{'s' if tasks > 1 else ''}"]
    if scope == ALL and len(report.label_of) > 1:
        words.append(f"{len(report.label_of):,} domains")
    first, last = span.first_day, span.last_day
    words.append(f"on {first}" if first == last else f"from {first} to {last}")
    if others := sum(not first <= row["day"] <= last for row in rows):
        words[-1] += f"; {others:,} trace{'s' * (others > 1)} outside these dates"
    return ", ".join(words)


def _change(report: Report, scope: str) -> str:
    """The last period that is over, and compares with those before."""
    found = changes(report) if scope == ALL else domain_changes(report)
    rows = [row for row in found if row["domain"] == scope and _compares(report, row)]
    if not rows:
        return ""
    row = max(rows, key=lambda row: row["begins"])
    change = f"{row['change']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
    is_off = not row["low"] <= 0 <= row["high"]
    is_moved = row["moved"] if scope != ALL else is_off
    unclear = ", no more than chance" + (" among so many domains" if is_off else "")
    since = f"from the previous four {report.period}s" + ("" if is_moved else unclear)
    return f"; {report.period} starting {row['begins']}: {row['mean']:.3f}, {change} {since}"


def _compares(report: Report, row: dict[str, Any]) -> bool:
    begins = before(row["begins"], report.period)
    assert all(begin < row["begins"] for begin in begins)
    is_known = row["is_over"] and row["traces"] >= 30 and row["low"] is not None
    return bool(is_known and max(row["warming_up"], row["warming_up_before"]) <= 0.1)


def test_of_an_archive_without_traces_there_is_no_number() -> None:
    assert numbers(EMPTY, ALL) == []


DOMAIN = {
    "tasks": 40,
    "mean": 0.5,
    "low": 0.45,
    "high": 0.55,
    "p50": 0.52,
    "at_threshold": 20,
    "share": 0.2,
    "share_low": 0.15,
    "share_high": 0.27,
}
DATA = replace(
    QUIET,
    domains=pl.DataFrame([{"domain": ALL, "traces": 1300, **DOMAIN}]),
    other_times=pl.DataFrame(schema={"domain": pl.String, "traces": pl.Int64}),
    changes=pl.DataFrame(
        schema={"domain": pl.String, "is_over": pl.Boolean, "traces": pl.Int64, "low": pl.Float64}
        | {"warming_up": pl.Float64, "warming_up_before": pl.Float64}
    ),
)


def test_what_is_at_other_times_and_on_one_day_is_said() -> None:
    others = pl.DataFrame({"domain": [ALL, ALL], "traces": [2, 3]})
    day = ChartSpan(ALL, date(2026, 1, 1), date(2026, 1, 1), "hour", "month")
    first, *_ = numbers(replace(DATA, other_times=others, spans={ALL: day}), ALL)
    assert first.about == "40 tasks, on 2026-01-01; 5 traces outside these dates"
