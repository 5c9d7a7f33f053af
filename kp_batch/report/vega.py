"""Vega, Vega-Lite and Vega-Embed as one script, which draws the charts in a page.

To bundle it takes longer than all else of a page, and it is the same for every page. So it is kept
by the versions that it comes from: see `files`.
"""

import hashlib
from functools import cache
from importlib.metadata import version

import altair as alt
import vl_convert

from kp_batch.files import read_cache, write_cache


@cache
def vega() -> str:
    """The script, in the versions that Altair writes for."""
    major_minor = ".".join(alt.VEGALITE_VERSION.split(".")[:2])
    name = f"vega-lite-{major_minor}-by-{version('vl-convert-python')}.js"
    digest, _, script = (read_cache(name) or "").partition("\n")
    if digest != _digest(script):  # it is missing, or damaged
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", major_minor)
        write_cache(name, f"{_digest(script)}\n{script}")
    return script


def _digest(script: str) -> str:
    return f"// {hashlib.sha256(script.encode()).hexdigest()}"
