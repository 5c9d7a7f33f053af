"""The tables as each run left them, long after other runs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from sqlalchemy.pool import QueuePool

from kp_batch.duck import statement
from kp_batch.errors import ArchiveError, WarehouseError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import VIEWS
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import (
    Draft,
    Tables,
    files_of,
    publish_nothing,
    publish_profile,
    tables,
)
from tests.support.make.runs import config
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

PROFILE = """[profiles.code]
complexity = 0.1
novelty = 0.7
tool_diversity = 0.1
outcome_confidence = 0.1
"""
REFUSED = trace(id="kp:trace:refused", confidence=7.0)


def last_run(connection: duckdb.DuckDBPyConnection) -> str:
    query = "SELECT run_id FROM runs ORDER BY started_at DESC LIMIT 1"
    return connection.execute(query).fetchall()[0][0]


def nights(folder: Path) -> Iterator[str]:
    """Runs over an archive that changes, each named by what is new about it."""
    archive, profiles = folder / "archive", folder / "profiles.toml"
    profiles.write_text(PROFILE)
    moments = count(1_700_000_000)

    def write(name: str, traces: list[dict[str, Any]]) -> None:
        """Write a file, not just now: the ledger would not trust such a young file's time."""
        moment = next(moments)
        os.utime(write_jsonl(archive / name, traces), (moment, moment))

    def run(**settings: Any) -> None:
        rescore_archive(config(folder, archive, **{"max_reject_share": 1, **settings}))

    def fail(**settings: Any) -> None:
        with pytest.raises(ArchiveError):
            run(**settings)

    write("a.jsonl", [REFUSED])
    fail()
    yield "a first run that failed"
    first = [trace(id=f"kp:trace:{n}", objective=f"fix import {n}") for n in range(3)]
    write("a.jsonl", [*first, REFUSED])
    run()
    yield "scores"
    run(threshold=0.3)
    yield "another threshold"
    later = [
        trace(id="kp:trace:0", objective="sum the rows"),
        trace(id="kp:trace:9", created_at="2026-01-07T08:00:00Z"),
    ]
    write("b.jsonl", [*later, trace(id="kp:trace:refused, too", success=None)])
    run(threshold=0.3)
    yield "another file, and rows that it supersedes"
    write("c.jsonl", [trace(id="kp:trace:10", steps=[])])
    fail(max_reject_share=0)
    yield "a run that failed"
    run(profiles=profiles)
    yield "another profile"
    (archive / "a.jsonl").unlink()
    run(profiles=profiles)
    yield "a file that is gone"
    run(profiles=profiles, prune=True)
    yield "a file that is pruned"


NAMES = (
    "a first run that failed",
    "scores",
    "another threshold",
    "another file, and rows that it supersedes",
    "a run that failed",
    "another profile",
    "a file that is gone",
    "a file that is pruned",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("history")


@pytest.fixture(scope="module")
def runs_by_night(folder: Path) -> dict[str, tuple[str, Tables]]:
    """By night: the run's id, and what was published right after it."""
    runs: dict[str, tuple[str, Tables]] = {}
    for name in nights(folder):
        with connect(folder / "warehouse") as connection:
            runs[name] = last_run(connection), tables(connection)
    return runs


@pytest.mark.telling
def test_every_run_leaves_other_tables(runs_by_night: dict[str, tuple[str, Tables]]) -> None:
    assert tuple(runs_by_night) == NAMES
    assert len({run_id for run_id, _ in runs_by_night.values()}) == len(NAMES)
    rows = {name: {repr(night[name]) for _, night in runs_by_night.values()} for name in VIEWS}
    assert {name: len(contents) for name, contents in rows.items()} == {
        "scores": 6,  # a failed run leaves those before it, a gone file its own
        "rejects": 6,
        "profiles": 3,
        "runs": len(NAMES),
        "files": 6,
        "distributions": len(NAMES) - 1,  # of runs that failed none, of the others one each
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_answered_as_it_was_right_after_it(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]], name: str
) -> None:
    run_id, published = runs_by_night[name]
    with connect(folder / "warehouse", run_id) as connection:
        assert tables(connection) == published
        assert last_run(connection) == run_id


def test_an_old_threshold_decides_what_meets_it(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    query = "SELECT count(*) FILTER (meets_threshold), count(*) FILTER (score >= ?) FROM scores"
    counts = []
    for name, threshold in (
        ("scores", 0.75),
        ("another threshold", 0.3),
        ("another profile", 0.75),
    ):
        with connect(folder / "warehouse", runs_by_night[name][0]) as connection:
            [(meeting, counted)] = connection.execute(query, [threshold]).fetchall()
            assert meeting == counted
            counts.append(meeting)
    assert counts[0] == counts[2] < counts[1]


def test_times_are_shown_in_utc(folder: Path, runs_by_night: dict[str, tuple[str, Tables]]) -> None:
    with connect(folder / "warehouse", runs_by_night["scores"][0]) as connection:
        query = "SELECT DISTINCT created_at::VARCHAR FROM scores"
        assert connection.execute(query).fetchall() == [("2026-01-05 08:00:00+00",)]


def test_the_past_cannot_be_written(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    with (
        connect(folder / "warehouse", runs_by_night["scores"][0]) as connection,
        pytest.raises(duckdb.Error, match="read-only"),
    ):
        connection.execute("CREATE TABLE other AS SELECT 1")


def test_asking_of_the_past_changes_nothing(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    warehouse = folder / "warehouse"
    before = read_manifest(warehouse), sorted(warehouse.rglob("*"))
    with connect(warehouse, runs_by_night["scores"][0]):
        pass
    assert (read_manifest(warehouse), sorted(warehouse.rglob("*"))) == before


@pytest.mark.parametrize("run_id", ["20260101T000000Z-abcdef", "", "it's none", "%", "é 日本"])
@pytest.mark.usefixtures("runs_by_night")
def test_an_unknown_run_is_reported(folder: Path, run_id: str) -> None:
    with (
        fails_with(WarehouseError, "no_run", r"^there is no run .*; see: kp-batch runs") as caught,
        connect(folder / "warehouse", run_id),
    ):
        pass
    assert repr(run_id) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_latest_and_previous_are_runs_that_are_done(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    """The fifth run failed; each name means what it meant at that time."""
    runs = {name: run_id for name, (run_id, _) in runs_by_night.items()}
    with connect(folder / "warehouse", "latest") as connection:
        assert last_run(connection) == runs["a file that is pruned"]
    with connect(folder / "warehouse", "previous") as connection:
        assert last_run(connection) == runs["a file that is gone"]
    meant = {}
    for name in NAMES:
        with connect(folder / "warehouse", runs[name]) as connection:
            [meant[name]] = connection.execute("SELECT latest(), previous()").fetchall()
    assert meant["a first run that failed"] == (None, None)
    assert meant["scores"] == (runs["scores"], None)
    before = runs["another file, and rows that it supersedes"], runs["another threshold"]
    assert meant["another file, and rows that it supersedes"] == before
    assert meant["a run that failed"] == before
    assert meant["another profile"] == (runs["another profile"], before[0])


def test_any_client_of_duckdb_knows_the_macros_of_runs(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    previous, latest = (runs_by_night[name][0] for name in NAMES[-2:])
    with duckdb.connect(str(folder / "warehouse" / "kp.duckdb"), read_only=True) as connection:
        rows = connection.execute("FROM drift(previous(), latest())").fetchall()
        named = connection.execute(f"FROM drift('{previous}', '{latest}')").fetchall()
    assert rows == named != []


def test_the_beginning_of_one_run_alone_is_enough(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    run_id, published = runs_by_night["a run that failed"]
    with connect(folder / "warehouse", run_id[:-1]) as connection:
        assert tables(connection) == published


@pytest.mark.telling
def test_the_beginning_of_several_runs_is_reported_with_some_of_them(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    # Two of one second have any order by name.
    ids = [run_id for run_id, _ in runs_by_night.values()][::-1]
    with (
        pytest.raises(WarehouseError, match=r"^'2' matches 8 runs in ") as caught,
        connect(folder / "warehouse", "2"),
    ):
        pass
    assert f": {', '.join(ids[:3])} and 5 more; write more" in str(caught.value)


@pytest.mark.telling
def test_what_grows_ends_with_the_run_for_polars_too(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    for run_id, before in runs_by_night.values():
        snapshot = published(folder / "warehouse", run_id)
        assert {run.run_id for run in snapshot.runs()} == {row[0] for row in before["runs"]}
        assert len(snapshot.scan("distributions").collect()) == len(before["distributions"])


def test_a_snapshot_names_the_files_of_the_days_that_are_asked_for(
    folder: Path, runs_by_night: dict[str, tuple[str, Tables]]
) -> None:
    day, others = date(2026, 1, 7), "date=2026-01-05"
    counts: list[int] = []
    for run_id, _ in (runs_by_night["another threshold"], runs_by_night["another profile"]):
        snapshot = published(folder / "warehouse", run_id)
        scores = snapshot.scores_of([day])
        assert others in snapshot.relation("scores")
        assert others not in scores
        rows = duckdb.sql(statement("FROM $scores", scores=scores))
        counts.append(len(rows))
    assert counts == [0, 1]


@pytest.mark.telling
def test_a_whole_run_id_is_no_beginning(two_runs: tuple[Path, str]) -> None:
    warehouse, first = two_runs
    manifest = read_manifest(warehouse)
    assert manifest
    runs = pl.read_parquet(files_of(warehouse, "runs"))
    draft = Draft(warehouse)
    draft.append("runs", runs.filter(run_id=first).with_columns(run_id=pl.lit(f"{first}0")))
    draft.publish()
    assert [run.run_id for run in published(warehouse).find_runs(first)] == [first]


def test_that_there_is_no_latest_or_previous_run_is_reported(tmp_path: Path) -> None:
    empty, one = tmp_path / "empty", tmp_path / "one"
    empty.mkdir()
    publish_nothing(empty)
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    rescore_archive(config(tmp_path, tmp_path / "a.jsonl", warehouse=one))
    for warehouse, name, message in (
        (empty, "latest", "there is no latest run in .*: no run is done; see: kp-batch runs"),
        (empty, "previous", "there is no previous run in .*: no run is done;"),
        (one, "previous", "there is no previous run in .*: only one run is done;"),
    ):
        with pytest.raises(WarehouseError, match=message), connect(warehouse, name):
            pass


@pytest.mark.parametrize("shown", ["by the catalog", "without a catalog", "as of a run"])
def test_a_reader_keeps_what_does_not_fit_in_a_folder_that_goes_with_it(
    two_runs: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    warehouse, first = two_runs
    if shown == "without a catalog":
        (warehouse / "kp.duckdb").unlink()
    before, place = sorted(warehouse.rglob("*")), tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with connect(warehouse, first if shown == "as of a run" else None) as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET memory_limit = '32MB'")
        # 60 MB of text
        many = "SELECT repeat(n::VARCHAR, 9) FROM range(1_000_000) AS r(n) ORDER BY hash(n)"
        assert connection.execute(many).fetchone()
        assert [path for path in place.rglob("*.tmp") if path.is_file()]
    assert list(place.iterdir()) == []
    assert sorted(warehouse.rglob("*")) == before


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a warehouse, and the first of its two runs."""
    folder = tmp_path_factory.mktemp("two_runs") / "made"
    settings = config(folder, folder / "a.jsonl", max_reject_share=1)
    write_jsonl(folder / "a.jsonl", [trace(), REFUSED])
    first = rescore_archive(settings).run_id
    assert first
    write_jsonl(folder / "a.jsonl", [trace(confidence=0.1), REFUSED])
    rescore_archive(settings)
    keep(folder)
    return folder, first


@pytest.fixture
def two_runs(made: tuple[Path, str]) -> tuple[Path, str]:
    """A warehouse, and the first of its two runs, whatever the last test made of them."""
    folder, first = made
    restore(folder)
    return folder / "warehouse", first


def test_a_run_whose_files_were_removed_is_named(two_runs: tuple[Path, str]) -> None:
    warehouse, first = two_runs
    vacuum(warehouse, timedelta(0), datetime.now(UTC))
    with (
        pytest.raises(WarehouseError, match=rf"run {first} were removed.*later run$"),
        connect(warehouse, first),
    ):
        pass
    with connect(warehouse) as connection:
        assert len(tables(connection)["scores"]) == 1


@pytest.mark.telling
def test_a_run_whose_table_is_gone_is_reported(two_runs: tuple[Path, str]) -> None:
    warehouse, first = two_runs
    (warehouse / "scores").rename(warehouse / "elsewhere")
    with (
        fails_with(WarehouseError, "file_gone", r"^the table scores is gone"),
        connect(warehouse, first),
    ):
        pass


def test_the_past_moves_with_the_warehouse_at_once(two_runs: tuple[Path, str]) -> None:
    warehouse, first = two_runs
    with connect(warehouse, first) as connection:
        before = tables(connection)
    moved = warehouse.rename(warehouse.with_name("it's moved"))
    with connect(moved, first) as connection:
        assert tables(connection) == before


def test_a_pool_shows_a_new_run_once_all_its_connections_are_closed(tmp_path: Path) -> None:
    def opened() -> duckdb.DuckDBPyConnection:
        return duckdb.connect(str(tmp_path / "kp.duckdb"), read_only=True)

    def shown() -> set[str]:
        with closing(pool.connect()) as lent, closing(lent.cursor()) as cursor:
            return {name for (name,) in cursor.execute("SELECT name FROM profiles").fetchall()}

    publish_profile(tmp_path, "before")
    pool = QueuePool(opened, reset_on_return=None)
    assert shown() == {"before"}
    publish_profile(tmp_path, "after")
    assert shown() == {"before"}
    with opened() as another:  # of the same process
        assert another.execute("SELECT name FROM profiles").fetchall() == [("before",)]
    pool.dispose()
    assert shown() == {"after"}
    pool.dispose()
