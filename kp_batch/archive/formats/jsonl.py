"""JSONL files: a JSON object a line. Blank lines are skipped, and counted as rows."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from kp_batch.archive.formats.json_values import (
    BATCH_BYTES,
    STEP_BYTES,
    Batch,
    TooLarge,
    rows_from_objects,
)
from kp_batch.bounded_json import TooLargeError, lines_of, loads
from kp_batch.text import encodable


def read_batches(path: str, file: IO[bytes], batch_rows: int) -> Iterator[Batch]:
    """The file's rows, in their order."""
    for batch in line_batches(lines_of(file), batch_rows):
        rows = rows_from_objects(path, ((row, json_object(line)) for row, line in batch))
        yield Batch(rows, partial(_as_json, dict(batch)))


def _as_json(lines: Mapping[int, bytes], rows: Sequence[int]) -> Iterator[str]:
    return (line_as_json(lines[row]) for row in rows)


def line_batches(lines: Iterable[bytes], batch_rows: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that are not blank, with their numbers from 0, some at a time."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for row, line in enumerate(lines):
        if line.strip():
            batch.append((row, line))
            size += len(line) + STEP_BYTES * line.count(b"{")
        if len(batch) >= batch_rows or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_raw(file: IO[bytes], rows: Iterable[int], _batch_rows: int) -> Iterator[tuple[int, str]]:
    """Some lines as JSON texts, with their numbers; see `line_as_json`.

    The numbers ascend, and are taken as they are needed.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    for number, line in enumerate(lines_of(file)):
        if row is None:
            return
        if number == row:
            yield row, line_as_json(line)
            row = next(wanted, None)


def json_object(line: bytes) -> dict[str, Any] | TooLarge | None:
    """The JSON object on a line, None where there is none."""
    try:
        value = loads(line)
    except TooLargeError as error:
        return TooLarge(error.value.get("id") if isinstance(error.value, dict) else None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def line_as_json(line: bytes) -> str:
    """A line as JSON text; one that is no JSON object, or is too large, as a JSON string."""
    with suppress(RecursionError):  # Python reads what is nested a little too deep to be written
        if isinstance(value := json_object(line), dict):
            return _object_as_json(line, value)
    return json.dumps(line.decode("utf-8-sig", "replace").rstrip(), ensure_ascii=False)


def _object_as_json(line: bytes, value: dict[str, Any]) -> str:
    try:  # hardly a line holds what JSON lacks
        json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(line, parse_float=_finite, parse_constant=_finite))
    text = line.decode(json.detect_encoding(line), "surrogatepass")  # as json.loads does
    return encodable(text.strip())


def _finite(number: str) -> float | str:
    """A number; NaN and infinity, which JSON lacks, as text."""
    value = float(number)
    return value if math.isfinite(value) else str(value)
