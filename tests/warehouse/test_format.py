"""A warehouse of another format is refused, in one line that says how to keep its vectors."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.manifest import FORMAT_VERSION, read_manifest, require_manifest
from kp_batch.warehouse.publication import rebuild
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.processes.commands import invoke
from tests.support.read.folders import listing

OLDER = FORMAT_VERSION - 1
LINE = rf"has format {OLDER}, and this version of kp_batch writes format {FORMAT_VERSION}; "


def make_older(warehouse: Path) -> None:
    warehouse.mkdir(parents=True)
    (warehouse / "manifest.json").write_text(json.dumps({"format_version": OLDER}))


def opened(warehouse: Path) -> None:
    with connect(warehouse):
        pass


@pytest.mark.parametrize("look", [read_manifest, require_manifest, opened, rebuild])
def test_an_older_format_is_named_before_anything_else(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    make_older(tmp_path / "wh")
    with pytest.raises(WarehouseError, match=LINE) as caught:
        look(tmp_path / "wh")
    assert "\n" not in str(caught.value)
    assert "vectors" not in str(caught.value)  # there are none to keep


@pytest.mark.parametrize(
    "command",
    [
        "run ARCHIVE --embedder none",
        "plan ARCHIVE --embedder none",
        "sql 'FROM scores'",
        "sql 'FROM scores' --as-of run",
        "runs",
        "report",
        "compare one another",
        "verify",
        "vacuum",
        "forget kp:trace:1",
        "catalog",
    ],
)
def test_every_command_refuses_an_older_format(tmp_path: Path, command: str) -> None:
    archive = write_jsonl(tmp_path / "a.jsonl", [trace()])
    make_older(tmp_path / "wh")
    before = {path.name: path.read_bytes() for path in (tmp_path / "wh").iterdir()}
    words = shlex.split(command.replace("ARCHIVE", str(archive)))
    done = invoke(*words, "--warehouse", tmp_path / "wh")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"kp-batch: .*/wh {LINE}run the archive .*", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert {name: (tmp_path / "wh" / name).read_bytes() for name in before} == before


def test_a_later_format_asks_for_a_later_version(tmp_path: Path) -> None:
    later = {"format_version": FORMAT_VERSION + 1, "what": "is not known yet"}
    (tmp_path / "manifest.json").write_text(json.dumps(later))
    with pytest.raises(WarehouseError, match="use a later version of kp_batch, or a new folder"):
        read_manifest(tmp_path)


@pytest.mark.telling
@pytest.mark.process
def test_the_command_that_it_shows_keeps_the_vectors(tmp_path: Path) -> None:
    archive = write_jsonl(
        tmp_path / "a.jsonl", [trace(id=str(n), objective=f"{n}") for n in (1, 2)]
    )
    old = tmp_path / "it's old"
    settings = config(tmp_path, archive, warehouse=old)
    assert rescore_archive(settings).counts.embedded == 2
    (old / "kp.duckdb").unlink()
    (old / "manifest.json").write_text(json.dumps({"format_version": OLDER}))
    with pytest.raises(WarehouseError, match=LINE) as caught:
        rescore_archive(settings)
    shown = re.search(r"to keep its vectors, first: (mkdir .* && mv .*)$", str(caught.value))
    assert shown
    subprocess.run(shown[1], shell=True, check=True)
    new = Path(f"{old}-format-{FORMAT_VERSION}")
    kept = rescore_archive(config(tmp_path, archive, warehouse=new))
    assert (kept.counts.embedded, kept.counts.replayed) == (0, 2)


def test_what_was_forgotten_has_to_be_forgotten_again(tmp_path: Path) -> None:
    make_older(tmp_path / "wh")
    (tmp_path / "wh" / "forgotten").mkdir()
    with pytest.raises(WarehouseError, match=r"; afterwards forget again what was forgotten, with"):
        read_manifest(tmp_path / "wh")


@pytest.mark.slow
def test_a_warehouse_of_format_17_is_refused_and_its_vectors_serve_a_new_one(
    tmp_path: Path,
) -> None:
    """It is a whole one, kept as it was: three nights, a forget, dated weights, a rollback."""
    shutil.copytree(Path(__file__).with_name("kept") / "format-17", tmp_path / "kept")
    warehouse, archive = tmp_path / "kept" / "warehouse", tmp_path / "kept" / "archive"
    before = listing(warehouse)
    new = Path(f"{warehouse}-format-{FORMAT_VERSION}")
    done = invoke("run", archive, "--warehouse", warehouse)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"kp-batch: {warehouse} has format 17, and this version of kp_batch writes format "
        f"{FORMAT_VERSION}; run the archive into a new folder, such as {new}; to keep its vectors, "
        "first: mkdir "
    )
    assert last.endswith("; afterwards forget again what was forgotten, with kp-batch forget")
    assert {**listing(warehouse), **before} == listing(warehouse)  # but for how it ended
    shutil.copytree(warehouse / "vectors", new / "vectors")
    counts = rescore_archive(config(tmp_path, archive, warehouse=new)).counts
    assert (counts.accepted, counts.embedded) == (4, 1)  # b was forgotten, with its vector
