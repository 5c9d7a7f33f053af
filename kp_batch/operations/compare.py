"""How the scores moved from one run to another, and what moved them."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from kp_batch.errors import KpBatchError
from kp_batch.run_record import differences
from kp_batch.text import aligned, printable
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.manifest import manifest_as_of
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.relations import kept_files, parquet_relation

_TABLES = ("scores", "profiles")
_MOVERS = 10


def compare(warehouse: Path, first: str, second: str, *, force: bool = False) -> dict[str, Any]:
    """Compare the scores that two runs left, over the traces in both.

    Each trace's change is split into what came from its own facts, from its novelty, from the
    weights and from the overrides, each put in place of the first run's in this order; the four sum
    to the change. Where the trace is a single thought on either side, which makes its score 0.1,
    all of the change is the overrides', and `single_thought` says on which side.

    Args:
        warehouse: the folder of the tables.
        first: the earlier run's run_id.
        second: the later run's.
        force: compare what different encoders or formulas computed all the same.

    Returns:
        in_both, only_in_first, only_in_second: numbers of traces; domains: how the scores of each
        differ (null: all domains), its population stability index over ten bins of equal width;
        movers: the traces that moved most.

    Raises:
        KpBatchError: there is no such run, its tables were removed, or the two do not compare.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
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
        sql = files("kp_batch.operations").joinpath("compare.sql").read_text("utf-8")
        connection.execute(sql)
        both, in_first, in_second = (
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]  # noqa: S608
            for name in ("moves", "first.scores", "second.scores")
        )
        movers = f"FROM moves ORDER BY abs(change) DESC, trace_id LIMIT {_MOVERS}"
        return {
            "first": first,
            "second": second,
            "in_both": both,
            "only_in_first": in_first - both,
            "only_in_second": in_second - both,
            "domains": _objects(connection, "FROM domains"),
            "movers": _objects(connection, movers),
        }


def as_text(result: dict[str, Any]) -> str:
    """The comparison as a person reads it in a terminal."""
    alone = [
        f"{result[f'only_in_{which}']:,} in the {which} alone" for which in ("first", "second")
    ]
    return "\n".join(
        [
            f"from {result['first']} to {result['second']}",
            f"  {result['in_both']:,} traces in both, {', '.join(alone)}",
            "",
            *aligned([_domain(row) for row in result["domains"]]),
            "",
            *aligned([_mover(row) for row in result["movers"]]),
        ]
    )


def _domain(row: dict[str, Any]) -> dict[str, str]:
    change = row["second_mean"] - row["first_mean"]
    median = row["second_quantiles"][2] - row["first_quantiles"][2]
    correlation = row["rank_correlation"]
    return {
        "domain": "all" if row["task_domain"] is None else printable(row["task_domain"]),
        "traces": f"{row['traces']:,}",
        "mean": _signed(change),
        "median": _signed(median),
        "psi": f"{row['psi']:.4f}",
        "rank corr": "" if correlation is None else f"{correlation:.4f}",
        "up": f"{row['crossed_up']:,}",
        "down": f"{row['crossed_down']:,}",
        **_parts(row),
    }


def _mover(row: dict[str, Any]) -> dict[str, str]:
    return {
        "trace": printable(row["trace_id"]),
        "from": f"{row['first_score']:.4f}",
        "to": f"{row['second_score']:.4f}",
        **_parts(row),
        "single thought": row["single_thought"] or "",
    }


def _parts(row: dict[str, Any]) -> dict[str, str]:
    names = ("facts", "novelty", "weights", "overrides")
    return {name: _signed(row[f"from_{name}"]) for name in names}


def _signed(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"  # + 0.0: no minus before a zero


def _check_comparable(now: duckdb.DuckDBPyConnection, first: str, second: str) -> None:
    """Refuse runs whose scores were computed by different encoders or formulas."""
    query = "SELECT run_id, versions, fingerprints FROM runs WHERE run_id IN (?, ?)"
    found = {row["run_id"]: row for row in _objects(now, query, [first, second])}
    if len(found) < len({first, second}):
        return  # which one is missing is told where it is looked for
    if differing := differences(found[first], found[second]):
        raise KpBatchError(
            f"runs {first} and {second} do not compare: they were computed with "
            f"{'; '.join(differing)}; compare them all the same with --force"
        )


def _objects(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[str] = ()
) -> list[dict[str, Any]]:
    answer = connection.execute(query, values)
    names = [str(column[0]) for column in answer.description or []]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
