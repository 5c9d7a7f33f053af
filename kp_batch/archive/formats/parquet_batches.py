"""The rows of a Parquet file in batches, within bounded memory, whatever the file says."""

from collections.abc import Callable, Iterator
from functools import partial
from os import SEEK_END
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kp_batch import limits
from kp_batch.archive.formats.json import BATCH_BYTES
from kp_batch.archive.formats.parquet_pages import (
    VALUE_BYTES,
    Unpacked,
    plain_metadata,
    plan_reading,
)
from kp_batch.stopping import look

_READ_AHEAD = 1 << 20  # bytes a column; without a limit pyarrow reads whole row groups ahead

_TEXTS = (pa.string(), pa.binary())

_Sizes = np.ndarray[Any, np.dtype[np.int64]]  # of each value of an array


class ParquetRows:
    """The rows of a Parquet file.

    Attributes:
        schema: of all columns.
        number: of the rows, as the file states it.

    Raises:
        UnreadableError: the file unpacks to too much.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._size = file.seek(0, SEEK_END)
        opened = partial(
            pq.ParquetFile,
            file,
            metadata=plain_metadata(file, self._size),
            pre_buffer=False,
            buffer_size=_READ_AHEAD,
            coerce_int96_timestamp_unit="us",  # in nanoseconds the year 9999 becomes 1816
        )
        parquet = opened()
        self._rows, folded = plan_reading(file, parquet, self._size, BATCH_BYTES)
        if folded:
            parquet = opened(read_dictionary=folded)
        self._parquet = parquet
        self.schema = _unfolded(parquet.schema_arrow)
        self._folded = bool(folded)
        self.number: int = parquet.metadata.num_rows

    def batches(
        self, most: int, is_wanted: Callable[[str], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of at most `BATCH_BYTES`, unless a single row takes more.

        Args:
            most: the greatest number of rows of a batch.
            is_wanted: whether to read a leaf column, by its dotted physical path; None for all.

        Raises:
            UnreadableError: the file unpacks to too much.
        """
        parts, size, rows = list[pa.RecordBatch](), 0, 0
        for part, part_size in self._parts(most, _leaves(self._parquet, is_wanted)):
            if parts and size + part_size > BATCH_BYTES:
                yield pa.concat_batches(parts)
                parts, size, rows = list[pa.RecordBatch](), 0, 0
            parts.append(part)
            size, rows = size + part_size, rows + len(part)
            if rows >= most:  # not with the next part: that may be damaged
                yield pa.concat_batches(parts)
                parts, size, rows = list[pa.RecordBatch](), 0, 0
        if parts:
            yield pa.concat_batches(parts)

    def _parts(self, most: int, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Small batches of rows, with their size in bytes."""
        unpacked = Unpacked(self._size)
        # pyarrow 26 does not support dictionaries of two row groups in one batch.
        single_groups = [[group] for group in range(self._parquet.num_row_groups)]
        for row_groups in single_groups if self._folded else [None]:
            # Without threads, as the parts of an archive are read in threads.
            decoded = self._parquet.iter_batches(
                batch_size=min(most, self._rows),
                row_groups=row_groups,
                columns=columns,
                use_threads=False,
            )
            for batch in decoded:  # without a writer's notes, at bytes in which Polars panics
                look()
                plain = batch.replace_schema_metadata()
                yield from _cut(plain, unpacked, folded=self._folded)


def _cut(
    batch: pa.RecordBatch, unpacked: Unpacked, *, folded: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Cut a batch into parts of at most `BATCH_BYTES`, with their unfolded size in bytes."""
    if not folded and (size := batch.nbytes) <= BATCH_BYTES:
        unpacked.add(size)
        yield batch, size
        return
    ends = np.cumsum(_by_row(batch, _size))
    first = before = 0
    while first < len(batch):
        end = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), first + 1)
        size = int(ends[end - 1]) - before
        unpacked.add(size)  # before it is unfolded
        part = batch.slice(first, end - first)
        yield (part.cast(_unfolded(part.schema)) if folded else part), size
        first, before = end, before + size


def release_memory() -> None:
    """Give back the memory that Arrow keeps in this thread for what it may read later."""
    pa.default_memory_pool().release_unused()


def _unfolded(schema: pa.Schema) -> pa.Schema:
    """The schema of the same values without dictionaries."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_plain(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_plain(dtype.value_type)))
    if pa.types.is_map(dtype):
        key, item = dtype.key_field, dtype.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _leaves(parquet: pq.ParquetFile, is_wanted: Callable[[str], bool] | None) -> list[str]:
    """The physical columns that are wanted."""
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    # pyarrow 26 reads too few values of a null column in a list of structs; without it all is null.
    return [
        leaf.path
        for leaf in leaves
        if (is_wanted is None or is_wanted(leaf.path))
        and not ("." in leaf.path and str(leaf.logical_type) == "Null")
    ]


def large_rows(batch: pa.RecordBatch) -> list[int]:
    """The rows with a text, or with values or bytes, beyond the limits of a row."""
    sizes = _by_row(batch, _size)
    if sizes.max(initial=0) <= min(limits.TEXT_BYTES, VALUE_BYTES * limits.VALUES):
        return []
    is_large = (
        (sizes > limits.LINE_BYTES)
        | (_by_row(batch, _is_long_text) > 0)
        | (_by_row(batch, _one) > limits.VALUES)
    )
    return np.flatnonzero(is_large).tolist()


def _by_row(batch: pa.RecordBatch, measure: Callable[[pa.Array], _Sizes]) -> _Sizes:
    """The sum of a measure over the values of each row, at any depth."""
    return sum((_sums(column, measure) for column in batch), np.zeros(len(batch), np.int64))


def _sums(array: pa.Array, measure: Callable[[pa.Array], _Sizes]) -> _Sizes:
    kind = array.type
    if pa.types.is_struct(kind):
        inner = (_sums(member, measure) for member in array.flatten())
        return sum(inner, np.zeros(len(array), np.int64))
    if pa.types.is_map(kind):
        return _list_sums(array, _sums(array.keys, measure) + _sums(array.items, measure), measure)
    if pa.types.is_list(kind):
        return _list_sums(array, _sums(array.values, measure), measure)
    if pa.types.is_dictionary(kind):
        # A null gets the index of the last value, which is a null.
        values = pa.concat_arrays([array.dictionary, pa.nulls(1, kind.value_type)])
        return measure(values)[np.asarray(array.indices.fill_null(-1))]
    return measure(array)


def _list_sums(lists: pa.Array, values: _Sizes, measure: Callable[[pa.Array], _Sizes]) -> _Sizes:
    """The sum over the values of each list, and for the list itself as much as for a null."""
    before = np.concatenate([[0], np.cumsum(values)])
    return np.diff(before[np.asarray(lists.offsets)]) + measure(pa.nulls(len(lists)))


def _size(values: pa.Array) -> _Sizes:
    """The unfolded size of each value in bytes."""
    if values.type in _TEXTS:
        return VALUE_BYTES + _lengths(values)
    return np.full(len(values), VALUE_BYTES + values.nbytes // max(len(values), 1))


def _is_long_text(values: pa.Array) -> _Sizes:
    if values.type in _TEXTS:
        return (_lengths(values) > limits.TEXT_BYTES).astype(np.int64)
    return np.zeros(len(values), np.int64)


def _one(values: pa.Array) -> _Sizes:
    return np.ones(len(values), np.int64)


def _lengths(texts: pa.Array) -> _Sizes:
    return np.asarray(pc.call_function("binary_length", [texts]).fill_null(0), np.int64)
