"""The stored vectors of traces, as a frame."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from kp_batch.embedding.vector_store import read_vectors
from kp_batch.errors import KpBatchError
from kp_batch.operations.warehouse_cache import vector_places
from kp_batch.planning.scorer import NO_FINGERPRINT, without_encoder
from kp_batch.text import count_of, printable
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import open_published

_COLUMNS = ("trace_id", "encoder_id", "text_hash", "created_at")


def vectors_of_traces(warehouse: Path, ids: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the stored vectors of traces.

    Args:
        warehouse: the folder of the tables.
        ids: the traces; None: all of them, in the order of the replay.

    Returns:
        The strings trace_id and encoder_id, and vector, an array of Float32: a unit vector, or
        zeros for a text without words. There is a row for each of `ids`, in their order.

    Raises:
        KpBatchError: some ids have no score, or there is no encoder.
        WarehouseError: there is no warehouse, or a vector is missing or damaged.
    """
    with open_published(warehouse) as snapshot:
        scores = snapshot.scan("scores").select(_COLUMNS).collect()
        rows = scores.sort("created_at", "trace_id") if ids is None else _rows_of(scores, ids)
        encoder_ids = rows.get_column("encoder_id").unique().to_list()
        if NO_FINGERPRINT in encoder_ids:
            raise without_encoder(warehouse, "there are no vectors")
        columns = rows.select("trace_id", "encoder_id")
        if not encoder_ids:
            return columns.with_columns(vector=pl.lit(None, pl.Array(pl.Float32, 0)))
        [encoder_id] = encoder_ids  # a run gives all scores the same encoder
        folder = Layout(warehouse).vectors(encoder_id)
        vectors = read_vectors(folder, vector_places(snapshot, encoder_id, rows))
        return columns.with_columns(vector=pl.Series(vectors))


def _rows_of(scores: pl.DataFrame, ids: Sequence[str]) -> pl.DataFrame:
    asked = pl.DataFrame({"trace_id": [*ids]}, {"trace_id": pl.String})
    rows = asked.join(scores, on="trace_id", how="left", maintain_order="left")
    unknown = rows.filter(pl.col("text_hash").is_null()).get_column("trace_id")
    if len(unknown):
        raise KpBatchError(
            f"there is no score for {count_of(len(unknown), 'id')}, such as "
            f"{printable(unknown[0])}; give only ids of scored traces: scores.trace_id"
        )
    return rows
