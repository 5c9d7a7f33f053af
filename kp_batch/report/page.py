"""The report as one HTML file that needs nothing else: it opens from disk, without a network."""

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files

import altair as alt
import vl_convert
from jinja2 import Environment

from kp_batch.contracts import DIMENSIONS
from kp_batch.report.findings import findings
from kp_batch.report.panels import PICTURES
from kp_batch.report.report_data import Figures
from kp_batch.report.sentences import Name
from kp_batch.report.themes import THEMES
from kp_batch.text import bar_line, shortened

_ID = 80  # characters of an id that are shown
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def page(figures: Figures) -> str:
    """The report as HTML.

    All that comes from the archive is escaped, and the page's policy lets no script run but its
    own and nothing be fetched.
    """
    environment = Environment(autoescape=True)
    environment.filters |= {
        "age": _age,
        "bars": bar_line,
        "cell": _cell,
        "digest": _digest,
        "short": _short,
    }
    environment.tests["name"] = _is_name
    panels = [(each, each.rows(figures), each.spec(figures)) for each in PICTURES]
    by_rank = figures.traces.partition_by("which", as_dict=True)
    return environment.from_string(_text("page.html")).render(
        bins=figures.bins,
        dimensions=DIMENSIONS,
        domains=figures.domains.to_dicts(),
        findings=findings(figures),
        labels=figures.labels,
        panels=panels,
        run=figures.run,
        scripts=[_vega(), _text("page.js")],
        shown={
            picture.name: {"spec": spec, "domains": rows["domain"].unique().sort().to_list()}
            for picture, rows, spec in panels
            if spec
        },
        style=_text("page.css"),
        themes=THEMES,
        traces={which: rows.to_dicts() for (which,), rows in by_rank.items()},
    )


def _is_name(value: object) -> bool:
    return isinstance(value, Name)


def _text(name: str) -> str:
    return files("kp_batch.report").joinpath(name).read_text("utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed in the version that Altair writes for."""
    major_minor = ".".join(alt.VEGALITE_VERSION.split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", major_minor)


def _digest(script: str) -> str:
    """Of a script, as the page's policy names it."""
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _short(text: str | None) -> str:
    return "" if text is None else shortened(text, _ID)


def _cell(value: str | float | None) -> str:
    """A number as it stands in a table."""
    if isinstance(value, float):
        return f"{value + 0.0:.4f}"
    return f"{value:,}" if isinstance(value, int) else value or ""


def _age(seconds: float | None) -> str:
    """A time in its largest unit."""
    if seconds is None:
        return ""
    return next(
        (f"{seconds / size:.0f} {unit}" for size, unit in _UNITS if seconds >= size), "under 1 s"
    )
