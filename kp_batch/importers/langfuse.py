"""Langfuse: exports to a blob storage, new and old, and downloads from its page."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import cast

import pyarrow as pa

from kp_batch.file_faults import UnreadableError
from kp_batch.importers.draft import PassedOver, Refused, Unit
from kp_batch.importers.format import Format
from kp_batch.importers.json_files import is_empty, read_json, read_json_lines
from kp_batch.importers.langfuse_exports import inputs, tells
from kp_batch.importers.langfuse_traces import draft
from kp_batch.importers.messages import Json, parsed
from kp_batch.importers.parquet_rows import rows_of, units_of

_ROWS = 256  # of a Parquet file that are held at once
_CONTEXT = ("tags", "environment", "release", "version", "user_id", "session_id", "metadata")
_FIELDS = {
    "trace": ("id", "timestamp", "updated_at", "trace_name", "input", *_CONTEXT),
    "score": (
        *("id", "timestamp", "updated_at", "name", "observation_id"),
        *("data_type", "value", "string_value"),
    ),
    "observation": (
        *("id", "parent_observation_id", "is_root_observation", "type", "name", "trace_name"),
        *("start_time", "end_time", "updated_at", "level", "input", "output"),
        *("provided_model_name", "model"),
        *("tool_calls", "tool_call_names", *_CONTEXT),
    ),
}
_DESCRIBED = ("TOOL", "AGENT")  # by their metadata
_OF_LANGSMITH = "it holds runs of LangSmith"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def units(path: Path, _: Sequence[Path]) -> Iterator[Unit | Refused | PassedOver]:
    """See `Format`: a row of any table is a unit, told apart by its columns."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        yield from units_of(path, _ROWS, _columns, _units, ["trace_id", "id"])
    elif name.endswith(".jsonl"):
        if not is_empty(path):  # a window without rows of a table, which is normal
            yield from _of_lines(path)
    else:
        yield from _of_json(read_json(path))


def _columns(schema: pa.Schema) -> Callable[[str], bool]:
    if "run_type" in schema.names:
        raise UnreadableError(_OF_LANGSMITH)
    wanted = {"trace_id", *(name for fields in _FIELDS.values() for name in fields)}
    return lambda leaf: leaf.split(".")[0] in wanted


def _units(rows: pa.RecordBatch) -> Iterator[Unit | Refused | PassedOver]:
    return map(_unit, rows_of(rows))


def _of_lines(path: Path) -> Iterator[Unit | Refused | PassedOver]:
    for each in read_json_lines(path):
        if isinstance(each, Refused):
            yield each
            continue
        try:
            yield _unit(cast("Json", each[1]), each[0])
        except UnreadableError as error:
            yield Refused(["missing_column"], str(error), line=each[0])


def _of_json(content: object) -> Iterator[Unit | Refused | PassedOver]:
    """Either a table's rows in a list, or traces as the page and the API give them."""
    listed = cast("list[object]", content) if isinstance(content, list) else [content]
    for each in listed:
        if not isinstance(each, Mapping):
            raise UnreadableError("it holds neither rows of a Langfuse export nor a trace")
        row = cast("Json", each)
        if isinstance(row.get("observations"), list):
            yield from _of_page(row)
        else:
            yield _unit(row)


def _of_page(page: Json) -> Iterator[Unit | Refused | PassedOver]:
    trace: Json = page["trace"] if isinstance(page.get("trace"), Mapping) else page
    name = trace.get("id")
    # The page writes a trace's input as JSON once more; an observation's is as it was.
    yield _unit({**trace, "input": parsed(trace.get("input"))})
    for each in [*page["observations"], *(trace.get("scores") or page.get("scores") or ())]:
        yield _unit({"traceId": name, **each})


def _unit(given: Json, line: int | None = None) -> Unit | Refused | PassedOver:
    row = {_HUMP.sub("_", name).lower(): value for name, value in given.items()}
    kind = _kind(row)
    if kind == "trace":  # called as in the rows of other tables
        row |= {"trace_id": row.get("id"), "trace_name": row.get("name")}
    trace = row.get("trace_id")
    if kind == "score" and not trace:
        return PassedOver("score of no trace")  # but of a session, or of a run over a data set
    if not row.get("id") or not trace:
        return Refused(["missing_id"], "a row without its id, or its trace's", line=line)
    record = {name: _plain(row[name]) for name in _FIELDS[kind] if name in row}
    if row.get("parent_observation_id") and row.get("type") not in _DESCRIBED:
        record.pop("metadata", None)  # long, and of no use
    return Unit(str(trace), {"kind": kind, **record}, line)


def _kind(row: Json) -> str:
    if "run_type" in row:
        raise UnreadableError(_OF_LANGSMITH)
    if "trace_id" in row and "start_time" in row:
        return "observation"
    if "trace_id" in row and "value" in row:
        return "score"
    if "id" in row and "timestamp" in row and "trace_id" not in row:
        return "trace"
    raise UnreadableError("it holds no observations, scores or traces of Langfuse")


def _plain(value: object) -> object:
    """JSON of what Parquet holds."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    return value


FORMAT = Format(
    name="langfuse",
    holds="scores by their names, of the trace or its root; tags, trace_name, metadata.KEY",
    inputs=inputs,
    tells=tells,
    units=units,
    draft=draft,
)
