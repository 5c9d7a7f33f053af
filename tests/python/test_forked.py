"""A fork of a process that has loaded Polars: no call waits for threads that are not there."""

import subprocess
import sys
from pathlib import Path

import pytest

FORKED = """
import os, sys
import kp_batch as kp
kp.score([], embedder="none")
session = kp.Session(embedder="none")
calls = {
    "score": lambda: kp.score([], embedder="none"),
    "scores": lambda: kp.Warehouse("w").scores(),
    "evaluate": lambda: session.evaluate({}),
    "Session": lambda: kp.Session(embedder="none"),
}
for name, call in calls.items():
    if pid := os.fork():
        os.waitpid(pid, 0)
        continue
    try:
        call()
    except kp.KpBatchError as error:
        print(name, error.code, "spawn" in str(error), flush=True)
    os._exit(0)
"""
UNTOUCHED = """
import os
import kp_batch as kp
if pid := os.fork():
    os.waitpid(pid, 0)
else:
    print(kp.score([], embedder="none").height, flush=True)
    os._exit(0)
"""


def printed(script: str, folder: Path) -> list[str]:
    words = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=90)
    return done.stdout.splitlines()


@pytest.mark.process
def test_a_call_in_a_fork_fails_at_once_and_names_spawn(tmp_path: Path) -> None:
    names = ("score", "scores", "evaluate", "Session")
    assert printed(FORKED, tmp_path) == [f"{name} forked True" for name in names]


@pytest.mark.process
def test_a_fork_of_a_process_that_has_not_begun_works(tmp_path: Path) -> None:
    assert printed(UNTOUCHED, tmp_path) == ["0"]
