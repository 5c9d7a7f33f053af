"""The report as markdown, for a terminal and as a run's artifact: its sentences and its domains.

It names no trace, because a copy of it may outlive a trace that must be forgotten.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from kp_batch.report.chart_tables import written
from kp_batch.report.data import ReportData
from kp_batch.report.finding import Finding, Untrusted
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.notices import Notice, notices
from kp_batch.report.numbers import KeyFigure, numbers
from kp_batch.text import code, printable
from kp_batch.warehouse.run_record import RunRecord

_HEAD = ("domain", "mean", "95% interval", "traces", "tasks", "at threshold", "success")
OF_A_DOMAIN = 3  # findings at most


def markdown(data: ReportData) -> str:
    """Write the numbers, the report's sentences, the domains, and what the run did."""
    run = data.run
    noticed = notices(data)
    parts = [
        ["# Scores of reasoning traces"],
        [_caption(run)] if run else [],
        _items(f"**Warning:** {_sentence(notice)}" for notice in noticed if notice.is_warning),
        *(_scores(data) if data.scopes else ()),
        ["## Notes on the data and the last run"],
        _items(_sentence(notice) for notice in noticed if not notice.is_warning),
        _run(run) if run else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _scores(data: ReportData) -> Iterator[Sequence[str]]:
    of_all = findings(data, ALL)
    yield _numbers(numbers(data, ALL))
    if of_all:
        yield ["## Findings"]
        yield [f"{place}. {_finding(finding)}" for place, finding in enumerate(of_all, 1)]
    yield ["## Domains"]
    yield _domains(data)
    yield [*chain(*(_of_a_domain(data, label, of_all) for label in data.labels))]


def _of_a_domain(data: ReportData, label: str, of_all: Sequence[Finding]) -> Iterator[str]:
    found = [*islice(_further(findings(data, label), of_all), OF_A_DOMAIN)]
    if found:
        yield f"- {code(label)}:"
        yield from (f"    - {_finding(finding)}" for finding in found)


def _further(of_domain: Iterable[Finding], of_all: Iterable[Finding]) -> Iterator[Finding]:
    """Return the findings of a domain that are not among those of all domains."""
    numbers_told = [finding.numbers for finding in of_all]
    known = {finding.sentence for finding in of_all}
    return (
        finding
        for finding in of_domain
        if finding.sentence not in known
        and not any(finding.numbers.items() <= numbers.items() for numbers in numbers_told)
    )


def _items(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _caption(run: RunRecord) -> str:
    note = f" Its note: {code(printable(run.note))}." if run.note else ""
    ended = f"{run.finished_at:%Y-%m-%d %H:%M} UTC"
    return f"Run {run.run_id} by {code(printable(run.user))}, ended {ended}.{note}"


def _numbers(of_all: Iterable[KeyFigure]) -> list[str]:
    rows = (
        (number.label, written(number.value, number.form), _between(number), number.about)
        for number in of_all
    )
    return _table(("number", "value", "95% interval", "what it is"), "lrrl", rows)


def _between(number: KeyFigure) -> str:
    ends = (written(end, number.form) for end in (number.low, number.high))
    return " to ".join(filter(None, ends))


def _table(head: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table whose columns are aligned to the left (l) or right (r)."""
    rule = [{"l": "---", "r": "--:"}[side] for side in sides]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def _sentence(said: Finding | Notice) -> str:
    return "".join(code(part) if isinstance(part, Untrusted) else part for part in said.parts)


def _finding(finding: Finding) -> str:
    return f"{_sentence(finding)} {code(printable(finding.question))}"


def _domains(data: ReportData) -> list[str]:
    return _table(_HEAD, "lrrrrrr", map(_cells, data.domains.iter_rows(named=True)))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ends = [written(row[end], ".3f") for end in ("low", "high")]
    return (
        ALL if row["domain"] == ALL else code(row["domain"]),
        written(row["mean"], ".3f"),
        " to ".join(filter(None, ends)),
        written(row["traces"], ","),
        written(row["tasks"], ","),
        f"{row['at_threshold']:,} ({written(row['share'], '.1%')})",
        written(row["success"], ".1%"),
    )


def _run(run: RunRecord) -> list[str]:
    counts = run.counts.numbers if run.counts else {}
    did = [f"{what} {count:,}" for what, count in counts.items()]
    spent = [f"{step} {seconds:.2f}" for step, seconds in run.seconds.items()]
    return [f"The run: {', '.join(did)}.", "", f"Seconds: {', '.join(spent)}."]
