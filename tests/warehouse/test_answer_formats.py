"""Answers of `sql` as data: CSV and JSON that hold what the query gave, exactly."""

import csv
import json
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kp_batch.cli import kp_batch as group
from kp_batch.cli.query import sql  # noqa: F401 (it adds the command)
from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.answer_formats import frame_answer, write_answer
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import publish_nothing
from tests.support.make.runs import config

BIG = Decimal("12345678901234567890.123")
VALUES: list[tuple[str, str, Any]] = [
    ("1.50::DECIMAL(5, 2)", "1.50", Decimal("1.50")),
    ("0::DECIMAL(38, 20)", f"0.{'0' * 20}", 0),
    ("12345678901234567890.123::DECIMAL(38, 3)", "12345678901234567890.123", BIG),
    (
        "MAP {DATE '2026-01-31': 1.5::DECIMAL(4, 1)}",
        '{"2026-01-31": 1.5}',
        {"2026-01-31": Decimal("1.5")},
    ),
    ("MAP {1: 'a', 2: NULL}", '{"1": "a", "2": null}', {"1": "a", "2": None}),
    ("MAP {true: 1}", '{"true": 1}', {"true": 1}),
    ("MAP {'': {'a': DATE '2026-01-31'}}", '{"": {"a": "2026-01-31"}}', {"": {"a": "2026-01-31"}}),
    (r"'a\xFFb\x5C'::BLOB", r"a\xFFb\x5C", r"a\xFFb\x5C"),
    ("[1.5::DECIMAL(3, 1), NULL]", "[1.5, null]", [Decimal("1.5"), None]),
    ("['NaN'::DOUBLE, 1]", "[null, 1.0]", [None, 1]),
    ("['inf'::DOUBLE]", "[null]", [None]),
    ("'a,b'", "a,b", "a,b"),
    ("'say \"a\"\nand b'", 'say "a"\nand b', 'say "a"\nand b'),
    ("'médical'", "médical", "médical"),
    ("true", "True", True),
    ("TIMESTAMP '2026-01-31 12:00:00'", "2026-01-31 12:00:00", "2026-01-31 12:00:00"),
]


def answered(query: str, output_format: str) -> str:
    out = StringIO()
    with duckdb.connect() as connection:
        write_answer(connection, query, output_format, out, 80)
    return out.getvalue()


@pytest.mark.parametrize(("value", "in_csv", "in_json"), VALUES, ids=lambda value: str(value)[:30])
def test_each_kind_of_value_is_written_in_csv_and_json(
    value: str, in_csv: str, in_json: Any
) -> None:
    query = f"SELECT {value} AS one, 2 AS two"
    assert list(csv.reader(StringIO(answered(query, "csv")))) == [["one", "two"], [in_csv, "2"]]
    [row] = json.loads(answered(query, "json"), parse_float=Decimal)
    assert row == {"one": in_json, "two": 2}


def test_csv_writes_null_and_an_empty_text_as_duckdb_does() -> None:
    query = "SELECT * FROM (VALUES (NULL, '', 1), ('', NULL, 2)) AS t(a, b, c)"
    assert answered(query, "csv") == 'a,b,c\n,"",1\n"",,2\n'


@pytest.mark.parametrize(
    ("value", "is_value"),
    [
        ("340282366920938463463374607431768211455::UHUGEINT", str(2**128 - 1)),
        ("99999999999999999999999999999999999999::HUGEINT", Decimal(10**38 - 1)),
        ("sum(7::BIGINT)", Decimal(7)),
        ("NULL::UHUGEINT", None),
        ("[1::UHUGEINT, NULL]", ["1", None]),
        ("[1::UHUGEINT, NULL]::UHUGEINT[2]", ["1", None]),
        ("{'hugeint': 7::HUGEINT, 'B \"b': 8::UHUGEINT}", {"hugeint": Decimal(7), 'B "b': "8"}),
        ("MAP {1::UHUGEINT: 2::HUGEINT}", {"1": Decimal(2)}),
    ],
)
def test_a_frame_has_integers_of_128_bits_to_the_last_digit(value: str, is_value: Any) -> None:
    with duckdb.connect() as connection:
        frame = frame_answer(connection, f"SELECT {value} AS one, 2 AS two")
        assert frame.to_dicts() == [{"one": is_value, "two": 2}]


def test_a_frame_with_an_integer_of_39_digits_is_refused() -> None:
    beyond = f"{2**127 - 1}::HUGEINT"
    with duckdb.connect() as connection, pytest.raises(KpBatchError, match="VARCHAR, its text"):
        frame_answer(connection, f"SELECT {beyond} AS one")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    folder = tmp_path_factory.mktemp("scored")
    settings = config(folder, write_jsonl(folder / "a.jsonl", [trace(id="t")]))
    rescore_archive(settings)
    return settings


@pytest.mark.parametrize("output_format", ["table", "line", "csv", "json"])
def test_rows_fail_a_query_that_is_to_have_none_and_are_printed(
    scored: RescoreConfig, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    form = ["--json"] if output_format == "json" else ["--format", output_format]

    def ask(query: str, *options: str) -> str:
        words = ["--warehouse", str(scored.warehouse), *form, *options]
        group.main(["sql", query, *words], standalone_mode=False)
        return capsys.readouterr().out

    none, one = "FROM scores WHERE score > 1", "SELECT trace_id FROM scores"
    output = ask(one)
    ask(none, "--fail-if-rows")
    capsys.readouterr()
    with pytest.raises(
        KpBatchError, match=r"^the query of --fail-if-rows returned rows; see its output$"
    ):
        ask(one, "--fail-if-rows")
    assert capsys.readouterr().out == output
    if output_format in {"table", "line"}:
        with pytest.raises(KpBatchError):
            ask(f"{one}; {none}", "--fail-if-rows")


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("FROM drift", "ask drift(run_a, run_b) as in: FROM drift(previous(), latest())"),
        ("SELECT drift(1, 2)", "ask drift(run_a, run_b) as in: FROM drift(previous(), latest())"),
        ("FROM drift(previous, 1)", "ask previous() as in: SELECT previous()"),
        ("FROM score_distribution()", "ask score_distribution as in: FROM score_distribution"),
        ("FROM nothing", None),
    ],
)
def test_a_question_that_is_asked_wrongly_is_shown_with_its_arguments(
    tmp_path: Path, query: str, asked: str | None
) -> None:
    publish_nothing(tmp_path)
    with connect(tmp_path) as connection, pytest.raises(KpBatchError) as refused:
        write_answer(connection, query, "csv", StringIO(), 80)
    message = str(refused.value)
    if asked:
        assert message.endswith(f"\n{asked}")
    assert ("Did you mean" not in message) == (asked is not None)
    assert "Candidate bindings" not in message


@pytest.mark.parametrize(("rows", "times"), [(5_000, 1), (5_001, 2)])
def test_an_answer_whose_rows_are_not_all_shown_is_asked_once_up_to_a_bound(
    rows: int, times: int
) -> None:
    asked: list[int] = []

    def is_asked(row: int) -> bool:
        asked.append(row)
        return True

    out = StringIO()
    with duckdb.connect() as connection:
        connection.create_function("is_asked", is_asked, ["BIGINT"], "BOOLEAN")
        write_answer(connection, f"FROM range({rows}) WHERE is_asked(range)", "table", out, 100)
    assert len(asked) == times * rows
    assert f"{rows:,} rows, the first 100 of them shown" in out.getvalue()
