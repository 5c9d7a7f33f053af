"""Data files, the lists that name them, and the Delta tables that have them."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from kp_batch.errors import WarehouseError
from kp_batch.schemas import FACTS, PARTITIONED_BY, SCORES, TABLES
from kp_batch.warehouse import delta, file_lists
from kp_batch.warehouse.data_files import (
    data_file,
    move_data_file,
    sink_data_file,
    write_data_file,
)
from kp_batch.warehouse.delta import CONFIGURATION, export
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot, parquet_relation, published
from kp_batch.warehouse.unneeded import Unneeded
from tests.support.make.publications import Draft

REPLACE = Path.replace


def day(number: int) -> date:
    return date(2026, 1, number)


def scored(number: int, *ids: str) -> pl.DataFrame:
    """Rows of `scores` for traces of one day."""
    rows = pl.DataFrame({"date": [day(number)] * len(ids), "trace_id": ids})
    return pl.concat([SCORES.to_frame(), rows], how="diagonal")


def half_known() -> pl.DataFrame:
    return pl.concat([scored(5, "a"), scored(5, "b").with_columns(date=None).cast(SCORES)])


def files_by_day(tables: Draft) -> dict[int, list[str]]:
    days = tables.snapshot.days
    return {partition.day: [Path(path).name for path in paths] for partition, paths in days.items()}


def ids_by_day(tables: Draft) -> dict[int, list[str]]:
    days = tables.snapshot.days
    return {
        partition.day: pl.read_parquet(paths, hive_partitioning=False)["trace_id"].to_list()
        for partition, paths in days.items()
    }


def written(warehouse: Path, number: int, *ids: str, run: str = "run-1") -> DataFile:
    """A file of `scores` with the traces of one day."""
    return write_data_file(warehouse, "scores", scored(number, *ids), f"{run}-part")


def first_run(warehouse: Path, days: dict[int, list[str]]) -> Manifest:
    """Publish the traces of some days."""
    tables = Draft(warehouse, "first")
    files = [written(warehouse, number, *ids, run="first") for number, ids in days.items()]
    tables.replace_files("scores", files, None)
    return tables.publish()


def facts(*ids: str) -> pl.DataFrame:
    return pl.concat([FACTS.to_frame(), pl.DataFrame({"trace_id": ids})], how="diagonal")


def fact_ids(tables: Draft) -> list[str]:
    rows = tables.snapshot.scan("facts").collect()
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


def read_by_duckdb(warehouse: Path, name: str) -> str:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        paths = [Path(uri) for uri in DeltaTable(warehouse / name).file_uris()]
        rows = parquet_relation(name, paths)
        columns = connection.execute(f"DESCRIBE FROM {rows}").fetchall()
        texts = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {rows}").fetchall()
        return repr((columns, texts))


def read_by_polars(warehouse: Path, name: str) -> str:
    paths = DeltaTable(warehouse / name).file_uris()
    rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False).collect()
    return repr((rows.schema, rows.to_dict(as_series=False)))


def write_with_delta(warehouse: Path, name: str, rows: pl.DataFrame) -> None:
    """Make a table as delta-rs alone does."""
    write_deltalake(
        str(warehouse / name),
        rows.to_arrow(),
        partition_by=PARTITIONED_BY.get(name),
        configuration=CONFIGURATION,
    )


def read_by_delta(warehouse: Path, name: str) -> str:
    table = DeltaTable(warehouse / name)
    result = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    rows = pl.DataFrame(result)
    return repr((rows.schema, rows.to_dict(as_series=False)))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("read_by", [read_by_duckdb, read_by_polars, read_by_delta])
def test_the_files_read_as_those_of_delta(
    tmp_path: Path, name: str, read_by: Callable[[Path, str], str]
) -> None:
    rows = odd_rows(TABLES[name])
    write_with_delta(tmp_path / "delta", name, rows)
    ours = Draft(tmp_path / "ours")
    ours.add_files(name, [write_data_file(tmp_path / "ours", name, rows, "part")])
    ours.publish()
    text = read_by(tmp_path / "ours", name)
    assert text == read_by(tmp_path / "delta", name)
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
    tables = Draft(tmp_path)
    tables.add_files("facts", [write_data_file(tmp_path, "facts", facts("a"), "part")])
    tables.append("facts", facts("b"))
    tables.add_files("facts", [move_data_file(tmp_path, "facts", staged(tmp_path, "c"), "moved")])
    assert fact_ids(tables) == ["a", "b", "c"]
    with duckdb.connect() as connection:
        rows = tables.snapshot.relation("facts")
        ids = connection.execute(f"SELECT trace_id FROM {rows} ORDER BY 1").fetchall()
    assert ids == [("a",), ("b",), ("c",)]


# --- the lists of a candidate ---


def test_only_the_replaced_partitions_change(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["a", "b"], 6: ["c"], 7: ["d"]})
    first, later = Draft(tmp_path), Draft(tmp_path, "later")
    files = [written(tmp_path, 6, "f", "e"), written(tmp_path, 8, "h")]
    later.replace_files("scores", files, (day(number) for number in (6, 8)))
    assert ids_by_day(later) == {5: ["a", "b"], 6: ["f", "e"], 7: ["d"], 8: ["h"]}
    before, after = files_by_day(first), files_by_day(later)
    assert (after[5], after[7]) == (before[5], before[7])
    assert ids_by_day(first) == {5: ["a", "b"], 6: ["c"], 7: ["d"]}


def test_only_the_lists_of_the_months_that_change_are_written(tmp_path: Path) -> None:
    def of(year: int, month: int, name: str) -> DataFile:
        at = date(year, month, 5)
        rows = scored(5, name).with_columns(date=pl.lit(at))
        return write_data_file(tmp_path, "scores", rows, f"{name}-part")

    tables = Draft(tmp_path)
    files = [of(2026, 1, "a"), of(2026, 2, "b"), of(999, 12, "c")]
    tables.replace_files("scores", files, [file.partition for file in files if file.partition])
    before = tables.publish().tables["scores"]
    assert [*before] == ["0999-12", "2026-01", "2026-02"]
    later = Draft(tmp_path)
    later.replace_files("scores", [of(2026, 2, "d")], [date(2026, 2, 5), date(2026, 1, 9)])
    after = later.publish().tables["scores"]
    assert {month for month in after if after[month] != before[month]} == {"2026-02"}
    again = Draft(tmp_path)
    again.replace_files("scores", [], [date(2026, 2, 5)])
    assert [*again.publish().tables["scores"]] == ["0999-12", "2026-01"]


def test_a_day_may_come_from_several_parts(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["a"]})
    tables = Draft(tmp_path, "later")
    files = [written(tmp_path, 5, trace_id, run=f"run-1-{trace_id}") for trace_id in ("b", "c")]
    tables.replace_files("scores", files, [day(5)])
    assert sorted(ids_by_day(tables)[5]) == ["b", "c"]


def test_files_are_added_to_what_is_there(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["a"]})
    tables = Draft(tmp_path, "later")
    tables.add_files("scores", [written(tmp_path, 5, "b"), written(tmp_path, 6, "c")])
    assert ids_by_day(tables)[6] == ["c"]
    assert sorted(ids_by_day(tables)[5]) == ["a", "b"]


def test_a_partition_can_lose_all_rows(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["a"], 6: ["b"]})
    tables = Draft(tmp_path, "later")
    tables.replace_files("scores", [], [day(6), day(7)])
    assert ids_by_day(tables) == {5: ["a"]}
    tables.replace_files("scores", [], [])
    assert ids_by_day(tables) == {5: ["a"]}
    tables.publish()
    with connect(tmp_path) as connection:
        assert connection.execute("SELECT trace_id FROM scores").fetchall() == [("a",)]
    tables.replace_files("scores", [], None)
    assert ids_by_day(tables) == {}


def test_all_rows_of_a_table_without_partitions_are_replaced(tmp_path: Path) -> None:
    tables = Draft(tmp_path)
    tables.append("facts", pl.concat([facts("a"), facts("b")]))
    file = write_data_file(tmp_path, "facts", facts("c"), "part")
    tables.replace_files("facts", [file], None)
    assert fact_ids(tables) == ["c"]


@pytest.mark.parametrize("partitions", [None, [day(5)], []])
def test_no_files_make_a_table_without_rows(tmp_path: Path, partitions: list[date] | None) -> None:
    tables = Draft(tmp_path)
    tables.replace_files("scores", [], partitions)
    tables.add_files("facts", [])
    assert tables.publish().tables == {"scores": {}, "facts": {}}
    now = published(tmp_path).scan("scores").collect()
    assert now.equals(SCORES.to_frame())
    assert pl.read_delta(str(tmp_path / "scores")).is_empty()
    later = Draft(tmp_path, "later")
    later.add_files("scores", [written(tmp_path, 5, "a")])
    assert ids_by_day(later) == {5: ["a"]}


@pytest.mark.parametrize("partitions", [[day(6)], []])
def test_a_file_of_a_partition_that_is_not_replaced_is_refused(
    tmp_path: Path, partitions: list[date]
) -> None:
    first_run(tmp_path, {5: ["a"], 6: ["b"]})
    tables = Draft(tmp_path, "later")
    file = written(tmp_path, 5, "c")
    with pytest.raises(ValueError, match=r"date=2026-01-05/run-1-part\.parquet is of no partition"):
        tables.replace_files("scores", [file], partitions)
    assert ids_by_day(tables) == {5: ["a"], 6: ["b"]}


def test_a_file_that_is_gone_is_not_published(tmp_path: Path) -> None:
    before = first_run(tmp_path, {5: ["a"]})
    tables = Draft(tmp_path, "later")
    file = written(tmp_path, 6, "b")
    tables.add_files("scores", [file])
    (tmp_path / "scores" / file.path).unlink()
    with pytest.raises((FileNotFoundError, duckdb.IOException)):
        tables.publish()
    assert require_manifest(tmp_path) == before


def test_a_list_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    manifest = first_run(tmp_path, {5: ["a"]})
    [name] = manifest.lists
    path = tmp_path / "log" / "files" / f"{name}.json"
    content = path.read_bytes()
    for damage in (content[:-1], content + b" ", b"[]"):
        path.write_bytes(damage)
        _as_another_process()
        with pytest.raises(
            WarehouseError, match=rf"the list of files {name}\.json in .* is damaged"
        ):
            PublishedSnapshot(tmp_path, manifest).files("scores")
    path.unlink()
    _as_another_process()
    with pytest.raises(WarehouseError, match=rf"the list of files {name}\.json in .* is gone"):
        PublishedSnapshot(tmp_path, manifest).files("scores")


def _as_another_process() -> None:
    """Forget the lists that this one has read."""
    file_lists._published.cache_clear()  # noqa: SLF001
    file_lists._read.cache_clear()  # noqa: SLF001


# --- Delta ---


def test_an_export_that_is_done_again_changes_nothing(tmp_path: Path) -> None:
    first_run(tmp_path, {5: ["a"]})
    before = log_of(tmp_path, "scores")
    export(tmp_path)
    assert log_of(tmp_path, "scores") == before


@pytest.mark.telling
@pytest.mark.slow
def test_versions_are_summed_up_so_that_opening_a_table_takes_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ten here, and every hundred where delta-rs is not asked for another number."""
    often = {**CONFIGURATION, "delta.checkpointInterval": "10"}
    monkeypatch.setattr(delta, "CONFIGURATION", often)
    first_run(tmp_path, {5: ["kp:trace:secret"]})
    for number in range(10):
        tables = Draft(tmp_path, f"run-{number}")
        file = written(tmp_path, 6, "a", run=f"run-{number}")
        tables.replace_files("scores", [file], [day(6)])
        tables.publish()
    log = tmp_path / "scores" / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text("utf-8"))["version"] == 9
    [checkpoint] = log.glob("*.checkpoint.parquet")
    assert b"secret" not in checkpoint.read_bytes()
    for version in (8, 9, 10):
        uris = DeltaTable(tmp_path / "scores", version=version).file_uris()
        names = sorted(Path(uri).name for uri in uris)
        assert names == ["first-part.parquet", f"run-{version - 1}-part.parquet"]


def test_an_overtaken_export_never_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_run(tmp_path, {5: ["a"]})
    removals, once = delta.remove_actions, iter([True])

    def overtaken(*inputs: Any) -> Any:
        if next(once, False):  # another writer publishes, and exports first
            monkeypatch.setattr(delta, "remove_actions", removals)
            other = Draft(tmp_path, "other")
            other.replace_files("scores", [written(tmp_path, 6, "c")], [day(5), day(6)])
            other.publish()
        return removals(*inputs)

    monkeypatch.setattr(delta, "remove_actions", overtaken)
    tables = Draft(tmp_path, "later")
    tables.replace_files("scores", [written(tmp_path, 5, "b")], [day(5)])
    tables.publish()
    assert pl.read_delta(str(tmp_path / "scores"))["trace_id"].to_list() == ["c"]


# --- wherever it is ---


@pytest.mark.parametrize("name", ["it's", 'say "so"', "é 日本 {y} #*&$!"])
def test_all_readers_agree_in_any_folder(tmp_path: Path, name: str) -> None:
    warehouse = tmp_path / name
    first_run(warehouse, {5: ["a"], 6: ["b"]})
    tables = Draft(warehouse, "later")
    files = [written(warehouse, 6, "c"), written(warehouse, 7, "d")]
    tables.replace_files("scores", files, [day(6), day(7)])
    tables.publish()
    now = published(warehouse)
    assert now.files("scores") == [Path(path) for of_day in now.days.values() for path in of_day]
    assert now.scan("scores").collect()["trace_id"].to_list() == ["a", "c", "d"]
    with duckdb.connect() as connection:
        rows = now.relation("scores")
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


def test_files_that_no_kept_manifest_names_are_unneeded(tmp_path: Path) -> None:
    first = first_run(tmp_path, {5: ["a"], 6: ["b"], 7: ["c"]})
    second = Draft(tmp_path, "second")
    second.replace_files("scores", [written(tmp_path, 6, "d", run="second")], [day(6)])
    dropped = second.publish()
    third = Draft(tmp_path, "third")
    third.replace_files("scores", [written(tmp_path, 6, "e", run="third")], [day(6), day(7)])
    last = third.publish()
    killed = [
        written(tmp_path, 5, "never published", run="killed").path,
        written(tmp_path, 9, "never published", run="killed").path,
    ]
    half_written = killed_while_writing(tmp_path, lambda: written(tmp_path, 8, "f"))
    more = killed_while_writing(
        tmp_path, lambda: write_data_file(tmp_path, "facts", facts("b"), "more")
    )
    found = Unneeded.of(published(tmp_path), [first])
    names = {str(path.relative_to(tmp_path)) for path in found.data}
    own = {f"scores/{path}" for path in killed} | {half_written, more}
    assert names == own | {"scores/date=2026-01-06/second-part.parquet"}
    assert {path.stem for path in found.log} == {dropped.name, *dropped.lists}
    found.remove()
    for manifest in (first, last):
        assert all(path.exists() for path in PublishedSnapshot(tmp_path, manifest).files("scores"))
    none = Unneeded.of(published(tmp_path), [first])
    assert (none.data, none.log) == ((), ())


def test_files_of_a_killed_run_are_no_rows_of_a_new_table(tmp_path: Path) -> None:
    written(tmp_path, 5, "never published", run="killed")
    tables = Draft(tmp_path, "later")
    tables.replace_files("scores", [written(tmp_path, 5, "a")], [day(5)])
    assert ids_by_day(tables) == {5: ["a"]}
