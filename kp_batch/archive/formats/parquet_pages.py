"""How to read a Parquet file within bounded memory: by its footer and the headers of its pages.

A footer may state less than the file unpacks to, so the headers of all pages are read. The footer
is read here, too: if the metadata of a column is damaged, pyarrow ends the process where it is
asked for them, and only refuses the file where it reads the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch import limits
from kp_batch.errors import Fault, UnreadableError

_Struct = dict[tuple[int, int], Any]  # values by the numbers and types of their fields

VALUE_BYTES = 16  # of a value in memory, even if it is empty or null

_ROWS = 128  # to decode before they are measured: a row may take far more than those before it
_HEADER_BYTES, _LONGEST_HEADER = 1 << 9, 1 << 24
_MAGIC = b"PAR1"
_END_BYTES = 8  # of a file: the size of its footer, and a name
_ARROW_SCHEMA = b"\x18\x0cARROW:schema\x18"  # in a footer: the name of a text, which follows
_MEASURED = 1 << 17  # texts of a dictionary; to measure more takes too long
_DICTIONARY_PAGE = 2  # a kind of page
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7  # encodings of values by earlier ones
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}  # that Arrow can unpack by itself

# Types of values.
_TRUE, _BOOLEANS, _I32, _I64, _STRUCT = 1, (1, 2), 5, 6, 12
_NUMBERS, _LISTS = (4, _I32, _I64), (9, 10)
_SKIPPED = {3: 1, 7: 8, 8: 0}  # others, with their length in bytes; 0: it precedes the value
# The lists of a footer and of a row group.
_ROW_GROUPS, _COLUMNS = 4, 1
# Fields, by number and type: of a column, of its metadata, and of the header of a page.
_METADATA = (3, _STRUCT)
_CODEC, _PACKED, _FIRST_PAGE, _FIRST_DICTIONARY = (4, _I32), (7, _I64), (9, _I64), (11, _I64)
_DATA, _DICTIONARY, _DATA_V2 = (5, _STRUCT), (7, _STRUCT), (8, _STRUCT)  # for each kind of page


class Unpacked:
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


@dataclass(frozen=True)
class _Page:
    """A page, by its header."""

    is_dictionary: bool
    at: int  # where its content begins
    packed: int  # bytes
    unpacked: int  # bytes
    values: int
    encoding: int


def plain_metadata(file: IO[bytes], size: int) -> pq.FileMetaData | None:
    """The footer without the Arrow types that a writer has left in it; None if it has none.

    They change no value, only how it lies in memory: as a dictionary with keys of any type, as a
    view, as an extension. Of all these hardly two are supported in the same places, and some end
    the process. Parquet's own types are few.
    """
    footer = _footer(file, size)
    if _ARROW_SCHEMA not in footer:
        return None
    renamed = footer.replace(_ARROW_SCHEMA, _ARROW_SCHEMA.upper())  # which nobody reads
    return pq.read_metadata(BytesIO(_MAGIC + renamed))


def _footer(file: IO[bytes], size: int) -> bytes:
    """The last part of a file, with its end; no more than the file has."""
    file.seek(max(size - _END_BYTES, 0))
    length = int.from_bytes(file.read(_END_BYTES)[:4], "little")
    file.seek(max(size - _END_BYTES - length, 0))
    return file.read()


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
        UnreadableError: the pages unpack to too much, the footer is damaged, or there are too many
            columns.
    """
    if parquet.metadata.num_columns > limits.COLUMNS:
        message = f"the file has more than {limits.COLUMNS:,} columns"
        raise UnreadableError(Fault(limits.TOO_LARGE, message))
    unpacked, rows, folded = Unpacked(packed), _ROWS, set[str]()
    columns = [parquet.schema.column(index) for index in range(parquet.metadata.num_columns)]
    for column, chunk in _chunks(file, packed, columns):
        dictionary, named = None, 0
        for page in _pages(file, chunk, packed):
            unpacked.add(max(page.unpacked, page.values * max(VALUE_BYTES, column.length)))
            dictionary = page if page.is_dictionary else dictionary
            named += page.values if page.encoding in _BY_DICTIONARY else 0
            if page.encoding == _BY_PREFIX:
                rows = min(rows, max(batch // max(page.unpacked, 1), 1))
        if dictionary is None or column.physical_type != "BYTE_ARRAY":
            continue
        at_once = named if column.max_repetition_level else min(named, _ROWS)
        if at_once * dictionary.unpacked > batch:
            longest = _longest(file, dictionary, chunk.get(_CODEC, 0))
            if at_once * longest > batch:
                folded.add(column.path)
    return rows, tuple(sorted(folded))


def _chunks(
    file: IO[bytes], size: int, columns: Sequence[pq.ColumnSchema]
) -> Iterator[tuple[pq.ColumnSchema, _Struct]]:
    """The columns of each row group, with their metadata."""
    footer = _Thrift(_footer(file, size))
    try:
        for _ in footer.items_of(_ROW_GROUPS):
            for number, _ in enumerate(footer.items_of(_COLUMNS)):
                yield columns[number], footer.struct().get(_METADATA, {})
    except (LookupError, RecursionError) as error:
        raise UnreadableError("its footer is damaged") from error


def _pages(file: IO[bytes], chunk: _Struct, size: int) -> Iterator[_Page]:
    """The pages of a column in one row group, up to a damaged one, where reading ends, too."""
    at = chunk.get(_FIRST_PAGE, 0)
    if 0 < chunk.get(_FIRST_DICTIONARY, 0) < at:
        at = chunk[_FIRST_DICTIONARY]
    end = min(at + chunk.get(_PACKED, 0), size)
    while 0 <= at < end and (page := _page(file, at)):
        yield page
        at = page.at + page.packed


def _page(file: IO[bytes], at: int) -> _Page | None:
    """The page whose header begins there; None if it is damaged."""
    most = _HEADER_BYTES
    while most <= _LONGEST_HEADER:
        file.seek(at)
        reader = _Thrift(file.read(most))
        try:
            header = reader.struct()
            values = header.get(_DATA) or header.get(_DATA_V2) or header[_DICTIONARY]
            page = _Page(
                is_dictionary=header[1, _I32] == _DICTIONARY_PAGE,
                at=at + reader.at,
                packed=header[3, _I32],
                unpacked=header[2, _I32],
                values=values[1, _I32],
                encoding=values[4 if _DATA_V2 in header else 2, _I32],
            )
        except IndexError:  # the header is longer
            most *= 8
        except (KeyError, RecursionError):
            return None
        else:
            return page if min(page.packed, page.unpacked, page.values) >= 0 else None
    return None


def _longest(file: IO[bytes], page: _Page, codec: int) -> int:
    """An upper bound for the longest text of a dictionary, in bytes."""
    if page.values > _MEASURED:
        return page.unpacked
    file.seek(page.at)
    content: Any = file.read(page.packed)
    if codec:
        try:
            content = pa.decompress(content, page.unpacked, _CODECS[codec], asbytes=True)
        except (KeyError, pa.ArrowException, ValueError, OSError):  # another codec, or damaged
            return page.unpacked
    at = longest = 0
    for _ in range(page.values):
        length = int.from_bytes(content[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest


class _Thrift:
    """Reads values in Thrift's compact protocol, but for texts, and lists within structs.

    Raises an IndexError where the content ends before a value, a KeyError where it is none.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def struct(self) -> _Struct:
        """The values of a struct. A field that has another type than its own counts as another."""
        return {(field, kind): self._value(kind) for field, kind in self._fields()}

    def items_of(self, field: int) -> Iterator[int]:
        """The types of the values of a struct's list, each of which has to be read in between."""
        for other, kind in self._fields():
            if other == field:
                yield from self._items()
            else:
                self._value(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            yield field, head & 15

    def _items(self) -> Iterator[int]:
        head = self._byte()
        for _ in range(head >> 4 if head >> 4 < 15 else self._unsigned()):
            yield head & 15

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._signed()
        if kind == _STRUCT:
            return self.struct()
        if kind in _BOOLEANS:
            return kind == _TRUE
        if kind in _LISTS:
            for item in self._items():
                self.at += item in _BOOLEANS  # which take a byte only here
                self._value(item)
            return None
        length = _SKIPPED[kind] or self._unsigned()
        self.at += length
        return None

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _unsigned(self) -> int:
        content, at = self._content, self.at
        value, shift = content[at] & 127, 7
        while content[at] > 127:
            at += 1
            value |= (content[at] & 127) << shift
            shift += 7
        self.at = at + 1
        return value

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
