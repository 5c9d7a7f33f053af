"""The last run of a warehouse, and the last successful one.

They are in one small file, `last-run.json`. A run replaces it when it begins, at each step, and
when it ends: also if it had nothing to do or could not begin. In a bucket it is one object, written
when a run ends. It is not published, and nothing depends on it.

A killed run leaves the file as it was. The lock then shows that no process works any more.
"""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from kp_batch.errors import IdentityError, KpBatchError
from kp_batch.files import atomic_write
from kp_batch.storage.store import answered_within, store_at
from kp_batch.warehouse.bucket.location import CopyRecord, url_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked, withdraw_of_gone
from kp_batch.warehouse.manifest import Manifest, check_manifest, read_manifest, read_there
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult, later

LAST_RUN = Layout(Path()).last_run.name  # the object, too
_BUCKET_TIMEOUT_S = 20.0  # to wait for a bucket, which may be why the run failed
_STOPPED_TIMEOUT_S = 5.0  # the same for a command that was asked to end


class LastRuns(NamedTuple):
    """The content of the file."""

    last_run: RunResult | None = None  # None: there was no run yet
    last_success: RunResult | None = None  # may be the same run

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Read the file, which anybody may have written."""
        try:
            read = json.loads(content)
            return cls(*(read[name] and RunResult.of(read[name]) for name in cls._fields))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return cls()

    @classmethod
    def read(cls, warehouse: Path) -> Self:
        """Read the file of a warehouse's folder; none if it cannot be read."""
        with suppress(OSError):
            return cls.stored(warehouse)
        return cls()

    @classmethod
    def stored(cls, warehouse: Path) -> Self:
        """Read the file of a warehouse's folder, to replace it.

        Raises:
            OSError: it cannot be read.
        """
        with suppress(FileNotFoundError):
            return cls.of(Layout(warehouse).last_run.read_bytes())
        return cls()

    @classmethod
    def in_bucket(cls, url: str) -> Self:
        """Read the object of a bucket.

        Raises:
            OSError: the bucket cannot be read.
        """
        with suppress(FileNotFoundError):
            return cls.of(store_at(url).read(LAST_RUN)[0])
        return cls()

    def write(self, warehouse: Path) -> None:
        """Replace the file of a warehouse's folder.

        Raises:
            OSError: it cannot be written.
        """
        path, content = Layout(warehouse).last_run, self._as_json().encode()
        try:
            with atomic_write(path) as written:
                written.write_bytes(content)
        except OSError:  # on a full disk there is still the room that it takes already
            with path.open("r+b") as file:
                file.write(content)
                file.truncate()

    def store(self, url: str) -> None:
        """Replace the object of a bucket.

        Raises:
            OSError: it cannot be written.
        """
        store_at(url).write(LAST_RUN, self._as_json().encode())

    def after(self, result: RunResult) -> Self:
        """Return the last runs after one more run."""
        return self._replace(
            last_run=result, last_success=result if result.is_good else self.last_success
        )

    def recounted(self, counts: RunCounts, newest_trace: str | None) -> Self:
        """Return the last runs with new counts of the last success, such as after a forget."""
        success = self.last_success
        if success is None or success.counts is None:
            return self
        counted = replace(success, counts=counts, newest_trace=newest_trace)
        return self._replace(last_success=counted.kept)

    def _as_json(self) -> str:
        return json.dumps(self._asdict(), default=asdict) + "\n"


@dataclass
class Attempt:
    """One attempt of this process at a run; the file has its result so far.

    Attributes:
        warehouse: its folder.
        result: the result so far.
        warehouse_id: the id that the warehouse must have, or nothing is recorded; None: any.
        begun: see `OpenRun`.
        has_failed: whether it failed; what follows, such as its report, is no step of it.
        is_under_way: whether it has the warehouse's lock.
    """

    warehouse: Path
    result: RunResult
    warehouse_id: str | None = None
    begun: bool = False
    has_failed: bool = False
    is_under_way: bool = False
    _is_final: bool = False

    def under_way(self) -> None:
        """Record that the run is under way: it has the warehouse's lock."""
        self.is_under_way = True
        self._show()

    def at(self, step: str) -> None:
        """Record the current step."""
        if self.is_under_way and self.result.status == "running" and not self.has_failed:
            self.result = replace(self.result, step=step)
            self._show()

    def end(self, result: RunResult) -> None:
        """Record how the run ended, if there is a warehouse; errors are ignored.

        A later failure may replace it, until `finalize` is called.
        """
        if self._is_final:
            return
        self.result = replace(result.kept, step=self.result.step)
        url, is_here = url_of(self.warehouse), self.is_under_way or self._is_there(read_manifest)
        with suppress(Exception), locked(self.warehouse, wait=False) if is_here else nullcontext():
            if is_here:
                self._show()
            if url:
                timeout_s = _STOPPED_TIMEOUT_S if result.status == "stopped" else _BUCKET_TIMEOUT_S
                answered_within(timeout_s, partial(self._store, url))

    def finalize(self) -> None:
        """Keep the result: nothing that follows changes it."""
        self._is_final = True

    def _is_there(self, read: Callable[[Path], Manifest | None]) -> bool:
        """Whether the expected warehouse is in its place, as `read` finds it."""
        try:
            manifest = read(self.warehouse)
            check_manifest(manifest, self.warehouse, self.warehouse_id)
        except IdentityError:
            return False
        except (KpBatchError, OSError):  # it may be the one, damaged
            return Layout(self.warehouse).manifest.exists()
        return manifest is not None

    def _show(self) -> None:
        with suppress(OSError):  # its disk may be full; unread, its last success would be lost
            LastRuns.stored(self.warehouse).after(self.result).write(self.warehouse)

    def _store(self, url: str) -> None:
        """Store the result in the bucket, even if this machine has no copy yet.

        The last successful run may be another machine's.
        """
        if not (self.is_under_way or self._is_there(read_there)):
            return
        runs = LastRuns.read(self.warehouse).after(self.result)
        if not self.result.is_good:
            there = LastRuns.in_bucket(url).last_success
            runs = runs._replace(last_success=later(runs.last_success, there))
        runs.store(url)


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


def current_attempt() -> Attempt | None:
    """Return the attempt of this context; None if there is none, as in a preview."""
    return _ATTEMPT.get()


@contextmanager
def recorded_attempt(warehouse: Path, warehouse_id: str | None = None) -> Generator[Attempt]:
    """Record how a run goes; inside another attempt, continue that one.

    Args:
        warehouse: the warehouse that keeps the record.
        warehouse_id: the id that it must have; None: any.
    """
    outer = _ATTEMPT.get()
    this = outer or Attempt(warehouse, RunResult.here("running"), warehouse_id)
    token = _ATTEMPT.set(this)
    try:
        yield this
    except BaseException as error:  # also signals, and panics in Rust
        this.has_failed = True
        if not outer and getattr(error, "leaves_mark", True):
            this.end(this.result.failed(error, begun=this.begun, stored=True))
        raise
    finally:
        _ATTEMPT.reset(token)


def record_counts(warehouse: Path, counts: RunCounts, newest_trace: str | None) -> None:
    """Record the counts after a forget, which is not a run of its own; errors are ignored.

    The results of audits stay those of the last run.
    """

    def store(url: str) -> None:
        LastRuns.in_bucket(url).recounted(counts, newest_trace).store(url)

    with suppress(Exception):
        if (runs := LastRuns.read(warehouse)).last_run:
            runs.recounted(counts, newest_trace).write(warehouse)
        if url := url_of(warehouse):
            answered_within(_BUCKET_TIMEOUT_S, partial(store, url))


def run_of_process(warehouse: Path, pid: int) -> RunResult | None:
    """Return the recorded run of a process of this machine; None if it has ended."""
    here, shown = RunResult.here("running", pid=pid), LastRuns.read(warehouse).last_run
    is_its = shown and (shown.pid, shown.host, shown.status) == (pid, here.host, "running")
    return shown if is_its else None


def record_end(this: Attempt, pid: int, ended: RunResult) -> None:
    """Record how a run ended whose process is gone; errors are ignored.

    In a bucket it also withdraws the run's notice, which would keep other machines waiting.

    Args:
        this: the attempt, which may not have recorded yet that it is under way.
        pid: the process.
        ended: how it ended.
    """
    if shown := run_of_process(this.warehouse, pid):
        this.result, this.is_under_way = shown, True
    elif (last := LastRuns.read(this.warehouse).last_run) and last.pid == pid:
        return  # it recorded its end itself
    this.end(this.result.ended(ended.status, ended.reason, ended.code))
    if shown and (url := url_of(this.warehouse)):
        gone = partial(withdraw_of_gone, store_at(url), CopyRecord.of(this.warehouse).copy_id, pid)
        with suppress(Exception):
            answered_within(_STOPPED_TIMEOUT_S, gone)
