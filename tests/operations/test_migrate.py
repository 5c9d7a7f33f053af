"""Migration of warehouses that earlier versions made, as they were after each of their nights.

`warehouse/kept/make.sh` made them: three nights, a forget before the third, which has a failed run,
and a rollback.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

import kp_batch as kp
from kp_batch.errors import IdentityError, SettingError, StorageError, WarehouseError
from kp_batch.operations import migrate as migration
from kp_batch.operations.forget import forget
from kp_batch.operations.kept_runs import available_runs
from kp_batch.operations.migrate import migrate
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import GROWING
from kp_batch.scoring.profiles import parse_profiles
from kp_batch.storage.store import store_at
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.manifest import FORMAT_VERSION, require_manifest
from kp_batch.warehouse.reader import is_current
from kp_batch.warehouse.snapshot import published
from tests.support.make.kept import Frames, frames_of, same, unpacked
from tests.support.make.runs import config
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import listing
from tests.warehouse.publication_gaps import Killed

FORMATS = (17, 19)
STATES = (1, 2, 3, 4, 5)
EACH = [pytest.param(n, k, id=f"{n}-after-{k}") for n in FORMATS for k in STATES]
RENAMED = {"cache_size": "cached_vectors", "worth_sharing": "at_threshold"}


def manifest_of(warehouse: Path) -> dict[str, Any]:
    return json.loads((warehouse / "manifest.json").read_bytes())


def old_tables(warehouse: Path, tables: Mapping[str, Any]) -> Frames:
    """Read tables of an earlier format, by a Delta reader or by the lists of files."""
    frames = {name: _old_rows(warehouse, name, state) for name, state in tables.items()}
    return {name: frame.rename(RENAMED, strict=False) for name, frame in frames.items()}


def _old_rows(warehouse: Path, name: str, state: Any) -> pl.DataFrame:
    folder = warehouse / name
    if isinstance(state, int):
        files = DeltaTable(str(folder), version=state).file_uris()
    else:
        names = (warehouse / f"log/files/{each}.json" for each in state.values())
        lists = (json.loads(name.read_bytes()) for name in names)
        files = [f"{folder}/{file[0]}" for each in lists for file in each[1:]]
    rows = [pl.read_parquet(file, hive_partitioning=False) for file in sorted(files)]
    return pl.concat(rows) if rows else pl.DataFrame()


@pytest.mark.parametrize(("version", "state"), EACH)
def test_all_published_rows_and_settings_stay(tmp_path: Path, version: int, state: int) -> None:
    warehouse = unpacked(version, state, tmp_path)
    old = manifest_of(warehouse)
    before = old_tables(warehouse, old["tables"])

    result = migrate(warehouse)

    assert (result.from_format, result.to_format) == (version, FORMAT_VERSION)
    manifest, now = require_manifest(warehouse), frames_of(published(warehouse))
    assert manifest.warehouse_id == old["warehouse_id"]
    assert manifest.settings == {
        "trace_text" if name == "text" else name: value for name, value in old["settings"].items()
    }
    assert not [name for name in now.keys() - before.keys() if len(now[name])]
    for name in before.keys() - {"runs"}:
        assert same(now[name], before[name]), name
    assert migrate(warehouse).from_format == FORMAT_VERSION


@pytest.mark.parametrize(("version", "state"), EACH)
def test_runs_keep_what_they_recorded_under_new_names(
    tmp_path: Path, version: int, state: int
) -> None:
    warehouse = unpacked(version, state, tmp_path)
    before = old_tables(warehouse, manifest_of(warehouse)["tables"])["runs"].sort("run_id")
    migrate(warehouse)

    after = published(warehouse).scan("runs").collect().sort("run_id")

    plain = ["run_id", "started_at", "finished_at", "status", "reason", "note", "user", "inputs"]
    plain += ["seconds", "versions", "fingerprints", "audits"]
    assert after.select(plain).equals(before.select(plain))
    for old, new in zip(before.to_dicts(), after.to_dicts(), strict=True):
        counts = json.loads(old["counts"] or "null")
        if counts:
            counts["rescored"] = counts.pop("restated")
        assert json.loads(new["counts"]) == counts
        config, renamed = json.loads(old["config"]), json.loads(new["config"])
        assert renamed["trace_text"] == config["text"]
        assert (renamed["allow_audit"], renamed["ignore_rollback"]) == (
            config["allow"],
            config["accept"],
        )
        old_codes = [each["code"] for each in json.loads(old["changes"])]
        assert [each["code"] for each in json.loads(new["changes"])] == [
            "trace_text" if code == "text" else code for code in old_codes
        ]
    numbers = [json.loads(each)["number"] for each in after["published"]]
    assert numbers == sorted({*numbers})


@pytest.mark.parametrize(("version", "state"), EACH)
def test_each_run_that_could_be_read_still_can(tmp_path: Path, version: int, state: int) -> None:
    warehouse = unpacked(version, state, tmp_path)
    before = {}
    for run in old_tables(warehouse, manifest_of(warehouse)["tables"])["runs"].to_dicts():
        tables = json.loads(run["published"]).get("tables")
        if tables is None:  # format 19: it names a manifest
            name = json.loads(run["published"])["publication"]
            tables = json.loads((warehouse / f"log/{name}.json").read_bytes())["tables"]
        wanted = {name: tables[name] for name in tables if name not in GROWING}
        try:
            before[run["run_id"]] = old_tables(warehouse, wanted)
        except FileNotFoundError:  # format 17: the forget removed the files of earlier runs
            assert version == 17

    migrate(warehouse)

    kept, now = available_runs(warehouse), published(warehouse)
    assert {*kept.readable} == before.keys()
    for run_id, tables in before.items():
        past = frames_of(now.as_of(*now.find_runs(run_id)))
        for name, frame in tables.items():
            assert same(past[name], frame), (run_id, name)
        runs = past["runs"]["run_id"].to_list()
        assert max(runs) == run_id


def test_format_18_differs_from_17_in_what_the_manifest_has_besides(tmp_path: Path) -> None:
    warehouse = unpacked(17, 5, tmp_path)
    old = manifest_of(warehouse)
    counts = {"traces": 2, "exact_repeats": 1, "near_repeats": 0}
    (warehouse / "manifest.json").write_text(
        json.dumps({**old, "format_version": 18, "redundancy": counts})
    )
    before = old_tables(warehouse, old["tables"])["scores"]
    assert migrate(warehouse).from_format == 18
    assert same(published(warehouse).scan("scores").collect(), before)


# --- the last run ---


@pytest.mark.parametrize(("version", "state"), EACH)
def test_the_last_run_and_the_open_warnings_stay_known(
    tmp_path: Path, version: int, state: int
) -> None:
    warehouse = unpacked(version, state, tmp_path)
    old = json.loads((warehouse / "last-run.json").read_bytes())
    assert LastRuns.read(warehouse) == LastRuns()
    migrate(warehouse)

    last, success = LastRuns.read(warehouse)
    assert last
    assert success
    assert success.counts
    before = old if version == 17 else old["last_run"]
    began, ended = ("began", "ended") if version == 17 else ("started_at", "finished_at")
    assert (last.run_id, last.status, last.host) == (before["run_id"], "done", before["host"])
    assert (last.started_at, last.finished_at) == (before[began], before[ended])
    warnings = old["success"]["stands"] if version == 17 else old["last_success"]["counts"]
    for name in ("unreadable", "cut", "gone", "rejected", "excluded"):
        assert getattr(success.counts, name) == warnings[name]
    assert {x.name: x.rows for x in success.audits if x.rows} == (
        {"no_legal": 1} if state == 4 else {}
    )
    assert bool(success.rolled_back) == (state == 5)
    if success.rolled_back:
        assert [x.code for x in success.rolled_back.undone] == ["threshold", "trace_text"]
    status = invoke("status", "--warehouse", warehouse).stdout
    assert f"by root on {before['host']}, run {before['run_id']}" in status
    assert "1 row rejected" in status
    newest = {1: "01-05 09:00", 4: "01-07 08:00"}.get(state, "01-06 08:00")
    assert f"of 2026-{newest} UTC" in status


def test_a_last_run_that_anybody_wrote_stays(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[]", b"{}", b'{"last_run": null}', b'{"last_run": {"counts": 7}}'):
        warehouse = unpacked(17, 2, tmp_path)
        (warehouse / "last-run.json").write_bytes(content)
        migrate(warehouse)
        assert (warehouse / "last-run.json").read_bytes() == content
        shutil.rmtree(warehouse)


# --- what follows ---


def all_files(folder: Path) -> Path:
    """Return an archive with the files of all nights."""
    archive = folder / "archive"
    archive.mkdir()
    for state, name in ((2, "1.jsonl"), (5, "2.jsonl"), (5, "3.jsonl")):
        unpacked(20, state, folder / "newest")
        shutil.copy2(folder / "newest" / str(state) / "archive" / name, archive)
    return archive


def scores(warehouse: Path) -> pl.DataFrame:
    rows = published(warehouse).scan("scores").collect()
    return rows.drop("run_id", "source_file").sort("trace_id")


def never_old(folder: Path, archive: Path) -> pl.DataFrame:
    """Return the scores of a warehouse that this version has made."""
    settings = require_manifest(unpacked(20, 5, folder)).settings
    profiles = parse_profiles(settings["profiles"], "kept")
    run = config(
        folder, archive, profiles=profiles, embedder="hashing", cache_size=2, max_reject_share=1
    )
    rescore_archive(run)
    forget(run.warehouse, ["b"])
    return scores(run.warehouse)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "state"), EACH)
def test_the_next_night_gives_the_scores_of_a_warehouse_that_was_never_old(
    tmp_path: Path, version: int, state: int
) -> None:
    archive, warehouse = all_files(tmp_path), unpacked(version, state, tmp_path)
    migrate(warehouse)

    done = invoke("run", archive, "--warehouse", warehouse, "--max-reject-share", 1, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["embedded"] == (1 if state < 4 else 0)
    if state < 3:
        forget(warehouse, ["b"])
    assert scores(warehouse).equals(never_old(tmp_path, archive))
    assert invoke("verify", "--warehouse", warehouse).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", FORMATS)
def test_traces_of_a_file_that_is_gone_keep_their_place(tmp_path: Path, version: int) -> None:
    archive, warehouse = all_files(tmp_path), unpacked(version, 4, tmp_path)
    expected = never_old(tmp_path, archive)
    (archive / "1.jsonl").unlink()
    migrate(warehouse)

    invoke("run", archive, "--warehouse", warehouse, "--max-reject-share", 1)

    assert scores(warehouse).equals(expected)


@pytest.mark.slow
@pytest.mark.telling
@pytest.mark.parametrize("version", FORMATS)
def test_every_command_works_on_it(tmp_path: Path, version: int) -> None:
    warehouse = unpacked(version, 4, tmp_path)
    migrate(warehouse)
    if version == 17:  # its facts are of an earlier version
        with pytest.raises(WarehouseError, match="the scores come from another version"):
            forget(warehouse, ["d"])
        archive = all_files(tmp_path)
        assert not invoke(
            "run", archive, "--warehouse", warehouse, "--max-reject-share", 1
        ).returncode
    before = scores(warehouse)
    assert forget(warehouse, ["b"]).before == 1
    forget(warehouse, ["d"])
    rollback(warehouse, "previous")
    assert scores(warehouse).equals(before.filter(pl.col("trace_id") != "d"))
    vacuum(warehouse, timedelta(0), datetime.now(UTC))
    files = [*(warehouse / "scores").rglob("*.parquet")]
    assert not [each for each in files if each.with_stem(f"{each.stem}-format-20").exists()]
    now = published(warehouse)
    assert now.is_whole
    for name, frame in frames_of(now).items():
        assert same(pl.read_delta(str(warehouse / name)).select(frame.columns), frame), name


def untouched(warehouse: Path, before: Mapping[str, str]) -> bool:
    """Whether all files are as they were, except the lock; new ones may be there."""
    return {**listing(warehouse), **before, "kp.lock": ""} == {**listing(warehouse), "kp.lock": ""}


# --- what is refused, and what is cut short ---


@pytest.mark.parametrize("version", FORMATS)
def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path, version: int) -> None:
    warehouse = unpacked(version, 5, tmp_path)
    before = listing(warehouse)
    planned = migrate(warehouse, dry_run=True)
    assert listing(warehouse) == before
    done = migrate(warehouse)
    assert replace(planned, is_done=True) == done
    written = {name for name in listing(warehouse) if "-format-20" in name}
    assert len(written) == done.files


@pytest.mark.slow
@pytest.mark.parametrize("version", FORMATS)
def test_killed_at_any_moment_it_leaves_the_old_warehouse_or_the_new_one(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = unpacked(version, 4, tmp_path)
    before, moves = listing(warehouse), count()
    expected = old_tables(warehouse, manifest_of(warehouse)["tables"])["scores"]
    path_replace = Path.replace

    def killed_at(number: int) -> Callable[[Path, Path], Path]:
        moves = count()

        def replacing(path: Path, target: Path) -> Path:
            if next(moves) == number:
                raise Killed
            return path_replace(path, target)

        return replacing

    for number in moves:
        shutil.rmtree(tmp_path / "4")
        unpacked(version, 4, tmp_path)
        monkeypatch.setattr(Path, "replace", killed_at(number))
        try:
            migrate(warehouse)
        except Killed:
            monkeypatch.undo()
            if manifest_of(warehouse)["format_version"] == version:
                assert untouched(warehouse, before)
            migrate(warehouse)
            assert same(published(warehouse).scan("scores").collect(), expected)
            assert is_current(warehouse, require_manifest(warehouse))
            assert LastRuns.read(warehouse).last_run
            continue
        break
    assert number > 20


def test_a_file_that_was_written_wrongly_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = unpacked(17, 2, tmp_path)
    before, write = listing(warehouse), migration.write_data_file

    def cut(place: Path, table: str, rows: pl.DataFrame, name: str) -> DataFile:
        return write(place, table, rows.head(0) if table == "distributions" else rows, name)

    monkeypatch.setattr(migration, "write_data_file", cut)
    with pytest.raises(StorageError, match=r"distributions/.*; nothing was migrated"):
        migrate(warehouse)
    assert untouched(warehouse, before)


def test_it_needs_a_finished_forget_and_the_expected_warehouse(tmp_path: Path) -> None:
    warehouse = unpacked(17, 1, tmp_path)
    with fails_with(IdentityError, "identity", "the project names warehouse another"):
        migrate(warehouse, "another")
    (warehouse / "forgetting").write_text("[]")
    with fails_with(WarehouseError, "unfinished_forget", "with the version of kp_batch that began"):
        migrate(warehouse)


def test_settings_that_are_wrong_are_named_before_anything_is_written(tmp_path: Path) -> None:
    warehouse = unpacked(19, 2, tmp_path)
    old = manifest_of(warehouse)
    wrong = {**old["settings"], "profiles": [], "ttl": "soon"}
    (warehouse / "manifest.json").write_text(json.dumps({**old, "settings": wrong}))
    before = listing(warehouse)
    message = (
        r"the settings in manifest.json are wrong: ttl: .*; profiles .*; restore it from a copy$"
    )
    for dry_run in (True, False):
        with fails_with(SettingError, "settings", message):
            migrate(warehouse, dry_run=dry_run)
    assert before.items() <= listing(warehouse).items()


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    warehouse = unpacked(17, 2, tmp_path)
    (warehouse / "scores" / "_delta_log" / f"{1:020}.json").write_bytes(b"{")
    with fails_with(
        WarehouseError, "damaged", ".*2/warehouse cannot be migrated, because its log is damaged"
    ):
        migrate(warehouse)
    with fails_with(WarehouseError, "no_warehouse"):
        migrate(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.process
def test_a_warehouse_in_a_bucket_is_migrated_there(tmp_path: Path, bucket: str) -> None:
    old, url = unpacked(17, 5, tmp_path), f"{bucket}/team"
    store = store_at(url)
    for path in filter(Path.is_file, old.rglob("*")):
        store.write(path.relative_to(old).as_posix(), path)
    expected = old_tables(old, manifest_of(old)["tables"])["scores"]

    done = invoke("migrate", "--warehouse", url)

    assert done.stdout.startswith(f"migrated: {url} from format 17 to {FORMAT_VERSION}")
    assert json.loads(store.read("manifest.json")[0])["format_version"] == FORMAT_VERSION
    shutil.rmtree(folder_of(url))  # another machine
    assert "rollback done" in invoke("status", "--warehouse", url).stdout
    assert set(kp.Warehouse(url).scores().collect()["trace_id"]) == {*expected["trace_id"]}
