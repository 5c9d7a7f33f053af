"""Which rows can be scored, and the code of every reason why others cannot."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

import polars as pl

from kp_batch.archive.file_faults import MISSING_COLUMN, UNREADABLE_FILE, WRONG_COLUMN_TYPE
from kp_batch.contracts import STEP_TYPES

MALFORMED_JSON = "malformed_json"
SUPERSEDED = "superseded"  # found by rejects.sql

_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _empty(column: str) -> pl.Expr:
    return pl.col(column).fill_null("") == ""


def _bad_step_type() -> pl.Expr:
    known = pl.element().is_in(STEP_TYPES).fill_null(value=False)
    return ~pl.col("step_types").list.eval(known).list.all()


# Each fault of a row: its code, its sentence, and the test that finds it in a frame of `ROWS`.
_CHECKS: Mapping[str, tuple[str, pl.Expr]] = {
    "missing_id": ("id is null or empty", _empty("trace_id")),
    "wrong_type": (
        '@type is there and not "ReasoningTrace"',
        pl.col("type") != "ReasoningTrace",
    ),
    "bad_created_at": (
        "metadata.created_at is null or no ISO 8601 time from year 1 to 9999",
        ~pl.col("created_at").is_between(_FIRST, _LAST).fill_null(value=False),
    ),
    "empty_domain": ("metadata.task_domain is null or empty", _empty("task_domain")),
    "missing_success": (
        "metadata.success is null or neither true nor false",
        pl.col("success").is_null(),
    ),
    "empty_objective": ("task.objective is null or empty", _empty("objective")),
    "no_steps": (
        "steps is null or empty, or holds a null step",
        (pl.col("step_types").list.len() == 0).fill_null(value=True) | (pl.col("null_steps") > 0),
    ),
    "unknown_step_type": (f"a step's type is none of {', '.join(STEP_TYPES)}", _bad_step_type()),
    "bad_confidence": (
        "outcome.confidence is null, NaN, or outside 0..1",
        ~pl.col("confidence").is_between(0, 1).fill_null(value=False),
    ),
}

# The sentence of each code that always has the same one.
MESSAGES: Mapping[str, str] = {
    **{code: sentence for code, (sentence, _) in _CHECKS.items()},
    MALFORMED_JSON: "the line is no JSON object",
}
# Every code that a row or a file can be refused with.
REASONS = (*MESSAGES, SUPERSEDED, UNREADABLE_FILE, MISSING_COLUMN, WRONG_COLUMN_TYPE)


@cache
def reasons() -> pl.Expr:
    """The codes of all faults of a row, in the order of `REASONS`; an empty list if it is accepted.

    Takes a frame of `ROWS`. Returns a list of strings.
    """
    codes = [pl.when(fault).then(pl.lit(code)) for code, (_, fault) in _CHECKS.items()]
    return (
        pl.when("is_object")
        .then(pl.concat_list(codes).list.drop_nulls())
        .otherwise(pl.lit([MALFORMED_JSON]))
    )


def message(codes: pl.Expr) -> pl.Expr:
    """The sentences for a list of codes, joined by semicolons."""
    return codes.list.eval(pl.element().replace(MESSAGES)).list.join("; ")
