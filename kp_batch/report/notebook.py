"""A panel of a page as a chart of Altair, which notebooks show."""

from typing import TYPE_CHECKING, TypeVar

from kp_batch.report.labels import ALL
from kp_batch.report.panel import Panel
from kp_batch.report.themes import NOTEBOOK

if TYPE_CHECKING:
    from altair.typing import ChartType

T = TypeVar("T")
_WIDE, _NARROW = 680, 440  # pixels: an output has no width that a chart could take


def altair_chart(panel: Panel[T], data: T, scope: str) -> "ChartType":
    """The panel's chart in a scope, with its rows, in colours for light and dark paper."""
    import altair as alt  # it takes half a second

    rows = panel.rows(data, scope)
    return alt.Chart.from_dict(
        {
            **panel.spec(data, scope, rows),
            "title": {"text": panel.title, "subtitle": "" if scope == ALL else scope},
            "description": panel.caption(data, scope),
            "width": _WIDE if panel.is_wide else _NARROW,
            "data": {"values": rows.to_dicts()},
            "config": NOTEBOOK,
        }
    )
