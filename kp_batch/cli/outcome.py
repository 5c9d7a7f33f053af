"""Print how a run or a preview ended: the one object of `run --json`."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kp_batch.cli.options import json_line
from kp_batch.cli.supervise import send
from kp_batch.errors import AuditError, ResourceError
from kp_batch.log import echo_result, listening
from kp_batch.operations.preview import Preview
from kp_batch.pipeline.rescore import OpenRun, watched
from kp_batch.report.run_summary import Summary, with_all_domains
from kp_batch.steps.step import timed
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.run_result import now


@contextmanager
def printed_as_json(
    settings: Mapping[str, Any], began: float
) -> Generator[Callable[[Summary | Preview], None]]:
    """Print one object for the work of the context, however it ends.

    Yields a function that takes the result. The result of a run is printed at once, since nothing
    undoes it; that of a preview at the end, since its report may fail.

    Args:
        settings: the settings of the command.
        began: when the command began, in seconds since the epoch.
    """
    with watched() as runs, timed(began) as clock, listening() as warnings:
        printed = _Printed(settings, warnings)
        try:
            yield printed.take
        except Exception as error:
            printed.fail(error, runs, clock.rounded)
            raise
        printed.end()


class _Printed:
    """The object of one command, which is printed once."""

    def __init__(self, settings: Mapping[str, Any], warnings: Sequence[str]) -> None:
        self._warehouse, self._warnings = Path(settings["warehouse"]), warnings
        self._kind = Preview if settings["preview"] else Summary
        self._began, self._is_printed = now(), False
        self._preview: Preview | None = None

    def take(self, result: Summary | Preview) -> None:
        """Take the result of the command; see `printed_as_json`."""
        if isinstance(result, Preview):
            self._preview = result
        else:
            self._print(with_all_domains(self._warehouse, result))
            send(printed=True)

    def end(self) -> None:
        """Print the preview, if the command is one."""
        if self._preview:
            self._print(self._preview)
            send(printed=True)

    def fail(self, error: Exception, runs: Sequence[OpenRun], seconds: Mapping[str, float]) -> None:
        """Print why the command failed, unless its result is printed."""
        if self._is_printed:
            return
        place = {"warehouse": shown(self._warehouse.absolute()), "started_at": self._began}
        result = self._preview or self._kind.here("running", **place, seconds=seconds)
        if runs and not self._preview:
            result = replace(result, **_values_of_run(runs[-1]))
        if isinstance(error, AuditError):
            result = replace(result, audits=error.results)
        with suppress(OSError, ResourceError):  # the error itself counts
            self._print(result.failed(error, begun=bool(runs) and runs[-1].begun))

    def _print(self, result: Summary | Preview) -> None:
        self._is_printed = True
        echo_result(json_line(replace(result, warnings=tuple(self._warnings))))
        send(answered=True)


def _values_of_run(opened: OpenRun) -> dict[str, Any]:
    return {
        "run_id": opened.run.run_id if opened.is_recorded else None,
        "counts": opened.plan.counts if opened.plan else None,
        "audits": opened.audits,
    }
