"""Work that is interrupted as Ctrl-C does it in a notebook, in this process, which goes on.

`python -m tests.laws.interrupts FOLDER SETTINGS` runs the archive in FOLDER into a warehouse
beside it, and is interrupted in each step, and at random moments; then the run that comes after has
to leave what a clean one leaves. It prints how long each interrupt took.
"""

import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

from kp_batch.python.warehouse import Warehouse
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import holder
from tests.support.oracle.tables import assert_same

STEPS = ("read", "plan", "embed", "replay", "write", "publish", "report")
_AGAIN_S = 0.15  # until somebody who is impatient presses Ctrl-C once more


class Interrupted:
    """An interrupt of some work, and what it left."""

    def __init__(self, work: Callable[[], object], when: Callable[[], bool], times: int) -> None:
        self._when, self._times = when, times
        self._sent: list[float] = []
        self._over = threading.Event()
        before = {*threading.enumerate()}
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        try:
            work()
            self.is_over = True
        except KeyboardInterrupt:
            self.is_over = False
        ended = time.monotonic()
        self._over.set()
        self.seconds = ended - self._sent[0] if self._sent else None
        sender.join()
        others = {*threading.enumerate()} - before
        self.threads = [each.name for each in others if not each.name.startswith("Thread-tqdm")]

    def _send(self) -> None:
        while not self._when():
            if self._over.wait(0.002):
                return
        for _ in range(self._times):
            if self._over.is_set():
                return
            self._sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            self._over.wait(_AGAIN_S)


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def in_step(warehouse: Path, step: str, seconds: float) -> Callable[[], bool]:
    """Once a run has been in a step for so long."""
    since: list[float] = []

    def is_there() -> bool:
        last = LastRuns.read(warehouse).last_run if Layout(warehouse).last_run.exists() else None
        at = "report" if last and last.is_good else last and last.step
        if at == step:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= seconds

    return is_there


def leftovers(warehouse: Path, temporary: Path) -> list[str]:
    """What an interrupted run may not leave."""
    gc.collect()
    if not warehouse.exists():
        return []
    staged = [*Layout(warehouse).all_staging.glob("*")]
    held = ["the lock"] if holder(warehouse) else []
    temporary_ones = [each for each in temporary.iterdir() if "torch" not in each.name]
    return [*held, *map(str, [*staged, *temporary_ones, *warehouse.rglob("*.part")])]


def check_all(folder: Path, settings: dict[str, Any], *, moments: int, seed: int) -> None:
    """Interrupt runs in all steps and at random moments; see this module."""
    temporary, random_ = Path(tempfile.gettempdir()), random.Random(seed)
    clean, warehouse = folder / "clean", folder / "warehouse"
    run = lambda at: Warehouse(at).run(folder / "archive", **settings)  # noqa: E731
    began = time.monotonic()
    run(clean)
    takes = time.monotonic() - began
    print(json.dumps({"clean_s": takes}), flush=True)  # noqa: T201
    handler = signal.getsignal(signal.SIGINT)
    whens: list[tuple[str, Callable[[], Callable[[], bool]]]] = [
        (step, lambda step=step: in_step(warehouse, step, random_.uniform(0, 0.1)))
        for step in STEPS
    ]
    whens += [("", lambda: after(random_.uniform(0, takes)))] * moments
    for step, when in whens:
        done = Interrupted(lambda: run(warehouse), when(), random_.choice([1, 1, 4]))
        last = LastRuns.read(warehouse).last_run
        found = {
            "wanted": step,
            "step": last.step if last else None,
            "status": last.status if last else None,
            "is_over": done.is_over,
            "seconds": done.seconds,
            "left": leftovers(warehouse, temporary),
            "threads": done.threads,
        }
        print(json.dumps(found), flush=True)  # noqa: T201
        if last and last.is_good:  # the next one has all to do again
            rmtree(warehouse)
        assert not found["left"], found
        assert not found["threads"], found
        assert signal.getsignal(signal.SIGINT) is handler
        assert last is None or last.is_good or last.reason == "interrupted", last
    run(warehouse)
    assert_same(clean, warehouse)
    print(json.dumps({"same": True}), flush=True)  # noqa: T201


if __name__ == "__main__":
    check_all(Path(sys.argv[1]), json.loads(sys.argv[2]), moments=int(sys.argv[3]), seed=1)
