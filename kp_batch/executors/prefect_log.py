"""What Prefect's log takes from us.

This module names nothing of DuckDB, not even through others: loggers live until the interpreter is
gone, and DuckDB would lament each of its own types as leaked.
"""

import logging
from contextlib import suppress

from prefect import get_run_logger
from prefect.exceptions import MissingContextError

from kp_batch.errors import KpBatchError


class RunLog(logging.Handler):
    """Puts what is told into the log of the task or the flow that runs; Prefect shows it, too."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record's message at its level."""
        with suppress(MissingContextError):  # no flow runs yet
            get_run_logger().log(record.levelno, record.getMessage())


RUN_LOG = RunLog()


def shorten_errors() -> None:
    """Let Prefect log an error that the user can put right as its one line, without a traceback."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    error = record.exc_info and record.exc_info[1]
    if isinstance(error, KpBatchError):
        record.msg, record.args, record.exc_info = f"{type(error).__name__}: {error}", (), None
    return True
