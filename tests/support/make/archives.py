"""Traces and the files they stand in, for every test that needs an archive."""

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import reasons
from kp_batch.schemas import ROWS
from kp_batch.scoring.facts import with_facts
from tests.support.damage.parquet_files import damage_page

TOOL = pa.struct({"name": pa.string(), "mcp_server": pa.string()})
STEP = pa.struct(
    {
        "step_id": pa.int64(),
        "type": pa.string(),
        "content": pa.string(),
        "tool": TOOL,
        "input": pa.string(),
        "output_summary": pa.string(),
        "latency_ms": pa.float64(),
    }
)
METADATA = pa.struct(
    {
        "created_at": pa.string(),
        "agent_id": pa.string(),
        "framework": pa.string(),
        "task_domain": pa.string(),
        "success": pa.bool_(),
        "quality_score": pa.float64(),
    }
)
TASK = pa.struct({"objective": pa.string()})
OUTCOME = pa.struct({"result_summary": pa.string(), "confidence": pa.float64()})
SCHEMA = pa.schema(
    {
        "@context": pa.string(),
        "@type": pa.string(),
        "id": pa.string(),
        "source_skill": pa.string(),
        "metadata": METADATA,
        "task": TASK,
        "steps": pa.list_(STEP),
        "outcome": OUTCOME,
    }
)
DEFAULTS: Mapping[str, Any] = {
    "id": "kp:trace:1",
    "type": "ReasoningTrace",
    "created_at": "2026-01-05T08:00:00Z",
    "task_domain": "code",
    "agent_id": "agent-1",
    "framework": "loop",
    "success": True,
    "objective": "Fix the import",
    "confidence": 0.8,
}


def step(kind: Any = "thought", content: Any = None, tool: Any = None, **more: Any) -> Any:
    """One step; `tool` is the tool's name."""
    named = None if tool is None else {"name": tool, "mcp_server": "local"}
    return {"type": kind, "content": content, "tool": named, **more}


def trace(**changes: Any) -> dict[str, Any]:
    """One valid trace as a nested dict.

    Any name in `DEFAULTS` may be given another value, wherever it stands in the trace, and so may
    `steps`; `quality_score` has none; any other name becomes a field at the top. `type` is "@type".
    """
    steps = changes.pop(
        "steps",
        [
            step("thought", "look at it", step_id=0),
            step("tool_call", "run it", "python", step_id=1, input='{"path": "a.py"}'),
        ],
    )
    values = {name: changes.pop(name, value) for name, value in DEFAULTS.items()}
    metadata = ("created_at", "agent_id", "framework", "task_domain", "success")
    recorded = {name: changes.pop(name) for name in ("quality_score",) if name in changes}
    return {
        "@context": "https://knowledgepulse.dev/schema/v1",
        "@type": values["type"],
        "id": values["id"],
        "metadata": {name: values[name] for name in metadata} | recorded,
        "task": {"objective": values["objective"]},
        "steps": steps,
        "outcome": {"result_summary": "done", "confidence": values["confidence"]},
        **changes,
    }


def retyped(schema: pa.Schema | pa.StructType, path: str, kind: pa.DataType | None) -> Any:
    """The schema with the type at a path such as "steps/tool/name" replaced; None removes it."""
    first, _, rest = path.partition("/")
    fields = {schema.field(i).name: schema.field(i).type for i in range(len(schema.names))}
    if not rest:
        fields = {
            name: kind if name == first else old
            for name, old in fields.items()
            if name != first or kind is not None
        }
        if first not in fields and kind is not None:
            fields[first] = kind
    elif pa.types.is_list(fields[first]):
        fields[first] = pa.list_(retyped(fields[first].value_type, rest, kind))
    else:
        fields[first] = retyped(fields[first], rest, kind)
    return pa.schema(fields) if isinstance(schema, pa.Schema) else pa.struct(fields)


def table(traces: Sequence[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """The traces as an Arrow table of that schema."""
    return pa.Table.from_pylist(list(traces), schema=schema)


def write_parquet(
    path: Path, traces: Sequence[Any], schema: pa.Schema = SCHEMA, **options: Any
) -> Path:
    """Write the traces to a Parquet file, its folders included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(traces, schema), path, **options)
    return path


def record_scores(folder: Path, seed: int) -> None:
    """Give the traces of a sample other scores of live engines, but for placeholders."""
    draws, score = np.random.default_rng(seed), pl.col("metadata").struct.field("quality_score")
    for path in sorted(folder.glob("*.parquet")):
        rows = pl.read_parquet(path)
        drawn = pl.Series(draws.uniform(0.1, 1.0, len(rows)).round(2))
        recorded = pl.when(score == 0).then(0.0).otherwise(drawn).alias("quality_score")
        rows.with_columns(pl.col("metadata").struct.with_fields(recorded)).write_parquet(path)


def write_damaged(path: Path, traces: Sequence[Any], good: int) -> Path:
    """Write a Parquet file of which the first `good` rows, an even number, can be read."""
    write_parquet(path, traces, row_group_size=2, use_dictionary=False)
    damage_page(path, good // 2, "id")
    return path


def write_jsonl(path: Path, lines: Iterable[Any]) -> Path:
    """Write a file of lines, its folders included: bytes as they are, all else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"".join(line + b"\n" for line in contents))
    return path


def read(path: Path | str) -> pl.DataFrame:
    """The rows of one file, its name left out, with their facts and reasons."""
    rows = pl.concat([ROWS.to_frame(), *read_rows(discover([str(path)])[0])]).drop("source_file")
    return with_facts(rows, reasons())


def lines(*traces: Any) -> BytesIO:
    return BytesIO("".join(json.dumps(each) + "\n" for each in traces).encode())
