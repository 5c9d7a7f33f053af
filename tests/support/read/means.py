"""The questions about means over any traces, without a warehouse."""

from datetime import date

import duckdb
import polars as pl

from kp_batch.warehouse.questions import statements
from tests.support.oracle.measures import MEASURES, PERIODS, SHARES
from tests.support.oracle.uncertainty import DIMENSIONS

QUESTIONS = (
    "changes_by",
    "differences_by",
    "differences_from_others",
    "mean_changes",
    "means_by",
)


def create_questions(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the questions about means, of a table `trace_measures`."""
    for text in (*statements("means"), *statements("questions", *QUESTIONS)):
        statement = text.replace("kp.", "")
        connection.execute(statement.replace("CREATE MACRO", "CREATE OR REPLACE MACRO"))


def ask_of(connection: duckdb.DuckDBPyConnection, rows: pl.DataFrame) -> None:
    """Let the questions answer of these rows of `trace_measures`; what they lack is 0, or the same.

    Args:
        connection: to a database with the macros of the catalog.
        rows: with objective_hash, and what is asked.
    """
    numbers = dict.fromkeys((*MEASURES, *(f"weight_of_{name}" for name in DIMENSIONS)), 0.0)
    usual = numbers | dict.fromkeys(SHARES, 0) | {"profile": "default", "task_domain": "code"}
    lacking = {name: pl.lit(value) for name, value in usual.items() if name not in rows.columns}
    if "day" in rows.columns:
        day = pl.col("day")
        steps = ("1d", "1w", "1mo", "1q", "1y")
        lacking |= {name: day.dt.truncate(step) for name, step in zip(PERIODS, steps, strict=True)}
    else:
        lacking |= {name: pl.lit(date(2026, 1, 5)) for name in PERIODS}
    connection.register("given", rows.with_columns(**lacking, everything=pl.lit("all")).to_arrow())
    connection.execute("CREATE OR REPLACE TABLE trace_measures AS FROM given")
    create_questions(connection)
