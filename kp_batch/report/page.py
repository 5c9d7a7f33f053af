"""Pages: single HTML files that open from disk, without a network."""

import hashlib
import json
import re
from base64 import b64encode
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from shlex import quote
from typing import Any

import vl_convert
from jinja2 import Environment, FunctionLoader

from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import UNREAD
from kp_batch.files import read_cache, write_cache
from kp_batch.report.chart_tables import written
from kp_batch.report.data import ReportData
from kp_batch.report.finding import Untrusted
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.notices import notices
from kp_batch.report.numbers import numbers
from kp_batch.report.panel import panel_values
from kp_batch.report.panels import PANELS
from kp_batch.report.themes import THEMES
from kp_batch.report.trace_details import Traces
from kp_batch.report.vega_lite import VEGA_LITE
from kp_batch.text import age, count_of, group_suffix, shortened

_DATE = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2})\b")
_ID = 80  # characters shown of a trace's id
_COMMAND = 300  # characters of an id in a command


@cache
def vega() -> str:
    """Return the script of Vega, which draws charts."""
    name = f"vega-lite-{VEGA_LITE}-by-{version('vl-convert-python')}.js"
    digest, _, script = (read_cache(name) or "").partition("\n")
    if digest != _vega_digest(script):  # missing or damaged
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
        write_cache(name, f"{_vega_digest(script)}\n{script}")
    return script


def _vega_digest(script: str) -> str:
    return f"// {hashlib.sha256(script.encode()).hexdigest()}"


def page(data: ReportData, traces: Traces) -> str:
    """Write the report as HTML.

    All text from the archive is escaped. The page's policy lets only the page's own scripts run,
    and lets nothing be fetched.
    """
    # With a single domain, all domains together show the same.
    scopes = data.scopes if len(data.labels) > 1 else data.scopes[:1]
    by_rank = data.traces.partition_by("which", as_dict=True)
    listed = data.traces.unique("trace_id", keep="first", maintain_order=True).to_dicts()
    return render(
        "page.html",
        data=data,
        details=traces.details,
        dimensions=DIMENSIONS,
        findings=findings,
        listed=listed,
        notices=notices(data),
        numbers=numbers,
        panels=PANELS,
        places={row["trace_id"]: place for place, row in enumerate(listed)},
        scopes=scopes,
        shown=panel_values(PANELS, data, scopes),
        texts=traces.texts,
        traces={which: rows.to_dicts() for (which,), rows in by_rank.items()},
        unread=UNREAD,
    )


def render(name: str, **values: Any) -> str:
    """Fill in a template, with the scripts, the style and the themes of every page.

    Args:
        name: the name of the template.
        values: its values, including the `panels`, and as `shown` the values of these.
    """
    template = _environment().get_template(name)
    return template.render(
        scripts=[vega(), _text("page.js")],
        style=_text("page.css"),
        themes=THEMES,
        all_domains=ALL,
        count_of=count_of,
        **values,
    )


@cache  # keeps templates compiled
def _environment() -> Environment:
    environment = Environment(autoescape=True, loader=FunctionLoader(_text))
    filters: dict[str, Any] = {
        "age": age,
        "as_json": _as_json,
        "cell": _cell,
        "digest": _digest,
        "divided_at_dates": _divided_at_dates,
        "explain_command": _explain_command,
        "group_suffix": group_suffix,
        "short": _short,
        "sql_command": _sql_command,
        "written": written,
    }
    environment.filters.update(filters)
    environment.tests["untrusted"] = lambda value: isinstance(value, Untrusted)
    return environment


def _text(name: str) -> str:
    return files("kp_batch.report").joinpath(name).read_text("utf-8")


def _as_json(values: Any) -> str:
    """Return values as a script of data, which no text in them can end."""
    return json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")


def _digest(script: str) -> str:
    """Return the hash of a script by which the page's policy names it."""
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _short(text: str | None, length: int = _ID) -> str:
    return "" if text is None else shortened(text, length)


def _explain_command(trace_id: str) -> str:
    """Return the command that explains a trace; empty if a shell would change the id."""
    if not trace_id.isprintable() or len(trace_id) > _COMMAND:
        return ""
    options_end = "-- " if trace_id.startswith("-") else ""
    return f"kp-batch explain {options_end}{quote(trace_id)}"


def _divided_at_dates(text: str) -> list[str]:
    """Split a text at its dates: every other piece is a date."""
    return _DATE.split(text)


def _sql_command(question: str) -> str:
    """Return the command that asks a question; empty if a shell would change it."""
    if not question.isprintable():
        return ""
    is_plain = not {*question} & {*'"$`\\!'}
    asked = f'"{question}"' if is_plain else quote(question)
    return f"kp-batch sql {asked}"


def _cell(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value + 0.0:.4f}"
    return f"{value:,}" if isinstance(value, int) else value or ""
