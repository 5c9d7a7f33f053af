"""Several actors at once: threads of this process, those of others, and the command line.

Other processes are killed or interrupted. What each tells is in a log, whatever becomes of it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import kp_batch as kp
from tests.laws.actors import LIMITS, READS, Actor, Command, Event, words_of
from tests.laws.process_state import differences, resources_of_process, settings_of_process
from tests.support import ROOT

_LONGEST_S = 120


class Log:
    """What all have told."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._lock = threading.Lock()

    def tell(self, event: Event) -> None:
        with self._lock:
            self._events[event.command.note] = event

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return [*self._events.values()]


def command_line(commands: Iterable[Command], folder: Path, log: Log, kill_after: float) -> None:
    """Do commands by the command line; one that takes longer than so many seconds is killed."""
    for command in commands:
        event = Event(command, time.monotonic())
        log.tell(event)
        with subprocess.Popen(
            [sys.executable, "-m", "kp_batch", *words_of(command, folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder / "of-killed")},
        ) as process:
            try:
                _, complaints = process.communicate(timeout=kill_after)
            except subprocess.TimeoutExpired:
                process.kill()
                assert process.stderr
                process.stderr.close()  # a child of it may have it, too
                continue
        is_busy = "another run is writing" in complaints
        event.how = "done" if not process.returncode else "busy" if is_busy else "failed"
        event.value, event.ended = complaints or None, time.monotonic()
        log.tell(event)


def hosted(  # noqa: PLR0913 (whom it tells, and when it ends)
    threads: Sequence[Sequence[Command]],
    folder: Path,
    log: Log,
    all_ready: threading.Barrier,
    *,
    killed_after: float | None = None,
    interrupted_after: float | None = None,
    with_model: bool = False,
) -> None:
    """Let another process do commands: in threads, to be killed, or else in its main thread.

    What that has to say of itself at its end is the value of an event.
    """
    place = "of-killed" if killed_after is not None else "temporary"
    asked: dict[str, Any] = {
        "folder": str(folder),
        "threads": [[asdict(each) for each in one] for one in threads],
    }
    asked |= {"in_main_thread": killed_after is None, "with_model": with_model}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.laws.actors_at_once", json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder / place)},
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        number = signal.SIGINT if killed_after is None else signal.SIGKILL
        waited = killed_after or interrupted_after or _LONGEST_S
        timer = threading.Timer(waited, process.send_signal, [number])
        all_ready.wait()
        process.stdin.close()
        timer.start()
        for line in process.stdout:
            if line.endswith("\n"):
                log.tell(_event_of(json.loads(line)))
        complaints = process.stderr.read()
        timer.cancel()
        timer.join()
    assert process.returncode in {0, -signal.SIGKILL}, complaints
    assert not complaints or killed_after is not None, complaints


def _event_of(told: Mapping[str, Any]) -> Event:
    return Event(
        Command(**told["command"]),
        *(told[name] for name in ("began", "ended")),
        how=told["how"],
        value=told["value"],
    )


def _main(asked: Mapping[str, Any], out: TextIO) -> None:
    """In the other process."""
    lock = threading.Lock()

    def tell(event: Event) -> None:
        with lock:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a line is whole
            print(json.dumps(asdict(event)), file=out, flush=True)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    folder = Path(asked["folder"])
    threads = [[Command(**each) for each in one] for one in asked["threads"]]
    if asked["in_main_thread"]:
        _in_main_thread(threads[0], folder, tell, out, with_model=asked["with_model"])
        return
    _wait_for_others(out)
    _in_threads([(Actor(folder, tell), one) for one in threads])


def _in_main_thread(
    commands: Sequence[Command],
    folder: Path,
    tell: Callable[[Event], None],
    out: TextIO,
    *,
    with_model: bool,
) -> None:
    """If it is interrupted, it does the same at once again."""
    if with_model:
        kp.score(folder / "a", embedder=str(folder / "model"))  # its libraries set much
    before = settings_of_process()
    own = kp.Warehouse(folder / f"own {os.getpid()}")
    for embedder in ("none", "hashing"):  # what is loaded once is loaded
        own.run(folder / "a", embedder=embedder, **LIMITS)
    READS["scores"](own)
    resources = resources_of_process()
    _wait_for_others(out)
    actor, event = Actor(folder, tell), Event(Command("itself", "itself", ""), time.monotonic())
    try:
        actor.do_all(commands)
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        kept = error  # as a notebook keeps the last traceback, and all that its frames hold
        actor.do_all(map(_once_more, commands))
        event.value = type(kept).__name__
    now = settings_of_process()
    now["signals"]["SIGINT"] = handler
    changed = differences(before, now)
    event.value = [event.value, changed, differences(resources, resources_of_process())]
    event.value = json.loads(json.dumps(event.value, default=repr))
    event.how, event.ended = "done", time.monotonic()
    tell(event)


def _once_more(command: Command) -> Command:
    how = {**command.how, "wait": True}
    return replace(command, note=f"{command.note} once more", how=how)


def _wait_for_others(out: TextIO) -> None:
    print("ready", file=out, flush=True)
    sys.stdin.read()


def _in_threads(actors: Iterable[tuple[Actor, Sequence[Command]]]) -> None:
    threads = [threading.Thread(target=actor.do_all, args=[one]) for actor, one in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_once(
    threads: Sequence[Sequence[Command]],
    folder: Path,
    log: Log,
    all_ready: threading.Barrier,
    others: Iterable[Callable[[], object]],
) -> None:
    """Let threads of this process do commands, while others do theirs.

    Raises:
        Exception: the first that one of them raised.
    """

    def begin(commands: Sequence[Command]) -> None:
        all_ready.wait()
        Actor(folder, log.tell).do_all(commands)

    every = [*(partial(begin, commands) for commands in threads), *others]
    with ThreadPoolExecutor(len(every)) as pool:
        for each in [pool.submit(one) for one in every]:
            each.result()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), sys.stdout)
