"""The rows of a Parquet file in batches, within bounded memory, whatever the file says.

A footer may state less than the file unpacks to, so the headers of all pages are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import SEEK_END
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import call_function

from kp_batch import limits
from kp_batch.archive.formats.json import BATCH_BYTES
from kp_batch.errors import Fault, UnreadableError

_READ_AHEAD = 1 << 20  # bytes a column; without a limit pyarrow reads whole row groups ahead

_VIEWS = (pa.string_view(), pa.binary_view())
_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), *_VIEWS)

_Sizes = np.ndarray[Any, np.dtype[np.int64]]  # of each value of an array

_ROWS = 128  # to decode before they are measured: a row may take far more than those before it
_VALUE_BYTES = 16  # of a value in memory, even if it is empty or null
_HEADER_BYTES, _LONGEST_HEADER = 1 << 9, 1 << 24
_MEASURED = 1 << 17  # texts of a dictionary; to measure more takes too long
_DICTIONARY_PAGE = 2  # a kind of page
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7  # encodings of values by earlier ones
# Types of values in a header.
_TRUE, _FALSE, _NUMBERS, _LISTS, _STRUCT = 1, 2, (4, 5, 6), (9, 10, 11), 12
_SKIPPED = {3: 1, 7: 8, 8: 0}  # others, with their length in bytes; 0: it precedes the value
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8  # fields of a header, for each kind of page


class _Unpacked:
    """The bytes that a file has unpacked to, up to a limit."""

    def __init__(self, packed: int) -> None:
        self._most = max(limits.UNPACKED_BYTES, limits.RATIO * packed)
        self._size = 0

    def add(self, size: int) -> None:
        """Count further bytes; raises an UnreadableError where the limit is exceeded."""
        self._size += size
        if self._size > self._most:
            message = f"the file unpacks to more than {self._most >> 20:,} MiB"
            raise UnreadableError(Fault(limits.TOO_LARGE, message))


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
        opened = partial(pq.ParquetFile, file, pre_buffer=False, buffer_size=_READ_AHEAD)
        parquet = opened()
        self._rows, folded = plan_reading(file, parquet, self._size, BATCH_BYTES)
        if folded:
            parquet = opened(read_dictionary=folded)
        self._parquet = parquet
        schema = parquet.schema_arrow
        self.schema = _unfolded(schema)
        self._folded = self.schema != schema
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
                parts, size, rows = [], 0, 0
            parts.append(part)
            size, rows = size + part_size, rows + len(part)
            if rows >= most:  # not with the next part: that may be damaged
                yield pa.concat_batches(parts)
                parts, size, rows = [], 0, 0
        if parts:
            yield pa.concat_batches(parts)

    def _parts(self, most: int, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Small batches of rows, with their size in bytes."""
        unpacked = _Unpacked(self._size)
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
            for batch in decoded:
                yield from _cut(batch, unpacked, folded=self._folded)


def _cut(
    batch: pa.RecordBatch, unpacked: _Unpacked, *, folded: bool
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


def _unfolded(schema: pa.Schema) -> pa.Schema:
    """The schema of the same values without dictionaries."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_plain(field.type)) for field in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return (pa.list_ if pa.types.is_list(dtype) else pa.large_list)(
            dtype.value_field.with_type(_plain(dtype.value_type))
        )
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
    if sizes.max(initial=0) <= min(limits.TEXT_BYTES, _VALUE_BYTES * limits.VALUES):
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
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
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
        return _VALUE_BYTES + _lengths(values)
    return np.full(len(values), _VALUE_BYTES + values.nbytes // max(len(values), 1))


def _is_long_text(values: pa.Array) -> _Sizes:
    if values.type in _TEXTS:
        return (_lengths(values) > limits.TEXT_BYTES).astype(np.int64)
    return np.zeros(len(values), np.int64)


def _one(values: pa.Array) -> _Sizes:
    return np.ones(len(values), np.int64)


def _lengths(texts: pa.Array) -> _Sizes:
    if texts.type in _VIEWS:
        texts = texts.cast(pa.large_binary())
    return np.asarray(call_function("binary_length", [texts]).fill_null(0), np.int64)


@dataclass(frozen=True)
class _Page:
    """A page, by its header."""

    is_dictionary: bool
    at: int  # where its content begins
    packed: int  # bytes
    unpacked: int  # bytes
    values: int
    encoding: int


def plan_reading(
    file: IO[bytes], parquet: pq.ParquetFile, packed: int, batch: int
) -> tuple[int, tuple[str, ...]]:
    """Read the headers of all pages: to measure rows before they take far more than a batch.

    Args:
        file: the file.
        parquet: its reader.
        packed: the size of the file in bytes.
        batch: the size of a batch in bytes.

    Returns:
        How many rows to decode before they are measured, and which columns to read and measure as
        dictionaries.

    Raises:
        UnreadableError: the pages unpack to too much, or a header is invalid; or there are too many
            columns.
    """
    if parquet.metadata.num_columns > limits.COLUMNS:
        message = f"the file has more than {limits.COLUMNS:,} columns"
        raise UnreadableError(Fault(limits.TOO_LARGE, message))
    unpacked, rows, folded = _Unpacked(packed), _ROWS, set[str]()
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk, column = group.column(index), parquet.schema.column(index)
            dictionary, named = None, 0
            for page in _pages(file, chunk, packed):
                unpacked.add(max(page.unpacked, page.values * max(_VALUE_BYTES, column.length)))
                dictionary = page if page.is_dictionary else dictionary
                named += page.values if page.encoding in _BY_DICTIONARY else 0
                if page.encoding == _BY_PREFIX:
                    rows = min(rows, max(batch // max(page.unpacked, 1), 1))
            if dictionary is None or chunk.physical_type != "BYTE_ARRAY":
                continue
            at_once = named if column.max_repetition_level else min(named, _ROWS)
            if at_once * dictionary.unpacked > batch:
                longest = _longest(file, dictionary, chunk.compression)
                if at_once * longest > batch:
                    folded.add(chunk.path_in_schema)
    return rows, tuple(sorted(folded))


def _pages(file: IO[bytes], chunk: pq.ColumnChunkMetaData, size: int) -> Iterator[_Page]:
    """The pages of a column in one row group, up to a damaged one, where reading ends, too."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = min(at + chunk.total_compressed_size, size)
    while at < end and (page := _page(file, at)):
        yield page
        at = page.at + page.packed


def _page(file: IO[bytes], at: int) -> _Page | None:
    """The page whose header begins there; None if it is damaged."""
    most = _HEADER_BYTES
    while most <= _LONGEST_HEADER:
        file.seek(at)
        reader = _Header(file.read(most))
        try:
            header = reader.struct()
            values = header.get(_DATA) or header.get(_DATA_V2) or header[_DICTIONARY]
            page = _Page(
                is_dictionary=header[1] == _DICTIONARY_PAGE,
                at=at + reader.at,
                packed=header[3],
                unpacked=header[2],
                values=values[1],
                encoding=values[4 if _DATA_V2 in header else 2],
            )
        except IndexError:  # the header is longer
            most *= 8
        except KeyError:
            return None
        else:
            return page if min(page.packed, page.unpacked, page.values) >= 0 else None
    return None


def _longest(file: IO[bytes], page: _Page, codec: str) -> int:
    """An upper bound for the longest text of a dictionary, in bytes."""
    if page.values > _MEASURED:
        return page.unpacked
    file.seek(page.at)
    content: Any = file.read(page.packed)
    if codec != "UNCOMPRESSED":
        try:
            content = pa.decompress(content, page.unpacked, codec.lower(), asbytes=True)
        except (pa.ArrowException, ValueError, OSError):  # damaged, or of no codec of Arrow's own
            return page.unpacked
    at = longest = 0
    for _ in range(page.values):
        length = int.from_bytes(content[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest


class _Header:
    """Reads a struct in Thrift's compact protocol, with the types of page headers."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def struct(self) -> dict[int, Any]:
        """The values of a struct, by field number.

        Raises an IndexError where the content ends before it, a KeyError where it is no struct.
        """
        values: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            values[field] = self._value(head & 15)
        return values

    def _value(self, kind: int) -> Any:
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in _NUMBERS:
            return self._signed()
        if kind == _STRUCT:
            return self.struct()
        if kind in _LISTS:
            message = "the header of a page holds a list, which no page has"
            raise UnreadableError(message)
        length = _SKIPPED[kind] or self._unsigned()
        self.at += length
        return None

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _unsigned(self) -> int:
        byte = self._byte()
        value, shift = byte & 127, 7
        while byte > 127:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
        return value

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
