"""Decides which rows can be scored; gives reasons and messages for the others."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import polars as pl

from kp_batch import bounds
from kp_batch.archive.columns import FIELDS, STEPS
from kp_batch.archive.file_formats.json import CUT, MALFORMED_JSON, finite, value_at
from kp_batch.bounds import MOST
from kp_batch.errors import CUT_FILE, MISSING_COLUMN, UNREADABLE_FILE, WRONG_COLUMN_TYPE
from kp_batch.schemas import STEP_TYPES
from kp_batch.text import shortened

SUPERSEDED = "superseded"  # assigned by rejects.sql

_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_STEP_TYPE = f"not one of {', '.join(STEP_TYPES)}"

# The path of a fault in a trace, the value there, and what is wrong with the value.
_Locations = Iterator[tuple[str, Any, str]]

# Raise it with every change of a message: the next run then rewrites those of published rejects.
MESSAGES_VERSION = 7
_SHOWN = 60  # characters of a value
_TOO_LARGE = f"the row is too large to be read: {MOST}"


@dataclass(frozen=True)
class Check:
    """A fault that a row may have.

    Attributes:
        message: message if the value at fault is unknown.
        fault: whether a row of a frame of `ROWS` has it.
        locate: finds it in the row's JSON.
    """

    message: str
    fault: pl.Expr
    locate: Callable[[Mapping[str, Any]], _Locations]


def _empty(column: str) -> pl.Expr:
    return pl.col(column).fill_null("") == ""


def _bad_step_type() -> pl.Expr:
    known = pl.element().is_in(STEP_TYPES).fill_null(value=False)
    return ~pl.col("step_types").list.eval(known).list.all()


def _value(column: str, expected: str) -> Callable[[Mapping[str, Any]], _Locations]:
    """Return a function that locates the value of a column of `ROWS`."""
    path = FIELDS[column].path
    return lambda trace: iter([(".".join(path), value_at(trace, path), expected)])


def _text(column: str) -> Callable[[Mapping[str, Any]], _Locations]:
    return _value(column, "neither text nor a whole number")


def _steps(trace: Mapping[str, Any]) -> Sequence[Any]:
    steps = trace.get(STEPS)
    return steps if isinstance(steps, (list, tuple)) else ()


def _no_steps(trace: Mapping[str, Any]) -> _Locations:
    if not _steps(trace):
        yield STEPS, trace.get(STEPS), "not a list"
    for number, step in enumerate(_steps(trace)):
        if not isinstance(step, Mapping):
            yield f"{STEPS}[{number}]", step, "not an object"


def _step_types(trace: Mapping[str, Any]) -> _Locations:
    for number, step in enumerate(_steps(trace)):
        if isinstance(step, Mapping) and (kind := step.get("type")) not in STEP_TYPES:
            yield f"{STEPS}[{number}].type", kind, _STEP_TYPE


CHECKS: Mapping[str, Check] = {
    "missing_id": Check(
        "id is null, empty or not valid text",
        _empty("trace_id"),
        _value("trace_id", "neither valid text nor a whole number"),
    ),
    "wrong_type": Check(
        '@type is present but not "ReasoningTrace"',
        pl.col("type") != "ReasoningTrace",
        _value("type", 'not "ReasoningTrace"'),
    ),
    "bad_created_at": Check(
        "metadata.created_at is null or not an ISO 8601 time from year 1 to 9999",
        ~pl.col("created_at").is_between(_FIRST, _LAST).fill_null(value=False),
        _value("created_at", "not an ISO 8601 time from year 1 to 9999"),
    ),
    "empty_domain": Check(
        "metadata.task_domain is null or empty", _empty("task_domain"), _text("task_domain")
    ),
    "missing_success": Check(
        "metadata.success is null or neither true nor false",
        pl.col("success").is_null(),
        _value("success", "neither true nor false"),
    ),
    "empty_objective": Check(
        "task.objective is null or empty", _empty("objective"), _text("objective")
    ),
    "no_steps": Check(
        "steps is null or empty, or contains a null step",
        (pl.col("step_types").list.len() == 0).fill_null(value=True) | (pl.col("null_steps") > 0),
        _no_steps,
    ),
    "unknown_step_type": Check(f"a step's type is {_STEP_TYPE}", _bad_step_type(), _step_types),
    "bad_confidence": Check(
        "outcome.confidence is null, NaN, or outside 0..1",
        ~pl.col("confidence").is_between(0, 1).fill_null(value=False),
        _value("confidence", "not a number from 0 to 1"),
    ),
}
# Every code with which a row or a file can be rejected.
REASONS = (
    *(*CHECKS, MALFORMED_JSON, bounds.TOO_LARGE, SUPERSEDED),
    *(UNREADABLE_FILE, CUT_FILE, MISSING_COLUMN, WRONG_COLUMN_TYPE),
)


@cache
def reasons() -> pl.Expr:
    """The codes of all faults of a row, in the order of `REASONS`; empty if it is accepted.

    Takes a frame of `ROWS`. Returns a list of strings.
    """
    codes = [pl.when(check.fault).then(pl.lit(code)) for code, check in CHECKS.items()]
    return (
        pl.when(pl.col("fault").is_null())
        .then(pl.concat_list(codes).list.drop_nulls())
        .otherwise(pl.concat_list("fault"))
    )


def any_rejected(rows: pl.DataFrame) -> bool:
    """Whether any row of a frame of `ROWS` has a fault; it is faster than computing the codes."""
    return bool(rows.select(_any_fault()).item())


@cache
def _any_fault() -> pl.Expr:
    faults = (check.fault for check in CHECKS.values())
    return pl.any_horizontal(pl.col("fault").is_not_null(), *faults).any()


def reject_message(codes: Sequence[str], row: int, raw: str | None) -> str:
    """Return the sentences for all faults of a row, joined by semicolons.

    Args:
        codes: codes of its faults, as `reasons` computes them.
        row: its number in its file, from 0.
        raw: its JSON, see `reading.read_rows_with_raw`. If None, the sentences name no value.
    """
    if list(codes) == [bounds.TOO_LARGE]:
        return _TOO_LARGE
    try:
        value = None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):  # nested too deep, or a number is too long
        value = None
    if list(codes) == [MALFORMED_JSON]:
        return _malformed(row + 1, value)
    return "; ".join(fault_sentence(code, value) for code in codes)


def with_message(rejected: pl.DataFrame) -> pl.DataFrame:
    """Add missing messages of rejects, made from their JSON and row numbers.

    Args:
        rejected: a frame with the columns message, reasons, row and raw of `REJECTS`.
    """
    rows = rejected.select("message", "reasons", "row", "raw").iter_rows()
    messages = [message or reject_message(codes, row, raw) for message, codes, row, raw in rows]
    return rejected.with_columns(message=pl.Series(messages, dtype=pl.String))


def fault_sentence(code: str, trace: Any) -> str:
    """Return the sentence for one fault of a trace, with the first value at fault.

    Args:
        code: code of the fault.
        trace: a JSON value; if it has no such fault, the sentence names no value.
    """
    if code == bounds.TOO_LARGE:
        return _TOO_LARGE
    if code == MALFORMED_JSON:
        return f"the trace is {_shown(trace)}, not a JSON object"
    check = CHECKS[code]
    faults = list(check.locate(trace)) if isinstance(trace, Mapping) else []
    if not faults:
        return check.message
    name, value, expected = faults[0]
    first = f" (the first of {len(faults):,} such steps)" if len(faults) > 1 else ""
    if value is None:
        return f"{name} is null{first}"
    if isinstance(value, (str, list)) and not value:
        return f"{name} is empty{first}"
    return f"{name} is {_shown(value)}, {expected}{first}"


def _malformed(line: int, text: Any) -> str:
    """Return the sentence for a line, counted from 1 as in editors, that is not a JSON object."""
    message = f"line {line} is not a JSON object"
    if not isinstance(text, str) or text.endswith(CUT):
        return message
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"{message}: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except ValueError:
        return f"{message}: a number has too many digits"
    except RecursionError:  # nested almost too deep
        return message
    if isinstance(value, dict):  # bytes that are not UTF-8 were replaced before
        return f"{message}: it is not UTF-8"
    return f"line {line} is {_shown(value)}, not a JSON object"


def _shown(value: Any) -> str:
    try:
        return shortened(json.dumps(finite(value), ensure_ascii=False, default=str), _SHOWN)
    except RecursionError:
        return "nested too deep to be shown"
