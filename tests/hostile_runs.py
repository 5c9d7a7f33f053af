"""Runs over each hostile file and a good one beside it: `python -m tests.hostile_runs`.

A row is one run, in processes of its own: the file, its size, the seconds, and the peak of the
anonymous memory of all processes in MB. A row is marked, and the exit status is 1, where the run
fails, takes more than it may, or does not score what is good.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

from tests.answers import ask
from tests.archives import trace, write_jsonl
from tests.hostile import FILES
from tests.measuring import measured

_MOST_S, _MOST_MB = 10, 1_000
_BESIDE = "beside"


def main(names: Sequence[str]) -> int:
    """Run over the files of these names, or all; returns the exit status."""
    wrong = 0
    for name in names or FILES:
        with tempfile.TemporaryDirectory() as folder:
            wrong += archive(name, FILES[name], Path(folder))
    return 1 if wrong else 0


def archive(name: str, write: Callable[[Path], None], folder: Path) -> bool:
    """Print the row of a run over an archive; returns whether it is wrong."""
    path, warehouse = folder / "archive" / name, folder / "warehouse"
    write_jsonl(folder / "archive" / "beside.jsonl", [trace(id=_BESIDE)])
    made = get_context("spawn").Process(target=write, args=(path,))  # it takes memory as well
    made.start()
    made.join()
    line = f"run {path.parent} --warehouse {warehouse} --no-prefect --embedder none"
    taken = measured([*line.split(), "--max-reject-share", "1"])
    good = {_BESIDE, "good"} if name.endswith(".jsonl") else {_BESIDE}
    faults = [
        *([f"failed: {taken.tail}"] if taken.status else []),
        *(["too slow"] if taken.seconds > _MOST_S else []),
        *(["too much memory"] if taken.peak_mb > _MOST_MB else []),
        *([] if taken.status or good <= _scored(warehouse) else ["good rows are missing"]),
    ]
    took = f"{path.stat().st_size:>12,} B{taken.seconds:>7.1f} s{taken.peak_mb:>7,.0f} MB"
    print("  ".join([f"{name:<34}{took}", *faults]), flush=True)
    return bool(faults)


def _scored(warehouse: Path) -> set[str]:
    return set(ask(warehouse, "SELECT trace_id FROM scores").get_column("trace_id"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
