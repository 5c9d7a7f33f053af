"""Writers of one bucket at the same time, whom no lease keeps apart, and a store that fails.

What holds is what `mirror` tells: one publishes, none stores over or deletes what another one
needs, and a copy is whole.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.errors import BusyError, StorageError
from kp_batch.storage.store import Object
from kp_batch.warehouse.bucket import mirror as mirrors
from kp_batch.warehouse.bucket.location import Record
from kp_batch.warehouse.bucket.mirror import Mirror
from kp_batch.warehouse.delta import files_at
from kp_batch.warehouse.manifest import Manifest, read_manifest
from tests.support.memory_store import FAULTS, FaultError, MemoryStore, Turns

TABLES = ("files", "scores")


@dataclass
class Publication:
    """What a writer meant to publish."""

    session: int
    before: str  # the id of what it began from
    rows: tuple[str, ...]  # of each table


@dataclass
class World:
    """A bucket, its writers and what they did."""

    folder: Path
    faults: Iterator[str | None] = field(default_factory=lambda: iter(()))
    turns: Turns = field(default_factory=lambda: Turns(()))
    objects: dict[str, bytes] = field(default_factory=dict)
    meant: dict[str, Publication] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)  # ids, in the order of their publication
    reported: set[str] = field(default_factory=set)  # by writers whose command succeeded
    sessions: Iterator[int] = field(default_factory=count)

    def mirror(self, number: int | None) -> Mirror:
        """The copy of a machine; None: of one that asks a store without faults, at once."""

        def turn() -> str | None:
            if number is not None:
                self.turns.take(number)
            self.observe()
            return None if number is None else next(self.faults, None)

        folder = self.folder / f"{number}"
        folder.mkdir(exist_ok=True)
        return Mirror(Record.of(folder), MemoryStore(self.objects, turn))

    def observe(self) -> None:
        """Note what is published, before each request."""
        if "manifest.json" in self.objects:
            now = json.loads(self.objects["manifest.json"])["publication"]
            if self.history[-1:] != [now]:
                self.history.append(now)

    def write(self, number: int | None, *, vacuum: bool = False) -> None:
        """What a run does, or a vacuum; it may fail."""
        session = next(self.sessions)
        mirror = self.mirror(number)
        with suppressed():
            mirror.pull()
            check(mirror.folder, self)
            published = read_manifest(mirror.folder)
            name = f"{session}"
            rows = () if published is None else self.meant[published.publication].rows[-2:]
            versions = {table: commit(mirror.folder, table, [*rows, name]) for table in TABLES}
            for kind in ("hashes", "vectors"):
                path = mirror.folder / "vectors" / "e" / f"{session:064x}.{kind}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
            before = published.publication if published else ""
            for retries in reversed(range(3)):  # a step is tried again
                manifest = Manifest({}, versions).as_publication(uuid4().hex)
                self.meant[manifest.publication] = Publication(session, before, (*rows, name))
                try:
                    mirror.publish(manifest.as_json())
                    break
                except FaultError:
                    if not retries:
                        raise
            self.reported.add(manifest.publication)
            (mirror.folder / "manifest.json").write_text(manifest.as_json())
            (mirror.folder / "report.html").write_text(name)
            if vacuum:
                mirror.may_delete = True
                remove_old(mirror.folder, versions)
            mirror.finish()

    def publish_again(self, mirror: Mirror) -> None:
        """Publish the same tables, as a vacuum does."""
        published = read_manifest(mirror.folder)
        assert published
        again = published.as_publication(uuid4().hex)
        self.meant[again.publication] = self.meant[published.publication]
        mirror.publish(again.as_json())
        (mirror.folder / "manifest.json").write_text(again.as_json())

    def read(self, number: int | None) -> None:
        """What a reader does."""
        mirror = self.mirror(number)
        with suppressed():
            mirror.pull()
            check(mirror.folder, self)

    def judge(self) -> None:
        """Judge what was done, when all is."""
        self.observe()
        self.read(None)
        assert self.reported <= set(self.history)
        assert len(self.history) == len(set(self.history))
        for before, now in zip(["", *self.history], self.history, strict=False):
            own = before and self.meant[before].session == self.meant[now].session
            assert own or self.meant[now].before == before  # nothing was published over
        shutil.rmtree(self.folder / "None")
        self.read(None)  # by one who comes new


@contextmanager
def suppressed() -> Iterator[None]:
    """Pass over the errors that a writer may get."""
    with suppress(BusyError, StorageError, FaultError):
        yield


def log_of(folder: Path, table: str) -> Path:
    return folder / table / "_delta_log"


def commit(folder: Path, table: str, rows: Sequence[str]) -> int:
    """Commit what the table has from now on, as Delta does; the last row is a new one."""
    log = log_of(folder, table)
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.iterdir()))
    was = files_at(folder / table, {version - 1} if version else set())
    kept = {folder / table / f"{row}.parquet" for row in rows}
    (folder / table / f"{rows[-1]}.parquet").write_text(rows[-1])
    actions = [{"add": {"path": path.name}} for path in kept - was]
    actions += [{"remove": {"path": path.name}} for path in was - kept]
    lines = "".join(f"{json.dumps(action)}\n" for action in [*actions, {"by": rows[-1]}])
    (log / f"{version:020d}.json").write_text(lines)
    return version


def remove_old(folder: Path, versions: dict[str, int]) -> None:
    for table, version in versions.items():
        named = files_at(folder / table, {version})
        for file in set((folder / table).glob("*.parquet")) - named:
            file.unlink()
    for file in sorted((folder / "vectors" / "e").iterdir())[:-2]:
        file.unlink()


def check(folder: Path, world: World) -> None:
    """A copy has the whole of something that was published."""
    manifest = read_manifest(folder)
    if manifest is None:
        assert not world.history
        return
    assert manifest.publication in world.history
    rows = world.meant[manifest.publication].rows
    for table, version in manifest.tables.items():
        files = files_at(folder / table, {version})
        assert sorted(file.read_text() for file in files) == sorted(rows)


@pytest.fixture(autouse=True)
def one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(work: Callable[[object], object], parts: Sequence[object]) -> None:
        for part in parts:
            work(part)

    monkeypatch.setattr(mirrors, "run_parallel", run)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("is_vacuum", [False, True])
def test_a_writer_that_comes_between_any_two_requests_of_another_harms_nobody(
    tmp_path: Path, *, is_vacuum: bool
) -> None:
    base = World(tmp_path / "base")
    base.folder.mkdir()
    for _ in range(3):
        base.write(None)
    for requests in count():
        world = World(tmp_path / f"{requests}", turns=Turns([0] * requests + [1] * 1000))
        shutil.copytree(base.folder, world.folder)
        world.objects |= base.objects
        world.meant |= base.meant
        world.history += base.history
        world.sessions = count(3)
        ended: list[int] = []

        def work(number: int, world: World = world, ended: list[int] = ended) -> None:
            world.write(number, vacuum=is_vacuum == (number == 0))
            ended.append(number)

        world.turns.run(lambda: work(0), lambda: work(1))
        world.judge()
        assert len(world.reported) >= 1
        if ended == [0, 1]:
            break
    assert requests > 15


orders = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 25)), max_size=20)
faults = st.lists(st.sampled_from([None] * 12 + list(FAULTS)), max_size=150)


@pytest.mark.slow
@settings(max_examples=60)
@given(orders=orders, faults=faults, vacuums=st.tuples(st.booleans(), st.booleans()))
def test_whatever_fails_a_reader_sees_one_whole_publication(
    orders: list[tuple[int, int]], faults: list[str | None], vacuums: tuple[bool, bool]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(
            Path(folder),
            iter(faults),
            Turns([writer for writer, times in orders for _ in range(times)]),
        )

        def nights(number: int) -> None:
            for _ in range(2):
                world.write(number, vacuum=vacuums[number])

        world.turns.run(lambda: nights(0), lambda: nights(1), lambda: world.read(2))
        world.judge()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A warehouse of three rows."""
    world = World(tmp_path)
    for _ in range(3):
        world.write(None)
    return world


def test_of_two_writers_that_take_turns_one_gets_through(world: World) -> None:
    world.turns, before = Turns([0, 1] * 500), len(world.reported)
    world.turns.run(lambda: world.write(0), lambda: world.write(1))
    world.judge()
    assert len(world.reported) - before == 1


def test_a_publication_whose_answer_was_lost_is_followed_by_the_next_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = MemoryStore.write, iter(["lost"])

    def without_answer(store: MemoryStore, path: str, *args: Any, **how: Any) -> str:
        etag = write(store, path, *args, **how)
        if path == "manifest.json" and next(lost, None):
            raise FaultError
        return etag

    monkeypatch.setattr(MemoryStore, "write", without_answer)
    before = len(world.reported)
    world.write(None)
    world.judge()
    assert len(world.reported) - before == 1
    assert world.history[-1] in world.reported
    assert len({world.meant[publication].session for publication in world.history[-2:]}) == 1


def test_who_was_overtaken_replaces_neither_the_page_nor_the_mark(world: World) -> None:
    sleeping, other = world.mirror(None), world.mirror(None)
    other.record = Record.of(world.folder / "other")
    other.folder.mkdir()
    for mirror in (sleeping, other):
        mirror.pull()
    for mirror in (other, sleeping):
        (mirror.folder / "report.html").write_text(f"of {mirror.folder.name}")
    other.finish()
    with pytest.raises(BusyError, match="another writer stored something"):
        sleeping.finish()
    assert world.objects["report.html"] == b"of other"


def test_vectors_go_with_their_hashes_whether_or_not_they_were_fetched(world: World) -> None:
    mirror = world.mirror(None)
    shutil.rmtree(mirror.folder)
    mirror = world.mirror(None)
    mirror.pull()
    [first, second, third] = sorted((mirror.folder / "vectors" / "e").glob("*.hashes.npy"))
    assert not list((mirror.folder / "vectors").glob("*/*.vectors.npy"))
    world.publish_again(mirror)
    mirror.may_delete = True
    first.unlink()
    mirror.finish()
    stays = {f"vectors/e/{path.name}" for path in (second, third)}
    stays |= {path.replace("hashes", "vectors") for path in stays}
    assert {path for path in world.objects if path.startswith("vectors")} == stays


@pytest.mark.parametrize("lost", ["scores/_delta_log/*.json", "files/2.parquet", "manifest.json"])
def test_where_a_disk_lost_what_is_needed_nothing_is_deleted(world: World, lost: str) -> None:
    mirror = world.mirror(None)
    mirror.pull()
    before = set(world.objects)
    world.publish_again(mirror)
    mirror.may_delete = True
    for file in [*mirror.folder.glob(lost), *mirror.folder.glob("vectors/*/*")]:
        file.unlink()
    with pytest.raises(StorageError, match=r"is needed, is lost from .* give the same command"):
        mirror.finish()
    assert set(world.objects) == before
    world.observe()
    mirror.pull()
    check(mirror.folder, world)


@pytest.mark.parametrize("is_run", [False, True])
def test_what_a_copy_loses_while_nothing_is_removed_stays_in_the_bucket(
    world: World, *, is_run: bool
) -> None:
    mirror = world.mirror(None)
    mirror.pull()
    before = set(world.objects)
    if is_run:
        world.publish_again(mirror)
    shutil.rmtree(mirror.folder / "vectors")
    (mirror.folder / "report.html").unlink()
    mirror.finish()
    assert set(world.objects) == before - {"report.html"}


@pytest.mark.parametrize("removed", ["vectors/*/*.hashes.npy", "forgetting"])
def test_what_is_removed_here_stays_in_the_bucket_once_another_one_has_published(
    world: World, removed: str
) -> None:
    world.objects["forgetting"] = b""
    mirror = world.mirror(None)
    mirror.pull()
    world.publish_again(mirror)
    mirror.may_delete = True
    for file in mirror.folder.glob(removed):
        file.unlink()
    world.turns.run(lambda: world.write(0))
    before = set(world.objects)
    with pytest.raises(BusyError, match=r"another writer published .* nothing more was deleted"):
        mirror.finish()
    assert set(world.objects) == before


@pytest.mark.parametrize(
    "path", ["vectors/e/notes.vectors.npy", f"scores/{'0' * 64}.vectors.npy", "vectors/e/a.json"]
)
def test_only_what_bears_the_name_of_a_chunk_is_a_vector_of_ours(world: World, path: str) -> None:
    world.objects[path] = b"foreign"
    for number in range(2):
        world.write(None, vacuum=number == 1)
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
    assert world.mirror(None).record.known.keys() == world.objects.keys()


def test_a_page_that_is_replaced_while_it_is_fetched_is_noted_as_it_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = MemoryStore.objects

    def replaced(store: MemoryStore) -> Iterator[Object]:
        objects = [*listed(store)]
        store.held["report.html"] = b"newer"
        return iter(objects)

    monkeypatch.setattr(MemoryStore, "objects", replaced)
    world.objects["report.html"] = b"newer than here"
    mirror = world.mirror(None)
    mirror.pull()
    assert (mirror.folder / "report.html").read_bytes() == b"newer"
    stored = mirror.store.head("report.html")
    assert stored
    assert mirror.record.has(stored)
