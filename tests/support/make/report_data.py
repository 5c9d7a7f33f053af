"""Data of a report of one domain, in which there is nothing to notice."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import polars as pl

from kp_batch.report.data import FRAMES, ReportData
from kp_batch.report.labels import ALL
from kp_batch.report.periods import ChartSpan
from kp_batch.warehouse.run_record import RunCounts, RunRecord
from tests.support.make.drawn_scores import Drawn

Gathered = Callable[[int], tuple[Drawn, ReportData]]  # of a seed; see the fixture drawn_report

SETTINGS: Mapping[str, Any] = {
    "cache_size": 1000,
    "ttl": "none",
    "profiles": {"code": {"novelty": 0.5}},
    "embedder": "minilm",
    "threshold": 0.75,
    "trace_text": True,
    "reject_text": True,
    "audits": {},
}
FINGERPRINTS = {
    "encoder_id": {"minilm-1": 1300},
    "cache_id": {"fifo-1000-ttl-none-v1": 1300},
    "profile_id": {"code-0-v1": 1300},
}
FORMULAS = {"facts": 1, "encoder": 1, "replay": 1, "scoring": 1}
_NO_WORK = (
    *("embedded", "reused", "replayed", "rescored", "reweighted", "removed", "partitions"),
    *("duplicates", "superseded", "rejected", "unreadable"),
)
COUNTS = RunCounts(
    files=1,
    rows=1300,
    accepted=1300,
    **dict.fromkeys(_NO_WORK, 0),
    rejected_by_code={},
    unreadable_files=[],
)
RUN = RunRecord(
    run_id="run-2",
    status="done",
    reason=None,
    note=None,
    user="ana",
    started_at=datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
    finished_at=datetime(2026, 2, 3, 4, 6, tzinfo=UTC),
    counts=COUNTS,
    seconds={"plan": 0.256, "embed": 1},
    versions=FORMULAS,
    config={},
    changes=[],
    fingerprints=FINGERPRINTS,
    published={"settings": SETTINGS},
    audits=(),
)
SCHEMAS: Mapping[str, Mapping[str, Any]] = {  # of the frames that sentences come from
    "calibration": {
        "domain": pl.String,
        "low": pl.Float64,
        "success": pl.Float64,
        "traces": pl.Int64,
    },
    "entered_and_exited": {"task_domain": pl.String, "is_new": pl.Boolean},
    "domains": {"domain": pl.String, "traces": pl.Int64},
    "drift": {
        "domain": pl.String,
        "traces_before": pl.Int64,
        "traces": pl.Int64,
        "mean_shift": pl.Float64,
        "p50_shift": pl.Float64,
        "stability_index": pl.Float64,
    },
    "gap": {"first_day": pl.String, "last_day": pl.String, "days": pl.Int64},
    "implausible_dates": {
        "kind": pl.String,
        "traces": pl.Int64,
        "first_day": pl.Date,
        "last_day": pl.Date,
    },
    "recorded": {
        "traces": pl.Int64,
        "placeholders": pl.Int64,
        "mean_difference": pl.Float64,
        "mean_absolute_difference": pl.Float64,
    },
    "rejects": {"code": pl.String, "rejected": pl.Int64},
    "weights": {"name": pl.String, "valid_from": pl.Datetime("us", "UTC")},
}


def rows(frame: str, *records: tuple[Any, ...]) -> pl.DataFrame:
    """Some rows of a frame."""
    return pl.DataFrame(list(records), schema=SCHEMAS[frame], orient="row")


def of_domains(**traces: int) -> dict[str, Any]:
    """What tells of domains, each with so many traces."""
    sizes = {ALL: sum(traces.values()), **traces}
    return {
        "labels": [*traces],
        "names": {name: name for name in traces},
        "domains": rows("domains", *sizes.items()),
    }


FIRST, LAST = date(2026, 1, 1), date(2026, 2, 1)
TOTALS: dict[str, Any] = {
    "threshold": 0.75,
    "domains": 1,
    "first_day": FIRST,
    "last_day": LAST,
}
_FRAMES: dict[str, Any] = {
    name: rows(name) if name in SCHEMAS else pl.DataFrame() for name in FRAMES
}
QUIET = ReportData(
    run=RUN,
    before=None,
    failed=None,
    spans={scope: ChartSpan(scope, FIRST, LAST, "day", "month") for scope in (ALL, "code")},
    period="day",
    totals=TOTALS,
    **_FRAMES | {"recorded": rows("recorded", (0, 0, None, None))} | of_domains(code=1300),
)
EMPTY = replace(
    QUIET,
    run=None,
    labels=[],
    names={},
    spans={},
    domains=rows("domains"),
    totals=TOTALS | {"domains": 0, "first_day": None, "last_day": None},
)


def failing(run_id: str, reason: str | None) -> RunRecord:
    """A run that failed."""
    return replace(RUN, run_id=run_id, status="failed", reason=reason)


def under(**changes: Any) -> RunRecord:
    """A run under other settings."""
    return replace(RUN, run_id="run-1", published={"settings": {**SETTINGS, **changes}})


def counting(**counts: Any) -> RunRecord:
    """A run with other counts."""
    return replace(RUN, counts=replace(COUNTS, **counts))
