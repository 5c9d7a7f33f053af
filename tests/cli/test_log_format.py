"""Lines on stderr as JSON objects: each of them, however a command ends."""

import json
import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import (
    blocked_file,
    children,
    invoke,
    kp_batch,
    linux,
    working,
)

LINE = ["time", "run_id", "step", "level", "message"]
JSON = ["--log-format", "json"]


def lines(stderr: str) -> list[dict[str, Any]]:
    """Each line, which is an object with all fields, and a time of this test."""
    read = [json.loads(line) for line in stderr.splitlines()]
    for line in read:
        assert list(line) == LINE
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert abs((datetime.now(UTC) - datetime.fromisoformat(line["time"])).total_seconds()) < 300
    return read


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with a row that is rejected."""
    return write_jsonl(tmp_path / "a.jsonl", [trace(), trace(id="b", created_at="never")])


@pytest.fixture
def words(archive: Path, tmp_path: Path) -> list[object]:
    return ["run", archive, "--warehouse", tmp_path / "wh", "--embedder", "none"]


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KP_BATCH_LOG_FORMAT", "json")


@pytest.mark.process
@pytest.mark.parametrize("option", [JSON, ["--log-format=json"]])
def test_each_line_of_a_run_is_an_object_and_its_result_is_as_ever(
    words: list[object], option: list[str]
) -> None:
    done = kp_batch(*option, *words, "--json", "--max-reject-share", "100%")
    result, read = json.loads(done.stdout), lines(done.stderr)
    assert (done.returncode, result["status"]) == (0, "done")
    assert {line["level"] for line in read} == {"info"}
    assert {line["run_id"] for line in read} <= {None, result["run_id"]}
    assert {line["step"] for line in read} > {None}


def test_without_it_lines_are_words(words: list[object]) -> None:
    assert invoke(*words, "--max-reject-share", "100%").stderr.startswith("kp-batch: ")


@pytest.mark.usefixtures("as_json")
def test_a_failure_names_its_run_and_a_warning_is_one(words: list[object], archive: Path) -> None:
    refused = invoke(*words, "--max-reject-share", "0%", "--json")
    *_, error = lines(refused.stderr)
    result = json.loads(refused.stdout)
    assert (error["level"], error["message"]) == ("error", result["reason"])
    assert error["run_id"] == result["run_id"] is not None
    write_jsonl(archive, [trace(created_at="2999-01-01T00:00:00Z")])
    warned = [
        line["message"]
        for line in lines(invoke(*words, "--max-removed", "100%").stderr)
        if line["level"] == "warning"
    ]
    assert [message for message in warned if "2999-01-01" in message]


@pytest.mark.usefixtures("as_json")
@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("run --threshold", 2, "Option '--threshold' requires an argument."),
        ("unknown", 2, "No such command 'unknown'."),
        ("status --warehouse {folder}/none", 1, "{folder}/none cannot be reached: "),
        ("vacuum --warehouse {folder}/none", 1, "{folder}/none is not a warehouse"),
    ],
)
def test_a_command_that_cannot_begin_prints_one_object(
    tmp_path: Path, command: str, status: int, message: str
) -> None:
    done = invoke(*command.format(folder=tmp_path).split())
    [line] = lines(done.stderr)
    assert (done.returncode, done.stdout, line["level"]) == (status, "", "error")
    assert (line["run_id"], line["step"]) == (None, None)
    assert line["message"].startswith(message.format(folder=tmp_path))


@pytest.mark.usefixtures("as_json")
def test_other_commands_print_objects_on_stderr_and_the_same_on_stdout(
    words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["--warehouse", tmp_path / "wh"]
    run = invoke(*words, "--max-reject-share", "100%", "--json")
    assert [line["level"] for line in lines(invoke("catalog", *place).stderr)] == ["info"]
    changed = invoke(*words, "--max-reject-share", "100%", "--threshold", 0.1)
    assert changed.returncode == 0
    rolled_back = invoke("rollback", json.loads(run.stdout)["run_id"], *place, "--dry-run")
    assert lines(rolled_back.stderr) == []
    answers = [invoke("sql", "SELECT trace_id, score FROM scores", *place).stdout]
    monkeypatch.setenv("KP_BATCH_LOG_FORMAT", "text")
    answers += [invoke("sql", "SELECT trace_id, score FROM scores", *place).stdout]
    assert len({*answers}) == 1


@linux
@pytest.mark.process
@pytest.mark.usefixtures("as_json")
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "the worker process was killed by SIGKILL"),
        (signal.SIGTERM, "ended by SIGTERM in the step read"),
    ],
)
def test_a_run_that_is_killed_leaves_an_object_with_its_run_and_step(
    archive: Path, words: list[object], number: signal.Signals, message: str
) -> None:
    with blocked_file(archive) as until_read, working(*words) as process:
        until_read()
        [child] = children(process.pid)
        os.kill(child if number == signal.SIGKILL else process.pid, number)
        assert process.wait(20) == 128 + number
        assert process.stderr
        *_, last = lines(process.stderr.read())
    assert (last["level"], last["step"]) == ("error", "read")
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", last["run_id"])
    assert last["message"].startswith(message)


@linux
@pytest.mark.process
@pytest.mark.usefixtures("as_json")
def test_a_run_that_takes_too_long_leaves_an_object(archive: Path, words: list[object]) -> None:
    with blocked_file(archive):
        done = kp_batch(*words, "--timeout", "6s")
    *_, last = lines(done.stderr)
    assert (done.returncode, last["level"]) == (1, "error")
    assert last["message"].startswith("the run took longer than --timeout 6s, and was stopped")


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KP_BATCH_LOG_FORMAT", "xml")
    done = invoke("runs")
    assert done.returncode == 2
    assert "'--log-format' (env var: 'KP_BATCH_LOG_FORMAT'): 'xml' is not one of" in done.stderr
