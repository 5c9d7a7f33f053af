"""The JSON Schemas of what commands print, and of a row of an archive: docs/reference/schemas."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from types import GenericAlias
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import core_schema
from typing_extensions import TypedDict

from kp_batch.archive.columns import FIELDS, STEP_FIELDS, STEPS
from kp_batch.columns import COLUMNS, Rows
from kp_batch.schemas import STEP_TYPES
from kp_batch.text import ISO_8601
from tests.support.docs.pages import DOCS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TRACE = "trace"
# The type that each command prints as JSON, by its module.
_TYPES = {
    "audit": ("warehouse.audits", "AuditResult"),
    "compare": ("operations.compare", "Comparison"),
    "explain": ("operations.explain", "Explanation"),
    "export": ("exports.export", "ExportResult"),
    "fit": ("operations.fit_result", "WeightFit"),
    "forget": ("operations.forget", "ForgetResult"),
    "import": ("imports.summary", "Imported"),
    "import-forget": ("imports.change", "Forgotten"),
    "migrate": ("operations.migrate", "MigrateResult"),
    "plan": ("planning.explain_plan", "PlanDescription"),
    "preview": ("operations.preview", "Preview"),
    "questions": ("warehouse.questions", "Question"),
    "redundancy": ("operations.redundancy", "Redundancy"),
    "rollback": ("operations.rollback", "RollbackResult"),
    "run": ("report.run_summary", "Summary"),
    "score": ("operations.score", "ScoredLine"),
    "settings": ("operations.current_settings", "CurrentSettings"),
    "similar": ("operations.similar", "SimilarLine"),
    "status": ("operations.status", "WarehouseStatus"),
    "sweep": ("operations.sweep_result", "Sweep"),
    "vacuum": ("warehouse.vacuum_result", "VacuumResult"),
    "verify": ("operations.verify", "Verification"),
}
_COMMANDS = {"preview": "run --preview", "questions": "sql"}  # where the name is another
_LISTED = {"audit", "questions"}  # these print a list of their type
SCHEMAS = DOCS / "reference" / "schemas"
NAMES = sorted([*_TYPES, _TRACE])


def schema_files() -> dict[str, str]:
    """The files of the documentation, by name."""
    return {f"{name}.json": f"{json.dumps(schema_of(name), indent=2)}\n" for name in NAMES}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema, of draft 2020-12, of one of `NAMES`."""
    if name == _TRACE:
        schema, title = _trace_schema(), "A row of an archive"
    else:
        adapter = TypeAdapter[Any](_printed_type(name))
        schema = _as_printed(adapter.json_schema(mode="serialization"))
        title = f"kp-batch {_COMMANDS.get(name, name)} --json"
    return {"$schema": _DIALECT, **schema, "title": title}


def _printed_type(name: str) -> Any:
    module, type_name = _TYPES[name]
    kind = getattr(import_module(f"kp_batch.{module}"), type_name)
    return GenericAlias(list, kind) if name in _LISTED else kind


def _of_table(kind: type[Rows], _: Any, handler: Callable[[Any], Any]) -> Any:
    """What pydantic takes for the rows of a table, and makes its JSON Schema of."""
    columns = {name: COLUMNS[name] for name in kind.names}
    row: Any = TypedDict(  # pyrefly: ignore (its fields are known when it runs)
        f"{kind.__name__}Row",
        {
            name: Annotated[column.type, Field(description=column.meaning)]
            for name, column in columns.items()
        },
    )
    rows = handler(list[row])
    as_list = core_schema.plain_serializer_function_ser_schema(list, return_schema=rows)
    return core_schema.no_info_after_validator_function(kind, rows, serialization=as_list)


setattr(Rows, "__get_pydantic_core_schema__", classmethod(_of_table))  # noqa: B010 (pyrefly)


def _as_printed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of dataclasses as `json_line` writes them: every field, and no other."""
    for object_ in (schema, *schema.get("$defs", {}).values()):
        if fields := object_.get("properties"):
            object_ |= {"required": [*fields], "additionalProperties": False}
            for field in fields.values():
                field.pop("title", None)
                field.pop("default", None)
    return schema


_NOT_EMPTY = {"type": "string", "minLength": 1}
# The schemas of checked columns of `ROWS`.
_VALUES: Mapping[str, Mapping[str, Any]] = {
    "type": {"enum": ["ReasoningTrace", None]},
    "trace_id": _NOT_EMPTY,
    "created_at": {
        "type": "string",
        "pattern": f"^(?:{ISO_8601.pattern})$",
        "description": "Without a zone it is UTC. The day has to be one of the calendar.",
    },
    "task_domain": _NOT_EMPTY,
    "success": {"type": "boolean"},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    "objective": _NOT_EMPTY,
}


def _trace_schema() -> dict[str, Any]:
    """The JSON Schema of a row as JSON.

    A row that it accepts is scored, except with a day that no calendar has. It is stricter in one
    thing: as a text, a run also reads a whole number.
    """
    schema = _object({})
    for column, field in FIELDS.items():
        within = schema
        for name in field.path[:-1]:
            if name not in within["required"]:
                within["required"].append(name)
            within = within["properties"].setdefault(name, _object({}))
        within["properties"][field.path[-1]] = _VALUES.get(column, {})
        if column in _VALUES and field.required:
            within["required"].append(field.path[-1])
    [kind] = STEP_FIELDS["step_types"].path
    step = _object({kind: {"enum": list(STEP_TYPES)}, "content": {}, "tool": {}}, kind)
    schema["properties"][STEPS] = {"type": "array", "minItems": 1, "items": step}
    schema["required"].append(STEPS)
    return schema


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": {**properties}}
