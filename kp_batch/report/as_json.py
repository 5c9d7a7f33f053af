"""The report as JSON, for programs: its numbers, findings and notices, and what the run did."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kp_batch.report.data import ReportData
from kp_batch.report.finding import Finding
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.notices import Notice, notices
from kp_batch.report.numbers import Number, numbers
from kp_batch.runs.record import RunRecord


def as_json(data: ReportData) -> str:
    """Write the report as strict JSON, one line: what is no number is null."""
    report = {
        "run": _run(data.run) if data.run else None,
        "scopes": [_scope(data, scope) for scope in data.scopes],
        "notices": [_notice(notice) for notice in notices(data)],
    }
    text = json.dumps(report, default=datetime.isoformat)
    return json.dumps(json.loads(text, parse_constant=lambda _: None)) + "\n"


def _run(run: RunRecord) -> Mapping[str, Any]:
    return {
        "run_id": run.run_id,
        "user": run.user,
        "note": run.note,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "counts": run.counts.numbers if run.counts else {},
        "seconds": run.seconds,
    }


def _scope(data: ReportData, scope: str) -> Mapping[str, Any]:
    return {
        "domain": None if scope == ALL else scope,
        "task_domain": data.names.get(scope),
        "numbers": [_number(number) for number in numbers(data, scope)],
        "findings": [_finding(finding) for finding in findings(data, scope)],
    }


def _number(number: Number) -> Mapping[str, Any]:
    names = ("code", "label", "value", "low", "high", "about")
    series = [vars(point) for point in number.series]
    return {**{name: getattr(number, name) for name in names}, "series": series}


def _finding(finding: Finding) -> Mapping[str, Any]:
    names = ("code", "sentence", "question", "traces", "effect", "numbers")
    return {name: getattr(finding, name) for name in names}


def _notice(notice: Notice) -> Mapping[str, Any]:
    return {name: getattr(notice, name) for name in ("code", "sentence", "is_warning")}
