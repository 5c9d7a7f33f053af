"""What a format of exports consists of: a row for each trace, and writers of files."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import IO, Any, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.file_formats.json import reader
from kp_batch.exports.export_options import ExportOptions
from kp_batch.ingest.reread import Trace
from kp_batch.schemas import arrow_schema
from kp_batch.text import encodable

Row = dict[str, Any]  # JSON
_LEVELS = 100  # of objects and lists
_WHOLE = range(-(2**63), 2**64)


class ChosenTrace(NamedTuple):
    """A scored trace, and its place in the archive."""

    source_file: str
    row: int
    trace_id: str
    content_hash: str
    text_hash: str
    created_at: int  # microseconds since 1970
    score: float
    run_id: str
    encoder_id: str
    cache_id: str
    cache_group: str | None
    profile_id: str
    facts_version: int

    @property
    def scoring_id(self) -> str:
        """A digest of all that determines scores; equal ids mean comparable scores.

        The first 16 hexadecimal digits of the SHA-256 of a JSON array: encoder_id, cache_id, the
        sorted keys of cache_group, profile_id, and the version of the facts. encoder_id, cache_id
        and profile_id end with the versions of their formulas.
        """
        return _scoring_id(
            self.encoder_id, self.cache_id, self.cache_group, self.profile_id, self.facts_version
        )


@lru_cache
def _scoring_id(encoder: str, cache: str, group: str | None, profile: str, facts: int) -> str:
    keys = sorted(json.loads(group)) if group else []
    values = json.dumps([encoder, cache, keys, profile, facts])
    return hashlib.sha256(values.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FileWriter:
    """Writes files of one kind.

    Attributes:
        schema: the columns of staged rows.
        to_frame: makes a frame of this schema from rows.
        write: writes batches of such rows to a file, in order; they may have more columns.
    """

    schema: pl.Schema
    to_frame: Callable[[Sequence[Row]], pl.DataFrame]
    write: Callable[[Iterable[pa.RecordBatch], IO[bytes]], None]


@dataclass(frozen=True)
class ExportFormat:
    """A format of exports.

    Attributes:
        row: makes the row of a trace, or returns the reason why it cannot be written. The reason
            follows a number of traces, such as "without an answer".
        files: a writer for each ending of file names; stdout takes the first.
        is_scores: whether it writes scores without contents. Then the default of `min_score` is 0.
        score_id: makes the id of a trace's score in the other system from the trace's id; None:
            both ids are the same.
    """

    row: Callable[[ChosenTrace, Trace, ExportOptions], Row | str]
    files: Mapping[str, FileWriter]
    is_scores: bool = False
    score_id: Callable[[str], str] | None = None


_LINE = pl.Schema({"line": pl.String})


def _lines(rows: Sequence[Row]) -> pl.DataFrame:
    lines = [(encodable(json.dumps(row, ensure_ascii=False)),) for row in rows]
    return pl.DataFrame(lines, schema=_LINE, orient="row")


def _write_lines(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    for batch in batches:
        file.writelines(f"{line}\n".encode() for line in batch.column("line").to_pylist())


LINES = FileWriter(_LINE, _lines, _write_lines)  # JSON lines


def parquet_of(schema: pl.Schema) -> FileWriter:
    """Return a writer of Parquet files with these columns; it drops all other fields."""
    read = reader(pl.Struct(dict(schema)))

    def to_frame(rows: Sequence[Row]) -> pl.DataFrame:
        return pl.DataFrame([read(row) for row in rows], schema=schema, orient="row")

    return FileWriter(schema, to_frame, partial(write_parquet, arrow_schema(schema)))


def write_parquet(columns: pa.Schema, batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    """Write these columns of batches to a Parquet file; it drops all other columns."""
    with pq.ParquetWriter(file, columns, compression="zstd") as writer:
        for batch in batches:
            table = pa.Table.from_batches([batch]).select(columns.names)
            writer.write_table(table.cast(columns))


def is_portable(value: object, levels: int = _LEVELS) -> bool:
    """Whether every JSON reader accepts a value: finite numbers of 64 bits, not too deep."""
    if isinstance(value, dict):
        value = [*cast("Row", value).values()]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return levels > 0 and all(is_portable(item, levels - 1) for item in items)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value in _WHOLE
