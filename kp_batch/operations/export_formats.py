"""The formats of an export: how its traces wait until they are in order, and are written then."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.formats.json import reader
from kp_batch.schemas import EXPORTED, arrow_schema
from kp_batch.text import encodable


@dataclass(frozen=True)
class ExportFormat:
    """One format.

    Attributes:
        schema: of the traces as they wait.
        to_frame: gives traces as a frame of this schema.
        write: writes batches of such rows, with more columns perhaps, in their order into a file.
    """

    schema: pl.Schema
    to_frame: Callable[[Sequence[Mapping[str, Any]]], pl.DataFrame]
    write: Callable[[Iterable[pa.RecordBatch], IO[bytes]], None]


_LINE = pl.Schema({"line": pl.String})
_READ_TRACE = reader(pl.Struct(dict(EXPORTED)))


def _lines(traces: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    lines = [(encodable(json.dumps(each, ensure_ascii=False)),) for each in traces]
    return pl.DataFrame(lines, schema=_LINE, orient="row")


def _write_lines(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    for batch in batches:
        file.writelines(f"{line}\n".encode() for line in batch.column("line").to_pylist())


def _columns(traces: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([_READ_TRACE(each) for each in traces], schema=EXPORTED, orient="row")


def _write_columns(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    schema = arrow_schema(EXPORTED)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            table = pa.Table.from_batches([batch]).select(schema.names)
            writer.write_table(table.cast(schema))


# By the ending of a file's name.
FORMATS: Mapping[str, ExportFormat] = MappingProxyType(
    {
        ".jsonl": ExportFormat(_LINE, _lines, _write_lines),
        ".parquet": ExportFormat(EXPORTED, _columns, _write_columns),
    }
)
