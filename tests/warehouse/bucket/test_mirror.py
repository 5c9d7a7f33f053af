"""Writers of one bucket at the same time, whom no notice keeps apart, and a store that fails.

What holds is what `mirror` says: one publishes, none stores over or deletes what another one needs,
a copy is whole, and the Delta tables never go backwards.
"""

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.errors import BusyError, OvertakenError, StorageError
from kp_batch.storage.store import Object
from kp_batch.warehouse import publication
from kp_batch.warehouse.bucket import mirror as mirrors
from kp_batch.warehouse.bucket.location import CopyRecord
from kp_batch.warehouse.bucket.mirror import Mirror
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, past_manifest, read_manifest, require_manifest
from kp_batch.warehouse.publication import amend, may_remove, publish, start_over, writing
from kp_batch.warehouse.snapshot import PublishedSnapshot
from kp_batch.warehouse.unneeded import Unneeded, kept_manifests
from tests.support.make.publications import NOTHING, SETTINGS, profile
from tests.warehouse.bucket.memory_store import (
    FAULTS,
    KILLS,
    FaultError,
    KilledError,
    MemoryStore,
    Turns,
)

_ROWS = 3  # of the table of profiles, at the most
_STORES: dict[Path, MemoryStore] = {}  # of the copies
Rows = tuple[str, ...]


@dataclass
class World:
    """A bucket, its writers, and what they did."""

    folder: Path
    faults: Iterator[str | None] = field(default_factory=lambda: iter(()))
    turns: Turns = field(default_factory=lambda: Turns(()))
    objects: dict[str, bytes] = field(default_factory=dict)
    meant: dict[str, Rows] = field(default_factory=dict)  # of the profiles, by manifests' names
    history: list[Manifest] = field(default_factory=list)  # in the order of their publication
    files: list[dict[str, set[str]]] = field(default_factory=list)  # of the tables, likewise
    needed: dict[bytes, set[str]] = field(default_factory=dict)  # objects, by manifests
    exported: dict[str, int] = field(default_factory=dict)  # the newest publication, by table
    reported: set[str] = field(default_factory=set)  # manifests, as published to their writers
    going: set[str] = field(default_factory=set)  # rows that somebody began to forget
    forgotten: set[str] = field(default_factory=set)  # those whose end was reported as well
    is_whole: bool = True  # whether no request has failed, and nobody was killed
    sessions: Iterator[int] = field(default_factory=count)
    requests: int = 0  # of writers who are watched

    def copy(self, number: int | None) -> Path:
        """The copy of a machine; None: of one that asks a store without faults, at once."""
        killed = list[str]()

        def turn() -> str | None:
            if killed:
                raise KilledError
            if number is not None:
                self.turns.take(number)
                self.requests += 1
            self.observe()
            fault = None if number is None else next(self.faults, None)
            killed.extend(kill for kill in KILLS if kill == fault)
            self.is_whole &= fault is None
            return fault

        folder = self.folder / f"{number}"
        folder.mkdir(exist_ok=True)
        _STORES[folder] = MemoryStore("memory://", self.objects, turn)
        return folder

    def mirror(self, number: int | None) -> Mirror:
        return _mirror_of(self.copy(number))

    def observe(self) -> None:
        """Judge what the bucket has, before each request."""
        if "manifest.json" not in self.objects:
            return
        now = Manifest.read(json.loads(self.objects["manifest.json"]))
        if self.history[-1:] != [now]:
            before = self.history[-1] if self.history else NOTHING
            assert (now.before, now.number) == (before.name, before.number + 1)
            self.history.append(now)
            self.files.append(self._listed_by(now))
        for manifest in self.history:
            if manifest.number >= now.kept_from or manifest == now:
                self._observe_kept(manifest)
        for table in now.tables:
            self._observe_delta(table)

    def _observe_kept(self, manifest: Manifest) -> None:
        """All that it names is there, by the log, where a forget may have amended it."""
        content = self.objects[f"log/{manifest.name}.json"]
        if content not in self.needed:
            amended = Manifest.read(json.loads(content))
            assert (
                replace(amended, tables=manifest.tables).as_publication(manifest.name) == manifest
            )
            listed = self._listed_by(amended)
            data = {f"{name}/{path}" for name, each in listed.items() for path in each}
            self.needed[content] = data | {f"log/files/{name}.json" for name in amended.lists}
        assert self.needed[content] <= self.objects.keys(), "what is kept was deleted"

    def _listed_by(self, manifest: Manifest) -> dict[str, set[str]]:
        return {name: self._listed(lists) for name, lists in manifest.tables.items()}

    def _listed(self, lists: dict[str, str]) -> set[str]:
        contents = (json.loads(self.objects[f"log/files/{name}.json"]) for name in lists.values())
        return {path for _, *entries in contents for path, *_ in entries}

    def _observe_delta(self, table: str) -> None:
        """Each version has the files of a publication, none of an earlier one than the last."""
        active, index = self.delta(table)
        assert {f"{table}/{path}" for path in active} <= self.objects.keys(), "Delta names it"
        assert index >= self.exported.get(table, 0), "Delta went backwards"
        self.exported[table] = index

    def delta(self, table: str) -> tuple[set[str], int]:
        """The files of the newest version of a Delta table, and the first publication it may be."""
        logs = sorted(path for path in self.objects if path.startswith(f"{table}/_delta_log/"))
        assert [int(Path(log).stem) for log in logs] == [*range(len(logs))], "a gap"
        active, index = set[str](), 0
        for log in logs:
            for action in map(json.loads, self.objects[log].splitlines()):
                active |= {action["add"]["path"]} if "add" in action else set()
                active -= {action["remove"]["path"]} if "remove" in action else set()
            index += [files.get(table, set()) for files in self.files[index:]].index(active)
        return active, index

    def work(self, number: int | None, kind: str) -> None:
        """Do some work on a machine; it may fail, or be killed."""
        folder = self.copy(number)
        with suppress(BusyError, StorageError, FaultError, KilledError):
            with writing(folder, wait=0):
                gone = getattr(self, f"_{kind}")(folder)
            self.forgotten |= {gone} if gone else set()

    def publish(self, candidate: Candidate, rows: Rows, **how: Any) -> None:
        self.meant[candidate.name] = rows
        for tries_left in reversed(range(3)):  # a step is tried again
            try:
                publish(candidate, SETTINGS, **how)
                break
            except FaultError:
                if not tries_left:
                    raise
        self.reported.add(candidate.name)

    def _run(self, folder: Path) -> None:
        """What a run does, which is planned once more where it loses."""
        try:
            self._add_row(folder)
        except OvertakenError:
            start_over(folder)
            self._add_row(folder)

    def _add_row(self, folder: Path) -> None:
        base, name = read_manifest(folder) or NOTHING, f"row{next(self.sessions)}"
        self.check(folder)
        candidate = Candidate(folder, base, name)
        rows = (*self.meant.get(base.name, ()), name)
        if len(rows) > _ROWS:
            rows = rows[1:]
            candidate = candidate.overwrite("profiles", pl.concat(map(profile, rows)))
        else:
            candidate = candidate.append("profiles", profile(name))
        write_chunk(folder, rows)
        self.publish(candidate, rows)
        Layout(folder).report.write_text(name)

    def _vacuum(self, folder: Path) -> None:
        """Keep what is published, and what was before it, unless a forget is unfinished."""
        base = require_manifest(folder)
        if Layout(folder).forgetting.exists():
            return
        kept_from = max(base.kept_from, base.number - 1)
        unneeded = unneeded_since(folder, kept_from)
        candidate = Candidate(folder, base, "upkeep")
        self.publish(candidate, self.meant[base.name], kept_from=kept_from)
        self._remove(folder, unneeded, base)

    def _remove(self, folder: Path, unneeded: Unneeded, base: Manifest) -> None:
        may_remove(folder, unneeded.files)
        unneeded.remove()
        for file in sorted((folder / "vectors" / "e").iterdir())[:-2]:
            file.unlink()
        write_chunk(folder, sorted(self.meant[base.name]))  # as it merges small ones

    def _forget(self, folder: Path) -> str:
        """What a forget does with the newest row, which it returns."""
        base, marker = require_manifest(folder), Layout(folder).forgetting
        *rows, gone = self.meant[base.name]
        self.going.add(gone)
        marked = {*(marker.read_text().split() if marker.exists() else ()), gone}
        marker.write_text(" ".join(sorted(marked)))
        candidate = Candidate(folder, base, f"forget{next(self.sessions)}")
        candidate = candidate.append("forgotten", pl.DataFrame({"id_hash": [gone]}))
        rows = [*rows[-_ROWS + 1 :], f"{candidate.writer}"]
        candidate = candidate.overwrite("profiles", pl.concat(map(profile, rows)))
        self.publish(candidate, tuple(rows))
        start_over(folder)
        base = require_manifest(folder)
        marked &= {*PublishedSnapshot(folder, base).scan("forgotten").collect()["id_hash"]}
        for past in kept_until(folder, base):
            amend_without(folder, past, marked)
        self.publish(Candidate(folder, base, "upkeep"), self.meant[base.name])
        for file in (folder / "vectors" / "e").glob("*.hashes.npy"):
            if not marked.isdisjoint(file.read_text().split()):
                file.unlink()
                file.with_name(file.name.replace("hashes", "vectors")).unlink(missing_ok=True)
        self._remove(folder, unneeded_since(folder, base.kept_from), base)
        marker.unlink(missing_ok=True)  # another forget may have finished this one
        return gone

    def check_forgotten(self) -> None:
        """No object has a row that is forgotten, also none that a writer has stored in vain."""
        for path, content in self.objects.items():
            if path.startswith("profiles/") and path.endswith(".parquet"):
                assert self.forgotten.isdisjoint(pl.read_parquet(io.BytesIO(content))["name"]), path
            if path.startswith("vectors/"):
                assert self.forgotten.isdisjoint(content.decode().split()), path

    def read(self, number: int | None) -> None:
        """What a reader does."""
        mirror = self.mirror(number)
        with suppress(StorageError, FaultError, KilledError):
            mirror.pull()
            self.check(mirror.folder)

    def check(self, folder: Path) -> None:
        """A copy has the whole of something that was published."""
        manifest = read_manifest(folder)
        if manifest is None:
            assert not self.history
            return
        assert manifest in self.history
        assert past_manifest(folder, manifest.name) == manifest
        snapshot = PublishedSnapshot(folder, manifest)
        assert snapshot.is_whole
        assert sorted(rows_of(snapshot)) == sorted(self.meant[manifest.name])

    def check_past(self, folder: Path) -> None:
        """All that is kept has the rows that it had, but for those that were forgotten."""
        for past in kept_until(folder, require_manifest(folder)):
            meant, rows = set(self.meant[past.name]), rows_of(PublishedSnapshot(folder, past))
            gone = self.forgotten if self.is_whole else set[str]()
            assert meant - self.going <= set(rows) <= meant - gone
            assert len(set(rows)) == len(rows)

    def judge(self) -> None:
        """Judge what was done, when all is."""
        self.observe()
        self.read(None)
        assert self.reported <= {manifest.name for manifest in self.history}
        if self.history:
            self.check_past(self.folder / "None")
        if self.is_whole:
            self.check_forgotten()
        self.judge_delta(behind=1)
        self.work(None, "run")
        self.observe()
        self.judge_delta(behind=0)
        shutil.rmtree(self.folder / "None")
        self.read(None)  # by one who comes new

    def judge_delta(self, behind: int) -> None:
        for table in self.history[-1].tables if self.history else ():
            newest = [files.get(table, set()) for files in self.files[-1 - behind :]]
            assert self.delta(table)[0] in newest, f"{table} is more than {behind} behind"

    def beginning(self, folder: Path) -> "World":
        """Another world that begins as this one is."""
        shutil.copytree(self.folder, folder)
        other = World(folder, objects=dict(self.objects), meant=dict(self.meant))
        other.history, other.files = [*self.history], [*self.files]
        other.exported = dict(self.exported)
        other.sessions = count(100)
        return other


def kept_until(folder: Path, last: Manifest) -> list[Manifest]:
    """The manifests that are kept, the last one first; each publication is that of a run here."""
    kept, name = list[Manifest](), last.name
    for _ in range(last.kept_from, last.number + 1):
        if name:
            kept.append(past_manifest(folder, name))
            name = kept[-1].before
    return kept


def unneeded_since(folder: Path, kept_from: int) -> Unneeded:
    now = require_manifest(folder)
    kept, snapshot = kept_until(folder, now), PublishedSnapshot(folder, now)
    runs: Any = [SimpleNamespace(number=x.number, published={"publication": x.name}) for x in kept]
    return Unneeded.of(snapshot, kept_manifests(snapshot, runs, kept_from))


def amend_without(folder: Path, past: Manifest, gone: set[str]) -> None:
    """Take rows out of a past manifest, as `WithoutTraces` does traces."""
    rows = rows_of(PublishedSnapshot(folder, past))
    if not gone.isdisjoint(rows):
        stay = pl.concat([profile("").clear(), *(profile(row) for row in rows if row not in gone)])
        amend(Candidate(folder, past, "upkeep").overwrite("profiles", stay))


def rows_of(snapshot: PublishedSnapshot) -> list[str]:
    return snapshot.scan("profiles").collect()["name"].to_list()


def write_chunk(folder: Path, rows: Sequence[str]) -> None:
    """Write the vectors of rows, and their hashes, which name the rows here."""
    text = " ".join(rows)
    for kind in ("hashes", "vectors"):
        path = folder / "vectors" / "e" / f"{sha256(text.encode()).hexdigest()}.{kind}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _mirror_of(folder: Path) -> Mirror:
    return Mirror(CopyRecord.of(folder), _STORES[folder])


@pytest.fixture(autouse=True)
def one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a store in memory, which needs no catalogs."""

    def run(work: Callable[[object], object], parts: Sequence[object]) -> None:
        for part in parts:
            work(part)

    monkeypatch.setattr(mirrors, "run_parallel", run)
    monkeypatch.setattr(Mirror, "of", _mirror_of)
    monkeypatch.setattr(publication, "build_published", lambda catalog, _: catalog.touch())
    monkeypatch.setattr(publication, "is_current", lambda *_: True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A warehouse of three rows."""
    world = World(tmp_path / "base")
    world.folder.mkdir()
    for _ in range(3):
        world.work(None, "run")
    return world


KINDS = ("run", "vacuum", "forget")


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.torture)])
def test_a_writer_that_comes_between_any_two_requests_of_another_harms_nobody(
    tmp_path: Path, world: World, first: str, second: str, every: int
) -> None:
    """Between any two comes one of three kinds of writers; in `make torture`, each of them."""
    for requests in count(KINDS.index(second) if every > 1 else 0, every):
        other = world.beginning(tmp_path / f"{requests}")
        other.turns = Turns([0] * requests + [1] * 1000)
        ended = list[int]()

        def work(number: int, kind: str, other: World = other, ended: list[int] = ended) -> None:
            other.work(number, kind)
            ended.append(number)

        other.turns.run(lambda: work(0, first), lambda: work(1, second))
        other.judge()
        assert len(other.reported) >= 1
        shutil.rmtree(other.folder)
        if ended == [0, 1]:
            break
    assert requests > 15


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_is_killed_at_any_request_harms_nobody(
    tmp_path: Path, world: World, kind: str
) -> None:
    for number in count():
        other = world.beginning(tmp_path / f"{number}")
        other.faults = iter([*[None] * number, "killed after"])
        other.turns.run(lambda other=other: other.work(0, kind))
        other.judge()
        shutil.rmtree(other.folder)
        if other.requests <= number:
            break
    assert number > 15


orders = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 25)), max_size=20)
faults = st.lists(st.sampled_from([None] * 20 + [*FAULTS, *FAULTS, *KILLS]), max_size=200)
kinds = st.lists(st.sampled_from(KINDS), max_size=2)


@pytest.mark.slow
@settings(max_examples=12)
@given(orders=orders, faults=faults, later=st.tuples(kinds, kinds))
def test_whatever_fails_a_reader_sees_one_whole_publication(
    orders: list[tuple[int, int]], faults: list[str | None], later: tuple[list[str], list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(
            Path(folder),
            turns=Turns([writer for writer, times in orders for _ in range(times)]),
        )
        for _ in range(2):
            world.work(None, "run")
        world.faults = iter(faults)

        def work(number: int, *kinds: str) -> None:
            for kind in kinds:
                world.work(number, kind)

        world.turns.run(
            lambda: work(0, "run", *later[0]),
            lambda: work(1, "run", *later[1]),
            lambda: work(2, "vacuum"),
            lambda: work(3, "forget"),
            lambda: [world.read(4) for _ in range(2)],
        )
        world.judge()


def test_of_two_runs_that_take_turns_both_publish_one_upon_the_other(world: World) -> None:
    world.turns = Turns([0, 1] * 500)
    world.turns.run(lambda: world.work(0, "run"), lambda: world.work(1, "run"))
    world.judge()
    assert len(world.reported) == 6


def test_a_publication_whose_answer_was_lost_is_published_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = MemoryStore.write, iter(["lost"])

    def without_answer(store: MemoryStore, path: str, *args: Any, **how: Any) -> str:
        etag = write(store, path, *args, **how)
        if path == "manifest.json" and next(lost, None):
            raise FaultError
        return etag

    monkeypatch.setattr(MemoryStore, "write", without_answer)
    world.work(None, "run")
    assert len(world.reported) == 4
    world.judge()
    assert len(world.history) == len(world.reported) == 5


def test_what_was_published_unseen_is_not_withdrawn_when_others_are_first_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first publication is lost, and others publish upon it."""
    put, answers = MemoryStore.put_once, iter(["lost", "late"])

    def overtaken(store: MemoryStore, path: str, *how: Any) -> str:
        is_own = path == "manifest.json" and store is _STORES[world.folder / "0"]
        answer = next(answers, None) if is_own else None
        if answer == "lost":
            put(store, path, *how)
        if answer:
            world.work(None, "run")
        return put(store, path, *how)

    monkeypatch.setattr(MemoryStore, "put_once", overtaken)
    world.turns.run(lambda: world.work(0, "run"))
    assert len(world.history) == 6
    world.judge()


def test_what_would_be_published_upon_an_older_manifest_is_not_even_uploaded(world: World) -> None:
    sleeping = world.mirror(0)
    sleeping.store = world.mirror(None).store
    sleeping.pull()
    (sleeping.folder / "vectors" / "e" / f"{99:064x}.hashes.npy").write_text("new")
    world.work(None, "run")
    before = dict(world.objects)
    with pytest.raises(OvertakenError, match=r"another writer published in .* at the same time"):
        sleeping.publish("{}")
    assert world.objects == before


@pytest.mark.parametrize(("kind", "stays"), [("run", True), ("vacuum", True), ("forget", False)])
def test_vectors_of_a_copy_stay_until_another_one_has_forgotten(
    world: World, kind: str, *, stays: bool
) -> None:
    folder = world.folder / "0"
    world.turns.run(lambda: world.read(0))
    own = folder / "vectors" / "e" / f"{99:064x}.hashes.npy"
    own.write_text("of a preview")
    world.work(None, kind)
    world.turns.run(lambda: world.read(0))
    assert own.exists() is stays


def test_deletions_stop_where_others_published_while_logs_were_exported_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are fetched with the other one's manifest, which then looks like one's own."""
    mirror = world.mirror(None)
    mirror.pull()
    world.objects["forgetting"] = b""
    mirror.pull()
    publish_again(world, mirror)
    mirror.unneeded = ()
    (mirror.folder / "forgetting").unlink()
    others = iter([lambda: world.work(0, "run")])

    def first_overtaken(_: Mirror) -> bool:
        for other in others:
            world.turns.run(other)
            return False
        return True

    monkeypatch.setattr(Mirror, "try_store_logs", first_overtaken)
    with pytest.raises(
        OvertakenError, match=r"another writer published .* nothing more was deleted"
    ):
        mirror.finish(lambda: None)
    assert "forgetting" in world.objects


def test_what_was_removed_is_gone_here_as_well_where_logs_were_fetched_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = world.mirror(None)
    mirror.pull()
    publish_again(world, mirror)
    mirror.unneeded = ()
    removed = min((mirror.folder / "vectors" / "e").glob("*.hashes.npy"))
    removed.unlink()
    answers = iter([False, True])
    monkeypatch.setattr(Mirror, "try_store_logs", lambda _: next(answers))
    mirror.finish(lambda: None)
    name = removed.relative_to(mirror.folder).as_posix()
    assert not removed.exists()
    assert name not in {*world.objects, *mirror.record.known}


def publish_again(world: World, mirror: Mirror) -> None:
    """Publish the same tables, as a vacuum does."""
    base = require_manifest(mirror.folder)
    candidate = Candidate(mirror.folder, base, "upkeep")
    world.meant[candidate.name] = world.meant[base.name]
    manifest = candidate.manifest(SETTINGS)
    in_log = Layout(mirror.folder).past_manifest(manifest.name)
    in_log.write_text(manifest.as_json())
    mirror.publish(manifest.as_json())
    Layout(mirror.folder).manifest.write_text(manifest.as_json())


def test_who_was_overtaken_replaces_neither_the_page_nor_the_mark(world: World) -> None:
    sleeping, other = world.mirror(1), world.mirror(None)
    sleeping.store = other.store
    for mirror in (sleeping, other):
        mirror.pull()
    for mirror in (other, sleeping):
        (mirror.folder / "report.html").write_text(f"of {mirror.folder.name}")
    other.finish(lambda: None)
    with pytest.raises(BusyError, match=r"another writer stored report.html in .* same command"):
        sleeping.finish(lambda: None)
    assert world.objects["report.html"] == b"of None"


def test_vectors_go_with_their_hashes_whether_or_not_they_were_fetched(world: World) -> None:
    shutil.rmtree(world.folder / "None")
    mirror = world.mirror(None)
    mirror.pull()
    [first, second, third] = sorted((mirror.folder / "vectors" / "e").glob("*.hashes.npy"))
    assert not list((mirror.folder / "vectors").glob("*/*.vectors.npy"))
    publish_again(world, mirror)
    mirror.unneeded = ()
    first.unlink()
    mirror.finish(lambda: None)
    stays = {f"vectors/e/{path.name}" for path in (second, third)}
    stays |= {path.replace("hashes", "vectors") for path in stays}
    assert {path for path in world.objects if path.startswith("vectors")} == stays


@pytest.mark.parametrize("lost", ["log/files/*.json", "profiles/row2-*.parquet", "manifest.json"])
def test_what_a_disk_lost_while_others_are_removed_stays_in_the_bucket(
    world: World, lost: str
) -> None:
    world.objects["profiles/old.parquet"] = b"of a vacuumed run"
    mirror = world.mirror(None)
    mirror.pull()
    publish_again(world, mirror)
    before, removed = set(world.objects), mirror.folder / "profiles" / "old.parquet"
    mirror.unneeded = {"profiles/old.parquet"}
    gone = [*mirror.folder.glob(lost)]
    assert gone
    for file in (removed, *gone):
        file.unlink()
    mirror.finish(lambda: None)
    assert set(world.objects) == before - mirror.unneeded
    mirror.pull()
    world.check(mirror.folder)


@pytest.mark.parametrize("is_run", [False, True])
def test_what_a_copy_loses_while_nothing_is_removed_stays_in_the_bucket(
    world: World, *, is_run: bool
) -> None:
    mirror = world.mirror(None)
    mirror.pull()
    if is_run:
        publish_again(world, mirror)
    before = set(world.objects)
    shutil.rmtree(mirror.folder / "vectors")
    (mirror.folder / "report.html").unlink()
    mirror.finish(lambda: None)
    assert set(world.objects) == before - {"report.html"}


@pytest.mark.parametrize("removed", ["vectors/*/*.hashes.npy", "forgetting"])
def test_what_is_removed_here_stays_in_the_bucket_once_another_one_has_published(
    world: World, removed: str
) -> None:
    world.objects["forgetting"] = b""
    mirror = world.mirror(None)
    mirror.pull()
    publish_again(world, mirror)
    mirror.unneeded = ()
    for file in mirror.folder.glob(removed):
        file.unlink()
    world.turns.run(lambda: world.work(0, "run"))
    before = set(world.objects)
    with pytest.raises(BusyError, match=r"another writer published .* nothing more was deleted"):
        mirror.finish(lambda: None)
    assert set(world.objects) == before


@pytest.mark.parametrize(
    "path", ["vectors/e/notes.vectors.npy", f"scores/{'0' * 64}.vectors.npy", "vectors/e/a.json"]
)
def test_only_what_bears_the_name_of_a_chunk_is_a_vector_of_ours(world: World, path: str) -> None:
    world.objects[path] = b"foreign"
    for kind in ("run", "vacuum"):
        world.work(None, kind)
    assert world.objects[path] == b"foreign"
    assert path not in world.mirror(None).record.known


@pytest.mark.parametrize(
    "kept",
    [
        '["id", {"manifest.json": "etag"}, true]',
        '["id", {"manifest.json": ["etag", "size", 0]}, true]',
        '["id", ["manifest.json"], true]',
        '["id", {}, "yes"]',
        "[" * 100_000,
    ],
)
def test_a_record_of_another_shape_is_begun_anew(world: World, kept: str) -> None:
    mirror = world.mirror(None)
    (mirror.folder / "bucket.json").write_text(kept)
    mirror = world.mirror(None)
    assert (mirror.record.known, mirror.record.was_published) == ({}, False)
    mirror.pull()
    assert world.mirror(None).record.known.keys() | {"kp.lock"} == world.objects.keys()


def test_a_page_that_is_replaced_while_it_is_fetched_is_noted_as_it_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = MemoryStore.objects

    def replaced(store: MemoryStore) -> Iterator[Object]:
        objects = [*listed(store)]
        store.contents["report.html"] = b"newer"
        return iter(objects)

    monkeypatch.setattr(MemoryStore, "objects", replaced)
    world.objects["report.html"] = b"newer than here"
    mirror = world.mirror(None)
    mirror.pull()
    assert (mirror.folder / "report.html").read_bytes() == b"newer"
    stored = mirror.store.head("report.html")
    assert stored
    assert mirror.record.has(stored)
