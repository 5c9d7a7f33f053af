"""Small files of an archive that would take gigabytes or hours, were there no limits.

A run refuses of each what is too large, as `too_large`, and scores what is beside it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch import limits
from tests.support.archives import step, table, trace, write_jsonl


def lower_limits(monkeypatch: pytest.MonkeyPatch, **others: int) -> None:
    """Lower the limits for a test; `make torture` has the limits themselves."""
    lower = {"LINE_BYTES": 1 << 18, "TEXT_BYTES": 1 << 16, "VALUES": 1 << 12, **others}
    for name, value in lower.items():
        monkeypatch.setattr(limits, name, value)


def long_line(path: Path) -> None:
    """A line that is larger than any line may be, and one beside it."""
    line = json.dumps(trace(id="long", extra="HERE")).encode()
    long = line.replace(b"HERE", b"x" * limits.LINE_BYTES)
    write_jsonl(path, [long, trace(id="good")])


def long_text(path: Path) -> None:
    """A text that is larger than any text may be, on a line that is not."""
    write_jsonl(path, [trace(id="long", objective="x" * (limits.TEXT_BYTES + 1)), trace(id="good")])


def escaped_text(path: Path) -> None:
    """A text of control characters, which take six times as much as JSON."""
    line = json.dumps(trace(id="", objective="HERE")).encode()
    long = line.replace(b"HERE", rb"\u0000" * (limits.LINE_BYTES // 6 - len(line)))
    write_jsonl(path, [long, trace(id="good")])


def deep_line(path: Path) -> None:
    """Lists within lists."""
    line = json.dumps(trace(id="deep", extra="HERE")).encode()
    half = limits.LINE_BYTES // 2 - len(line)
    write_jsonl(path, [line.replace(b'"HERE"', b"[" * half + b"]" * half), trace(id="good")])


def many_values(path: Path) -> None:
    """Numbers and texts of few letters, each of which takes far more memory than a file."""
    line = json.dumps(trace(id="many", extra="HERE")).encode()
    many = b",".join([b'"ab"', b"{}", b"1.5"] * ((limits.LINE_BYTES - len(line)) // 12))
    write_jsonl(path, [line.replace(b'"HERE"', b"[" + many + b"]"), trace(id="good")])


def empty_steps(path: Path) -> None:
    """A trace of nothing but empty steps."""
    line = json.dumps(trace(id="empty", steps="HERE")).encode()
    steps = b",".join([b"{}"] * ((limits.LINE_BYTES - len(line)) // 3))
    write_jsonl(path, [line.replace(b'"HERE"', b"[" + steps + b"]"), trace(id="good")])


def many_empty_steps(path: Path) -> None:
    """Traces of as many empty steps as a trace may have."""
    line = json.dumps(trace(id="empty", steps="HERE")).encode()
    steps = b",".join([b"{}"] * (limits.VALUES // 2 - 100))
    one = line.replace(b'"HERE"', b"[" + steps + b"]")
    write_jsonl(path, [*[one] * 3, trace(id="good")])


def parquet_long_text(path: Path) -> None:
    """A text of nothing but NULs, which take no room."""
    _write(
        path,
        "task",
        pa.array([{"objective": "\0" * (3 * limits.UNPACKED_BYTES)}]),
        use_dictionary=False,
    )


def parquet_long_texts(path: Path) -> None:
    """Texts that may be read, each in a step, of a row that would take more than a gigabyte."""
    steps = [step(content="\0" * limits.TEXT_BYTES)] * 100
    _write(path, "steps", pa.array([steps]), use_dictionary=False)


def parquet_footer_that_lies(path: Path) -> None:
    """Texts that may not be read, by whose footer they take nothing."""
    parquet_long_text(path)
    content, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    chunks = [group.column(index).total_uncompressed_size for index in range(group.num_columns)]
    for size in (group.total_byte_size, max(chunks)):
        length = _varint(2 * size)
        content = content.replace(length, b"\x82" + b"\x80" * (len(length) - 2) + b"\0")
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(0).total_byte_size == 1


def parquet_rows_alike(path: Path) -> None:
    """A text that is once in the file, and in a hundred thousand rows."""
    _write(path, "task", pa.StructArray.from_arrays([_alike(100_000)], ["objective"]))


def parquet_steps_alike(path: Path) -> None:
    """A text that is once in the file, and in a thousand steps of a row."""
    kinds = pa.array(["thought"] * 1_000)
    steps = pa.StructArray.from_arrays([kinds, _alike(1_000)], ["type", "content"])
    _write(path, "steps", pa.ListArray.from_arrays([0, 1_000], steps))


def parquet_beginnings_alike(path: Path) -> None:
    """Texts of which each repeats the one before, and adds nothing."""
    task = pa.array([{"objective": "x" * limits.TEXT_BYTES}] * 60)
    delta = {"task.objective": "DELTA_BYTE_ARRAY"}
    _write(path, "task", task, use_dictionary=False, column_encoding=delta)


def parquet_empty_steps(path: Path) -> None:
    """A trace of nothing but empty steps."""
    nothing = pa.nulls(16 * limits.VALUES, pa.string())
    steps = pa.StructArray.from_arrays([nothing, nothing], ["type", "content"])
    _write(path, "steps", pa.ListArray.from_arrays([0, len(nothing)], steps))


def parquet_many_steps(path: Path) -> None:
    """A trace of more empty steps than one may have, and a good one."""
    nothing = pa.nulls(limits.VALUES + 3, pa.string())
    steps = pa.StructArray.from_arrays([nothing, nothing], ["type", "content"])
    _write(path, "steps", pa.ListArray.from_arrays([0, len(nothing)], steps))


def parquet_deep_column(path: Path) -> None:
    """A struct within structs."""
    deep = pa.null()
    for _ in range(1_000):
        deep = pa.struct({"deep": deep})
    _write(path, "extra", pa.nulls(1, deep), store_schema=False)


def parquet_many_columns(path: Path) -> None:
    """A struct of many fields."""
    fields = {f"{number}": pa.array([number]) for number in range(50_000)}
    _write(path, "extra", pa.StructArray.from_arrays([*fields.values()], [*fields]))


def _write(path: Path, column: str, values: pa.Array, **options: Any) -> None:
    """Write a Parquet file of traces with those values in a column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = table([trace(id="long")]).take(pa.nulls(len(values), pa.int64()).fill_null(0))
    if column in rows.column_names:
        rows = rows.drop_columns(column)
    rows = rows.append_column(column, values)
    pq.write_table(rows, path, compression="zstd", **options)


def _alike(count: int) -> pa.Array:
    """The same text so many times, and once in memory."""
    places = pa.nulls(count, pa.int32()).fill_null(0)
    return pa.DictionaryArray.from_arrays(places, ["x" * limits.TEXT_BYTES])


def _varint(value: int) -> bytes:
    """A number as Thrift has it, seven bits a byte."""
    return bytes([value & 127 | 128, *_varint(value >> 7)]) if value > 127 else bytes([value])


# By the file's name. Each has a good trace, but for `parquet_...` of which nothing can be read.
FILES: Mapping[str, Callable[[Path], None]] = MappingProxyType(
    {
        f"{write.__name__}.{ending}": write
        for ending, writers in {
            "jsonl": (
                long_line,
                long_text,
                escaped_text,
                deep_line,
                many_values,
                empty_steps,
                many_empty_steps,
            ),
            "parquet": (
                parquet_long_text,
                parquet_long_texts,
                parquet_footer_that_lies,
                parquet_rows_alike,
                parquet_steps_alike,
                parquet_beginnings_alike,
                parquet_empty_steps,
                parquet_many_steps,
                parquet_deep_column,
                parquet_many_columns,
            ),
        }.items()
        for write in writers
    }
)
