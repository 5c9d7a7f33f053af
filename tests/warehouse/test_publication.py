"""When a publication happens, what each reader sees wherever it was killed, and who repairs."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import BusyError, WarehouseError
from kp_batch.files import sync_names, sync_new
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report.build import leave_report
from kp_batch.runs.run import effective_config
from kp_batch.schemas import TABLES
from kp_batch.steps.step import ThreadExecutor, timed
from kp_batch.warehouse import catalog
from kp_batch.warehouse import publication as publishing
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.delta import export
from kp_batch.warehouse.manifest import FORMAT_VERSION, Manifest, read_manifest, require_manifest
from kp_batch.warehouse.publication import rebuild, writing
from kp_batch.warehouse.reader import connect, is_current
from kp_batch.warehouse.staging import Staging
from tests.support.kill.runs import reading
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import (
    Tables,
    profile,
    publish_profile,
    publish_tables,
    tables,
)
from tests.support.make.runs import config, least
from tests.support.processes.holder import holding
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore
from tests.warehouse.publication_gaps import (
    AFTER,
    BEFORE,
    BETWEEN,
    BUILDING,
    Killed,
    die,
    stopping,
)

pytestmark = pytest.mark.slow

NAMES = "SELECT string_agg(name, ', ' ORDER BY name) FROM profiles"


def plain(warehouse: Path, query: str = NAMES) -> Any:
    """What a plain DuckDB client is answered."""
    with duckdb.connect(str(warehouse / "kp.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchall()[0][0]


def ours(warehouse: Path, query: str = NAMES) -> Any:
    with connect(warehouse) as connection:
        return connection.execute(query).fetchall()[0][0]


def plain_tables(warehouse: Path) -> Tables:
    with duckdb.connect(str(warehouse / "kp.duckdb"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return tables(connection)


def our_tables(warehouse: Path) -> Tables:
    with connect(warehouse) as connection:
        return tables(connection)


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Each file and folder below, and what changes where it is written to."""
    stats = {str(path): path.stat() for path in (folder, *folder.rglob("*"))}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one profile."""
    warehouse = tmp_path_factory.mktemp("profile") / "it's one"
    publish_profile(warehouse, "one")
    keep(warehouse)
    return warehouse


@pytest.fixture
def one(made: Path) -> Path:
    """The same at the same path, whatever the last test made of it."""
    restore(made)
    return made


# --- the moment ---


class Calls:
    """Notes the calls that make a publication last, and dies before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
        self.noted: list[str] = []
        replace = Path.replace

        def note(call: str) -> None:
            self.noted.append(call)
            if len(self.noted) == fatal:
                raise Killed

        def replacing(path: Path, target: Path) -> Path:
            is_moved = path.name == target.name
            in_log = "write the log" if target.parent.name == "log" else None
            note("move a file" if is_moved else in_log or f"replace {target.name} by {path.name}")
            return replace(path, target)

        def syncing_names(folder: Path) -> None:
            note(f"sync the names in {folder.name}")
            sync_names(folder)

        def syncing_new(files: Collection[Path], known: Iterable[Path], root: Path) -> None:
            note(f"sync what is new in {root.name}")
            sync_new(files, known, root)

        def exporting(warehouse: Path) -> None:
            note("export")
            export(warehouse)

        monkeypatch.setattr(publishing, "export", exporting)
        monkeypatch.setattr(publishing, "sync_names", syncing_names)
        monkeypatch.setattr(publishing, "sync_new", syncing_new)
        monkeypatch.setattr(Path, "replace", replacing)


def test_manifest_json_publishes_and_kp_duckdb_follows_wherever_the_writer_dies(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, str]] = []
    warehouse = made
    for fatal in count(1):
        restore(warehouse)
        candidate = Candidate(warehouse, require_manifest(warehouse), "a-run")
        candidate = candidate.overwrite("profiles", profile("two"))
        with monkeypatch.context() as patch:
            calls = Calls(patch, fatal)
            try:
                publishing.publish(candidate, {"threshold": 0.75})
                break
            except Killed:
                pass
        seen.append((calls.noted[-1], plain(warehouse), ours(warehouse)))
        with writing(warehouse, wait=False):
            assert plain(warehouse) == ours(warehouse) == seen[-1][2]
        [uri] = DeltaTable(warehouse / "profiles").file_uris()  # for who reads it by itself
        assert pl.read_parquet(unquote(uri))["name"].to_list() == [seen[-1][2]]
        names = {path.name for path in warehouse.iterdir()} - {"candidate"}
        assert names == {"profiles", "log", "kp.duckdb", "manifest.json", "kp.lock"}
    assert seen == [
        ("move a file", "one", "one"),
        ("move a file", "one", "one"),  # its list
        ("write the log", "one", "one"),
        ("sync what is new in it's one", "one", "one"),
        ("replace manifest.json by manifest.json.new", "one", "one"),
        ("sync the names in it's one", "one", "two"),
        ("replace kp.duckdb by kp.duckdb.new", "one", "two"),
        ("sync the names in it's one", "two", "two"),
        ("export", "two", "two"),
    ]


def test_each_publication_has_an_id_of_its_own(one: Path) -> None:
    published = require_manifest(one)
    assert re.fullmatch("[0-9a-f]{64}", published.publication)
    assert json.loads((one / "manifest.json").read_text("utf-8")) == {
        "format_version": FORMAT_VERSION,
        "publication": published.publication,
        "settings": {"threshold": 0.75},
        "tables": published.tables,
        "failed": False,
        "number": 1,
        "kept_from": 0,
        "before": "",
        "warehouse_id": published.warehouse_id,
    }
    assert re.fullmatch("[0-9a-f]{16}", published.warehouse_id)
    [[(month, name)]] = [[*months.items()] for months in published.tables.values()]
    assert re.fullmatch(r"\d{4}-\d\d [0-9a-f]{32}", f"{month} {name}")
    assert (one / "log" / f"{published.publication[:32]}.json").read_bytes() == (
        one / "manifest.json"
    ).read_bytes()
    assert plain(one, "SELECT publication FROM manifest") == published.publication
    publish_tables(one, published)
    assert require_manifest(one).tables == published.tables
    assert require_manifest(one).publication != published.publication
    assert require_manifest(one).warehouse_id == published.warehouse_id


@pytest.mark.telling
def test_a_manifest_that_nobody_could_read_is_not_published(one: Path) -> None:
    before = require_manifest(one)
    manifest = Manifest({**before.settings, "cache_size": 10**19}, before.tables)
    message = r"unreadable \(no run writes such settings\), so nothing was published"
    with pytest.raises(WarehouseError, match=message):
        publish_tables(one, manifest)
    assert require_manifest(one) == before
    with writing(one, wait=False):
        assert plain(one) == ours(one) == "one"


def test_a_run_whose_settings_nobody_could_read_fails_and_leaves_the_warehouse_as_it_was(
    folder: Path,
) -> None:
    before = our_tables(folder / "warehouse")
    unchecked = settings_of(folder).model_copy(update={"threshold": 2.0})
    with pytest.raises(WarehouseError, match="no run writes such settings"):
        rescore_archive(unchecked)
    after = our_tables(folder / "warehouse")
    assert after["scores"] == before["scores"]
    assert len(after["runs"]) == len(before["runs"]) + 1
    assert rescore_archive(settings_of(folder)).run_id


@pytest.mark.parametrize(
    "extreme",
    [
        {"cache_size": 2**63 - 1, "ttl": timedelta.max.days * timedelta(days=1), "threshold": 1},
        {"cache_size": 1, "ttl": "1s", "threshold": 5e-324, "max_reject_share": 1},
        {"profiles": {"code": dict(zip(DIMENSIONS, (5e-324, 1, 0, 0), strict=True))}},
    ],
    ids=str,
)
def test_the_most_extreme_settings_are_published_and_read(
    tmp_path: Path, extreme: dict[str, Any]
) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", FIRST)
    rescore_archive(config(tmp_path, tmp_path / "archive", **extreme))
    assert len(our_tables(tmp_path / "warehouse")["scores"]) == len(FIRST)
    again = effective_config(
        least(archive=(str(tmp_path / "archive"),), warehouse=tmp_path / "warehouse")
    )
    assert rescore_archive(again).run_id is None


def test_what_is_published_is_read_without_the_catalog(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckdb.connect", None)
    assert [*require_manifest(one).tables] == ["profiles"]


@pytest.mark.telling
def test_a_current_catalog_is_read_without_delta_rs(one: Path) -> None:
    probe = (
        "import sys; from pathlib import Path; from kp_batch.warehouse.reader import connect;"
        "\nwith connect(Path(sys.argv[1])) as connection: connection.execute('FROM profiles')"
        "\nprint('deltalake' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(one)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_who_writes_already_repairs_nothing_again(one: Path) -> None:
    with writing(one, wait=False):
        before = listing(one)
        with writing(one, wait=False):
            pass
        del before[str(one / "kp.lock")]
        assert before.items() <= listing(one).items()


def test_what_killed_writers_staged_goes_when_another_begins_and_ends(
    one: Path, tmp_path: Path
) -> None:
    beside, staged = Staging(tmp_path / "beside"), one / "staging"
    for staging in (Staging(staged / "killed"), beside):
        staging.make()
    with writing(one, wait=False):
        assert not staged.exists()
        Staging(staged / "own").make()
        with writing(one, wait=False):
            pass
        assert (staged / "own").exists()
    assert not staged.exists()
    assert beside.folder.exists()


WRITE_AND_DIE = """
import os, signal, sys
import duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE mine AS SELECT 1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_writes_into_the_catalog_during_a_publication_locks_nobody_out(one: Path) -> None:
    def write() -> None:
        command = [sys.executable, "-c", WRITE_AND_DIE, str(one / "kp.duckdb")]
        subprocess.run(command, check=False)
        assert (one / "kp.duckdb.wal").exists()

    with stopping(BEFORE, write):
        publish_profile(one, "two")
    assert plain(one) == "two"
    write()
    with writing(one, wait=False):
        assert not (one / "kp.duckdb.wal").exists()


# --- killed runs, and whoever comes next ---

SECRET = "kp:trace:secret"
FIRST = [trace(id=f"kp:trace:{n}", objective=f"fix import {n}") for n in range(3)]
LATER = [trace(id=SECRET, objective="plan a trip"), trace(id="kp:trace:9", success=None)]
NEW = trace(id="kp:trace:new", objective="sum it")


def settings_of(folder: Path) -> RescoreConfig:
    return config(folder, folder / "archive", max_reject_share=1)


def parquet(warehouse: Path) -> set[Path]:
    return {path for name in TABLES for path in (warehouse / name).rglob("*.parquet")}


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, and a file that a third one has to read."""
    folder = tmp_path_factory.mktemp("published")
    write_jsonl(folder / "archive" / "a.jsonl", FIRST)
    rescore_archive(settings_of(folder))
    write_jsonl(folder / "archive" / "b.jsonl", LATER)
    rescore_archive(settings_of(folder))
    write_jsonl(folder / "archive" / "c.jsonl", [NEW])
    keep(folder)
    return folder


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    """The same at the same path, whatever the last test made of it."""
    restore(as_it_was)
    return as_it_was


@pytest.fixture(scope="module")
def half_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and another one that was killed when it had published, but for the catalog."""
    folder = tmp_path_factory.mktemp("half") / "published"
    write_jsonl(folder / "archive" / "a.jsonl", [*FIRST, *LATER])
    rescore_archive(settings_of(folder))
    write_jsonl(folder / "archive" / "c.jsonl", [NEW])
    with stopping(BETWEEN, die), pytest.raises(Killed):
        rescore_archive(settings_of(folder))
    keep(folder)
    return folder


@pytest.fixture
def half(half_made: Path) -> Path:
    """The same at the same path, whatever the last test made of it."""
    restore(half_made)
    return half_made


RUN_AND_HOLD = """
import sys
from pathlib import Path
from kp_batch.pipeline.rescore import rescore_archive
from tests.warehouse.publication_gaps import hold, stopping
from tests.warehouse.test_publication import settings_of
with stopping({gap!r}, hold):
    rescore_archive(settings_of(Path(sys.argv[1])))
"""


@pytest.mark.parametrize(
    "gap",
    [BUILDING, BETWEEN, *(pytest.param(gap, marks=pytest.mark.torture) for gap in (BEFORE, AFTER))],
)
def test_a_run_that_is_killed_in_a_gap_leaves_all_readers_in_peace(folder: Path, gap: str) -> None:
    warehouse = folder / "warehouse"
    older = plain_tables(warehouse)
    with reading(warehouse), holding(RUN_AND_HOLD.format(gap=gap), folder) as run:
        with fails_with(BusyError, "busy"):
            rebuild(warehouse)
        tables = plain_tables(warehouse), our_tables(warehouse)
        run.kill()
        run.wait()
        assert (plain_tables(warehouse), our_tables(warehouse)) == tables
        assert (tables[0] == older, tables[1] == older) == (
            gap != AFTER,
            gap not in {BETWEEN, AFTER},
        )
        is_published = tables[1] != older
        assert (rescore_archive(settings_of(folder)).run_id is None) == is_published
        newer = plain_tables(warehouse)
        assert newer == our_tables(warehouse)
        assert newer == tables[1] or not is_published
        assert [row[0] for row in newer["scores"]] == [
            "kp:trace:0",
            "kp:trace:1",
            "kp:trace:2",
            "kp:trace:new",
            SECRET,
        ]
    assert not [path for path in warehouse.iterdir() if path.suffix in {".new", ".wal"}]


NEXT: dict[str, Callable[[Path], object]] = {
    "a run": lambda folder: rescore_archive(settings_of(folder)),
    "vacuum": lambda folder: vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC)),
    "forget": lambda folder: forget(folder / "warehouse", [SECRET]),
    "catalog": lambda folder: rebuild(folder / "warehouse"),
    "report": lambda folder: leave_report(folder / "warehouse", ThreadExecutor()),
}


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("work", NEXT)
def test_whoever_locks_next_lets_the_catalog_follow(half: Path, work: str) -> None:
    warehouse = half / "warehouse"
    published = our_tables(warehouse)
    assert len(published["scores"]) == len(plain_tables(warehouse)["scores"]) + 1
    NEXT[work](half)
    now = plain_tables(warehouse)
    assert now == our_tables(warehouse)
    if work == "forget":
        published["scores"] = [row for row in published["scores"] if row[0] != SECRET]
    assert [row[0] for row in now["scores"]] == [row[0] for row in published["scores"]]
    assert (now == published) == (work in {"a run", "catalog", "report"})


@pytest.mark.parametrize("work", ["vacuum", "forget"])
def test_the_catalog_follows_before_anything_is_done_that_removes(half: Path, work: str) -> None:
    published = our_tables(half / "warehouse")
    assert plain_tables(half / "warehouse") != published
    with stopping(BUILDING, die, publication=2), pytest.raises(Killed):  # the first is the repair
        NEXT[work](half)
    assert plain_tables(half / "warehouse") == published


@pytest.mark.parametrize(("work", "publications"), [("vacuum", 1), ("forget", 2)])
def test_nothing_is_removed_before_the_catalog_has_followed(
    folder: Path, work: str, publications: int
) -> None:
    warehouse = folder / "warehouse"
    older, files = plain_tables(warehouse), parquet(warehouse)
    vectors = {path: path.read_bytes() for path in (warehouse / "vectors").rglob("*.npy")}
    # Before the first catalog followed, and once the last one has: what went earlier lacks then.
    for publication, gap in ((1, BETWEEN), (publications, AFTER)):
        where = publication, gap
        restore(folder)
        with stopping(gap, die, publication), pytest.raises(Killed):
            NEXT[work](folder)
        assert files <= parquet(warehouse), where
        assert all(path.read_bytes() == content for path, content in vectors.items()), where
        tables = plain_tables(warehouse)  # so all files that it names are there
        assert tables == older or gap == AFTER or publication > 1, where
        NEXT[work](folder)
        assert plain_tables(warehouse) == our_tables(warehouse), where
        assert not files <= parquet(warehouse), where
    restore(folder)
    with stopping(BUILDING, die, publications + 1):  # it has no more of them
        NEXT[work](folder)


# --- what is lost, damaged or moved ---


def foreign(warehouse: Path, statement: str) -> None:
    (warehouse / "kp.duckdb").unlink()
    with duckdb.connect(str(warehouse / "kp.duckdb")) as connection:
        connection.execute(statement)


def changed(warehouse: Path, statement: str) -> None:
    with duckdb.connect(str(warehouse / "kp.duckdb")) as connection:
        connection.execute(statement)


HARMED: dict[str, Callable[[Path], object]] = {
    "lost": lambda folder: (folder / "kp.duckdb").unlink(),
    "cut": lambda folder: os.truncate(folder / "kp.duckdb", 5000),
    "of another program": lambda folder: foreign(folder, "CREATE TABLE other AS SELECT 1"),
    "of another manifest": lambda folder: foreign(folder, "CREATE TABLE manifest AS SELECT 1 a"),
    "without a row": lambda folder: changed(folder, "DELETE FROM manifest"),
    "older": lambda folder: changed(folder, "UPDATE manifest SET publication = 'of yesterday'"),
    "for another folder": lambda folder: changed(folder, "UPDATE manifest SET warehouse = '/old'"),
}


@pytest.mark.parametrize("harm", HARMED)
def test_without_a_sound_catalog_all_is_read_and_nothing_written_until_somebody_writes(
    folder: Path, harm: str
) -> None:
    warehouse = folder / "warehouse"
    published, manifest = plain_tables(warehouse), read_manifest(warehouse)
    [first] = {row[0] for row in published["runs"] if json.loads(row[11])["files"] == 1}
    HARMED[harm](warehouse)
    before = listing(warehouse)
    assert our_tables(warehouse) == published
    with connect(warehouse, first) as connection:
        assert len(tables(connection)["scores"]) == len(FIRST)
    assert read_manifest(warehouse) == manifest
    assert listing(warehouse) == before
    with writing(warehouse, wait=False):
        pass
    assert plain_tables(warehouse) == published
    assert read_manifest(warehouse) == manifest


def test_a_moved_warehouse_is_read_at_once_and_by_other_clients_after_the_next_writer(
    tmp_path: Path,
) -> None:
    publish_profile(tmp_path / "old", "one")
    moved = (tmp_path / "old").rename(tmp_path / "it's new")
    before = listing(moved)
    assert ours(moved) == "one"
    assert listing(moved) == before
    with pytest.raises(duckdb.IOException):
        plain(moved)
    with writing(moved, wait=False):
        pass
    assert plain(moved) == ours(moved) == "one"


def test_a_catalog_of_other_sql_is_read_past_and_made_anew_by_who_writes(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "catalog_id", lambda: "another")
        rebuild(one)
    path = one / "kp.duckdb"
    manifest = require_manifest(one)
    assert not is_current(one, manifest)
    before = path.read_bytes()
    assert ours(one) == "one"
    assert path.read_bytes() == before
    with writing(one, wait=False):
        assert is_current(one, manifest)


def test_a_lost_manifest_json_is_reported_with_what_helps(one: Path) -> None:
    (one / "manifest.json").unlink()
    before = listing(one)
    for look in (read_manifest, ours, rebuild):
        gone = fails_with(WarehouseError, "file_gone", r"manifest\.json is gone; restore it")
        with gone as caught:
            look(one)
        assert "\n" not in str(caught.value)
    assert listing(one) == before
    with fails_with(WarehouseError, "file_gone", "is gone"), writing(one, wait=False):
        pytest.fail("nobody begins anew where something was published")


def edited(**changes: object) -> Callable[[bytes], bytes]:
    return lambda text: json.dumps(json.loads(text) | changes).encode()


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "another threshold": edited(settings={"threshold": 0.5}),
    "another version": edited(tables={"profiles": 1}),
    "another publication": edited(publication="0" * 64),
    "no publication": edited(publication=1),
    "no settings": lambda text: text.replace(b"settings", b"options"),
    "no number": edited(format_version="four"),
    "cut": lambda text: text[:-5],
    "empty": lambda _: b"",
    "a list": lambda _: f"[{FORMAT_VERSION}]".encode(),
    "an empty list": lambda _: b"[]",
    "null": lambda _: b"null",
    "no UTF-8": lambda text: text + b"\xff",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_manifest_json_is_refused_with_what_helps(one: Path, damage: str) -> None:
    manifest = one / "manifest.json"
    manifest.write_bytes(DAMAGED[damage](manifest.read_bytes()))
    before = listing(one)
    for look in (read_manifest, ours, rebuild):
        with fails_with(WarehouseError, "damaged", r"manifest\.json is damaged; restore it"):
            look(one)
    assert listing(one) == before
    with fails_with(WarehouseError, "damaged", "is damaged"), writing(one, wait=False):
        pytest.fail("nobody writes to what is damaged")


@pytest.mark.telling
def test_tables_that_are_gone_are_reported_in_one_line(one: Path) -> None:
    (one / "kp.duckdb").unlink()
    for path in (one / "profiles").glob("*.parquet"):
        path.unlink()
    with pytest.raises(WarehouseError, match=r"cannot be read: IO Error: No files found") as caught:
        ours(one)
    assert "\n" not in str(caught.value)


# --- after the moment ---


def statuses(settings: RescoreConfig) -> list[str]:
    with connect(settings.warehouse) as connection:
        rows = connection.execute("SELECT status FROM runs ORDER BY started_at").fetchall()
    return [status for (status,) in rows]


def test_a_folder_that_cannot_be_synced_undoes_no_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def of_files_alone(opened: int) -> None:
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(opened)

    monkeypatch.setattr(os, "fsync", of_files_alone)
    settings = config(tmp_path, write_jsonl(tmp_path / "a.jsonl", [trace()]))
    rescore_archive(settings)
    assert plain(settings.warehouse, "SELECT count(*) FROM scores") == 1
    assert statuses(settings) == ["done"]


def test_a_catalog_that_cannot_be_replaced_undoes_no_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replace = Path.replace

    def but_the_catalog(path: Path, target: Path) -> Path:
        if target.name == "kp.duckdb":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))
        return replace(path, target)

    settings = config(tmp_path, write_jsonl(tmp_path / "a.jsonl", [trace()]))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", but_the_catalog)
        rescore_archive(settings)
        assert any("kp.duckdb of" in each and "still shows" in each for each in caplog.messages)
        with pytest.raises(PermissionError), writing(settings.warehouse, wait=False):
            pytest.fail("who writes next is told")
    assert statuses(settings) == ["done"]
    with writing(settings.warehouse, wait=False):
        assert plain(settings.warehouse, "SELECT count(*) FROM scores") == 1


def lost(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Lose the answer of the step that publishes, as where Prefect's server has gone."""

    def called(*args: Any) -> Any:
        done = function(*args)
        if name == "publish":
            raise RuntimeError("the server is gone")
        return done

    return called


@pytest.mark.telling
def test_an_error_after_the_publication_undoes_it_not(tmp_path: Path) -> None:
    settings = config(tmp_path, write_jsonl(tmp_path / "a.jsonl", [trace()]))
    with timed(caller=lost), pytest.raises(RuntimeError, match="the server is gone"):
        rescore_archive(settings)
    assert statuses(settings) == ["done"]
    assert rescore_archive(settings).run_id is None
