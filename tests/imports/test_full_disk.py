"""An import whose files may not grow: it says so in a line, and leaves the archive as it was."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.formats.shuffled_spans import RULES, SPANS, span_lines
from tests.support.imports.importing import imported
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.process

_OLD, _ALL = 40 * SPANS, 80 * SPANS


def _command(source: Path, archive: Path) -> list[str]:
    return ["import", "otlp", str(source), "-o", str(archive), *RULES, "--json"]


def _limited(command: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """The system refuses each write beyond so many bytes of a file, whoever writes."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-B", "-m", "kp_batch", *command],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=limited,
    )


@pytest.mark.telling
def test_a_disk_that_fails_is_reported_and_changes_no_day(tmp_path: Path) -> None:
    source, archive, never = (tmp_path / name for name in ("source", "archive", "never"))
    source.mkdir()
    (source / "a.jsonl").write_text("".join(span_lines(range(_OLD))), "utf-8")
    assert invoke(*_command(source, archive)).returncode == 0
    before = imported(archive)
    (source / "b.jsonl").write_text("".join(span_lines(range(_OLD // 2, _ALL))), "utf-8")
    for limit in (0, 512, 4096, 8192):
        failed = _limited(_command(source, archive), limit)
        assert failed.returncode not in {0, -signal.SIGXFSZ}, limit
        *progress, message = failed.stderr.splitlines()
        assert message.startswith("kp-batch: "), failed.stderr
        assert all(line.startswith("kp-batch: reading: ") for line in progress), failed.stderr
        assert imported(archive) == before
    assert json.loads(invoke(*_command(source, archive)).stdout)
    assert invoke(*_command(source, never)).returncode == 0
    assert imported(archive) == imported(never)
