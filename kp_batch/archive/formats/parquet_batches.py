"""The rows of a Parquet file, some at a time: no more than memory holds, whatever the file says."""

from collections.abc import Iterator
from itertools import chain
from os import SEEK_END
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import call_function

from kp_batch.archive.formats.json_values import BATCH_BYTES
from kp_batch.archive.formats.parquet_columns import is_read
from kp_batch.archive.formats.parquet_pages import VALUE_BYTES, Unpacked, care_for

READ_AHEAD = 1 << 20  # bytes a column; without a limit pyarrow reads whole row groups ahead

Sizes = np.ndarray[Any, np.dtype[np.int64]]


class ParquetRows:
    """The rows of a Parquet file.

    Attributes:
        schema: of all columns.
        number: of the rows, as the file tells it.

    Raises:
        UnreadableError: the file unpacks to too much.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._size = file.seek(0, SEEK_END)
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)
        self._care = care_for(file, parquet, self._size, BATCH_BYTES)
        if self._care.folded:
            parquet = pq.ParquetFile(
                file,
                read_dictionary=self._care.folded,
                pre_buffer=False,
                buffer_size=READ_AHEAD,
            )
        self._parquet = parquet
        schema = parquet.schema_arrow
        self.schema = _unfolded(schema)
        self._folded = self.schema != schema
        self.number: int = parquet.metadata.num_rows

    def batches(self, most: int, *, only_read: bool) -> Iterator[pa.RecordBatch]:
        """All rows, at most so many and `BATCH_BYTES` at a time, unless one alone takes more.

        Args:
            most: rows of a batch.
            only_read: leave out the columns that are not read.

        Raises:
            UnreadableError: the file unpacks to too much.
        """
        held, size, rows = list[pa.RecordBatch](), 0, 0
        for part, taken in self._parts(most, _leaves(self._parquet, only_read=only_read)):
            if held and size + taken > BATCH_BYTES:
                yield pa.concat_batches(held)
                held, size, rows = [], 0, 0
            held.append(part)
            size, rows = size + taken, rows + len(part)
            if rows >= most:  # not with the next part: that may be damaged
                yield pa.concat_batches(held)
                held, size, rows = [], 0, 0
        if held:
            yield pa.concat_batches(held)

    def _parts(self, most: int, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Some rows at a time, with the bytes that they take."""
        # Each part of an archive is read in a thread of its own.
        decoded = self._parquet.iter_batches(
            batch_size=min(most, self._care.rows), columns=columns, use_threads=False
        )
        unpacked = Unpacked(self._size)
        return chain.from_iterable(_cut(batch, unpacked, folded=self._folded) for batch in decoded)


def _cut(
    batch: pa.RecordBatch, unpacked: Unpacked, *, folded: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows of a batch, no more than fit into one, with the bytes that they take unfolded."""
    if not folded and (size := batch.nbytes) <= BATCH_BYTES:
        unpacked.add(size)
        yield batch, size
        return
    ends = np.cumsum(_row_sizes(batch))
    first = before = 0
    while first < len(batch):
        end = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), first + 1)
        size = int(ends[end - 1]) - before
        unpacked.add(size)  # before it is unfolded
        part = batch.slice(first, end - first)
        yield (part.cast(_unfolded(part.schema)) if folded else part), size
        first, before = end, before + size


def _unfolded(schema: pa.Schema) -> pa.Schema:
    """The schema of the same values with no dictionaries."""
    return pa.schema([each.with_type(_plain(each.type)) for each in schema])


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([each.with_type(_plain(each.type)) for each in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_plain(dtype.value_type)))
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _leaves(parquet: pq.ParquetFile, *, only_read: bool) -> list[str]:
    """The physical columns: all of them, or those that are read."""
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    # pyarrow 26 reads a null column inside a list of structs too short; absent means the same.
    return [
        leaf.path
        for leaf in leaves
        if (is_read(leaf.path) or not only_read)
        and not ("." in leaf.path and str(leaf.logical_type) == "Null")
    ]


def _row_sizes(batch: pa.RecordBatch) -> Sizes:
    """The bytes that each row takes unfolded."""
    return sum((_sizes(column) for column in batch), np.zeros(len(batch), np.int64))


def _sizes(array: pa.Array) -> Sizes:
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_sizes, array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        before = np.concatenate([[0], np.cumsum(_sizes(array.values))])
        return np.diff(before[np.asarray(array.offsets)])
    if pa.types.is_dictionary(kind):
        # A null names the last, which stands for none.
        lengths = np.append(_lengths(array.dictionary), VALUE_BYTES)
        return lengths[np.asarray(array.indices.fill_null(-1))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _lengths(array)
    return np.full(len(array), VALUE_BYTES + array.nbytes // max(len(array), 1))


def _lengths(texts: pa.Array) -> Sizes:
    return VALUE_BYTES + np.asarray(call_function("binary_length", [texts]).fill_null(0), np.int64)
