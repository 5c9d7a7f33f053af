"""Runs over, and imports of, what is too large by the limits themselves, and what is good beside.

`python -m tests.support.damage` tries all of the table that stands in files, or what has these
names there. A row is one of them, in processes of its own: where it stands, its name, its size, the
seconds, and the peak of the anonymous memory of all processes in MB. A row is marked, and the exit
status is 1, where it fails, takes more than it may, or does not score, or import, what is good.
"""

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.bench.measuring import measured
from tests.support.damage.places import write_named
from tests.support.damage.table import ARCHIVE, damages_at
from tests.support.formats.kits import KITS
from tests.support.imports.importing import imported
from tests.support.read.queries import ask

_MOST_S, _MOST_MB = 10, 1_000
_MOST_MB_OF_IMPORTS = 1_300  # of JSON that is nearly too large, and is written once more
_RULES = ("--success", "always", "--confidence", "0.8", "--domain", "=default")


def main(names: Sequence[str]) -> int:
    """Try what has these names, or all; returns the exit status."""
    places = (ARCHIVE, *KITS)
    rows = [(place, damage.name) for place in places for damage in damages_at(place)]
    if unknown := {*names} - {name for _, name in rows}:
        sys.exit(f"nothing is named {', '.join(sorted(unknown))}")
    wrong = 0
    for place, name in rows:
        if not names or name in names:
            with tempfile.TemporaryDirectory() as folder:
                wrong += _row(place, name, Path(folder))
    return 1 if wrong else 0


def _row(place: str, name: str, folder: Path) -> bool:
    """Print a row; returns whether anything is wrong."""
    source, made = folder / "source", folder / "made"
    with ProcessPoolExecutor(1, get_context("spawn")) as process:  # it takes memory as well
        good = process.submit(write_named, name, place, source).result()
    if place == ARCHIVE:
        line = f"run {source} --warehouse {made} --no-prefect --embedder none --max-reject-share 1"
    else:
        line = f"import {KITS[place].name} {source} -o {made}"
    most_mb = _MOST_MB if place == ARCHIVE else _MOST_MB_OF_IMPORTS
    taken = measured([*line.split(), *_rules(place)])
    missing = [] if taken.status else good - (_scored if place == ARCHIVE else _imported)(made)
    faults = [
        *([f"failed: {taken.tail}"] if taken.status else []),
        *(["too slow"] if taken.seconds > _MOST_S else []),
        *(["too much memory"] if taken.peak_mb > most_mb else []),
        *(f"{each} is missing" for each in missing),
    ]
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    took = f"{size:>12,} B{taken.seconds:>7.1f} s{taken.peak_mb:>7,.0f} MB"
    print("  ".join([f"{place:<22}{name:<24}{took}", *faults]), flush=True)
    return bool(faults)


def _rules(place: str) -> Sequence[str]:
    return () if place in {ARCHIVE, "knowledgepulse"} else _RULES


def _scored(warehouse: Path) -> set[str]:
    return set(ask(warehouse, "SELECT trace_id FROM scores").get_column("trace_id"))


def _imported(archive: Path) -> set[str]:
    return {trace.removeprefix("kp:trace:") for trace in imported(archive)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
