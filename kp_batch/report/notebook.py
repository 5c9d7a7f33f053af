"""A panel of a page as an Altair chart, for notebooks."""

import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kp_batch.report.data import ReportData
from kp_batch.report.labels import ALL
from kp_batch.report.panel import Panel
from kp_batch.report.themes import NOTEBOOK

if TYPE_CHECKING:
    from altair.typing import ChartType

_WIDE, _NARROW = 680, 440  # pixels: notebook outputs have no width to fill
_LETTER = 6  # pixels of a caption's letter
_TAG = re.compile("<(?=[/!])")


def altair_chart(panel: Panel, data: ReportData, scope: str) -> "ChartType":
    """Return the panel's chart in a scope with its rows, for light and dark backgrounds."""
    import altair as alt  # takes half a second

    rows, caption = panel.rows(data, scope), panel.caption(data, scope)
    wide = _WIDE if panel.is_wide else _NARROW
    below = [] if scope == ALL else [scope]  # below the title, because a chart may be shown alone
    below += wrap(caption, wide // _LETTER)
    return alt.Chart.from_dict(
        _without_tags(
            {
                **panel.spec(data, scope, rows),
                "title": {"text": panel.title, "subtitle": below},
                "description": caption,
                "width": wide,
                "data": {"values": rows.to_dicts()},
                "config": NOTEBOOK,
            }
        )
    )


def _without_tags(value: Any) -> Any:
    """Remove what ends a script or begins a comment, which names of traces may contain.

    Altair writes the spec into a script of its pages unchanged. An invisible word joiner is
    inserted.
    """
    if isinstance(value, str):
        return _TAG.sub("<\u2060", value)
    if isinstance(value, dict):
        return {name: _without_tags(each) for name, each in value.items()}
    return [*map(_without_tags, value)] if isinstance(value, list) else value
