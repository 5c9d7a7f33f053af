"""The colours of charts: for light and dark pages, and for unknown backgrounds."""

from typing import Any


def _theme(ink: str, quiet: str, line: str, palette: str) -> dict[str, Any]:
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "domainColor": quiet,
            "gridColor": line,
            "labelAngle": 0,
            "labelColor": quiet,
            "labelLimit": 120,
            "labelSeparation": 6,
            "tickColor": line,
            "titleColor": ink,
            "titleFontWeight": "normal",
        },
        "legend": {
            "labelColor": quiet,
            "orient": "top",
            "titleColor": ink,
            "titleFontWeight": "normal",
        },
        "line": {"color": ink},
        "mark": {"color": palette.split(maxsplit=1)[0]},
        "point": {"color": ink},
        "range": {"category": palette.split()},
        "rule": {"color": ink},
        "text": {"color": quiet},
        "tick": {"color": ink},
        "title": {"anchor": "start", "color": ink, "subtitleColor": quiet},
    }


_ON_LIGHT = "#3b62cc #a87400 #dd4f33 #2c8f7e #2f8a3c #cc4f86 #8d50dc #4582c2 #8a5b40 #71767e"
# Each theme has ten colours, whose contrast with the background is at least 3 to 1.
THEMES = {
    "light": _theme(
        ink="#1c2430",
        quiet="#5b6675",
        line="#e6eaf0",
        palette=_ON_LIGHT,
    ),
    "dark": _theme(
        ink="#e6eaf0",
        quiet="#9aa6b5",
        line="#2b3542",
        palette="#7c9cf5 #efb118 #ff725c #6cc5b0 #4fc263 #ff8ab7 #b98cff #97bbf5 #c08a6c #9498a0",
    ),
}
# A notebook's background is unknown: the contrast is at least 3 to 1 on #fff and on #111.
NOTEBOOK = _theme(ink="#7a828e", quiet="#7a828e", line="#8a8f9830", palette=_ON_LIGHT)
