"""What a Parquet file unpacks to, as the headers of its pages say: a footer may tell of less."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch import limits
from kp_batch.file_faults import Fault, UnreadableError

_ROWS = 128  # to decode before they are measured: one may take far more than those before it
VALUE_BYTES = 16  # that a value takes in memory, empty or null as it may be
_HEADER_BYTES, _LONGEST_HEADER = 1 << 9, 1 << 24
_LISTED = 1 << 17  # texts of a dictionary; it takes too long to look at more
_DICTIONARY_PAGE = 2  # a kind of page
_BY_DICTIONARY, _BY_BEGINNING = (2, 8), 7  # encodings of values by those that stand before
_TRUE, _FALSE, _NUMBERS, _LISTS, _STRUCT = (
    1,
    2,
    (4, 5, 6),
    (9, 10, 11),
    12,
)  # types of values in a header
_SKIPPED = {3: 1, 7: 8, 8: 0}  # others, with their bytes; 0: that they begin with
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8  # fields of a header: what holds for one kind of page


@dataclass(frozen=True)
class _Page:
    """What a page's header says."""

    is_dictionary: bool
    at: int  # where its content begins
    packed: int  # bytes
    unpacked: int  # bytes
    values: int
    encoding: int


class Unpacked:
    """What a file has unpacked to, in bytes: no more than it may."""

    def __init__(self, packed: int) -> None:
        self._most = max(limits.UNPACKED_BYTES, limits.RATIO * packed)
        self._size = 0

    def add(self, size: int) -> None:
        """Count some more.

        Raises:
            UnreadableError: it is too much.
        """
        self._size += size
        if self._size > self._most:
            told = f"the file unpacks to more than {self._most >> 20:,} MiB"
            raise UnreadableError(Fault(limits.TOO_LARGE, told))


@dataclass(frozen=True)
class Care:
    """How a file is to be read, so that no rows take far more than a batch before it is known."""

    rows: int  # to decode before they are measured
    folded: tuple[str, ...]  # columns to read as dictionaries, and to measure so


def care_for(file: IO[bytes], parquet: pq.ParquetFile, packed: int, batch: int) -> Care:
    """Look at all pages of a file.

    Args:
        file: the file, of `packed` bytes.
        parquet: what is read of it.
        packed: see `Unpacked`.
        batch: bytes that rows may take together.

    Raises:
        UnreadableError: the pages unpack to too much, or are none; or there are too many columns.
    """
    if parquet.metadata.num_columns > limits.COLUMNS:
        told = f"the file has more than {limits.COLUMNS:,} columns"
        raise UnreadableError(Fault(limits.TOO_LARGE, told))
    unpacked, rows, folded = Unpacked(packed), _ROWS, set[str]()
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk, column = group.column(index), parquet.schema.column(index)
            dictionary, named = None, 0
            for page in _pages(file, chunk, packed):
                unpacked.add(max(page.unpacked, page.values * max(VALUE_BYTES, column.length)))
                dictionary = page if page.is_dictionary else dictionary
                named += page.values if page.encoding in _BY_DICTIONARY else 0
                if page.encoding == _BY_BEGINNING:
                    rows = min(rows, max(batch // max(page.unpacked, 1), 1))
            if dictionary is None or chunk.physical_type != "BYTE_ARRAY":
                continue
            at_once = named if column.max_repetition_level else min(named, _ROWS)
            if at_once * dictionary.unpacked > batch:
                longest = _longest(file, dictionary, chunk.compression)
                if at_once * longest > batch:
                    folded.add(chunk.path_in_schema)
    return Care(rows, tuple(sorted(folded)))


def _pages(file: IO[bytes], chunk: pq.ColumnChunkMetaData, size: int) -> Iterator[_Page]:
    """The pages of a column in one row group, up to damage: there they cannot be read, either."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = min(at + chunk.total_compressed_size, size)
    while at < end and (page := _page(file, at)):
        yield page
        at = page.at + page.packed


def _page(file: IO[bytes], at: int) -> _Page | None:
    """The page whose header begins there, if it is one."""
    most = _HEADER_BYTES
    while most <= _LONGEST_HEADER:
        file.seek(at)
        reader = _Header(file.read(most))
        try:
            told = reader.struct()
            about = told.get(_DATA) or told.get(_DATA_V2) or told[_DICTIONARY]
            page = _Page(
                is_dictionary=told[1] == _DICTIONARY_PAGE,
                at=at + reader.at,
                packed=told[3],
                unpacked=told[2],
                values=about[1],
                encoding=about[4 if _DATA_V2 in told else 2],
            )
        except IndexError:  # it goes on
            most *= 8
        except KeyError:
            return None
        else:
            return page if min(page.packed, page.unpacked, page.values) >= 0 else None
    return None


def _longest(file: IO[bytes], page: _Page, codec: str) -> int:
    """The bytes of the longest text of a dictionary, or more."""
    if page.values > _LISTED:
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
    """A struct in Thrift's compact protocol, of the types that headers of pages have."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def struct(self) -> dict[int, Any]:
        """The values of a struct by the numbers of their fields.

        Raises:
            IndexError: the content ends before it.
            KeyError: it is none.
            UnreadableError: it may be one, and none of a page.
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
            told = "the header of a page holds a list, which no page has"
            raise UnreadableError(told)
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
