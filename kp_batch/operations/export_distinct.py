"""Leaves out of an export the traces that resemble a better one."""

from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.embedding.chunks import read_vectors
from kp_batch.embedding.store import VectorStore
from kp_batch.novelty.distinct import Distinct
from kp_batch.sql import set_variables, sql
from kp_batch.warehouse.layout import Layout

_ROWS = 16_384  # vectors held at once: in this order, each time they stand in many chunks


def choose_distinct(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, places: Path, bound: float
) -> None:
    """Create the table kept: the ids of the traces that resemble no better one that is kept.

    The best comes first; of equal scores, the oldest. Traces of equal text are alike, and those
    whose vectors are: see `Distinct` for what that takes. Those of different encoders are not.

    Args:
        warehouse: the folder of the tables.
        connection: has the views chosen (see chosen.sql) and read, with a `trace_id`.
        places: a file, which becomes that of `VectorStore.write_places`.
        bound: the least cosine of what resembles, above 0 and at most 1. At 1 texts alone count,
            since rounding may leave the cosine of equal ones below it, and of others at it.

    Raises:
        WarehouseError: vectors are missing.
    """
    connection.execute("CREATE TEMP TABLE kept (trace_id VARCHAR)")
    encoders = connection.execute("SELECT DISTINCT encoder_id FROM chosen ORDER BY ALL").fetchall()
    for (encoder_id,) in encoders:
        set_variables(connection, encoder_id=encoder_id)
        connection.execute(sql(__name__, "ranked.sql"))
        if bound == 1:
            connection.execute("INSERT INTO kept SELECT trace_id FROM ranked")
            continue
        folder = Layout(warehouse).vectors(encoder_id)
        VectorStore(folder, connection).write_places("ranked", places)
        best = pl.DataFrame({"position": _taken(folder, places, bound)}).to_arrow()
        connection.register("best", best)
        connection.execute(
            "INSERT INTO kept SELECT trace_id FROM ranked JOIN best USING (position)"
        )
        connection.unregister("best")


def _taken(folder: Path, places: Path, bound: float) -> pl.Series:
    """The positions of the vectors that are taken, ascending."""
    distinct = Distinct(bound)
    with pq.ParquetFile(places) as file:
        batches = (read_vectors(folder, pl.DataFrame(each)) for each in file.iter_batches(_ROWS))
        taken = [np.empty(0, dtype=np.bool_), *map(distinct.take, batches)]
    return pl.Series(np.flatnonzero(np.concatenate(taken)), dtype=pl.Int64)
