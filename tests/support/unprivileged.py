"""The command as somebody who may not do everything, even where root runs the tests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)
