"""A limit on the address space is named: where it is too low, or after a crash."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from kp_batch import address_space, cli
from kp_batch.errors import ResourceError, explain_error
from kp_batch.threads import check_address_space

ENOUGH = 16_000_000  # KiB
ABORTING = """
import os, sys
from kp_batch.cli.supervise import supervised
sys.exit(supervised(lambda: [os.write(2, b"no room\\n"), os.abort()]))
"""


def within(kib: int, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command of Python comes to under a limit."""
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10)),
    )


@pytest.mark.telling
@pytest.mark.process
@pytest.mark.parametrize("kib", [1_000_000, 2_200_000])
def test_it_is_named_before_the_work_begins(kib: int) -> None:
    done = within(kib, "-m", "kp_batch", "run", "archive", "--warehouse", "none")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"kp-batch: ulimit -v is {kib:,}, and the libraries reserve at least ")


@pytest.mark.process
def test_a_question_needs_less() -> None:
    assert "ulimit -v is 1,000,000" in within(1_000_000, "-m", "kp_batch", "runs").stderr
    assert "Missing option '--warehouse'" in within(1_500_000, "-m", "kp_batch", "runs").stderr


def test_a_supervisor_without_room_tells_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def supervised(*_: object, **__: object) -> int:
        raise MemoryError

    monkeypatch.setattr(cli, "supervised", supervised)
    monkeypatch.setattr(sys, "argv", ["kp-batch", "run", "archive"])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    assert capsys.readouterr().err == "kp-batch: unexpected MemoryError: MemoryError\n"


@pytest.mark.process
def test_it_is_named_where_a_library_aborts() -> None:
    done = within(ENOUGH, "-c", ABORTING)
    assert done.returncode == 134
    assert done.stderr == (
        "kp-batch: the working process ended by SIGABRT: no room; ulimit -v is 16,000,000, which "
        "may be why: raise it\n"
    )


ERRORS = {
    "unexpected ImportError: failed to map": ImportError("failed to map"),
    "unexpected MemoryError: MemoryError": MemoryError(),
    "can't start new thread; raise the limit on ": RuntimeError("can't start new thread"),
    f"cannot go on: {os.strerror(errno.ENOMEM)}": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
}


@pytest.mark.parametrize("begin", ERRORS)
def test_it_is_named_where_an_error_may_come_from_it(
    monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    for kib, why in ((None, ""), (2_500_000, "; ulimit -v is 2,500,000, which may be why")):
        monkeypatch.setattr(address_space, "limit_kib", lambda kib=kib: kib)
        told = explain_error(ERRORS[begin])
        assert str(told).startswith(begin)
        assert (why in str(told), "ulimit -v" in str(told)) == (True, bool(why))
        if why and "unexpected" in begin:
            assert told.code == "memory"


def test_what_is_enough_grows_with_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kp_batch.threads.limit_kib", lambda: 2_500_000)
    for cores, is_enough in ((1, True), (3, True), (4, False)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        if is_enough:
            check_address_space(few=False)
        else:
            with pytest.raises(ResourceError, match="reserve at least 2,600,000 of address"):
                check_address_space(few=False)
        check_address_space(few=True)
