"""Refuse to work in a process that was forked from one with threads: it would hang.

A fork has none of the threads, but keeps all of their locks. Up to Python 3.13,
`multiprocessing` on Linux forks by default.
"""

import os
import sys

from kp_batch.errors import KpBatchError

_FORKED: list[int] = []  # the id of this process, if it is one


def _note() -> None:
    if "polars" in sys.modules:  # its threads are running
        _FORKED.append(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note)


def refuse_forked() -> None:
    """Refuse to work in a fork, where the libraries cannot.

    Raises:
        KpBatchError: this process was forked.
    """
    if os.getpid() in _FORKED:
        raise KpBatchError(
            "this process was forked from one that had loaded Polars, whose threads it lacks: "
            'start processes with multiprocessing.get_context("spawn")',
            code="forked",
        )
