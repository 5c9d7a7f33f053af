"""The last run that was tried on a warehouse, and the last one that was good.

They are in one small file, `last-run.json`, which a run replaces as it begins, at each of its
steps, and as it ends: with nothing to do, and where it could not begin, as well. In a bucket it is
one object, written as a run ends. It is no part of what is published, and nothing depends on it.

A run that is killed leaves it as it was: that nobody is at work any more, the lock tells.
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
from kp_batch.warehouse.bucket.location import Record, url_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked, withdraw_of_gone
from kp_batch.warehouse.manifest import Manifest, check_manifest, read_manifest, read_there
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult, later

LAST_RUN = Layout(Path()).last_run.name  # the object, too
_PATIENCE_S = 20.0  # until a bucket has answered; it may be why the run failed
_LAST_WORDS_S = 5.0  # likewise, of a command that was told to end


class LastRuns(NamedTuple):
    """What the file holds."""

    last_run: RunResult | None = None  # that was tried; None: no run was
    last_success: RunResult | None = None  # perhaps the same

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
        """Read that of a warehouse's folder."""
        with suppress(OSError):
            return cls.of(Layout(warehouse).last_run.read_bytes())
        return cls()

    @classmethod
    def in_bucket(cls, url: str) -> Self:
        """Read that of a bucket.

        Raises:
            OSError: the bucket cannot be read.
        """
        with suppress(FileNotFoundError):
            return cls.of(store_at(url).read(LAST_RUN)[0])
        return cls()

    def write(self, warehouse: Path) -> None:
        """Replace that of a warehouse's folder.

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
        """Replace that of a bucket.

        Raises:
            OSError: it cannot be written.
        """
        store_at(url).write(LAST_RUN, self._as_json().encode())

    def after(self, result: RunResult) -> Self:
        """Those after another run."""
        return self._replace(
            last_run=result, last_success=result if result.is_good else self.last_success
        )

    def recounted(self, counts: RunCounts, newest_trace: str | None) -> Self:
        """Those of which the last success has left something else, as its audits found."""
        success = self.last_success
        if success is None or success.counts is None:
            return self
        counted = replace(success, counts=counts, newest_trace=newest_trace)
        return self._replace(last_success=counted.kept)

    def _as_json(self) -> str:
        return json.dumps(self._asdict(), default=asdict) + "\n"


@dataclass
class Try:
    """A run that this process tries, and whose result so far the file has.

    Attributes:
        warehouse: its folder.
        result: so far.
        warehouse_id: of the one that is meant; another one is left as it is. None: any.
        begun: see `OpenRun`.
        has_failed: what follows, as its report, is no step of it.
        is_under_way: whether it alone writes to the warehouse.
    """

    warehouse: Path
    result: RunResult
    warehouse_id: str | None = None
    begun: bool = False
    has_failed: bool = False
    is_under_way: bool = False
    _is_settled: bool = False

    def under_way(self) -> None:
        """Say that it is under way; it alone writes to the warehouse."""
        self.is_under_way = True
        self._show()

    def at(self, step: str) -> None:
        """Say which step is under way."""
        if self.is_under_way and self.result.status == "running" and not self.has_failed:
            self.result = replace(self.result, step=step)
            self._show()

    def end(self, result: RunResult) -> None:
        """Say how it ended, where there is a warehouse.

        No error of that counts. It may still come to fail, until it is settled.
        """
        if self._is_settled:
            return
        self.result = replace(result.kept, step=self.result.step)
        url, is_here = url_of(self.warehouse), self.is_under_way or self._is_there(read_manifest)
        with suppress(Exception), locked(self.warehouse, wait=False) if is_here else nullcontext():
            if is_here:
                self._show()
            if url:
                patience_s = _LAST_WORDS_S if result.status == "stopped" else _PATIENCE_S
                answered_within(patience_s, partial(self._store, url))

    def settle(self) -> None:
        """Say no more: what follows undoes nothing."""
        self._is_settled = True

    def _is_there(self, read: Callable[[Path], Manifest | None]) -> bool:
        """Whether the warehouse that is meant is in its place, as `read` finds it."""
        try:
            manifest = read(self.warehouse)
            check_manifest(manifest, self.warehouse, self.warehouse_id)
        except IdentityError:
            return False
        except (KpBatchError, OSError):  # it may be the one, damaged
            return Layout(self.warehouse).manifest.exists()
        return manifest is not None

    def _show(self) -> None:
        with suppress(OSError):  # its disk may be full
            LastRuns.read(self.warehouse).after(self.result).write(self.warehouse)

    def _store(self, url: str) -> None:
        """Store how it ended, also of a machine that has no copy yet.

        The last run that was good may have been another machine's.
        """
        if not (self.is_under_way or self._is_there(read_there)):
            return
        runs = LastRuns.read(self.warehouse).after(self.result)
        if not self.result.is_good:
            there = LastRuns.in_bucket(url).last_success
            runs = runs._replace(last_success=later(runs.last_success, there))
        runs.store(url)


_TRY: ContextVar[Try | None] = ContextVar("try", default=None)


def the_try() -> Try | None:
    """The run that is tried; None where nobody tries one, as in a preview."""
    return _TRY.get()


@contextmanager
def tried(warehouse: Path, warehouse_id: str | None = None) -> Generator[Try]:
    """Try a run, or go on with the one that is tried already, and leave how it ends.

    Args:
        warehouse: where that is left.
        warehouse_id: of the one that is meant; None: any.
    """
    outer = _TRY.get()
    this = outer or Try(warehouse, RunResult.here("running"), warehouse_id)
    token = _TRY.set(this)
    try:
        yield this
    except BaseException as error:  # signals, and Rust's panics, as well
        this.has_failed = True
        if not outer and getattr(error, "leaves_mark", True):
            this.end(this.result.failed(error, begun=this.begun, stored=True))
        raise
    finally:
        _TRY.reset(token)


def leave_counts(warehouse: Path, counts: RunCounts, newest_trace: str | None) -> None:
    """Leave what is counted since traces were forgotten, which is no night.

    No error of that counts. What audits have found is still what the last run has.
    """

    def store(url: str) -> None:
        LastRuns.in_bucket(url).recounted(counts, newest_trace).store(url)

    with suppress(Exception):
        if (runs := LastRuns.read(warehouse)).last_run:
            runs.recounted(counts, newest_trace).write(warehouse)
        if url := url_of(warehouse):
            answered_within(_PATIENCE_S, partial(store, url))


def under_way_by(warehouse: Path, pid: int) -> RunResult | None:
    """What a warehouse says of the run of a process of this machine, unless that has ended."""
    here, shown = RunResult.here("running", pid=pid), LastRuns.read(warehouse).last_run
    is_its = shown and (shown.pid, shown.host, shown.status) == (pid, here.host, "running")
    return shown if is_its else None


def end_for(this: Try, pid: int, ended: RunResult) -> None:
    """Say how a run ended whose process is gone; no error of that counts.

    In a bucket its notice still stands, which would keep other machines waiting.

    Args:
        this: the run, which may not have come as far as to say that it is under way.
        pid: the process.
        ended: how.
    """
    if shown := under_way_by(this.warehouse, pid):
        this.result, this.is_under_way = shown, True
    elif (last := LastRuns.read(this.warehouse).last_run) and last.pid == pid:
        return  # it said so itself
    this.end(this.result.ended(ended.status, ended.reason, ended.code))
    if shown and (url := url_of(this.warehouse)):
        gone = partial(withdraw_of_gone, store_at(url), Record.of(this.warehouse).copy_id, pid)
        with suppress(Exception):
            answered_within(_LAST_WORDS_S, gone)
