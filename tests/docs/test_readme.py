"""The front page: its commands are run, the make targets are looked at. For the rest: test_docs."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from runpy import run_module
from shutil import copyfile

import pytest

from kp_batch.warehouse.reader import connect
from tests.support import ROOT
from tests.support.docs.commands import missing, outputs, shell, words
from tests.support.docs.pages import DOCS, README, Block, blocks, links
from tests.support.make.sample import write_sample
from tests.support.processes.buckets import fill, make_bucket

MADE, *SHOWN = [block for block in blocks(README) if block.language == "sh"]
# What `make demo` prints, among more.
DEMO = """\
  archive    21 files, 600 rows: 600 accepted, 0 duplicates, 0 superseded, 0 rejected
  texts      483 embedded (483 windows), 0 reused
  code              ▂▃▃▃▆█▇▃▁▁     153           2.0%  0.495  0.100  0.412  0.530  0.613  0.724
Which traces are least novel without being copies, and what do they resemble?
│ kp:trace:3b31162f │         0.9995 │ kp:trace:fb36498a │      9529.0 │
"""


@pytest.mark.telling
@pytest.mark.model
@pytest.mark.prefect
def test_the_commands_of_the_front_page_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shown = [Block("sh", "kp-batch demo\n", DEMO), *SHOWN]  # as `make demo` does
    for block, output in zip(shown, outputs(shown, tmp_path), strict=True):
        assert missing(block.shown, output) is None
    assert (tmp_path / "kp-batch-demo" / "warehouse" / "report.html").exists()
    with connect(tmp_path / "kp-batch-demo" / "warehouse") as connection:
        far = (
            "SELECT count(*), max(abs(score - recorded_score)) FROM scores WHERE recorded_score > 0"
        )
        [(compared, difference)] = connection.execute(far).fetchall()
    assert (compared, difference < 1e-6) == (575, True)  # as the sample says that an engine had it
    drawn = tmp_path / "drawn.svg"
    monkeypatch.setattr(sys, "argv", ["", f"{tmp_path}/kp-batch-demo/warehouse", str(drawn)])
    run_module("tests.support.docs.picture", run_name="__main__")
    [picture] = [link for link in links(README) if link.endswith(".svg")]
    assert words(drawn) == words(ROOT / picture)


@pytest.mark.process
def test_the_make_targets_call_what_the_tests_run() -> None:
    assert [line.split()[:2] for line in MADE.text.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    lint = ["ruff check", "ruff format --check", "pyrefly check", "lint-imports"]
    for target, calls in (
        ("demo", ["kp-batch demo"]),
        ("check", [*lint, "pytest --quick"]),
        ("test", [*lint, "pytest --telling"]),
        ("test-all", [*lint, "pytest --numprocesses"]),
    ):
        plan = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert all(call in plan for call in calls), plan


@pytest.mark.process
def test_a_demo_installs_what_it_needs_and_a_test_the_rest(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        copyfile(ROOT / name, tmp_path / name)
    bin_folder, log = tmp_path / ".venv" / "bin", tmp_path / "called"
    bin_folder.mkdir(parents=True)
    for name in ("pip", "kp-batch", "ruff", "pyrefly", "lint-imports", "pytest"):
        (bin_folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (bin_folder / name).chmod(0o755)

    def installed(target: str) -> list[str]:
        log.write_text("")
        subprocess.run(["make", target], cwd=tmp_path, capture_output=True, check=True)
        return re.findall(r"^pip .*\[(.*)\]$", log.read_text(), re.MULTILINE)

    assert installed("demo") == ["offline-model"]
    assert installed("test") == ["offline-model,dev"]
    assert installed("demo") + installed("install") == []
    changed = time.time() + 1
    os.utime(tmp_path / "constraints.txt", (changed, changed))
    assert installed("test") == ["offline-model,dev"]


def test_the_sample_archive_is_what_its_generator_makes(tmp_path: Path) -> None:
    paths = write_sample(tmp_path, traces=600, days=21, seed=7)
    shipped = sorted((ROOT / "data" / "sample").iterdir())
    assert [path.name for path in paths] == [path.name for path in shipped]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(paths, shipped, strict=True))


@pytest.mark.process
def test_the_commands_for_a_bucket_work(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what they themselves export, and nothing else."""
    [block] = [
        block.text for block in blocks(DOCS / "how-to" / "bucket.md") if "s3://" in block.text
    ]
    fill(f"{make_bucket(s3, 'traces')}/archive", ROOT / "data" / "sample")
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    output = shell(block.replace("http://127.0.0.1:9000", s3), tmp_path)
    assert "600 of 600 traces rescored" in output
    assert (tmp_path / "kp.duckdb").exists()
