"""Parquet that is damaged within a page, or is small and takes gigabytes once it is unpacked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch import bounds

Page = Callable[[bytes, pq.ColumnChunkMetaData], bytes]  # the file, and where the page is in it


def noise(content: bytes, chunk: pq.ColumnChunkMetaData) -> bytes:
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    length = chunk.total_compressed_size
    return content[:start] + b"\xff" * length + content[start + length :]


def other_kind(content: bytes, chunk: pq.ColumnChunkMetaData) -> bytes:
    """It tells to be one of a dictionary, which hides its rows."""
    kind = chunk.data_page_offset + 1
    return content[:kind] + b"\2" + content[kind + 1 :]


def damage_page(path: Path, group: int, column: str, page: Page = noise) -> None:
    """Damage the page of a column."""
    metadata = pq.read_metadata(path).row_group(group)
    chunks = [metadata.column(index) for index in range(metadata.num_columns)]
    [chunk] = [chunk for chunk in chunks if chunk.path_in_schema == column]
    path.write_bytes(page(path.read_bytes(), chunk))


class Column(NamedTuple):
    """What stands in the column of a text, or in one more, and how the file is written."""

    values: pa.Array
    options: Mapping[str, Any] = {}
    is_more: bool = False
    lies: bool = False  # the file's footer tells that it takes nothing


PLAIN, BARE = {"use_dictionary": False}, {"store_schema": False}


def nuls() -> pa.Array:
    """A text that takes no room."""
    return pa.array(["\0" * (3 * bounds.UNPACKED_BYTES)])


def nulls() -> pa.Array:
    """A row of nothing but nulls, each of which takes memory."""
    return lists_of(pa.nulls(20 * bounds.VALUES, pa.bool_()))


def lists_of(values: pa.Array) -> pa.Array:
    """One row, of all these values."""
    return pa.ListArray.from_arrays([0, len(values)], values)


def no_utf8() -> pa.Array:
    """A text of bytes that are none."""
    offsets, content = pa.array([b"\xff\xfe"]).buffers()[1:]
    return pa.StringArray.from_buffers(1, offsets, content)


def deep() -> pa.Array:
    """A struct within structs."""
    kind = pa.null()
    for _ in range(1_000):
        kind = pa.struct({"deep": kind})
    return pa.nulls(1, kind)


def wide() -> pa.Array:
    """A struct of many fields."""
    fields = {f"{number}": pa.array([number]) for number in range(5 * bounds.COLUMNS)}
    return pa.StructArray.from_arrays([*fields.values()], [*fields])


def write_column(path: Path, row: pa.Table, place: str, column: Column) -> None:
    """Write rows like this one, with what stands in the column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = row.take(pa.nulls(len(column.values), pa.int64()).fill_null(0))
    if place in rows.column_names:
        rows = rows.drop_columns(place)
    rows = rows.append_column(place, column.values)
    pq.write_table(rows, path, compression="zstd", **column.options)
    if column.lies:
        _lie(path)


def _lie(path: Path) -> None:
    content, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    chunks = [group.column(index).total_uncompressed_size for index in range(group.num_columns)]
    for size in (group.total_byte_size, max(chunks)):
        length = _varint(2 * size)
        content = content.replace(length, b"\x82" + b"\x80" * (len(length) - 2) + b"\0")
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(0).total_byte_size == 1


def _varint(value: int) -> bytes:
    """A number as Thrift has it, seven bits a byte."""
    return bytes([value & 127 | 128, *_varint(value >> 7)]) if value > 127 else bytes([value])
