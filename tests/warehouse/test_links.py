"""Links, records and names by which somebody else's warehouse or archive reaches outside."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.imports.destination import target_of
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import plan_rollback, rollback
from kp_batch.operations.verify import verify
from kp_batch.pipeline.rescore import rescore_and_report, rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.storage import store as storage
from kp_batch.warehouse.bucket.location import folder_of, local_copy, make_folder_of
from kp_batch.warehouse.bucket.mirror import is_shared
from kp_batch.warehouse.catalog import build_published
from kp_batch.warehouse.file_lists import DataFile, write_list
from kp_batch.warehouse.manifest import Manifest, past_manifest, require_manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot
from kp_batch.warehouse.staging import Staging
from kp_batch.warehouse.vacuum_result import VacuumResult
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import SETTINGS, publish_profile
from tests.support.make.runs import config
from tests.support.processes.commands import invoke, kp_batch
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

NOTHING = timedelta(0)
NAMES = ("thesis.parquet", "notes.txt", "model.npy", f"{'0' * 64}.vectors.npy", "x.parquet.part")


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse and its archive, and a folder of somebody who knows of neither."""
    folder = tmp_path_factory.mktemp("links") / "made"
    settings = config(folder, folder / "archive")
    write_jsonl(folder / "archive" / "a.jsonl", [trace(id="kp:trace:0")])
    rescore_archive(settings)
    write_jsonl(folder / "archive" / "a.jsonl", [trace(), trace(id="kp:trace:2", objective="x")])
    rescore_archive(settings)
    (folder / "outside").mkdir()
    for name in NAMES:
        (folder / "outside" / name).write_text("mine", "utf-8")
    keep(folder)
    return folder


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    """The same at the same path, whatever the last test made of it."""
    restore(as_it_was)
    return as_it_was


def run(folder: Path, **settings: Any) -> None:
    rescore_and_report(config(folder, folder / "archive", threshold=0.1, **settings))


def vacuumed(folder: Path) -> VacuumResult:
    return vacuum(folder / "warehouse", NOTHING, datetime.now(UTC))


def to_vacuum(folder: Path) -> VacuumResult:
    return vacuum(folder / "warehouse", NOTHING, datetime.now(UTC), dry_run=True)


def forgotten(folder: Path) -> None:
    forget(folder / "warehouse", ["kp:trace:2"])


def to_forget(folder: Path) -> None:
    forget(folder / "warehouse", ["kp:trace:2"], dry_run=True)


def rolled_back(folder: Path) -> None:
    rollback(folder / "warehouse", "previous")


def to_roll_back(folder: Path) -> None:
    plan_rollback(folder / "warehouse", "previous")


def untouched(folder: Path) -> bool:
    outside = folder / "outside"
    there = {path.name for path in outside.iterdir()}
    return there == {*NAMES} and all((outside / name).read_text() == "mine" for name in NAMES)


def command(*words: object) -> None:
    done = invoke(*words)
    assert done.returncode == 0, done.stderr


WORK = (run, vacuumed, to_vacuum, forgotten, to_forget, rolled_back, to_roll_back)
PLACES = ("files/old", "vectors/hashing-9-v1", "scores/date=2026-01-06", "facts/a/b", "forgotten")


@pytest.mark.parametrize("work", WORK)
def test_a_link_in_a_table_is_refused_by_name(folder: Path, work: Callable[[Path], object]) -> None:
    for place in PLACES:
        link = folder / "warehouse" / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder / "outside")
        with pytest.raises(KpBatchError, match=f"{place} is a symbolic link"):
            work(folder)
        assert untouched(folder), place
        link.unlink()
    work(folder)


@pytest.mark.telling
@pytest.mark.parametrize("name", ["staging", "prefect", "kp.lock", "forgetting"])
def test_a_link_in_place_of_what_a_writer_writes_into_is_refused_by_name(
    folder: Path, name: str
) -> None:
    link = folder / "warehouse" / name
    link.unlink(missing_ok=True)
    is_file = name in {"kp.lock", "forgetting"}
    link.symlink_to(folder / "outside" / ("notes.txt" if is_file else ""))
    for work in (run, vacuumed, forgotten, rolled_back):
        with pytest.raises(WarehouseError, match=f"{name} is a symbolic link"):
            work(folder)
    assert untouched(folder)


@pytest.mark.usefixtures("no_page")
def test_what_is_replaced_whole_is_replaced_where_it_is_a_link(folder: Path) -> None:
    warehouse, outside = folder / "warehouse", folder / "outside"
    (warehouse / "report.html").symlink_to(outside / "notes.txt")
    for name in ("manifest.json", "kp.duckdb"):
        (warehouse / name).rename(folder / name)
        (warehouse / name).symlink_to(folder / name)
    before = {name: (folder / name).read_bytes() for name in ("manifest.json", "kp.duckdb")}
    run(folder, report=True)
    assert untouched(folder)
    assert all((folder / name).read_bytes() == content for name, content in before.items())
    assert not any(path.is_symlink() for path in warehouse.iterdir())
    assert "<!-- publication" in (warehouse / "report.html").read_text("utf-8")


def test_a_warehouse_may_be_a_link_and_be_below_one(folder: Path) -> None:
    (folder / "parents").symlink_to(folder)
    (folder / "warehouse").rename(folder / "disk")
    (folder / "warehouse").symlink_to(folder / "disk")
    run(folder / "parents")
    vacuumed(folder / "parents")
    assert ask_rows(config(folder, folder).warehouse, "SELECT count(*) FROM scores") == [(2,)]


@pytest.mark.telling
def test_vacuum_and_forget_remove_what_is_ours_by_name_and_a_dry_run_counts_it(
    folder: Path,
) -> None:
    warehouse = folder / "warehouse"
    places = [
        *(warehouse / name for name in ("files", "scores", "scores/date=2026-01-05", "vectors")),
        *(warehouse / name for name in ("log", "log/files")),
        *(warehouse / "vectors").iterdir(),
        warehouse / "vectors" / "photos",
    ]
    kept = [place / name for place in places for name in ("notes.txt", "a.npy", "_x.json", ".x")]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine", "utf-8")
    dead = [
        warehouse / "files" / "dead.parquet",
        warehouse / "files" / "dead.parquet#1",
        warehouse / "scores" / "date=2026-01-05" / f"dead.parquet.{'a' * 32}.part",
    ]
    for path in dead:
        path.write_bytes(b"PAR1")
    planned = to_vacuum(folder)
    assert planned.files >= len(dead)
    assert vacuumed(folder) == planned
    forgotten(folder)
    assert all(path.read_text("utf-8") == "mine" for path in kept)
    assert not any(path.exists() for path in dead)


@pytest.mark.parametrize(
    "path", ["../../outside/x.parquet", "/etc/x.parquet", "a/../x.parquet", "*.parquet", "x.csv"]
)
def test_a_list_that_names_a_file_as_no_run_does_is_damaged(tmp_path: Path, path: str) -> None:
    publish_profile(tmp_path, "one")
    name = write_list(tmp_path, "an-attacker", [DataFile(path, 1, 1, None)])
    manifest = Manifest(SETTINGS, {"profiles": {"2026-01": name}})
    damaged = rf"the list of files {name}\.json in .* is damaged"
    with fails_with(WarehouseError, "damaged", damaged):
        PublishedSnapshot(tmp_path, manifest).relation("profiles")


@pytest.mark.parametrize("name", ["../../outside", "*", "x" * 32])
def test_a_run_that_names_a_manifest_as_none_does_is_damaged(tmp_path: Path, name: str) -> None:
    with fails_with(WarehouseError, "damaged", r"\.json is damaged; restore it from a copy"):
        past_manifest(tmp_path, name)


@pytest.mark.parametrize("name", ["w*", "w[x]", "w?"])
def test_the_name_of_a_warehouse_is_no_glob(tmp_path: Path, name: str) -> None:
    publish_profile(tmp_path / "wx", "one")
    shutil.copytree(tmp_path / "wx", tmp_path / name)
    manifest = require_manifest(tmp_path / name)
    build_published(tmp_path / "new.duckdb", PublishedSnapshot(tmp_path / name, manifest))
    assert names_in(tmp_path / "new.duckdb") == ["one"]


def names_in(catalog: Path) -> list[str]:
    with duckdb.connect(str(catalog), read_only=True) as connection:
        return [name for (name,) in connection.execute("FROM profiles SELECT name").fetchall()]


REJECTS = 'SELECT source_file, "row", reasons, message, raw FROM rejects ORDER BY ALL'


def test_invalid_lines_of_a_linked_file_are_kept_if_they_are_inside_too(
    tmp_path: Path,
) -> None:
    archive, outside = tmp_path / "archive", tmp_path / "outside"
    lines = [b"password: hunter2", b'"a text"', trace(confidence=7.0), trace()]
    write_jsonl(outside / "secret.jsonl", [*lines, b"hunter3"])
    for path in (archive / "a.jsonl", archive / "old" / "b.jsonl"):
        write_jsonl(path, lines)
    (archive / "linked.jsonl").symlink_to(outside / "secret.jsonl")
    (archive / "own.jsonl").symlink_to(archive / "old" / "b.jsonl")
    for path in (archive / "inside.jsonl", outside / "same.jsonl"):
        write_jsonl(path, [b"no secret", trace()])
    (archive / "same.jsonl").symlink_to(outside / "same.jsonl")
    settings = config(tmp_path, archive, max_reject_share=1)
    rescore_archive(settings)
    rejects = {
        (Path(path).name, row): details
        for path, row, *details in ask_rows(settings.warehouse, REJECTS)
    }
    for row in (0, 1, 4):
        expected = [["malformed_json"], f"line {row + 1} is not a JSON object", None]
        assert rejects.pop(("linked.jsonl", row)) == expected
    assert json.loads(rejects["linked.jsonl", 2][2]) == trace(confidence=7.0)
    for name in ("a.jsonl", "b.jsonl", "own.jsonl"):
        assert rejects[name, 0][2] == '"password: hunter2"'
        assert rejects[name, 1][1] == 'line 2 is "a text", not a JSON object'
    for name in ("inside.jsonl", "same.jsonl"):
        assert rejects[name, 0][2] == '"no secret"'
    files = [path for path in settings.warehouse.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter3" in path.read_bytes()]
    assert rescore_archive(settings).run_id is None


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of object stores: URLs, and names below them."""
    downloads: list[tuple[str, str]] = []

    def store_at(url: str) -> SimpleNamespace:
        return SimpleNamespace(download=lambda name, *_, **__: downloads.append((url, name)))

    monkeypatch.setattr(storage, "store_at", store_at)
    return downloads


def remote(folder: Path, *files: Path) -> None:
    """Have a record know files as objects, as somebody else may write it."""
    for file in files:
        file.unlink(missing_ok=True)
    known = {str(file.relative_to(folder)): ["etag", 1, 0] for file in files}
    record = ["http://169.254.169.254/latest", known, True]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bucket.json").write_text(json.dumps(record), "utf-8")


@pytest.mark.telling
def test_a_record_in_a_local_warehouse_has_nothing_fetched(
    folder: Path, downloads: list[tuple[str, str]]
) -> None:
    [*vectors] = (folder / "warehouse" / "vectors").glob("*/*.vectors.npy")
    assert vectors
    remote(folder / "warehouse", *vectors)
    with pytest.raises(WarehouseError):
        verify(folder / "warehouse", traces=2, seed=1, embed=True)
    write_jsonl(folder / "archive" / "late.jsonl", [trace(id="kp:late", created_at="2030-01-01")])
    assert rescore_archive(config(folder, folder / "archive")).run_id  # embeds them again
    assert downloads == []


@pytest.mark.telling
def test_the_record_of_a_copy_has_its_own_object_fetched_alone(
    downloads: list[tuple[str, str]],
) -> None:
    copy = Path(folder_of("s3://bucket/team/warehouse"))
    file = copy / "vectors" / "hashing-384-v1" / "a.vectors.npy"
    remote(copy, file)
    for path in (file, file.with_name("b.vectors.npy")):
        local_copy(path)
    assert downloads == [("s3://bucket/team/warehouse", "vectors/hashing-384-v1/a.vectors.npy")]


def modes(folder: Path) -> dict[str, int]:
    """The permissions of all files and folders below a folder."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in paths}


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_tables_follow_the_umask_and_the_log_is_the_users_alone(
    folder: Path, umask: Callable[[int], int]
) -> None:
    mask = 0o027
    umask(mask)
    shutil.rmtree(folder / "warehouse")
    words = ("run", folder / "archive", "--warehouse", folder / "warehouse")
    done = kp_batch(*words, "--embedder", "hashing", "--report", "--no-prefect")
    assert done.returncode == 0, done.stderr
    mode_of = modes(folder / "warehouse")
    assert mode_of.pop("last-run.log") == 0o600
    assert mode_of.pop("kp.lock") & mask == 0
    folders = {name for name in mode_of if (folder / "warehouse" / name).is_dir()}
    assert {mode_of[name] for name in folders} == {0o777 & ~mask}
    assert {mode for name, mode in mode_of.items() if name not in folders} == {0o666 & ~mask}
    assert {"report.html", "kp.duckdb", "manifest.json"} < mode_of.keys()


def test_what_waits_is_the_users_alone(
    folder: Path, umask: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    umask(0o000)
    staging = Staging(folder / "warehouse" / "staging" / "a-run")
    staging.make()
    assert stat.S_IMODE(staging.folder.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    make_folder_of(Path(folder_of("s3://bucket/warehouse")))
    assert stat.S_IMODE((folder / "cache" / "kp-batch" / "warehouses").stat().st_mode) == 0o700


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_export_of_private_traces_is_the_users_alone(
    folder: Path, umask: Callable[[int], int], ending: str
) -> None:
    umask(0o022)
    path = folder / f"a.{ending}"
    words = ("export", "--warehouse", folder / "warehouse", "--min-score", "0", "-o", path)
    command(*words)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    command(*words, "--include-private")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.telling
@pytest.mark.parametrize(
    ("name", "more"),
    [("export", ["--min-score", 0]), ("report", [])],
)
def test_an_output_takes_the_place_of_a_link(folder: Path, name: str, more: list[object]) -> None:
    output = folder / ("a.jsonl" if name == "export" else "a.html")
    output.symlink_to(folder / "outside" / "notes.txt")
    command(name, "--warehouse", folder / "warehouse", "-o", output, *more)
    assert untouched(folder)
    assert output.stat().st_size > 0
    assert not output.is_symlink()


@pytest.mark.telling
def test_an_output_named_as_stdout_is_written_into(folder: Path) -> None:
    with (folder / "page.html").open("wb") as file:
        words = ("report", "--warehouse", str(folder / "warehouse"), "-o", "/dev/stdout")
        subprocess.run([sys.executable, "-m", "kp_batch", *words], check=True, stdout=file)
    assert b"<html" in (folder / "page.html").read_bytes()
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.telling
def test_an_import_writes_into_no_folder_behind_a_link_and_removes_its_own_files_alone(
    folder: Path,
) -> None:
    archive = folder / "imported"
    archive.mkdir()
    (archive / "movie.part").write_text("mine", "utf-8")
    (archive / f"2026-01-05.parquet.{'a' * 32}.part").write_text("left", "utf-8")
    place = target_of(str(archive), folder / "copy")
    with place.alone():
        pass
    assert {path.name for path in archive.iterdir()} == {"movie.part", "_import"}
    shutil.rmtree(archive / "_import")
    (archive / "_import").symlink_to(folder / "outside")
    with pytest.raises(WarehouseError, match="_import is a symbolic link"), place.alone():
        pass
    assert untouched(folder)


def test_an_object_whose_name_leads_elsewhere_is_no_file_of_a_warehouse() -> None:
    assert is_shared("scores/date=2026-01-05/a.parquet")
    assert not is_shared("scores/../../a.parquet")
