"""What a process has of its own: what a library may leave neither changed nor behind."""

import gc
import locale
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

_OF_DUCKDB = "SELECT name, value FROM duckdb_settings() ORDER BY name"
_PASSING = {"memory_usage"}  # in DuckDB's settings: not one


def settings_of_process() -> dict[str, Any]:
    """What other code of the process counts on, by names."""
    root, ours = logging.getLogger(), logging.getLogger("kp_batch")
    return {
        "signals": {each.name: signal.getsignal(each) for each in signal.Signals},
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "environment": dict(os.environ),
        "loggers": [(each.level, [*each.handlers], each.propagate) for each in (root, ours)],
        "logging": (logging.root.manager.disable, logging.raiseExceptions),
        "warnings": ([*warnings.filters], warnings.showwarning),
        "temporary": tempfile.gettempdir(),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook),
        "tracing": (sys.gettrace(), threading.gettrace(), sys.getprofile(), threading.getprofile()),
        "python": (sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), sys.path[:]),
        "place": (Path.cwd(), locale.setlocale(locale.LC_ALL)),
        "limits": [
            resource.getrlimit(each) for each in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
        ],
        "machine": (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)),
        "chance": (random.getstate(), [str(part) for part in np.random.get_state()]),  # noqa: NPY002
        "numpy": (np.geterr(), np.get_printoptions()),
        "polars": (pl.Config.state(), pl.thread_pool_size()),
        "duckdb": _of_duckdb(),
        "torch": _of_torch(),
    }


def _of_duckdb() -> list[Any]:
    with duckdb.connect() as connection:
        return [row for row in connection.sql(_OF_DUCKDB).fetchall() if row[0] not in _PASSING]


def _of_torch() -> list[Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as it was, by names: both values."""
    return {name: (was, after[name]) for name, was in before.items() if was != after[name]}


def resources_of_process() -> dict[str, list[str]]:
    """What a process has open or at work: its files by their paths, and its threads by names."""
    files: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            files.append(str(descriptor.readlink()))
        except OSError:  # that which lists them
            continue
    # Python names those of libraries by which it was called; they are in pools of their own.
    threads = [each.name for each in threading.enumerate() if "Dummy-" not in each.name]
    return {"files": sorted(files), "threads": sorted(threads)}


def grown(
    before: Mapping[str, list[str]], after: Mapping[str, list[str]], folder: Path
) -> dict[str, list[str]]:
    """Further resources of a process since `before`; of files, those in a folder alone.

    The tests before may have left some, which go at any time.
    """
    more = {name: Counter(after[name]) - Counter(was) for name, was in before.items()}
    ours = {name for name in more["files"] if name.startswith(str(folder))}
    more["files"] = Counter({name: count for name, count in more["files"].items() if name in ours})
    return {name: sorted(counted.elements()) for name, counted in more.items() if counted}
