"""Turns frames into the stream of record batches that delta-rs writes."""

from collections.abc import Iterable, Iterator

import polars as pl
import pyarrow as pa

from kp_batch.contracts import TABLES, arrow_schema
from kp_batch.warehouse.data_files import check_schema


def record_batches(name: str, frames: Iterable[pl.DataFrame]) -> pa.RecordBatchReader:
    """Stream the frames of a table.

    delta-rs writes the batches of a stream in any order, so only the rows of a frame keep theirs.

    Raises:
        TypeError: a frame has another schema than the table; raised when the stream is read.
    """
    return pa.RecordBatchReader.from_batches(arrow_schema(TABLES[name]), _batches(name, frames))


def noting(frames: Iterable[pl.DataFrame], faults: list[Exception]) -> Iterator[pl.DataFrame]:
    """Yield the frames, and note an error in making them: delta-rs keeps nothing but its text."""
    try:
        yield from frames
    except Exception as error:
        faults.append(error)
        raise


def _batches(name: str, frames: Iterable[pl.DataFrame]) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        check_schema(name, frame.schema)
        yield from frame.rechunk().to_arrow().to_batches()
