"""Sees whether a command may start its threads, before the libraries start theirs.

Where the system refuses a thread, one library panics, and another waits for it for ever, with all
locks that the command holds. So as many are started first, and let go, whatever limits them. What
their stacks take of the address space is looked at before: a thread that begins without room for
itself is waited for as well.
"""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kp_batch.address_space import limit_in_words, limit_kib, needed_kib
from kp_batch.errors import ResourceError

_ROOT = Path("/")
_STACK_BYTES = 1 << 20  # of a thread that only waits; some processors allow no 64 KiB


def check_threads(*, few: bool) -> None:
    """Refuse a command that could not start its threads.

    Args:
        few: whether it only asks a warehouse.

    Raises:
        ResourceError: it could not; the message names the limits.
    """
    needed = needed_threads(len(os.sched_getaffinity(0)), few=few)
    running = 1 if few else 3  # its supervisor, and the thread that watches that one
    started = running + _started(needed - running)
    if started < needed:
        raise ResourceError(
            f"about {needed} threads and processes are needed on these cores, and the system "
            f"starts no more than {started} ({', '.join(limits()) or 'a limit of its own'}); raise "
            "that limit, or give it fewer cores (taskset)",
            code="threads",
        )


def check_address_space(*, few: bool) -> None:
    """Refuse a command whose libraries and threads would not fit; see `address_space`.

    Args:
        few: whether it only asks a warehouse.

    Raises:
        ResourceError: they would not; the message names the limit.
    """
    limit, needed = limit_kib(), needed_kib(len(os.sched_getaffinity(0)), few=few)
    if limit is not None and limit < needed:
        raise ResourceError(
            f"{limit_in_words()}, and the libraries reserve at least {needed:,} of address space "
            "(KiB), of which they use little; raise that limit, and let a control group limit the "
            "memory, if need be (MemoryMax of systemd)"
        )


def needed_threads(cores: int, root: Path = _ROOT, *, few: bool = False) -> int:
    """How many threads and processes work at once, as counted on 1 to 16 cores.

    BLAS starts one for each core; all others as many as a container's share of time amounts to. A
    run has sixteen more that wait for its disk or its bucket, and most in its first night.
    """
    once, per_core = (14, 6) if few else (57, 10)
    whole = [quota for quota in _quotas(root) if quota >= 0]
    return once + per_core * max(min([cores, *whole]), 1) + cores


def _started(most: int) -> int:
    """Start so many threads at once, or as many as the system allows, and let them go."""
    end, started = threading.Event(), list[threading.Thread]()
    before = threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(most):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    finally:
        threading.stack_size(before)
        end.set()
    for thread in started:
        thread.join()
    return len(started)


def limits(root: Path = _ROOT) -> Iterator[str]:
    """What may limit the threads of this process."""
    for group in _groups(root):
        with suppress(OSError, ValueError):  # none is "max"
            yield f"pids.max of {group} is {int((group / 'pids.max').read_text()):,}"
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY and os.getuid():  # it does not bind root
        yield f"ulimit -u is {most:,}"
    if limit := limit_in_words():
        yield limit


def _quotas(root: Path) -> Iterator[int]:
    """The whole cores that a container's share of time amounts to; less than 0 if it has all."""
    for group in _groups(root):
        for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
            with suppress(OSError, ValueError):  # a share of "max" is no number
                quota, period = " ".join((group / name).read_text() for name in names).split()
                yield int(quota) // int(period)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups, of either version, and those above them."""
    described = root / "proc/self/cgroup"
    for line in described.read_text("utf-8").splitlines() if described.exists() else ():
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))
