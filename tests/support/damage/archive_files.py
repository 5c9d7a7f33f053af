"""Whole files of an archive that are too large; most have a good trace beside."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from kp_batch import bounds
from tests.support.damage import id_in
from tests.support.damage.parquet_files import Column, lists_of, write_column
from tests.support.make.archives import step, table, trace, write_jsonl


def escaped_reject(path: Path) -> None:
    """A rejected text of control characters, which take six times as much as JSON."""
    line = json.dumps(trace(id="", objective="HERE")).encode()
    long = line.replace(b"HERE", rb"\u0000" * (bounds.LINE_BYTES // 6 - len(line)))
    write_jsonl(path, [long, trace(id=id_in(path))])


def _empty_steps(count: int) -> bytes:
    line = json.dumps(trace(id="empty", steps="HERE")).encode()
    return line.replace(b'"HERE"', b"[" + b",".join([b"{}"] * count) + b"]")


def empty_steps(path: Path) -> None:
    """A trace of nothing but empty steps."""
    write_jsonl(path, [_empty_steps(bounds.LINE_BYTES // 3 - 999), trace(id=id_in(path))])


def allowed_steps(path: Path) -> None:
    """Traces of as many empty steps as a trace may have."""
    one = _empty_steps(bounds.VALUES // 2 - 100)
    write_jsonl(path, [*[one] * 3, trace(id=id_in(path))])


def _write(path: Path, steps: pa.Array, **options: Any) -> None:
    write_column(path, table([trace(id="long")]), "steps", Column(steps, options))


def parquet_long_texts(path: Path) -> None:
    """Texts that may be read, each in a step, of a row that would take more than a gigabyte."""
    steps = [step(content="\0" * bounds.TEXT_BYTES)] * 100
    _write(path, pa.array([steps]), use_dictionary=False)


def parquet_steps(path: Path, count: int) -> None:
    """A trace of nothing but so many empty steps."""
    nothing = pa.nulls(count, pa.string())
    _write(path, lists_of(pa.StructArray.from_arrays([nothing, nothing], ["type", "content"])))
