"""Without what only Linux has, all works: so it is meant to, on a Mac."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.make.archives import trace, write_jsonl

# What Python has on Linux alone, and not on macOS; /proc and /sys are not there either.
ELSEWHERE = """
import fcntl, os, select, signal, sys
for module, names in {
    os: (
        "sched_getaffinity sched_setaffinity memfd_create eventfd pidfd_open pipe2 splice "
        "getrandom posix_fadvise posix_fallocate copy_file_range sched_getscheduler unshare setns "
        "getxattr"
    ),
    signal: "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR pidfd_send_signal",
    select: "epoll EPOLLIN",
    fcntl: "F_SETLEASE F_GETLEASE F_NOTIFY F_ADD_SEALS F_SETPIPE_SZ",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.modules["resource"] = None
def hide(event, arguments):
    if event in {"open", "os.listdir", "os.scandir"} and arguments[0] is not None:
        path = os.fspath(arguments[0]) if not isinstance(arguments[0], int) else ""
        if os.fsdecode(path) == "/proc/self/maps":  # threadpoolctl, which looks elsewhere there
            return
        if os.fsdecode(path).startswith(("/proc", "/sys/fs/cgroup")):
            raise FileNotFoundError(2, "No such file or directory", path)
sys.addaudithook(hide)
"""
ASKED = """
import kp_batch as kp
print(kp.score("a.jsonl", embedder="hashing").height)
wh = kp.Warehouse("python")
print(wh.run("a.jsonl", embedder="hashing").status, wh.sql("SELECT count(*) FROM scores").item())
"""


@pytest.mark.process
@pytest.mark.telling
def test_score_run_sql_and_report_need_nothing_that_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(ELSEWHERE)
    write_jsonl(tmp_path / "a.jsonl", [trace(id=f"t{number}") for number in range(3)])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def done(*words: str) -> str:
        asked = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        return asked.stdout

    command = ("-m", "kp_batch")
    assert done("-c", "import os; print(hasattr(os, 'sched_getaffinity'))") == "False\n"
    assert done("-c", ASKED) == "3\ndone 3\n"
    run = done(*command, "run", "a.jsonl", "--warehouse", "w", "--embedder", "hashing", "--json")
    assert '"status": "done"' in run
    score = done(*command, "score", "a.jsonl", "--warehouse", "w", "--json")
    assert score.count("\n") == 3
    assert "3" in done(*command, "sql", "SELECT count(*) AS n FROM scores", "--warehouse", "w")
    done(*command, "report", "--warehouse", "w", "-o", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "done" in done(*command, "status", "--warehouse", "w")
