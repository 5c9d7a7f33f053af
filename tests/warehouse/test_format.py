"""A warehouse of another format is refused, in one line that says what to do."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.manifest import FORMAT_VERSION, read_manifest, require_manifest
from kp_batch.warehouse.publication import rebuild
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with

OLDER = FORMAT_VERSION - 1
LINE = rf"has format {OLDER}, and this version of kp_batch writes format {FORMAT_VERSION}; "


def make_older(warehouse: Path, version: int = OLDER) -> None:
    warehouse.mkdir(parents=True)
    (warehouse / "manifest.json").write_text(json.dumps({"format_version": version}))


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
    assert str(caught.value).endswith(f"kp-batch migrate --warehouse {tmp_path}/wh")


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
    remedy = "upgrade it with: kp-batch migrate --warehouse .*/wh"
    assert re.fullmatch(rf"kp-batch: .*/wh {LINE}{remedy}", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert {name: (tmp_path / "wh" / name).read_bytes() for name in before} == before


def test_a_later_format_asks_for_a_later_version(tmp_path: Path) -> None:
    later = {"format_version": FORMAT_VERSION + 1, "what": "is not known yet"}
    (tmp_path / "manifest.json").write_text(json.dumps(later))
    with pytest.raises(WarehouseError, match="use a later version of kp_batch, or a new folder"):
        read_manifest(tmp_path)


def test_a_format_that_is_too_old_says_what_to_do_first(tmp_path: Path) -> None:
    make_older(tmp_path / "wh", 16)
    with fails_with(WarehouseError, "other_format") as caught:
        read_manifest(tmp_path / "wh")
    remedy = str(caught.value).partition("; ")[2]
    new = f"{tmp_path}/wh-format-{FORMAT_VERSION}"
    assert remedy == (
        "it cannot be upgraded: start a new warehouse; first repeat each forget, with kp-batch "
        f"forget --unseen-too --warehouse {new}, then run the archive into {new}, which embeds all "
        "texts again"
    )
    done = invoke("migrate", "--warehouse", tmp_path / "wh")
    assert (done.returncode, done.stderr) == (1, f"kp-batch: {caught.value}\n")


def test_the_version_names_the_format() -> None:
    shown = invoke("--version").stdout
    assert re.fullmatch(rf"kp-batch \d+\.\d+\.\d+ \(warehouse format {FORMAT_VERSION}\)\n", shown)
