"""`kp_batch.rows_from`: rows of an archive from a frame with flat columns."""

from typing import Any

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from kp_batch.arguments import typed
from kp_batch.errors import SettingError
from kp_batch.text import one_line

Source = str | pl.Expr | bool | int | float  # a column's name, an expression, or a constant


@typed
def rows_from(  # noqa: PLR0913 (the fields of a row)
    frame: Any,
    *,
    id: Source,  # noqa: A002 (the field's name)
    created_at: Source,
    task_domain: Source,
    success: Source,
    objective: Source,
    steps: Source,
    confidence: Source,
    agent_id: Source | None = None,
    framework: Source | None = None,
    model: Source | None = None,
    session: Source | None = None,
    quality_score: Source | None = None,
    source_skill: Source | None = None,
    result_summary: Source | None = None,
) -> pl.DataFrame:
    """Make rows of an archive, as `score` and `run` take them, from flat columns.

    Args:
        frame: a frame of polars, pandas or Arrow, with a row for each trace.
        id: of the trace. This and each other argument is a column's name, a Polars expression such
            as `pl.lit("code")`, a number, or True or False.
        created_at: the time of the trace.
        task_domain: chooses the weights.
        success: whether the task was done.
        objective: the request.
        steps: a list or an array: of texts, each of which is a thought; or of structs with the
            fields of a step. The field `tool` may be the tool's name instead of a struct.
        confidence: of the outcome, from 0 to 1.
        agent_id: the agent; this and the following ones may be left out.
        framework: of the agent.
        model: of the agent.
        session: the conversation of the task.
        quality_score: the live engine's score.
        source_skill: the skill that the agent followed.
        result_summary: of the outcome.

    Raises:
        SettingError: a column is missing, or `steps` is of another type.

    Examples:
        >>> said = [["Look at it", "Fix it"]]
        >>> flat = pl.DataFrame({"id": ["a"], "at": "2026-01-05", "task": "Fix it", "said": said})
        >>> rows = kp.rows_from(
        ...     flat,
        ...     id="id",
        ...     created_at="at",
        ...     task_domain=pl.lit("code"),
        ...     success=True,
        ...     objective="task",
        ...     steps="said",
        ...     confidence=0.8,
        ... )
        >>> kp.score(rows, embedder="none")["score"].round(4).to_list()
        [0.339]
    """
    metadata = {
        "created_at": created_at,
        "task_domain": task_domain,
        "success": success,
        "agent_id": agent_id,
        "framework": framework,
        "model": model,
        "session": session,
        "quality_score": quality_score,
    }
    outcome = {"confidence": confidence, "result_summary": result_summary}
    top = {"id": id, "source_skill": source_skill}
    flat = pl.DataFrame()
    try:
        flat = _polars(frame)
        listed = _listed(flat.select(steps=_expression(steps))["steps"])
        return flat.select(
            *_given(top),
            metadata=pl.struct(_given(metadata)),
            task=pl.struct(objective=_expression(objective)),
            steps=listed.list.eval(_step(listed.dtype)),
            outcome=pl.struct(_given(outcome)),
        )
    except (PolarsError, pa.ArrowException, TypeError) as error:  # the last of arrays of objects
        columns = ", ".join(flat.columns)
        remedy = f"name columns of {columns}" if columns else "give columns of plain values"
        raise SettingError(f"the rows cannot be made: {one_line(str(error))}; {remedy}") from error


def _polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame) or hasattr(frame, "__arrow_c_stream__"):
        return pl.DataFrame(frame)
    raise SettingError(f"frame is of type {type(frame).__name__}; give one of polars or pandas")


def _expression(source: Source) -> pl.Expr:
    if isinstance(source, pl.Expr):
        return source
    return pl.col(source) if isinstance(source, str) else pl.lit(source)


def _given(fields: dict[str, Source | None]) -> list[pl.Expr]:
    return [
        _expression(source).alias(name) for name, source in fields.items() if source is not None
    ]


def _listed(steps: pl.Series) -> pl.Series:
    """Return lists for arrays, and lists of texts for lists without any element, of any type."""
    if isinstance(steps.dtype, pl.Array):
        inner = steps.dtype.inner  # NumPy's arrays of objects, too, which Polars cannot cast
        steps = pl.Series(steps.to_list(), dtype=None if inner == pl.Object else pl.List(inner))
    is_empty = isinstance(steps.dtype, pl.List) and not steps.list.len().sum()
    return (steps.cast(pl.List(pl.String)) if is_empty else steps).alias("steps")


def _step(dtype: pl.DataType) -> pl.Expr:
    """Return the element of a list of this type as a struct with the fields of a step."""
    inner = dtype.inner if isinstance(dtype, pl.List) else None
    each = pl.element()
    if inner == pl.String:
        return pl.struct(type=pl.lit("thought"), content=each)
    if isinstance(inner, pl.Struct) and inner.to_schema().get("tool") == pl.String:
        return each.struct.with_fields(tool=pl.struct(name=pl.field("tool")))
    if isinstance(inner, pl.Struct):
        return each
    raise SettingError(f"steps is of type {dtype}; give a list of structs, or of texts")
