"""The object of `run --json` where the run itself cannot print it, as its options are wrong, say.

The command prints it where it fails before it is a run, and its supervisor where it is killed.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from kp_batch.ended import Ended
from kp_batch.errors import ResourceError
from kp_batch.log import echo

_UNKNOWN: Mapping[str, Any] = {"counts": None, "seconds": None, "audits": [], "warnings": []}
_OF_RUN: Mapping[str, Any] = {"run_id": None, "domains": 0, "scores": []}
_OF_PREVIEW: Mapping[str, Any] = {"changes": False, "comparison": None}


def own_version() -> str:
    """The version of kp_batch."""
    from importlib.metadata import version  # which takes longer than help to print

    return version("kp-batch")


def print_unanswered(
    words: Sequence[str], ended: Ended, began: datetime, warehouse: str | None
) -> None:
    """Print how a command ended, if it is `run --json`; no error of that counts.

    Args:
        words: of the command line.
        ended: how.
        began: when the command did.
        warehouse: its path or URL; None: its options were not read.
    """
    name, *options = words or [""]
    if "--" in options:  # what follows are names
        options = options[: options.index("--")]
    if name != "run" or "--json" not in options:
        return
    head = {**asdict(ended), "started_at": began.isoformat(), "warehouse": warehouse}
    head |= {"finished_at": datetime.now(UTC).isoformat(), "version": own_version()}
    further = _OF_PREVIEW if "--preview" in options else _OF_RUN
    with suppress(OSError, ResourceError):
        echo(json.dumps({**head, **_UNKNOWN, **further}))
