"""How charts look on light and on dark paper: configurations of Vega-Lite."""

from typing import Any

# Ten colours that are told apart on both papers, and by most who see fewer colours.
PALETTE = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951",
    "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
)  # fmt: skip


def _theme(ink: str, quiet: str, line: str, ramp: tuple[str, str]) -> dict[str, Any]:
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "domainColor": quiet,
            "gridColor": line,
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
        "range": {"category": list(PALETTE), "heatmap": list(ramp), "ramp": list(ramp)},
        "rule": {"color": ink},
        "style": {"ink-line": {"stroke": ink}, "ink-point": {"fill": ink, "stroke": ink}},
        "tick": {"color": ink},
    }


THEMES = {
    "light": _theme("#1c2430", "#5b6675", "#e6eaf0", ("#e8eefb", "#1d3f94")),
    "dark": _theme("#e6eaf0", "#9aa6b5", "#2b3542", ("#1f2a3d", "#9dbcff")),
}
