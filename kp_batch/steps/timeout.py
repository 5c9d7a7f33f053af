"""Ends a run that is not over after its timeout, where Python is at work.

What hangs in a library is ended by the supervisor of the command, a little later: see
`cli.supervise`.
"""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import NoReturn

from kp_batch.errors import RunTimeoutError
from kp_batch.novelty.settings import format_ttl
from kp_batch.warehouse.last_run import the_try

_LONGEST_S = 1e9  # which the system's timer can count
_SET: list[timedelta] = []  # the timeout that runs in this process, at most one


def not_over(timeout: timedelta, step: str | None) -> str:
    """What is said of a run that was at a step at its timeout; None: before its first one."""
    where = f"in the step {step}" if step else "before its first step"
    return f"the run was not over after --timeout {format_ttl(timeout)}, and is ended {where}"


@contextmanager
def ended_after(timeout: timedelta | None) -> Generator[None]:
    """End the work of the context after a time; only the main thread of a process can be ended so.

    Raises:
        RunTimeoutError: it was not over.
    """
    if timeout is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        this = the_try()
        raise RunTimeoutError(not_over(timeout, this.step if this else None))

    before = signal.signal(signal.SIGALRM, end)
    earlier = signal.setitimer(signal.ITIMER_REAL, min(timeout.total_seconds(), _LONGEST_S))
    _SET.append(timeout)
    try:
        yield
    finally:
        let_it_end()
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *earlier)  # somebody else's, which begins anew


def let_it_end() -> None:
    """End the work no more: what it publishes from now on nothing undoes."""
    if _SET:
        _SET.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
