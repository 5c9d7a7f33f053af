"""The command line as a user meets it: real processes, the real flow, a real Prefect."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from prefect.states import Failed

import flows.rescore as flow_module
from flows.process import run_in_process
from kp_batch.errors import ArchiveError, WarehouseError
from kp_batch.sample import write_sample
from tests.archives import trace, write_parquet

linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
GOLDEN = Path(__file__).parent / "golden"


def kp_batch(
    *arguments: object, home: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "100"} | ({"HOME": str(home)} if home else {})
    return subprocess.run(
        command(arguments),
        capture_output=True,
        text=True,
        input=stdin,
        env=environment,
        timeout=120,
        check=False,
    )


def command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "kp_batch", *map(str, arguments)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    write_sample(folder, traces=120, days=4, seed=3)
    return folder


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """A warehouse that `run` made, in a home of its own."""
    folder = tmp_path_factory.mktemp("a home") / "ware house's é"
    done = kp_batch(
        "run", archive, "--warehouse", folder, "--embedder", "hashing", "--json", home=folder.parent
    )
    assert done.returncode == 0, done.stderr
    (folder / "summary.json").write_text(done.stdout)
    return folder


@pytest.mark.prefect
def test_run_prints_one_json_object_and_says_what_it_does_on_stderr(warehouse: Path) -> None:
    summary = json.loads((warehouse / "summary.json").read_text())
    assert summary["counts"]["accepted"] == 120
    assert sum(row["traces"] for row in summary["scores"]) == 120
    assert list(summary) == ["run_id", "warehouse", "counts", "seconds", "scores"]


@pytest.mark.prefect
def test_run_leaves_nothing_loose_in_the_home_directory(warehouse: Path) -> None:
    assert [path.name for path in warehouse.parent.iterdir()] == [warehouse.name]
    assert (warehouse / "prefect").is_dir()
    assert not (warehouse / "staging").exists()


@pytest.mark.prefect
def test_run_leaves_its_summary_as_artifacts_of_a_completed_flow(warehouse: Path) -> None:
    with closing(sqlite3.connect(warehouse / "prefect" / "prefect.db")) as database:
        artifacts = dict(database.execute("SELECT key, data FROM artifact WHERE key IS NOT NULL"))
        [state] = database.execute("SELECT state_type FROM flow_run").fetchall()
        tasks = database.execute("SELECT name FROM task_run WHERE state_type = 'COMPLETED'")
        steps = {name.rpartition("-")[0] for (name,) in tasks}
    assert state == ("COMPLETED",)
    assert {"read_archive", "arrange", "embed", "replay_timeline", "publish_success"} <= steps
    assert "120 traces scored" in artifacts["kp-batch-summary"]
    assert {row["domain"] for row in json.loads(json.loads(artifacts["kp-batch-scores"]))} >= {
        "code",
        "finance",
    }


def test_only_input_and_output_is_tried_again() -> None:
    retries = {step.__name__: task.retries for step, task in flow_module.TASKS.items()}
    assert {name for name, times in retries.items() if times} == {
        "discover",
        "read_archive",
        "collect_rejects",
        "write_tables",
    }
    for error, again in (
        (ConnectionResetError(104, "reset"), True),
        (OSError(28, "No space left on device"), False),
        (ArchiveError("none"), False),
    ):
        assert flow_module.is_passing(None, None, Failed(data=error)) is again


@pytest.mark.prefect
def test_sql_answers_in_every_format(warehouse: Path) -> None:
    query = "SELECT count(*) AS traces FROM scores"
    table = kp_batch("sql", query, "--warehouse", warehouse)
    assert "120" in table.stdout
    assert kp_batch("sql", query, "--warehouse", warehouse, "--format", "csv").stdout == (
        "traces\n120\n"
    )
    answer = kp_batch("sql", query, "--warehouse", warehouse, "--format", "json")
    assert json.loads(answer.stdout) == [{"traces": 120}]


@pytest.mark.prefect
def test_runs_lists_the_runs(warehouse: Path) -> None:
    [row] = json.loads(kp_batch("runs", "--warehouse", warehouse, "--format", "json").stdout)
    assert (row["status"], row["accepted"], row["embedder"]) == ("done", "120", "hashing")


@pytest.mark.prefect
def test_a_failed_run_exits_1_with_one_clear_line(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bad.parquet", [trace(success=None)])
    failed = kp_batch(
        "run", tmp_path / "bad.parquet", "--warehouse", tmp_path / "wh", "--embedder", "none"
    )
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert "none of the archive's 1 rows" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    reasons = kp_batch("sql", "SELECT reasons[1] AS r FROM rejects", "--warehouse", tmp_path / "wh")
    assert "missing_success" in reasons.stdout


@linux
@pytest.mark.prefect
@pytest.mark.parametrize(
    ("name", "number", "status"),
    [
        ("run", signal.SIGINT, 130),
        ("run", signal.SIGTERM, 143),
        ("demo", signal.SIGINT, 130),  # which imports polars itself, unlike run
    ],
)
def test_a_signal_ends_everything_within_two_seconds(
    tmp_path: Path, archive: Path, name: str, number: signal.Signals, status: int
) -> None:
    arguments = {
        "run": ["run", archive, "--warehouse", tmp_path / "wh", "--embedder", "hashing"],
        "demo": ["demo", "--folder", tmp_path / "demo"],
    }
    run = subprocess.Popen(command(arguments[name]), stderr=subprocess.PIPE, text=True)
    assert run.stderr
    lines = [run.stderr.readline(), run.stderr.readline()]
    assert lines == ["kp-batch: starting\n", "kp-batch: starting Prefect\n"]
    time.sleep(3)  # Prefect and its server are on their way up
    group = children(run.pid)
    assert group
    began = time.monotonic()
    run.send_signal(number)
    _, said = run.communicate(timeout=20)
    assert time.monotonic() - began < 2
    assert run.returncode == status
    assert said == f"kp-batch: ended by {number.name}; what is published is whole\n"
    assert not [pid for pid in group if is_running(pid)]


@linux
@pytest.mark.prefect
def test_nothing_survives_a_killed_run(tmp_path: Path, archive: Path) -> None:
    run = subprocess.Popen(
        command(["run", archive, "--warehouse", tmp_path / "wh", "--embedder", "hashing"]),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr
    while "starting Prefect" not in run.stderr.readline():
        pass
    time.sleep(3)
    group = children(run.pid)
    run.kill()
    run.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group
    assert not [pid for pid in group if is_running(pid)]


def test_wrong_usage_exits_2(tmp_path: Path) -> None:
    for arguments in (
        ["run", tmp_path],
        ["run", "--warehouse", tmp_path],
        ["run", tmp_path, "--warehouse", tmp_path, "--ttl", "soon"],
        ["run", tmp_path, "--warehouse", tmp_path, "--cache-size", "0"],
        ["nonsense"],
    ):
        wrong = kp_batch(*arguments)
        assert wrong.returncode == 2, arguments
        assert wrong.stdout == ""
        assert "Traceback" not in wrong.stderr
    assert (
        "a ttl is none, or a whole number"
        in kp_batch("run", tmp_path, "--warehouse", tmp_path, "--ttl", "soon").stderr
    )


def test_the_warehouse_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(tmp_path))
    asked = kp_batch("sql", "SELECT 1")
    assert asked.returncode == 1
    assert f"no kp.duckdb in {tmp_path}; run an archive first" in asked.stderr


def test_a_wrong_query_is_no_traceback(tmp_path: Path) -> None:
    from kp_batch.warehouse.catalog import Manifest, publish

    publish(tmp_path, Manifest(0.75, {}))
    wrong = kp_batch("sql", "SELEC 1", "--warehouse", tmp_path)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("kp-batch: Parser Error")
    assert "Traceback" not in wrong.stderr


def test_what_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for arguments in (
        ["run", tmp_path, "--warehouse", tmp_path / "file" / "wh"],
        ["run", tmp_path, "--warehouse", "s3://bucket/wh"],
        ["sample", tmp_path / "file" / "sample", "--traces", "1"],
        ["score", tmp_path / "deep.json"],
        ["sql", "SELECT 1", "--warehouse", tmp_path / "file"],
        ["catalog", "--warehouse", tmp_path],
    ):
        refused = kp_batch(*arguments)
        assert refused.returncode in {1, 2}, arguments
        assert refused.stdout == ""
        assert "Traceback" not in refused.stderr, arguments
    assert not (tmp_path / "kp.lock").exists()


def test_a_disk_with_no_room_is_told_before_prefect_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 << 20))
    with pytest.raises(WarehouseError, match=r"the disk is full: .* has 5 MiB left"):
        run_in_process({}, tmp_path)


@pytest.mark.prefect
def test_a_server_that_does_not_answer_is_named(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    failed = kp_batch("run", archive, "--warehouse", tmp_path / "wh", "--embedder", "none")
    assert failed.returncode == 1
    assert "start that Prefect server, or unset PREFECT_API_URL" in failed.stderr.splitlines()[-1]


@pytest.mark.parametrize("module", ["kp_batch.cli", "kp_batch.warehouse.query"])
def test_help_and_sql_import_nothing_heavy(module: str) -> None:
    probe = (
        f"import sys, {module};"
        "print(sorted({'polars', 'numpy', 'pyarrow', 'prefect', 'pydantic', 'deltalake', 'torch'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_sample_makes_an_archive(tmp_path: Path) -> None:
    done = kp_batch("sample", tmp_path / "s", "--traces", "50", "--days", "3", "--dirty", "0.1")
    assert done.returncode == 0
    assert len(list((tmp_path / "s").glob("*.parquet"))) == 3
    assert "50 traces in 3 files" in done.stderr


@pytest.mark.model
def test_score_gives_one_trace_its_score(tmp_path: Path) -> None:
    line = (GOLDEN / "traces.jsonl").read_text("utf-8").splitlines()[0]
    expected = json.loads((GOLDEN / "expected_no_embedder.jsonl").read_text().splitlines()[0])
    done = kp_batch("score", "-", stdin=line)
    answer = json.loads(done.stdout)
    assert answer["score"] == expected["score"] == answer["by_profile"]["finance"]
    (tmp_path / "t.json").write_text(json.dumps({"task": {}}))
    refused = kp_batch("score", tmp_path / "t.json")
    assert refused.returncode == 1
    assert "empty_objective" in refused.stderr


WEIGHT_OF_NOVELTY = {
    "default": 0.35,
    "finance": 0.25,
    "code": 0.3,
    "medical": 0.2,
    "customer_service": 0.3,
}


@pytest.mark.prefect
@pytest.mark.model
@pytest.mark.parametrize(
    ("expected", "settings"),
    [
        ("cap1000", []),
        ("cap8", ["--cache-size", "8"]),
        ("cap1000_ttl1h", ["--ttl", "1h"]),
        ("cap8_ttl1h", ["--cache-size", "8", "--ttl", "60m"]),
        ("no_embedder", ["--embedder", "none"]),
    ],
)
def test_the_golden_archive_through_a_whole_run(
    golden_warehouse: Path, expected: str, settings: list[str]
) -> None:
    run = ["run", GOLDEN / "traces.jsonl", "--warehouse", golden_warehouse, *settings]
    done = kp_batch(*run)
    assert done.returncode == 0, done.stderr
    query = (
        "SELECT trace_id AS id, complexity, novelty, tool_diversity, outcome_confidence, score, "
        "profile, single_thought FROM scores"
    )
    asked = kp_batch("sql", query, "--warehouse", golden_warehouse, "--format", "json")
    found = {row["id"]: row for row in json.loads(asked.stdout)}
    lines = (GOLDEN / f"expected_{expected}.jsonl").read_text("utf-8").splitlines()
    for live in map(json.loads, lines):
        row = found.pop(live["id"])
        for name in ("complexity", "tool_diversity", "outcome_confidence"):
            assert row[name] == live[name]
        clamped = min(1.0, max(0.0, live["novelty"]))
        assert row["novelty"] == pytest.approx(clamped, abs=1e-6)
        cut = WEIGHT_OF_NOVELTY[row["profile"]] * (live["novelty"] - clamped)
        score = live["score"] - (0 if row["single_thought"] else cut)
        assert row["score"] == pytest.approx(score, abs=1e-6)
    assert not found


@pytest.fixture(scope="module")
def golden_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all the runs, so that the texts are embedded once."""
    return tmp_path_factory.mktemp("golden") / "warehouse"


def children(pid: int) -> list[int]:
    """All processes below one, from /proc."""
    found = [
        int(each)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for each in path.read_text().split()
    ]
    return found + [below for each in found for below in children(each)]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
