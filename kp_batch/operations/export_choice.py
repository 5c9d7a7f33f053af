"""Chooses the traces of an export, and finds where the archive holds them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from kp_batch.errors import KpBatchError
from kp_batch.ingest.reread import places_query
from kp_batch.memory import duckdb_limit
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.sql import SQL, literal, set_variables, sql, statement
from kp_batch.text import number, one_line
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot

# What DuckDB raises of a condition that is wrong, or that looks elsewhere.
_WRONG = (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException)


@dataclass(frozen=True)
class Choice:
    """Which traces are exported: those that meet every condition.

    Attributes:
        min_score: the least score, 0..1; None for the threshold of the warehouse.
        domains: of which one is the trace's; empty for any.
        since: the first day of created_at, in UTC, such as 2026-01-31; None for any.
        until: the last day, likewise.
        where: SQL, a condition on the view `scores`; None for none.
        distinct: the least cosine, above 0 and below 1, at which a trace is left out for a better
            one that it resembles, or 1, which leaves out those of equal text; None for none.
        top: how many of those that are left are exported, the best; None for all.
        private: whether private traces are exported, too.
    """

    min_score: float | None = None
    domains: Sequence[str] = ()
    since: str | None = None
    until: str | None = None
    where: str | None = None
    distinct: float | None = None
    top: int | None = None
    private: bool = False


@dataclass(frozen=True)
class Chosen:
    """How many traces meet the conditions, and these in words."""

    traces: int
    conditions: tuple[str, ...]


def choose(warehouse: Path, choice: Choice, folder: Path, path: Path) -> Chosen:
    """Write which traces are chosen by what the tables hold; see chosen.sql.

    Args:
        warehouse: the folder of the tables, of which nothing is changed.
        choice: the conditions.
        folder: the only one beside the warehouse that DuckDB may look into.
        path: the Parquet file, in that folder.

    Raises:
        KpBatchError: DuckDB refuses the condition in SQL, or traces without a vector were to be
            distinct.
        WarehouseError: it is no warehouse.
    """
    with connect(warehouse) as connection:
        connection.execute(statement("SET memory_limit = '${bytes}B'", bytes=duckdb_limit()))
        inside = [str(warehouse.resolve()), str(folder.resolve())]
        connection.execute("SET allowed_directories = ?", [inside])
        connection.execute("SET enable_external_access = false")
        _create_wanted(connection, choice)
        if choice.distinct is not None and choice.distinct < 1:
            _check_vectors(connection)
        snapshot = PublishedSnapshot.shown_by(warehouse, connection)
        hashed = statement(
            "(FROM wanted JOIN (SELECT trace_id, content_hash FROM $scores) USING (trace_id))",
            scores=snapshot.relation("scores"),
        )
        found = places_query(hashed, "files", snapshot.relation("facts"))
        set_variables(connection, path=str(path))
        copied = connection.execute(sql(__name__, "chosen.sql", places=found))
        [(count,)] = copied.fetchall()
        return Chosen(int(count), tuple(_in_words(connection, choice)))


def _create_wanted(connection: duckdb.DuckDBPyConnection, choice: Choice) -> None:
    """Create the table wanted: the rows of the view `scores` that meet the conditions."""
    wanted = connection.table("scores")
    set_variables(connection, domains=list(choice.domains))
    for condition in _conditions(choice):
        wanted = wanted.filter(str(condition))  # which takes no subclass of str for SQL
    try:
        if choice.where is not None:
            wanted = wanted.filter(choice.where)  # which takes one expression, and no statement
        connection.execute(
            statement("CREATE TEMP TABLE wanted AS $query", query=SQL(wanted.sql_query()))
        )
    except _WRONG as error:
        raise KpBatchError(
            f"the condition {choice.where!r} cannot be asked of the view scores: "
            f"{one_line(str(error))}; it is one condition, such as n_tools > 2, and --top N takes "
            "the best"
        ) from error


def _conditions(choice: Choice) -> Iterator[str]:
    if choice.min_score is None:
        yield "meets_threshold"
    else:
        yield statement("score >= $least::DOUBLE", least=choice.min_score)
    if choice.domains:
        yield "list_contains(getvariable('domains'), task_domain)"
    if choice.since:
        yield statement("day_of(created_at) >= $day::DATE", day=literal(choice.since))
    if choice.until:
        yield statement("day_of(created_at) <= $day::DATE", day=literal(choice.until))


def _in_words(connection: duckdb.DuckDBPyConnection, choice: Choice) -> Iterator[str]:
    if choice.min_score is None:
        [(threshold,)] = connection.execute(
            "SELECT settings->>'threshold' FROM manifest"
        ).fetchall()
        yield f"score >= {threshold}, the threshold of the warehouse"
    elif choice.min_score:
        yield f"score >= {choice.min_score}"
    if choice.domains:
        yield f"domain {' or '.join(choice.domains)}"
    if choice.since:
        yield f"since {choice.since}"
    if choice.until:
        yield f"until {choice.until}"
    if choice.where is not None:
        yield one_line(choice.where)


def _check_vectors(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse traces that were scored without an encoder."""
    query = "SELECT count(*) FROM wanted WHERE encoder_id = ?"
    [(count,)] = connection.execute(query, [NO_FINGERPRINT]).fetchall()
    if count:
        raise KpBatchError(
            f"{number(count, 'chosen trace')} cannot be told apart by --distinct: scored without "
            "an embedder, they have no vectors; leave --distinct away, or run with one first"
        )
