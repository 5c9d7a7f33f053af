"""`schema`: the JSON Schemas of what commands print, and of a row of an archive."""

import json
from importlib import import_module
from types import GenericAlias
from typing import Any

import click

from kp_batch.cli import kp_batch
from kp_batch.log import echo

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TRACE = "trace"
# The type that each command prints as JSON, by its module, which may take long to import.
_TYPES = {
    "audit": ("runs.audits", "AuditResult"),
    "compare": ("operations.compare", "Comparison"),
    "explain": ("operations.explain", "Explanation"),
    "export": ("operations.export", "ExportResult"),
    "forget": ("operations.forget", "ForgetResult"),
    "import": ("imports.summary", "Imported"),
    "plan": ("planning.explain_plan", "PlanDescription"),
    "preview": ("operations.outcome", "PreviewOutcome"),
    "questions": ("warehouse.questions", "Question"),
    "redundancy": ("warehouse.redundancy", "Redundancy"),
    "rollback": ("operations.rollback", "RollbackResult"),
    "run": ("operations.outcome", "RunOutcome"),
    "score": ("operations.score", "ScoredLine"),
    "settings": ("operations.settings", "Setting"),
    "similar": ("operations.similar", "SimilarLine"),
    "status": ("operations.status", "WarehouseStatus"),
    "sweep": ("operations.sweep_result", "Sweep"),
    "vacuum": ("operations.vacuum", "VacuumResult"),
    "verify": ("operations.verify", "Verification"),
}
_LISTED = {"audit", "questions", "settings"}  # these print a list of their type
NAMES = sorted([*_TYPES, _TRACE])


@kp_batch.command()
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
def schema(name: str) -> None:
    """Print the JSON Schema of what a command prints with --json, as compare or run.

    That of score is of one of its lines, that of preview is of run --preview, and that of trace is
    of a row of an archive.
    """
    echo(json.dumps(schema_of(name), indent=2))


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema, of draft 2020-12, of one of `NAMES`."""
    if name == _TRACE:
        from kp_batch.archive.validation import trace_schema

        schema, title = trace_schema(), "A row of an archive"
    else:
        from pydantic import TypeAdapter

        adapter = TypeAdapter[Any](_printed_type(name))
        schema = _as_printed(adapter.json_schema(mode="serialization"))
        title = f"kp-batch {name} --json"
    return {"$schema": _DIALECT, **schema, "title": title}


def _printed_type(name: str) -> Any:
    module, type_name = _TYPES[name]
    kind = getattr(import_module(f"kp_batch.{module}"), type_name)
    return GenericAlias(list, kind) if name in _LISTED else kind


def _as_printed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of dataclasses as `json_line` writes them: every field, and no other."""
    for object_ in (schema, *schema.get("$defs", {}).values()):
        if fields := object_.get("properties"):
            object_ |= {"required": [*fields], "additionalProperties": False}
            for field in fields.values():
                field.pop("title", None)
                field.pop("default", None)
    return schema
