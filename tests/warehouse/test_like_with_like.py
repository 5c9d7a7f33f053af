"""Questions that compare, over drawn tables, against loops that really leave tasks out."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest

from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.questions import statements
from tests.support.oracle.answers import ask, assert_same
from tests.support.oracle.doubts import (
    DIMENSIONS,
    OVERRIDES,
    changes,
    differences,
    differences_from_others,
    domain_changes,
    mean_changes,
    means,
)
from tests.support.oracle.statistics import grouped

QUESTIONS = (
    "changes_by",
    "differences_by",
    "differences_from_others",
    "domain_changes",
    "mean_changes",
    "means_by",
)
BEGIN = datetime(2025, 12, 8, tzinfo=UTC)  # so that weeks and months go over the year's end


def drawn(seed: int) -> list[dict[str, Any]]:
    """Traces of few tasks, some attempted often; with ties, and at times nothing that varies."""
    chance = Random(seed)
    tasks, days = chance.choice([4, 12, 40]), chance.choice([3, 60])
    values = chance.choice([(0.5,), (0.1, 0.5), tuple(chance.random() for _ in range(50))])
    successes = chance.choice([(True,), (False,), (True, False)])
    rows = []
    for number in range(chance.choice([1, 60, 200])):
        created_at = BEGIN + timedelta(
            days=chance.randrange(days), seconds=chance.randrange(86_400)
        )
        rows.append(
            {
                "trace_id": f"{number}",
                "created_at": created_at,
                "day": created_at.date(),
                "objective_hash": f"task {int(tasks * chance.random() ** 2)}",
                "task_domain": chance.choice(["code", "law", 'a "domain"']),
                "agent_id": chance.choice(["a", "it's b", None]),
                "framework": chance.choice(["x", None]),
                "score": chance.choice(values),
                "confidence": chance.choice((0, 0.5, 1)) * 1.0,
                "success": chance.choice(successes),
                "meets_threshold": chance.random() < 0.1,
                "cache_filling": chance.random() < 0.5,
                "n_tools": chance.randrange(3),
                **{name: chance.choice(values) for name in DIMENSIONS},
                **{name: chance.random() < 0.2 for name in OVERRIDES},
            }
        )
    return rows


@pytest.fixture(params=range(24))
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return drawn(request.param)


@contextmanager
def catalog(rows: list[dict[str, Any]], *questions: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        create_macros(connection)
        connection.register("drawn", pl.DataFrame(rows, infer_schema_length=None).to_arrow())
        connection.execute("CREATE TABLE scores AS FROM drawn")
        for text in statements("questions", *questions):
            connection.execute(text.replace("kp.", ""))
        yield connection


@pytest.fixture
def connection(rows: list[dict[str, Any]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with catalog(rows, *QUESTIONS) as connection:
        yield connection


def test_means_and_their_intervals(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    answer = ask(connection, "FROM means_by({'f': framework, 'd': task_domain})")
    groups = grouped(rows, lambda row: (row["framework"], row["task_domain"]))
    wanted = [{"key": {"f": f, "d": d}, **means(own)} for (f, d), own in groups.items()]
    assert_same(answer, wanted)
    assert_same(ask(connection, "FROM means_by(1)"), [{"key": 1, **means(rows)}])


def test_differences_on_the_tasks_that_both_tried(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    if {"a", "it's b"} <= {row["agent_id"] for row in rows}:
        answer = ask(connection, "FROM differences_by(agent_id, 'a', 'it''s b')")
        assert_same(answer, differences(rows, "agent_id", "a", "it's b"))


@pytest.mark.parametrize("column", ["agent_id", "n_tools", "framework"])
def test_differences_from_the_others_on_the_tasks_that_they_tried_too(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], column: str
) -> None:
    answer = ask(connection, f"FROM differences_from_others({column})")
    assert_same(answer, differences_from_others(rows, column))
    order = [(row["task_domain"], row["unit"]) for row in answer]
    assert order == sorted(order)


def test_others_that_never_vary_do_not_do_so_by_the_order_of_a_sum() -> None:
    """Of n attempts at a task, b succeeds in some and c in the others: half of theirs do always."""
    outcomes = [
        (agent, f"task {n} {hits}", attempt < successes)
        for n in range(3, 12)
        for hits in range(1, n)
        for agent, successes in (("a", n % hits), ("b", hits), ("c", n - hits))
        for attempt in range(n)
    ]
    names = ("agent_id", "objective_hash", "success")
    rows = [
        {"task_domain": "code", "score": 0.5, **dict(zip(names, outcome, strict=True))}
        for outcome in outcomes
    ]
    with catalog(rows, "differences_from_others") as connection:
        answer = ask(connection, "FROM differences_from_others(agent_id)")
    assert answer[0]["success_of_others"] == pytest.approx(0.5)
    assert_same(answer, differences_from_others(rows, "agent_id"))


@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_changes_their_parts_and_the_domains_that_moved(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], period: str
) -> None:
    answer = ask(connection, f"FROM changes_by(agent_id, '{period}')")
    assert_same(answer, changes(rows, lambda row: row["agent_id"], period))
    answer = ask(connection, f"FROM domain_changes('{period}')")
    assert_same(answer, domain_changes(rows, period))
    answer = ask(connection, f"FROM mean_changes('{period}')")
    assert_same(answer, mean_changes(rows, period))
    for row in answer:
        if row["mix"] is not None:
            parts = row["mix"] + row["within"] + row["came"] + row["went"]
            assert parts == pytest.approx(row["change"], abs=1e-11)
            assert isinstance(row["begins"], date)


def test_the_draws_have_what_is_compared() -> None:
    """That intervals are given and none, tasks shared and none, and that not all is one."""
    found = [means(drawn(seed)) for seed in range(24)]
    assert {row["low"] is None for row in found} == {True, False}
    pairs = [differences(drawn(seed), "agent_id", "a", "it's b")[0] for seed in range(24)]
    assert min(row["tasks"] for row in pairs) == 0
    assert sum(row["low"] is not None for row in pairs) >= 6
    beside = [differences_from_others(drawn(seed), "n_tools") for seed in range(24)]
    assert min(map(len, beside)) == 0
    assert {row["score_low"] is None for answer in beside for row in answer} == {True, False}
