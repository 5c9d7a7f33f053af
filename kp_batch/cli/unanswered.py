"""The object of `run --json` if the run itself cannot print it.

The command prints it if it fails before the run begins, such as by wrong options, and its
supervisor if the run is killed.
"""

from collections.abc import Sequence
from contextlib import suppress

from kp_batch.errors import ResourceError
from kp_batch.log import echo
from kp_batch.warehouse.run_result import RunResult


def print_unanswered(words: Sequence[str], ended: RunResult) -> None:
    """Print how a command ended, if it is `run --json`, and ignore errors of printing.

    Args:
        words: the words of the command line.
        ended: how the command ended.
    """
    name, *options = words or [""]
    if "--" in options:  # what follows are names
        options = options[: options.index("--")]
    if name != "run" or "--json" not in options:
        return
    from kp_batch.cli.options import json_line
    from kp_batch.report.run_summary import Summary

    kind: type[RunResult] = Summary
    if "--preview" in options:
        from kp_batch.operations.preview import Preview

        kind = Preview
    with suppress(OSError, ResourceError):
        echo(json_line(kind(**vars(ended))))
