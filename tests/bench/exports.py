"""Exports of tiny traces in each format, beside one of the traces: `python -m tests.bench.exports`.

Each format is measured over traces that have the ids of its system. Seconds are those of all
processors, so other work on the machine hardly counts.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from kp_batch.exports.formats import FORMATS
from kp_batch.pipeline.rescore import rescore_archive
from tests.bench.measuring import Measured, measured
from tests.support.make.runs import config
from tests.support.make.tiny_traces import Traces, write_traces

TRACES, ROUNDS = 100_000, 2
_NUMBER = pl.col("id").str.tail(12)
_UUID = pl.format("00000000-0000-4000-8000-{}", _NUMBER)
# The id of a trace in its system, and the column native.
_IDS: Mapping[str, tuple[pl.Expr, Mapping[str, pl.Expr]]] = {
    "langsmith": (_UUID, {"root": _UUID}),
    "inspect": (
        pl.format("sample {}", _NUMBER),
        {"log": pl.lit("log"), "sample": _NUMBER, "epoch": pl.lit(1, pl.Int64)},
    ),
    "otlp": (pl.format(f"{'a' * 20}{{}}", _NUMBER), {"root": pl.format("aaaa{}", _NUMBER)}),
}


def main() -> None:
    """Print the table; the argument is the number of traces."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else TRACES
    with tempfile.TemporaryDirectory() as folder:
        bench_exports(Path(folder), number)


def bench_exports(folder: Path, number: int) -> None:
    print(f"exports of {number:,} tiny traces, the least of {ROUNDS}")
    for system in _IDS:
        write_archive(folder / system / "archive", system, number)
        run = config(folder / system, folder / system / "archive", embedder="none")
        rescore_archive(run)
        others = [name for name in FORMATS if name != "traces" and name not in _IDS]
        compare(run.warehouse, ["traces", *(others if system == "otlp" else [system])])


def write_archive(folder: Path, system: str, number: int) -> None:
    """Write tiny traces with the ids of a system, and what registries require."""
    write_traces(folder, Traces(number, days=30, files=2, letters=21))
    id_, native = _IDS[system]
    for path in folder.iterdir():
        shared = {"visibility": pl.lit("network"), "privacy_level": pl.lit("aggregated")}
        named = {
            "id": pl.format("kp:trace:{}", id_),
            "native": pl.struct(system=pl.lit(system), **native),
            "metadata": pl.col("metadata").struct.with_fields(**shared),
            "outcome": pl.col("outcome").struct.with_fields(result_summary=pl.lit("done")),
        }
        pl.read_parquet(path).with_columns(**named).write_parquet(path)


def compare(warehouse: Path, formats: Sequence[str]) -> None:
    """Print what each format takes, and the ratio of its seconds to the first one's."""
    first = 0.0
    for name in formats:
        rounds = [exported(warehouse, name) for _ in range(ROUNDS)]
        written = json.loads(rounds[0].tail.splitlines()[-1])["exported"]
        seconds = min(each.processor_s for each in rounds)
        first = first or seconds
        print(
            f"  {name:<12}{written:>12,} written{seconds:>9.1f} s{seconds / first:>9.2f} of traces"
            f"{max(each.peak_mb for each in rounds):>9,.0f} MB",
            flush=True,
        )


def exported(warehouse: Path, name: str) -> Measured:
    path = warehouse.parent / f"out{next(iter(FORMATS[name].files))}"
    words = ["export", "--warehouse", str(warehouse), "--format", name, "--min-score", "0"]
    done = measured([*words, "-o", str(path), "--json"])
    path.unlink()
    return done


if __name__ == "__main__":
    main()
