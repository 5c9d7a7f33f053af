"""What the questions refuse, how they are listed, and that no other catalog answers them.

What they answer is in `tests/laws/test_questions.py`.
"""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.schemas import VIEWS
from kp_batch.warehouse.questions import columns, questions
from kp_batch.warehouse.reader import connect
from tests.support import ROOT
from tests.support.docs.pages import DOCS, blocks
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.full_warehouse import answering_warehouse
from tests.support.make.publications import publish_nothing
from tests.support.read.queries import ask

QUESTIONS = ROOT / "kp_batch" / "warehouse" / "sql" / "questions"
MACROS, MEANS = QUESTIONS.with_name("macros"), QUESTIONS.with_name("means")
PAGE = DOCS / "reference" / "questions.md"
MACRO = re.compile(r"^CREATE MACRO (\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answering_warehouse(tmp_path_factory.mktemp("questions"))


@pytest.mark.slow
def test_a_question_answers_the_same_in_any_zone(warehouse: Path) -> None:
    queries = [question.example for question in questions()]
    with connect(warehouse) as connection:
        connection.execute("SET threads = 1")  # sums have an order
        answers = [connection.execute(query).fetchall() for query in queries]
        for zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
            connection.execute(f"SET TimeZone = '{zone}'")
            for query, answer in zip(queries, answers, strict=True):
                assert connection.execute(query).fetchall() == answer, query


@pytest.mark.parametrize(
    "weights",
    ["1, 1, 1, 1", "0.5, 0.5, 0.25, -0.25", "0.25, 0.25, 0.25, 0.2500000011"],
)
def test_what_if_takes_the_weights_of_a_profile_alone(warehouse: Path, weights: str) -> None:
    with pytest.raises(duckdb.Error, match="weights of what_if must sum to 1, and none be below 0"):
        ask(warehouse, f"FROM what_if({weights})")


@pytest.mark.telling
@pytest.mark.slow
def test_drift_refuses_runs_that_are_not_there_or_do_not_compare(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id="t")])
    usual = {"archive": (str(tmp_path / "a.jsonl"),), "warehouse": tmp_path / "wh"}
    rescore_archive(RescoreConfig(**usual, embedder="hashing"))
    with pytest.raises(duckdb.Error, match=r"is null, as previous\(\) is after the first run"):
        ask(tmp_path / "wh", "FROM drift(previous(), latest())")
    rescore_archive(RescoreConfig(**usual, embedder="hashing", threshold=0.5))
    assert len(ask(tmp_path / "wh", "FROM drift(previous(), latest())")) == 2
    rescore_archive(RescoreConfig(**usual, embedder="none"))
    for query, message in (
        ("FROM drift(previous(), latest())", "do not compare: their encoders differ"),
        ("FROM drift('2026', latest())", "the full ids of two runs that are done"),
        ("FROM score_histogram(0)", "1 bin at least"),
        ("FROM threshold_curve(0)", "1 step at least"),
        ("FROM threshold_curve(0.05)", "1 step at least"),
        ("FROM threshold_curve(2.5)", "a whole number of steps"),
        ("FROM score_histogram(2.5)", "a whole number of bins"),
    ):
        with pytest.raises(duckdb.Error, match=message):
            ask(tmp_path / "wh", query)


def test_every_question_says_what_it_answers_and_is_among_them(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        views = "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        macros = (
            "SELECT function_name, comment FROM duckdb_functions() "
            "WHERE NOT internal AND schema_name = 'main' AND NOT contains(function_name, ' of ')"
        )
        comments = dict(connection.execute(f"{views} UNION ALL {macros}").fetchall())
    names = {path.stem for path in QUESTIONS.glob("*.sql")}
    files = [*MACROS.glob("*.sql"), *MEANS.glob("*.sql")]
    formulas = {name for path in files for name in MACRO.findall(path.read_text())}
    assert comments.keys() == names | formulas | set(VIEWS)
    assert all(comments[name] for name in formulas)
    for name in names:
        assert "?" in comments[name], f"{name}: its comment has no question mark"


@pytest.mark.telling
@pytest.mark.slow
def test_every_question_has_an_example_with_an_answer(warehouse: Path) -> None:
    listed = questions()
    assert {question.name for question in listed} == {path.stem for path in QUESTIONS.glob("*.sql")}
    with connect(warehouse) as connection:
        for question in listed:
            assert question.name in question.example
            assert connection.execute(question.example).fetchall(), question


@pytest.mark.slow
def test_the_examples_of_the_page_have_answers(warehouse: Path) -> None:
    examples = "".join(block.text for block in blocks(PAGE) if block.language == "sql")
    queries = [query.strip() for query in examples.split(";") if query.strip()]
    assert len(queries) >= len(list(QUESTIONS.glob("*.sql")))
    with connect(warehouse) as connection:
        for query in queries:
            assert connection.execute(query).fetchall(), query


def test_what_is_listed_of_a_question_is_what_the_catalog_has(warehouse: Path) -> None:
    known = {question.name: question for question in questions()}
    with connect(warehouse) as connection:
        views = "SELECT view_name, comment FROM duckdb_views()"
        macros = "SELECT function_name, comment FROM duckdb_functions() WHERE schema_name = 'main'"
        comments = dict(connection.execute(f"{views} UNION ALL {macros}").fetchall())
        assert {name: comments[name] for name in known} == {
            name: question.comment for name, question in known.items()
        }
        types = columns(known["score_histogram"], connection)
    assert types == {
        "task_domain": "VARCHAR",
        "low": "DOUBLE",
        "high": "DOUBLE",
        "traces": "BIGINT",
    }
    assert known["score_histogram"].call == "score_histogram(bins)"


CALLED = (
    "SELECT {0}latest(), {0}previous()",
    "FROM {0}drift({0}previous(), {0}latest())",
    "FROM {0}what_if(0.1, 0.2, 0.3, 0.4) ORDER BY ALL",
    "FROM {0}near_repeats(0.9)",
    "FROM {0}score_histogram(20)",
    "FROM {0}threshold_curve(4)",
    "FROM {0}profile_comparison ORDER BY ALL",
    "SELECT {0}score_bins(score), {0}stability_index([1, 2], [3, 4]) FROM {0}scores",
    "SELECT {0}apply_overrides(composite, true, true, true) FROM {0}scores",
)


def called(connection: duckdb.DuckDBPyConnection, catalog: str = "") -> list[list[Any]]:
    return [connection.execute(call.format(catalog)).fetchall() for call in CALLED]


@pytest.fixture(scope="module")
def answers(warehouse: Path) -> list[list[Any]]:
    """What is called of the catalog alone, opened by any DuckDB."""
    with duckdb.connect(str(warehouse / "kp.duckdb"), read_only=True) as connection:
        return called(connection)


def test_questions_ask_for_the_views_of_the_catalog_alone() -> None:
    """Another name would find a user's table of that name."""
    unqualified = re.compile(rf"^[^'\n]*\b(?:FROM|JOIN) (?:{'|'.join(VIEWS)})\b", re.MULTILINE)
    paths = [*QUESTIONS.glob("*.sql")]
    assert len(paths) > 20
    for path in paths:
        assert not unqualified.findall(path.read_text("utf-8")), (
            f"{path.name}: write kp. before the names of views"
        )


# Each way to ask the views: by a view, by a view of a macro, by a macro of macros.
ASKED = {
    "largest_score_differences": "FROM $.largest_score_differences",
    "dated_weights": "FROM $.dated_weights",
    "rejects_by_code": "FROM $.rejects_by_code",
    "mean_changes": "FROM mean_changes('week')",
    "latest": "SELECT latest()",
}


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("alias", ["kp", "nightly"])
def test_a_table_of_the_user_hides_no_view_from_the_questions(warehouse: Path, alias: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # sums have an order
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS {alias} (READ_ONLY)")
        connection.execute(f"USE {alias}")
        asked = {name: query.replace("$", f"{alias}.main") for name, query in ASKED.items()}
        answers = {name: connection.sql(query).fetchall() for name, query in asked.items()}
        for name in VIEWS:
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM {alias}.main.{name} LIMIT 1")
        assert connection.sql("SELECT count(*) FROM scores").fetchall() == [(1,)]
        assert len(set(map(str, answers.values()))) == len(ASKED)
        for name, query in asked.items():
            rows = connection.sql(query).fetchall()
            assert str(sorted(map(str, rows))) == str(sorted(map(str, answers[name]))), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alias", "use", "catalog"),
    [("kp", "kp", "kp."), ("kp", "kp", ""), ("other", "other", ""), ("other", "other", "other.")],
)
def test_the_catalog_answers_the_same_where_it_is_attached(
    warehouse: Path, answers: list[list[Any]], alias: str, use: str, catalog: str
) -> None:
    assert all(answers)
    listed = questions()
    names = re.compile(rf"\b({'|'.join(question.name for question in listed)})\b")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS {alias} (READ_ONLY)")
        connection.execute(f"USE {use}")
        assert called(connection, catalog) == answers
        for question in listed:
            example = names.sub(rf"{catalog}\1", question.example)
            assert connection.execute(example).fetchone(), example


def test_a_catalog_whose_file_is_called_otherwise_answers_where_it_is_used(
    warehouse: Path, answers: list[list[Any]], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((warehouse / "kp.duckdb").read_bytes())
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert called(connection) == answers


def test_no_catalog_answers_from_another_one_that_is_called_kp(
    warehouse: Path, tmp_path: Path
) -> None:
    publish_nothing(tmp_path)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'kp.duckdb'}' AS kp (READ_ONLY)")
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS other (READ_ONLY)")
        for query in CALLED[:6]:
            with pytest.raises(duckdb.CatalogException, match=r" of \w+ does not exist"):
                connection.execute(query.format("other."))


def test_no_catalog_answers_from_that_of_another_copy_of_its_warehouse(tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    publish_nothing(tmp_path)
    copy.write_bytes((tmp_path / "kp.duckdb").read_bytes())
    publish_nothing(tmp_path, threshold=0.8)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'kp.duckdb'}' AS kp (READ_ONLY)")
        connection.execute(f"ATTACH '{copy}' AS other (READ_ONLY)")
        connection.execute("USE other")
        with pytest.raises(duckdb.CatalogException, match=r" of \w+ does not exist"):
            connection.execute("FROM kp.score_histogram(20)")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (
            "differences_by('agent_id', 'patchwork-a', 'patchwork-a')",
            "two different values, neither of them null",
        ),
        ("differences_by('agent_id', 'ops', NULL)", "two different values, neither of them null"),
        ("differences_by('agent_id', 'patchwork-a', 'ops')", "no trace has ops, which was to be"),
        ("differences_by('framework', 'no one', 'langgraph')", "no trace has no one, which was"),
        ("changes_by('agent_id', 'fortnight')", 'Column "fortnight" was selected but was not'),
        ("novelty_by('luck')", "novelty goes by age, similarity or repetition"),
        ("mean_changes('fortnight')", 'Column "fortnight" was selected but was not'),
        ("changes_by('task_domain', NULL)", "COLUMNS expects"),
    ],
)
def test_questions_refuse_what_they_cannot_compare(
    warehouse: Path, question: str, reason: str
) -> None:
    with pytest.raises(duckdb.Error, match=reason):
        ask(warehouse, f"FROM {question}")
