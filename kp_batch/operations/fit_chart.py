"""The chart of fitted weights: how well they order labels held out, beside the published ones."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kp_batch.report.themes import NOTEBOOK
from kp_batch.report.vega_lite import ROW, VEGA_LITE, Spec, in_order, marks, nominal, quantitative
from kp_batch.text import printable

if TYPE_CHECKING:
    from altair.typing import ChartType

_WIDTH = 440  # pixels
_ROWS = 2 * ROW  # of a domain
_WEIGHTS = ("published", "fitted")


def order_chart(orders: Iterable[Mapping[str, Any]], measure: str) -> "ChartType":
    """Draw how well published and fitted weights order labels held out, with intervals.

    Args:
        orders: the rows of `LabelOrders`.
        measure: the name of what they have.
    """
    import altair as alt  # takes half a second

    return alt.Chart.from_dict({**order_spec(orders, measure), "config": NOTEBOOK})


def order_spec(orders: Iterable[Mapping[str, Any]], measure: str) -> Spec:
    """Return the chart in Vega-Lite, with its rows; see `order_chart`."""
    rows = [
        {
            "domain": printable(row["task_domain"] or "all domains"),
            "weights": weights,
            "order": row[f"{weights}_order"],
            "low": row[f"{weights}_order_low"],
            "high": row[f"{weights}_order_high"],
        }
        for row in orders
        if row["tested_on"] == "held-out folds"
        for weights in _WEIGHTS
    ]
    title = f"{measure} of held-out labels, 95% interval by task"
    place = {
        "y": in_order("domain"),
        "yOffset": nominal("weights", sort=[*_WEIGHTS]),
        "color": nominal("weights", sort=[*_WEIGHTS], title=None),
    }
    x = quantitative("order", title=title, scale={"zero": False})
    tooltip = [nominal("domain"), nominal("weights")]
    tooltip += [quantitative(name, format=".3f") for name in ("order", "low", "high")]
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE}.json",
        "title": "How well weights order labels that they were not fitted to",
        "data": {"values": rows},
        "width": _WIDTH,
        "height": _ROWS * max(len(rows) // 2, 1),
        "layer": [
            marks("rule", {**place, **ends}),
            marks("circle", {**place, "x": x, "tooltip": tooltip}, size=60, opacity=1),
        ],
    }
