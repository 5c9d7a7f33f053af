"""The rows of a Parquet file, some at a time: no more than memory holds, whatever the file says."""

from collections.abc import Callable, Iterator
from os import SEEK_END
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import call_function

from kp_batch import limits
from kp_batch.archive.formats.json_values import BATCH_BYTES
from kp_batch.archive.formats.parquet_pages import VALUE_BYTES, Unpacked, care_for

READ_AHEAD = 1 << 20  # bytes a column; without a limit pyarrow reads whole row groups ahead

_LARGE = (pa.types.is_large_string, pa.types.is_large_binary)
_VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)

Sizes = np.ndarray[Any, np.dtype[np.int64]]  # of each value of an array


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

    def batches(
        self, most: int, is_wanted: Callable[[str], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows, at most so many and `BATCH_BYTES` at a time, unless one alone takes more.

        Args:
            most: rows of a batch.
            is_wanted: whether to read a leaf column, by its dotted physical path; None for all.

        Raises:
            UnreadableError: the file unpacks to too much.
        """
        held, size, rows = list[pa.RecordBatch](), 0, 0
        for part, taken in self._parts(most, _leaves(self._parquet, is_wanted)):
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
        unpacked = Unpacked(self._size)
        # pyarrow 26 cannot give the dictionaries of two row groups in one batch.
        groups = [[each] for each in range(self._parquet.num_row_groups)]
        for some in groups if self._folded else [None]:
            # Each part of an archive is read in a thread of its own.
            decoded = self._parquet.iter_batches(
                batch_size=min(most, self._care.rows),
                row_groups=some,
                columns=columns,
                use_threads=False,
            )
            for batch in decoded:
                yield from _cut(batch, unpacked, folded=self._folded)


def _cut(
    batch: pa.RecordBatch, unpacked: Unpacked, *, folded: bool
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows of a batch, no more than fit into one, with the bytes that they take unfolded."""
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


def _unfolded(schema: pa.Schema) -> pa.Schema:
    """The schema of the same values with no dictionaries."""
    return pa.schema([each.with_type(_plain(each.type)) for each in schema])


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([each.with_type(_plain(each.type)) for each in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return (pa.list_ if pa.types.is_list(dtype) else pa.large_list)(
            dtype.value_field.with_type(_plain(dtype.value_type))
        )
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _leaves(parquet: pq.ParquetFile, is_wanted: Callable[[str], bool] | None) -> list[str]:
    """The physical columns that are wanted."""
    leaves = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    # pyarrow 26 reads a null column inside a list of structs too short; absent means the same.
    return [
        leaf.path
        for leaf in leaves
        if (is_wanted is None or is_wanted(leaf.path))
        and not ("." in leaf.path and str(leaf.logical_type) == "Null")
    ]


def large_rows(batch: pa.RecordBatch) -> list[int]:
    """The rows that hold a text, values or bytes beyond the limits of a row."""
    sizes = _by_row(batch, _size)
    if sizes.max(initial=0) <= min(limits.TEXT_BYTES, VALUE_BYTES * limits.VALUES):
        return []
    is_large = (
        (sizes > limits.LINE_BYTES)
        | (_by_row(batch, _is_long_text) > 0)
        | (_by_row(batch, _one) > limits.VALUES)
    )
    return np.flatnonzero(is_large).tolist()


def _by_row(batch: pa.RecordBatch, measure: Callable[[pa.Array], Sizes]) -> Sizes:
    """The sum of what a measure gives for the values of each row, however deep they stand."""
    return sum((_sums(column, measure) for column in batch), np.zeros(len(batch), np.int64))


def _sums(array: pa.Array, measure: Callable[[pa.Array], Sizes]) -> Sizes:
    kind = array.type
    if pa.types.is_struct(kind):
        inner = (_sums(each, measure) for each in array.flatten())
        return sum(inner, np.zeros(len(array), np.int64))
    if pa.types.is_map(kind):
        return _listed(array, _sums(array.keys, measure) + _sums(array.items, measure), measure)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _listed(array, _sums(array.values, measure), measure)
    if pa.types.is_dictionary(kind):
        # A null names the last, which stands for none.
        values = pa.concat_arrays([array.dictionary, pa.nulls(1, kind.value_type)])
        return measure(values)[np.asarray(array.indices.fill_null(-1))]
    return measure(array)


def _listed(lists: pa.Array, values: Sizes, measure: Callable[[pa.Array], Sizes]) -> Sizes:
    """The sum of the values of each list, and of itself: it takes as much as a null."""
    before = np.concatenate([[0], np.cumsum(values)])
    return np.diff(before[np.asarray(lists.offsets)]) + measure(pa.nulls(len(lists)))


def _size(values: pa.Array) -> Sizes:
    """The bytes that each takes unfolded."""
    if _is_text(values.type):
        return VALUE_BYTES + _lengths(values)
    return np.full(len(values), VALUE_BYTES + values.nbytes // max(len(values), 1))


def _is_long_text(values: pa.Array) -> Sizes:
    if _is_text(values.type):
        return (_lengths(values) > limits.TEXT_BYTES).astype(np.int64)
    return np.zeros(len(values), np.int64)


def _one(values: pa.Array) -> Sizes:
    return np.ones(len(values), np.int64)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_binary, *_LARGE, *_VIEWS))


def _lengths(texts: pa.Array) -> Sizes:
    if any(is_view(texts.type) for is_view in _VIEWS):
        texts = texts.cast(pa.large_binary())
    return np.asarray(call_function("binary_length", [texts]).fill_null(0), np.int64)
