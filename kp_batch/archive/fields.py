"""Which values of a trace are read, and where they stand: the same for every file format."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from kp_batch.contracts import TIMESTAMP

_TEXT = pl.String()


@dataclass(frozen=True)
class Field:
    """One value of a trace or of a step.

    Attributes:
        path: the names that lead to it in `TRACE`, from the trace or from the step.
        dtype: its type in `ROWS`.
        required: whether a Parquet file without its column is unreadable.
        checked: whether a Parquet file is unreadable where its column has another type, whose
            values otherwise are null.
    """

    path: tuple[str, ...]
    dtype: pl.DataType = _TEXT
    required: bool = True
    checked: bool = True


# Both by column of `ROWS`, in its order.
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
