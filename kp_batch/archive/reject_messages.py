"""Why a row is rejected, in words: where its fault stands, and the value that stands there."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kp_batch import limits
from kp_batch.archive.formats.json_values import CUT, MALFORMED_JSON, finite
from kp_batch.archive.validation import CHECKS
from kp_batch.bounded_json import MOST
from kp_batch.text import shortened

# Raised with every change of these words: the next run then tells the published rejects anew.
MESSAGES_VERSION = 4
_SHOWN = 60  # characters of a value
_TOO_LARGE = f"the row is too large to be read: {MOST}"


def reject_message(codes: Sequence[str], row: int, raw: str | None) -> str:
    """The sentences for all faults of a row, joined by semicolons.

    Args:
        codes: of its faults, as `validation.reasons` gives them.
        row: its number in its file, from 0.
        raw: its JSON, see `reading.read_rows_with_raw`. Where none is kept, the sentences name no
            value.
    """
    if list(codes) == [limits.TOO_LARGE]:
        return _TOO_LARGE
    try:
        value = None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):  # as deep, or as long a number, as was only just read
        value = None
    if list(codes) == [MALFORMED_JSON]:
        return _malformed(row + 1, value)
    return "; ".join(fault_sentence(code, value) for code in codes)


def with_message(rejected: pl.DataFrame) -> pl.DataFrame:
    """Say why the rows are rejected that have no message: a function of their JSON and number.

    Args:
        rejected: the columns message, reasons, row and raw of `REJECTS`, and any others.
    """
    rows = rejected.select("message", "reasons", "row", "raw").iter_rows()
    told = [known or reject_message(codes, row, raw) for known, codes, row, raw in rows]
    return rejected.with_columns(message=pl.Series(told, dtype=pl.String))


def fault_sentence(code: str, trace: Any) -> str:
    """The sentence for one fault of a trace, with the first value at fault.

    Args:
        code: of the fault.
        trace: a JSON value; where it has no such fault the sentence names no value.
    """
    if code == limits.TOO_LARGE:
        return _TOO_LARGE
    if code == MALFORMED_JSON:
        return f"the trace is {_shown(trace)}, no JSON object"
    check = CHECKS[code]
    found = list(check.places(trace)) if isinstance(trace, Mapping) else []
    if not found:
        return check.message
    name, value, expected = found[0]
    first = f" (the first of {len(found):,} such steps)" if len(found) > 1 else ""
    if value is None:
        return f"{name} is null{first}"
    if isinstance(value, str | list) and not value:
        return f"{name} is empty{first}"
    return f"{name} is {_shown(value)}, {expected}{first}"


def _malformed(line: int, text: Any) -> str:
    """The sentence for a line, counted from 1 as editors do, that is no JSON object."""
    told = f"line {line} is no JSON object"
    if not isinstance(text, str) or text.endswith(CUT):
        return told
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"{told}: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except ValueError:
        return f"{told} that can be read: it holds a number of too many digits"
    except RecursionError:  # what is nested as deep was only just read
        return told
    if isinstance(value, dict):  # what is no UTF-8 was replaced before
        return f"{told} that can be read: it is not UTF-8"
    return f"line {line} is {_shown(value)}, no JSON object"


def _shown(value: Any) -> str:
    try:
        return shortened(json.dumps(finite(value), ensure_ascii=False, default=str), _SHOWN)
    except RecursionError:
        return "nested too deep to be shown"
