"""LangSmith's runs: the bulk export's Parquet, or JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

import pyarrow as pa

from kp_batch.bounded_json import TooLargeError
from kp_batch.file_faults import MISSING_COLUMN, Fault, UnreadableError
from kp_batch.importers.attributes import first_text
from kp_batch.importers.draft import PassedOver, Refused, Unit
from kp_batch.importers.format import Format, by_ending
from kp_batch.importers.json_files import read_json_lines
from kp_batch.importers.langsmith_runs import draft
from kp_batch.importers.messages import Json, object_in
from kp_batch.importers.parquet_rows import rows_of, units_of
from kp_batch.limits import TOO_LARGE

_ROWS = 256  # of a Parquet file that are held at once
_NEEDED = ("id", "trace_id", "run_type")
_TEXTS = (
    *(*_NEEDED, "parent_run_id", "name", "status", "start_time", "end_time", "dotted_order"),
    *("session_id", "session_name"),
)
_MODELS = ("metadata.ls_model_name", "invocation_params.model", "invocation_params.model_name")
_OTHERS = ("inputs", "outputs", "feedback_stats", "tags")


def units(path: Path, _: Sequence[Path]) -> Iterator[Unit | Refused | PassedOver]:
    """See `Format`: each run is a unit."""
    if path.name.lower().endswith(".parquet"):
        yield from units_of(path, _ROWS, _columns, _units, ["trace_id"])
        return
    for each in read_json_lines(path):
        yield each if isinstance(each, Refused) else _unit(cast("Json", each[1]), each[0])


def _columns(schema: pa.Schema) -> Callable[[str], bool]:
    if missing := [name for name in _NEEDED if name not in schema.names]:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it has no column {', '.join(missing)}"))
    wanted = {*_TEXTS, *_OTHERS, "error", "extra"}
    return lambda leaf: leaf.split(".")[0] in wanted


def _units(rows: pa.RecordBatch) -> Iterator[Unit | Refused]:
    return map(_unit, rows_of(rows))


def _unit(row: Json, line: int | None = None) -> Unit | Refused:
    if not row.get("id") or not row.get("trace_id"):
        return Refused(["missing_id"], "a run without an id, or without its trace's", line=line)
    if "run_type" not in row:
        return Refused(["missing_column"], "no run of LangSmith: it has no run_type", line=line)
    record: dict[str, object] = {name: _text(row[name]) for name in _TEXTS if name in row}
    record |= {name: row[name] for name in _OTHERS if name in row}
    record["error"] = bool(row.get("error"))
    is_root = not row.get("parent_run_id")
    if is_root or row["run_type"] == "llm":
        try:
            extra = object_in(row.get("extra"))
        except TooLargeError as error:
            return Refused([TOO_LARGE], str(error), line=line)
        record["model"] = first_text([extra], *_MODELS)
        record |= {"metadata": object_in(extra.get("metadata"))} if is_root else {}
    return Unit(str(row["trace_id"]), record, line)


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | UUID) else None


FORMAT = Format(
    name="langsmith",
    holds="feedback by name (its average); tags, name, session_name, metadata.KEY",
    inputs=by_ending(".parquet", ".jsonl", ".jsonl.gz"),
    units=units,
    draft=draft,
)
