"""`make bench`: each figure beside something that does comparable work in the same run.

KP_BENCH_TRACES sets the size of the archive that commands run over, a million traces.
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from types import MappingProxyType

from tests.bench.embedding import bench_embedding, bench_stream
from tests.bench.facts import bench_facts
from tests.bench.imports import bench_imports
from tests.bench.replay import bench_replay
from tests.bench.runs import bench_runs

YEAR = 1_000_000_000
SHARE_OF_WINDOW = 0.6  # that 16,763 real texts filled, on average
CARD = MappingProxyType({"float32": 4_015, "bf16": 8_866})  # real texts a second: docs, speed.md
BYTES_OF_VECTOR, BYTES_OF_SCORE = 384 * 4 + 2 * 64, 415


def main() -> None:
    """Print the tables."""
    windows = bench_embedding()
    bench_stream()
    bench_replay()
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        redirect_stderr(nothing),
    ):
        bench_facts(Path(folder) / "facts")
        bench_imports(Path(folder) / "imports")
        bench_runs(Path(folder) / "runs")
    on_paper(windows)


def on_paper(windows: Mapping[str, float]) -> None:
    """What a billion traces a year take, of distinct texts; see the constants.

    Args:
        windows: full windows that were embedded a second, by precision.
    """
    print("on paper, a billion traces a year")
    for precision, rate in windows.items():
        hours = YEAR * SHARE_OF_WINDOW / rate / 3_600
        print(
            f"  {'embedding here, ' + precision:<36}{hours:>12,.0f} h of {24 * 365:,} h in a year"
        )
    for precision, rate in CARD.items():
        print(f"  {'on one H200, ' + precision:<36}{YEAR / rate / 3_600:>12,.1f} h")
    for what, size in (("vectors", BYTES_OF_VECTOR), ("scores", BYTES_OF_SCORE)):
        print(f"  {what:<36}{YEAR * size / 1e12:>12,.2f} TB")


if __name__ == "__main__":
    main()
