"""The report as markdown, for a terminal and as a run's artifact: its words and its domains.

It names no trace: a copy of it may outlive a trace that must be forgotten.
"""

import json
from typing import Any

from kp_batch.report.findings import findings
from kp_batch.report.report_data import Figures
from kp_batch.report.sentences import Finding, Name
from kp_batch.text import bar_line

_HEAD = ("domain", "traces", "mean", "median", "worth sharing", "5%", "95%", "scores 0 to 1")
# In a code span nothing is markup but what ends it, and in a table what ends its cell.
_WRITTEN_OUT = str.maketrans({sign: f"\\x{ord(sign):02x}" for sign in "`|"})


def markdown(figures: Figures) -> str:
    """The report's sentences, the scores by domain, and what the run did."""
    run = figures.run
    parts = [
        "# Scores of reasoning traces",
        f"Run {run['run_id']}, ended {run['finished_at']:%Y-%m-%d %H:%M} UTC." if run else "",
        "\n".join(_item(finding) for finding in findings(figures)),
        "\n".join(_domains(figures)),
        _run(run["counts"], run["seconds"]) if run else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _item(finding: Finding) -> str:
    sentence = "".join(_code(part) if isinstance(part, Name) else part for part in finding.parts)
    return f"- **Warning:** {sentence}" if finding.is_warning else f"- {sentence}"


def _domains(figures: Figures) -> list[str]:
    if figures.domains.is_empty():
        return []
    rows = [
        (
            "all domains" if row["domain"] is None else _code(row["domain"]),
            f"{row['traces']:,}",
            f"{row['mean']:.3f}",
            f"{row['p50']:.3f}",
            f"{row['worth_sharing'] / row['traces']:.1%}",
            f"{row['p5']:.3f}",
            f"{row['p95']:.3f}",
            _code(bar_line(figures.bins(row["domain"])).replace(" ", "\N{NO-BREAK SPACE}")),
        )
        for row in figures.domains.iter_rows(named=True)
    ]
    rule = ("---", *["--:"] * (len(_HEAD) - 2), "---")
    return [f"| {' | '.join(cells)} |" for cells in (_HEAD, rule, *rows)]


def _run(counts: str, seconds: str) -> str:
    done: dict[str, Any] = json.loads(counts)
    numbers = [f"{what} {number:,}" for what, number in done.items() if isinstance(number, int)]
    spent = [f"{step} {each:.2f}" for step, each in json.loads(seconds).items()]
    return f"The run: {', '.join(numbers)}.\n\nSeconds: {', '.join(spent)}."


def _code(text: str) -> str:
    """Text out of an archive as a code span."""
    return f"`{text.translate(_WRITTEN_OUT)}`"
