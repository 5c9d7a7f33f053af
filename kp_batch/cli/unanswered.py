"""The object of `run --json` where the run itself cannot print it, as its options are wrong, say.

The command prints it where it fails before it is a run, and its supervisor where it is killed.
"""

from collections.abc import Sequence
from contextlib import suppress

from kp_batch.errors import ResourceError
from kp_batch.log import echo
from kp_batch.warehouse.run_result import RunResult


def print_unanswered(words: Sequence[str], ended: RunResult) -> None:
    """Print how a command ended, if it is `run --json`; no error of that counts.

    Args:
        words: of the command line.
        ended: how.
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
