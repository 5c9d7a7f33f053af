"""Charts as Vega lays them out: each mark, where it is and what it tells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import vl_convert

from kp_batch.report.data import ReportData
from kp_batch.report.panel import Panel

_WIDTH = 700


def drawn(panel: Panel, data: ReportData, scope: str) -> dict[str, Any]:
    """The chart of a panel with its rows, as the page draws it."""
    rows = panel.rows(data, scope)
    values = {"name": "rows", "values": rows.to_dicts()}
    return {**panel.spec(data, scope, rows), "data": values}


@dataclass(frozen=True)
class Mark:
    """One mark of a chart, in pixels from its upper left corner."""

    kind: str  # rect, rule, symbol, line, text
    x: tuple[float, ...]  # its place, or both its ends
    y: tuple[float, ...]
    opacity: float
    fill_opacity: float
    fill: str | None
    text: str | None
    label: dict[str, str]  # what its text for screen readers says, by column


@dataclass(frozen=True)
class Scene:
    """A chart that is laid out."""

    width: float
    height: float
    marks: list[Mark]

    def of(self, kind: str, **label: str) -> list[Mark]:
        """Its marks of a kind that tell this."""
        return [
            mark
            for mark in self.marks
            if mark.kind == kind and all(mark.label.get(name) == label[name] for name in label)
        ]


def scene(spec: dict[str, Any], *, as_read: bool = False) -> Scene:
    """Lay out a chart that has its rows.

    Args:
        spec: the chart.
        as_read: whether marks tell what screen readers read; else each tells of all its channels.
    """
    sized = {**(spec if as_read else _speaking(spec)), "width": _WIDTH}
    root = vl_convert.vegalite_to_scenegraph(sized)["scenegraph"]
    [frame] = root["items"]
    return Scene(frame["width"], frame["height"], list(_marks(root)))


def _speaking(spec: Any) -> Any:
    """A chart whose marks tell what Vega says of them."""
    if isinstance(spec, dict):
        kept = {name: value for name, value in spec.items() if name not in {"aria", "description"}}
        return {name: _speaking(value) for name, value in kept.items()}
    return [_speaking(each) for each in spec] if isinstance(spec, list) else spec


def _marks(node: dict[str, Any]) -> Iterator[Mark]:
    is_drawn = node.get("role") == "mark" and node["marktype"] != "group"
    for item in node.get("items", ()):
        if is_drawn and item.get("defined", True):
            yield _mark(node["marktype"], item)
        elif not is_drawn:
            yield from _marks(item)


def _mark(kind: str, item: dict[str, Any]) -> Mark:
    x, y = (
        tuple(item[name] for name in (axis, f"{axis}2") if item.get(name) is not None)
        for axis in "xy"
    )
    parts = (part.partition(": ") for part in item.get("description", "").split("; "))
    label = {name: value for name, _, value in parts if name}
    opacity, filled = item.get("opacity", 1), item.get("fillOpacity", 1)
    return Mark(kind, x, y, opacity, filled, item.get("fill"), item.get("text"), label)


def off_line(values: Sequence[float], places: Sequence[float]) -> float:
    """By how many pixels at most places are off a scale that is linear in the values."""
    if len({*values}) < 2:
        return float(np.ptp(places)) if len(places) else 0.0
    slope, begin = np.polyfit(values, places, 1)
    return float(np.max(np.abs(slope * np.array(values) + begin - np.array(places))))
