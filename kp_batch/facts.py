"""What a trace's steps come to: the counts that the formulas take, and the text."""

from typing import Any, cast

import polars as pl
import polars_hash as _  # noqa: F401

# Raised with any change that changes what is taken from a row: reading, checking, counts, text and
# hashes, the three dimensions and the overrides' conditions. Every file_id bears it.
FACTS_VERSION = 1


def facts() -> list[pl.Expr]:
    """The counts of a trace's steps and its text.

    Text: `objective + " " + " ".join(content or "" for each step)`.

    Takes a frame of `ROWS`. Returns Int64 columns n_steps, n_types, n_thoughts, n_recoveries,
    n_tool_steps and n_tools (the tool's name alone counts, not its server), and the string `text`.
    """
    types = pl.col("step_types").list
    tools = pl.col("step_tools").list.eval(pl.element().filter(pl.element() != "")).list
    contents = pl.col("step_contents").list.eval(pl.element().fill_null("")).list.join(" ")
    counts = {
        "n_steps": types.len(),
        "n_types": types.n_unique(),
        "n_thoughts": types.count_matches("thought"),
        "n_recoveries": types.count_matches("error_recovery"),
        "n_tool_steps": tools.len(),
        "n_tools": tools.n_unique(),
    }
    return [
        *(count.cast(pl.Int64).alias(name) for name, count in counts.items()),
        (pl.col("objective") + " " + contents).alias("text"),
    ]


def hashes() -> list[pl.Expr]:
    """`text_hash`: SHA-256 of the UTF-8 text; `content_hash`: of all that reaches score or text.

    Takes a frame of `ROWS` with the column `text`. Returns strings of 64 hex digits.
    """
    text_hash = _sha256(pl.col("text")).alias("text_hash")
    # The text's hash and the contents' lengths stand for objective and contents, at less cost.
    content = pl.struct(
        pl.col("created_at").to_physical(),
        "task_domain",
        "success",
        pl.when(pl.col("confidence") != 0).then("confidence").alias("confidence"),  # -0.0 is 0.0
        text_hash,
        "step_types",
        pl.col("step_tools").list.eval(pl.element().fill_null("")),
        pl.col("step_contents").list.eval(pl.element().fill_null("").str.len_bytes()),
    )
    return [text_hash, _sha256(content.struct.json_encode()).alias("content_hash")]


def id_hash() -> pl.Expr:
    """SHA-256 of the UTF-8 trace_id, in hex: what is kept of an id that must be forgotten."""
    return _sha256(pl.col("trace_id"))


def _sha256(value: pl.Expr) -> pl.Expr:
    # polars-hash registers `chash` on every expression when it is imported.
    return cast("Any", value).chash.sha2_256()
