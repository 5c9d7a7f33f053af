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
from tests.support.oracle import measures
from tests.support.oracle.answers import ask_records, assert_same, is_near
from tests.support.oracle.measures import MEASURES, USUAL, measured
from tests.support.oracle.scoring import composite, overridden
from tests.support.oracle.uncertainty import DIMENSIONS, OVERRIDES
from tests.support.read.means import create_questions

# Those of `code` are dated, and all others have those of `default`.
WEIGHTS = {"1": (0.25, 0.25, 0.25, 0.25), "2": (0.4, 0.1, 0.2, 0.3), "3": (0.1, 0.5, 0.4, 0.0)}
SEEDS = range(12)
BEGIN = datetime(2025, 12, 8, tzinfo=UTC)  # so that weeks and months go over the year's end


def drawn(seed: int) -> list[dict[str, Any]]:
    """Traces of few tasks, some attempted often; with ties, and at times nothing that varies."""
    chance = Random(seed)
    tasks, days = chance.choice([4, 12, 40, 4000]), chance.choice([3, 60])
    values = chance.choice([(0.5,), (0.1, 0.5), tuple(chance.random() for _ in range(50))])
    successes = chance.choice([(True,), (False,), (True, False)])
    return [
        _trace(
            chance,
            trace_id=f"{number}",
            created_at=BEGIN
            + timedelta(days=chance.randrange(days), seconds=chance.randrange(86_400)),
            objective_hash=f"task {int(tasks * chance.random() ** 2)}",
            success=chance.choice(successes),
            **{name: chance.choice(values) for name in DIMENSIONS},
        )
        for number in range(chance.choice([1, 60, 200]))
    ]


def _trace(chance: Random, **columns: Any) -> dict[str, Any]:
    domain = chance.choice(["code", "law", 'a "domain"'])
    is_dated = domain == "code"
    is_late = columns["created_at"] >= BEGIN + timedelta(days=12)
    row = {
        **columns,
        "task_domain": domain,
        "agent_id": chance.choice(["a", "it's b", None]),
        "framework": chance.choice(["x", None]),
        "source_skill": None,
        "profile": "code" if is_dated else "default",
        "profile_id": ("3" if is_late else "2") if is_dated else "1",
        "confidence": chance.choice((0, 0.5, 1)) * 1.0,
        "meets_threshold": chance.random() < 0.1,
        "cache_warming_up": columns["created_at"] < BEGIN + timedelta(days=chance.choice((1, 9))),
        "cache_group": None,
        "cached_vectors": 0,
        "max_similarity": chance.choice((None, 0.5, 0.95, 1.0)),
        "n_tools": chance.randrange(3),
        **{name: chance.random() < 0.2 for name in OVERRIDES},
    }
    value = composite(row, WEIGHTS[row["profile_id"]])
    return {**row, "composite": value, "score": overridden(row, value)}


def of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `trace_measures`; no cache holds any."""
    return [measured(row, row["created_at"].date(), WEIGHTS[row["profile_id"]], 0) for row in rows]


@pytest.fixture(scope="module", params=SEEDS)
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return drawn(request.param)


@contextmanager
def catalog(rows: list[dict[str, Any]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        create_macros(connection)
        connection.register("drawn", pl.DataFrame(rows, infer_schema_length=None).to_arrow())
        connection.execute("CREATE TABLE scores AS FROM drawn")
        weights = [(name, *each) for name, each in WEIGHTS.items()]
        connection.execute(
            "CREATE TABLE profiles (profile_id VARCHAR, complexity DOUBLE, novelty DOUBLE, "
            "tool_diversity DOUBLE, outcome_confidence DOUBLE)"
        )
        connection.executemany("INSERT INTO profiles VALUES (?, ?, ?, ?, ?)", weights)
        [measures_of_traces] = statements("questions", "trace_measures")
        connection.execute(measures_of_traces.replace("kp.", ""))
        create_questions(connection)
        yield connection


@pytest.fixture(scope="module")
def connection(rows: list[dict[str, Any]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with catalog(rows) as connection:
        yield connection


def test_the_measures_of_a_trace_and_its_parts_that_sum_to_its_score(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    answer = ask_records(connection, "FROM trace_measures")
    assert_same(answer, of(rows))
    for row in answer:
        parts = sum(value for name, value in row.items() if name.startswith("from_"))
        assert parts == pytest.approx(row["score"], abs=1e-12)


def test_means_and_their_intervals(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    keys = ["framework", "task_domain"]
    answer = ask_records(connection, f"FROM means_by({keys}, {[*MEASURES]})")
    assert_same(answer, measures.means_by(of(rows), keys, MEASURES))
    assert_same(
        ask_records(connection, "FROM means_by('everything', condition := success)"),
        measures.means_by([row for row in of(rows) if row["success"]], ["everything"], USUAL),
    )


def test_differences_on_the_tasks_that_both_tried(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    if {"a", "it's b"} <= {row["agent_id"] for row in rows}:
        query = f"FROM differences_by('agent_id', 'a', 'it''s b', {[*MEASURES]})"
        answer = ask_records(connection, query)
        wanted = measures.differences_by(of(rows), "agent_id", "a", "it's b", MEASURES)
        assert_same(answer, wanted)
        assert_parts(answer, "difference")


def assert_parts(answer: list[dict[str, Any]], of_what: str) -> None:
    """They sum to the difference in score, and only that has parts."""
    for row in answer:
        if row["parts"] and row[of_what] is not None:
            assert row["measure"] == "score"
            parts = sum(value or 0 for value in row["parts"].values())
            assert parts == pytest.approx(row[of_what], abs=1e-10)


@pytest.mark.parametrize("unit", ["agent_id", "tools", "framework"])
def test_differences_from_the_others_on_the_tasks_that_they_tried_too(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], unit: str
) -> None:
    names = ["success", "score", "overconfidence"]
    answer = ask_records(connection, f"FROM differences_from_others('{unit}', {names})")
    assert_same(answer, measures.differences_from_others(of(rows), unit, names))
    assert_parts(answer, "difference")
    answer = ask_records(
        connection, f"FROM differences_from_others('{unit}', ['score'], confidence > 0)"
    )
    some = [row for row in of(rows) if row["confidence"] > 0]
    assert_same(answer, measures.differences_from_others(some, unit, ["score"]))
    answer = ask_records(connection, f"FROM differences_from_others('{unit}', {names})")
    order = [(row["task_domain"], row[unit], names.index(row["measure"])) for row in answer]
    assert order == sorted(order)


def test_others_that_never_vary_do_not_do_so_by_the_order_of_a_sum() -> None:
    """Of n attempts at a task, b succeeds in some and c in the others: half of theirs do always."""
    chance = Random(0)
    rows = [
        _trace(
            chance,
            trace_id=f"{n} {hits} {attempt} {agent}",
            created_at=BEGIN,
            objective_hash=f"task {n} {hits}",
            success=attempt < successes,
            **dict.fromkeys(DIMENSIONS, 0.5),
        )
        | {"agent_id": agent, "task_domain": "code"}
        for n in range(3, 12)
        for hits in range(1, n)
        for agent, successes in (("a", n % hits), ("b", hits), ("c", n - hits))
        for attempt in range(n)
    ]
    with catalog(rows) as connection:
        answer = ask_records(connection, "FROM differences_from_others('agent_id', ['success'])")
    assert answer[0]["mean_of_others"] == pytest.approx(0.5)
    assert_same(answer, measures.differences_from_others(of(rows), "agent_id", ["success"]))


@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_changes_and_their_parts(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], period: str
) -> None:
    names = ["score", "overconfidence", "cache_warming_up"]
    answer = ask_records(connection, f"FROM changes_by('agent_id', '{period}', {names})")
    assert_same(answer, measures.changes_by(of(rows), ["agent_id"], period, names))
    assert_parts(answer, "change")
    some = [row for row in of(rows) if row["success"]]
    answer = ask_records(
        connection, f"FROM changes_by('agent_id', '{period}', condition := success)"
    )
    assert_same(answer, measures.changes_by(some, ["agent_id"], period, ["score"]))


@pytest.mark.parametrize("period", ["day", "month"])
@pytest.mark.parametrize("condition", ["true", "success"])
def test_changes_of_all_and_of_the_mix_of_domains(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], period: str, condition: str
) -> None:
    answer = ask_records(connection, f"FROM mean_changes('{period}', {condition})")
    some = [row for row in of(rows) if condition == "true" or row["success"]]
    wanted = {row["begins"]: row for row in measures.mean_changes(some, period)}
    assert len(answer) == len(wanted)
    for row in answer:
        oracle = wanted[row["begins"]]
        for name in ("mix", "within", "entered", "exited"):
            assert is_near(row[name], oracle[name]), name
        if row["mix"] is not None:
            parts = row["mix"] + row["within"] + row["entered"] + row["exited"]
            assert parts == pytest.approx(row["change"], abs=1e-11)
            assert isinstance(row["begins"], date)


@pytest.mark.parametrize(
    "query",
    [
        "FROM means_by('domain')",
        "FROM means_by(['task_domain'], ['scores'])",
        "FROM differences_by('agent', 'a', 'b')",
        "FROM changes_by('task_domain', 'weekk', condition := false)",
        "FROM mean_changes('fortnight', false)",
    ],
)
def test_what_is_no_column_is_refused(query: str) -> None:
    with catalog(drawn(2)) as connection, pytest.raises(duckdb.BinderException, match="not found"):
        ask_records(connection, query)


def test_names_are_whole_in_any_case_and_count_once() -> None:
    rows = drawn(2)
    with catalog(rows) as connection:
        for names in ("'single_thought'", "['Single_Thought']"):
            answer = ask_records(connection, f"FROM means_by({names}, ['score', 'Score'])")
            wanted = measures.means_by(of(rows), ["single_thought"], ["score"])
            assert_same(answer, wanted)
        twice = ask_records(
            connection, "FROM differences_by('profile', 'code', 'default', ['score', 'SCORE'])"
        )
        assert_same(
            twice, measures.differences_by(of(rows), "profile", "code", "default", ["score"])
        )


def test_the_draws_have_what_is_compared() -> None:
    """That intervals are given and none, tasks shared and none, and that each part is seen."""
    found = [of(drawn(seed)) for seed in SEEDS]
    means = [measures.means_by(rows, ["everything"], ["score"])[0] for rows in found]
    assert {row["low"] is None for row in means} == {True, False}
    pairs = [
        measures.differences_by(rows, "agent_id", "a", "it's b", ["score"])[0]
        for rows in found
        if {"a", "it's b"} <= {row["agent_id"] for row in rows}
    ]
    assert min(row["tasks"] for row in pairs) == 0
    assert sum(row["low"] is not None for row in pairs) >= 5
    changes = [
        row for rows in found for row in measures.changes_by(rows, ["framework"], "week", ["score"])
    ]
    parts = [row["parts"] for row in changes if row["parts"]]
    assert all(any(abs(each[name]) > 1e-3 for each in parts) for name in parts[0])
    assert {row["low"] is None for row in changes} == {True, False}
