"""Processes that do an import's work on all cores.

A process reads pickled calls and writes pickled answers. It ends when its input ends, so it never
outlives the import. It needs nothing from the import's main module.
"""

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import IO, Any, ParamSpec, Self, TypeVar, cast

from kp_batch.errors import ResourceError

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Carries out calls in other processes, or in this one.

    Args:
        number: number of other processes; with 0, a call is done in this one when its result is
            needed.
    """

    def __init__(self, number: int) -> None:
        self._threads = ThreadPoolExecutor(max(number, 1))
        self._processes = [_started() for _ in range(number)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def submit(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[], T]:
        """Call a function of a module.

        Returns:
            A function that waits for the result, or raises; without other processes, it does the
            call.
        """
        if self._processes:
            return self._threads.submit(self._call, function, args, kwargs).result
        return partial(function, *args, **kwargs)

    def _call(self, *call: object) -> Any:
        process = self._idle.get()
        try:
            calls, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
            pickle.dump(call, calls)
            calls.flush()
            is_done, answer = pickle.load(answers)  # noqa: S301 (of our own process)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            process.kill()
            raise ResourceError(
                f"a process of the import was killed (exit status {process.wait()}), perhaps for "
                "lack of memory; import on a machine with more memory"
            ) from error
        finally:
            self._idle.put(process)
        if is_done:
            return answer
        raise answer


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )


def _work() -> None:
    gc.set_threshold(50_000)  # parsed JSON has no cycles, and the collector searches it in vain
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the import is interrupted, and ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else is printed between answers
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 (see `Workers`)
            try:
                answer = True, function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (it is raised where it was called)
                answer = False, error
            pickle.dump(answer, answers)
            answers.flush()


if __name__ == "__main__":
    _work()
