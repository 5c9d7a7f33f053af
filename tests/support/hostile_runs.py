"""Runs over, and imports of, each hostile file and a good one beside it.

`python -m tests.support.hostile_runs` does all, or the files of these names. A row is one of them,
in processes of its own: the file, its size, the seconds, and the peak of the anonymous memory of
all processes in MB. A row is marked, and the exit status is 1, where it fails, takes more than it
may,
or does not score, or import, what is good.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

from tests.bench.measuring import Measured, measured
from tests.support import hostile_imports
from tests.support.archives import trace, write_jsonl
from tests.support.hostile import FILES
from tests.support.importing import imported
from tests.support.queries import ask

_MOST_S, _MOST_MB = 10, 1_000
_BESIDE = "beside"


def main(names: Sequence[str]) -> int:
    """Run over the files of these names, or all; returns the exit status."""
    wrong = 0
    for name in names or [*FILES, *hostile_imports.FILES]:
        with tempfile.TemporaryDirectory() as folder:
            wrong += (archive if name in FILES else source)(name, Path(folder))
    return 1 if wrong else 0


def archive(name: str, folder: Path) -> bool:
    """Print the row of a run over an archive; returns whether it is wrong."""
    path, warehouse = folder / "archive" / name, folder / "warehouse"
    write_jsonl(folder / "archive" / "beside.jsonl", [trace(id=_BESIDE)])
    _write(FILES[name], path)
    line = f"run {path.parent} --warehouse {warehouse} --no-prefect --embedder none"
    taken = measured([*line.split(), "--max-reject-share", "1"])
    good = {_BESIDE, "good"} if name.endswith(".jsonl") else {_BESIDE}
    return _print_result(path, taken, [] if taken.status else sorted(good - _scored(warehouse)))


def source(name: str, folder: Path) -> bool:
    """Print the row of an import; returns whether it is wrong."""
    form, write, _, good = hostile_imports.FILES[name]
    path, made = folder / "source" / name, folder / "archive"
    path.parent.mkdir()
    hostile_imports.GOOD[form](path.parent)
    _write(write, path)
    rules = () if form == "knowledgepulse" else hostile_imports.RULES
    taken = measured(["import", form, str(path.parent), "-o", str(made), *rules])
    named = {f"kp:trace:{each}" for each in good}
    missing = [] if taken.status else sorted(named - imported(made).keys())
    return _print_result(path, taken, missing)


def _write(write: Callable[[Path], None], path: Path) -> None:
    made = get_context("spawn").Process(target=write, args=(path,))  # it takes memory as well
    made.start()
    made.join()


def _print_result(path: Path, taken: Measured, missing: Sequence[str]) -> bool:
    """Print a row; returns whether anything is wrong."""
    faults = [
        *([f"failed: {taken.tail}"] if taken.status else []),
        *(["too slow"] if taken.seconds > _MOST_S else []),
        *(["too much memory"] if taken.peak_mb > _MOST_MB else []),
        *(f"{each} is missing" for each in missing),
    ]
    took = f"{path.stat().st_size:>12,} B{taken.seconds:>7.1f} s{taken.peak_mb:>7,.0f} MB"
    print("  ".join([f"{path.name:<34}{took}", *faults]), flush=True)
    return bool(faults)


def _scored(warehouse: Path) -> set[str]:
    return set(ask(warehouse, "SELECT trace_id FROM scores").get_column("trace_id"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
