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
from kp_batch.imports.formats.parquet_rows import records_of, rows_as
from kp_batch.imports.model import (
    Format,
    Origin,
    ReadItem,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.imports.rules import Rules
from kp_batch.limits import TooLargeError
from kp_batch.text import sortable

_BATCH_ROWS = 256  # of a Parquet file
_NEEDED = ("id", "trace_id", "run_type")
_MODELS = ("metadata.ls_model_name", "invocation_params.model", "invocation_params.model_name")
_LITERAL = 1 << 18  # letters: parsed, each takes up to 500 bytes


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run with the fields of the bulk export and of the API; '' is what they lack."""

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


_TEXTS = [field.name for field in fields(_Run) if field.type is not Any]
_OTHERS = [field.name for field in fields(_Run) if field.type is Any]


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each run is a record."""
    if path.name.lower().endswith(".parquet"):
        yield from records_of(path, _BATCH_ROWS, _columns, rows_as(_record), ["trace_id"])
        return
    for item in read_json_lines(path):
        yield item if isinstance(item, Rejected) else _record(item[1], item[0])


def _columns(schema: pa.Schema) -> Callable[[str], bool]:
    if missing := [name for name in _NEEDED if name not in schema.names]:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it has no column {', '.join(missing)}"))
    return lambda leaf: leaf.split(".")[0] in (*_TEXTS, *_OTHERS)


def _record(row: Json, line: int | None = None) -> SourceRecord | Rejected:
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
    values = {"model": first_text([extra], *_MODELS), "metadata": metadata}
    return {name: value for name, value in values.items() if value}


def draft(
    trace: str, records: Sequence[SourceRecord], rules: Rules
) -> TraceDraft | Rejected | Skipped:
    """See `Format`."""
    runs = latest((_Run(**record.payload) for record in records), _age)
    return draft_of(trace, map(_span, runs), rules)


def _age(run: _Run) -> tuple[bool, str, int]:
    """Later exports have the end, and more feedback."""
    counts = (n for stats in _feedback(run).values() if isinstance(n := stats.get("n"), int))
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
    """The messages of a model's output; else its text, as models without messages have."""
    if answer := [message for message in messages_in(outputs) if message.role == "assistant"]:
        return answer
    value = parse_json(outputs)
    return [without_role(value) or Message("assistant", _text_of(value))]


def _text_of(value: object) -> str:
    while isinstance(value, list) and value:
        value = cast("list[object]", value)[0]
    if isinstance(value, dict) and "generations" in value:
        return _text_of(value["generations"])
    return objective_in(value) if isinstance(value, str | dict) else ""


def _call(run: _Run) -> ToolCall:
    arguments, call_id = parse_json(run.inputs), ""
    if isinstance(arguments, dict):
        inputs = cast("Json", arguments)
        if inputs.get("type") == "tool_call" and "args" in inputs:
            arguments, call_id = inputs["args"], str(inputs.get("id") or "")
        elif set(inputs) == {"input"} and isinstance(inputs["input"], str):
            arguments = _arguments(inputs["input"]) or arguments
    return ToolCall(run.name or "", arguments, call_id)


def _arguments(text: str) -> Json | None:
    """Arguments as LangChain writes them: in Python's notation, if that is short, or as JSON."""
    value = parse_json(text)
    if isinstance(value, str) and value.startswith("{") and len(value) <= _LITERAL:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _result(run: _Run) -> ToolResult:
    failed = run.status == "error" or run.error
    content = parse_json(run.outputs)
    if content == {}:
        content = None  # what LangSmith has where nothing came out
    if isinstance(content, dict) and set(content) == {"output"}:
        content = content["output"]
    return ToolResult(content, failed=failed)


def _feedback(run: _Run) -> Mapping[str, Json]:
    feedback = object_in(run.feedback_stats)
    return {name: stats for name, stats in feedback.items() if isinstance(stats, dict)}


def _scores(run: _Run) -> list[Score]:
    return scores_of((name, stats.get("avg"), None) for name, stats in _feedback(run).items())


def _fields(run: _Run) -> dict[str, list[str]]:
    named = {"name": run.name, "session_id": run.session_id, "session_name": run.session_name}
    tags = list(map(str, run.tags)) if isinstance(run.tags, list) else []
    names = {name: [text] for name, text in named.items() if text}
    return {"tags": tags} | names | dict(texts({"metadata": run.extra.get("metadata", {})}))


FORMAT = Format(
    name="langsmith",
    holds="feedback by name (its average); tags, name, session_name, metadata.KEY",
    inputs=by_ending(".parquet", ".jsonl", ".jsonl.gz"),
    records=records,
    draft=draft,
)
