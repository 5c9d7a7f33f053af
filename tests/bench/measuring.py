"""What work takes: seconds, and of a command the memory of all of its processes (on Linux)."""

import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_PROC = Path("/proc")
_INTERVAL_S = 0.1
_TAIL = 2_000  # characters


@dataclass(frozen=True)
class Measured:
    """What a command took."""

    status: int  # its exit status
    seconds: float
    processor_s: float  # of all processors
    peak_mb: float  # the greatest sum of its processes' anonymous memory, in 2**20 bytes
    tail: str  # the end of its output


def medians(*works: Callable[[], object], times: int) -> list[float]:
    """The seconds of each, in the median of rounds in which each has its turn."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, durations in zip(works, seconds, strict=True):
            began = time.perf_counter()
            work()
            durations.append(time.perf_counter() - began)
    return [median(durations) for durations in seconds]


def measured(arguments: Sequence[str]) -> Measured:
    """Run `kp-batch` to its end, and look at its memory ten times a second."""
    began, before, peak = time.monotonic(), _processor_s(), 0
    command = [sys.executable, "-m", "kp_batch", *arguments]
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(command, stdout=output, stderr=output) as process:
            while process.returncode is None:
                peak = max(peak, sum(map(_anonymous_kb, _with_descendants(process.pid))))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_INTERVAL_S)
        seconds = time.monotonic() - began
        output.seek(0)
        tail = output.read().decode(errors="replace")[-_TAIL:]
    used = _processor_s() - before
    return Measured(process.returncode, seconds, used, peak / 1024, tail)


def _processor_s() -> float:
    """What the processes have used that this one began, and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _with_descendants(root: int) -> list[int]:
    """A process and all that came of it, those in sessions of their own too."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children[int(parent)].append(int(stat.parent.name))
    pids = [root]
    for pid in pids:
        pids += children[pid]
    return pids


def _anonymous_kb(process: int) -> int:
    """What is no file's: files that are mapped are the system's cache."""
    with suppress(OSError):
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1])
    return 0
