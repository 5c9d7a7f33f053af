"""The command as a Prefect flow, and outside of this checkout: real processes, a real Prefect."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import (
    check_signal,
    children,
    is_running,
    kp_batch,
    linux,
    until,
    working,
)
from tests.support.processes.prefect_server import PrefectServer

pytestmark = pytest.mark.prefect


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """A warehouse that `run` made, in a home of its own."""
    folder = tmp_path_factory.mktemp("a home") / "ware house's é"
    settings = ("--warehouse", folder, "--embedder", "hashing", "--report", "--prefect", "--json")
    done = kp_batch("run", archive, *settings, home=folder.parent)
    assert done.returncode == 0, done.stderr
    (folder / "summary.json").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    return folder


@pytest.mark.telling
def test_prefect_is_sent_no_setting_that_was_left_out(warehouse: Path, archive: Path) -> None:
    with closing(sqlite3.connect(warehouse / "prefect" / "prefect.db")) as database:
        [(parameters,)] = database.execute("SELECT parameters FROM flow_run").fetchall()
    places = {"archive": [str(archive)], "warehouse": str(warehouse)}
    flow_config = json.loads(parameters)["config"]
    assert {name: flow_config.pop(name) for name in places} == places
    assert flow_config == {"embedder": "hashing", "project": None, "report": True}


@pytest.mark.telling
def test_run_prints_one_json_object_and_says_what_it_does_on_stderr(warehouse: Path) -> None:
    summary = json.loads((warehouse / "summary.json").read_text())
    assert summary["counts"]["accepted"] == 120
    assert sum(row["traces"] for row in summary["scores"]) == 120
    assert (summary["status"], summary["reason"]) == ("done", None)
    begun, new, *lines = (warehouse / "stderr.txt").read_text().splitlines()
    assert begun == "kp-batch: running as a Prefect flow on a temporary server"
    assert new.startswith(f"kp-batch: {warehouse} is a new warehouse, with embedder hashing")
    assert lines == [
        (
            "kp-batch: plan: rescore 120 traces "
            "(customer_service 47, legal 26, medical 20, code 18, finance 8, 1 more)"
        ),
        "kp-batch:   why        a new warehouse",
        "kp-batch:              files: 4 new",
        "kp-batch:   embed      98 texts",
        "kp-batch:   replay     120 traces",
        "kp-batch:   rewrite    4 partitions: 2026-01-05, 2026-01-06, 2026-01-07, 2026-01-08",
        "kp-batch:   time       no estimate yet",
        "kp-batch: embedding: 98 texts",
        "kp-batch: replaying: 120 traces",
        "kp-batch: writing: 120 traces",
        f"kp-batch: the report is in {warehouse / 'report.html'}",
    ]


@pytest.mark.telling
def test_a_flow_leaves_how_it_ended(warehouse: Path) -> None:
    mark = LastRuns.read(warehouse).last_run
    assert mark
    run_id = json.loads((warehouse / "summary.json").read_text())["run_id"]
    assert (mark.status, mark.run_id, mark.step) == ("done", run_id, "publish")


def test_run_leaves_nothing_loose_in_the_home_directory(warehouse: Path) -> None:
    assert [path.name for path in warehouse.parent.iterdir()] == [warehouse.name]
    assert (warehouse / "prefect").is_dir()
    assert not (warehouse / "staging").exists()


@pytest.mark.telling
def test_run_leaves_its_summary_as_artifacts_of_a_completed_flow(warehouse: Path) -> None:
    with closing(sqlite3.connect(warehouse / "prefect" / "prefect.db")) as database:
        query = "SELECT key, data FROM artifact WHERE key IS NOT NULL"
        artifacts = {key.rpartition("-")[0]: data for key, data in database.execute(query)}
        [run] = database.execute("SELECT state_type, name FROM flow_run").fetchall()
        tasks = database.execute("SELECT name FROM task_run WHERE state_type = 'COMPLETED'")
        steps = {name.rpartition("-")[0] for (name,) in tasks}
    assert run[0] == "COMPLETED"
    assert re.fullmatch(rf"{re.escape(str(warehouse))} \d{{4}}-\d\d-\d\d \d\d:\d\d", run[1])
    assert artifacts["kp-batch-plan-ware-house-s"].startswith('"    plan: rescore 120 traces (')
    assert steps == {"read", "plan", "embed", "replay", "write", "publish", "report"}
    assert (
        json.loads(artifacts["kp-batch-report-ware-house-s"])
        == kp_batch("report", "--format", "markdown", "--warehouse", warehouse).stdout
    )
    scores = json.loads(json.loads(artifacts["kp-batch-scores-ware-house-s"]))
    assert {row["domain"] for row in scores} >= {"`code`", "`finance`"}


def test_prefect_is_sent_no_text_of_a_trace(warehouse: Path, archive: Path) -> None:
    tasks = pl.read_parquet(archive / "*.parquet").get_column("task").struct.field("objective")
    shown = {task for task in tasks if task in (warehouse / "report.html").read_text("utf-8")}
    assert len(shown) > 10
    with closing(sqlite3.connect(warehouse / "prefect" / "prefect.db")) as database:
        dump = "\n".join(database.iterdump())
    assert not {text for text in shown if text in dump}


@pytest.mark.telling
def test_messages_and_summary_of_a_run_are_in_the_log_of_prefect(warehouse: Path) -> None:
    with closing(sqlite3.connect(warehouse / "prefect" / "prefect.db")) as database:
        query = "SELECT message, level, task_run_id IS NULL FROM log ORDER BY timestamp"
        logged = {message: details for message, *details in database.execute(query)}
    _, *lines = (warehouse / "stderr.txt").read_text().splitlines()
    assert {line.removeprefix("kp-batch: ") for line in lines} <= logged.keys()
    [plan] = [message for message in logged if message.startswith("plan: rescore 120 traces")]
    assert logged[plan] == [20, True]
    assert logged["embedding: 98 texts"] == [20, False]
    [summary] = [message for message in logged if "traces rescored in" in message]
    assert summary.startswith(
        f"run {json.loads((warehouse / 'summary.json').read_text())['run_id']}"
    )
    assert "Prefect" in summary.splitlines()[0]


@pytest.mark.telling
def test_a_step_that_fails_under_prefect_is_one_line_and_a_failed_flow(
    tmp_path: Path, archive: Path, prefect: PrefectServer
) -> None:
    (tmp_path / "scores").touch()  # where a folder has to be
    failed = kp_batch("run", archive, "--warehouse", tmp_path, "--embedder", "none", "--report")
    assert (failed.returncode, failed.stdout) == (1, "")
    *lines, last = failed.stderr.splitlines()
    assert lines[-2:] == [
        "kp-batch: writing: 120 traces",
        f"kp-batch: the report is in {tmp_path / 'report.html'}",
    ]
    assert re.match(
        r"kp-batch: cannot continue: .*Not a directory: .*; what is published is intact", last
    )
    with closing(sqlite3.connect(prefect.database)) as database:
        query = "SELECT id, state_type FROM flow_run WHERE name LIKE ?"
        [(flow_run, state)] = database.execute(query, [f"{tmp_path} 20%"])
        query = "SELECT name, run_count FROM task_run WHERE state_type = ? AND flow_run_id = ?"
        failures = list[tuple[str, int]]()

        def is_known() -> bool:  # the server learns of tasks by and by
            failures[:] = database.execute(query, ["FAILED", flow_run])
            return bool(failures)

        until(is_known, 60)
        query = "SELECT data FROM artifact WHERE key LIKE 'kp-batch-report-%' AND flow_run_id = ?"
        [(words,)] = database.execute(query, [flow_run])
    mark = LastRuns.read(tmp_path).last_run
    assert mark
    assert (mark.status, mark.code, mark.step) == ("failed", "system", "publish")
    assert f"kp-batch: {mark.reason}" == last
    assert state == "FAILED"
    assert "failed: " in words
    assert [(name.rpartition("-")[0], count) for name, count in failures] == [("publish", 1)]
    with connect(tmp_path) as connection:
        [row] = connection.execute("SELECT status, reason FROM runs").fetchall()
    assert row[0] == "failed"
    assert row[1] in last


@pytest.mark.telling
def test_a_night_that_a_limit_refuses_says_so_in_its_state_and_leaves_its_plan(
    tmp_path: Path, prefect: PrefectServer
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(), trace(id=None)])
    limit = ("--max-new-rejects", 0)
    warehouse = tmp_path / "wh"
    words = (tmp_path / "a.jsonl", "--warehouse", warehouse, "--embedder", "none")
    failed = kp_batch("run", *words, *limit, "--json")
    reason = failed.stderr.splitlines()[-1].removeprefix("kp-batch: ")
    assert (failed.returncode, "--max-new-rejects" in reason) == (1, True)
    assert json.loads(failed.stdout)["counts"]["rejected"] == 1
    with closing(sqlite3.connect(prefect.database)) as database:
        query = (
            "SELECT run.id, state.message FROM flow_run AS run "
            "JOIN flow_run_state AS state ON run.state_id = state.id WHERE run.name LIKE ?"
        )
        [(flow_run, message)] = database.execute(query, [f"{warehouse} 20%"])
        query = "SELECT key, data FROM artifact WHERE key IS NOT NULL AND flow_run_id = ?"
        [(key, plan)] = database.execute(query, [flow_run]).fetchall()
    assert message == f"Flow run encountered an exception: LimitError: {reason}"
    assert key.startswith("kp-batch-plan-wh-")
    told = [line.strip() for line in json.loads(plan).splitlines()]
    assert told[0] == "plan: rescore 1 trace (code 1)"
    assert told[-1] == f"a run would fail: {reason}"
    assert not (warehouse / "report.html").exists()


@linux
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
    settings = ["--warehouse", tmp_path / "wh", "--embedder", "hashing", "--prefect"]
    arguments = {
        "run": ["run", archive, *settings],
        "demo": ["demo", "--folder", tmp_path / "demo"],
    }
    with working(*arguments[name]) as run:
        expect_prefect(run)
        check_signal(run, number, status)


@linux
def test_nothing_survives_a_killed_run(tmp_path: Path, archive: Path) -> None:
    settings = ("--warehouse", tmp_path / "wh", "--embedder", "hashing", "--prefect")
    with working("run", archive, *settings) as run:
        expect_prefect(run)
        group = children(run.pid)
        run.kill()
        until(lambda: not any(map(is_running, group)), 10)


@pytest.fixture
def checkout() -> Path:
    return Path(sys.executable).with_name("kp-batch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, whose modules are called as ours and as those of the libraries."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "__init__.py").touch()
    for name in ("kp_batch.py", "prefect.py", "polars.py"):
        (tmp_path / name).write_text(f"raise ImportError('{name} of the user')")
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    return tmp_path


def outside(command: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = ["--warehouse", "wh", "--embedder", "hashing", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(command), "run", "a.jsonl", *settings],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("way", ["checkout", "installed"])
def test_a_run_works_in_a_folder_that_holds_modules_of_the_same_names(
    folder: Path, way: str, request: pytest.FixtureRequest
) -> None:
    done = outside(request.getfixturevalue(way), folder, "--report")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 trace rescored" in done.stdout
    assert (folder / "wh" / "report.html").exists()


def test_a_flow_runs_out_of_a_wheel_in_such_a_folder(
    folder: Path, installed: Path, warehouse: Path
) -> None:
    shutil.copytree(warehouse / "prefect", folder / "wh" / "prefect")  # a new database takes long
    done = outside(installed, folder, "--prefect")
    assert done.returncode == 0, done.stderr + (folder / "wh" / "last-run.log").read_text()
    assert "1 of 1 trace rescored" in done.stdout


def test_so_does_the_module_that_python_is_given(folder: Path) -> None:
    (folder / "kp_batch.py").unlink()
    command = [sys.executable, "-m", "kp_batch", "plan", "a.jsonl", "--warehouse", "wh"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_flow_has_its_parts_done_by_workers_that_import_no_module_of_the_folder(
    folder: Path, checkout: Path, prefect: PrefectServer
) -> None:
    done = outside(checkout, folder, "--ray", "2")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 trace rescored" in done.stdout
    assert done.stderr.splitlines()[0] == f"kp-batch: running as a Prefect flow on {prefect.url}"
    assert all(line.startswith("kp-batch: ") for line in done.stderr.splitlines())  # none is Ray's


def expect_prefect(run: subprocess.Popen[str]) -> None:
    """Wait until Prefect's server is on its way up."""
    assert run.stderr
    first_line = "kp-batch: running as a Prefect flow on a temporary server\n"
    assert run.stderr.readline() == first_line
    until(lambda: any("prefect" in arguments(pid) for pid in children(run.pid)), 60)


def arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
