"""Vega, Vega-Lite and Vega-Embed as one script, which draws the charts in a page.

To bundle it takes longer than all else of a page, and it is the same for every page. So it is kept
in `$XDG_CACHE_HOME/kp-batch`, by default below `~/.cache`, by the versions that it comes from.
Losing it costs time, nothing else.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

import altair as alt
import vl_convert


@cache
def vega() -> str:
    """The script, in the versions that Altair writes for."""
    major_minor = ".".join(alt.VEGALITE_VERSION.split(".")[:2])
    name = f"vega-lite-{major_minor}-by-{version('vl-convert-python')}.js"
    script = _read(name)
    if script is None:
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", major_minor)
        _write(name, script)
    return script


def _read(name: str) -> str | None:
    """Read the script that is kept; None where it is missing or damaged."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        digest, _, script = (_folder() / name).read_text("utf-8").partition("\n")
        if digest == _digest(script):
            return script
    return None


def _write(name: str, script: str) -> None:
    """Keep the script, whole or not at all; if that fails, the next page bundles it again."""
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as part:
            part.write(f"{_digest(script)}\n{script}")
        Path(part.name).replace(folder / name)


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kp-batch"


def _digest(script: str) -> str:
    return f"// {hashlib.sha256(script.encode()).hexdigest()}"
