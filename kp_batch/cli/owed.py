"""The one object that `run --json` owes, from the first moment of the command until it is printed.

Whatever ends the command, the object tells it: the command itself prints it where it fails, and its
supervisor where it is killed.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from kp_batch.ended import Ended
from kp_batch.errors import TEMPORARY_FOLDERS, ResourceError, SettingError
from kp_batch.log import echo

# Files of the temporary folder of a supervised command: the object that is printed if the command
# is killed, and a mark that its result is printed. On a full disk a mark can be removed, but not be
# made.
OWED, PRINTED = "owed", "told"
_OWED: list[str] = []  # the object that this process owes, at most one
_LEAST: Mapping[str, Any] = {
    **dict.fromkeys(("warehouse", "counts", "seconds")),
    "audits": [],
    "warnings": [],
}
_OF_RUN: Mapping[str, Any] = {"run_id": None, "domains": 0, "scores": []}
_OF_PREVIEW: Mapping[str, Any] = {"changes": False, "comparison": None}


def own_version() -> str:
    """The version of kp_batch."""
    from importlib.metadata import version  # which takes longer than help to print

    return version("kp-batch")


def owed_by(words: Sequence[str]) -> str | None:
    """The object that a command owes before its options are read; None if it owes none."""
    name, *options = words or [""]
    if "--" in options:  # what follows are names
        options = options[: options.index("--")]
    if name != "run" or "--json" not in options:
        return None
    now = datetime.now(UTC).isoformat()
    head = asdict(Ended("failed")) | {"started_at": now, "finished_at": now}
    further = _OF_PREVIEW if "--preview" in options else _OF_RUN
    return json.dumps({**head, "version": own_version(), **_LEAST, **further})


def note_result_owed(owed: str | None) -> None:
    """Note the JSON object that has to be printed, or that there is none."""
    _OWED.clear()
    if owed is None:
        return
    _OWED.append(owed)
    for folder in TEMPORARY_FOLDERS:
        with suppress(OSError):  # its disk may be full
            (folder / OWED).write_text(owed, "utf-8")


def note_object_printed() -> None:
    """Note that the object is printed which was owed."""
    _OWED.clear()
    for folder in TEMPORARY_FOLDERS:
        with suppress(OSError):
            (folder / OWED).unlink(missing_ok=True)


def note_result_printed() -> None:
    """Note that the result is printed: a later crash does not fail the command."""
    note_object_printed()
    for folder in TEMPORARY_FOLDERS:
        with suppress(OSError):
            (folder / PRINTED).touch()


def print_if_owed(error: BaseException) -> None:
    """Print the object that this process still owes, where an error ends it."""
    if isinstance(error, click.ClickException) and not isinstance(error, SettingError):
        error = SettingError(error.format_message())
    for owed in _OWED:
        print_owed(owed, Ended.by(error))
    note_object_printed()


def print_owed(owed: str, ended: Ended) -> None:
    """Print an object with how the command ended, now."""
    with suppress(OSError, ResourceError, ValueError):  # the error itself counts
        now = datetime.now(UTC).isoformat()
        echo(json.dumps(json.loads(owed) | asdict(ended) | {"finished_at": now}))
