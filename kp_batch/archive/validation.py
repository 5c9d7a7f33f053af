"""Which rows can be scored, and every reason why the others can't."""

from datetime import UTC, datetime

import polars as pl

from kp_batch.contracts import STEP_TYPES

# What each code says to the person who reads it beside the row.
MESSAGES = {
    "malformed_json": "the line is no JSON object",
    "missing_id": "id is null or empty",
    "wrong_type": '@type is there and not "ReasoningTrace"',
    "bad_created_at": "metadata.created_at is null or no ISO 8601 time from year 1 to 9999",
    "empty_domain": "metadata.task_domain is null or empty",
    "missing_success": "metadata.success is null or neither true nor false",
    "empty_objective": "task.objective is null or empty",
    "no_steps": "steps is null or empty, or holds a null step",
    "unknown_step_type": f"a step's type is none of {', '.join(STEP_TYPES)}",
    "bad_confidence": "outcome.confidence is null, NaN, or outside 0..1",
}

_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def reasons() -> pl.Expr:
    """The codes of all of a row's faults, in the order of `MESSAGES`; an empty list: accepted.

    Takes a frame of `ROWS`. Returns a list of strings.
    """
    types = pl.col("step_types")
    known = types.list.eval(pl.element().is_in(STEP_TYPES).fill_null(value=False))
    confidence = pl.col("confidence")
    faults = {
        "missing_id": _empty("trace_id"),
        "wrong_type": pl.col("type") != "ReasoningTrace",
        "bad_created_at": ~pl.col("created_at").is_between(_FIRST, _LAST).fill_null(value=False),
        "empty_domain": _empty("task_domain"),
        "missing_success": pl.col("success").is_null(),
        "empty_objective": _empty("objective"),
        "no_steps": (types.list.len() == 0).fill_null(value=True) | (pl.col("null_steps") > 0),
        "unknown_step_type": ~known.list.all(),
        "bad_confidence": ~confidence.is_between(0, 1).fill_null(value=False),
    }
    codes = [pl.when(fault).then(pl.lit(code)) for code, fault in faults.items()]
    return (
        pl.when("is_object")
        .then(pl.concat_list(codes).list.drop_nulls())
        .otherwise(pl.lit(["malformed_json"]))
    )


def message(codes: pl.Expr) -> pl.Expr:
    """The sentence for a list of codes."""
    return codes.list.eval(pl.element().replace(MESSAGES)).list.join("; ")


def _empty(column: str) -> pl.Expr:
    return pl.col(column).fill_null("") == ""
