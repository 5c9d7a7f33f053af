"""Turns frames into the stream of record batches that delta-rs writes."""

from collections.abc import Iterable, Iterator

import polars as pl
import pyarrow as pa

from kp_batch.contracts import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.warehouse.data_files import check_schema


def record_batches(name: str, frames: Iterable[pl.DataFrame]) -> pa.RecordBatchReader:
    """Stream the frames of a table; a batch of a partitioned table holds a whole partition.

    delta-rs writes the batches of a stream in any order, so the rows of a file keep their order
    only if one batch holds them all.

    Args:
        name: the table's; every frame must have its schema.
        frames: those of a partitioned table come in the order of its partitions.

    Raises:
        TypeError: a frame has another schema; raised when the stream is read.
    """
    schema = arrow_schema(TABLES[name])
    return pa.RecordBatchReader.from_batches(schema, _batches(name, frames, schema))


def _batches(
    name: str, frames: Iterable[pl.DataFrame], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    partition = PARTITIONED_BY.get(name)
    held: list[pl.DataFrame] = []
    for frame in frames:
        check_schema(name, frame.schema)
        for part in _parts(frame, partition) if partition else [frame]:
            if held and not (partition and _same(held[0], part, partition)):
                yield _batch(held, schema)
                held = []
            held.append(part)
    if held:
        yield _batch(held, schema)


def _parts(frame: pl.DataFrame, partition: str) -> Iterator[pl.DataFrame]:
    """Split a frame into its partitions, which stand one after the other in it."""
    first = 0
    for length in frame.get_column(partition).rle().struct.field("len"):
        yield frame.slice(first, length)
        first += length


def _same(left: pl.DataFrame, right: pl.DataFrame, partition: str) -> bool:
    return left.item(0, partition) == right.item(0, partition)


def _batch(frames: list[pl.DataFrame], schema: pa.Schema) -> pa.RecordBatch:
    table = pl.concat(frames, rechunk=True).to_arrow().cast(schema)
    columns = [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
