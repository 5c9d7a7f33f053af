"""Delta tables and the catalog over what is published of them."""

import io
import json
import re
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.schemas import REJECTS, TABLES, VIEWS
from kp_batch.warehouse.answer_formats import write_answer
from kp_batch.warehouse.layout import TABLE_NAMES, check_folder
from kp_batch.warehouse.publication import rebuild
from kp_batch.warehouse.reader import connect
from tests.support.make.publications import (
    Draft,
    files_of,
    profile,
    publish_nothing,
    publish_profile,
)
from tests.support.processes.holder import holding
from tests.support.read.errors import fails_with


def published_names(warehouse: Path) -> list[str]:
    with connect(warehouse) as connection:
        return [name for (name,) in connection.execute("FROM profiles SELECT name").fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["it's", "é 日本 {y} #*&$!"])
def test_any_folder_name_works(tmp_path: Path, name: str) -> None:
    warehouse = tmp_path / name
    publish_profile(warehouse, "one")
    publish_profile(warehouse, "two")
    assert published_names(warehouse) == ["two"]
    builder = QueryBuilder().register("t", DeltaTable(warehouse / "profiles"))
    exported = pl.DataFrame(builder.execute("SELECT name FROM t").read_all())
    assert exported["name"].to_list() == ["two"]


@pytest.mark.parametrize("name", ["50%41", "a?b", "a[1]", "a^b", "a|b", "a\\b", "a\nb"])
def test_a_folder_that_delta_misreads_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WarehouseError, match="choose another folder"):
        check_folder(tmp_path / name)


def test_every_table_has_a_folder() -> None:
    assert list(TABLES) == list(TABLE_NAMES)


def test_an_open_reader_keeps_its_tables_and_a_new_one_sees_the_new(tmp_path: Path) -> None:
    publish_profile(tmp_path, "old")
    beside = tmp_path / "beside.duckdb"  # one process holds one instance of a path
    (tmp_path / "kp.duckdb").rename(beside)
    with duckdb.connect(str(beside), read_only=True) as reader:
        publish_profile(tmp_path, "new")
        assert reader.execute("SELECT name FROM profiles").fetchall() == [("old",)]
    assert published_names(tmp_path) == ["new"]


def test_views_of_missing_and_empty_tables_have_no_rows(tmp_path: Path) -> None:
    draft = Draft(tmp_path)
    draft.overwrite("rejects", REJECTS.to_frame())
    draft.publish()
    with connect(tmp_path) as connection:
        for name in VIEWS:
            assert connection.execute(f"SELECT * FROM {name}").fetchall() == []
        [(kind,)] = connection.execute(
            "SELECT typeof(created_at) FROM scores UNION ALL "
            "SELECT column_type FROM (DESCRIBE scores) "
            "WHERE column_name = 'created_at'"
        ).fetchall()
    assert kind == "TIMESTAMP WITH TIME ZONE"


def test_every_view_says_what_it_is(tmp_path: Path) -> None:
    publish_nothing(tmp_path)
    with connect(tmp_path) as connection:
        comments = dict(
            connection.execute(
                "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
            ).fetchall()
        )
    assert comments.keys() > set(VIEWS)
    assert all(comments.values())


def test_the_rows_of_a_frame_keep_their_order(tmp_path: Path) -> None:
    chunks = [
        pl.DataFrame({"id_hash": [f"{chunk:03}-{row:03}" for row in range(500)]})
        for chunk in range(60)
    ]
    draft = Draft(tmp_path)
    draft.overwrite("forgotten", pl.concat(chunks, rechunk=False))
    frame = draft.snapshot.scan("forgotten").collect()
    assert frame.get_column("id_hash").is_sorted()


def test_no_log_has_a_value_of_any_row(tmp_path: Path) -> None:
    for _ in range(2):
        draft = Draft(tmp_path)
        draft.overwrite("profiles", profile("kp:trace:secret"))
        draft.append("profiles", profile("kp:trace:secret"))
        draft.publish()
    DeltaTable(tmp_path / "profiles").create_checkpoint()
    logs = [*(tmp_path / "profiles" / "_delta_log").iterdir(), *(tmp_path / "log").rglob("*.json")]
    assert {log.suffix for log in logs} >= {".json", ".parquet"}
    assert not [log for log in logs if b"kp:trace:secret" in log.read_bytes()]
    stated = [
        action["add"]["stats"]
        for log in logs
        if log.suffix == ".json" and log.parent.name == "_delta_log"
        for action in map(json.loads, log.read_text("utf-8").splitlines())
        if "add" in action
    ]
    assert stated == ['{"numRecords":1}'] * 4
    assert any(b"kp:trace:secret" in path.read_bytes() for path in files_of(tmp_path, "profiles"))


HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE mine AS SELECT 1")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.telling
@pytest.mark.process
def test_somebody_who_writes_into_the_catalog_locks_nobody_out(tmp_path: Path) -> None:
    publish_profile(tmp_path, "one")
    with holding(HOLD, tmp_path / "kp.duckdb"):  # and killed, leaving a write-ahead log behind
        assert published_names(tmp_path) == ["one"]
        publish_profile(tmp_path, "two")
        assert published_names(tmp_path) == ["two"]
    assert published_names(tmp_path) == ["two"]
    publish_profile(tmp_path, "three")
    with duckdb.connect(str(tmp_path / "kp.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT name FROM profiles").fetchall() == [("three",)]


def test_a_folder_without_tables_is_no_warehouse(tmp_path: Path) -> None:
    with fails_with(WarehouseError, "no_warehouse"), connect(tmp_path):
        pass
    with fails_with(WarehouseError, "no_warehouse"):
        rebuild(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("other", ["sub/../wh", "link"])
def test_another_way_to_the_same_folder_is_no_move(tmp_path: Path, other: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "wh")
    publish_profile(tmp_path / other if other != "link" else tmp_path / "wh", "one")
    assert published_names(tmp_path / "wh") == ["one"]
    assert published_names(tmp_path / other) == ["one"]


def test_a_url_is_no_warehouse() -> None:
    with pytest.raises(WarehouseError, match="is not supported; name a local folder"):
        check_folder(Path("s3://bucket/wh"))


def test_a_frame_of_another_schema_is_refused(tmp_path: Path) -> None:
    draft = Draft(tmp_path)
    with pytest.raises(TypeError, match="the table profiles has the schema"):
        draft.overwrite("profiles", pl.DataFrame({"name": ["x"]}))
    assert not [*tmp_path.rglob("*.parquet")]


def answer(warehouse: Path, query: str, output_format: str, width: int = 80) -> str:
    out = io.StringIO()
    with connect(warehouse) as connection:
        write_answer(connection, query, output_format, out, width)
    return out.getvalue()


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse in which nothing is published."""
    folder = tmp_path_factory.mktemp("nothing")
    publish_nothing(folder)
    return folder


def test_answers_as_csv_and_json(tmp_path: Path) -> None:
    publish_profile(tmp_path, 'a "name", with\ncommas')
    query = "SELECT name, 0.5::DOUBLE AS half FROM profiles"
    assert answer(tmp_path, query, "csv") == 'name,half\n"a ""name"", with\ncommas",0.5\n'
    expected = '[\n{"name": "a \\"name\\", with\\ncommas", "half": 0.5}\n]\n'
    assert answer(tmp_path, query, "json") == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0.5916723898322814::DOUBLE", "0.5917"),
        ("2475.54321::DOUBLE", "2475.5432"),
        ("0.0123456::DOUBLE", "0.01235"),
        ("-1.23456e-7::DOUBLE", "-1.235e-07"),
        ("5e-324::DOUBLE", "5e-324"),
        ("'inf'::DOUBLE", "inf"),
        ("0.0::DOUBLE", "0.0"),
        ("0.123456::FLOAT", "0.1235"),
        ("[0.123456::DOUBLE, NULL]", "[0.1235, NULL]"),
        ("0.123456::DECIMAL(7, 6)", "0.123456"),
        ("1234567890123", "1234567890123"),
        ("TIMESTAMP '2026-01-05 08:00:00.123456'", "2026-01-05 08:00:00.123456"),
        ("NULL", "NULL"),
    ],
)
def test_numbers_are_rounded_for_reading_and_none_becomes_0(
    nothing: Path, value: str, shown: str
) -> None:
    query = f'SELECT {value} AS "the ""value"""'
    assert answer(nothing, query, "line") == f'the "value"  {shown}\n\n1 row\n'
    assert f"│ {shown} │" in re.sub(" +", " ", answer(nothing, query, "table"))


def test_csv_and_json_are_exact(nothing: Path) -> None:
    query = "SELECT 0.5916723898322814::DOUBLE AS a"
    assert answer(nothing, query, "csv") == "a\n0.5916723898322814\n"
    assert answer(nothing, query, "json") == '[\n{"a": 0.5916723898322814}\n]\n'


def test_a_table_that_does_not_fit_becomes_lines_and_hides_no_column(nothing: Path) -> None:
    query = "SELECT repeat('x', 40) AS a, NULL AS bb, repeat('é', 20) AS a FROM range(2)"
    row = f"a   {'x' * 40}\nbb  NULL\na   {'é' * 20}\n"
    lines = f"{row}\n{row}\n2 rows\n"
    table = answer(nothing, query, "table", 76)
    assert {len(line) for line in table.splitlines()} == {76}
    assert answer(nothing, query, "table", 75) == lines
    assert answer(nothing, query, "line", 76) == lines


def test_no_value_looks_like_another_one_or_rules_the_terminal(nothing: Path) -> None:
    query = "SELECT E'x\ny  1' || chr(27) AS a, 2 AS y"
    assert answer(nothing, query, "line") == "a  x\n   y  1\\x1b\ny  2\n\n1 row\n"
    assert "x\\ny  1\\e" in answer(nothing, query, "table")


def test_an_empty_answer_shows_its_columns(nothing: Path) -> None:
    query = "SELECT 1 AS one, 2 AS two WHERE false"
    assert answer(nothing, query, "line") == "one\ntwo\n0 rows\n"
    assert answer(nothing, query, "csv") == "one,two\n"
    assert answer(nothing, query, "json") == "[]\n"
    *head, last = answer(nothing, query, "table").splitlines()
    assert "│  one  │  two  │" in head
    assert last.strip() == "0 rows"


@pytest.mark.parametrize("output_format", ["table", "line"])
def test_how_many_rows_there_are_is_shown(nothing: Path, output_format: str) -> None:
    query = "SELECT n AS a FROM range({}) AS r(n) ORDER BY n DESC"
    assert "first" not in answer(nothing, query.format(100), output_format)
    text = answer(nothing, query.format(123_456), output_format)
    assert [int(number) for number in re.findall(r"\d{6}", text)] == list(
        range(123_455, 123_355, -1)
    )
    last = "123,456 rows, the first 100 of them shown; --format csv or json has all"
    assert text.splitlines()[-1] == last


def test_each_statement_that_has_an_answer_is_answered(nothing: Path) -> None:
    query = (
        "SET VARIABLE x = 7; CREATE TEMP TABLE t AS SELECT 1 AS a; INSERT INTO t VALUES (2);"
        "FROM t ORDER BY a; SELECT getvariable('x') AS x"
    )
    assert answer(nothing, query, "line") == "a  1\n\na  2\n\n2 rows\n\nx  7\n\n1 row\n"
    only_one = query.rpartition(";")[0]
    assert answer(nothing, only_one, "csv") == "a\n1\n2\n"
    for output_format in ("csv", "json"):
        with pytest.raises(KpBatchError, match=f"^{output_format} holds one result, .* return 2; "):
            answer(nothing, query, output_format)
    pivot = "PIVOT (SELECT unnest(['x', 'y']) AS k) ON k USING count(*)"
    assert answer(nothing, pivot, "csv") == "x,y\n1,1\n"
    assert "│     1 │     1 │" in answer(nothing, pivot, "table")


def test_json_holds_no_nan_however_deep(tmp_path: Path) -> None:
    publish_nothing(tmp_path)
    deep = "SELECT [1.0, 'nan'::DOUBLE] AS a, {'b': ['inf'::DOUBLE]} AS b"
    assert json.loads(answer(tmp_path, deep, "json")) == [{"a": [1.0, None], "b": {"b": [None]}}]


def test_json_holds_no_nan_and_each_name_once(tmp_path: Path) -> None:
    publish_nothing(tmp_path)
    numbers = answer(tmp_path, "SELECT 'nan'::DOUBLE AS a, 'inf'::FLOAT AS b", "json")
    assert json.loads(numbers) == [{"a": None, "b": None}]
    with pytest.raises(KpBatchError, match="give each its own"):
        answer(tmp_path, "SELECT 1 AS a, 2 AS a", "json")
    assert answer(tmp_path, "", "table") == ""


def test_a_wrong_query_and_a_writing_one_are_refused(tmp_path: Path) -> None:
    publish_profile(tmp_path, "one")
    for query in ("SELEC 1", "SELECT * FROM nothing", "DELETE FROM manifest"):
        with pytest.raises(KpBatchError):
            answer(tmp_path, query, "csv")
    assert published_names(tmp_path) == ["one"]
