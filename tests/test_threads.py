"""A command that could not start its threads says so at once: a library would wait for ever."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kp_batch.threads import check_threads, limits, needed_threads
from tests.support.unprivileged import SETPRIV

# The limit does not bind root: these commands run as somebody else, who may still read all.
ANOTHER = (
    []
    if os.getuid()
    else [
        *(str(SETPRIV), "--reuid=54321", "--clear-groups"),
        *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
    ]
)


@pytest.mark.telling
@pytest.mark.process
@pytest.mark.skipif(not os.getuid() and not SETPRIV, reason="root, without setpriv")
@pytest.mark.parametrize(
    ("words", "most"),
    [
        # with 60 it waited for ever
        *((["run", "in", "--warehouse", "w"], most) for most in (8, 20, 26, 60)),
        *((["runs"], most) for most in (8, 20)),
        *((["import", "atif", "in"], most) for most in (8, 26)),
    ],
)
def test_a_limit_on_threads_is_named_before_the_work_begins(words: list[str], most: int) -> None:
    done = subprocess.run(
        [*ANOTHER, sys.executable, "-m", "kp_batch", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (most, most)),
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"ulimit -u is {most}" in line


def describe(root: Path, groups: str, files: dict[str, str]) -> None:
    """A system in a folder: the control groups of a process, and what stands in theirs."""
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, 16),
        ("0::/", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ("0::/", {"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ("0::/", {"sys/fs/cgroup/cpu.max": "9900000 100000"}, 16),
        ("0::/a/b", {"sys/fs/cgroup/a/cpu.max": "400000 100000"}, 4),
        (
            "2:memory:/\n1:cpu:/a",
            {
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        ("0::/gone", {}, 16),
    ],
)
def test_libraries_start_threads_for_the_time_of_a_container_and_one_for_each_core(
    tmp_path: Path, groups: str, files: dict[str, str], cores: int
) -> None:
    describe(tmp_path, groups, files)
    assert needed_threads(16, tmp_path) - needed_threads(1, Path("nowhere")) == (
        10 * (cores - 1) + 15
    )


def test_the_limits_of_all_groups_around_a_process_are_named(tmp_path: Path) -> None:
    names = {"sys/fs/cgroup/a/b/pids.max": "max", "sys/fs/cgroup/a/pids.max": "1028"}
    describe(tmp_path, "0::/a/b", names)
    assert [*limits(tmp_path)][:1] == [f"pids.max of {tmp_path}/sys/fs/cgroup/a is 1,028"]


def test_the_stacks_are_no_smaller_than_arm_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_size = threading.stack_size

    def stack_size(size: int = 0) -> int:
        if 0 < size < 128 << 10:
            raise ValueError(f"size not valid: {size} bytes")
        return set_size(size)

    monkeypatch.setattr(threading, "stack_size", stack_size)
    check_threads(few=True)
