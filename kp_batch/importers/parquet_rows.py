"""Rows of Parquet files: their times may be finer than Python's own, or of no year that it has."""

import pyarrow as pa

from kp_batch.importers.messages import Json
from kp_batch.times import time_of_ns

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # of a timestamp's units


def rows_of(batch: pa.RecordBatch) -> list[Json]:
    """The rows of a batch, with times as texts; see `times_as_text`."""
    return times_as_text(batch).to_pylist()


def times_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its times as texts, in UTC.

    A timestamp of no year from 1 to 9999 becomes its count, which is no time, but something.
    """
    columns = [_told(each) for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _told(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        size = NANOSECONDS[column.type.unit]
        counts = column.cast(pa.int64()).to_pylist()
        return pa.array([None if x is None else _time(x, size) for x in counts], pa.string())
    told = _with_texts(column.type)
    return column if told == column.type else column.cast(told)


def _time(count: int, size: int) -> str:
    time = time_of_ns(count * size)
    return time.isoformat() if time else str(count)


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """The type with texts in the place of times, however deep."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_with_texts(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_texts(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_texts(kind.item_type)))
    return pa.string() if pa.types.is_temporal(kind) else kind
