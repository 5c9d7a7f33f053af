"""Keep the best of the traces that were read: one of similar traces, some for each value."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import SQL, identifier, literal, read_parquet, set_variables, sql, statement
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.exports.export_options import ExportOptions
from kp_batch.novelty.resemblance import Distinct
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.staging import Staging

_VECTORS = 16_384  # in memory at once; best first, they come from many chunks


@dataclass(frozen=True)
class BestCounts:
    """How many traces are left after each step of `keep_best`."""

    distinct: int
    per: int
    top: int


def keep_best(
    warehouse: Path,
    connection: duckdb.DuckDBPyConnection,
    staging: Staging,
    options: ExportOptions,
    chosen: Path,
) -> BestCounts:
    """Create the table exported: trace_id, score and created_at of the best traces that were read.

    `distinct` applies first, then each column of `per`, then `top`. If scores are equal, `per` and
    `top` prefer the id that sorts first.

    Args:
        warehouse: the folder of the tables.
        connection: has the view read; see ranked.sql.
        staging: has a file for the places of vectors.
        options: with `distinct`, `per` and `top`.
        chosen: the file of `choose`.

    Raises:
        WarehouseError: vectors are missing.
    """
    rows = statement("read")
    if options.distinct is not None:
        select_distinct(warehouse, connection, staging.vectors, options.distinct)
        rows = statement("(FROM read SEMI JOIN distinct_ids USING (trace_id))")
    distinct = _count(connection, rows)
    if options.per:
        rows = best_per(connection, rows, chosen, options.most_per)
    per = _count(connection, rows)
    query = statement("SELECT trace_id, score, created_at FROM $rows", rows=rows)
    if options.top is not None:
        query = statement(
            "$query ORDER BY score DESC, trace_id LIMIT $top", query=query, top=options.top
        )
    connection.execute(statement("CREATE TEMP TABLE exported AS $query", query=query))
    return BestCounts(distinct, per, _count(connection, statement("exported")))


def _count(connection: duckdb.DuckDBPyConnection, rows: SQL) -> int:
    [(count,)] = connection.execute(statement("SELECT count(*) FROM $rows", rows=rows)).fetchall()
    return int(count)


def select_distinct(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, places: Path, bound: float
) -> None:
    """Create the table distinct_ids: the traces that are not similar to a better one in it.

    A trace is better if its score is higher, or equal and the trace is older. Two traces are
    similar if their texts are equal, or if their vectors are similar and of the same encoder. See
    `Distinct` for time and memory.

    Args:
        warehouse: the folder of the tables.
        connection: has the view read; see ranked.sql.
        places: the file that `VectorStore.write_places` writes.
        bound: the lowest cosine of similar traces, above 0 and at most 1. At 1, only equal texts
            are similar: rounding may change the cosine of equal texts, or raise others to 1.

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


def best_per(
    connection: duckdb.DuckDBPyConnection,
    rows: SQL,
    chosen: Path,
    most_per: Iterable[tuple[str, int]],
) -> SQL:
    """Return the best rows of each value of some columns, one column after another.

    Null counts as one value. If scores are equal, the id that sorts first is better.

    Args:
        connection: has the view read.
        rows: the rows to choose from.
        chosen: the file of `choose`, which has all columns of the view scores.
        most_per: each column, with the most rows per value.
    """
    keys = statement("SELECT trace_id, score FROM $rows", rows=rows)
    for column, most in most_per:
        keys = statement(
            """SELECT trace_id, score FROM ($keys)
            JOIN (SELECT trace_id, $column FROM $chosen) USING (trace_id)
            QUALIFY row_number() OVER (PARTITION BY $column ORDER BY score DESC, trace_id) <= $most
            """,
            keys=keys,
            column=identifier(column),
            chosen=read_parquet(chosen),
            most=most,
        )
    connection.execute(statement("CREATE TEMP TABLE best_per AS $keys", keys=keys))
    return statement("(FROM $rows SEMI JOIN best_per USING (trace_id))", rows=rows)


def split_exported(
    connection: duckdb.DuckDBPyConnection, options: ExportOptions, chosen: Path
) -> int:
    """Create the table training, about the share `split` of the table exported, and count it.

    By objective, the objective's hash decides. So all attempts at a task are on one side, and stay
    there when traces come or go. By time, the table has the oldest traces, at most the share;
    traces with equal times are on one side.

    Args:
        connection: has the table exported.
        options: with `split` and `split_by`.
        chosen: the file of `choose`, with objective_hash: 32 hexadecimal digits.
    """
    share = options.split or 0
    if options.split_by == "objective":
        training = statement(
            """SELECT trace_id FROM exported
            JOIN (SELECT trace_id, objective_hash FROM $chosen) USING (trace_id)
            WHERE objective_hash < $bound""",
            chosen=read_parquet(chosen),
            bound=literal(f"{int(share * 16**32):032x}"),
        )
    else:
        training = statement(
            """SELECT trace_id FROM exported WHERE created_at < (
                SELECT created_at FROM exported ORDER BY created_at
                LIMIT 1 OFFSET (SELECT floor(count(*) * $share)::BIGINT FROM exported)
            )""",
            share=share,
        )
    connection.execute(statement("CREATE TEMP TABLE training AS $training", training=training))
    return _count(connection, statement("training"))
