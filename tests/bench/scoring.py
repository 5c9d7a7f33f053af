"""`kp_batch.score` beside a run over the same rows as a Parquet file, in processor time and memory.

Each line is of a process of its own, which has scored one trace before: what is imported then, and
the model, count for nothing. The memory (on Linux) is beside that of the frame and its vectors.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl

import kp_batch as kp
from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.sample.archive import write_sample
from tests.support.make.tiny_traces import Traces, write_traces

TIMES = int(os.environ.get("KP_BENCH_TIMES", "9"))
_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_VECTOR_BYTES = 384 * 4
_OFTEN = 100_000  # rows at most that are scored so often


def sample(folder: Path) -> None:
    write_sample(folder, traces=10_000)


def one(folder: Path) -> None:
    write_sample(folder, traces=1)


def tiny(folder: Path) -> None:
    write_traces(folder, Traces(1_000_000, files=1))


def long(folder: Path) -> None:
    write_traces(folder, Traces(10_000, files=1, steps=50))


KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "sample": ("10,000 traces", sample),
    "one": ("one trace", one),
    "long": ("10,000 traces of 50 steps", long),
    "tiny": ("1,000,000 tiny traces", tiny),
}


def main() -> None:
    """Print a line for each kind of frame; the arguments choose kinds, and embedder=NAME."""
    chosen = [name for name in sys.argv[1:] if name in KINDS] or list(KINDS)
    embedders = [each.partition("=")[2] for each in sys.argv[1:] if "=" in each]
    print(f"kp_batch.score, medians of {TIMES}, and a run: processor seconds; memory above a model")
    for name in chosen:
        for embedder in embedders or ["hashing", "none"]:
            command = [sys.executable, "-m", "tests.bench.scoring", "--of", name, embedder]
            subprocess.run(command, check=True)


def frame_of(name: str) -> pl.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        KINDS[name][1](Path(folder))
        paths = sorted(Path(folder).glob("*"))
        return pl.concat([pl.read_parquet(path) for path in paths]).rechunk()


def bench(name: str, embedder: str) -> None:
    frame = frame_of(name)
    taken, held = memory(frame, embedder)
    scored, ran = in_turn(frame, embedder, TIMES if len(frame) <= _OFTEN else 1)
    seconds = f"{scored:>8.2f} s{ran:>8.2f} s of a run"
    bounds = f"{taken / 1e6:>8,.0f} MB, frame and vectors {held / 1e6:>6,.0f} MB"
    print(f"  {KINDS[name][0]:<28}{embedder:<10}{seconds}{bounds}", flush=True)


def memory(frame: pl.DataFrame, embedder: str) -> tuple[int, int]:
    """The bytes that it takes to score a frame, and those of the frame and its vectors."""
    kp.score(frame[:1], embedder=embedder)
    before, peak = peak_bytes(lambda: kp.score(frame, embedder=embedder))
    vectors = (embedder != "none") * len(frame) * _VECTOR_BYTES
    # As Polars holds it: its estimate leaves out what points to the texts of lists.
    held = frame.to_arrow(compat_level=pl.CompatLevel.newest()).nbytes
    return peak - before, held + vectors


def in_turn(frame: pl.DataFrame, embedder: str, times: int) -> tuple[float, float]:
    """The processor seconds to score a frame, and of a run over it, in the median."""
    seconds: dict[str, list[float]] = {"score": [], "run": []}
    for _ in range(times):
        seconds["score"].append(processor_seconds(lambda: kp.score(frame, embedder=embedder)))
        with tempfile.TemporaryDirectory() as folder:
            archive, warehouse = Path(folder) / "traces.parquet", Path(folder) / "warehouse"
            frame.write_parquet(archive)
            config = RescoreConfig(archive=(str(archive),), warehouse=warehouse, embedder=embedder)
            seconds["run"].append(processor_seconds(lambda: rescore_archive(config)))  # noqa: B023
    return median(seconds["score"]), median(seconds["run"])


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def peak_bytes(work: Callable[[], object]) -> tuple[int, int]:
    """The memory before some work, and the greatest meanwhile."""
    _REFS.write_text("5")  # the greatest so far is that of now
    before = _status("VmRSS:")
    work()
    return before, _status("VmHWM:")


def _status(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--of"]:
        bench(*sys.argv[2:4])
    elif sys.argv[1:2] == ["--memory"]:
        print(*memory(frame_of(sys.argv[2]), sys.argv[3]))
    else:
        main()
