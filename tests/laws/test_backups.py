"""The lines of the page on backups copy what one publication left, while others publish."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, which

import polars as pl
import pytest

import kp_batch as kp
from kp_batch.storage.store import store_at
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.layout import TABLE_NAMES
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.docs.commands import shell
from tests.support.docs.pages import DOCS, blocks
from tests.support.make.archives import trace, write_jsonl

COPIES = 24
ARCHIVE = "data/sample"  # as the page names it
VIEWS = ("scores", "rejects", "profiles", "runs", "files", "distributions")
# Between two folders others have time to publish.
SLOW_COPY = 'cp() { command cp "$@"; sleep 0.1; }\n'
PUBLISHER = """
import sys
from pathlib import Path
from tests.laws.test_backups import publish_again_and_again
publish_again_and_again(Path(sys.argv[1]), sys.argv[2])
"""
AWS, NO_AWS = which("aws"), "no `aws` is installed, which copies buckets"
BACKUP = DOCS / "how-to" / "backup.md"
pytestmark = [pytest.mark.process, pytest.mark.slow]


def state(warehouse: Path | str) -> str:
    """The rows of all views."""
    with connect(Path(folder_of(str(warehouse)))) as connection:
        rows = [connection.execute(f"FROM {view} ORDER BY ALL").fetchall() for view in VIEWS]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def publish_again_and_again(folder: Path, place: str) -> None:
    """Publish until this process is killed, and print each state; some runs fail."""
    warehouse, number = kp.Warehouse(place), 0
    while True:
        number += 1
        rows = [trace(id=f"{number}-{n}", objective=f"Do {number}") for n in range(3)]
        if number % 4 == 0:
            rows.append(trace(id=f"bad-{number}", confidence=2))
        write_jsonl(folder / ARCHIVE / f"{number}.jsonl", rows)
        limit = 0 if number % 8 == 0 else 1
        try:
            warehouse.run(
                folder / ARCHIVE,
                embedder="hashing",
                threshold=0.3 + number % 5 / 10,
                max_reject_share=limit,
            )
        except kp.KpBatchError as error:
            assert error.code == "max_reject_share"  # noqa: PT017 (it publishes that it failed)
        print(state(place), flush=True)  # noqa: T201 (read by the test)
        if number % 7 == 0:
            warehouse.rollback("previous")
            print(state(place), flush=True)  # noqa: T201


@dataclass(frozen=True)
class Publisher:
    """Another process that publishes; `states` takes a line for each publication."""

    process: subprocess.Popen[bytes]
    states: Path

    def known(self) -> set[str]:
        return {*self.states.read_text().split()}

    def wait(self, count: int) -> None:
        """Wait until it has published so often."""
        deadline = time.monotonic() + 240
        while len(self.known()) < count:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it two publications from now: the last copy may be ahead of the list."""
        self.wait(len(self.known()) + 2)
        self.process.kill()


@contextmanager
def publishing(folder: Path, place: str) -> Generator[Publisher]:
    states, words = folder / "states", [sys.executable, "-c", PUBLISHER, str(folder), place]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "another")}
    with (
        states.open("wb") as out,
        subprocess.Popen(words, stdout=out, env=environment) as process,
    ):
        publisher = Publisher(process, states)
        try:
            publisher.wait(3)
            yield publisher
        finally:
            process.kill()


def lines_that_copy() -> str:
    """The lines of the page, from the one that makes the folder of the copy."""
    first = next(blocks(BACKUP)).text
    before, found, rest = first.partition("mkdir backup\n")
    assert before
    assert found
    return SLOW_COPY + found + rest


def data_files(warehouse: Path) -> dict[str, bytes]:
    """What the manifest names in every table."""
    there = published(warehouse)
    paths = [Path(path) for name in TABLE_NAMES for path in there.files(name)]
    return {str(path.relative_to(warehouse)): path.read_bytes() for path in paths}


def test_a_copy_made_while_others_publish_is_one_of_the_publications(tmp_path: Path) -> None:
    copies: list[Path] = []
    with publishing(tmp_path, str(tmp_path / "warehouse")) as publisher:
        overtaken = 0
        for number in range(COPIES):
            shell(lines_that_copy(), tmp_path)
            copies.append((tmp_path / "backup").rename(tmp_path / f"copy-{number}"))
            manifests = [tmp_path / "warehouse", copies[-1]]
            now, copied = [(each / "manifest.json").read_bytes() for each in manifests]
            overtaken += now != copied
        publisher.stop()
        known = publisher.known()
    found = [state(copy) for copy in copies]
    assert {*found} <= known
    assert len({*found}) > 5
    assert overtaken > 5
    for copy in copies:
        files = data_files(copy)
        assert len(files) >= len(VIEWS)
        for name, content in files.items():
            assert content == (tmp_path / "warehouse" / name).read_bytes()
    restored = copytree(_of_several_moments(copies), tmp_path / "restored")
    done = kp.Warehouse(restored).run(tmp_path / ARCHIVE, max_reject_share=1)
    assert done.status == "done"
    assert _rows_of_delta(restored) == _rows(restored) > 0


@pytest.mark.skipif(AWS is None, reason=NO_AWS)
def test_so_is_a_copy_of_a_bucket(tmp_path: Path, bucket: str) -> None:
    url, store = f"{bucket}/warehouse", store_at(f"{bucket}/warehouse")
    shown = (each.text for each in blocks(BACKUP) if "s3://" in each.text)
    copy, restore = (each.replace("s3://traces", bucket) for each in shown)
    copies: list[Path] = []
    with publishing(tmp_path, url) as publisher:
        overtaken = 0
        for number in range(COPIES // 4):
            shell(copy, tmp_path)
            copies.append((tmp_path / "backup").rename(tmp_path / f"copy-{number}"))
            now, _ = store.read("manifest.json")
            overtaken += now != (copies[-1] / "manifest.json").read_bytes()
        publisher.stop()
        known = publisher.known()
    found = {state(each) for each in copies}
    assert found <= known
    assert len(found) > 2
    assert overtaken > 2
    for each in copies:
        files = data_files(each)
        assert len(files) >= len(VIEWS)
        assert all(content == store.read(name)[0] for name, content in files.items())
    copytree(copies[-1], tmp_path / "backup")
    printed = shell(f"{restore.rstrip()} --max-reject-share 1", tmp_path)
    rows = _rows(f"{bucket}/restored")
    assert rows > 0
    assert f" of {rows} traces rescored" in printed


def _of_several_moments(copies: list[Path]) -> Path:
    """A copy whose Delta table is a publication ahead, if there is one; all can be read."""
    ahead = [copy for copy in copies if _rows_of_delta(copy) != _rows(copy)]
    return ahead[0] if ahead else copies[-1]


def _rows_of_delta(warehouse: Path) -> int:
    return pl.read_delta(str(warehouse / "scores")).height


def _rows(warehouse: Path | str) -> int:
    return kp.Warehouse(warehouse).scores().collect().height
