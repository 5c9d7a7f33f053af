"""A warehouse in a bucket: one copy on each machine, one writer at a time, the same tables."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from hashlib import md5
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Hashing
from kp_batch.embedding.vector_store import PLACES, read_vectors
from kp_batch.errors import BusyError, StorageError, WarehouseError, is_passing
from kp_batch.operations.forget import forget
from kp_batch.operations.preview import preview
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report import build as pipeline_report
from kp_batch.report.build import leave_report
from kp_batch.runs.run import effective_config
from kp_batch.steps import step
from kp_batch.steps.step import ThreadExecutor
from kp_batch.storage.store import Object, Store, store_at
from kp_batch.warehouse import lock, publication
from kp_batch.warehouse.bucket import mirror
from kp_batch.warehouse.bucket.location import folder_of, is_remote, shown, url_of
from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.layout import check_apart
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reader import connect
from tests.support.damage.answers import Trouble, between
from tests.support.damage.table import Damage, named
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.sample import write_sample
from tests.support.oracle.tables import assert_same
from tests.support.processes import commands
from tests.support.processes.buckets import Machine, counted_reads, fill, make_bucket
from tests.support.processes.prefect_server import PrefectServer
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def made(s3: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, bytes]]:
    """A folder of an archive and of a machine that scored it, the bucket's URL and its objects."""
    folder, url = tmp_path_factory.mktemp("made") / "made", make_bucket(s3, "kp-made")
    write_sample(folder / "archive", traces=60, days=5, seed=3)
    Machine(folder / "first", f"{url}/team/warehouse").run(folder / "archive")
    keep(folder)
    return folder, url, {path: store_at(url).read(path)[0] for path in names(url)}


@pytest.fixture
def published(made: tuple[Path, str, dict[str, bytes]]) -> tuple[Path, str]:
    """The same, whatever the last test made of it."""
    folder, url, objects = made
    restore(folder)
    store = store_at(url)
    etags = {entry.path: entry.etag for entry in store.objects()}
    store.delete([*etags.keys() - objects.keys()])
    for path, content in objects.items():
        if etags.get(path) != md5(content).hexdigest():
            store.write(path, content)
    return folder, url


@pytest.fixture
def first(published: tuple[Path, str]) -> Machine:
    """The machine that has scored the archive."""
    folder, url = published
    return Machine(folder / "first", f"{url}/team/warehouse")


@pytest.fixture
def second(first: Machine) -> Machine:
    """A machine that has seen nothing of it."""
    return Machine(first.cache.with_name("second"), first.url)


@pytest.fixture
def archive(published: tuple[Path, str]) -> Path:
    return published[0] / "archive"


@pytest.fixture
def fresh(tmp_path: Path, bucket: str) -> Machine:
    """A machine, and a bucket of which nobody has seen anything."""
    return Machine(tmp_path / "fresh", f"{bucket}/team/warehouse")


@pytest.fixture
def another(tmp_path: Path, fresh: Machine) -> Machine:
    return Machine(tmp_path / "another", fresh.url)


def names(url: str) -> set[str]:
    return {entry.path for entry in store_at(url).objects()}


def vectors_in(folder: Path) -> list[Path]:
    """The vectors' files of all chunks, wherever they are."""
    hashes = folder.glob("vectors/*/*.hashes.npy")
    return [digest.with_name(digest.name.replace(".hashes.", ".vectors.")) for digest in hashes]


SCORES = "SELECT * EXCLUDE (run_id) FROM scores ORDER BY trace_id"


@pytest.mark.telling
def test_machines_take_turns_and_have_the_tables_of_one_that_is_local(
    tmp_path: Path, first: Machine, second: Machine, archive: Path
) -> None:
    alone = tmp_path / "alone"
    for machine, change in ((first, {}), (second, {"cache_size": 7}), (first, {"threshold": 0.5})):
        if change:
            machine.run(archive, **change)
        local = {"archive": (str(archive),), "warehouse": alone, "embedder": "hashing", **change}
        rescore_archive(effective_config(RescoreConfig.model_validate(local)))
        with machine.here() as folder:
            assert_same(folder, alone)
        write_jsonl(archive / "later.jsonl", [trace(id="later", objective="a new text")])
    assert names(first.url) >= {"manifest.json", "kp.lock"}


def test_vectors_stay_away_until_they_are_read(
    first: Machine, second: Machine, archive: Path
) -> None:
    assert second.ask("SELECT count(*) FROM scores") == [(60,)]
    with second.here() as folder:
        assert [is_remote(path) for path in vectors_in(folder)] == [True]
    with counted_reads() as sizes:
        assert second.run(archive) is None  # nothing to do
    assert sum(sizes) < 5_000
    assert second.run(archive, cache_size=9)
    with second.here() as folder:
        assert [is_remote(path) for path in vectors_in(folder)] == [False]
    assert first.ask(SCORES) == second.ask(SCORES)


def test_a_preview_stores_nothing_in_a_bucket_and_keeps_its_vectors_here(
    first: Machine, archive: Path
) -> None:
    write_jsonl(archive / "later.jsonl", [trace(id="later", objective="a new text")])

    def etags() -> dict[str, str]:
        return {entry.path: entry.etag for entry in store_at(first.url).objects()}

    before = etags()
    options = {"archive": (str(archive),), "warehouse": first.url, "embedder": "hashing"}
    with first.here():
        settings = RescoreConfig.model_validate({**options, "threshold": 0.2, "preview": True})
        previewed = preview(effective_config(settings))
        assert previewed.comparison
        assert (previewed.comparison.only_after, previewed.counts.embedded) == (1, 1)
        assert {**etags(), "kp.lock": ""} == {**before, "kp.lock": ""}
        after = rescore_archive(effective_config(RescoreConfig.model_validate(options)))
    assert after.counts.embedded == 0
    assert etags().keys() > before.keys()


def test_of_two_writers_one_publishes_and_the_other_is_refused(
    first: Machine, second: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(archive / "later.jsonl", [trace()])
    with first.here() as folder:
        config = {"archive": (str(archive),), "warehouse": folder, "embedder": "hashing"}
        settings = RescoreConfig.model_validate({**config, "threshold": 0.1})
        monkeypatch.setattr(lock, "NOTICE_TTL_S", -1)  # as if it slept
        with pytest.raises(BusyError, match="another writer"), writing(folder, wait=False):  # noqa: PT012
            second.run(archive, threshold=0.9)
            rescore_archive(settings)
    assert first.ask("SELECT count(*) FROM scores") == [(61,)]
    assert first.ask(
        "SELECT count(*), max(settings::JSON ->> 'threshold') FROM scores, manifest"
    ) == [(61, "0.9")]
    assert first.ask(SCORES) == second.ask(SCORES)


@pytest.mark.telling
def test_a_writer_whom_nobody_heeds_publishes_over_no_vacuum(
    first: Machine, second: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second.run(archive, cache_size=9)  # so that there is an earlier run to remove
    monkeypatch.setattr(lock, "NOTICE_TTL_S", -1)  # as if it slept
    with first.here() as folder:
        config = {"archive": (str(archive),), "warehouse": folder, "embedder": "hashing"}
        settings = RescoreConfig.model_validate({**config, "threshold": 0.1})
        with pytest.raises(BusyError, match="another writer"), writing(folder, wait=False):  # noqa: PT012
            with second.here() as other:
                refresh(other)
                assert vacuum(other, timedelta(0), datetime.now(UTC)).lost
            rescore_archive(settings)
    assert second.ask("SELECT settings::JSON ->> 'threshold' FROM manifest") == [("0.75",)]


@pytest.mark.telling
def test_a_long_run_that_two_nights_overtake_is_planned_once_more_and_embeds_nothing_twice(
    tmp_path: Path, fresh: Machine, another: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights, past = tmp_path / "nights", tmp_path / "past"
    write_sample(past, traces=60, days=6, seed=5)
    publish, encode = publication.publish_in_bucket, Hashing.encode
    embedded = list[str]()

    def night(name: str) -> None:
        write_jsonl(nights / f"{name}.jsonl", [trace(id=name, objective=f"do the {name}")])
        another.run(nights)

    def overtaken(folder: Path, text: str) -> None:
        if folder.is_relative_to(fresh.cache) and json.loads(text)["number"] == 2:
            for name in ("second", "third"):
                night(name)
        publish(folder, text)

    def counted(self: Hashing, texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        return encode(self, texts)

    night("first")
    monkeypatch.setattr(lock, "NOTICE_TTL_S", -1)  # the long run began more than an hour ago
    monkeypatch.setattr(publication, "publish_in_bucket", overtaken)
    monkeypatch.setattr(Hashing, "encode", counted)
    done = kp_batch(fresh, "run", nights, past, "--no-prefect", "--embedder", "hashing")
    assert done.returncode == 0, done
    assert "this run is planned again" in done.stderr
    assert len(embedded) == len({*embedded}) > 40
    alone = {"archive": (str(nights), str(past)), "warehouse": tmp_path / "alone"}
    settings = RescoreConfig.model_validate({**alone, "embedder": "hashing"})
    rescore_archive(effective_config(settings))
    with fresh.here() as folder:
        refresh(folder)
        assert_same(folder, tmp_path / "alone")
    assert another.ask("SELECT count(*) FROM runs WHERE status = 'done'") == [(4,)]


def test_a_publication_whose_answer_was_lost_remains(
    fresh: Machine, another: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = Store.write, iter([True])

    def without_answer(self: Store, path: str, content: bytes | Path, **how: Any) -> str:
        etag = write(self, path, content, **how)
        if path == "manifest.json" and next(lost, False):
            raise OSError(errno.EIO, "no answer", path)
        return etag

    monkeypatch.setattr(step, "RETRY_DELAYS_S", ())
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", without_answer)
        with pytest.raises(StorageError, match="no answer"):
            fresh.run(archive)
    for machine in (fresh, another):
        assert machine.ask("SELECT status, (SELECT count(*) FROM scores) FROM runs") == [
            ("done", 60)
        ]


@pytest.mark.telling
def test_a_writer_is_named_to_others_and_waited_for(fresh: Machine, another: Machine) -> None:
    with fresh.here() as folder, writing(folder, wait=False), another.here() as other:
        words = f"another run is writing to {fresh.url} .process {os.getpid()} on .*; try again"
        with pytest.raises(BusyError, match=words), writing(other, wait=False):
            pass
    with another.here() as other, writing(other, wait=False):
        pass


def test_what_a_dead_writer_holds_is_taken_over(
    fresh: Machine, another: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in (another, fresh):  # the first has itself been killed, and holds no local lock
        with fresh.here() as folder, writing(folder, wait=False):
            content = store_at(fresh.url).read(lock.NOTICE)[0]
        store_at(fresh.url).write(lock.NOTICE, content)
        with machine.here() as other:
            monkeypatch.setattr(lock, "NOTICE_TTL_S", 90 if machine is fresh else -1)
            with writing(other, wait=False):
                assert store_at(fresh.url).read(lock.NOTICE)[0] != content


@contextmanager
def trouble_before(s3: str) -> Iterator[Trouble]:
    """Lead all requests through a server that makes trouble."""
    with between(s3) as (address, trouble), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        store_at.cache_clear()
        yield trouble
    store_at.cache_clear()


BAD_ANSWERS = [
    ("GET", "list-type", "cut"),
    ("GET", ".parquet", "busy"),
    ("PUT", ".parquet", "busy"),
    ("PUT", "manifest.json", "cut"),
]


def test_one_bad_answer_of_each_kind_costs_nothing_but_time(
    s3: str, first: Machine, second: Machine, archive: Path
) -> None:
    query = "SELECT trace_id, score, novelty FROM scores ORDER BY ALL"
    scores, faults = first.ask(query), [*BAD_ANSWERS]

    def answer(verb: str, path: str) -> Damage | None:
        for method, part, name in faults:
            if verb == method and part in path:
                faults.remove((method, part, name))
                return named("answer", name)
        return None

    with trouble_before(s3) as trouble:
        trouble.answer = answer
        second.run(archive, threshold=0.5)
        assert faults == []
    for machine in (first, second):
        assert machine.ask(query) == scores
        assert machine.ask("SELECT count(*) FROM runs WHERE status = 'done'") == [(2,)]
        assert machine.ask("SELECT settings::JSON ->> 'threshold' FROM manifest") == [("0.5",)]


def test_who_may_only_read_is_refused(s3: str, first: Machine, archive: Path) -> None:
    with trouble_before(s3) as trouble:
        denied = named("answer", "denied")
        trouble.answer = lambda method, _path: None if method in ("GET", "HEAD") else denied
        done = kp_batch(first, "run", archive)
        assert (done.returncode, done.stdout) == (1, "")
        assert "access is denied" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        assert first.ask("SELECT count(*) FROM scores") == [(60,)]


def test_a_slow_store_is_asked_many_things_at_once(s3: str, fresh: Machine, archive: Path) -> None:
    with trouble_before(s3) as trouble:
        trouble.delay_s = 0.2
        fresh.run(archive)
        assert len(trouble.asked) < 100
    assert fresh.ask("SELECT count(*) FROM scores") == [(60,)]


@pytest.mark.telling
def test_a_bucket_that_was_emptied_takes_nothing_away_here(first: Machine, archive: Path) -> None:
    store_at(first.url).delete([*names(first.url)])
    with pytest.raises(WarehouseError, match=r"what was published in .* is gone: restore it"):
        first.run(archive)
    with first.here() as folder, connect(folder) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(60,)]


def test_a_writer_killed_right_after_it_published_has_published(
    first: Machine, second: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    def killed(folder: Path, text: str) -> None:
        publish(folder, text)
        dies()

    publish = publication.publish_in_bucket
    with monkeypatch.context() as patch:
        patch.setattr(publication, "publish_in_bucket", killed)
        with pytest.raises(KeyboardInterrupt):
            first.run(archive, threshold=0.5)
    for machine in (first, second):
        assert machine.run(archive) is None
        assert machine.ask("SELECT settings::JSON ->> 'threshold' FROM manifest") == [("0.5",)]


def damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def test_what_is_lost_from_a_copy_comes_back_and_stays_in_the_bucket(
    first: Machine, archive: Path
) -> None:
    there, scores = names(first.url), first.ask(SCORES)
    for harm in (Path.unlink, damaged):
        with first.here() as folder:
            for file in [*folder.glob("scores/*/*.parquet"), *folder.glob("vectors/*/*")]:
                harm(file)
        assert first.run(archive) is None, harm
        assert names(first.url) == there, harm
        assert first.ask(SCORES) == scores, harm
    first.run(archive, cache_size=5)
    shutil.rmtree(first.cache)
    assert first.ask("SELECT count(*) FROM scores") == [(60,)]


@pytest.mark.parametrize(
    ("work", "lost"), [("run", "vectors/*/*.npy"), ("vacuum", "files/*.parquet")]
)
def test_what_is_lost_during_a_command_is_not_deleted_from_the_bucket(  # noqa: PLR0913, PLR0917 (fixtures)
    first: Machine,
    second: Machine,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    lost: str,
) -> None:
    there = {name for name in names(first.url) if fnmatch(name, lost)}

    def losing(folder: Path, text: str) -> None:
        for file in folder.glob(lost):
            file.unlink()
        publish(folder, text)

    publish = publication.publish_in_bucket
    with monkeypatch.context() as patch:
        patch.setattr(publication, "publish_in_bucket", losing)
        if work == "run":
            first.run(archive, threshold=0.5)
        else:
            with first.here() as folder:
                vacuum(folder, timedelta(0), datetime.now(UTC))
    assert there
    assert names(first.url) >= there
    for machine in (first, second):
        assert machine.ask("SELECT count(*) FROM scores JOIN files USING (source_file)") == [(60,)]


def test_vectors_stay_where_a_run_could_not_reach_the_bucket(
    first: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(archive / "later.jsonl", [trace(objective="a new text")])
    write, there = Store.write, names(first.url)

    def unreachable(self: Store, path: str, content: bytes | Path, **how: object) -> str:
        if path.startswith("kp."):
            return write(self, path, content, **how)
        raise OSError(errno.EIO, "unreachable", path)

    monkeypatch.setattr(step, "RETRY_DELAYS_S", ())
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", unreachable)
        with pytest.raises((OSError, StorageError), match="unreachable"):
            first.run(archive)
    with first.here() as folder:
        vectors = set(folder.glob("vectors/*/*"))
        refresh(folder)
        assert {str(path.relative_to(folder)) for path in vectors} - there
        assert set(folder.glob("vectors/*/*")) == vectors


def test_a_manifest_that_is_replaced_during_a_look_comes_with_its_tables(
    first: Machine, second: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, settings = Store.read, iter([0.5])

    def overtaken(self: Store, path: str) -> tuple[bytes, Object]:
        if path == "manifest.json" and (threshold := next(settings, None)):
            second.run(archive, threshold=threshold)
        return read(self, path)

    monkeypatch.setattr(Store, "read", overtaken)
    query = "SELECT settings::JSON ->> 'threshold', (SELECT count(*) FROM scores) FROM manifest"
    assert first.ask(query) == [("0.5", 60)]


@pytest.mark.telling
def test_what_killed_commands_left_in_a_copy_goes(first: Machine) -> None:
    with first.here() as folder:
        leftovers = [
            folder / name for name in ("staging/1/texts/a.parquet", "facts/b.parquet.1.part")
        ]
        being_fetched = folder / "vectors" / "hashing-384-v1" / "c.vectors.npy.1.part"
        for path in (*leftovers, being_fetched):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"secret")
            if path in leftovers:
                os.utime(path, (0, 0))
        refresh(folder)
        assert not any(path.exists() for path in leftovers)
        assert being_fetched.exists()


@pytest.mark.telling
def test_a_vector_whose_download_is_cut_may_be_fetched_later(
    second: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "cut")

    with second.here() as folder:
        refresh(folder)
        [remote] = vectors_in(folder)
        chunk = remote.name.partition(".")[0]
        place = pl.DataFrame({"chunk": [chunk], "row": [0]}, schema=PLACES)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "download", cut)
            with pytest.raises(OSError, match="cut") as failed:
                read_vectors(remote.parent, place)
        assert is_passing(failed.value)
        assert read_vectors(remote.parent, place).shape == (1, 384)


def test_a_vector_that_is_damaged_in_the_bucket_is_made_again_once(
    tmp_path: Path, first: Machine, second: Machine, archive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [path] = [path for path in names(first.url) if path.endswith(".vectors.npy")]
    store = store_at(first.url)
    content = bytearray(store.read(path)[0])
    content[-100] ^= 4
    store.write(path, bytes(content))
    second.run(archive, cache_size=50)
    assert [record.message.count("is damaged: row") for record in caplog.records] == [1]
    caplog.clear()
    Machine(tmp_path / "third", first.url).run(archive, cache_size=40)
    assert not caplog.records


def test_a_new_machine_merges_the_vectors_of_a_bucket(
    tmp_path: Path, first: Machine, second: Machine, archive: Path
) -> None:
    write_jsonl(archive / "z.jsonl", [trace(id="late", created_at="2026-03-01T00:00:00Z")])
    first.run(archive)
    for merged, chunks in ((2, 3), (0, 1)):
        with second.here() as folder:
            refresh(folder)
            assert vacuum(folder, timedelta(days=1), datetime.now(UTC)).merged == merged
        assert len([path for path in names(first.url) if path.endswith(".vectors.npy")]) == chunks
    third = Machine(tmp_path / "third", first.url)
    third.run(archive, cache_size=50)
    embedded = "SELECT counts->>'embedded' FROM runs ORDER BY started_at DESC LIMIT 1"
    assert third.ask(embedded) == [("0",)]


def test_a_reader_sees_what_the_writer_before_it_has_not_looked_at_yet(
    first: Machine, second: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second.run(archive, threshold=0.5)
    seen: list[object] = []
    asks = threading.Event()

    def read() -> None:
        seen.extend(first.ask("SELECT settings::JSON ->> 'threshold' FROM manifest"))

    def asked(folder: Path) -> Any:
        if threading.current_thread() is reader:
            asks.set()
        return sync_lock(folder)

    @contextmanager
    def slowly(*arguments: Any) -> Iterator[None]:
        reader.start()
        asks.wait(60)
        reader.join(0.3)  # it waits for the writer, or has seen the older settings
        with noticed(*arguments):
            yield

    reader, noticed, sync_lock = threading.Thread(target=read), mirror.noticed, mirror.sync_lock
    monkeypatch.setattr(mirror, "noticed", slowly)
    monkeypatch.setattr(mirror, "sync_lock", asked)
    with first.here() as folder, writing(folder, wait=False):
        reader.join(60)
        assert seen == [("0.5",)]


@pytest.mark.usefixtures("no_page")
def test_a_report_that_cannot_be_made_anew_goes_from_the_bucket(
    first: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with first.here() as folder:
        leave_report(folder, ThreadExecutor())
    assert "report.html" in names(first.url)

    def failing(*_: object) -> str:
        raise RuntimeError("no memory")

    monkeypatch.setattr(pipeline_report, "gather", failing)
    first.run(archive, threshold=0.5)
    with first.here() as folder:
        leave_report(folder, ThreadExecutor())
    assert "report.html" not in names(first.url)


def test_an_overtaken_writer_replaces_nothing_when_it_records_its_failure(
    first: Machine, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(first.url)
    write = Store.write

    def overtaken(self: Store, path: str, content: bytes | Path, **how: object) -> str:
        if path == "manifest.json" and json.loads(content)["settings"]["threshold"] == 0.5:
            write(store, path, b"another writer's")
        return write(self, path, content, **how)

    monkeypatch.setattr(Store, "write", overtaken)
    with pytest.raises(BusyError, match="another writer"):
        first.run(archive, threshold=0.5)
    assert store.read("manifest.json")[0] == b"another writer's"


def test_logs_are_stored_one_entry_after_another(
    fresh: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, stored = Store.write, list[str]()
    entries = ["1.json", "2.json", "3.json", "3.checkpoint.parquet", "_last_checkpoint"]

    def slower_first(self: Store, path: str, content: bytes | Path, **how: object) -> str:
        if path.endswith("1.json"):
            time.sleep(0.5)
        etag = write(self, path, content, **how)
        stored.append(path)
        return etag

    monkeypatch.setattr(Store, "write", slower_first)
    with fresh.here() as folder, writing(folder, wait=False):
        (folder / "scores" / "_delta_log").mkdir(parents=True)
        for name in (*entries, "../a.parquet"):
            (folder / "scores" / "_delta_log" / name).touch()
    assert [path for path in stored if path.startswith("scores/")] == [
        "scores/a.parquet",
        *(f"scores/_delta_log/{entry}" for entry in entries),
    ]


def test_what_else_is_below_the_url_is_left_alone(
    first: Machine, second: Machine, archive: Path, bucket: str
) -> None:
    foreign = ("bucket.json", "kp.duckdb", "staging/x", "vectors/note.txt", "other/a.parquet")
    for name in foreign:
        store_at(first.url).write(name, b"foreign")
    store_at(bucket).write("team/warehouse/", b"")  # as consoles make folders
    assert second.run(archive, threshold=0.5)
    with second.here() as folder:
        assert not (folder / "other").exists()
        vacuum(folder, timedelta(0), datetime.now(UTC))
    assert names(first.url) >= set(foreign)
    assert first.ask("SELECT count(*) FROM scores") == [(60,)]


def test_vectors_that_another_machine_has_removed_do_not_come_back(
    first: Machine, second: Machine, archive: Path
) -> None:
    with second.here() as folder:
        refresh(folder)
        (folder / "bucket.json").unlink()  # as if it was killed during its first look
        chunk = folder / "vectors" / "hashing-384-v1" / f"{'0' * 64}.hashes.npy"
        chunk.touch()
    [(gone,)] = first.ask("SELECT min(trace_id) FROM scores")
    with first.here() as folder:
        forget(folder, [str(gone)])
    vectors = {name for name in names(first.url) if name.startswith("vectors/")}
    assert second.run(archive, cache_size=9)
    assert {name for name in names(first.url) if name.startswith("vectors/")} == vectors
    assert not chunk.exists()


def test_forgotten_traces_leave_the_bucket_and_other_copies(
    fresh: Machine, another: Machine, archive: Path, caplog: pytest.LogCaptureFixture, s3: str
) -> None:
    import boto3

    fresh.run(archive)
    [(gone,)] = another.ask("SELECT min(trace_id) FROM scores")
    boto3.client("s3", endpoint_url=s3).put_bucket_versioning(
        Bucket=fresh.url.split("/")[2], VersioningConfiguration={"Status": "Enabled"}
    )
    with fresh.here() as folder:
        forget(folder, [str(gone)])
    assert "keeps older versions of objects" in caplog.text
    assert another.ask(f"SELECT count(*) FROM scores WHERE trace_id = '{gone}'") == [(0,)]
    needle = json.dumps(gone).encode()[1:-1]
    store = store_at(fresh.url)
    assert not [name for name in names(fresh.url) if needle in store.read(name)[0]]
    with another.here() as folder:
        ours = [path for path in folder.rglob("*") if path.suffix in (".parquet", ".npy", ".json")]
        assert not [path for path in ours if needle in path.read_bytes()]


@pytest.mark.prefect
def test_no_secret_is_left_anywhere(
    fresh: Machine, archive: Path, caplog: pytest.LogCaptureFixture, prefect: PrefectServer
) -> None:
    bucket = fresh.url.removesuffix("/team/warehouse")
    fill(f"{bucket}/archive", archive)
    with fresh.here():
        words = ("run", f"{bucket}/archive", "--embedder", "hashing", "--warehouse", fresh.url)
        done = commands.kp_batch(*words)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(prefect.database)) as database:
        records = "\n".join(database.iterdump())
    assert done.stdout.partition(":")[0] in records
    with pytest.raises(Exception, match="NoSuchBucket"):
        fresh.run("s3://kp-none/archive")
    [(config,)] = fresh.ask("SELECT DISTINCT config->>'warehouse' FROM runs")
    assert config == fresh.url
    files = [path for path in fresh.cache.rglob("*") if path.is_file()]
    contents = [file.read_bytes() for file in files]
    contents += [store_at(bucket).read(entry.path)[0] for entry in store_at(bucket).objects()]
    read = [pl.read_parquet(file) for file in files if file.suffix == ".parquet"]
    texts = [records, done.stdout, done.stderr, caplog.text, *(str(frame.rows()) for frame in read)]
    contents += [text.encode() for text in texts]
    assert [content for content in contents if fresh.url.encode() in content]
    secrets = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for secret in [os.environ[name].encode() for name in secrets]:
        assert not [content for content in contents if secret in content]


@pytest.mark.telling
def test_a_catalog_for_others_names_the_objects(tmp_path: Path, first: Machine) -> None:
    catalog = tmp_path / "for-others" / "kp.duckdb"
    done = kp_batch(first, "catalog", "-o", catalog)
    assert "CREATE SECRET" in done.stderr
    with duckdb.connect(str(catalog), read_only=True) as connection:
        connection.register_filesystem(store_at(first.url).file_system())
        assert connection.execute(SCORES).fetchall() == first.ask(SCORES)
        macros = "SELECT string_agg(macro_definition) FROM duckdb_functions()"
        views = "SELECT string_agg(sql) FROM duckdb_views()"
        named = repr([connection.execute(query).fetchall() for query in (macros, views)])
    assert f"{first.url}/scores/" in named
    assert str(first.cache) not in named


def kp_batch(
    machine: Machine, *arguments: object, url: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command on a machine, about its warehouse or another one."""
    with machine.here(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("KP_BATCH_WAREHOUSE", url or machine.url)
        return commands.invoke(*arguments)


@pytest.mark.parametrize(
    ("url", "name", "places"),
    [
        ("s3://b/w", "AWS_ENDPOINT_URL", ("http://127.0.0.1:9000", "https://minio.example.com")),
        ("s3://b/w", "AWS_REGION", ("us-east-1", "us-gov-west-1")),
        ("az://b/w", "AZURE_STORAGE_ACCOUNT_NAME", ("first", "second")),
    ],
)
def test_buckets_of_one_name_in_several_places_have_a_copy_each(
    monkeypatch: pytest.MonkeyPatch, url: str, name: str, places: tuple[str, str]
) -> None:
    monkeypatch.delenv(name, raising=False)
    folders = {folder_of(url)}
    for place in (*places, f"{places[0]}/"):
        monkeypatch.setenv(name, place)
        copy = Path(folder_of(url))
        assert url_of(copy) == url
        assert url_of(Path(folder_of(url)) / "..") is None
        folders.add(copy)
    assert len(folders) == 3
    monkeypatch.setenv(name, "another")
    assert not any(url_of(Path(folder)) for folder in folders)


@pytest.mark.telling
def test_commands_take_the_url_of_a_warehouse(
    fresh: Machine, another: Machine, archive: Path
) -> None:
    words = ("run", archive, "--embedder", "hashing", "--report")
    done = kp_batch(fresh, *words, url=f"{fresh.url}/")
    assert "of 60 traces rescored" in done.stdout
    assert f"the report is in {fresh.url}/report.html" in done.stderr
    assert b"<html" in store_at(fresh.url).read("report.html")[0]
    for command, word in {
        ("plan", archive): "nothing to do",
        ("sql", "SELECT count(*) AS n FROM scores"): "60",
        ("settings",): "hashing",
        ("verify", "--sample", "5"): "5 ",
        ("report", "--format", "markdown"): "# Scores of reasoning traces",
        ("compare", "latest", "latest"): "60 traces in both",
        ("vacuum", "--keep", "1h"): "",
        ("runs",): "done",
    }.items():
        done = kp_batch(another, *command)
        assert (done.returncode, word in done.stdout) == (0, True), done
    done = kp_batch(another, "runs", url=f"{fresh.url}-not")
    nowhere = kp_batch(another, "runs", url="s3://kp-none/warehouse")
    message = f"kp-batch: {fresh.url}-not is not a warehouse; run an archive first\n"
    assert (done.returncode, done.stderr) == (1, message)
    assert nowhere.returncode == 1
    assert nowhere.stderr.startswith("kp-batch: cannot continue: NoSuchBucket")


@pytest.mark.parametrize("url", ["s3://box", "s3://box/", "s3://box/a=1/b c", "az://box/a"])
def test_a_copy_is_named_by_its_url(url: str) -> None:
    folder = folder_of(url)
    assert isinstance(folder, Path)
    assert url_of(folder) == shown(folder) == url.rstrip("/")


@pytest.mark.telling
def test_only_buckets_have_copies(tmp_path: Path) -> None:
    assert folder_of(tmp_path) == tmp_path
    assert url_of(tmp_path) is None
    for url in ("https://host/warehouse", "gs://box/a", "s3://box/a,b"):
        with pytest.raises(WarehouseError, match="neither a warehouse nor"):
            folder_of(url)


def test_an_archive_in_the_warehouse_of_a_bucket_is_refused(first: Machine) -> None:
    with first.here() as folder:
        check_apart(folder, ["s3://box/archive", f"{first.url}-2"])
        for name in (first.url, f"{first.url}/scores"):
            with pytest.raises(WarehouseError, match="is in the warehouse"):
                check_apart(folder, [name])
