"""How a run ended: the one object that `run --json` prints, whether it is done or failed."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kp_batch.cli.options import json_line
from kp_batch.cli.owed import (
    note_object_printed,
    note_result_owed,
    note_result_printed,
    own_version,
)
from kp_batch.ended import Ended, Status
from kp_batch.errors import AuditError, ResourceError
from kp_batch.log import echo_result
from kp_batch.operations.compare import Comparison
from kp_batch.operations.preview import Preview
from kp_batch.pipeline.rescore import OpenRun, watched
from kp_batch.pipeline.summary import DomainScores, Summary, with_all_domains
from kp_batch.runs.audits import AuditResult
from kp_batch.runs.record import RunCounts
from kp_batch.steps.step import timed
from kp_batch.warehouse.bucket.location import shown


@dataclass(frozen=True)
class Outcome:
    """What is known of a run, or of a preview, when it ends."""

    status: Status
    reason: str | None  # why it is not done, as on stderr
    code: str | None  # a word for the kind of the reason, which stays when its words change
    started_at: str  # in UTC
    finished_at: str  # likewise
    version: str  # of kp_batch
    warehouse: str | None  # null: it ended before its options were read
    counts: RunCounts | None = None  # null: it failed before its plan was made
    seconds: Mapping[str, float] | None = None  # of each step; null: it was killed, or as above
    audits: Sequence[AuditResult] = ()


@dataclass(frozen=True)
class RunOutcome(Outcome):
    """Of a run."""

    run_id: str | None = None  # of its row in `runs`; null: it has none, as with nothing to do
    domains: int = 0
    scores: Sequence[DomainScores] = ()  # those of all domains; none where it failed


@dataclass(frozen=True)
class PreviewOutcome(Outcome):
    """Of a preview."""

    changes: bool = False
    comparison: Comparison | None = None


@contextmanager
def printed_as_json(
    settings: Mapping[str, Any], began: float
) -> Generator[Callable[[Summary | Preview], None]]:
    """Print one object for the work of the context, however it ends.

    Yields what takes its result: that of a run is printed at once, since nothing undoes it; that of
    a preview at the end, since its report may fail.

    Args:
        settings: of the command.
        began: when somebody began to wait, in seconds since the epoch.
    """
    with watched() as runs, timed(began) as clock:
        outcome = _Printed(settings, began)
        try:
            yield outcome.take
        except Exception as error:
            seconds = {name: round(spent, 3) for name, spent in clock.seconds.items()}
            outcome.fail(error, runs, seconds)
            raise
        outcome.end()


class _Printed:
    """The object of one command, which is printed once."""

    def __init__(self, settings: Mapping[str, Any], began: float) -> None:
        self._kind = PreviewOutcome if settings["preview"] else RunOutcome
        self._started_at = datetime.fromtimestamp(began, UTC).isoformat()
        self._warehouse = shown(Path(settings["warehouse"]).absolute())
        self._preview: Preview | None = None
        self._is_printed = False
        note_result_owed(json_line(self._outcome(Ended("failed"), {})))

    def take(self, result: Summary | Preview) -> None:
        """Take the result of the command; see `printed_as_json`."""
        if isinstance(result, Preview):
            self._preview = result
        else:
            status = "done" if result.run_id else "nothing_to_do"
            self._print(self._outcome(Ended(status), _values(with_all_domains(result))))
            note_result_printed()

    def end(self) -> None:
        """Print the preview, which has not failed."""
        if self._preview:
            status = "done" if self._preview.changes else "nothing_to_do"
            self._print(self._outcome(Ended(status), _values(self._preview)))
            note_result_printed()

    def fail(self, error: Exception, runs: Sequence[OpenRun], seconds: Mapping[str, float]) -> None:
        """Print why the command fails, unless its result is printed."""
        if self._is_printed:
            return
        ended = Ended.by(error, begun=bool(runs) and runs[-1].begun)
        known: dict[str, Any] = {"seconds": seconds}
        if isinstance(error, AuditError):
            known["audits"] = error.results
        if runs:
            known |= _values_of_run(runs[-1])
        if self._preview:
            known |= _values(self._preview)
        with suppress(OSError, ResourceError):  # the error itself counts
            self._print(self._outcome(ended, known))

    def _outcome(self, ended: Ended, known: Mapping[str, Any]) -> Outcome:
        head: dict[str, Any] = {
            **asdict(ended),
            "started_at": self._started_at,
            "finished_at": datetime.now(UTC).isoformat(),
            "version": own_version(),
            "warehouse": self._warehouse,
        }
        names = {field.name for field in fields(self._kind)}
        values = {name: value for name, value in known.items() if name in names - head.keys()}
        return self._kind(**head, **values)

    def _print(self, outcome: Outcome) -> None:
        self._is_printed = True
        note_object_printed()
        echo_result(json_line(outcome))


def _values(result: Summary | Preview) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in fields(result)}


def _values_of_run(opened: OpenRun) -> dict[str, Any]:
    return {
        "run_id": opened.run.run_id if opened.is_recorded else None,
        "counts": opened.plan.counts if opened.plan else None,
        "audits": opened.audits,
    }
