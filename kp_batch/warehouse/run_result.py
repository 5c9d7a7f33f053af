"""How a run went: what `run --json` prints, `last-run.json` keeps, and `status` shows."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeVar

from kp_batch.errors import Ending, explain_error
from kp_batch.html import Displayed
from kp_batch.rendering import Head, Part
from kp_batch.text import printable
from kp_batch.warehouse.audits import AuditResult, results_parts
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.reasons import Reason, RolledBack
from kp_batch.warehouse.run_record import RunCounts

Status = Literal["running", "done", "nothing_to_do", Ending, "killed"]
GOOD: tuple[Status, ...] = ("done", "nothing_to_do")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunResult(Displayed):
    """How a run, a preview, a rollback or a forget went, or how far it is."""

    status: Status
    reason: str | None = None  # why it is not done, with the words on stderr
    code: str | None = None  # a word for the kind of reason, which stays when the words change
    warehouse: str | None = None  # null: it ended before its options were read
    started_at: str  # in UTC: when the command began
    finished_at: str | None = None  # in UTC; null: it is under way, or was killed
    version: str | None = None  # of kp_batch; null, like user, for a run elsewhere on a bucket
    user: str | None = None
    host: str | None = None
    pid: int | None = None
    step: str | None = None  # the current step, or the last one
    run_id: str | None = None  # in its row of `runs`; null: no row, as with nothing to do
    counts: RunCounts | None = None  # null: it failed before its plan was made, or did not count
    seconds: Mapping[str, float] | None = None  # by step; null: it was killed, or did not count
    audits: Sequence[AuditResult] = ()
    newest_trace: str | None = None  # its time, not after the run; null: none, or unknown
    rolled_back: RolledBack | None = None  # what a rollback undoes
    warnings: Sequence[str] = ()  # the warnings on stderr

    @classmethod
    def here(cls, status: Status, **values: Any) -> Self:
        """Return the result of a run of this process; by default it begins now."""
        from importlib.metadata import version  # importing it takes longer than printing help

        head: dict[str, Any] = {"started_at": now(), "version": version("kp-batch")}
        head |= {"user": current_user(), "host": socket.gethostname(), "pid": os.getpid()}
        return cls(status=status, **(head | values))

    @classmethod
    def of(cls, values: Any) -> Self:
        """Read the JSON of a `kept` result, perhaps of a later version.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: it is not one.
        """
        read = _known(cls, values)
        if read.rolled_back:
            undone = tuple(_known(Reason, each) for each in values["rolled_back"]["undone"])
            rolled_back = replace(_known(RolledBack, values["rolled_back"]), undone=undone)
            read = replace(read, rolled_back=rolled_back)
        began = read.started_at
        times = (began, read.finished_at or began, read.newest_trace or began)
        if any(datetime.fromisoformat(time).tzinfo is None for time in times):
            raise ValueError("times without a time zone")
        return replace(
            read,
            counts=_known(RunCounts, read.counts) if read.counts else None,
            audits=[_known(AuditResult, each) for each in read.audits],
        )

    @property
    def is_good(self) -> bool:
        """Whether what is published matches the archive."""
        return self.status in GOOD

    @property
    def kept(self) -> "RunResult":
        """The result for the warehouse, without texts that quote traces or grow with it."""
        values = {field.name: getattr(self, field.name) for field in fields(RunResult)}
        counts = self.counts and replace(self.counts, unreadable_files=[])
        audits = [replace(result, first=()) for result in self.audits]
        return RunResult(**(values | {"counts": counts, "audits": audits, "warnings": ()}))

    def ended(self, status: Status, reason: str | None = None, code: str | None = None) -> Self:
        """Return the result of a run that has ended now."""
        return replace(self, status=status, reason=reason, code=code, finished_at=now())

    def failed(self, error: BaseException, *, begun: bool = False, stored: bool = False) -> Self:
        """Return the result of a run that an error has ended now.

        Args:
            error: the error.
            begun: whether the run had begun, see `OpenRun.begun`.
            stored: whether a warehouse keeps it, see `KpBatchError.stored`.
        """
        if not _is_failure(error):
            return self.ended("stopped", "interrupted", "signal")
        explained = explain_error(error)
        late: Ending = "failed" if begun else "could_not_begin"
        return self.ended(
            explained.ending or late, explained.stored if stored else str(explained), explained.code
        )

    def _parts(self) -> Iterator[Part]:
        if self.is_good:
            yield from self._parts_of_work()
        else:
            yield Head(f"{self.status.replace('_', ' ')}{': ' * bool(self.reason)}{self._why}")
            yield from results_parts(self.audits)
        if self.warnings:
            yield from ("", Head("warnings:"), *(f"  {printable(text)}" for text in self.warnings))

    @property
    def _why(self) -> str:
        return printable(self.reason or "")

    def _parts_of_work(self) -> Iterable[Part]:
        """Yield what it has done, or would do, for people."""
        return (Head(self.status.replace("_", " ")), *results_parts(self.audits))


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def later(*results: RunResult | None) -> RunResult | None:
    """Return the one that ended last."""
    return max(filter(None, results), key=lambda each: each.finished_at or "", default=None)


def _is_failure(error: BaseException) -> bool:
    """Whether the work failed, rather than being stopped. Rust's panics are not Exceptions."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _known(kind: type[T], values: Any) -> T:
    """Make a dataclass from those values that this version knows."""
    names = (field.name for field in fields(kind))  # pyrefly: ignore (it is a dataclass)
    return kind(**{name: values[name] for name in names if name in values})
