"""The command line as a user meets it: real processes, the real flow, a real Prefect."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.shell_completion import BashComplete
from filelock import FileLock, Timeout

from kp_batch.cli import kp_batch as group
from kp_batch.cli import run as rescoring
from kp_batch.config import RescoreConfig
from kp_batch.conversion.formats import FORMATS
from kp_batch.errors import ArchiveError, ResourceError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.build import leave_report
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.author import current_user
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.publication import rebuild
from kp_batch.warehouse.questions import questions
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support import GOLDEN
from tests.support.make.archives import trace, write_jsonl, write_parquet
from tests.support.make.publications import files_of, publish_nothing
from tests.support.processes.commands import (
    check_signal,
    command,
    invoke,
    linux,
    until,
    working,
)
from tests.support.processes.holder import HOLD, holding
from tests.support.read.folders import contents, listing

PLANNED = [
    "reasons",
    "files",
    "excluded_kept",
    "rows_of_earlier",
    "rows_rejected",
    "rejected_by_code",
    "excess",
    "unused_profiles",
    "cache_by",
    "caches",
    "traces_without_value",
    "texts_to_embed",
    "traces_to_replay",
    "traces_to_rescore",
    "traces_to_reweight",
    "traces_to_remove",
    "loss",
    "pruned",
    "domains",
    "largest_domains",
    "by_domain_and_day",
    "partitions",
    "future_partitions",
    "pending",
    "estimated_seconds",
]


@dataclass(frozen=True)
class Scored:
    """A warehouse of two runs; the second rescored the first day alone, with another cache."""

    archive: Path
    warehouse: Path
    runs: tuple[str, str]
    settings: tuple[object, ...]  # of the second run

    @property
    def run(self) -> list[object]:
        """What has nothing to do."""
        return ["run", self.archive, "--warehouse", self.warehouse, *self.settings]

    def copy(self, folder: Path) -> "Scored":
        shutil.copytree(self.warehouse, folder)
        rebuild(folder)
        return Scored(self.archive, folder, self.runs, self.settings)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Scored:
    """Made without Prefect."""
    warehouse = tmp_path_factory.mktemp("scored") / "ware house's é"
    usual = {"archive": (str(archive),), "warehouse": warehouse, "embedder": "hashing"}
    first = rescore_archive(RescoreConfig(**usual))
    second = rescore_archive(RescoreConfig(**usual, cache_size=5))
    settings = ("--embedder", "hashing", "--cache-size", 5)
    return Scored(archive, warehouse, (first.run_id, second.run_id), settings)


def test_runs_shows_the_clock_of_the_summary_up_to_publication(scored: Scored) -> None:
    listed = json.loads(invoke("runs", "--warehouse", scored.warehouse, "--json").stdout)
    with connect(scored.warehouse) as connection:
        query = "SELECT run_id, seconds FROM runs"
        seconds_by_run = {
            name: json.loads(text) for name, text in connection.execute(query).fetchall()
        }
    for row in listed:
        seconds = seconds_by_run[row["run_id"]]
        assert row["seconds"] == pytest.approx(sum(seconds.values()), abs=0.051)
        assert row["work"] == pytest.approx(sum(seconds.values()) - seconds["start"], abs=0.051)


def test_run_says_that_there_was_nothing_to_do(scored: Scored) -> None:
    invoke(*scored.run)  # it writes the page, should no run have written it yet
    done = invoke(*scored.run)
    line = "nothing to do: 120 scores are up to date\n"
    assert (done.stdout, done.stderr) == (line, "")
    assert invoke(*scored.run, "--quiet").stdout == ""
    summary = json.loads(invoke(*scored.run, "--json").stdout)
    assert (summary["run_id"], summary["counts"]["accepted"]) == (None, 120)
    assert not (scored.warehouse / "prefect").exists()


@pytest.mark.parametrize("is_json", [False, True])
def test_plan_shows_what_a_run_would_do_and_changes_nothing(
    scored: Scored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_json: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = contents(scored.warehouse)
    plan = ["plan", scored.archive, "--warehouse", scored.warehouse, "--cache-size", "1000"]
    done = invoke(*plan, *["--json"] * is_json)
    assert done.returncode == 0, done.stderr
    if is_json:
        answer = json.loads(done.stdout)
        assert list(answer) == PLANNED
        assert (answer["partitions"], answer["pending"]) == (
            [f"2026-01-{day:02d}" for day in (5, 6, 7, 8)],
            ["settings", "scores"],
        )
        assert (answer["traces_to_replay"], answer["traces_to_reweight"]) == (114, 0)  # 6 met all
    else:
        lines = done.stdout.splitlines()
        assert lines[0].startswith(
            "plan: rescore 120 traces (customer_service 47, legal 26, medical "
        )
        assert lines[1:2] == [
            "  why        cache size 5 \N{RIGHTWARDS ARROW} 1000",
        ]
        assert any(line.startswith("  rewrite    4 partitions: 2026-01-05, ") for line in lines)
    assert contents(scored.warehouse) == before
    assert list(tmp_path.iterdir()) == []


def test_plan_makes_no_warehouse(tmp_path: Path, archive: Path) -> None:
    plan = ["plan", archive, "--warehouse", tmp_path / "wh" / "within", "--embedder", "hashing"]
    done = invoke(*plan)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("plan: rescore 120 traces (")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.usefixtures("no_page")
def test_a_run_that_waits_works_once_the_other_has_ended_and_publishes_nothing_if_nothing_is_to_do(
    scored: Scored, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_report(scored.warehouse, ThreadExecutor())
    before = contents(scored.warehouse)
    waits: list[float] = []

    def acquire(lock: FileLock, timeout: float) -> Any:
        with pytest.raises(Timeout):
            wait(lock, 0)
        waits.append(timeout)
        assert holder.stdin
        holder.stdin.close()
        return wait(lock, timeout)

    wait = FileLock.acquire
    with holding(HOLD, scored.warehouse) as holder:
        monkeypatch.setattr(FileLock, "acquire", acquire)
        done = invoke(*scored.run, "--wait")
    assert waits == [-1]  # for ever
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nothing to do: 120 scores")
    after = contents(scored.warehouse)
    for own in (".", "kp.lock", "last-run.log", "last-run.json"):
        before.pop(own, None)
        after.pop(own, None)
    assert after == before
    assert {"kp.duckdb", "manifest.json", "report.html"} <= after.keys()


def test_sql_answers_in_every_format(scored: Scored) -> None:
    ask = ["sql", "SELECT count(*) AS traces FROM scores", "--warehouse", scored.warehouse]
    assert "120" in invoke(*ask).stdout
    assert invoke(*ask, "--format", "csv").stdout == "traces\n120\n"
    assert json.loads(invoke(*ask, "--json").stdout) == [{"traces": 120}]


def test_sql_reads_its_query_from_a_file_or_stdin(scored: Scored, tmp_path: Path) -> None:
    query = "SELECT count(*) AS traces FROM scores"
    file = tmp_path / "query.sql"
    file.write_text(f"\ufeff{query};\n", "utf-8")
    ask = ["sql", "--warehouse", scored.warehouse, "--format", "csv"]
    assert invoke(*ask, "-f", file).stdout == "traces\n120\n"
    assert invoke(*ask, "-f", "-", stdin=query).stdout == "traces\n120\n"
    refused = invoke(*ask, query, "-f", file)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[-1] == "Error: give one of QUERY and -f FILE"
    file.write_bytes(b"SELECT '\xff'")
    refused = invoke(*ask, "-f", file)
    assert refused.returncode == 2
    assert f"{file} cannot be read: byte 9 is not UTF-8; save it as UTF-8" in refused.stderr


def test_the_questions_are_shown_with_examples_and_named_by_the_help_of_sql() -> None:
    listed = json.loads(invoke("sql", "--json").stdout)
    shown = invoke("sql").stdout
    named = invoke("sql", "--help").stdout
    for question in listed:
        assert (
            f"  {question['call']}\n    {question['comment']}\n    {question['example']}\n" in shown
        )
        assert re.search(rf"\b{question['name']}\b", named)
    [drift] = json.loads(invoke("sql", "drift", "--json").stdout)
    assert drift["example"] == "FROM drift(previous(), latest())"
    assert invoke("sql", "drift").stdout.splitlines()[1] == "  drift(run_a, run_b)"


def test_help_lists_each_command_in_one_group() -> None:
    told = invoke("--help").stdout
    titles = [line for line in told.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Options:", "Operate:", "Ask:", "Study:", "Move:"]
    assert all(told.count(f"\n  {name} ") == 1 for name in group.commands), told


def test_no_sql_is_the_name_of_a_question() -> None:
    for question in questions():
        with pytest.raises(duckdb.ParserException):
            duckdb.extract_statements(question.name)


def test_a_name_that_is_no_question_is_refused_by_the_nearest_one() -> None:
    refused = invoke("sql", "score_histogramm", "--warehouse", "w")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no question 'score_histogramm', did you mean 'score_histogram'?" in refused.stderr


@pytest.mark.parametrize("option", [["--fail-if-rows"], ["--as-of", "latest"]])
@pytest.mark.parametrize("name", [[], ["drift"]])
def test_what_a_query_needs_is_refused_without_one(name: list[str], option: list[str]) -> None:
    refused = invoke("sql", *name, *option)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--as-of and --fail-if-rows need a query" in refused.stderr


def completed(*words: object) -> list[str]:
    """What a shell is offered for the last word."""
    for name in ("export", "import_", "query"):
        import_module(f"kp_batch.cli.{name}")  # it adds its commands to the group
    *before, last = map(str, words)
    offers = BashComplete(group, {}, "kp-batch", "_KP_BATCH_COMPLETE").get_completions(before, last)
    return [offer.value for offer in offers]


def test_a_shell_completes_runs_and_domains_and_changes_nothing(
    scored: Scored, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(scored.warehouse)
    names = ["latest", "previous", *reversed(scored.runs)]
    assert completed("compare", "--warehouse", scored.warehouse, "latest", "") == names
    monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(scored.warehouse))
    assert completed("sql", "--as-of", "p") == ["previous"]
    assert completed("sql", "--as-of", scored.runs[0]) == [scored.runs[0]]
    assert completed("export", "--domain", "cu") == ["customer_service"]
    assert contents(scored.warehouse) == before


@pytest.mark.telling
@pytest.mark.process
def test_a_shell_completes_questions_and_formats() -> None:
    words = {"COMP_WORDS": "kp-batch sql novelty_b", "COMP_CWORD": "2"}
    done = subprocess.run(
        [Path(sys.executable).with_name("kp-batch")],
        env=os.environ | words | {"_KP_BATCH_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("plain,novelty_by\n", "")
    assert completed("import", "") == sorted(["auto", *FORMATS])


def test_a_shell_is_offered_nothing_of_a_warehouse_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kp.duckdb").write_text("no database")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for place in (tmp_path, tmp_path / "nowhere", "s3://bucket/warehouse", "gs://no/warehouse"):
        monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(place))
        assert completed("compare", "") == ["latest", "previous"]
        assert completed("export", "--domain", "") == []
    assert [path.name for path in tmp_path.iterdir()] == ["kp.duckdb"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.telling
@pytest.mark.process
def test_a_table_keeps_to_a_width_only_where_there_is_one(
    scored: Scored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(columns: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", columns)
        words = ["sql", "FROM scores LIMIT 1", "--warehouse", scored.warehouse]
        done = subprocess.run(command(words), capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert lines("120")[-1] == "1 row"
    [top, *_] = lines("")
    assert len(top) > 500


@pytest.mark.telling
@pytest.mark.slow
def test_sql_answers_as_of_a_run(scored: Scored) -> None:
    query = "SELECT count(DISTINCT run_id) AS ids, (SELECT count(*) FROM runs) AS runs FROM scores"
    ask = ["sql", query, "--warehouse", scored.warehouse, "--format", "csv"]
    answers = {"": "1,2", scored.runs[0]: "1,1", "previous": "1,1", "latest": "1,2"}
    for name, answer in answers.items():
        as_of = ["--as-of", name] if name else []
        assert invoke(*ask, *as_of).stdout == f"ids,runs\n{answer}\n"
    [first] = published(scored.warehouse).find_runs(scored.runs[0])
    assert invoke(*ask, "--as-of", first.finished_at.isoformat()).stdout == "ids,runs\n1,1\n"
    early = invoke(*ask, "--as-of", "2020-01-01")
    assert (early.returncode, early.stdout) == (1, "")
    assert "was done by 2020-01-01 00:00:00 UTC: the first one, " in early.stderr
    unknown = invoke(*ask, "--as-of", "yesterday")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    [line] = unknown.stderr.splitlines()
    assert line.startswith("kp-batch: there is no run 'yesterday' in ")
    assert "; see: kp-batch runs --warehouse " in line


def test_runs_lists_the_runs_the_last_one_first(scored: Scored) -> None:
    answer = invoke("runs", "--warehouse", scored.warehouse, "--json")
    rows = json.loads(answer.stdout)
    begun = [re.sub("[^0-9]", "", row["started_at"])[:14] for row in rows]
    assert begun == [row["run_id"].replace("T", "")[:14] for row in rows]
    columns = ("run_id", "status", "changes", "accepted", "rejected", "rescored")
    to = "\N{RIGHTWARDS ARROW}"
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (scored.runs[1], "done", f"cache size 1000 {to} 5", 120, 0, 120),
        (scored.runs[0], "done", "a new warehouse; 4 files new", 120, 0, 120),
    ]


@pytest.mark.telling
@pytest.mark.process
def test_runs_shows_all_it_knows_in_any_width_and_why_a_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(), trace(id="refused", steps=[])])
    archive = str(tmp_path / "a.jsonl")
    usual = {"archive": (archive,), "warehouse": tmp_path / "wh", "embedder": "none"}
    rescore_archive(RescoreConfig(**usual, max_reject_share=1))
    weights = dict.fromkeys(("complexity", "novelty", "tool_diversity", "outcome_confidence"), 0.25)
    profiles = {"code": weights, "default": weights}
    rescore_archive(RescoreConfig(**usual, profiles=profiles, threshold=0.5, max_reject_share=1))
    with pytest.raises(ArchiveError):
        rescore_archive(RescoreConfig(**usual, max_reject_share=0, threshold=0.6))
    runs = ["runs", "--warehouse", tmp_path / "wh"]
    failed, other, _ = json.loads(invoke(*runs, "--json").stdout)
    assert failed["status"] == "failed"
    assert failed["changes"].startswith("1 of 2 rows is rejected, more than")
    weights_of = re.findall("weights of ([a-z_]+)(?:;|$)", other["changes"])
    assert {"code", "default"} <= set(weights_of)
    assert "threshold 0.75 \N{RIGHTWARDS ARROW} 0.5" in other["changes"].split("; ")
    for columns in ("120", ""):  # "": without a terminal
        monkeypatch.setenv("COLUMNS", columns)
        table = subprocess.run(command(runs), capture_output=True, text=True, check=True).stdout
        printed = dict(line.split(maxsplit=1) for line in table.split("\n\n")[0].splitlines())
        assert list(printed) == list(failed)
        assert printed["changes"] == failed["changes"]


def test_catalog_says_what_it_shows(scored: Scored, tmp_path: Path) -> None:
    copy = scored.copy(tmp_path / "wh")
    done = invoke("catalog", "--warehouse", copy.warehouse)
    assert (done.returncode, done.stdout) == (0, "")
    [line] = done.stderr.splitlines()
    wanted = (
        f"kp.duckdb is made for {copy.warehouse}: [0-9]+ tables, as run {scored.runs[1]} left them"
    )
    assert re.fullmatch(wanted, line)


def test_compare_shows_what_moved_the_scores(scored: Scored) -> None:
    compare = ["compare", "previous", "latest", "--warehouse", scored.warehouse]
    done = invoke(*compare)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:7] == [
        f"from {scored.runs[0]} by {current_user()}",
        f"to   {scored.runs[1]} by {current_user()}",
        "  120 traces in both, 0 only in the first, 0 only in the second",
        "",
        "what differs, over the same archive:",
        "  cache size 1000 \N{RIGHTWARDS ARROW} 5",
        "",
    ]
    comparison = json.loads(invoke(*compare, "--json").stdout)
    assert [change["code"] for change in comparison["changes"]] == ["cache_size"]
    [whole, *_] = comparison["domains"]
    assert (whole["task_domain"], whole["traces"]) == (None, 120)
    assert whole["rose"] > 0
    assert whole["from_weights"] == whole["from_facts"] == 0 != whole["from_novelty"]
    assert all(mover["objective"] for mover in comparison["movers"])


@pytest.mark.slow
def test_verify_exits_1_where_a_stored_score_was_changed(scored: Scored, tmp_path: Path) -> None:
    copy = scored.copy(tmp_path / "wh")
    verify = ["verify", "--warehouse", copy.warehouse, "--sample", "200", "--seed", "3"]
    sound = invoke(*verify)
    assert (sound.returncode, sound.stdout.splitlines()[0]) == (0, "120 traces verified (--seed 3)")
    identity = tamper(copy.warehouse)
    wrong = invoke(*verify, "--json")
    assert wrong.returncode == 1
    assert json.loads(wrong.stdout)["wrong"] == f"score of {identity} is off by 0.01"
    assert wrong.stderr.splitlines()[-1].startswith("kp-batch: the scores do not verify: score of")


def tamper(warehouse: Path) -> str:
    """Change one stored score by 0.01; the trace's id."""
    manifest = read_manifest(warehouse)
    assert manifest
    path = files_of(warehouse, "scores")[1]
    rows = pl.read_parquet(path, hive_partitioning=False)
    first = pl.int_range(pl.len()) == 0
    rows.with_columns(
        pl.when(first).then(pl.col("score") + 0.01).otherwise("score").alias("score")
    ).write_parquet(path)
    return rows.item(0, "trace_id")


def test_vacuum_removes_what_older_runs_left(scored: Scored, tmp_path: Path) -> None:
    copy = scored.copy(tmp_path / "wh")
    ended = (copy.warehouse / "manifest.json").stat().st_mtime
    until(lambda: time.time() > ended + 1, 5)
    done = invoke("vacuum", "--keep", "1s", "--warehouse", copy.warehouse)
    assert done.returncode == 0, done.stderr
    assert re.match("removed: [1-9][0-9]* files, 0 facts, 0 raw rows, 0 vectors", done.stdout)
    ask = ["sql", "SELECT count(*) AS n FROM scores", "--warehouse", copy.warehouse]
    assert invoke(*ask, "--format", "csv").stdout == "n\n120\n"
    gone = invoke(*ask, "--as-of", scored.runs[0])
    assert gone.returncode == 1
    assert "were removed; choose a later run" in gone.stderr


def test_what_changes_nothing_leaves_all_files_as_they_are(scored: Scored, tmp_path: Path) -> None:
    copy = scored.copy(tmp_path / "wh")
    (copy.warehouse / "last-run.log").touch()  # whatever may write begins an empty one
    before = listing(copy.warehouse)
    for words in (
        *("forget kp:trace: --dry-run", "forget kp:trace:typo", "vacuum --keep 1s --dry-run"),
        "rollback previous --dry-run",
    ):
        done = invoke(*words.split(), "--warehouse", copy.warehouse)
        assert done.returncode == words.startswith("forget"), words
        assert "nothing was changed" in done.stdout + done.stderr, words
        assert listing(copy.warehouse) == before, words


@pytest.mark.telling
@pytest.mark.slow
def test_forget_removes_a_trace_for_good(scored: Scored, tmp_path: Path) -> None:
    copy = scored.copy(tmp_path / "wh")
    with connect(copy.warehouse) as connection:
        [(identity,)] = connection.execute("SELECT min(trace_id) FROM scores").fetchall()
    done = invoke("forget", identity, "--warehouse", copy.warehouse)
    assert done.returncode == 0, done.stderr
    run_id, counts = re.fullmatch(
        r"forgotten by run (\S+): (.*)", done.stdout.splitlines()[0]
    ).groups()
    assert counts == "1 scored trace, 0 rejected rows"
    assert run_id not in scored.runs
    for run in scored.runs:
        assert (
            invoke("sql", "FROM scores", "--as-of", run, "--warehouse", copy.warehouse).returncode
            == 0
        )
    assert invoke(*copy.run).returncode == 0
    with connect(copy.warehouse) as connection:
        query = "SELECT count(*), count(*) FILTER (trace_id = ?) FROM scores"
        assert connection.execute(query, [identity]).fetchall() == [(119, 0)]
    assert not (copy.warehouse / "prefect").exists()


def test_a_failed_run_exits_1_with_one_clear_line(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bad.parquet", [trace(success=None)])
    failed = invoke(
        "run", tmp_path / "bad.parquet", "--warehouse", tmp_path / "wh", "--embedder", "none"
    )
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert "none of the archive's 1 row" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    reasons = invoke("sql", "SELECT reasons[1] AS r FROM rejects", "--warehouse", tmp_path / "wh")
    assert "missing_success" in reasons.stdout


@pytest.mark.parametrize("name", ["run", "plan"])
def test_what_is_misspelt_or_faulty_is_reported_in_one_line(
    tmp_path: Path, archive: Path, name: str
) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text("[profiles.code]\ncomplexity = 1.5\n")
    for arguments, message in (
        ([f"{archive}s"], f"kp-batch: no Parquet or JSONL file at '{archive}s'; name a file"),
        ([archive, "--profiles", profiles], f"kp-batch: the profiles file {profiles} has 4 fault"),
        ([archive, "--embedder", tmp_path / "model"], "kp-batch: "),
    ):
        done = invoke(name, "--embedder", "none", *arguments, "--warehouse", tmp_path / "wh")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1].startswith(message)
        assert "Traceback" not in done.stderr
    assert (tmp_path / "wh").exists() == (name == "run")


@pytest.mark.process
@linux
def test_a_signal_ends_a_plan_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "archive").mkdir()
    for number in range(3_000):  # some 15 s of work
        (tmp_path / "archive" / f"{number}.jsonl").write_text("{}\n")
    arguments = ["plan", tmp_path / "archive", "--embedder", "none"]
    with working(*arguments, "--warehouse", tmp_path / "wh") as asking:
        assert asking.stderr
        assert asking.stderr.readline() == "kp-batch: identifying: 3,000 files\n"
        check_signal(asking, signal.SIGINT, 130)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere", "ray://127.0.0.1:9"])
def test_a_cluster_of_ray_that_does_not_answer_is_one_line(
    tmp_path: Path, archive: Path, address: str
) -> None:
    settings = ("--warehouse", tmp_path / "wh", "--embedder", "none", "--ray", address)
    failed = invoke("run", archive, *settings)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[-1].startswith("kp-batch: Ray does not start: ")
    assert "Traceback" not in failed.stderr


def test_wrong_usage_exits_2(tmp_path: Path) -> None:
    for arguments in (
        ["run", tmp_path],
        ["run", tmp_path, "--warehouse", tmp_path, "--ttl", "soon"],
        ["run", tmp_path, "--warehouse", tmp_path, "--cache-size", "0"],
        ["nonsense"],
    ):
        wrong = invoke(*arguments)
        assert wrong.returncode == 2, arguments
        assert wrong.stdout == ""
        assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize("name", ["run", "plan"])
def test_wrong_settings_are_named(tmp_path: Path, name: str) -> None:
    wrong = invoke(name, tmp_path, "--warehouse", tmp_path / "wh", "--ttl", "soon")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    message = "Error: --ttl: a duration must be none, or a whole number from 1 on with s, m"
    assert message in wrong.stderr.splitlines()[-1]
    assert not (tmp_path / "wh").exists()


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("run", "--ttl"),
        ("run", "--timeout"),
        ("sweep", "--ttl"),
        ("status", "--max-age"),
    ],
)
def test_a_wrong_duration_is_reported_as_one(tmp_path: Path, name: str, option: str) -> None:
    told = "a duration must be none, or a whole number from 1 on with s, m, h or d, such as 90m"
    wrong = invoke(name, "--warehouse", tmp_path, option, "0s")
    assert wrong.returncode == 2
    assert option in wrong.stderr
    assert f"{told}, got '0s'" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "wait"),
    [
        (["--wait", "a"], "true"),
        (["a", "--wait"], "true"),
        (["--wait", "--prune", "a"], "true"),
        (["--wait", "90m", "a"], "90m"),
        (["--wait=2h", "a"], "2h"),
        (["--wait", "none", "a"], "none"),
        (["--wait", "1.5h", "a"], "1.5h"),  # which is then refused as a duration
    ],
)
def test_wait_takes_a_duration_and_leaves_the_archive(
    tmp_path: Path, arguments: list[str], wait: str
) -> None:
    words = [*arguments, "--warehouse", str(tmp_path / "wh")]
    context = group.commands["run"].make_context("run", words)
    assert (context.params["wait"], context.params["archive"]) == (wait, ("a",))


def test_the_warehouse_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(tmp_path))
    done = invoke("sql", "SELECT 1")
    assert done.returncode == 1
    assert f"{tmp_path} is not a warehouse; run an archive first" in done.stderr


def test_a_wrong_query_is_no_traceback(tmp_path: Path) -> None:
    publish_nothing(tmp_path)
    wrong = invoke("sql", "SELEC 1", "--warehouse", tmp_path)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("kp-batch: Parser Error")
    assert "Traceback" not in wrong.stderr


@pytest.mark.telling
@pytest.mark.slow
def test_what_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for arguments in (
        ["run", tmp_path, "--warehouse", tmp_path / "file" / "wh"],
        ["run", tmp_path, "--warehouse", "s3://bucket/wh"],
        ["demo", "--folder", tmp_path / "file" / "demo"],
        ["sql", "SELECT 1", "--warehouse", tmp_path / "file"],
        ["catalog", "--warehouse", tmp_path],
        ["plan", tmp_path, "--warehouse", tmp_path / "100%"],
        ["verify", "--warehouse", tmp_path],
        ["compare", "one", "other", "--warehouse", tmp_path],
        ["vacuum", "--warehouse", tmp_path / "none"],
        ["forget", "kp:trace:1", "--warehouse", tmp_path / "none"],
        ["rollback", "latest", "--warehouse", tmp_path / "none"],
    ):
        refused = invoke(*arguments)
        assert refused.returncode in {1, 2}, arguments
        assert refused.stdout == ""
        assert "Traceback" not in refused.stderr, arguments
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_with_no_room_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 << 20))
    monkeypatch.setattr(rescoring, "logged", pytest.fail)
    with pytest.raises(ResourceError, match=r"the disk is full: .* has 5 MiB left"):
        group.main(["run", "a", "--warehouse", str(tmp_path)], standalone_mode=False)


@pytest.mark.telling
@pytest.mark.process
def test_help_and_sql_import_nothing_heavy() -> None:
    modules = ("kp_batch.cli", "kp_batch.warehouse.answer_formats", "kp_batch.warehouse.reader")
    probe = (
        "import sys; from importlib import import_module\n"
        "heavy = {'polars', 'numpy', 'pyarrow', 'prefect', 'pydantic', 'deltalake', 'torch'}\n"
        f"for name in {modules}: import_module(name); print(name, *heavy & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*modules]


@pytest.mark.telling
@pytest.mark.model
def test_score_gives_one_trace_its_score(tmp_path: Path) -> None:
    line = (GOLDEN / "traces.jsonl").read_text("utf-8").splitlines()[0]
    expected = json.loads((GOLDEN / "expected_no_embedder.jsonl").read_text().splitlines()[0])
    done = invoke("score", "-", "--json", stdin=line)
    answer = json.loads(done.stdout)
    assert answer["score"] == expected["score"] == answer["by_profile"]["finance"]
    (tmp_path / "t.json").write_text(json.dumps({"task": {}}))
    refused = invoke("score", tmp_path / "t.json")
    assert refused.returncode == 1
    assert "task.objective is " in refused.stderr


WEIGHT_OF_NOVELTY = {
    "default": 0.35,
    "finance": 0.25,
    "code": 0.3,
    "medical": 0.2,
    "customer_service": 0.3,
}


@pytest.mark.telling
@pytest.mark.model
@pytest.mark.parametrize(
    ("expected", "settings"),
    [
        ("cap8_ttl1h", ["--cache-size", "8", "--ttl", "60m"]),
        ("no_embedder", ["--embedder", "none"]),
    ],
)
def test_the_golden_archive_through_a_whole_run(
    golden_warehouse: Path, expected: str, settings: list[str]
) -> None:
    run = ["run", GOLDEN / "traces.jsonl", "--warehouse", golden_warehouse, *settings]
    done = invoke(*run)
    assert done.returncode == 0, done.stderr
    query = (
        "SELECT trace_id AS id, complexity, novelty, tool_diversity, outcome_confidence, score, "
        "profile, single_thought FROM scores"
    )
    done = invoke("sql", query, "--warehouse", golden_warehouse, "--json")
    rows = {row["id"]: row for row in json.loads(done.stdout)}
    lines = (GOLDEN / f"expected_{expected}.jsonl").read_text("utf-8").splitlines()
    for live in map(json.loads, lines):
        row = rows.pop(live["id"])
        for name in ("complexity", "tool_diversity", "outcome_confidence"):
            assert row[name] == live[name]
        clamped = min(1.0, max(0.0, live["novelty"]))
        assert row["novelty"] == pytest.approx(clamped, abs=1e-6)
        cut = WEIGHT_OF_NOVELTY[row["profile"]] * (live["novelty"] - clamped)
        score = live["score"] - (0 if row["single_thought"] else cut)
        assert row["score"] == pytest.approx(score, abs=1e-6)
    assert not rows


@pytest.fixture(scope="module")
def golden_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for both runs."""
    return tmp_path_factory.mktemp("golden") / "warehouse"
