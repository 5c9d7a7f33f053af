"""The schema of Vega-Lite, as Altair brings it: what a chart may be."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match


@cache
def schema() -> Draft7Validator:
    altair = find_spec("altair")  # without importing it, which takes longer than the charts
    assert altair
    assert altair.origin
    [path] = Path(altair.origin).parent.glob("vegalite/v*/schema/vega-lite-schema.json")
    return Draft7Validator(json.loads(path.read_text("utf-8")))


def fault(spec: dict[str, Any] | None) -> str:
    """What the schema does not allow in a chart; empty: nothing."""
    as_written = json.loads(json.dumps(spec))
    error = best_match(schema().iter_errors(as_written))
    return f"{error.json_path}: {error.message}" if error else ""
