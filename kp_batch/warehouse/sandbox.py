"""Opens tables to SQL that somebody else wrote: it reads them, and can do nothing else."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from glob import escape
from pathlib import Path

import duckdb

from kp_batch.duck import SQL, duckdb_config, literal, statement
from kp_batch.schemas import VIEWS
from kp_batch.warehouse.catalog import build_published, create_views
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.snapshot import PublishedSnapshot


def confine(
    connection: duckdb.DuckDBPyConnection, folders: Iterable[Path] = (), files: Iterable[Path] = ()
) -> None:
    """Let a connection reach some folders and files alone, and no network, from now on."""
    connection.execute("SET allowed_directories = ?", [[str(each) for each in folders]])
    paths = [str(each) for each in files]
    # The views name files as patterns that mean them alone.
    connection.execute("SET allowed_paths = ?", [[*paths, *map(escape, paths)]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def sandbox(
    now: PublishedSnapshot, before: PublishedSnapshot, folder: Path
) -> Generator[duckdb.DuckDBPyConnection]:
    """Open tables, and those before them, for `found_rows`; the memory is bounded.

    Args:
        now: whose catalog is in use: views, macros and questions.
        before: its views are `published.scores` and so on.
        folder: an empty one, for the catalog and for what does not fit into memory.
    """
    catalog = Layout(folder).catalog
    build_published(catalog, now)
    with duckdb.connect(config=duckdb_config(folder / "spill", now.scored)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET parquet_metadata_cache = true")  # each query opens all files
        connection.execute("ATTACH ':memory:' AS published")
        connection.execute("USE published")
        create_views(connection, before.manifest, {name: before.relation(name) for name in VIEWS})
        connection.execute(statement("ATTACH $path AS kp (READ_ONLY)", path=literal(catalog)))
        connection.execute("USE kp")
        confine(connection, files=[path for each in (now, before) for path in _files(each)])
        yield connection


def _files(snapshot: PublishedSnapshot) -> Iterable[Path]:
    return (path for name in VIEWS for path in snapshot.files(name))


def prepared(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """Check that a query can be asked, without asking it.

    Raises:
        duckdb.Error: it cannot.
        ValueError: it is not one SELECT.
    """
    types = [each.type for each in connection.extract_statements(query)]
    if types != [duckdb.StatementType.SELECT]:
        raise ValueError("it is one SELECT")
    return connection.sql(query)


def found_rows(
    connection: duckdb.DuckDBPyConnection, query: str, most: int
) -> tuple[int, tuple[str, ...]]:
    """How many rows a query finds, and the first of them, each as JSON.

    Args:
        connection: of `sandbox`.
        query: one SELECT.
        most: so many of them.

    Raises:
        duckdb.Error: it cannot be asked.
        ValueError: it is not one SELECT.
    """
    asked = SQL(prepared(connection, query).sql_query())
    made = statement("CREATE OR REPLACE TEMP TABLE found AS $query", query=asked)
    connection.execute(made)
    [(rows,)] = connection.execute("SELECT count(*) FROM found").fetchall()
    first = connection.execute("SELECT to_json(found) FROM found LIMIT ?", [most]).fetchall()
    return rows, tuple(each for (each,) in first)
