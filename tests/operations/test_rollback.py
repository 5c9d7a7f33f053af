"""What an earlier run left is published again, to the bit, and the next run goes on from there."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

import kp_batch.operations.forget
import kp_batch.operations.rollback
import kp_batch.pipeline.publish
import kp_batch.warehouse.publication
from kp_batch.cli.query import runs
from kp_batch.errors import ArchiveError, WarehouseError
from kp_batch.operations.compare import compare
from kp_batch.operations.current_settings import settings
from kp_batch.operations.forget import forget
from kp_batch.operations.kept_runs import available_runs
from kp_batch.operations.rollback import plan_rollback, rollback, rolled_back_text
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import GROWING, TABLES
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.snapshot import published
from tests.support.kill.removal import Killed, killed, needed, parquet, refused, said
from tests.support.make.archives import step, write_jsonl
from tests.support.make.publications import files_of
from tests.support.make.runs import config
from tests.support.oracle.tables import tables
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

STATE = [name for name in TABLES if name not in {*GROWING, "forgotten"}]
USUAL = {"steps": [step("thought", "think"), step("tool_call", "ask", "sql")]}
GOOD = (said(1, "sum it", 8, **USUAL), said(2, "fix it", 9, **USUAL), refused(3))
Folder = tuple[Path, list[str]]


def settings_of(folder: Path, **changes: Any) -> Any:
    options = {"max_reject_share": 1, "max_removed": "100%", **changes}
    return config(folder, folder / "archive", **options)


def write(folder: Path, name: str, *rows: Any) -> None:
    write_jsonl(folder / "archive" / f"{name}.jsonl", [*rows])


def run(folder: Path, **changes: Any) -> str:
    run_id = rescore_archive(settings_of(folder, **changes)).run_id
    assert run_id
    return run_id


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Two nights: the second one had a bad file, and another threshold."""
    folder = tmp_path_factory.mktemp("nights") / "made"
    write(folder, "good", *GOOD)
    first = run(folder)
    write(folder, "bad", said(0, "fix it", 7, **USUAL), said(4, "sum it", 10), refused(5))
    write(folder, "good", said(1, "sum it", 8, **USUAL, confidence=0.1), *GOOD[1:])
    second = run(folder, threshold=0.5)
    keep(folder)
    return folder, [first, second]


@pytest.fixture
def nights(two_nights: Folder) -> Folder:
    restore(two_nights[0])
    return two_nights


def state(warehouse: Path, as_of: str | None = None) -> tuple[dict[str, pl.DataFrame], Any]:
    """All that a run leaves, to the bit, and its settings."""
    snapshot = published(warehouse, as_of)
    rows = {name: snapshot.scan(name).collect() for name in STATE}
    return rows, dict(snapshot.manifest.settings)


def assert_same(actual: Any, wanted: Any) -> None:
    assert actual[1] == wanted[1]
    for name, rows in wanted[0].items():
        assert actual[0][name].equals(rows), name


@pytest.mark.telling
def test_a_rollback_publishes_what_a_run_left_and_one_forward_what_was_before(
    nights: Folder,
) -> None:
    folder, (first, second) = nights
    warehouse = folder / "warehouse"
    old, new = state(warehouse, first), state(warehouse)
    files = parquet(warehouse)
    back = rollback(warehouse, "previous")
    assert rolled_back_text(back).startswith(f"rolled back by run {back.run_id}: from run ")
    assert (back.rolled_back.from_run, back.rolled_back.to_run) == (second, first)
    assert_same(state(warehouse), old)
    assert len(parquet(warehouse) - files) == len(GROWING)  # a row of each, and nothing copied
    for name in published(warehouse).manifest.tables:  # for who reads a table alone
        uris = DeltaTable(str(warehouse / name)).file_uris()
        assert {Path(uri) for uri in uris} == {*files_of(warehouse, name)}
    forth = rollback(warehouse, second[:20] if first[:20] != second[:20] else second)
    assert (forth.rolled_back.from_run, forth.rolled_back.to_run) == (back.run_id, second)
    assert_same(state(warehouse), new)
    for run_id, expected in ((first, old), (second, new), (back.run_id, old), (forth.run_id, new)):
        assert_same(state(warehouse, run_id), expected)


@pytest.mark.telling
def test_it_is_a_run_of_its_own_that_says_from_which_to_which_unless_that_is_published(
    nights: Folder,
) -> None:
    folder, (first, second) = nights
    before = read_manifest(folder / "warehouse")
    assert rollback(folder / "warehouse", "latest").status == "nothing_to_do"
    assert read_manifest(folder / "warehouse") == before
    done = rollback(folder / "warehouse", first)
    [(changes, inputs, seconds)] = ask_rows(
        settings_of(folder).warehouse,
        "SELECT changes, inputs, seconds FROM runs WHERE run_id = latest() AND status = 'done'",
    )
    words = f"rollback from run {second} to run {first}"
    expected = {"code": "rollback", "words": words, "old": second, "new": first, "of": None}
    reason, threshold = json.loads(changes)
    assert reason == expected
    assert (threshold["old"], threshold["new"]) == (0.5, 0.75)
    names = [(Path(entry["source_file"]).name, entry["status"]) for entry in json.loads(inputs)]
    assert names == [("bad.jsonl", "unread"), ("good.jsonl", "read")]
    assert sum(json.loads(seconds).values()) > 0
    rows = {
        name: ask_rows(
            settings_of(folder).warehouse,
            f"SELECT * EXCLUDE (run_id) FROM distributions WHERE run_id = '{name}' ORDER BY ALL",
        )
        for name in (first, done.run_id)
    }
    assert rows[first] == rows[done.run_id] != []
    current = {
        setting["name"]: (setting["value"], setting["run_id"])
        for setting in settings(folder / "warehouse")
    }
    assert current["threshold"] == (0.75, done.run_id)
    moved = compare(folder / "warehouse", first, "latest")
    assert (moved.in_both, moved.only_before, moved.only_after) == (2, 0, 0)
    assert moved.movers == ()
    assert moved.changes == ()
    again = rollback(folder / "warehouse", first)
    assert again.status == "nothing_to_do"
    assert rolled_back_text(again) == f"nothing to roll back: run {first} is published already"


def test_it_shows_what_it_undoes_and_what_would_come_back(nights: Folder) -> None:
    folder, (first, second) = nights
    write(folder, "later", said(6, "later", 11))
    before = listing(folder)
    result = plan_rollback(folder / "warehouse", first)
    assert listing(folder) == before
    assert (result.run_id, result.rolled_back.from_run, result.rolled_back.to_run) == (
        None,
        second,
        first,
    )
    assert (result.removed, result.returned) == (2, 0)
    assert result.rescored == 2  # of another confidence, and after one that came before it
    assert (result.rejects, result.rejects_then) == (2, 1)
    assert [change.words for change in result.rolled_back.undone] == [
        "threshold 0.5 \N{RIGHTWARDS ARROW} 0.75"
    ]
    assert result.files
    paths = {
        what: [Path(path).name for path in getattr(result.files, what)]
        for what in vars(result.files)
    }
    assert paths == {
        **{what: [] for what in paths},
        "new": ["bad.jsonl", "later.jsonl"],
        "changed": ["good.jsonl"],
    }
    assert result.status == "done"
    done = rollback(folder / "warehouse", first)
    for name in ("rolled_back", "rescored", "removed", "returned", "rejects", "rejects_then"):
        assert getattr(done, name) == getattr(result, name)


@pytest.mark.telling
def test_it_is_reported_on_few_lines(nights: Folder) -> None:
    folder, (first, second) = nights
    result = plan_rollback(folder / "warehouse", first)
    assert result.files
    short = replace(result, files=replace(result.files, new=tuple(map(str, range(12)))))
    arrow = "\N{RIGHTWARDS ARROW}"
    assert rolled_back_text(short, dry_run=True).splitlines() == [
        f"to be rolled back: from run {second} to run {first}",
        "  change     2 scores",
        "  remove     2 traces",
        f"  rejects    2 {arrow} 1",
        f"  setting    threshold 0.5 {arrow} 0.75",
        "  again      a later run with --threshold applies it again",
        *(f"  next run   new: {number}" for number in range(10)),
        "  next run   new: 2 more",
        f"  next run   changed: {folder}/archive/good.jsonl",
        "nothing was changed",
    ]


@pytest.mark.telling
def test_runs_shows_which_are_kept_and_forgotten_ids_stay_out(
    nights: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (first, second) = nights
    gone = forget(folder / "warehouse", ["unseen"], unseen_too=True).run_id
    assert gone
    capsys.readouterr()
    runs.main(["--warehouse", f"{folder}/warehouse", "--json"], standalone_mode=False)
    output = {entry["run_id"]: entry["kept"] for entry in json.loads(capsys.readouterr().out)}
    kept = available_runs(folder / "warehouse")
    assert output == {
        name: "rollback" if name in kept.restorable else "as-of" if name in kept.readable else None
        for name in (first, second, gone)
    }
    assert (output[second], output[gone]) == ("rollback", "rollback")
    rollback(folder / "warehouse", first)
    hashes = published(folder / "warehouse").scan("forgotten").collect()
    assert len(hashes) == 1


def test_it_undoes_files_alone_where_the_settings_are_the_same(nights: Folder) -> None:
    folder, (_, second) = nights
    warehouse, before = folder / "warehouse", state(folder / "warehouse")
    write(folder, "later", said(6, "later", 11))
    run(folder, threshold=0.5)
    done = rollback(warehouse, second)
    assert (done.status, done.removed, done.rolled_back.undone) == ("done", 1, ())
    assert_same(state(warehouse), before)


@pytest.mark.telling
def test_an_archive_that_is_gone_keeps_nobody_from_it(nights: Folder) -> None:
    folder, (first, _) = nights
    shutil.rmtree(folder / "archive")
    result = plan_rollback(folder / "warehouse", first)
    assert (result.files, "no Parquet or JSONL file" in result.not_read) == (None, True), result
    rollback(folder / "warehouse", first)


def test_the_next_run_over_a_fixed_archive_leaves_what_one_full_run_would(nights: Folder) -> None:
    folder, (first, _) = nights
    rollback(folder / "warehouse", first)
    (folder / "archive" / "bad.jsonl").unlink()
    fixed = (folder / "archive" / "good.jsonl").read_bytes()
    write(folder, "good", *GOOD)
    assert rescore_archive(settings_of(folder)).run_id is None  # it is the archive of then
    (folder / "archive" / "good.jsonl").write_bytes(fixed)
    assert rescore_archive(settings_of(folder)).counts.embedded == 0  # their vectors are there
    assert rescore_archive(settings_of(folder)).run_id is None
    assert_as_of_one_run(folder, of_one_run(folder))


@pytest.mark.telling
def test_the_rejects_of_a_failed_run_go(nights: Folder) -> None:
    folder, (_, second) = nights
    warehouse, before = folder / "warehouse", state(folder / "warehouse")
    write(folder, "bad", refused(5))
    with pytest.raises(ArchiveError):
        rescore_archive(settings_of(folder, max_removed="0"))
    failed = ask_rows(
        settings_of(folder).warehouse, "SELECT run_id FROM runs WHERE status = 'failed'"
    )[0][0]
    with pytest.raises(WarehouseError, match=f"^run {failed} failed and changed no scores"):
        rollback(warehouse, failed)
    assert failed in available_runs(warehouse).readable
    assert failed not in available_runs(warehouse).restorable
    assert rollback(warehouse, second).run_id
    assert_same(state(warehouse), before)


def test_what_was_forgotten_stays_so_while_its_files_are_there(
    nights: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, (first, second) = nights
    monkeypatch.setattr(kp_batch.operations.forget, "start_over", killed)
    with pytest.raises(Killed):
        forget(folder / "warehouse", ["kp:trace:2"])
    kept = available_runs(folder / "warehouse")
    assert kept.readable[:2] == (first, second)
    assert kept.restorable == kept.readable[:3]
    for attempt in (rollback, plan_rollback):
        with pytest.raises(WarehouseError, match="a kp-batch forget did not finish, and "):
            attempt(folder / "warehouse", second)


@pytest.mark.telling
def test_what_a_vacuum_took_is_named(nights: Folder) -> None:
    folder, (first, second) = nights
    warehouse = folder / "warehouse"
    assert available_runs(warehouse).restorable == (first, second)
    vacuum(warehouse, timedelta(0), datetime.now(UTC))
    message = f"^run {first} cannot be published again: its files were removed"
    with pytest.raises(WarehouseError, match=message) as caught:
        rollback(warehouse, first)
    assert str(caught.value).endswith(f"; the runs since {second} are kept")
    assert available_runs(warehouse).restorable == (second,)


def test_a_vacuum_keeps_a_rollback_and_no_run_before_it(
    nights: Folder,
) -> None:
    folder, (first, second) = nights
    warehouse = folder / "warehouse"
    back = rollback(warehouse, first).run_id
    assert back
    before = tables(warehouse)
    assert vacuum(warehouse, timedelta(0), datetime.now(UTC)).readable == (back,)
    assert available_runs(warehouse).restorable == (back,)
    for name in ("scores", "profiles"):  # rejects of old runs lose their JSON
        assert tables(warehouse)[name].equals(before[name])
    with pytest.raises(WarehouseError, match=f"^run {second} cannot be published again"):
        rollback(warehouse, second)
    rescore_archive(settings_of(folder))


def test_what_a_rollback_takes_back_is_neither_gone_nor_pruned(nights: Folder) -> None:
    folder, (first, second) = nights
    warehouse = folder / "warehouse"
    back = rollback(warehouse, first)
    assert back.run_id

    def differing(one: str, other: str) -> list[str]:
        changes = compare(warehouse, one, other).changes
        return [change.words for change in changes if change.code != "threshold"]

    undone = f"rollback from run {second} to run {first}"
    assert differing(second, back.run_id) == [undone, "1 file changed", "1 file unread"]
    assert differing(second, first) == ["1 file changed", "1 file unread"]
    assert differing(first, second) == ["1 file new", "1 file changed"]
    (folder / "archive" / "bad.jsonl").unlink()
    write(folder, "good", *GOOD, said(4, "later", 11))
    after = run(folder)
    assert differing(second, after) == [undone, "1 file changed", "1 file unread"]
    assert differing(back.run_id, after) == ["1 file changed"]


def test_a_rollback_has_the_audits_of_the_run_that_it_went_back_to(tmp_path: Path) -> None:
    audits = {"few": {"sql": "FROM scores WHERE score >= 0", "severity": "warn"}}
    write(tmp_path, "good", said(1, "sum it", 8))
    run(tmp_path, audits=audits)
    write(tmp_path, "more", said(2, "fix it", 9))
    run(tmp_path, audits={**audits, "more": {"sql": "FROM scores LIMIT 0"}})
    rollback(tmp_path / "warehouse", "previous")
    rows = ask_rows(settings_of(tmp_path).warehouse, "SELECT audits FROM runs ORDER BY number")
    first, second, back = (json.loads(audits) for (audits,) in rows)
    assert back == first
    assert [audit["rows"] for audit in second] == [2, 0]


@pytest.fixture(scope="module")
def with_later(two_nights: Folder) -> dict[str, pl.DataFrame]:
    """The tables of one full run over the archive with one more file."""
    restore(two_nights[0])
    write(two_nights[0], "later", said(6, "later", 11))
    return of_one_run(two_nights[0])


MOMENTS: list[tuple[object, str]] = [
    (kp_batch.pipeline.publish, "publish"),
    (kp_batch.warehouse.publication, "publish_in_bucket"),
    (kp_batch.operations.rollback, "renew_report"),
]


@pytest.mark.parametrize(("where", "what"), MOMENTS, ids=[what for _, what in MOMENTS])
def test_one_that_is_killed_leaves_the_old_or_the_new(
    with_later: dict[str, pl.DataFrame], nights: Folder, where: object, what: str
) -> None:
    folder, (first, _) = nights
    warehouse = folder / "warehouse"
    published_then = state(warehouse, first if what == "renew_report" else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, what, killed)
        with pytest.raises(Killed):
            rollback(warehouse, first)
    assert_same(state(warehouse), published_then)
    write(folder, "later", said(6, "later", 11))
    assert rescore_archive(settings_of(folder)).counts.embedded == 1
    assert_as_of_one_run(folder, with_later)
    was_needed = needed(warehouse)
    vacuum(warehouse, timedelta(0), datetime.now(UTC))
    assert parquet(warehouse) == needed(warehouse) | was_needed


def of_one_run(folder: Path) -> dict[str, pl.DataFrame]:
    rescore_archive(settings_of(folder, warehouse=folder / "full"))
    return tables(folder / "full")


def assert_as_of_one_run(folder: Path, wanted: dict[str, pl.DataFrame]) -> None:
    actual = tables(folder / "warehouse")
    for name, rows in wanted.items():
        assert actual[name].equals(rows), name
