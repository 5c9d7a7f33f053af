"""LangSmith's runs: the bulk export's Parquet, or JSON lines."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError
from kp_batch.imports.conversation.attributes import Score, first_text, scores_of, texts
from kp_batch.imports.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    object_in,
    parse_json,
)
from kp_batch.imports.conversation.payloads import messages_in, objective_in, without_role
from kp_batch.imports.conversation.spans import (
    ModelCall,
    Span,
    SpanContent,
    ToolRun,
    latest,
    nanoseconds,
)
from kp_batch.imports.conversation.spans import draft as draft_of
from kp_batch.imports.formats.json_files import read_json_lines
from kp_batch.imports.formats.parquet_rows import rows_of, units_of
from kp_batch.imports.model import (
    Format,
    Origin,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.imports.rules import Rules
from kp_batch.limits import TooLargeError
from kp_batch.text import sortable

_ROWS = 256  # of a Parquet file that are held at once
_NEEDED = ("id", "trace_id", "run_type")
_MODELS = ("metadata.ls_model_name", "invocation_params.model", "invocation_params.model_name")
_LITERAL = 1 << 18  # letters: parsed, each takes up to 500 bytes


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run with the fields of the bulk export and of the API; '' is what they do not tell."""

    id: str
    trace_id: str
    run_type: str | None
    parent_run_id: str | None = ""
    name: str | None = ""
    status: str | None = ""
    start_time: str | None = ""
    end_time: str | None = ""
    dotted_order: str | None = ""
    session_id: str | None = ""
    session_name: str | None = ""
    inputs: Any = None
    outputs: Any = None
    error: Any = None  # whether there is one
    feedback_stats: Any = None
    tags: Any = None
    extra: Any = None  # as far as it counts: the model, and of a root the metadata

    @property
    def is_root(self) -> bool:
        return self.id == self.trace_id or self.parent_run_id is None

    @property
    def sequence(self) -> str:
        """Its own time in the dotted order, which counts runs that start at once."""
        return (self.dotted_order or "").rpartition(".")[2].partition("Z")[0]

    @property
    def is_pending(self) -> bool:
        return self.status == "pending" if self.status else self.end_time is None


_TEXTS = [each.name for each in fields(_Run) if each.type is not Any]
_OTHERS = [field.name for field in fields(_Run) if field.type is Any]


def units(path: Path, _: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`: each run is a unit."""
    if path.name.lower().endswith(".parquet"):
        yield from units_of(path, _ROWS, _columns, _units, ["trace_id"])
        return
    for line in read_json_lines(path):
        yield line if isinstance(line, Rejected) else _unit(cast("Json", line[1]), line[0])


def _columns(schema: pa.Schema) -> Callable[[str], bool]:
    if missing := [name for name in _NEEDED if name not in schema.names]:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it has no column {', '.join(missing)}"))
    return lambda leaf: leaf.split(".")[0] in (*_TEXTS, *_OTHERS)


def _units(rows: pa.RecordBatch) -> Iterator[SourceRecord | Rejected]:
    return map(_unit, rows_of(rows))


def _unit(row: Json, line: int | None = None) -> SourceRecord | Rejected:
    trace = row.get("trace_id")
    if not row.get("id") or not trace:
        return Rejected(["missing_id"], "a run without an id, or without its trace's", line=line)
    if "run_type" not in row:
        return Rejected(["missing_column"], "no run of LangSmith: it has no run_type", line=line)
    record: dict[str, object] = {name: _text(row[name]) for name in _TEXTS if name in row}
    record |= {name: row[name] for name in _OTHERS if name in row}
    try:
        record |= {"error": bool(row.get("error")), "extra": _extra(row)}
    except TooLargeError:
        return SourceRecord(str(trace), None, line)
    return SourceRecord(str(trace), record, line)


def _text(value: object) -> str | None:
    return (str(value) or None) if isinstance(value, str | UUID) else None


def _extra(row: Json) -> Json:
    """What counts of a run's extra, which is long."""
    is_root = not row.get("parent_run_id")
    extra = object_in(row.get("extra")) if is_root or row["run_type"] == "llm" else {}
    metadata = object_in(extra.get("metadata")) if is_root else {}
    found = {"model": first_text([extra], *_MODELS), "metadata": metadata}
    return {name: each for name, each in found.items() if each}


def draft(
    trace: str, found: Sequence[SourceRecord], rules: Rules
) -> TraceDraft | Rejected | Skipped:
    """See `Format`."""
    runs = latest((_Run(**cast("Json", each.payload)) for each in found), _age)
    return draft_of(trace, map(_span, runs), rules)


def _age(run: _Run) -> tuple[bool, str, int]:
    """Later exports know of the end, and of more feedback."""
    counts = (n for each in _feedback(run).values() if isinstance(n := each.get("n"), int))
    return not run.is_pending, sortable(run.end_time), sum(counts)


def _span(run: _Run) -> Span:
    metadata = [run.extra.get("metadata")]
    return Span(
        id=run.id,
        parent="" if run.is_root else run.parent_run_id or None,
        start=nanoseconds(run.start_time),
        end=nanoseconds(run.end_time),
        has_ended=not run.is_pending,
        content=_content_of(run),
        input=run.inputs,
        sequence=run.sequence,
        scores=_scores(run) if run.is_root else (),
        fields=_fields(run) if run.is_root else {},
        origin=Origin(
            agent=first_text(metadata, "lc_agent_name", "agent_name"),
            model=run.extra.get("model"),
            session=first_text(metadata, "session_id", "thread_id", "conversation_id"),
            version=first_text(metadata, "version", "revision_id"),
        ),
    )


def _content_of(run: _Run) -> SpanContent | None:
    if run.run_type == "llm":
        return ModelCall(messages_in(run.inputs), _answer(run.outputs))
    if run.run_type in ("tool", "retriever"):
        return ToolRun(_call(run), _result(run), is_retriever=run.run_type == "retriever")
    return None


def _answer(outputs: object) -> list[Message]:
    """What a model gave back: its messages; else its text, as models without messages have."""
    if answer := [each for each in messages_in(outputs) if each.role == "assistant"]:
        return answer
    found = parse_json(outputs)
    return [without_role(found) or Message("assistant", _text_of(found))]


def _text_of(found: object) -> str:
    while isinstance(found, list) and found:
        found = cast("list[object]", found)[0]
    if isinstance(found, dict) and "generations" in found:
        return _text_of(found["generations"])
    return objective_in(found) if isinstance(found, str | dict) else ""


def _call(run: _Run) -> ToolCall:
    given, named = parse_json(run.inputs), ""
    if isinstance(given, dict):
        inputs = cast("Json", given)
        if inputs.get("type") == "tool_call" and "args" in inputs:
            given, named = inputs["args"], str(inputs.get("id") or "")
        elif set(inputs) == {"input"} and isinstance(inputs["input"], str):
            given = _arguments(inputs["input"]) or given
    return ToolCall(run.name or "", given, named)


def _arguments(text: str) -> Json | None:
    """Arguments as LangChain writes them: in Python's notation, if that is short, or as JSON."""
    found = parse_json(text)
    if isinstance(found, str) and found.startswith("{") and len(found) <= _LITERAL:
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _result(run: _Run) -> ToolResult:
    failed = run.status == "error" or run.error
    given = parse_json(run.outputs)
    if given == {}:
        given = None  # what LangSmith has where nothing came out
    if isinstance(given, dict) and set(given) == {"output"}:
        given = given["output"]
    return ToolResult(given, failed=failed)


def _feedback(run: _Run) -> Mapping[str, Json]:
    stats = object_in(run.feedback_stats)
    return {name: each for name, each in stats.items() if isinstance(each, dict)}


def _scores(run: _Run) -> list[Score]:
    return scores_of((name, each.get("avg"), None) for name, each in _feedback(run).items())


def _fields(run: _Run) -> dict[str, list[str]]:
    named = {"name": run.name, "session_id": run.session_id, "session_name": run.session_name}
    tags = list(map(str, run.tags)) if isinstance(run.tags, list) else []
    told = {name: [each] for name, each in named.items() if each}
    return {"tags": tags} | told | dict(texts({"metadata": run.extra.get("metadata", {})}))


FORMAT = Format(
    name="langsmith",
    holds="feedback by name (its average); tags, name, session_name, metadata.KEY",
    inputs=by_ending(".parquet", ".jsonl", ".jsonl.gz"),
    units=units,
    draft=draft,
    source="stream",
)
