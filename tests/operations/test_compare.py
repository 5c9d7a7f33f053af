"""How two runs' scores differ, in words, in files and at the edges.

The numbers of any two runs are in `tests/laws/test_comparisons.py`.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.operations.compare
from kp_batch.cli.options import json_line
from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.operations.compare import Comparison, TopChanges, compare
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.planning.scorer import FORMULAS
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support import GOLDEN
from tests.support.make.archives import step, trace, write_jsonl, write_parquet
from tests.support.make.runs import config
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore
from tests.support.read.schemas import TypeAdapter

pytestmark = pytest.mark.slow

PARTS = ("facts", "novelty", "weights", "overrides")
THOUGHT = [step("thought", "look")]
RECOVERING = [step("error_recovery", "again")] * 3
ONE_TOOL = [step("tool_call", "run it", "python"), step("thought", "look")]


class Two:
    """An archive, rescored twice."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self.warehouse = folder / "warehouse"

    def write(self, *traces: dict[str, Any], name: str = "a.jsonl") -> None:
        write_jsonl(self.archive / name, traces)

    def config(self, **changes: Any) -> RescoreConfig:
        return config(self.folder, self.archive, **{"max_reject_share": 1, **changes})

    def run(self, **changes: Any) -> str:
        return rescore_archive(self.config(**changes)).run_id

    def profiles(self, *weights: tuple[str, tuple[float, ...]]) -> Path:
        path = self.folder / f"{abs(hash(weights))}.toml"
        lines = [
            f"[profiles.{name}]\n"
            + "".join(
                f"{dimension} = {value!r}\n"
                for dimension, value in zip(DIMENSIONS, four, strict=True)
            )
            for name, four in weights
        ]
        path.write_text("".join(lines))
        return path


def compared(warehouse: Path, first: str, second: str, **how: bool) -> Comparison:
    return compare(warehouse, first, second, **how)


def joined(warehouse: Path, first: str, second: str) -> pl.DataFrame:
    """Both runs' scores, the second's columns ending in _2."""
    one, two = (published(warehouse, run).scan("scores").collect() for run in (first, second))
    return one.join(two, on="trace_id", suffix="_2").sort("trace_id")


def in_code(number: int, **changes: Any) -> dict[str, Any]:
    defaults = {"id": f"t{number}", "created_at": f"2026-01-05T0{number}:00:00Z"}
    return trace(**{**defaults, "objective": f"fix part {number % 4}", **changes})


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Two, str, str]:
    """All that can move a score has moved: facts, novelty, weights, overrides, domains, ids."""
    two = Two(tmp_path_factory.mktemp("comparing"))
    two.write(
        in_code(0, steps=THOUGHT),
        in_code(1, steps=THOUGHT),
        in_code(2),
        in_code(3, steps=RECOVERING, confidence=0.9),
        in_code(4, task_domain="finance", confidence=0.2),
        in_code(5, task_domain="finance"),
        in_code(6, task_domain="poetry"),
        in_code(7, steps=ONE_TOOL),
        in_code(8, id="only in the first"),
    )
    first = two.run(threshold=0.6)
    two.write(
        in_code(0, steps=THOUGHT, objective="other words"),
        in_code(1, steps=ONE_TOOL),
        in_code(2, steps=THOUGHT),
        in_code(3, steps=RECOVERING[:2], confidence=0.9),
        in_code(4, task_domain="finance", confidence=1.0),
        in_code(5, task_domain="finance"),
        in_code(6, task_domain="code"),
        in_code(7, steps=ONE_TOOL),
        in_code(8, id="only in the second"),
        in_code(9, id="in the second, too"),
    )
    weights = two.profiles(("code", (0.1, 0.6, 0.1, 0.2)), ("finance", (0.3, 0.3, 0.3, 0.1)))
    second = two.run(threshold=0.45, cache_size=2, profiles=weights)
    (two.archive / "a.jsonl").unlink()
    two.write(in_code(1), name="b.jsonl")
    two.run(prune=True)  # and what was compared is not what is published
    return two, first, second


def test_all_that_can_move_a_score_is_reported(moved: tuple[Two, str, str]) -> None:
    two, first, second = moved
    comparison = compared(two.warehouse, first, second)
    assert (comparison.before_threshold, comparison.after_threshold) == (0.6, 0.45)
    assert (comparison.only_before, comparison.only_after) == (1, 2)
    everything = comparison.domains[0]
    assert everything["now_reach"] > everything["now_reach_by_threshold"] > 0
    assert min(everything["rose"], everything["fell"], everything["stayed"]) > 0
    assert all(abs(everything[f"from_{part}"]) > 1e-6 for part in PARTS)
    single = {mover["trace_id"]: mover["single_thought"] for mover in comparison.movers}
    assert {trace_id: side for trace_id, side in single.items() if side} == {
        "t1": "before",
        "t2": "after",
    }


def test_backwards_all_is_the_other_way_round(moved: tuple[Two, str, str]) -> None:
    two, first, second = moved
    there, back = compared(two.warehouse, first, second), compared(two.warehouse, second, first)
    one, other = there.domains[0], back.domains[0]
    against = {"rose": "fell", "fell": "rose", "stayed": "stayed", "now_reach": "no_longer_reach"}
    assert [one[name] for name in against] == [other[name] for name in against.values()]
    changes = {mover["trace_id"]: mover["change"] for mover in there.movers}
    assert {mover["trace_id"]: -mover["change"] for mover in back.movers} == changes


def test_a_run_compared_with_itself_has_not_moved(moved: tuple[Two, str, str]) -> None:
    two, _, second = moved
    comparison = compared(two.warehouse, second, second)
    assert comparison.changes == comparison.movers == ()
    assert comparison.only_before == comparison.only_after == 0
    for row in comparison.domains:
        assert [row[f"from_{part}"] for part in PARTS] == [0.0] * 4
        assert (row["rose"], row["fell"], row["stayed"]) == (0, 0, row["traces"])
        assert row["now_reach"] + row["no_longer_reach"] == 0
    assert comparison.domains[0]["rank_correlation"] == pytest.approx(1.0)
    lines = str(comparison).splitlines()
    assert "nothing differs between the runs" in lines
    assert "  no stability index: below 200 traces it is mostly chance" in lines
    assert lines[-3:] == ["no trace crossed the threshold 0.45", "", "no score moved"]


def test_a_person_reads_what_a_program_reads(moved: tuple[Two, str, str]) -> None:
    two, first, second = moved
    comparison = compared(two.warehouse, first, second)
    lines = str(comparison).splitlines()
    user = current_user()
    assert lines[:2] == [f"from {first} by {user}", f"to   {second} by {user}"]
    assert lines[2] == "  8 traces in both, 1 only in the first, 2 only in the second"
    means = [
        published(two.warehouse, run).scan("scores").collect()["score"].mean()
        for run in (first, second)
    ]
    assert [comparison.before_mean, comparison.after_mean] == pytest.approx(means, abs=1e-12)
    shown = " \N{RIGHTWARDS ARROW} ".join(f"{mean:.4f}" for mean in means)
    assert lines[3] == f"  mean score of all traces: {shown}"
    named = ["all", "code", "finance"]
    crossed = [row["task_domain"] or "all" for row in comparison.domains if row["now_reach"]]
    starts = [line.split()[0] for line in lines if re.match("  (?!no )", line)]
    tables = starts[starts.index("domain") :]
    movers = [word for mover in comparison.movers for word in (mover["trace_id"], "(its")]
    assert [table.replace("(a", "(its") for table in tables] == [
        *("domain", *named, "domain", *crossed, "domain", *named),
        *("trace", *movers),
    ]
    assert max(map(len, lines)) <= 120


def test_it_shows_what_differs_between_the_runs(moved: tuple[Two, str, str]) -> None:
    two, first, second = moved
    there, back = compared(two.warehouse, first, second), compared(two.warehouse, second, first)
    known = {(change.code, change.of): (change.old, change.new) for change in there.changes}
    assert list(known) == [
        *(("cache_size", None), ("threshold", None)),
        *(("weights", "code"), ("weights", "finance"), ("files_changed", None)),
    ]
    assert known["threshold", None] == (0.6, 0.45)
    assert known["cache_size", None] == (1000, 2)
    assert known["weights", "code"][1] == dict(zip(DIMENSIONS, (0.1, 0.6, 0.1, 0.2), strict=True))
    other = {(change.code, change.of): (change.new, change.old) for change in back.changes}
    assert other == known | {("files_changed", None): (1, None)}
    lines = str(there).splitlines()
    begin = lines.index("what differs:")
    assert lines[begin + 1 : begin + 6] == [f"  {change.words}" for change in there.changes]
    assert lines[begin + 2] == "  threshold 0.6 \N{RIGHTWARDS ARROW} 0.45"


def file_changes(comparison: Comparison) -> dict[str, int]:
    return {change.code.removeprefix("files_"): change.new for change in comparison.changes}


def test_it_shows_what_became_of_the_files(tmp_path: Path) -> None:
    two = Two(tmp_path)
    names = [f"{stem}.jsonl" for stem in ("same", "changed", "broken", "gone", "later", "long ago")]
    for number, name in enumerate(names):
        two.write(in_code(number), name=name)
    two.run()
    (two.archive / "long ago.jsonl").unlink()
    for name in ("never read.jsonl", "always broken.jsonl"):
        (two.archive / name).write_bytes(b"")
    first = two.run()
    two.write(in_code(1, confidence=0.1), name="changed.jsonl")
    two.write(in_code(6), name="new.jsonl")
    two.write(in_code(7), name="never read.jsonl")
    (two.archive / "broken.jsonl").write_bytes(b"")
    (two.archive / "gone.jsonl").unlink()
    second = two.run()
    comparison = compared(two.warehouse, first, second)
    assert file_changes(comparison) == {"new": 1, "changed": 2, "gone": 1, "unreadable": 1}
    lines = str(comparison).splitlines()
    head = lines.index("only the archive differs:")
    assert lines[head + 1 : head + 3] == ["  1 file new", "  2 files changed"]
    for number, name in ((2, "broken.jsonl"), (3, "gone.jsonl")):
        two.write(in_code(number), name=name)
    (two.archive / "later.jsonl").unlink()
    third = two.run(prune=True)
    assert file_changes(compared(two.warehouse, second, third)) == {
        "back": 2,
        "gone": 1,
        "pruned": 2,
    }
    last = file_changes(compared(two.warehouse, first, third))
    assert last == {"new": 1, "changed": 2, "gone": 1, "pruned": 2}
    fourth = two.run(exclude=("gone.jsonl",))
    assert file_changes(compared(two.warehouse, third, fourth)) == {"excluded": 1}


def outcomes(number: int, domain: str, confidence: float) -> dict[str, Any]:
    """A trace whose score is its confidence, where the outcome has all the weight."""
    steps = [step("thought", "a"), step("observation", "b")]
    changes = {"id": f"Zwölf {number}", "task_domain": domain, "steps": steps}
    return in_code(number % 10, **changes, confidence=confidence)


@pytest.fixture(scope="module")
def confident(tmp_path_factory: pytest.TempPathFactory) -> tuple[Two, str, str, str, str]:
    """Scores that are known: in the third run all are one; in the fourth are other traces."""
    two = Two(tmp_path_factory.mktemp("confident"))
    profiles = two.profiles(("default", (0.0, 0.0, 0.0, 1.0)))

    def run(*traces: dict[str, Any], threshold: float = 0.5) -> str:
        two.write(*traces)
        usual = {"embedder": "none", "profiles": profiles, "max_removed": "100%"}
        return two.run(**usual, threshold=threshold)

    moves = [(0.1, 0.3), (0.3, 0.1), (0.5, 0.5), (0.55, 0.7), (0.7, 0.65), (0.8, 0.9)]
    edges = (0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0)  # of bins, and both thresholds
    either = [
        [
            ("one", 0.8),
            *(("any", was) for was, _ in moves),
            *(("edges", was) for was in edges),
            *(("many", n / 185) for n in range(185)),
        ],
        [
            ("one", 0.1),
            *(("any", now) for _, now in moves),
            *(("edges", was) for was in reversed(edges)),
            *(("many", 0.05 + n / 200) for n in range(185)),
        ],
    ]
    thoughts = [{"task_domain": "thoughts", "id": f"thought {n}"} for n in range(3)]
    last = [(n, f"d{n:02d}") for n in range(60)]
    before, after = ([outcomes(n, *row) for n, row in enumerate(rows)] for rows in either)
    return (
        two,
        run(*before, *(in_code(n, **row) for n, row in enumerate(thoughts)), threshold=0.6),
        run(*after, *(in_code(n, **row, steps=THOUGHT) for n, row in enumerate(thoughts))),
        run(*(outcomes(n, domain, 0.9) for n, (domain, _) in enumerate(either[0]))),
        run(
            *(in_code(n % 10, id=domain, task_domain=domain) for n, domain in last),
            in_code(1, id="x", task_domain="d59"),
            in_code(1, id="y", task_domain="d58"),
        ),
    )


def test_rising_and_crossing_are_counted_separately(
    confident: tuple[Two, str, str, str, str],
) -> None:
    """A bin begins at its lower edge, the last one ends at 1; what equals a threshold meets it.

    Of those that cross, those that would not have with the first threshold are counted.
    """
    two, first, second, third, _ = confident
    comparison = compared(two.warehouse, first, second)
    domains = {row["task_domain"]: row for row in comparison.domains}
    row, edges = domains["any"], domains["edges"]
    assert (row["rose"], row["fell"], row["stayed"]) == (3, 2, 1)
    assert (row["now_reach"], row["now_reach_by_threshold"]) == (2, 1)  # 0.55 to 0.7, and 0.5
    assert (row["no_longer_reach"], row["no_longer_reach_by_threshold"]) == (0, 0)
    assert [row["stability_index"] is None for row in comparison.domains] == [False, *[True] * 5]
    assert (edges["now_reach"], edges["no_longer_reach"]) == (4, 3)
    text = str(comparison)
    assert "which traces crossed the threshold 0.6 \N{RIGHTWARDS ARROW} 0.5:" in text
    assert "of these by its move" in text
    back = compared(two.warehouse, second, first)
    [row] = [row for row in back.domains if row["task_domain"] == "any"]
    assert (row["no_longer_reach"], row["no_longer_reach_by_threshold"]) == (2, 2)
    text = str(compared(two.warehouse, second, third))
    assert "which traces crossed the threshold 0.5:" in text
    assert "by its move" not in text


def test_one_trace_and_scores_that_are_all_one_have_no_rank_correlation(
    confident: tuple[Two, str, str, str, str],
) -> None:
    two, first, second, third, _ = confident
    comparison = compared(two.warehouse, first, second)
    has_none = {row["task_domain"] for row in comparison.domains if row["rank_correlation"] is None}
    assert has_none == {"one", "thoughts"}
    text = str(comparison)
    assert "  no rank corr: all scores of a run are equal, and have no order" in text.splitlines()
    assert "nan" not in text
    assert "NaN" not in json_line(comparison)
    comparison = compared(two.warehouse, first, third)
    assert {row["rank_correlation"] for row in comparison.domains} == {None}


def test_no_trace_in_both_is_no_error(confident: tuple[Two, str, str, str, str]) -> None:
    two, _, _, third, fourth = confident
    comparison = compared(two.warehouse, third, fourth)
    assert (comparison.in_both, comparison.only_before, comparison.only_after) == (0, 200, 62)
    assert comparison.domains == comparison.movers == ()
    assert "0 traces in both, 200 only in the first" in str(comparison)


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv", "-"])
def test_the_traces_that_crossed_the_threshold_are_written(
    confident: tuple[Two, str, str, str, str], tmp_path: Path, ending: str
) -> None:
    two, first, second, *_ = confident
    output = "-" if ending == "-" else str(tmp_path / f"crossed.{ending}")
    runs = ("compare", first, second, "--warehouse", str(two.warehouse))
    done = invoke(*runs, "--crossed", "-o", output)
    read = {"jsonl": pl.read_ndjson, "parquet": pl.read_parquet, "csv": pl.read_csv}
    if ending == "-":
        rows = pl.read_ndjson(done.stdout.encode())
        assert "which traces crossed the threshold 0.6" in done.stderr
    else:
        rows = read[ending](Path(output))
        assert "which traces crossed the threshold 0.6" in done.stdout
    both = joined(two.warehouse, first, second)
    up = (pl.col("score") < 0.6) & (pl.col("score_2") >= 0.5)
    down = (pl.col("score") >= 0.6) & (pl.col("score_2") < 0.5)
    wanted = both.filter(up | down).select(
        "trace_id",
        task_domain="task_domain_2",
        crossed=pl.when(up).then(pl.lit("up")).otherwise(pl.lit("down")),
        by_threshold=(pl.col("score") >= 0.6) == (pl.col("score_2") >= 0.6),
        before_score="score",
        after_score="score_2",
        change=pl.col("score_2") - pl.col("score"),
    )
    assert len(wanted) > 5
    assert set(wanted["crossed"]) == {"up", "down"}
    assert rows.select(wanted.columns).equals(wanted)
    change = rows.select(pl.sum_horizontal(f"from_{part}" for part in PARTS)).to_series()
    assert change.to_list() == pytest.approx(wanted["change"].to_list(), abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--crossed"], "--crossed and -o FILE go together"),
        (["-o", "a.csv"], "--crossed and -o FILE go together"),
        (
            ["--crossed", "-o", "a.txt"],
            "the file must end with .jsonl, .parquet or .csv, or be - for",
        ),
        (["--crossed", "-o", "-", "--json"], "--json and -o - both write to stdout"),
    ],
)
def test_where_the_traces_that_crossed_go_has_to_be_clear(
    confident: tuple[Two, str, str, str, str], options: list[str], message: str
) -> None:
    two, first, second, *_ = confident
    done = invoke("compare", first, second, "--warehouse", str(two.warehouse), *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_traces_that_crossed_replace_no_file_of_the_archive(
    confident: tuple[Two, str, str, str, str],
) -> None:
    two, first, second, *_ = confident
    [*before] = two.archive.iterdir()
    output = str(two.archive / "crossed.jsonl")
    runs = ("compare", first, second, "--warehouse", str(two.warehouse))
    done = invoke(*runs, "--crossed", "-o", output)
    assert done.returncode == 1
    assert "which the next run reads" in done.stderr
    assert [*two.archive.iterdir()] == before


def test_of_many_domains_the_largest_are_shown(confident: tuple[Two, str, str, str, str]) -> None:
    two, *_, run = confident
    lines = str(compared(two.warehouse, run, run)).splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  d")]
    assert shown == ["domain", *(f"d{n:02d}" for n in range(48)), "d58", "d59"]
    assert "  10 more domains, with fewer traces: see --json, or domains in Python" in lines


ODD = "say \x1b[31mred\x1b[0m,\n then " + "x" * 300
NAMES = ("same", "gone", "changed", "unreadable", "put back")


@pytest.fixture(scope="module")
def read_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Two, str, str]:
    """Ten traces that moved: in JSONL, and in Parquet in several row groups."""
    two = Two(tmp_path_factory.mktemp("objectives") / "made")

    def run(confidence: float) -> str:
        changes = {"confidence": confidence}
        refused = trace(id="none", confidence=7.0)
        two.write(refused, in_code(5, id="odd", objective=ODD, **changes), in_code(6))
        two.write(in_code(7, id="large", objective="long" * 10_000, **changes), name="large.jsonl")
        traces = [in_code(n, objective=f"in {n}", **changes) for n in (7, 8, 9)]
        write_parquet(two.archive / "b.parquet", traces, row_group_size=1)
        for n, name in enumerate(NAMES):
            two.write(in_code(n, id=name, **changes), name=f"{name}.jsonl")
        return two.run(embedder="none")

    first, second = run(0.9), run(0.2)
    keep(two.folder)
    return two, first, second


@pytest.fixture
def reread(read_twice: tuple[Two, str, str]) -> tuple[Two, str, str]:
    restore(read_twice[0].folder)
    return read_twice


def test_movers_are_shown_with_their_objectives(
    reread: tuple[Two, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read again from each file as it is now, but for large ones."""
    two, first, second = reread
    size = (two.archive / "large.jsonl").stat().st_size
    monkeypatch.setattr(kp_batch.operations.compare, "MAX_SHOWN_FILE_BYTES", size)
    comparison = compared(two.warehouse, first, second)
    assert {mover["trace_id"]: mover["objective"] for mover in comparison.movers} == {
        "odd": ODD[:200],
        "large": "long" * 50,
        **{name: f"fix part {n % 4}" for n, name in enumerate(NAMES)},
        **{f"t{n}": f"in {n}" for n in (7, 8, 9)},
    }
    assert {mover["unread"] for mover in comparison.movers} == {None}
    text = str(comparison)
    assert r"    say \x1b[31mred\x1b[0m, then xxx" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120
    monkeypatch.setattr(kp_batch.operations.compare, "MAX_SHOWN_FILE_BYTES", size - 1)
    comparison = compared(two.warehouse, first, second)
    unread = {mover["trace_id"]: mover["unread"] for mover in comparison.movers if mover["unread"]}
    assert unread == {"large": "large"}
    shown = str(comparison).splitlines()
    assert "    (its file is too large to be read again for this)" in shown


def test_movers_that_are_not_shown_have_objectives_of_smaller_files_and_of_those_opened_anyway(
    reread: tuple[Two, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two, first, second = reread
    size = (two.archive / "large.jsonl").stat().st_size

    def unread() -> dict[str, str]:
        movers = compared(two.warehouse, first, second).movers
        return {mover["trace_id"]: mover["unread"] for mover in movers if mover["unread"]}

    monkeypatch.setattr(kp_batch.operations.compare, "MAX_OTHER_FILE_BYTES", size - 1)
    assert unread() == {}
    monkeypatch.setattr(kp_batch.operations.compare, "SHOWN_MOVERS", 0)
    assert unread() == {"large": "large"}
    movers = compared(two.warehouse, first, second).movers
    before = [mover["trace_id"] for mover in movers].index("large")
    monkeypatch.setattr(kp_batch.operations.compare, "SHOWN_MOVERS", before + 1)
    assert unread() == {}


def test_a_terminal_shows_ten_movers_of_more(reread: tuple[Two, str, str]) -> None:
    two, first, second = reread
    comparison = compared(two.warehouse, first, second)
    assert len(comparison.movers) == 10
    more = replace(comparison, movers=TopChanges(comparison.movers * 2))
    assert str(more) == f"{comparison}\n  10 more: see --json, or movers in Python"


def test_an_objective_that_cannot_be_read_again_says_why(reread: tuple[Two, str, str]) -> None:
    two, first, second = reread
    (two.archive / "gone.jsonl").unlink()
    two.write(in_code(2, id="changed", objective="other words"), name="changed.jsonl")
    (two.archive / "unreadable.jsonl").unlink()
    (two.archive / "unreadable.jsonl").mkdir()
    put_back = two.archive / "put back.jsonl"
    content = put_back.read_bytes()
    two.write(in_code(4, id="put back", objective="other words"), name=put_back.name)
    two.run(embedder="none")
    comparison = compared(two.warehouse, first, second)
    movers = {
        mover["trace_id"]: (mover["objective"], mover["unread"]) for mover in comparison.movers
    }
    assert {name: movers[name] for name in NAMES} == {
        "same": ("fix part 0", None),
        "gone": (None, "gone"),
        "changed": (None, "changed"),
        "unreadable": (None, "unreadable"),
        "put back": (None, "changed"),
    }
    assert "    (its file is gone from the archive)" in str(comparison).splitlines()
    put_back.write_bytes(content)
    known = {mover["trace_id"]: mover for mover in compared(two.warehouse, first, second).movers}
    assert known["put back"]["objective"] == "fix part 0"
    vacuum(two.warehouse, timedelta(days=1), datetime.now(UTC))  # the facts of that content
    known = {mover["trace_id"]: mover for mover in compared(two.warehouse, first, second).movers}
    assert (known["put back"]["objective"], known["put back"]["unread"]) == (None, "changed")
    assert known["same"]["objective"] == "fix part 0"


def test_removed_tables_do_not_compare(reread: tuple[Two, str, str]) -> None:
    two, first, second = reread
    vacuum(two.warehouse, timedelta(0), datetime.now(UTC))
    for order in ((first, second), (second, first)):
        with pytest.raises(WarehouseError, match=rf"run {first} were removed"):
            compared(two.warehouse, *order)
    assert compared(two.warehouse, second, second).movers == ()


def test_runs_are_found_by_their_places_and_beginnings(moved: tuple[Two, str, str]) -> None:
    two, first, second = moved
    with connect(two.warehouse) as connection:
        [(last,)] = connection.execute("SELECT latest()").fetchall()
    for names, meant in (
        ((first[:-1], "previous"), (first, second)),
        (("previous", "latest"), (second, last)),
    ):
        comparison = compared(two.warehouse, *names)
        assert (comparison.before, comparison.after) == meant


def test_its_json_is_the_golden_text(tmp_path: Path) -> None:
    two = Two(tmp_path)
    weights = two.profiles(("default", (0.0, 0.0, 0.0, 1.0)))
    two.write(outcomes(1, "é", 0.625), outcomes(2, "any", 0.25), outcomes(3, "any", 0.5))
    first = two.run(embedder="none", profiles=weights, threshold=0.65)
    two.write(outcomes(1, "é", 0.6875), outcomes(2, "any", 0.25), in_code(4, steps=THOUGHT))
    second = two.run(embedder="none", profiles=weights, threshold=0.65, prune=True)
    comparison = compared(two.warehouse, first, second)
    line = json_line(comparison)
    assert TypeAdapter(Comparison).validate_json(line, strict=True) == comparison
    line = line.replace(first, "FIRST").replace(second, "SECOND")
    line = line.replace(f'"{current_user()}"', '"USER"')
    assert line == (GOLDEN / "comparison.json").read_text("utf-8").rstrip()


def test_over_the_same_archive_settings_differ_and_formulas_do_not_compare_unless_forced(
    tmp_path: Path,
) -> None:
    two = Two(tmp_path)
    two.write(in_code(1), in_code(2))
    first = two.run()
    comparison = compared(two.warehouse, first, two.run(threshold=0.1))
    assert "what differs, over the same archive:" in str(comparison).splitlines()
    assert [change.code for change in comparison.changes] == ["threshold"]
    with pytest.MonkeyPatch.context() as patch:
        for module in (kp_batch.ingest.scan, kp_batch.ingest.stage):
            patch.setattr(module, "VERSION", "-v99")
        changes = file_changes(compared(two.warehouse, first, two.run(threshold=0.75)))
        assert changes == {}  # other versions of the facts change no file
    for cache_size, formulas, embedder, difference in (
        (1, {}, "none", "encoder hashing-384-v1 \N{RIGHTWARDS ARROW} none"),
        (2, {"scoring": 99}, "hashing", "formula of scoring 1 \N{RIGHTWARDS ARROW} 99"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for formula, version in formulas.items():
                patch.setitem(FORMULAS, formula, version)
            second = two.run(cache_size=cache_size, embedder=embedder)
        refusal = rf"{first} and {second} are not comparable.*--force"
        with pytest.raises(KpBatchError, match=refusal) as why:
            compared(two.warehouse, first, second)
        assert difference in str(why.value)
        assert str(why.value).count("\N{RIGHTWARDS ARROW}") == 1
        assert compared(two.warehouse, first, second, force=True).in_both == 2


@pytest.mark.parametrize("runs", [("none", "known"), ("known", "none"), ("none", "none")])
@pytest.mark.parametrize("force", [True, False])
def test_an_unknown_run_is_reported(
    moved: tuple[Two, str, str], runs: tuple[str, str], *, force: bool
) -> None:
    two, known, _ = moved
    first, second = (known if run == "known" else "20260101T000000Z-abcdef" for run in runs)
    with fails_with(WarehouseError, "no_run", r"no run '20260101T000000Z-abcdef'"):
        compared(two.warehouse, first, second, force=force)


def test_no_warehouse_is_reported(tmp_path: Path) -> None:
    with fails_with(WarehouseError, "no_warehouse"):
        compared(tmp_path, "one", "two")
