"""Scores as CSV, for any system."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import IO

import polars as pl
import pyarrow as pa

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, FileWriter, Row
from kp_batch.exports.formats.scores import NativeIds, time_of
from kp_batch.ingest.reread import Trace
from kp_batch.text import encodable

COLUMNS = (
    *("trace_id", "system", "native_id", "root", "created_at", "score", "scoring_id"),
    "run_id",
)
_END = "\r\n"


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row:
    native = NativeIds.of(scored.trace_id, trace)
    values = (
        *(scored.trace_id, native.system, native.trace, native.root, time_of(scored)),
        *(scored.score, scored.scoring_id, scored.run_id),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _line(values: Iterable[object]) -> str:
    buffer = StringIO()
    csv.writer(buffer, lineterminator=_END).writerow(values)  # quotes values with a letter of _END
    return encodable(buffer.getvalue().removesuffix(_END))


def _lines(rows: Sequence[Row]) -> pl.DataFrame:
    lines = [(_line(row.values()),) for row in rows]
    return pl.DataFrame(lines, schema=LINES.schema, orient="row")


def _write(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    file.write(f"{_line(COLUMNS)}\n".encode())
    LINES.write(batches, file)


FORMAT = ExportFormat(
    row=_row,
    files={".csv": FileWriter(LINES.schema, _lines, _write)},
    is_scores=True,
)
