"""One chart of the report, for a notebook."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kp_batch.errors import KpBatchError
from kp_batch.faults import most_similar
from kp_batch.report.build import opened
from kp_batch.report.data import ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.notebook import altair_chart
from kp_batch.report.panels import PANELS
from kp_batch.text import shortened
from kp_batch.warehouse.reader import connect

if TYPE_CHECKING:
    from altair.typing import ChartType

_OVER_TIME = "scores_over_time"
_UNITS = ("day", "week", "month", "quarter", "year")
# Charts by name; scores_by_week and the like are the scores over time in these steps.
_PANELS = {panel.name: panel for panel in PANELS}
NAMES = (*_PANELS, *(f"scores_by_{unit}" for unit in _UNITS))
_NAME = 60  # characters


def chart(warehouse: Path, name: str, domain: str | None = None) -> "ChartType":
    """Draw a chart of the report.

    This queries only what the chart shows. The chart contains its rows, so it can be saved, changed
    or shown elsewhere.

    Args:
        warehouse: the folder of the tables.
        name: one of `NAMES`. The steps of scores_over_time suit its span; those of scores_by_week
            and the like are in the name.
        domain: the domain, or the report's name for several small ones; None for all together.

    Raises:
        KpBatchError: there is no such chart or domain, or nothing to draw.
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    if name not in NAMES:
        raise KpBatchError(_unknown("chart", name, NAMES))
    unit = re.sub("^scores_by_", "", name)
    panel = _PANELS.get(name, _PANELS[_OVER_TIME])
    with opened(connect(warehouse), warehouse) as connection:
        data = gather(connection, panel.frames, unit if unit in _UNITS else None)
    scope = _scope(data, domain)
    if not data.labels or panel.rows(data, scope).is_empty():
        raise KpBatchError(
            f"{name} has nothing to draw: {panel.empty}; choose another chart or domain"
        )
    return altair_chart(panel, data, scope)


def _scope(data: ReportData, domain: str | None) -> str:
    """Return the scope of a domain, by its name or its label, which may be cut."""
    if domain is None or not data.labels:
        return ALL
    scopes = {own: label for label, own in data.names.items()} | {
        each: each for each in data.labels
    }
    if domain not in scopes:
        together = f"; domains of few traces are in {data.others!r}" if data.others else ""
        raise KpBatchError(_unknown("domain", domain, data.labels) + together)
    return scopes[domain]


def _unknown(kind: str, name: str, names: "tuple[str, ...] | list[str]") -> str:
    similar = most_similar(name, names)
    meant = f", did you mean {similar}?" if similar else "."
    return f"there is no {kind} {shortened(name, _NAME)!r}{meant} There are {', '.join(names)}"
