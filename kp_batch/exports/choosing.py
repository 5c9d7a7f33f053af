"""Choose scored traces in a warehouse's tables, with their places in the archive."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import SQL, duckdb_limit, literal, set_variables, statement
from kp_batch.errors import KpBatchError
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import ChosenTrace
from kp_batch.ingest.reread import locations_query
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.schemas import TIMESTAMP
from kp_batch.text import count_of, one_line, printable
from kp_batch.warehouse.catalog import confine
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.snapshot import PublishedSnapshot

_READ_AT_ONCE = 2_000  # rows
# DuckDB raises these if a condition is wrong or not allowed.
_CONDITION_ERRORS = (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException)


@dataclass(frozen=True)
class Choice:
    """The traces that meet the conditions of an export.

    Attributes:
        count: the number of these traces.
        left_out: for each condition in words, in order, the number of traces that it removes.
        unscored: the traces of `ids` and of the run `only_changed` that have no score now, sorted.
        unscored_ids: how many of them are in `ids`.
    """

    count: int
    left_out: dict[str, int]
    unscored: tuple[str, ...]
    unscored_ids: int


def choose(warehouse: Path, options: ExportOptions, path: Path, *, all_scores: bool) -> Choice:
    """Write the `ChosenTrace` of each trace that meets the conditions to a Parquet file.

    DuckDB can access only that file's folder and the warehouse.

    Args:
        warehouse: the folder of the tables.
        options: the conditions.
        path: the file. It also gets all columns of the view scores.
        all_scores: whether the default of `min_score` is 0 instead of the threshold.

    Raises:
        KpBatchError: DuckDB refuses the condition in SQL, no id in `ids` has a score, or vectors
            for `distinct` are missing.
        WarehouseError: the tables of the run `only_changed` were removed.
    """
    with connect(warehouse) as connection:
        connection.execute(statement("SET memory_limit = '${bytes}B'", bytes=duckdb_limit()))
        confine(connection, folders=(warehouse.resolve(), path.parent.resolve()))
        snapshot = PublishedSnapshot.shown_by(warehouse, connection)
        _create_earlier(connection, snapshot, options)
        setting = "SELECT settings->>'threshold' FROM manifest"
        [(threshold,)] = connection.execute(setting).fetchall()
        left_out = _create_wanted(connection, options, None if all_scores else threshold)
        if options.distinct is not None and options.distinct < 1:
            _check_vectors(connection)
        count = _write_chosen(connection, snapshot, path)
        unscored = connection.execute("FROM unscored ORDER BY trace_id").fetchall()
        [(unscored_ids,)] = connection.execute(
            "SELECT count(*) FROM unscored SEMI JOIN asked_ids USING (trace_id)"
        ).fetchall()
        if options.ids and unscored_ids == len(options.ids) and not options.deleted:
            raise KpBatchError(
                f"none of {count_of(unscored_ids, 'id')} has a score (such as "
                f"{printable(options.ids[0])}); give ids of scored traces: scores.trace_id"
            )
        return Choice(count, left_out, tuple(trace_id for (trace_id,) in unscored), unscored_ids)


def _create_earlier(
    connection: duckdb.DuckDBPyConnection, snapshot: PublishedSnapshot, options: ExportOptions
) -> None:
    """Create the tables asked_ids, unchanged_ids and unscored.

    An unchanged trace has the same score and the same settings as in the run `only_changed`.
    """
    ids = pl.DataFrame({"trace_id": options.ids or ()}, {"trace_id": pl.String})
    connection.register("ids_of_options", ids.to_arrow())
    connection.execute("CREATE TEMP TABLE asked_ids AS FROM ids_of_options")
    query = statement("SELECT trace_id, score, encoder_id, cache_id, cache_group, profile_id")
    if options.only_changed:
        run = snapshot.as_of(*snapshot.find_runs(options.only_changed))
        rows = statement("$query FROM $scores", query=query, scores=run.relation("scores"))
    else:
        rows = statement("$query FROM scores WHERE false", query=query)
    connection.execute(statement("CREATE TEMP TABLE earlier AS $rows", rows=rows))
    connection.execute(
        """
        CREATE TEMP TABLE unchanged_ids AS
        SELECT trace_id FROM scores JOIN earlier USING (trace_id)
        WHERE (scores.score, scores.encoder_id, scores.cache_id, scores.profile_id)
            = (earlier.score, earlier.encoder_id, earlier.cache_id, earlier.profile_id)
        AND scores.cache_group IS NOT DISTINCT FROM earlier.cache_group
        """
    )
    connection.execute(
        """
        CREATE TEMP TABLE unscored AS
        (SELECT trace_id FROM earlier UNION FROM asked_ids)
        EXCEPT SELECT trace_id FROM scores
        """
    )


def _create_wanted(
    connection: duckdb.DuckDBPyConnection, options: ExportOptions, threshold: str | None
) -> dict[str, int]:
    """Create the table wanted: the rows of the view `scores` that meet the conditions.

    Returns:
        The number of rows that each condition removes, applied in turn.
    """
    rows = connection.table("scores")
    set_variables(connection, domains=list(options.domain))
    left_out: dict[str, int] = {}
    try:
        count = len(rows)
        for condition, words in options.conditions(threshold):
            rows = rows.filter(str(condition))  # an expression, not a statement; no subclass of str
            left_out[words] = left_out.get(words, 0) + count - len(rows)
            count = len(rows)
        query = SQL(rows.sql_query())
        connection.execute(statement("CREATE TEMP TABLE wanted AS $query", query=query))
    except _CONDITION_ERRORS as error:
        raise KpBatchError(
            f"the condition {options.where!r} does not work on the view scores: "
            f"{one_line(str(error))}; write one condition, such as n_tools > 2; --top N takes the "
            "best"
        ) from error
    return left_out


def _check_vectors(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise an error if traces were scored without an encoder."""
    query = "SELECT count(*) FROM wanted WHERE encoder_id = ?"
    [(count,)] = connection.execute(query, [NO_FINGERPRINT]).fetchall()
    if count:
        raise KpBatchError(
            "--distinct needs vectors, but a run without an embedder scored "
            f"{count_of(count, 'chosen trace')}; "
            "leave out --distinct, or run with an embedder first"
        )


def _write_chosen(
    connection: duckdb.DuckDBPyConnection, snapshot: PublishedSnapshot, path: Path
) -> int:
    last = last_done(snapshot.runs())
    hashed = statement(
        """(
            SELECT wanted.*, content_hash, $facts_version AS facts_version
            FROM wanted JOIN $scores AS scored USING (trace_id)
        )""",
        scores=snapshot.relation("scores"),
        facts_version=last.versions["facts"] if last else 0,
    )
    copy = statement(
        "COPY ($locations) TO $path (FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 16384)",
        locations=locations_query(hashed, "files", snapshot.relation("facts")),
        path=literal(path),
    )
    [(count,)] = connection.execute(copy).fetchall()
    return int(count)


def chosen_traces(path: Path) -> Iterator[ChosenTrace]:
    """Yield the traces in a file of `choose`, in order."""
    names = ChosenTrace._fields
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_READ_AT_ONCE, columns=list(names)):
            time = pl.col("created_at").cast(TIMESTAMP).to_physical()
            rows = pl.DataFrame(batch).with_columns(time).select(names)
            yield from map(ChosenTrace._make, rows.iter_rows())
