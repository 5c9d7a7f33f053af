"""The report as markdown, for a terminal and as a run's artifact: its sentences and its domains.

It names no trace, since a copy of it may outlive a trace that must be forgotten.
"""

from kp_batch.report.data import ReportData
from kp_batch.report.findings import Finding, Untrusted, findings
from kp_batch.runs.record import RunRecord
from kp_batch.text import bar_line, code, printable

_HEAD = ("domain", "traces", "mean", "median", "worth sharing", "5%", "95%", "scores 0 to 1")


def markdown(data: ReportData) -> str:
    """Write the report's sentences, the scores by domain, and what the run did."""
    run = data.run
    parts = [
        "# Scores of reasoning traces",
        _caption(run) if run else "",
        "\n".join(_item(finding) for finding in findings(data)),
        "\n".join(_domains(data)),
        _run(run) if run else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _caption(run: RunRecord) -> str:
    note = f" Its note: {code(printable(run.note))}." if run.note else ""
    ended = f"{run.finished_at:%Y-%m-%d %H:%M} UTC"
    return f"Run {run.run_id} by {code(printable(run.user))}, ended {ended}.{note}"


def _item(finding: Finding) -> str:
    sentence = "".join(
        code(part) if isinstance(part, Untrusted) else part for part in finding.parts
    )
    return f"- **Warning:** {sentence}" if finding.is_warning else f"- {sentence}"


def _domains(data: ReportData) -> list[str]:
    if data.domains.is_empty():
        return []
    rows = [
        (
            "all domains" if row["domain"] is None else code(row["domain"]),
            f"{row['traces']:,}",
            f"{row['mean']:.3f}",
            f"{row['p50']:.3f}",
            f"{row['worth_sharing'] / row['traces']:.1%}",
            f"{row['p5']:.3f}",
            f"{row['p95']:.3f}",
            code(bar_line(data.bins(row["domain"]))),
        )
        for row in data.domains.iter_rows(named=True)
    ]
    rule = ("---", *["--:"] * (len(_HEAD) - 2), "---")
    return [f"| {' | '.join(cells)} |" for cells in (_HEAD, rule, *rows)]


def _run(run: RunRecord) -> str:
    numbers = run.counts.numbers if run.counts else {}
    counts = [f"{what} {count:,}" for what, count in numbers.items()]
    spent = [f"{step} {seconds:.2f}" for step, seconds in run.seconds.items()]
    return f"The run: {', '.join(counts)}.\n\nSeconds: {', '.join(spent)}."
