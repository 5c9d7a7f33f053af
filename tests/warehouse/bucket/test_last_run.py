"""How the last run on a warehouse in a bucket ended, as every machine sees it."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kp_batch.operations import status as of_status
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse.last_run import LAST_RUN
from kp_batch.warehouse.publication import writing
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.buckets import Machine
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.process


@pytest.fixture
def one(tmp_path: Path, bucket: str) -> Machine:
    """A machine whose first night on a bucket was good."""
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="a")])
    machine = Machine(tmp_path / "one", f"{bucket}/team/warehouse")
    assert night(machine, tmp_path / "archive") == "done"
    return machine


@pytest.fixture
def other(tmp_path: Path, one: Machine) -> Machine:
    return Machine(tmp_path / "other", one.url)


def night(machine: Machine, archive: Path) -> str:
    options = ("--embedder", "none", "--no-prefect", "--json")
    with machine.here():
        done = invoke("run", archive, "--warehouse", machine.url, *options)
    return json.loads(done.stdout)["status"]


def status(machine: Machine) -> dict[str, Any]:
    with machine.here():
        found = json.loads(invoke("status", "--warehouse", machine.url, "--json").stdout)
    assert found["warehouse"] == machine.url
    return found


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The objects that are read and written meanwhile."""
    asked: list[str] = []
    plain = {name: getattr(Store, name) for name in ("read", "write")}
    for verb in ("read", "write"):

        def recorded(self: Store, path: str, *args: Any, _verb: str = verb, **how: Any) -> Any:
            asked.append(f"{_verb} {path}")
            return plain[_verb](self, path, *args, **how)

        monkeypatch.setattr(Store, verb, recorded)
    yield asked
    monkeypatch.undo()


@pytest.mark.telling
def test_all_machines_see_how_the_last_night_ended(
    tmp_path: Path, one: Machine, other: Machine
) -> None:
    good = status(one)
    assert (good["last_run"]["status"], good["last_success"]["status"]) == ("done", "done")
    assert status(other)["last_run"] == good["last_run"]
    assert status(other)["last_success"] == good["last_success"]
    assert good["trace_age_s"] > 0
    assert not other.cache.exists()  # nothing was fetched for it
    assert night(other, tmp_path / "gone") == "could_not_begin"
    assert night(other, tmp_path / "archive") == "nothing_to_do"
    assert night(one, tmp_path / "gone") == "could_not_begin"  # which did not see the last one
    for machine in (one, other):
        found = status(machine)
        assert (found["last_run"]["status"], found["last_run"]["code"]) == (
            "could_not_begin",
            "no_archive",
        )
        assert found["last_success"]["status"] == "nothing_to_do"
        with machine.here():
            assert invoke("status", "--warehouse", one.url, "--max-age", "26h").returncode == 0


def test_a_good_night_stores_one_object_more_and_status_asks_for_three(
    tmp_path: Path, one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as asked:
        assert night(one, tmp_path / "archive") == "nothing_to_do"
    assert [each for each in asked if LAST_RUN in each] == [f"write {LAST_RUN}"]
    with counted(monkeypatch) as asked:
        status(one)
    assert sorted(asked) == [f"read {name}" for name in ("kp.lock", LAST_RUN, "manifest.json")]


@pytest.mark.telling
def test_a_night_of_another_machine_is_running_while_its_notice_is_there(
    tmp_path: Path, one: Machine, other: Machine
) -> None:
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds")
    with one.here() as folder:
        marks = json.loads((folder / LAST_RUN).read_bytes())
        marks["last_run"] |= {"started_at": long_ago, "finished_at": long_ago}
        store_at(one.url).write(LAST_RUN, json.dumps(marks).encode())
    with one.here() as folder, writing(folder, wait=False):
        running = status(other)["last_run"]
        assert (running["status"], running["finished_at"], running["user"]) == (
            "running",
            None,
            None,
        )
        assert night(other, tmp_path / "archive") == "could_not_begin"
        assert status(other)["last_run"] == running
        with other.here():
            words = invoke("status", "--warehouse", other.url).stdout
        assert f"process {os.getpid()}, unless it was killed there" in words
    assert status(other)["last_run"]["status"] == "done"


def test_a_notice_of_another_form_is_no_run(one: Machine, other: Machine) -> None:
    good = status(other)["last_run"]
    for wrong in ({"since": "soon", "pid": 7}, {"since": 7, "pid": 7}, {"since": "2099-01-01"}):
        store_at(one.url).write("kp.lock", json.dumps({"copy": "x", **wrong}).encode())
        assert status(other)["last_run"] == good


def test_a_machine_knows_of_its_own_runs_that_they_were_killed(one: Machine) -> None:
    with one.here() as folder:
        marks = json.loads((folder / LAST_RUN).read_bytes())
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
        under_way = {"status": "running", "started_at": later, "finished_at": None}
        marks["last_run"] |= {**under_way, "step": "replay"}
        (folder / LAST_RUN).write_text(json.dumps(marks))
    found = status(one)
    assert (found["last_run"]["status"], found["last_run"]["step"]) == ("killed", "replay")
    assert found["last_success"] == marks["last_success"]


def test_a_bucket_without_a_warehouse_and_a_missing_bucket_are_reported(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for url in (f"{bucket}/none", "s3://kp-no-bucket/none"):
        refused = invoke("status", "--warehouse", url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == f"kp-batch: {url} is not a warehouse; run an archive first\n"


@pytest.mark.telling
def test_a_bucket_that_does_not_answer_in_time_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_status, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "any")
        store_at.cache_clear()
        refused = invoke("status", "--warehouse", "s3://kp-silent/warehouse")
    store_at.cache_clear()
    assert refused.returncode == 1
    assert refused.stderr == (
        "kp-batch: s3://kp-silent/warehouse cannot be reached: no answer within 0 s\n"
    )
