"""Refuses to work in a process that was forked from one with threads: libraries would hang.

A fork has none of the threads, and all of the locks that they held. Python forks for
`multiprocessing` on Linux, up to Python 3.13, unless it is told otherwise.
"""

import os
import sys

from kp_batch.errors import KpBatchError

_FORKED: list[int] = []  # the process, if it is one


def _note() -> None:
    if "polars" in sys.modules:  # whose threads have begun
        _FORKED.append(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note)


def refuse_forked() -> None:
    """Refuse to work where the libraries cannot.

    Raises:
        KpBatchError: this process was forked.
    """
    if os.getpid() in _FORKED:
        raise KpBatchError(
            "this process was forked from one that had loaded Polars, whose threads it lacks: "
            'start processes with multiprocessing.get_context("spawn")',
            code="forked",
        )
