"""Files that are written into the tables' folders first, and become rows by one commit."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import kp_batch.warehouse.delta
from kp_batch.errors import WarehouseError
from kp_batch.schemas import FACTS, PARTITIONED_BY, SCORES, TABLES
from kp_batch.warehouse.data_files import (
    DataFile,
    data_file,
    move_data_file,
    sink_data_file,
    write_data_file,
)
from kp_batch.warehouse.delta import (
    CONFIGURATION,
    files_of,
    open_table,
    remove_unneeded,
)
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot
from tests.support.publications import CommittedTables, publish_tables

REPLACE = Path.replace


def day(number: int) -> date:
    return date(2026, 1, number)


def scored(number: int, *ids: str) -> pl.DataFrame:
    """Rows of `scores` for traces of one day."""
    rows = pl.DataFrame({"date": [day(number)] * len(ids), "trace_id": ids})
    return pl.concat([SCORES.to_frame(), rows], how="diagonal")


def half_known() -> pl.DataFrame:
    return pl.concat([scored(5, "a"), scored(5, "b").with_columns(date=None).cast(SCORES)])


def files_by_day(warehouse: Path, tables: CommittedTables) -> dict[int, list[str]]:
    days = PublishedSnapshot(warehouse, {"scores": tables.versions["scores"]}).days
    return {partition.day: [path.name for path in paths] for partition, paths in days.items()}


def ids_by_day(warehouse: Path, tables: CommittedTables) -> dict[int, list[str]]:
    days = PublishedSnapshot(warehouse, {"scores": tables.versions["scores"]}).days
    return {
        partition.day: pl.read_parquet(paths, hive_partitioning=False)["trace_id"].to_list()
        for partition, paths in days.items()
    }


def written(warehouse: Path, number: int, *ids: str, run: str = "run-1") -> DataFile:
    """A file of `scores` with the traces of one day."""
    return write_data_file(warehouse, "scores", scored(number, *ids), f"{run}-part")


def first_run(warehouse: Path, days: dict[int, list[str]]) -> dict[str, int]:
    """What is published: the traces of some days."""
    tables = CommittedTables(warehouse, {}, "first")
    files = [written(warehouse, number, *ids, run="first") for number, ids in days.items()]
    tables.replace_files("scores", files, None)
    return tables.versions


def facts(*ids: str) -> pl.DataFrame:
    return pl.concat([FACTS.to_frame(), pl.DataFrame({"trace_id": ids})], how="diagonal")


def fact_ids(warehouse: Path, tables: CommittedTables) -> list[str]:
    rows = PublishedSnapshot(warehouse, {"facts": tables.versions["facts"]}).scan("facts").collect()
    return sorted(rows.get_column("trace_id"))


def staged(folder: Path, *ids: str) -> Path:
    path = folder / "staged.parquet"
    facts(*ids).write_parquet(path)
    return path


def files_in(folder: Path) -> list[str]:
    """All files below a folder but Delta's log."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in paths if "_delta_log" not in str(path))


def log_of(warehouse: Path, name: str) -> list[dict[str, Any]]:
    paths = sorted((warehouse / name / "_delta_log").glob("*.json"))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


# --- one file ---


def test_a_day_becomes_one_file_without_its_date(tmp_path: Path) -> None:
    file = written(tmp_path, 5, "b", "a", "c")
    path = tmp_path / "scores" / "date=2026-01-05" / "run-1-part.parquet"
    assert file == DataFile(
        "date=2026-01-05/run-1-part.parquet", 3, path.stat().st_size, date(2026, 1, 5)
    )
    assert files_in(tmp_path) == ["scores/date=2026-01-05/run-1-part.parquet"]
    rows = pl.read_parquet(path, hive_partitioning=False)
    assert rows.equals(scored(5, "b", "a", "c").drop("date"))


def test_a_file_of_a_table_without_partitions_is_in_its_folder(tmp_path: Path) -> None:
    file = write_data_file(tmp_path, "facts", facts("a", "b"), "run-1-part")
    path = tmp_path / "facts" / "run-1-part.parquet"
    assert file == DataFile("run-1-part.parquet", 2, path.stat().st_size, None)
    assert pl.read_parquet(path).equals(facts("a", "b"))


def test_the_answer_to_a_query_becomes_one_file_in_its_order(tmp_path: Path) -> None:
    ids = [f"{number:06d}" for number in reversed(range(200_000))]
    rows = facts(*ids)
    (tmp_path / "facts").mkdir()
    file = sink_data_file(tmp_path, "facts", rows.lazy(), "run-1-part")
    path = tmp_path / "facts" / "run-1-part.parquet"
    assert file == data_file(path) == DataFile(path.name, 200_000, path.stat().st_size, None)
    assert pl.read_parquet(path).equals(rows)
    with pytest.raises(TypeError, match="the table facts has the schema"):
        sink_data_file(tmp_path, "facts", rows.lazy().drop("row"), "run-2-part")
    assert files_in(tmp_path / "facts") == [path.name]


def test_a_part_done_again_gives_the_same_file(tmp_path: Path) -> None:
    first = written(tmp_path, 5, "a", "b")
    path = tmp_path / "scores" / first.path
    content = path.read_bytes()
    path.write_bytes(b"of a damaged disk")
    assert written(tmp_path, 5, "a", "b") == first
    assert path.read_bytes() == content
    assert len(files_in(tmp_path)) == 1


def test_two_may_write_the_same_part_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", REPLACE)
        written(tmp_path, 5, "a")
        return REPLACE(path, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    file = written(tmp_path, 5, "a")
    assert files_in(tmp_path / "scores") == [file.path]
    assert pl.read_parquet(tmp_path / "scores" / file.path)["trace_id"].to_list() == ["a"]


def test_a_file_that_fails_leaves_nothing_and_harms_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = written(tmp_path, 5, "a")
    content = (tmp_path / "scores" / older.path).read_bytes()

    def failing(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", failing)
    for number in (5, 6):
        with pytest.raises(OSError, match="No space left"):
            written(tmp_path, number, "b")
    assert files_in(tmp_path / "scores") == [older.path]
    assert (tmp_path / "scores" / older.path).read_bytes() == content


@pytest.mark.parametrize(
    ("table", "frame", "error", "message"),
    [
        ("facts", scored(5, "a"), TypeError, "the table facts has the schema"),
        ("scores", scored(5, "a").drop("date"), TypeError, "the table scores has the schema"),
        ("scores", pl.concat([scored(5, "a"), scored(6, "b")]), ValueError, "of one partition"),
        ("scores", SCORES.to_frame(), ValueError, "of one partition"),
        ("scores", scored(5, "a").with_columns(date=None).cast(SCORES), ValueError, "None to None"),
        ("scores", half_known(), ValueError, "2026-01-05 to 2026-01-05, 1 unknown"),
    ],
    ids=["of another table", "a column less", "two days", "no day", "unknown day", "half known"],
)
def test_rows_that_are_no_file_of_the_table_are_refused(
    tmp_path: Path, table: str, frame: pl.DataFrame, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        write_data_file(tmp_path, table, frame, "part")
    assert files_in(tmp_path) == []


def test_a_staged_file_moves_once_and_is_found_afterwards(tmp_path: Path) -> None:
    path = staged(tmp_path, "a", "b")
    size = path.stat().st_size
    moved = move_data_file(tmp_path, "facts", path, "run-1-0")
    assert moved == DataFile("run-1-0.parquet", 2, size, None)
    assert files_in(tmp_path) == ["facts/run-1-0.parquet"]
    assert move_data_file(tmp_path, "facts", path, "run-1-0") == moved
    assert move_data_file(tmp_path, "facts", staged(tmp_path, "a", "b"), "run-1-0") == moved
    assert files_in(tmp_path) == ["facts/run-1-0.parquet"]


def test_a_staged_file_that_is_not_the_tables_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "staged.parquet"
    facts("a").with_columns(text=pl.lit("more")).write_parquet(path)
    with pytest.raises(TypeError, match="the table facts has the schema"):
        move_data_file(tmp_path, "facts", path, "run-1-0")
    assert files_in(tmp_path) == ["staged.parquet"]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        move_data_file(tmp_path, "facts", path, "run-1-0")


# --- as today's files are read ---

VALUES: dict[type[pl.DataType], list[Any]] = {
    pl.String: ["", "é 日本\n", None, "x" * 5_000],
    pl.Int64: [0, -(2**63), None, 2**63 - 1],
    pl.Float64: [float("nan"), -0.0, None, float("-inf")],
    pl.Boolean: [True, False, None, True],
    pl.List: [[], None, None, []],
    pl.Datetime: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        None,
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    pl.Date: [date(2026, 1, 5)] * 4,
}
LISTS = {
    pl.String(): ["", None],
    pl.Int64(): [1, None, 2],
    pl.Datetime("us", "UTC"): [datetime(1, 1, 1, tzinfo=UTC), None],
}


def odd_rows(schema: pl.Schema) -> pl.DataFrame:
    """Four rows with the values that formats lose."""
    columns = {name: list(VALUES[dtype.base_type()]) for name, dtype in schema.items()}
    for name, dtype in schema.items():
        if isinstance(dtype, pl.List):
            columns[name][1] = LISTS[dtype.inner]
    return pl.DataFrame(columns, schema=schema)


def read_by_duckdb(warehouse: Path, name: str, version: int | None) -> str:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = PublishedSnapshot(warehouse, {name: version}).relation(name)
        columns = connection.execute(f"DESCRIBE FROM {rows}").fetchall()
        texts = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {rows}").fetchall()
        return repr((columns, texts))


def read_by_polars(warehouse: Path, name: str, version: int | None) -> str:
    rows = PublishedSnapshot(warehouse, {name: version}).scan(name).collect()
    return repr((rows.schema, rows.to_dict(as_series=False)))


def write_with_delta(warehouse: Path, name: str, rows: pl.DataFrame) -> None:
    """Make a table as delta-rs alone does."""
    write_deltalake(
        str(warehouse / name),
        rows.to_arrow(),
        partition_by=PARTITIONED_BY.get(name),
        configuration=CONFIGURATION,
    )


def read_by_delta(warehouse: Path, name: str, version: int | None) -> str:
    table = DeltaTable(warehouse / name, version=version)
    result = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    rows = pl.DataFrame(result)
    return repr((rows.schema, rows.to_dict(as_series=False)))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("read_by", [read_by_duckdb, read_by_polars, read_by_delta])
def test_the_files_read_as_those_of_delta(
    tmp_path: Path, name: str, read_by: Callable[[Path, str, int | None], str]
) -> None:
    rows = odd_rows(TABLES[name])
    write_with_delta(tmp_path / "delta", name, rows)
    ours = CommittedTables(tmp_path / "ours", {}, "a-run")
    ours.add_files(name, [write_data_file(tmp_path / "ours", name, rows, "part")])
    text = read_by(tmp_path / "ours", name, ours.versions[name])
    assert text == read_by(tmp_path / "delta", name, 0)
    assert "nan" in text or pl.Float64() not in TABLES[name].dtypes()
    assert "-0.0" in text or pl.Float64() not in TABLES[name].dtypes()


def test_a_table_is_the_same_however_it_was_made(tmp_path: Path) -> None:
    write_with_delta(tmp_path / "delta", "scores", scored(5, "a"))
    first_run(tmp_path / "ours", {5: ["a"]})
    of_delta, ours = (DeltaTable(tmp_path / writer / "scores") for writer in ("delta", "ours"))
    assert ours.schema() == of_delta.schema()
    assert ours.protocol() == of_delta.protocol()
    assert ours.metadata().configuration == of_delta.metadata().configuration
    assert ours.metadata().partition_columns == ["date"]


def test_frames_and_files_make_one_table(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, {}, "a-run")
    tables.add_files("facts", [write_data_file(tmp_path, "facts", facts("a"), "part")])
    tables.append("facts", facts("b"))
    tables.add_files("facts", [move_data_file(tmp_path, "facts", staged(tmp_path, "c"), "moved")])
    assert fact_ids(tmp_path, tables) == ["a", "b", "c"]
    with duckdb.connect() as connection:
        rows = PublishedSnapshot(tmp_path, {"facts": tables.versions["facts"]}).relation("facts")
        ids = connection.execute(f"SELECT trace_id FROM {rows} ORDER BY 1").fetchall()
    assert ids == [("a",), ("b",), ("c",)]


# --- one commit ---


def test_only_the_replaced_partitions_change(tmp_path: Path) -> None:
    published = first_run(tmp_path, {5: ["a", "b"], 6: ["c"], 7: ["d"]})
    first = CommittedTables(tmp_path, published, "first")
    later = CommittedTables(tmp_path, published, "later")
    files = [written(tmp_path, 6, "f", "e"), written(tmp_path, 8, "h")]
    later.replace_files("scores", files, (day(number) for number in (6, 8)))
    assert later.versions == {"scores": published["scores"] + 1}
    assert ids_by_day(tmp_path, later) == {5: ["a", "b"], 6: ["f", "e"], 7: ["d"], 8: ["h"]}
    before, after = files_by_day(tmp_path, first), files_by_day(tmp_path, later)
    assert (after[5], after[7]) == (before[5], before[7])
    assert ids_by_day(tmp_path, first) == {5: ["a", "b"], 6: ["c"], 7: ["d"]}


def test_a_day_may_come_from_several_parts(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, first_run(tmp_path, {5: ["a"]}), "later")
    files = [written(tmp_path, 5, trace_id, run=f"run-1-{trace_id}") for trace_id in ("b", "c")]
    tables.replace_files("scores", files, [day(5)])
    assert sorted(ids_by_day(tmp_path, tables)[5]) == ["b", "c"]


def test_files_are_added_to_what_is_there(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, first_run(tmp_path, {5: ["a"]}), "later")
    tables.add_files("scores", [written(tmp_path, 5, "b"), written(tmp_path, 6, "c")])
    assert ids_by_day(tmp_path, tables)[6] == ["c"]
    assert sorted(ids_by_day(tmp_path, tables)[5]) == ["a", "b"]


def test_a_partition_can_lose_all_rows(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, first_run(tmp_path, {5: ["a"], 6: ["b"]}), "later")
    tables.replace_files("scores", [], [day(6), day(7)])
    assert ids_by_day(tmp_path, tables) == {5: ["a"]}
    tables.replace_files("scores", [], [])
    assert ids_by_day(tmp_path, tables) == {5: ["a"]}
    publish_tables(tmp_path, Manifest({"threshold": 0.75}, tables.versions))
    with connect(tmp_path) as connection:
        assert connection.execute("SELECT trace_id FROM scores").fetchall() == [("a",)]
    tables.replace_files("scores", [], None)
    assert ids_by_day(tmp_path, tables) == {}


def test_all_rows_of_a_table_without_partitions_are_replaced(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, {}, "a-run")
    tables.append("facts", pl.concat([facts("a"), facts("b")]))
    file = write_data_file(tmp_path, "facts", facts("c"), "part")
    tables.replace_files("facts", [file], None)
    assert fact_ids(tmp_path, tables) == ["c"]


@pytest.mark.parametrize("partitions", [None, [day(5)], []])
def test_no_files_make_a_table_without_rows(tmp_path: Path, partitions: list[date] | None) -> None:
    tables = CommittedTables(tmp_path, {}, "a-run")
    tables.replace_files("scores", [], partitions)
    tables.add_files("facts", [])
    assert tables.versions == {"scores": 0, "facts": 0}
    assert (
        PublishedSnapshot(tmp_path, {"scores": 0})
        .scan("scores")
        .collect()
        .equals(SCORES.to_frame())
    )
    later = CommittedTables(tmp_path, tables.versions, "later")
    later.add_files("scores", [written(tmp_path, 5, "a")])
    assert ids_by_day(tmp_path, later) == {5: ["a"]}


@pytest.mark.parametrize("partitions", [[day(6)], []])
def test_a_file_of_a_partition_that_is_not_replaced_is_refused(
    tmp_path: Path, partitions: list[date]
) -> None:
    published = first_run(tmp_path, {5: ["a"], 6: ["b"]})
    tables = CommittedTables(tmp_path, published, "later")
    file = written(tmp_path, 5, "c")
    with pytest.raises(ValueError, match=r"date=2026-01-05/run-1-part\.parquet is of no partition"):
        tables.replace_files("scores", [file], partitions)
    assert tables.versions == published
    assert ids_by_day(tmp_path, tables) == {5: ["a"], 6: ["b"]}


def test_a_file_that_is_gone_is_not_committed(tmp_path: Path) -> None:
    published = first_run(tmp_path, {5: ["a"]})
    tables = CommittedTables(tmp_path, published, "later")
    file = written(tmp_path, 6, "b")
    (tmp_path / "scores" / file.path).unlink()
    with pytest.raises(FileNotFoundError):
        tables.add_files("scores", [file])
    assert DeltaTable(tmp_path / "scores").version() == published["scores"]


@pytest.mark.telling
@pytest.mark.slow
def test_every_hundred_versions_are_summed_up_so_that_opening_a_table_takes_no_longer(
    tmp_path: Path,
) -> None:
    published = first_run(tmp_path, {5: ["kp:trace:secret"]})
    for number in range(100):
        tables = CommittedTables(tmp_path, published, f"run-{number}")
        file = written(tmp_path, 6, "a", run=f"run-{number}")
        tables.replace_files("scores", [file], [day(6)])
        published = tables.versions
    log = tmp_path / "scores" / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text("utf-8"))["version"] == 99
    [checkpoint] = log.glob("*.checkpoint.parquet")
    assert b"secret" not in checkpoint.read_bytes()
    for version in (98, 99, 100):
        names = [path.name for path in files_of(tmp_path, "scores", version)]
        assert names == ["first-part.parquet", f"run-{version - 1}-part.parquet"]
    remove_unneeded(tmp_path, "scores", [98, 100])
    assert all(path.exists() for path in files_of(tmp_path, "scores", 98))
    assert not all(path.exists() for path in files_of(tmp_path, "scores", 99))


def test_a_commit_tells_its_run_and_nothing_of_the_rows(tmp_path: Path) -> None:
    secret = "kp:trace:secret"
    published = first_run(tmp_path, {5: [secret], 6: [secret]})
    tables = CommittedTables(tmp_path, published, "later")
    tables.replace_files("scores", [written(tmp_path, 6, secret, secret)], [day(6)])
    later = CommittedTables(tmp_path, published, "last")  # for which the first is restored
    later.replace_files("scores", [], [day(5)])
    DeltaTable(tmp_path / "scores").create_checkpoint()
    logs = sorted((tmp_path / "scores" / "_delta_log").iterdir())
    assert {log.suffix for log in logs} >= {".json", ".parquet"}
    assert not [log for log in logs if secret.encode() in log.read_bytes()]
    actions = log_of(tmp_path, "scores")
    stats = [action["add"]["stats"] for action in actions if "add" in action]
    assert stats[:3] == ['{"numRecords":1}', '{"numRecords":1}', '{"numRecords":2}']
    assert len(stats) == 4  # one is restored
    assert "minValues" not in stats[3]
    runs = [action["commitInfo"].get("run_id") for action in actions if "commitInfo" in action]
    assert runs == ["first", "later", None, "last"]


def test_another_writer_at_the_same_time_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = first_run(tmp_path, {5: ["a"]})
    removals = kp_batch.warehouse.delta._removals  # noqa: SLF001

    def overtaken(*inputs: Any) -> Any:
        if inputs[0] == "scores":
            write_deltalake(tmp_path / "scores", scored(5, "of another"), mode="append")
        return removals(*inputs)

    monkeypatch.setattr(kp_batch.warehouse.delta, "_removals", overtaken)
    tables = CommittedTables(tmp_path, published, "later")
    with pytest.raises(WarehouseError, match=r"another writer changed the table scores .* again"):
        tables.replace_files("scores", [written(tmp_path, 5, "b")], [day(5)])
    assert tables.versions == published


# --- killed runs ---


def test_files_replace_what_is_published_and_not_what_a_killed_run_left(tmp_path: Path) -> None:
    published = first_run(tmp_path, {5: ["a"], 6: ["b"]})
    killed = CommittedTables(tmp_path, published, "killed")
    file = written(tmp_path, 5, "never published", run="killed")
    killed.replace_files("scores", [file], [day(5), day(6)])
    later = CommittedTables(tmp_path, published, "later")
    later.replace_files("scores", [written(tmp_path, 6, "c")], [day(6)])
    assert ids_by_day(tmp_path, later) == {5: ["a"], 6: ["c"]}
    killed = CommittedTables(tmp_path, later.versions, "killed")
    killed.add_files("scores", [written(tmp_path, 5, "nor this", run="killed-2")])
    last = CommittedTables(tmp_path, later.versions, "last")
    last.add_files("scores", [written(tmp_path, 7, "d", run="last")])
    assert ids_by_day(tmp_path, last) == {5: ["a"], 6: ["c"], 7: ["d"]}


def test_files_are_not_added_to_what_a_first_run_did_not_publish(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["never published"], 6: ["never published"]})
    later = CommittedTables(tmp_path, {}, "later")
    later.add_files("scores", [written(tmp_path, 5, "a")])
    assert ids_by_day(tmp_path, later) == {5: ["a"]}
    last = CommittedTables(tmp_path, {}, "last")
    last.replace_files("scores", [written(tmp_path, 7, "b")], [day(7)])
    assert ids_by_day(tmp_path, last) == {7: ["b"]}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_may_commit_the_same_files_again(tmp_path: Path, *, is_first: bool) -> None:
    published = {} if is_first else first_run(tmp_path, {5: ["a"], 6: ["b"]})
    for _ in range(3):
        tables = CommittedTables(tmp_path, published, "run-1")
        days = [written(tmp_path, 6, "c", "d"), written(tmp_path, 7, "e")]
        tables.replace_files("scores", days, [day(6), day(7)])
        tables.add_files("facts", [write_data_file(tmp_path, "facts", facts("f"), "run-1-0")])
        kept = {} if is_first else {5: ["a"]}
        assert ids_by_day(tmp_path, tables) == kept | {6: ["c", "d"], 7: ["e"]}
        assert fact_ids(tmp_path, tables) == ["f"]
    remove_unneeded(tmp_path, "scores", [tables.versions["scores"]])
    assert ids_by_day(tmp_path, tables) == kept | {6: ["c", "d"], 7: ["e"]}


# --- wherever it is ---


@pytest.mark.parametrize("name", ["wh", "a b", "it's", 'say "so"', "é 日本 {y} #*&$!"])
def test_all_readers_agree_in_any_folder(tmp_path: Path, name: str) -> None:
    warehouse = tmp_path / name
    tables = CommittedTables(warehouse, first_run(warehouse, {5: ["a"], 6: ["b"]}), "later")
    files = [written(warehouse, 6, "c"), written(warehouse, 7, "d")]
    tables.replace_files("scores", files, [day(6), day(7)])
    version = tables.versions["scores"]
    assert ids_by_day(warehouse, tables) == {5: ["a"], 6: ["c"], 7: ["d"]}
    paths = {
        path
        for of_day in PublishedSnapshot(warehouse, {"scores": version}).days.values()
        for path in of_day
    }
    assert paths == set(files_of(warehouse, "scores", version))
    assert PublishedSnapshot(warehouse, {"scores": version}).scan("scores").collect()[
        "trace_id"
    ].to_list() == ["a", "c", "d"]
    with duckdb.connect() as connection:
        rows = PublishedSnapshot(warehouse, {"scores": version}).relation("scores")
        ids = connection.execute(f"SELECT trace_id FROM {rows} ORDER BY 1").fetchall()
    assert ids == [("a",), ("c",), ("d",)]
    table = DeltaTable(warehouse / "scores")
    query = "SELECT date, trace_id FROM t ORDER BY 2"
    dated = pl.DataFrame(QueryBuilder().register("t", table).execute(query).read_all())
    assert dated.rows() == [(day(5), "a"), (day(6), "c"), (day(7), "d")]
    query = "SELECT trace_id FROM t WHERE date = '2026-01-06'"
    of_a_day = pl.DataFrame(QueryBuilder().register("t", table).execute(query).read_all())
    assert of_a_day.rows() == [("c",)]
    assert [path.name for path in tmp_path.iterdir()] == [name]


# --- files that nothing needs ---


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


def killed_while_writing(warehouse: Path, write: Callable[[], DataFile]) -> str:
    """The half-written file that a killed writer leaves behind."""
    before = set(files_in(warehouse))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(Killed):
            write()
    [half_written] = set(files_in(warehouse)) - before
    return half_written


def test_vacuum_removes_what_nothing_needs_and_keeps_the_rest(tmp_path: Path) -> None:
    first = first_run(tmp_path, {5: ["a"], 6: ["b"], 7: ["c"]})
    second = CommittedTables(tmp_path, first, "second")
    second.replace_files("scores", [written(tmp_path, 6, "d", run="second")], [day(6)])
    third = CommittedTables(tmp_path, second.versions, "third")
    third.replace_files("scores", [written(tmp_path, 6, "e", run="third")], [day(6), day(7)])
    killed = [
        written(tmp_path, 5, "never committed", run="killed").path,
        written(tmp_path, 9, "never committed", run="killed").path,
    ]
    half_written = killed_while_writing(tmp_path, lambda: written(tmp_path, 8, "f"))
    assert half_written.startswith("scores/date=2026-01-08/run-1-part.parquet.")
    kept = [first["scores"], third.versions["scores"]]
    needed = {path for version in kept for path in files_of(tmp_path, "scores", version)}
    removed = remove_unneeded(tmp_path, "scores", kept)
    assert removed == len([*killed, half_written]) + 1
    assert {tmp_path / path for path in files_in(tmp_path)} == needed
    assert len(needed) == 4


def test_vacuum_removes_half_written_files_of_tables_without_partitions(tmp_path: Path) -> None:
    tables = CommittedTables(tmp_path, {}, "a-run")
    file = write_data_file(tmp_path, "facts", facts("a"), "part")
    tables.add_files("facts", [file])
    killed_while_writing(tmp_path, lambda: write_data_file(tmp_path, "facts", facts("b"), "more"))
    remove_unneeded(tmp_path, "facts", [tables.versions["facts"]])
    assert files_in(tmp_path / "facts") == [file.path]


def test_files_of_a_table_that_was_never_made_are_removed(tmp_path: Path) -> None:
    written(tmp_path, 5, "never committed")
    assert open_table(tmp_path, "scores") is None
    assert remove_unneeded(tmp_path, "scores", []) == 1
    assert files_in(tmp_path) == []
    assert remove_unneeded(tmp_path, "scores", []) == 0


def test_files_of_a_table_whose_log_was_lost_stay(tmp_path: Path) -> None:
    published = first_run(tmp_path, {5: ["a"]})
    shutil.rmtree(tmp_path / "scores" / "_delta_log")
    with pytest.raises(WarehouseError, match="Delta log of scores lacks its version 0"):
        remove_unneeded(tmp_path, "scores", [published["scores"]])
    assert files_in(tmp_path) == ["scores/date=2026-01-05/first-part.parquet"]


def test_files_of_a_killed_run_are_no_rows_of_a_new_table(tmp_path: Path) -> None:
    written(tmp_path, 5, "never committed", run="killed")
    tables = CommittedTables(tmp_path, {}, "later")
    tables.replace_files("scores", [written(tmp_path, 5, "a")], [day(5)])
    assert ids_by_day(tmp_path, tables) == {5: ["a"]}
