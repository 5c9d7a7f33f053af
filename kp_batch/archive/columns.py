"""The values of a trace that are read, and their paths, for every file format; times from text."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from kp_batch.schemas import TIMESTAMP
from kp_batch.text import time_of, us_of

_TEXT = pl.String()

# The form of all times in most archives; it is parsed in a fraction of the time.
_USUAL = (
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
_USUAL_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%#z"


@dataclass(frozen=True)
class Field:
    """A value of a trace or of a step.

    Attributes:
        path: path of names in `TRACE`, from the trace or from the step.
        dtype: type in `ROWS`.
        required: whether a Parquet file without this column is unreadable.
        checked: whether a Parquet file with another type of this column is unreadable; if not, its
            values are null.
    """

    path: tuple[str, ...]
    dtype: pl.DataType = _TEXT
    required: bool = True
    checked: bool = True


# Both by column of `ROWS`, in the order of `ROWS`.
FIELDS: Mapping[str, Field] = {
    "type": Field(("@type",), required=False),
    "trace_id": Field(("id",)),
    "created_at": Field(("metadata", "created_at"), TIMESTAMP),
    "task_domain": Field(("metadata", "task_domain")),
    "agent_id": Field(("metadata", "agent_id"), required=False),
    "framework": Field(("metadata", "framework"), required=False),
    "source_skill": Field(("source_skill",), required=False),
    "success": Field(("metadata", "success"), pl.Boolean()),
    "recorded_score": Field(
        ("metadata", "quality_score"), pl.Float64(), required=False, checked=False
    ),
    "confidence": Field(("outcome", "confidence"), pl.Float64()),
    "objective": Field(("task", "objective")),
}
STEP_FIELDS: Mapping[str, Field] = {
    "step_types": Field(("type",)),
    "step_contents": Field(("content",), required=False),
    "step_tools": Field(("tool", "name"), required=False),
}
STEPS = "steps"  # the list of a trace's steps


def times_from_text(text: pl.Series) -> pl.Series:
    """Parse UTC timestamps; null where `time_of` returns None.

    Args:
        text: strings.

    Returns:
        Datetime("us", "UTC").
    """
    if text.str.contains(_USUAL).all():
        return text.str.to_datetime(_USUAL_FORMAT, time_unit="us", strict=False)
    times = map(time_of, text)
    counts = [None if time is None else us_of(time) for time in times]
    return pl.Series(text.name, counts, pl.Int64).cast(TIMESTAMP)
