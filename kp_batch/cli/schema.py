"""`schema`: the forms of what commands print as JSON, and of a row of an archive."""

import json
from typing import Any

import click

from kp_batch.cli import kp_batch

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TRACE = "trace"
NAMES = (  # of `_types`, which take long to import
    *("compare", "explain", "export", "import", "plan", "questions"),
    *("run", "score", "settings", "sweep", _TRACE, "verify"),
)


@kp_batch.command()
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
def schema(name: str) -> None:
    """Print the JSON Schema of what a command prints with --json, as compare or run.

    That of score is of one of its lines, and that of trace is of a row of an archive.
    """
    click.echo(json.dumps(schema_of(name), indent=2))


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema, of draft 2020-12, that one of `NAMES` stands for."""
    if name == _TRACE:
        from kp_batch.archive.validation import trace_schema

        found, title = trace_schema(), "A row of an archive"
    else:
        from pydantic import TypeAdapter

        found = _as_printed(TypeAdapter(_types()[name]).json_schema(mode="serialization"))
        title = f"kp-batch {name}" + ("" if name == "score" else " --json")
    return {"$schema": _DIALECT, **found, "title": title}


def _as_printed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of dataclasses as `json_line` writes them: every field, and no other."""
    for each in (schema, *schema.get("$defs", {}).values()):
        if fields := each.get("properties"):
            each |= {"required": [*fields], "additionalProperties": False}
            for field in fields.values():
                field.pop("title", None)
                field.pop("default", None)
    return schema


def _types() -> dict[str, Any]:
    """What each command prints as JSON."""
    from kp_batch.operations.compare import Comparison
    from kp_batch.operations.explain.explanation import Explanation
    from kp_batch.operations.export import ExportResult
    from kp_batch.operations.importing import Imported
    from kp_batch.operations.score import Scored, Unscored
    from kp_batch.operations.settings import Setting
    from kp_batch.operations.sweep_result import Sweep
    from kp_batch.operations.verify import Verification
    from kp_batch.pipeline.summary import Summary
    from kp_batch.planning.explain_plan import PlanDescription
    from kp_batch.warehouse.questions import Question

    return {
        "compare": Comparison,
        "explain": Explanation,
        "export": ExportResult,
        "import": Imported,
        "plan": PlanDescription,
        "questions": list[Question],
        "run": Summary,
        "score": Scored | Unscored,
        "settings": list[Setting],
        "sweep": Sweep,
        "verify": Verification,
    }
