"""Build the catalog, kp.duckdb, which shows any DuckDB client what is published.

It contains a copy of the manifest, the formulas as macros, and views of exactly the files that the
manifest lists. A user's SQL runs in a `sandbox`, which can only read the tables.
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb

from kp_batch.duck import (
    SQL,
    duckdb_config,
    escaped,
    identifier,
    literal,
    small_work,
    sql,
    statement,
)
from kp_batch.schemas import VIEWS
from kp_batch.stopping import stopped_by
from kp_batch.storage.store import store_at
from kp_batch.text import parse_duration
from kp_batch.warehouse.bucket.location import url_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import FORMAT_VERSION, Manifest
from kp_batch.warehouse.questions import catalog_id, question_statements, statements
from kp_batch.warehouse.snapshot import PublishedSnapshot, parquet_relation

_NAME = re.compile(r"\bkp\.(\w+)")  # the name of a view or macro in the SQL of macros and questions
_MANIFEST = (
    "CREATE TABLE manifest (format_version INTEGER, publication VARCHAR, settings VARCHAR, "
    "failed BOOLEAN, warehouse VARCHAR, catalog_id VARCHAR)"
)


def build(
    path: Path,
    warehouse: str,
    manifest: Manifest,
    rows: Mapping[str, SQL],
    file_system: Any = None,
) -> None:
    """Build a catalog: a DuckDB file with the manifest, the macros, the views and the questions.

    Args:
        path: the file, which must not exist yet.
        warehouse: the folder of the tables, or its URL.
        manifest: the published manifest.
        rows: SQL for the rows of each view.
        file_system: opens the URLs in these rows.
    """
    with _new_database(path) as connection:
        if file_system:
            connection.register_filesystem(file_system)
        for each in _without_rows(manifest):
            connection.execute(each)
        create_views(connection, manifest, rows)
        _copy_manifest(connection, warehouse, manifest)
        if file_system:
            connection.unregister_filesystem(file_system.protocol)


@contextmanager
def _new_database(path: Path) -> Generator[duckdb.DuckDBPyConnection]:
    """Create a database named kp and use it; at the end it is on the disk as a whole."""
    with small_work() as connection:
        # DuckDB 1.4.5 and later can open this format; the newest format needs 2.0.
        attach = "ATTACH $path AS kp (STORAGE_VERSION 'v1.4.0')"
        connection.execute(statement(attach, path=literal(path)))
        connection.execute("USE kp")
        connection.execute("BEGIN")  # or each statement would wait for the disk
        yield connection
        connection.execute("COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH kp")


def _without_rows(manifest: Manifest) -> Iterator[str]:
    """Return the statements that create the catalog without rows, so that no files are opened.

    DuckDB resolves the names in a macro in the catalog in use, and those in a view first in the
    view's own catalog. A question with arguments therefore needs its own catalog in use. In another
    one it finds no rows, because the functions of rows have names of their publication alone.
    """
    no_rows = {name: parquet_relation(name, []) for name in VIEWS}
    yield _MANIFEST
    yield from _in_catalog(statements("macros"), manifest)
    yield from _views(manifest, no_rows)
    # The first question is trace_measures, on which others build. DuckDB resolves this view again
    # in each of them, so a table with its name and columns replaces it while they are created.
    measures, *questions = _in_catalog(question_statements(), manifest)
    yield measures
    yield "CREATE TABLE columns AS FROM trace_measures WITH NO DATA"
    yield "DROP VIEW trace_measures"
    yield "ALTER TABLE columns RENAME TO trace_measures"
    yield from questions
    yield "DROP TABLE trace_measures"
    yield measures


def create_views(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest, rows: Mapping[str, SQL]
) -> None:
    """Create the views in the connection's current database; for the arguments see `build`.

    The rows of each view come from a function, see `_rows_of`, which the questions call. A user's
    table with the name of a view would hide the view from them.
    """
    for view in _views(manifest, rows):
        connection.execute(view)


def _views(manifest: Manifest, rows: Mapping[str, SQL]) -> list[SQL]:
    values = {"threshold": manifest.threshold, "warming_up": _warming_up(manifest, rows["scores"])}
    return [
        sql(__name__, f"sql/{name}.sql", function=_rows_of(name, manifest), **rows, **values)
        for name in VIEWS
    ]


def _warming_up(manifest: Manifest, scores: SQL) -> SQL:
    """Return the condition that a trace came before its cache was full, or its ttl had passed.

    Until the ttl of its first vector has passed, a cache loses vectors only by its size.
    """
    if manifest.settings.get("embedder") in {None, "none"}:
        return statement("false")
    warming_up = statement("cached_vectors < $size", size=manifest.settings["cache_size"])
    ttl = parse_duration(manifest.settings["ttl"])
    if ttl is None:
        return warming_up
    return statement(
        "$warming_up AND epoch_us(created_at) - $ttl < (SELECT min(epoch_us(created_at)) "
        "FROM $scores AS own WHERE own.cache_group IS NOT DISTINCT FROM trace.cache_group)",
        warming_up=warming_up,
        ttl=ttl // timedelta(microseconds=1),
        scores=scores,
    )


def build_published(path: Path, snapshot: PublishedSnapshot) -> None:
    """Build a catalog of a snapshot's tables, in a file that must not exist yet.

    Raises:
        WarehouseError: a table of the snapshot is gone.
    """
    rows = {name: snapshot.relation(name) for name in VIEWS}
    build(path, str(snapshot.warehouse.resolve()), snapshot.manifest, rows)


def build_for_others(path: Path, snapshot: PublishedSnapshot) -> None:
    """Build a catalog for other machines, whose views of a bucket's warehouse name objects."""
    url = url_of(snapshot.warehouse)
    if url is None:
        build_published(path, snapshot)
        return
    folder = snapshot.warehouse.resolve()
    rows = {
        name: parquet_relation(
            name, [f"{url}/{path.relative_to(folder)}" for path in snapshot.files(name)]
        )
        for name in VIEWS
    }
    build(path, url, snapshot.manifest, rows, store_at(url).file_system())


def create_macros(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Create the formulas as macros in the connection's current database; see sql/macros.

    Args:
        connection: a connection to any database.
        names: the names of files in that folder; without any, all of them.
    """
    for macros in statements("macros", *names):
        connection.execute(_unqualified(macros))


def _copy_manifest(
    connection: duckdb.DuckDBPyConnection, warehouse: str, manifest: Manifest
) -> None:
    """Fill the table with the manifest, and the warehouse that the views read."""
    settings = json.dumps(manifest.settings)
    row = [FORMAT_VERSION, manifest.publication, settings, manifest.failed]
    values = [*row, warehouse, catalog_id()]
    connection.execute("INSERT INTO manifest VALUES (?, ?, ?, ?, ?, ?)", values)


def _in_catalog(texts: Iterable[str], manifest: Manifest) -> Iterator[str]:
    """Return the statements of macros or questions, which call the views' functions instead."""
    functions = {name: f"{_rows_of(name, manifest)}()" for name in VIEWS}
    return (
        _NAME.sub(lambda match: functions.get(match[1], f"main.{match[1]}"), text) for text in texts
    )


def _unqualified(macros: str) -> str:
    return macros.replace("kp.", "")


def _rows_of(name: str, manifest: Manifest) -> SQL:
    """Return the name of the function that returns the rows of a view.

    It is unique to this publication, and no user has a table of that name.
    """
    return identifier(f"{name} of {manifest.publication}")


def confine(
    connection: duckdb.DuckDBPyConnection, folders: Iterable[Path] = (), files: Iterable[Path] = ()
) -> None:
    """Let a connection reach only some folders and files, and no network."""
    connection.execute("SET allowed_directories = ?", [[str(folder) for folder in folders]])
    paths = [str(file) for file in files]
    # The views name files as glob patterns, with special characters escaped.
    connection.execute("SET allowed_paths = ?", [[*paths, *map(escaped, paths)]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def sandbox(
    now: PublishedSnapshot, before: PublishedSnapshot, folder: Path
) -> Generator[duckdb.DuckDBPyConnection]:
    """Open tables, and those before them, for `count_rows`, with bounded memory.

    Args:
        now: the tables whose catalog is in use: views, macros and questions.
        before: the tables that are `published.scores` and so on.
        folder: an empty folder for the catalog, and for what does not fit into memory.
    """
    catalog = Layout(folder).catalog
    build_published(catalog, now)
    config = duckdb_config(folder / "spill", now.scored)
    with duckdb.connect(config=config) as connection, stopped_by(connection.interrupt):
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET parquet_metadata_cache = true")  # each query opens all files
        connection.execute("ATTACH ':memory:' AS published")
        connection.execute("USE published")
        rows = {name: before.relation(name) for name in VIEWS}
        create_views(connection, before.manifest, rows)
        connection.execute(statement("ATTACH $path AS kp (READ_ONLY)", path=literal(catalog)))
        connection.execute("USE kp")
        files = [file for name in VIEWS for file in (*now.files(name), *before.files(name))]
        confine(connection, files=files)
        yield connection


def prepare(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """Check that a query can run, without running it.

    Raises:
        duckdb.Error: the query cannot run.
        ValueError: the query is not one SELECT.
    """
    types = [parsed.type for parsed in connection.extract_statements(query)]
    if types != [duckdb.StatementType.SELECT]:
        raise ValueError("it is one SELECT")
    return connection.sql(query)


def count_rows(
    connection: duckdb.DuckDBPyConnection, query: str, most: int
) -> tuple[int, tuple[str, ...], str]:
    """Count the rows of a query, in a `sandbox`.

    Returns:
        The number of rows; the first ones, each as JSON; and a digest of all, in any order.

    Raises:
        duckdb.Error: the query cannot run.
        ValueError: the query is not one SELECT.
    """
    select = SQL(prepare(connection, query).sql_query())
    # DuckDB's messages quote this statement.
    table = statement("CREATE OR REPLACE TEMP TABLE found AS $query", query=select)
    connection.execute(table)
    totals = "SELECT count(*), coalesce(sum(hash(found)), 0)::VARCHAR FROM found"
    [(count, digest)] = connection.execute(totals).fetchall()
    first = connection.execute("SELECT to_json(found) FROM found LIMIT ?", [most]).fetchall()
    return count, tuple(row for (row,) in first), digest
