"""The lines of the page on backups copy what one publication left, while others publish."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import polars as pl
import pytest

import kp_batch as kp
from kp_batch.warehouse.layout import TABLE_NAMES
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.docs.commands import shell
from tests.support.docs.pages import DOCS, blocks
from tests.support.make.archives import trace, write_jsonl

COPIES = 24
VIEWS = ("scores", "rejects", "profiles", "runs", "files", "distributions")
# Between two folders others have time to publish.
SLOW_COPY = 'cp() { command cp "$@"; sleep 0.1; }\n'
PUBLISHER = """
import sys
from pathlib import Path
from tests.laws.test_backups import publish_again_and_again
publish_again_and_again(Path(sys.argv[1]))
"""
pytestmark = [pytest.mark.process, pytest.mark.slow]


def state(warehouse: Path) -> str:
    """The rows of all views."""
    with connect(warehouse) as connection:
        rows = [connection.execute(f"FROM {view} ORDER BY ALL").fetchall() for view in VIEWS]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def publish_again_and_again(folder: Path) -> None:
    """Publish until this process is killed, and print each state; some runs fail."""
    warehouse, number = kp.Warehouse(folder / "warehouse"), 0
    while True:
        number += 1
        rows = [trace(id=f"{number}-{n}", objective=f"Do {number}") for n in range(3)]
        if number % 4 == 0:
            rows.append(trace(id=f"bad-{number}", confidence=2))
        write_jsonl(folder / "archive" / f"{number}.jsonl", rows)
        limit = 0 if number % 8 == 0 else 1
        try:
            warehouse.run(
                folder / "archive",
                embedder="hashing",
                threshold=0.3 + number % 5 / 10,
                max_reject_share=limit,
            )
        except kp.KpBatchError as error:
            assert error.code == "max_reject_share"  # noqa: PT017 (it publishes that it failed)
        print(state(folder / "warehouse"), flush=True)  # noqa: T201 (read by the test)
        if number % 7 == 0:
            warehouse.rollback("previous")
            print(state(folder / "warehouse"), flush=True)  # noqa: T201


@dataclass(frozen=True)
class Publisher:
    """Another process that publishes; `states` takes a line for each publication."""

    process: subprocess.Popen[bytes]
    states: Path

    def known(self) -> set[str]:
        return {*self.states.read_text().split()}

    def stop(self, after: int) -> None:
        """Kill it once it has published so often."""
        deadline = time.monotonic() + 240
        while len(self.known()) < after:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.process.kill()


@contextmanager
def publishing(folder: Path) -> Generator[Publisher]:
    states = folder / "states"
    with (
        states.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", PUBLISHER, str(folder)], stdout=out) as process,
    ):
        try:
            yield Publisher(process, states)
        finally:
            process.kill()


def lines_that_copy() -> str:
    """The lines of the page, from the one that makes the folder of the copy."""
    first = next(blocks(DOCS / "how-to" / "backup.md")).text
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
    with publishing(tmp_path) as publisher:
        while len(publisher.known()) < 3:
            assert publisher.process.poll() is None
            time.sleep(0.05)
        overtaken = 0
        for number in range(COPIES):
            shell(lines_that_copy(), tmp_path)
            copies.append((tmp_path / "backup").rename(tmp_path / f"copy-{number}"))
            manifests = [tmp_path / "warehouse", copies[-1]]
            now, copied = [(each / "manifest.json").read_bytes() for each in manifests]
            overtaken += now != copied
        publisher.stop(after=len(publisher.known()) + 2)  # the last copy may be ahead of the list
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
    done = kp.Warehouse(restored).run(tmp_path / "archive", max_reject_share=1)
    assert done.status == "done"
    assert _rows_of_delta(restored) == _rows(restored) > 0


def _of_several_moments(copies: list[Path]) -> Path:
    """A copy whose Delta table is a publication ahead, if there is one; all can be read."""
    ahead = [copy for copy in copies if _rows_of_delta(copy) != _rows(copy)]
    return ahead[0] if ahead else copies[-1]


def _rows_of_delta(warehouse: Path) -> int:
    return pl.read_delta(str(warehouse / "scores")).height


def _rows(warehouse: Path) -> int:
    return kp.Warehouse(warehouse).scores().collect().height
