"""Compares the scores of two runs: how they moved, and what moved them."""

from pathlib import Path
from typing import TypeVar

import duckdb

from kp_batch.errors import KpBatchError
from kp_batch.operations.results import Comparison, DomainMoves, Mover
from kp_batch.run_record import RunRecord, differences
from kp_batch.sql import sql
from kp_batch.staging import Staging
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.manifest import manifest_as_of
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.relations import kept_files, parquet_relation

_TABLES = ("scores", "profiles")
_MOVERS = 10

T = TypeVar("T")


def compare(
    warehouse: Path, staging: Staging, first: str, second: str, *, force: bool = False
) -> Comparison:
    """Compare the scores that two runs left, over the traces in both.

    Each trace's change is split into what came from its own facts, from its novelty, from the
    weights and from the overrides, each put in place of the first run's in this order; the four sum
    to the change. Where the trace is a single thought on either side, which makes its score 0.1,
    all of the change is the overrides', and `single_thought` says on which side.

    Args:
        warehouse: the folder of the tables.
        staging: takes what does not fit into memory.
        first: the earlier run's run_id.
        second: the later run's.
        force: compare what different encoders or formulas computed all the same.

    Raises:
        KpBatchError: there is no such run, its tables were removed, or the two do not compare.
    """
    with staging.connect() as connection:
        create_macros(connection)
        with connect(warehouse) as now:
            if not force:
                _check_comparable(now, first, second)
            for schema, run_id in (("first", first), ("second", second)):
                manifest = manifest_as_of(warehouse, run_id, now)
                connection.execute(f"CREATE SCHEMA {schema}")
                for name in _TABLES:
                    rows = parquet_relation(name, kept_files(warehouse, name, manifest, run_id))
                    connection.execute(f"CREATE VIEW {schema}.{name} AS FROM {rows}")
                connection.execute(f"SET VARIABLE {schema}_threshold = {manifest.threshold!r}")
        connection.execute(sql(__name__, "compare.sql"))
        both, in_first, in_second = (
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]  # noqa: S608
            for name in ("moves", "first.scores", "second.scores")
        )
        movers = f"FROM moves ORDER BY abs(change) DESC, trace_id LIMIT {_MOVERS}"
        return Comparison(
            first=first,
            second=second,
            in_both=both,
            only_in_first=in_first - both,
            only_in_second=in_second - both,
            domains=_filled(DomainMoves, connection.execute("FROM domains")),
            movers=_filled(Mover, connection.execute(movers)),
        )


def _check_comparable(now: duckdb.DuckDBPyConnection, first: str, second: str) -> None:
    """Refuse runs whose scores were computed by different encoders or formulas."""
    query = "SELECT * EXCLUDE (inputs) FROM runs WHERE run_id IN (?, ?)"
    rows = now.sql(query, params=[first, second]).to_arrow_table()
    found = {row["run_id"]: RunRecord.of(row) for row in rows.to_pylist()}
    if len(found) < len({first, second}):
        return  # opening the missing one will say which
    if differing := differences(found[first], found[second]):
        raise KpBatchError(
            f"runs {first} and {second} do not compare: they were computed with "
            f"{'; '.join(differing)}; compare them all the same with --force"
        )


def _filled(kind: type[T], answer: duckdb.DuckDBPyConnection) -> tuple[T, ...]:
    """One value of that kind for each row, its fields filled by the columns of their names.

    Raises:
        TypeError: a column has no field, or a field no column.
    """
    names = [str(column[0]) for column in answer.description or []]
    return tuple(kind(**dict(zip(names, row, strict=True))) for row in answer.fetchall())
