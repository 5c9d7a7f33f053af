"""The last run that was tried on a warehouse: when it began, how it ended, and what stands since.

It is one small file, `last-run.json`, which a run replaces as it begins, at each of its steps, and
as it ends: with nothing to do, and where it could not begin, as well. In a bucket it is one object,
written as a run ends. It is no part of what is published, and nothing depends on it.

A run that is killed leaves it as it was: that nobody is at work any more, the lock tells.
"""

import json
import os
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from kp_batch.ended import GOOD, Ended, Status
from kp_batch.errors import IdentityError, KpBatchError
from kp_batch.files import atomic_write
from kp_batch.storage.store import answered_within, store_at
from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.bucket.location import Record, url_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked, release_of_gone
from kp_batch.warehouse.manifest import Manifest, check_manifest, read_manifest, read_there
from kp_batch.warehouse.reasons import Reason, RolledBack
from kp_batch.warehouse.run_record import RunCounts

LAST_RUN = Layout(Path()).last_run.name  # the object, too
_PATIENCE_S = 20.0  # until a bucket has answered; it may be why the run failed
_LAST_WORDS_S = 5.0  # likewise, of a command that was told to end


@dataclass(frozen=True)
class Stands:
    """What stands since a run was done, and may ask for a look: it fails no run."""

    unreadable: int  # files
    cut: int  # of them, JSONL files whose end is cut
    gone: int  # files
    rejected: int  # rows
    audits: Mapping[str, int]  # the rows that audits found, by their names; none without rows
    excluded: int = 0  # files with traces that stay
    newest_trace: str | None = None  # its time, in UTC, not after the run; null: none, or unknown

    @classmethod
    def of(
        cls, counts: RunCounts, audits: Sequence[AuditResult], newest: datetime | None = None
    ) -> Self:
        """What a run has found, and the time of the newest trace."""
        found = {result.name: result.rows for result in audits if result.rows}
        return cls(
            *(counts.unreadable, counts.cut, counts.gone, counts.rejected),
            audits=found,
            excluded=counts.excluded,
            newest_trace=newest.isoformat() if newest else None,
        )


@dataclass(frozen=True)
class Success:
    """The last run that was done, or had nothing to do."""

    ended: str  # in UTC, as all times here
    status: Status
    run_id: str | None
    stands: Stands | None  # null: unknown until a run has looked, as after a restore
    rolled_back: RolledBack | None = None  # where it is a rollback: what it undid


@dataclass(frozen=True)
class LastRun:
    """The last run that was tried."""

    status: Status | Literal["running"]
    began: str  # when the command did
    user: str
    host: str
    pid: int
    version: str  # of kp_batch
    ended: str | None = None  # null: it has not, or was killed
    reason: str | None = None  # as of `Ended`
    code: str | None = None
    run_id: str | None = None  # of its row in `runs`, where it has one
    step: str | None = None  # under way, or at its end
    success: Success | None = None  # the last one, perhaps this run itself

    @classmethod
    def of(cls, content: bytes) -> Self | None:
        """Read the file, which anybody may have written; None where no run has."""
        try:
            read = cls(**_fields_of(cls, json.loads(content)))
            if read.success is not None:
                success = Success(**_fields_of(Success, read.success))
                found = success.stands
                stands = Stands(**_fields_of(Stands, found)) if found else None
                undone = _rolled_back_of(success.rolled_back)
                success = replace(success, stands=stands, rolled_back=undone)
                read = replace(read, success=success)
            _check(read)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        return read

    @classmethod
    def read(cls, warehouse: Path) -> Self | None:
        """Read that of a warehouse's folder; None where there is none."""
        with suppress(OSError):
            return cls.of(Layout(warehouse).last_run.read_bytes())
        return None

    @classmethod
    def in_bucket(cls, url: str) -> Self | None:
        """Read that of a bucket; None where there is none.

        Raises:
            OSError: the bucket cannot be read.
        """
        with suppress(FileNotFoundError):
            return cls.of(store_at(url).read(LAST_RUN)[0])
        return None

    @property
    def is_good(self) -> bool:
        """Whether it was done, or had nothing to do."""
        return self.status in GOOD

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

    def _as_json(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def _fields_of(kind: type[Any], values: Any) -> dict[str, Any]:
    """Those of the values that this version knows."""
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}


def _rolled_back_of(values: Any) -> RolledBack | None:
    if values is None:
        return None
    read = RolledBack(**_fields_of(RolledBack, values))
    return replace(read, undone=tuple(Reason(**_fields_of(Reason, each)) for each in read.undone))


def _check(read: LastRun) -> None:
    """Refuse values of other kinds than a run writes.

    Raises:
        TypeError, ValueError: it has some.
    """
    values = asdict(read)
    numbers, times = [values.pop("pid")], [read.began, read.ended or read.began]
    if success := values.pop("success"):
        times.append(success["ended"])
        if stands := success.pop("stands"):
            times.append(stands.pop("newest_trace") or success["ended"])
            numbers += [*stands.pop("audits").values(), *stands.values()]
        values |= {"its status": success["status"], "its run": success["run_id"]}
        undone = success["rolled_back"] or {"undone": ()}
        for number, reason in enumerate(undone.pop("undone")):
            values |= {f"{number} {name}": reason[name] for name in ("code", "words", "of")}
        values |= {f"rollback {name}": value for name, value in undone.items()}
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError("numbers that no run writes")
    if not all(text is None or isinstance(text, str) for text in values.values()):
        raise TypeError("texts that no run writes")
    if any(datetime.fromisoformat(moment).tzinfo is None for moment in times):
        raise ValueError("times without a time zone")


def last_success(*tries: LastRun | None) -> Success | None:
    """The last run that was good, of those that several files name."""
    named = [each.success for each in tries if each and each.success]
    return max(named, key=lambda success: success.ended, default=None)


@dataclass
class Try:
    """A run that is tried, in this process."""

    warehouse: Path
    began: str
    warehouse_id: str | None = None  # that is meant; another one is left as it is
    begun: bool = False  # see `OpenRun`
    has_failed: bool = False  # what follows, as its report, is no step of it
    run_id: str | None = None  # of its row in `runs`
    unrecorded: str | None = None  # why it has none, though it failed
    _shown: LastRun | None = None  # what the file says of it
    _is_settled: bool = False

    @property
    def step(self) -> str | None:
        """The step that is under way."""
        return self._shown.step if self._shown else None

    def under_way(self) -> None:
        """Say that it is under way; it alone writes to the warehouse."""
        before = LastRun.read(self.warehouse)
        self._show(self._as("running", success=before.success if before else None))

    def at(self, step: str) -> None:
        """Say which step is under way."""
        shown = self._shown
        if shown and shown.status == "running" and not self.has_failed:
            self._show(replace(shown, step=step))

    def fails(self, reason: str) -> None:
        """Say why it fails, before that is recorded in `runs`."""
        if self._shown:
            self._show(replace(self._shown, reason=reason))

    def end(
        self,
        ended: Ended,
        stands: Stands | None = None,
        rolled_back: RolledBack | None = None,
    ) -> None:
        """Say how it ended, where there is a warehouse.

        No error of that counts. It may still come to fail, until it is settled.

        Args:
            ended: how.
            stands: where it is done, or had nothing to do.
            rolled_back: where it is a rollback.
        """
        if self._is_settled:
            return
        if self.unrecorded and self.unrecorded not in (ended.reason or ""):
            reason = f"{ended.reason}; it has no row in runs: {self.unrecorded}"
            ended = replace(ended, reason=reason)
        url, was_under_way = url_of(self.warehouse), self._shown is not None
        is_here = was_under_way or self._is_there(read_manifest)
        with suppress(Exception), locked(self.warehouse, wait=False) if is_here else nullcontext():
            now, success = _now(), last_success(LastRun.read(self.warehouse))
            if stands:
                success = Success(now, ended.status, self.run_id, stands, rolled_back)
            shown = self._as(**asdict(ended), ended=now, success=success)
            if is_here:
                self._show(shown)
            if url:
                store = partial(self._store, shown, url, is_meant=was_under_way)
                patience_s = _LAST_WORDS_S if ended.status == "stopped" else _PATIENCE_S
                answered_within(patience_s, store)

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

    def _store(self, shown: LastRun, url: str, *, is_meant: bool) -> None:
        """Store how it ended, also of a machine that has no copy yet."""
        if is_meant or self._is_there(read_there):
            _store(shown, url)

    def settle(self) -> None:
        """Say no more: what follows undoes nothing."""
        self._is_settled = True

    def _as(self, status: Status | Literal["running"], **values: Any) -> LastRun:
        from importlib.metadata import version

        return LastRun(
            status,
            self.began,
            current_user(),
            socket.gethostname(),
            os.getpid(),
            version("kp-batch"),
            run_id=self.run_id,
            step=self.step,
            **values,
        )

    def _show(self, shown: LastRun) -> None:
        self._shown = shown
        with suppress(OSError):  # its disk may be full
            shown.write(self.warehouse)


def _store(shown: LastRun, url: str) -> None:
    """Store how a run ended; the last one that was good may have been another machine's."""
    if not shown.is_good:
        shown = replace(shown, success=last_success(shown, LastRun.in_bucket(url)))
    shown.store(url)


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
    if under_way := _TRY.get():
        try:
            yield under_way
        except BaseException:  # as below; who began to try it leaves how it ends
            under_way.has_failed = True
            raise
        return
    this = Try(warehouse, _now(), warehouse_id)
    token = _TRY.set(this)
    try:
        yield this
    except BaseException as error:  # signals, and Rust's panics, as well
        if getattr(error, "leaves_mark", True):
            this.end(Ended.by(error, begun=this.begun, stored=True))
        raise
    finally:
        _TRY.reset(token)


def leave_rollback(
    warehouse: Path, began: datetime, run_id: str, stands: Stands, rolled_back: RolledBack
) -> None:
    """Leave that a rollback was the last run, and what stands since; no error of that counts.

    Args:
        warehouse: that it alone writes to.
        began: in UTC.
        run_id: of its row in `runs`.
        stands: of the run that is published again.
        rolled_back: what it undid.
    """
    this = Try(warehouse, began.isoformat(timespec="milliseconds"), run_id=run_id)
    this.end(Ended("done"), stands, rolled_back)


def leave_stands(warehouse: Path, stands: Stands) -> None:
    """Leave what stands since traces were forgotten, which is no night; no error of that counts.

    What audits have found is still what the last run has.
    """
    url = url_of(warehouse)
    with suppress(Exception):
        if shown := _restated(LastRun.read(warehouse), stands):
            shown.write(warehouse)
        if url:
            answered_within(_PATIENCE_S, lambda: _store_stands(url, stands))


def _store_stands(url: str, stands: Stands) -> None:
    if shown := _restated(LastRun.in_bucket(url), stands):
        shown.store(url)


def _restated(shown: LastRun | None, stands: Stands) -> LastRun | None:
    if shown is None or shown.success is None or shown.success.stands is None:
        return None
    stands = replace(stands, audits=shown.success.stands.audits)
    return replace(shown, success=replace(shown.success, stands=stands))


def under_way_by(warehouse: Path, pid: int) -> LastRun | None:
    """What a warehouse says of the run of a process, which is gone, unless that has ended."""
    shown = LastRun.read(warehouse)
    is_its = shown and (shown.pid, shown.host) == (pid, socket.gethostname())
    return shown if is_its and shown.status == "running" else None


def end_for(this: Try, pid: int, ended: Ended) -> None:
    """Say how a run ended whose process is gone; no error of that counts.

    In a bucket it still has the lease, which would keep other machines waiting.

    Args:
        this: the run, which may not have come as far as to say that it is under way.
        pid: the process.
        ended: how.
    """
    warehouse, shown = this.warehouse, LastRun.read(this.warehouse)
    if shown is None or shown.pid != pid:
        this.end(ended)
    elif under_way_by(warehouse, pid):
        with suppress(Exception), locked(warehouse, wait=False):  # another run may begin meanwhile
            _end_for(warehouse, pid, ended)


def _end_for(warehouse: Path, pid: int, ended: Ended) -> None:
    if (shown := under_way_by(warehouse, pid)) is None:
        return
    shown = replace(shown, **asdict(ended), ended=_now())
    shown.write(warehouse)
    if url := url_of(warehouse):
        answered_within(_LAST_WORDS_S, partial(_store, shown, url))
        gone = partial(release_of_gone, store_at(url), Record.of(warehouse).copy_id, pid)
        answered_within(_LAST_WORDS_S, gone)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
