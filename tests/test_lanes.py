"""What each lane takes of the tests, and what it says: the real conftest, over a few made ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.process

MADE = """
import subprocess
import sys
import time

import pytest

def test_quick(): ...

def test_sleeps():
    time.sleep(0.7)

def test_calculates():
    end = time.process_time() + 0.7
    while time.process_time() < end: ...

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", ""])

@pytest.mark.process
def test_of_a_process():
    subprocess.run([sys.executable, "-c", ""])

@pytest.mark.process
@pytest.mark.telling
def test_telling(): ...
"""
TOO_LONG = r"took \d\.\d s of processor time, and a quick test may take 0\.5: make it cheaper"
A_PROCESS = "this test starts a process or a server: mark it `process`"


def run(folder: Path, *options: str, path: str = os.environ["PATH"]) -> tuple[set[str], str]:
    """The names of the tests that passed, and all that is printed."""
    (folder / "test_made.py").write_text(MADE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-v", *options, folder],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return set(re.findall(r"::test_(\w+) PASSED", done.stdout)), done.stdout


@pytest.mark.telling
@pytest.mark.parametrize("workers", ["0", "1"])
def test_check_fails_what_starts_a_process_and_names_what_takes_long(
    tmp_path: Path, workers: str
) -> None:
    _, output = run(tmp_path, "--quick", "--numprocesses", workers)
    failed = re.findall(r"FAILED .*::test_(\w+) - (.*)", output)
    assert failed == [("starts_a_process", f"RuntimeError: {A_PROCESS}")]
    named = re.findall(rf"::test_(\w+) {TOO_LONG}, or mark it `slow`", output)
    assert named == ["calculates"]
    assert "1 failed, 3 passed" in output


def test_test_has_the_quick_ones_and_the_telling_ones(tmp_path: Path) -> None:
    passed, _ = run(tmp_path, "--telling")
    assert passed == {"quick", "sleeps", "calculates", "starts_a_process", "telling"}


def test_missing_programs_are_reported_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    passed, output = run(tmp_path, path=str(tmp_path))
    assert len(passed) == 6
    begin, _, end = output.partition("::test_quick PASSED")
    for part in (begin, end):
        assert "NO CHROMIUM FOUND: no page is looked at in a browser; on Debian: sudo apt" in part
