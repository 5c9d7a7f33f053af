"""Another process that holds something until it is killed, or its stdin ends."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def holding(script: str, path: Path) -> Generator[subprocess.Popen[str]]:
    """Run a script that prints "ready" when it has locked `path`, then reads stdin to its end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


HOLD = """
import sys
from pathlib import Path
from kp_batch.warehouse.lock import locked
with locked(Path(sys.argv[1]), wait=False):
    print("ready", flush=True)
    sys.stdin.read()
"""
