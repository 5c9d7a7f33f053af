"""The command as somebody who may not do everything, even where root runs the tests."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ROOT

# Root may do anything: these commands run as a root that has to ask like anybody else.
SETPRIV = shutil.which("setpriv")
LIKE_ANYBODY = (
    [] if os.getuid() else [str(SETPRIV), "--bounding-set=-dac_override,-dac_read_search"]
)

asks = pytest.mark.skipif(not os.getuid() and not SETPRIV, reason="root, without setpriv")


def kp_batch(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LIKE_ANYBODY, sys.executable, "-m", "kp_batch", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


Invoke = Callable[..., subprocess.CompletedProcess[str]]

INVOKING = """
import json, sys
from tests.support.processes.commands import invoke
for line in sys.stdin:
    done = invoke(*json.loads(line))
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


@contextmanager
def invoking() -> Generator[Invoke]:
    """As `kp_batch`, but for commands that are not supervised: one process does all of them."""
    with subprocess.Popen(
        [*LIKE_ANYBODY, sys.executable, "-c", INVOKING],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin
        assert stdout

        def invoke(*arguments: object) -> subprocess.CompletedProcess[str]:
            words = [*map(str, arguments)]
            print(json.dumps(words), file=stdin, flush=True)
            return subprocess.CompletedProcess(words, *json.loads(stdout.readline()))

        yield invoke


@contextmanager
def mode(path: Path, bits: int) -> Generator[None]:
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)
