"""Export traces with their scores: as examples, as training data, or as another archive.

`ExportFilter` selects them in the tables; their content is read again from the archive. Traces that
are private, gone, or similar to a better one are skipped.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.archive.file_formats.json import reader
from kp_batch.archive.sources import covers
from kp_batch.duck import (
    SQL,
    duckdb_limit,
    identifier,
    literal,
    read_parquet,
    set_variables,
    sql,
    statement,
)
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.errors import KpBatchError, Unread
from kp_batch.files import atomic_write
from kp_batch.html import Displayed
from kp_batch.ingest.reread import Trace, locations_query, reread_batches
from kp_batch.log import progress
from kp_batch.novelty.resemblance import Distinct
from kp_batch.operations.export_filter import ExportFilter
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.schemas import EXPORTED, TIMESTAMP, arrow_schema
from kp_batch.text import count_of, encodable, one_line, printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import confine
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.snapshot import PublishedSnapshot, create_view, published
from kp_batch.warehouse.staging import Staging

_READ_AT_ONCE, _WRITTEN_AT_ONCE = 2_000, 1_000  # rows
_VECTORS = 16_384  # in memory at once; in this order they are from many chunks
_FILES_NAMED = 5
# The values of traces that may be shared; so may traces without a value.
_SHARED = {"visibility": ("network", "org"), "privacy_level": ("aggregated", "federated")}
# The origin of a score, in the order of its JSON.
_ORIGIN = ("run_id", "encoder_id", "cache_id", "cache_group", "profile_id", "source_file")
# What DuckDB raises for a condition that is wrong or not allowed.
_CONDITION_ERRORS = (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException)
# The columns that select and order the traces that were read.
_KEY = {
    "trace_id": pl.String(),
    "created_at": TIMESTAMP,
    "score": pl.Float64(),
    "encoder_id": pl.String(),
    "text_hash": pl.String(),
}


@dataclass(frozen=True)
class ExportFormat:
    """A format of exports.

    Attributes:
        schema: the schema of the traces until they are written.
        to_frame: makes a frame of this schema from traces.
        write: writes batches of such rows, which may have more columns, to a file in order.
    """

    schema: pl.Schema
    to_frame: Callable[[Sequence[Mapping[str, Any]]], pl.DataFrame]
    write: Callable[[Iterable[pa.RecordBatch], IO[bytes]], None]


@dataclass(frozen=True)
class ExportResult(Displayed):
    """What an export wrote, and what it left out."""

    chosen: int  # traces that meet the conditions; the sum of the following counts
    exported: int
    private: int
    dropped_similar: int  # similar to a better one
    not_found: dict[Unread, int]  # gone or changed since they were scored, by the reason
    not_found_files: tuple[str, ...]  # the first few of these files
    dropped_by_per: int = 0  # not among the best of a value of a column of `per`
    dropped_by_top: int = 0  # not among the best `top`
    conditions: tuple[str, ...] = ()  # that chosen traces meet, in words


class SelectedTrace(NamedTuple):
    """A scored trace, and its place in the archive."""

    source_file: str
    row: int
    trace_id: str
    content_hash: str
    text_hash: str
    created_at: int  # microseconds
    score: float
    run_id: str
    encoder_id: str
    cache_id: str
    cache_group: str | None
    profile_id: str


@dataclass
class SkippedTraces:
    """Counts the selected traces that are not exported, and names the files that lack them."""

    private: int = 0
    not_found: Counter[Unread] = field(default_factory=Counter[Unread])
    files: dict[str, None] = field(default_factory=dict[str, None])

    def shared(
        self, batch: Iterable[tuple[SelectedTrace, Trace | Unread]], *, private: bool
    ) -> Iterator[tuple[SelectedTrace, Trace]]:
        """Yield the traces that were read and may be shared, or private ones, too."""
        for selected, trace in batch:
            if isinstance(trace, str):  # it cannot be read again as it was scored
                self.not_found[trace] += 1
                self.files[selected.source_file] = None
            elif private or not _is_private(trace):
                yield selected, trace
            else:
                self.private += 1


def export(warehouse: Path, wanted: ExportFilter, form: ExportFormat, output: Path) -> ExportResult:
    """Write scored traces, read again from the archive, in the order of created_at and id.

    With `per` or `top`, they are in the order of score and id, the best first.

    Each has its score as `metadata.quality_score`, and the score's origin as
    `metadata.quality_score_from`: run_id, encoder_id, cache_id, cache_group, profile_id and
    source_file. JSONL keeps all fields of a trace as in its file. Parquet has only those of
    `schemas.EXPORTED`, without, for example, metadata.validated_by; a step's content that is not a
    text is JSON. An export can be scored again, because its content is what was scored.

    Private traces, and those whose file no longer has what was scored, are skipped. Time is linear
    in the traces, except for --distinct; see `Distinct`. Memory holds a batch, and with --distinct
    the vectors of distinct traces; traces that were read are on the disk.

    Args:
        warehouse: the folder of the tables, which does not change.
        wanted: which traces.
        form: the format of the file, one of `FORMATS`.
        output: the file, which is incomplete until this returns.

    Raises:
        KpBatchError: DuckDB refuses the condition in SQL; --distinct needs vectors that traces
            lack; or traces in the file may have been forgotten since.
        WarehouseError: there is no warehouse, or vectors are missing.
    """
    forgotten = _forgotten_lists(warehouse)
    with (
        Staging.temporary() as staging,
        staging.connect() as connection,
        output.open("wb") as file,
    ):
        selected, read = (staging.folder / f"{name}.parquet" for name in ("selected", "read"))
        count, conditions = _select(warehouse, wanted, selected)
        skipped = _stage(selected, count, read, form, private=wanted.include_private)
        create_view(connection, "main", "read", read_parquet(read))
        rows = statement("read")
        if wanted.distinct is not None:
            select_distinct(warehouse, connection, staging.vectors, wanted.distinct)
            rows = statement("(FROM read SEMI JOIN distinct_ids USING (trace_id))")
        distinct = _count(connection, rows)
        if wanted.per:
            rows = _best_per(connection, rows, selected, wanted.most_per)
        remaining = _count(connection, rows)
        best_first = wanted.per or wanted.top is not None
        if best_first:
            query = statement("FROM $rows ORDER BY score DESC, trace_id", rows=rows)
        else:
            query = statement("FROM $rows ORDER BY created_at, trace_id", rows=rows)
        if wanted.top is not None:
            query = statement("$query LIMIT $top", query=query, top=wanted.top)
        form.write(connection.sql(query).to_arrow_reader(_WRITTEN_AT_ONCE), file)
    if _forgotten_lists(warehouse) != forgotten:
        raise KpBatchError("traces were forgotten during the export; export again")
    written = remaining if wanted.top is None else min(remaining, wanted.top)
    return ExportResult(
        chosen=count,
        exported=written,
        private=skipped.private,
        dropped_similar=count - skipped.private - skipped.not_found.total() - distinct,
        not_found=dict(skipped.not_found),
        not_found_files=tuple(skipped.files)[:_FILES_NAMED],
        dropped_by_per=distinct - remaining,
        dropped_by_top=remaining - written,
        conditions=conditions,
    )


def _count(connection: duckdb.DuckDBPyConnection, rows: SQL) -> int:
    [(count,)] = connection.execute(statement("SELECT count(*) FROM $rows", rows=rows)).fetchall()
    return int(count)


def _best_per(
    connection: duckdb.DuckDBPyConnection,
    rows: SQL,
    selected: Path,
    most_per: Iterable[tuple[str, int]],
) -> SQL:
    """Return the best rows of each value of some columns, one column after another.

    Traces without a value are one value. Of equal scores, the one whose id comes first is better.

    Args:
        connection: has the view read.
        rows: some rows of it.
        selected: the file of `_select`, which has all columns of the view scores.
        most_per: the columns, and how many rows of each value.
    """
    keys = statement("SELECT trace_id, score FROM $rows", rows=rows)
    for column, most in most_per:
        keys = statement(
            """SELECT trace_id, score FROM ($keys)
            JOIN (SELECT trace_id, $column FROM $selected) USING (trace_id)
            QUALIFY row_number() OVER (PARTITION BY $column ORDER BY score DESC, trace_id) <= $most
            """,
            keys=keys,
            column=identifier(column),
            selected=read_parquet(selected),
            most=most,
        )
    connection.execute(statement("CREATE TEMP TABLE best_per AS $keys", keys=keys))
    return statement("(FROM $rows SEMI JOIN best_per USING (trace_id))", rows=rows)


def _forgotten_lists(warehouse: Path) -> Mapping[str, str] | None:
    return require_manifest(warehouse).tables.get("forgotten")


def _select(warehouse: Path, wanted: ExportFilter, path: Path) -> tuple[int, tuple[str, ...]]:
    """Write the `SelectedTrace` of each trace that meets the conditions to a Parquet file.

    DuckDB gets access only to that file's folder and the warehouse.

    Returns:
        The number of these traces, and the conditions in words.
    """
    with connect(warehouse) as connection:
        connection.execute(statement("SET memory_limit = '${bytes}B'", bytes=duckdb_limit()))
        confine(connection, folders=(warehouse.resolve(), path.parent.resolve()))
        setting = "SELECT settings->>'threshold' FROM manifest"
        [(threshold,)] = connection.execute(setting).fetchall()
        conditions = list(wanted.conditions(threshold))
        _create_wanted(connection, wanted, [condition for condition, _ in conditions])
        if wanted.distinct is not None and wanted.distinct < 1:
            _check_vectors(connection)
        snapshot = PublishedSnapshot.shown_by(warehouse, connection)
        hashed = statement(
            "(FROM wanted JOIN (SELECT trace_id, content_hash FROM $scores) USING (trace_id))",
            scores=snapshot.relation("scores"),
        )
        copy = statement(
            "COPY ($locations) TO $path (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384)",
            locations=locations_query(hashed, "files", snapshot.relation("facts")),
            path=literal(path),
        )
        [(count,)] = connection.execute(copy).fetchall()
        return int(count), tuple(words for _, words in conditions)


def _create_wanted(
    connection: duckdb.DuckDBPyConnection, wanted: ExportFilter, conditions: Iterable[str]
) -> None:
    """Create the table wanted: the rows of the view `scores` that meet the conditions."""
    rows = connection.table("scores")
    set_variables(connection, domains=list(wanted.domain))
    try:
        for condition in conditions:
            rows = rows.filter(str(condition))  # an expression, no statement; no subclass of str
        query = SQL(rows.sql_query())
        connection.execute(statement("CREATE TEMP TABLE wanted AS $query", query=query))
    except _CONDITION_ERRORS as error:
        raise KpBatchError(
            f"the condition {wanted.where!r} does not work on the view scores: "
            f"{one_line(str(error))}; write one condition, such as n_tools > 2; --top N takes the "
            "best"
        ) from error


def _check_vectors(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse traces that were scored without an encoder."""
    query = "SELECT count(*) FROM wanted WHERE encoder_id = ?"
    [(count,)] = connection.execute(query, [NO_FINGERPRINT]).fetchall()
    if count:
        raise KpBatchError(
            "without an embedder there are no vectors for --distinct "
            f"({count_of(count, 'chosen trace')}); "
            "leave out --distinct, or run with an embedder first"
        )


def _stage(
    selected: Path, count: int, path: Path, form: ExportFormat, *, private: bool
) -> SkippedTraces:
    """Write the traces that can be read again to a file, and return those that cannot."""
    skipped, schema = SkippedTraces(), pl.Schema({**_KEY, **form.schema})
    key = attrgetter(*_KEY)
    with (
        pq.ParquetWriter(path, arrow_schema(schema), compression="lz4") as writer,
        progress("reading again", count, "trace") as bar,
    ):
        for batch in reread_batches(_selected(selected)):
            shared = list(skipped.shared(batch, private=private))
            keys = pl.DataFrame([key(row) for row, _ in shared], schema=_KEY, orient="row")
            traces = form.to_frame([_with_score(row, trace) for row, trace in shared])
            writer.write_table(keys.hstack(traces).to_arrow())
            bar.add(len(shared))
    return skipped


def _selected(path: Path) -> Iterator[SelectedTrace]:
    names = SelectedTrace._fields
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_READ_AT_ONCE, columns=list(names)):
            time = pl.col("created_at").cast(TIMESTAMP).to_physical()
            rows = pl.DataFrame(batch).with_columns(time).select(names)
            yield from map(SelectedTrace._make, rows.iter_rows())


def _is_private(trace: Trace) -> bool:
    """Whether it has a value that is not in `_SHARED`, such as "Private"."""
    metadata = trace["metadata"]
    return any(metadata.get(name) not in (None, *shared) for name, shared in _SHARED.items())


def _with_score(selected: SelectedTrace, trace: Trace) -> Trace:
    """The trace with its score and the score's origin: a struct of `schemas.EXPORTED`."""
    trace["metadata"] |= {
        "quality_score": selected.score,
        "quality_score_from": {name: getattr(selected, name) for name in _ORIGIN},
    }
    return trace


def select_distinct(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, places: Path, bound: float
) -> None:
    """Create the table distinct_ids: the traces that are not similar to a better one in it.

    A better trace has a higher score, or the same score and is older. Traces are similar if their
    texts are equal, or if one encoder made both vectors and these are similar. See `Distinct` for
    time and memory.

    Args:
        warehouse: the folder of the tables.
        connection: has the view read; see ranked.sql.
        places: the file that `VectorStore.write_places` writes.
        bound: the lowest cosine of similar traces, above 0 and at most 1. At 1, only texts count,
            because rounding may put the cosine of equal texts below 1, and that of others at 1.

    Raises:
        WarehouseError: vectors are missing.
    """
    connection.execute("CREATE TEMP TABLE distinct_ids (trace_id VARCHAR)")
    encoders = connection.execute("SELECT DISTINCT encoder_id FROM read ORDER BY ALL").fetchall()
    for (encoder_id,) in encoders:
        set_variables(connection, encoder_id=encoder_id)
        connection.execute(sql(__name__, "ranked.sql"))
        if bound == 1:
            connection.execute("INSERT INTO distinct_ids SELECT trace_id FROM ranked")
            continue
        folder = Layout(warehouse).vectors(encoder_id)
        VectorStore(folder, connection).write_places("ranked", places)
        best = pl.DataFrame({"position": _distinct_positions(folder, places, bound)}).to_arrow()
        connection.register("best", best)
        connection.execute(
            "INSERT INTO distinct_ids SELECT trace_id FROM ranked JOIN best USING (position)"
        )
        connection.unregister("best")


def _distinct_positions(folder: Path, places: Path, bound: float) -> pl.Series:
    """Return the positions of the vectors that `Distinct` takes, ascending."""
    distinct = Distinct(bound)
    with pq.ParquetFile(places) as file:
        batches = (
            read_vectors(folder, pl.DataFrame(batch)) for batch in file.iter_batches(_VECTORS)
        )
        taken = [np.empty(0, dtype=np.bool_), *map(distinct.take, batches)]
    return pl.Series(np.flatnonzero(np.concatenate(taken)), dtype=pl.Int64)


def export_to(warehouse: Path, wanted: ExportFilter, output: Path) -> ExportResult:
    """Export to a file, which is replaced when the export is complete; see `export`.

    Raises:
        KpBatchError: its ending is of no format, it is in the archive or the warehouse, or no trace
            could be exported.
    """
    form = FORMATS.get(output.suffix.lower())
    if form is None:
        raise KpBatchError(
            f"{printable(str(output))} has an unknown extension; name a file that ends with "
            f"{' or '.join(FORMATS)}"
        )
    check_output(warehouse, output.absolute())
    with atomic_write(output) as partial:
        partial.touch(0o600 if wanted.include_private else 0o666)
        result = export(warehouse, wanted, form, partial)
        refuse_empty(result, str(output))
    return result


def refuse_empty(result: ExportResult, output: str) -> None:
    """Refuse an export without a trace.

    Raises:
        KpBatchError: no chosen trace could be written.
    """
    if result.chosen and not result.exported:
        raise KpBatchError(
            f"none of {count_of(result.chosen, 'chosen trace')} could be exported "
            f"({_left_out(result)}), and {printable(output)} is unchanged; choose others"
        )


def _left_out(result: ExportResult) -> str:
    counts = {"private": result.private, "similar": result.dropped_similar, **result.not_found}
    return ", ".join(
        f"{count_of(count, 'trace')} {what}" for what, count in counts.items() if count
    )


def check_output(warehouse: Path, output: Path) -> None:
    """Refuse a file in the archive or the warehouse.

    The archive is that of the last run, and each file of the ledger.

    Args:
        warehouse: the folder of the tables.
        output: the absolute path of the file; if it is a link, its target is replaced.

    Raises:
        KpBatchError: the file is in one of them.
        WarehouseError: there is no warehouse.
    """
    paths = [output.parent.resolve() / output.name, output.resolve()]
    if is_in_warehouse(paths, warehouse):
        raise _inside(output, f"in the warehouse {shown(warehouse)!r}")
    snapshot = published(warehouse)
    last = last_done(snapshot.runs())
    if name := archive_with(paths, last.config["archive"] if last else ()):
        raise _inside(output, f"in the archive {name!r}, which the next run reads")
    files = snapshot.scan("files").select("source_file")
    is_output = pl.col("source_file").is_in([str(path) for path in (output, *paths)])
    if not files.filter(is_output).collect().is_empty():
        raise _inside(output, "a file of the archive")


def _inside(output: Path, where: str) -> KpBatchError:
    return KpBatchError(
        f"{printable(str(output))} is {where}; choose another folder for the export"
    )


def is_in_warehouse(paths: Sequence[Path], warehouse: Path) -> bool:
    """Whether a file with these paths would be in the folder of a warehouse."""
    folders = (warehouse.absolute(), warehouse.resolve())
    return any(path.is_relative_to(folder) for path in paths for folder in folders)


def archive_with(paths: Sequence[Path], archive: Iterable[str]) -> str | None:
    """Return the first name of an archive that would contain a file with these paths, or None."""
    return next((name for name in archive if any(covers(name, path) for path in paths)), None)


_LINE = pl.Schema({"line": pl.String})
_READ_TRACE = reader(pl.Struct(dict(EXPORTED)))


def _lines(traces: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    lines = [(encodable(json.dumps(trace, ensure_ascii=False)),) for trace in traces]
    return pl.DataFrame(lines, schema=_LINE, orient="row")


def _write_lines(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
    for batch in batches:
        file.writelines(f"{line}\n".encode() for line in batch.column("line").to_pylist())


def _columns(traces: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([_READ_TRACE(trace) for trace in traces], schema=EXPORTED, orient="row")


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
