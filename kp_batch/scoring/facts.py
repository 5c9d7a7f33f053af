"""Facts of a trace: its text, counts, hashes, three of its dimensions, and its overrides."""

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import polars as pl
import polars_hash as _  # noqa: F401

# Raise it with every change to what is read from a file: reading, checking, the JSON of rejected
# rows, text, counts, hashes, dimensions, or the overrides' conditions. Every file_id contains it,
# so all files are read again.
FACTS_VERSION = 11


def with_facts(rows: pl.DataFrame, reasons: pl.Expr) -> pl.DataFrame:
    """Add the facts: all columns that depend on the trace alone.

    Args:
        rows: a frame of `ROWS`.
        reasons: expression for the codes of a row's faults.

    Returns:
        The rows with the columns `text`, `reasons`, `text_hash`, `objective_hash` and
        `content_hash`, and those of `counts`, `dimensions` and `overrides`. `recorded_score` is a
        number or null, `confidence` never -0.0. The columns may be null in a row with faults.
    """
    first, second, third = _stages()
    return rows.with_columns(first, reasons=reasons).with_columns(second).with_columns(third)


# Made once: making them takes as long as computing them for the few rows of a small file. A lazy
# query would take longer still to find what the stages have in common.
@cache
def _stages() -> tuple[Sequence[pl.Expr], ...]:
    """The expressions over a frame of `ROWS`; each stage needs the columns of those before it."""
    first = [text(), objective_hash(), recorded_score(), confidence(), *counts()]
    return first, [text_hash(), *dimensions(), *overrides()], [content_hash()]


def with_text(rows: pl.DataFrame) -> pl.DataFrame:
    """Return only the columns `text_hash` and `text`, for a frame of `ROWS`."""
    return rows.select(text()).select(text_hash(), "text")


def text() -> pl.Expr:
    """The text to embed: `objective + " " + " ".join(content or "" for each step)`.

    Takes a frame of `ROWS`. Returns strings.
    """
    contents = pl.col("step_contents").list.eval(pl.element().fill_null("")).list.join(" ")
    return (pl.col("objective") + " " + contents).alias("text")


def recorded_score() -> pl.Expr:
    """The score of the live engine; null if that is not a number.

    Takes a frame of `ROWS`. Returns Float64.
    """
    return pl.when(pl.col("recorded_score").is_finite()).then("recorded_score")


def confidence() -> pl.Expr:
    """The outcome's confidence, with -0.0 as 0.0, as in `content_hash`.

    Takes a frame of `ROWS`. Returns Float64.
    """
    return pl.when(pl.col("confidence") == 0).then(0.0).otherwise("confidence").alias("confidence")


def counts() -> list[pl.Expr]:
    """The counts that the formulas use.

    Takes a frame of `ROWS`. Returns the Int64 columns n_steps, n_types (distinct step types),
    n_thoughts, n_recoveries, n_tool_steps (steps with a tool) and n_tools (distinct names of tools,
    on any server). An empty name counts: the live engine only checks whether there is a tool.
    """
    types = pl.col("step_types").list
    tools = pl.col("step_tools").list.drop_nulls().list
    numbers = {
        "n_steps": types.len(),
        "n_types": types.n_unique(),
        "n_thoughts": types.count_matches("thought"),
        "n_recoveries": types.count_matches("error_recovery"),
        "n_tool_steps": tools.len(),
        "n_tools": tools.n_unique(),
    }
    return [number.cast(pl.Int64).alias(name) for name, number in numbers.items()]


def text_hash() -> pl.Expr:
    """SHA-256 of the UTF-8 column `text`, in hex."""
    return _sha256(pl.col("text")).alias("text_hash")


def objective_hash() -> pl.Expr:
    """The first 32 hex digits of the SHA-256 of the UTF-8 column `objective`.

    Attempts at one task share it. No two objectives do, and it takes half the space of all digits.
    """
    return _sha256(pl.col("objective")).str.head(32).alias("objective_hash")


def content_hash() -> pl.Expr:
    """SHA-256 of everything that the score and the text depend on, in hex.

    Takes a frame of `ROWS` with the column `text_hash`.
    """
    # The text's hash and the contents' lengths represent objective and contents, at less cost.
    content = pl.struct(
        pl.col("created_at").to_physical(),
        "task_domain",
        "success",
        pl.when(pl.col("confidence") != 0).then("confidence").alias("confidence"),  # null for 0
        "text_hash",
        "step_types",
        "step_tools",
        pl.col("step_contents").list.eval(pl.element().fill_null("").str.len_bytes()),
    )
    return _sha256(content.struct.json_encode()).alias("content_hash")


def id_hash() -> pl.Expr:
    """SHA-256 of the UTF-8 column `trace_id`, in hex, which replaces a forgotten id."""
    return _sha256(pl.col("trace_id"))


def dimensions() -> list[pl.Expr]:
    """The three dimensions that depend on the trace alone, each in 0..1.

    Formulas::

        complexity          min(1, n_types/4 * 0.5 + (0.3 if n_recoveries > 0 else 0) + n/20 * 0.2)
        tool_diversity      min(1, n_tools / max(1, n) * 3)
        outcome_confidence  confidence * (1 if success else 0.3)

    Takes the columns of `counts`, confidence and success. Returns Float64 columns.
    """
    steps = pl.col("n_steps")
    # Polars divides by a column, but multiplies by the reciprocal of a constant, which is off in
    # the last bit.
    twenty = steps * 0 + 20
    recovered = pl.when(pl.col("n_recoveries") > 0).then(0.3).otherwise(0.0)
    complexity = pl.col("n_types") / 4 * 0.5 + recovered + steps / twenty * 0.2
    diversity = pl.col("n_tools") / pl.max_horizontal(1, steps) * 3
    outcome = pl.col("confidence") * pl.when("success").then(1.0).otherwise(0.3)
    return [
        pl.min_horizontal(1.0, complexity).alias("complexity"),
        pl.min_horizontal(1.0, diversity).alias("tool_diversity"),
        outcome.alias("outcome_confidence"),
    ]


def overrides() -> list[pl.Expr]:
    """Which overrides' conditions are true, regardless of their effect on the score.

    Takes the columns of `counts` and success. Returns the Boolean columns single_thought (its only
    step is a thought), recovery_bonus (more than 2 recoveries, and success) and
    low_diversity_penalty (some step has a tool, and at most 1 distinct tool).
    """
    return [
        ((pl.col("n_steps") == 1) & (pl.col("n_thoughts") == 1)).alias("single_thought"),
        ((pl.col("n_recoveries") > 2) & pl.col("success")).alias("recovery_bonus"),
        ((pl.col("n_tools") <= 1) & (pl.col("n_tool_steps") > 0)).alias("low_diversity_penalty"),
    ]


def _sha256(value: pl.Expr) -> pl.Expr:
    # polars-hash registers `chash` on every expression when it is imported.
    return cast("Any", value).chash.sha2_256()
