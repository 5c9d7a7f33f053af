"""All that a manifest names is on the disk before the manifest is: whoever publishes, anywhere."""

import errno
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kp_batch.errors import ArchiveError
from kp_batch.files import sync_names
from kp_batch.operations.forget import forget
from kp_batch.operations.kept_runs import available_runs
from kp_batch.operations.migrate import migrate
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import TABLES
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.kept import unpacked
from tests.support.make.publications import publish_profile
from tests.support.make.runs import run_night, two_nights
from tests.support.read.folders import keep, restore
from tests.warehouse.power_cuts import Image, disk_of, write_image

REPLACE, UNLINK = Path.replace, Path.unlink


def fail(folder: Path) -> None:
    write_jsonl(folder / "archive" / "a.jsonl", [trace(success=None)])
    with pytest.raises(ArchiveError):
        run_night(folder, max_removed="0")


WRITERS: dict[str, Callable[[Path], object]] = {
    "a run": run_night,
    "a failing run": fail,
    "a rollback": lambda folder: rollback(folder / "warehouse", "previous"),
    "vacuum": lambda folder: vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC)),
    "forget": lambda folder: forget(folder / "warehouse", ["kp:trace:1"]),
}


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights") / "made"
    two_nights(folder)
    keep(folder)
    return folder


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    restore(as_it_was)
    return as_it_was


def rows(warehouse: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the published tables."""
    now = published(warehouse)
    return {name: now.scan(name).collect().rows() for name in TABLES}


def past(warehouse: Path) -> list[dict[str, list[tuple[Any, ...]]]]:
    """All rows that the runs left that can be read; none of them has lost a file."""
    return [
        {name: then.scan(name).collect().rows() for name in TABLES}
        for then in (published(warehouse, run) for run in available_runs(warehouse).readable)
    ]


@contextmanager
def cutting(warehouse: Path, published: Callable[[], object]) -> Generator[list[Image]]:
    """Collect what power cuts would leave, and call `published` after each publication."""
    left: list[Image] = []

    def replacing(path: Path, target: Path) -> Path:
        if target.name == "manifest.json":
            left.append(disk.after_power_cut())
        replaced = REPLACE(path, target)
        if target.name == "manifest.json":
            published()
        if target.is_relative_to(warehouse) and "staging" not in target.parts:
            left.extend(disk.after_rename(target))
        return replaced

    def unlinking(path: Path, **options: bool) -> None:
        if path.suffix == ".parquet" and "staging" not in path.parts:
            names = disk.names[path.parent.stat().st_ino]
            names.pop(path.name, None)  # it may be on the disk before it is synced
            left.append(disk.after_power_cut())
        UNLINK(path, **options)

    with disk_of(warehouse) as disk, pytest.MonkeyPatch.context() as patching:
        patching.setattr(Path, "replace", replacing)
        patching.setattr(Path, "unlink", unlinking)
        yield left
        left.append(disk.after_power_cut())


def some_of(images: Sequence[Image], most: int) -> list[Image]:
    """Return different images, some by chance; the last one is always among them."""
    different = [*{frozenset(image.items()): image for image in images}.values()]
    return [*Random(7).sample(different, min(most, len(different))), images[-1]]


LANES = [20, pytest.param(10_000, marks=[pytest.mark.torture, pytest.mark.timeout(0)])]


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("most", LANES)
@pytest.mark.parametrize("work", WRITERS)
def test_a_power_cut_leaves_what_was_published_before_or_what_is_now(
    folder: Path, work: str, most: int
) -> None:
    warehouse = folder / "warehouse"
    manifest = warehouse / "manifest.json"
    wanted = {manifest.read_bytes(): rows(warehouse)}

    with cutting(
        warehouse, lambda: wanted.update({manifest.read_bytes(): rows(warehouse)})
    ) as left:
        WRITERS[work](folder)

    assert len(left) > 20
    for image in some_of(left, most):
        write_image(warehouse, image)
        assert rows(warehouse) == wanted[image[manifest]]
        past(warehouse)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("most", LANES)
@pytest.mark.parametrize("version", [17, 19])
def test_a_power_cut_leaves_the_old_warehouse_or_the_migrated_one(
    tmp_path: Path, version: int, most: int
) -> None:
    warehouse = unpacked(version, 5, tmp_path)
    manifest = warehouse / "manifest.json"
    old = manifest.read_bytes()

    with cutting(warehouse, lambda: None) as left:
        migrate(warehouse)

    new, wanted = manifest.read_bytes(), (rows(warehouse), past(warehouse))
    assert len(left) > 20
    for image in some_of(left, most):
        write_image(warehouse, image)
        assert image[manifest] in {old, new}
        if image[manifest] == old:
            migrate(warehouse)
        assert (rows(warehouse), past(warehouse)) == wanted


def test_a_new_warehouse_is_on_the_disk_with_its_own_name(tmp_path: Path) -> None:
    warehouse = tmp_path / "by" / "night" / "warehouse"
    with disk_of(tmp_path) as disk:
        with writing(warehouse, wait=False):
            publish_profile(warehouse, "one")
        assert {path.relative_to(warehouse) for path in disk.after_power_cut()} == {
            Path("profiles/_delta_log/00000000000000000000.json"),
            *(path.relative_to(warehouse) for path in warehouse.glob("profiles/*.parquet")),
            *(path.relative_to(warehouse) for path in warehouse.rglob("log/*.json")),
            *(path.relative_to(warehouse) for path in warehouse.rglob("log/files/*.json")),
            *map(Path, ("manifest.json", "kp.duckdb", "kp.lock")),
        }
    wanted = rows(warehouse)
    write_image(warehouse, disk.after_power_cut())
    assert rows(warehouse) == wanted


def found(warehouse: Path) -> dict[Path, int]:
    """All files and folders that a publication may add to, and their inodes."""
    paths = (warehouse, *warehouse.rglob("*"))
    return {path: path.stat().st_ino for path in paths if path.name != "kp.lock"}


def test_only_what_is_new_is_synced(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    for name in ("one", "two"):
        publish_profile(warehouse, name)
    before = found(warehouse)
    with disk_of(warehouse) as disk:
        publish_profile(warehouse, "three")
    new = {path for path, inode in found(warehouse).items() if before.get(path) != inode}
    folders = {path.parent for path in new}
    assert len(new) == 6  # rows, their list, two files of the manifest, the catalog, Delta's entry
    after = 2  # the names of the manifest and of the catalog
    assert disk.syncs == after + len(new) + len(folders)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_the_disk_could_not_write_is_published_by_nobody(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_profile(tmp_path / "warehouse", "one")
    before = (tmp_path / "warehouse" / "manifest.json").read_bytes()

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".parquet":
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=os.strerror(number)):
        publish_profile(tmp_path / "warehouse", "two")
    assert (tmp_path / "warehouse" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL])
def test_unwritten_names_are_reported_unless_no_names_are_synced_there(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EINVAL:
        sync_names(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            sync_names(tmp_path)
