"""Large and odd archives through the command line: `python -m tests.bench.large SCENARIO`.

A row is one command: what it does, its exit status, its seconds, and the peak of the anonymous
memory of all of its processes in MB. A row whose command fails, or whose memory passes its bound,
is marked, and the exit status is 1. `--folder` keeps archives and warehouses; `--traces` and
`--embedder` set the size of the scenarios that have one.

night      traces of ten years, then nothing to do, then 1% more, then other weights
ten-years  a file a day: with vectors, with a ttl, without vectors; and a night each
odd        one day, many domains, many files, one endless trace, long ids
commands   every command on one warehouse
growth     the night at a hundred thousand, a million and ten million traces, with vectors: it takes
           40 GB of disk and a quarter of an hour (`make bench-full`)
worst      the worst of all these at sizes of a minute or so: part of `make torture`
"""

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tests.bench.measuring import measured
from tests.support import ROOT
from tests.support.make.tiny_traces import BEGIN, DAY, Traces, write_traces

_RUN = "run $archive --warehouse $warehouse --report --no-prefect"
_WEIGHTS = """[profiles.default]
complexity = 0.4
novelty = 0.3
tool_diversity = 0.2
outcome_confidence = 0.1
"""
_NEW = (
    '{"metadata": {"task_domain": "default", "success": true}, "task": {"objective": "task %d"}, '
    '"steps": [{"type": "thought", "content": "x"}], "outcome": {"confidence": 0.5}}\n'
)


@dataclass(frozen=True)
class Command:
    """One command line; what the archive gains before it."""

    what: str
    line: str  # after `kp-batch`, with the names of `_places`
    adds: tuple[Traces, ...] = ()


@dataclass(frozen=True)
class Case:
    """Commands on one archive and one warehouse, each within the same bound."""

    name: str
    most_mb: int  # of anonymous memory
    commands: tuple[Command, ...]


def night(traces: int, embedder: str) -> Case:
    """A run over ten years, and what comes after it."""
    run = f"{_RUN} --embedder {embedder}"
    more = traces // 100
    late = Traces(more, first=traces, days=1, files=1, begin=BEGIN + 3_650 * DAY)
    commands = (
        Command("run", run, (Traces(traces),)),
        Command("nothing to do", run),
        Command(f"{more:,} more", run, (late,)),
        Command("other weights", f"{run} --profiles $profiles"),
    )
    return Case(f"{traces:,} traces, {embedder}", _bound_mb(traces), commands)


def ten_years(traces: int, settings: str) -> Case:
    """A file a day for ten years, and the next night."""
    run = f"{_RUN} {settings}"
    late = Traces(200, first=traces, days=1, files=1, begin=BEGIN + 3_650 * DAY)
    commands = (
        Command("run", run, (Traces(traces, files=3_650),)),
        Command("200 more", run, (late,)),
    )
    return Case(f"{traces:,} traces in 3,650 daily files, {settings}", 1_500, commands)


def commands(traces: int, embedder: str) -> Case:
    """Every command on one warehouse."""
    at, settings = "--warehouse $warehouse", f"--embedder {embedder}"
    run = f"{_RUN} {settings}"
    return Case(
        f"{traces:,} traces, {embedder}, every command",
        _bound_mb(traces),
        (
            Command("run", run, (Traces(traces, domains=6, texts=traces // 2),)),
            Command("run --preview", f"{run} --profiles $profiles --preview"),
            Command("run, other weights", f"{run} --profiles $profiles"),
            Command("run --audits", f"{run} --audits $audits"),
            Command("audit", f"audit {at}"),
            Command("rollback", f"rollback previous {at}"),
            Command("plan", f"plan $archive {at} {settings}"),
            Command("plan --json", f"plan $archive {at} {settings} --cache-size 10 --json"),
            Command("runs", f"runs {at}"),
            Command("sql", f"sql 'FROM score_distribution' {at}"),
            Command("sql --as-of", f"sql 'SELECT avg(score) FROM scores' {at} --as-of previous"),
            Command("report", f"report {at} --format markdown"),
            Command("compare", f"compare previous latest {at}"),
            Command("verify", f"verify {at} --seed 1"),
            Command("explain", f"explain kp:trace:00000{traces // 2:06d} {at}"),
            Command("score", f"score $new {at}"),
            Command("similar", f"similar kp:trace:00000{traces // 2:06d} {at}"),
            Command("redundancy", f"redundancy {at}"),
            Command("sweep", f"sweep {at} --cache-size 200,1000 --ttl none,7d --threshold 0.7"),
            Command("forget", f"forget kp:trace:00000000000 kp:trace:00000000077 {at}"),
            Command("vacuum", f"vacuum --keep 1s {at}"),
            Command("catalog", f"catalog {at}"),
        ),
    )


def odd(traces: int, embedder: str) -> list[Case]:
    """Archives of unusual shape."""
    endless = Traces(1, days=1, files=1, steps=traces // 10, first=traces)
    shapes: Mapping[str, tuple[Traces, ...]] = {
        "one day": (Traces(traces, days=1),),
        "a domain for each trace": (Traces(traces, domains=traces),),
        "files of ten traces": (Traces(traces, files=traces // 10),),
        "one trace of endless steps": (Traces(traces // 100), endless),
        "ids of 10,000 letters": (Traces(traces // 50, letters=10_000),),
    }
    run = f"{_RUN} --embedder {embedder}"
    return [
        Case(
            f"{sum(part.number for part in shape):,} traces, {embedder}: {name}",
            1_500,
            (Command("run", run, shape), Command("nothing to do", run)),
        )
        for name, shape in shapes.items()
    ]


def _bound_mb(traces: int) -> int:
    """A million traces and the libraries take a fixed part; from there on, a little grows."""
    return 1_500 + max(0, traces - 1_000_000) // 20_000


_TEN_YEARS = ("--embedder hashing", "--embedder hashing --ttl 2m", "--embedder none")
# By name: its cases, from the number of traces and the embedder.
SCENARIOS: Mapping[str, Callable[[int | None, str], list[Case]]] = {
    "night": lambda traces, embedder: [night(traces or 10_000_000, embedder)],
    "ten-years": lambda traces, _: [
        ten_years(traces or 100_000, options) for options in _TEN_YEARS
    ],
    "odd": lambda traces, embedder: odd(traces or 1_000_000, embedder),
    "commands": lambda traces, embedder: [commands(traces or 10_000_000, embedder)],
    "growth": lambda _, __: [night(10**power, "hashing") for power in (5, 6, 7)],
    "worst": lambda _, embedder: [
        night(1_000_000, embedder),
        ten_years(10_000, _TEN_YEARS[1]),
        *odd(30_000, embedder),
        commands(30_000, "hashing"),
    ],
}


def main(arguments: Sequence[str]) -> int:
    """Carry a scenario out; returns the exit status."""
    parser = argparse.ArgumentParser("python -m tests.bench.large", usage=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--traces", type=int)
    parser.add_argument("--embedder", default="none")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    cases = SCENARIOS[options.scenario](options.traces, options.embedder)
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number, case in enumerate(cases):
            folder = (options.folder or Path(temporary)) / str(number)
            wrong += carry_out(case, folder)
            if not options.folder:
                shutil.rmtree(folder)
    return 1 if wrong else 0


def carry_out(case: Case, folder: Path) -> int:
    """Print a row for each command of a case; returns how many are wrong."""
    print(f"{case.name} (at most {case.most_mb:,} MB)", flush=True)
    wrong = 0
    for command in case.commands:
        for traces in command.adds:
            write_traces(folder / "archive", traces)
        taken = measured(shlex.split(Template(command.line).substitute(_places(folder))))
        faults = [
            *([f"failed: {taken.tail}"] if taken.status else []),
            *(["too much memory"] if taken.peak_mb > case.most_mb else []),
        ]
        took = f"{taken.status:>4}{taken.seconds:>9.1f} s{taken.peak_mb:>9,.0f} MB"
        print("  ".join([f"  {command.what:<20}{took}", *faults]), flush=True)
        wrong += bool(faults)
    return wrong


def _places(folder: Path) -> dict[str, str]:
    """The files and folders that command lines name."""
    profiles, new = folder / "profiles.toml", folder / "new.jsonl"
    profiles.write_text(_WEIGHTS)
    new.write_text("".join(_NEW % number for number in range(1_000)))
    places = {name: str(folder / name) for name in ("archive", "warehouse")}
    audits = ROOT / "data" / "audits.toml"
    return {**places, "profiles": str(profiles), "new": str(new), "audits": str(audits)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
