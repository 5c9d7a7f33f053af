"""JSONL files: a JSON object a line. Blank lines are skipped, and counted as rows."""

import json
from collections.abc import Iterable, Iterator
from typing import IO, Any

import polars as pl

from kp_batch.archive.formats.json_values import BATCH_BYTES, finite, rows_from_objects


def read_rows(path: str, file: IO[bytes], batch_rows: int) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, in their order."""
    for batch in _batches(file, batch_rows):
        yield rows_from_objects(path, ((row, _object(line)) for row, line in batch))


def _batches(file: IO[bytes], batch_rows: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that are not blank, with their numbers."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for row, line in enumerate(file):
        if line.strip():
            batch.append((row, line))
            size += len(line)
        if len(batch) >= batch_rows or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_raw(
    file: IO[bytes], rows: Iterable[int], _batch_rows: int, *, whole: bool
) -> Iterator[tuple[int, str]]:
    """Some lines as JSON texts, with their numbers; one that is no JSON object as a JSON string.

    The numbers ascend, and are taken as they are needed. Every line is `whole`.
    """
    del whole
    wanted = iter(rows)
    row = next(wanted, None)
    for number, line in enumerate(file):
        if row is None:
            return
        if number == row:
            yield row, _as_json(line)
            row = next(wanted, None)


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, None where there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _as_json(line: bytes) -> str:
    value = _object(line)
    text = line.decode("utf-8-sig", "replace").strip()
    if value is None:
        return json.dumps(text, ensure_ascii=False)
    return text if finite(value) == value else json.dumps(finite(value))
