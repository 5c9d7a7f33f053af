"""Prints how a run, or a preview, ended: the one object of `run --json`, done or failed."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kp_batch.cli.options import json_line
from kp_batch.cli.supervise import tell
from kp_batch.ended import Ended
from kp_batch.errors import AuditError, ResourceError
from kp_batch.log import echo_result, listening
from kp_batch.operations.outcome import Awaited, Outcome
from kp_batch.operations.preview import Preview
from kp_batch.pipeline.rescore import OpenRun, watched
from kp_batch.report.run_summary import Summary
from kp_batch.steps.step import timed


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
    with watched() as runs, timed(began) as clock, listening() as warnings:
        outcome = _Printed(
            Awaited(Path(settings["warehouse"]), settings["preview"], began, warnings)
        )
        try:
            yield outcome.take
        except Exception as error:
            seconds = {name: round(spent, 3) for name, spent in clock.seconds.items()}
            outcome.fail(error, runs, seconds)
            raise
        outcome.end()


class _Printed:
    """The object of one command, which is printed once."""

    def __init__(self, awaited: Awaited) -> None:
        self._awaited = awaited
        self._preview: Preview | None = None
        self._is_printed = False

    def take(self, result: Summary | Preview) -> None:
        """Take the result of the command; see `printed_as_json`."""
        if isinstance(result, Preview):
            self._preview = result
        else:
            self._print_result(result)

    def end(self) -> None:
        """Print the preview, which has not failed."""
        if self._preview:
            self._print_result(self._preview)

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
            known |= vars(self._preview)
        with suppress(OSError, ResourceError):  # the error itself counts
            self._print(self._awaited.outcome(ended, known))

    def _print_result(self, result: Summary | Preview) -> None:
        self._print(self._awaited.outcome_of(result))
        tell(printed=True)

    def _print(self, outcome: Outcome) -> None:
        self._is_printed = True
        echo_result(json_line(outcome))
        tell(answered=True)


def _values_of_run(opened: OpenRun) -> dict[str, Any]:
    return {
        "run_id": opened.run.run_id if opened.is_recorded else None,
        "counts": opened.plan.counts if opened.plan else None,
        "audits": opened.audits,
    }
