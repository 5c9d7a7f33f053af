"""Runs what the documentation shows, and compares what it prints with what is shown."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kp_batch.warehouse.author import current_user
from tests.support.docs.pages import Block

_NEXT = "\x1e"  # between the outputs of blocks
_HOME = "/home/you"  # as pages name the folder that they are run in
_BY = "by you"  # as pages name who runs them
# What each machine and each day tells otherwise: names of runs, seconds.
_VARIES = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}|\d+(\.\d+)?(?= s\b)|(?<=[a-z] )\d+\.\d\d(?=,|$)")


def shell(script: str, folder: Path, command: Path | None = None) -> str:
    """Run a script of bash in a folder, which is its home, too; returns all that it prints.

    Args:
        script: what is run.
        folder: where it is run.
        command: the `kp-batch` that is called, where it is not this environment's.
    """
    own = f"{sys.prefix}/bin:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=inherited
        | {"HOME": str(folder), "PATH": f"{command.parent}:{own}" if command else own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    printed = done.stdout.replace(str(folder), _HOME).replace(f"by {current_user()}", _BY)
    assert done.returncode == 0, printed.rpartition(_NEXT)[2]
    return printed


def outputs(blocks: Sequence[Block], folder: Path, command: Path | None = None) -> list[str]:
    """What each block prints. One shell runs them all: what one exports, the next ones have."""
    parts = [
        f"python - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n"
        if block.language == "python"
        else block.text
        for block in blocks
    ]
    script = "".join(f"echo '{_NEXT}'\n{part}" for part in parts)
    return shell(script, folder, command).split(f"{_NEXT}\n")[1:]


def missing(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed, in this order; `...` stands for any lines."""
    lines = iter([_masked(line) for line in printed.splitlines()])
    return next(
        (line for line in shown.splitlines() if line != "..." and _masked(line) not in lines), None
    )


def words(picture: Path) -> list[str]:
    """The words of a picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))


def _masked(line: str) -> str:
    return " ".join(_VARIES.sub("#", line).split())
