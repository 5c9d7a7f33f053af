"""Every view and every question answers as plain loops over the archive do."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kp_batch.schemas import VIEWS
from kp_batch.warehouse.questions import questions
from kp_batch.warehouse.reader import connect
from tests.support.make.drawn_scores import opened
from tests.support.make.scores_at_bounds import scores_at_bounds
from tests.support.oracle.answers import ask_records, assert_same
from tests.support.oracle.history import History, State
from tests.support.oracle.questions import (
    ANSWERS,
    ARGUMENTS,
    call,
    distributions,
    drift,
    rejects,
    rejects_by_code,
)
from tests.support.oracle.scoring import DIMENSIONS, Settings

STATES = ("none", "hashing", "pruned", "grouped")
CALLS = [(name, arguments) for name in ANSWERS for arguments in ARGUMENTS.get(name, [()])]
# Of these columns the documentation states what another test asks.
UNSTATED = {"profile_id", "other_profile_id"}
OF_ALL_PROFILES = {"dated_weights", "profile_comparison"}


@pytest.fixture(scope="module")
def connections(history: History) -> Iterator[list[duckdb.DuckDBPyConnection]]:
    """To the tables as each run left them."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(connect(history.warehouse, state.run_id))
            for state in history.states
        ]


def test_every_question_and_every_view_has_an_oracle() -> None:
    here = {"drift", "latest", "previous", "rejects_by_code"}
    assert {question.name for question in questions()} == ANSWERS.keys() | here, (
        "answer it in ANSWERS of tests/support/oracle/questions.py"
    )
    assert {f"test_the_view_{name}" for name in VIEWS} <= globals().keys()
    with_arguments = {each.name for each in questions() if "(" in each.call} - here
    assert with_arguments == ARGUMENTS.keys()


@pytest.mark.parametrize("at", range(len(STATES)), ids=STATES)
@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_law_a_question_answers_as_its_oracle(
    history: History,
    connections: list[duckdb.DuckDBPyConnection],
    name: str,
    arguments: tuple[Any, ...],
    at: int,
) -> None:
    rows = ask_records(connections[at], call(name, arguments))
    assert_same(rows, ANSWERS[name](history.states[at], *arguments), UNSTATED)


@pytest.mark.telling
@pytest.mark.slow
def test_law_a_drawn_archive_answers_as_its_oracle(by_chance: History) -> None:
    history, before = by_chance, dict[str, dict[str, object]]()
    for state in history.states:
        with connect(history.warehouse, state.run_id) as connection:
            before = assert_scores(connection, state, before)
            for name, arguments in CALLS:
                rows = ask_records(connection, call(name, arguments))
                assert_same(rows, ANSWERS[name](state, *arguments), UNSTATED)
            assert_same(
                ask_records(connection, "FROM rejects_by_code"),
                rejects_by_code(state),
                {"rejected_on"},
            )
    with connect(history.warehouse) as connection:
        assert_same(ask_records(connection, "FROM distributions"), distributions(history.states))
        rows = ask_records(connection, "FROM drift(previous(), latest())")
        assert_same(rows, drift(history, *history.statuses))


@pytest.mark.telling
@pytest.mark.slow
def test_law_so_do_they_at_the_bounds_of_what_they_tell_apart(tmp_path: Path) -> None:
    state = scores_at_bounds(tmp_path)
    with opened(tmp_path) as connection:
        for name, arguments in CALLS:
            if name not in OF_ALL_PROFILES:
                rows = ask_records(connection, call(name, arguments))
                assert_same(rows, ANSWERS[name](state, *arguments), UNSTATED)


def test_the_ids_of_weights_are_those_of_the_profiles_that_have_them(
    connections: list[duckdb.DuckDBPyConnection],
) -> None:
    dated = f"""
        FROM dated_weights AS a LEFT JOIN profiles AS b USING (profile_id, name)
        WHERE ({_of("a")}) IS DISTINCT FROM ({_of("b")})
    """
    compared = f"""
        FROM profile_comparison AS a JOIN scores AS s USING (trace_id)
        LEFT JOIN profiles AS b ON b.profile_id = other_profile_id AND b.name = other_profile
        WHERE other_score IS DISTINCT FROM apply_overrides(
            composite({_of("s")}, {_of("b")}),
            s.single_thought, s.recovery_bonus, s.low_diversity_penalty
        )
    """
    for connection in connections:
        assert ask_records(connection, dated) == ask_records(connection, compared) == []


def _of(table: str) -> str:
    """The dimensions in a table, or their weights."""
    return ", ".join(f"{table}.{name}" for name in DIMENSIONS)


def test_the_furthest_difference_is_the_first_answer(
    connections: list[duckdb.DuckDBPyConnection],
) -> None:
    for connection in connections:
        rows = ask_records(connection, "FROM largest_score_differences")
        sizes = [abs(row["difference"]) for row in rows]
        assert sizes == sorted(sizes, reverse=True)


def test_between_any_two_runs_the_distributions_shifted_so(history: History) -> None:
    runs = list(history.statuses)
    with connect(history.warehouse) as connection:
        for first in runs:
            for second in runs:
                if reason := _incomparable(history, first, second):
                    with pytest.raises(duckdb.Error, match=reason):
                        ask_records(connection, "FROM drift(?, ?)", first, second)
                    continue
                rows = ask_records(connection, "FROM drift(?, ?)", first, second)
                assert_same(rows, drift(history, first, second))


def _incomparable(history: History, *runs: str) -> str | None:
    """Why they are not compared."""
    if any(history.statuses[run] != "done" for run in runs):
        return "runs that are done|their encoders differ"  # either is said first
    embedders = {each.settings.embedder for each in history.states if each.run_id in runs}
    return "their encoders differ" if len(embedders) > 1 else None


def test_the_latest_run_and_the_previous_one_are_those_that_are_done(
    history: History, connections: list[duckdb.DuckDBPyConnection]
) -> None:
    done = [None, *(state.run_id for state in history.states)]
    for number, connection in enumerate(connections, 1):
        answer = ask_records(connection, "SELECT latest() AS latest, previous() AS previous")
        assert answer == [{"latest": done[number], "previous": done[number - 1]}]


def test_the_rejects_are_counted_by_file_and_code(
    history: History, connections: list[duckdb.DuckDBPyConnection]
) -> None:
    for state, connection in zip(history.states, connections, strict=True):
        rows = ask_records(connection, "FROM rejects_by_code")
        days = {row["rejected_on"] for row in rows}
        assert {f"{day:%Y%m%d}" for day in days} <= {run[:8] for run in history.statuses}
        assert_same(rows, rejects_by_code(state), {"rejected_on"})


def test_the_view_scores(history: History, connections: list[duckdb.DuckDBPyConnection]) -> None:
    """To the bit."""
    before: dict[str, dict[str, object]] = {}
    for state, connection in zip(history.states, connections, strict=True):
        before = assert_scores(connection, state, before)


def assert_scores(
    connection: duckdb.DuckDBPyConnection, state: State, before: dict[str, dict[str, object]]
) -> dict[str, dict[str, object]]:
    """The rows of scores, which are those of the oracle; `before` are those of the last run."""
    rows = {row["trace_id"]: row for row in ask_records(connection, "FROM scores")}
    assert rows.keys() == {row["trace_id"] for row in state.scores}
    names = {row["profile_id"]: row["name"] for row in ask_records(connection, "FROM profiles")}
    encoder, cache = _ids(state.settings)
    for wanted in state.scores:
        row = rows[wanted["trace_id"]]
        stated = {name: value for name, value in wanted.items() if name != "vector"}
        assert {name: row[name] for name in stated} == stated
        assert names[row["profile_id"]] == row["profile"]
        assert row["encoder_id"].startswith(encoder)
        assert row["cache_id"].startswith(cache)
        _assert_run(row, before.get(row["trace_id"]), state.run_id)
        assert row.keys() == stated.keys() | {"run_id", "profile_id", "encoder_id", "cache_id"}
    return rows


def _ids(settings: Settings) -> tuple[str, str]:
    if settings.embedder == "none":
        return "none", "none"
    ttl = "none" if settings.ttl is None else f"{settings.ttl // timedelta(minutes=1)}m"
    ttl = {"60m": "1h", "600m": "10h"}.get(ttl, ttl)
    return "hashing-384-v", f"fifo-{settings.cache_size}-ttl-{ttl}-v"


def _assert_run(row: dict[str, object], old: dict[str, object] | None, run_id: str) -> None:
    """A row that differs is of this run; one that does not, of this one or as it was."""
    of_the_view = {"run_id", "meets_threshold"}
    same = old is not None and all(row[name] == old[name] for name in row.keys() - of_the_view)
    assert row["run_id"] in ((run_id, old["run_id"]) if same and old else (run_id,))


def test_the_view_rejects(history: History, connections: list[duckdb.DuckDBPyConnection]) -> None:
    for state, connection in zip(history.states, connections, strict=True):
        rows = ask_records(connection, "FROM rejects")
        assert_same(rows, rejects(state), {"task_domain", "message", "raw", "run_id"})
        assert all(row["message"] for row in rows)
        assert {row["run_id"] for row in rows} <= history.statuses.keys()


def test_the_view_profiles(history: History, connections: list[duckdb.DuckDBPyConnection]) -> None:
    for state, connection in zip(history.states, connections, strict=True):
        rows = ask_records(connection, "FROM profiles")
        assert len({row["profile_id"] for row in rows}) == len(rows)
        begins = {
            (row["name"], begin): tuple(row[name] for name in DIMENSIONS)
            for row in rows
            for begin in row["valid_from"]
        }
        assert begins == {
            (name, begin): weights
            for name, versions in state.settings.versions.items()
            for begin, weights in versions
        }


def test_the_view_runs(history: History) -> None:
    with connect(history.warehouse) as connection:
        rows = ask_records(connection, "FROM runs ORDER BY number")
    assert {row["run_id"]: row["status"] for row in rows} == history.statuses
    assert [row["number"] for row in rows] == [*range(1, len(rows) + 1)]
    assert all((row["reason"] is None) == (row["status"] == "done") for row in rows)
    assert all(row["started_at"] <= row["finished_at"] <= datetime.now(UTC) for row in rows)
    of_run = {row["run_id"]: row for row in rows}
    for state in history.states:
        row, count = of_run[state.run_id], state.count
        config, counts = json.loads(row["config"]), json.loads(row["counts"])
        assert config["threshold"] == state.settings.threshold
        assert config["cache_size"] == state.settings.cache_size
        stated = {
            "rows": count.rows,
            "accepted": len(state.scores),
            "duplicates": count.duplicates,
            "superseded": count.superseded,
            "rejected": count.faulty,
            "rows_kept": count.kept,
        }
        assert {name: counts[name] for name in stated} == stated


def test_the_view_files(history: History, connections: list[duckdb.DuckDBPyConnection]) -> None:
    for state, connection in zip(history.states, connections, strict=True):
        rows = {row["source_file"]: row for row in ask_records(connection, "FROM files")}
        assert {path: row["status"] for path, row in rows.items()} == {
            path: file.status for path, file in state.files.items()
        }
        for path, row in rows.items():
            assert bool(row["reasons"]) == bool(row["message"]) == (row["status"] == "unreadable")
            assert json.loads(row["path_keys"]) == _path_keys(path)


def _path_keys(path: str) -> dict[str, str]:
    folder = Path(path).parent.name
    return {"host": folder[5:].replace("%2F", "/")} if folder.startswith("host=") else {}


def test_the_view_distributions(history: History) -> None:
    with connect(history.warehouse) as connection:
        rows = ask_records(connection, "FROM distributions")
    done = [row for row in rows if history.statuses[row["run_id"]] == "done"]
    assert_same(done, distributions(history.states))
