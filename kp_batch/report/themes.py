"""How charts look on light and dark paper: configurations of Vega-Lite."""

from typing import Any


def _theme(ink: str, quiet: str, line: str, ramp: str, palette: str) -> dict[str, Any]:
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
            "tickColor": line,
            "titleColor": ink,
            "titleFontWeight": "normal",
        },
        "legend": {
            "gradientLength": 120,
            "labelColor": quiet,
            "orient": "top",
            "titleColor": ink,
            "titleFontWeight": "normal",
        },
        "line": {"color": ink},
        "point": {"color": ink},
        "range": {"category": palette.split(), "heatmap": ramp.split(), "ramp": ramp.split()},
        "rule": {"color": ink},
        "tick": {"color": ink},
    }


# Each theme has ten colours, whose contrast with the paper is at least 3 to 1. The contrast of the
# ramp's ends with the ink of the line that crosses them is at least 4 to 1.
THEMES = {
    "light": _theme(
        ink="#1c2430",
        quiet="#5b6675",
        line="#e6eaf0",
        ramp="#eef2fb #8fa9ee",
        palette="#3b62cc #a87400 #dd4f33 #2c8f7e #2f8a3c #cc4f86 #8d50dc #4582c2 #8a5b40 #71767e",
    ),
    "dark": _theme(
        ink="#e6eaf0",
        quiet="#9aa6b5",
        line="#2b3542",
        ramp="#1b2635 #3560c4",
        palette="#7c9cf5 #efb118 #ff725c #6cc5b0 #4fc263 #ff8ab7 #b98cff #97bbf5 #c08a6c #9498a0",
    ),
}
