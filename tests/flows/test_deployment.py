"""The nightly deployment, by the own commands of its page: a real server, a real worker."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kp_batch.warehouse.reader import connect
from tests.support import ROOT

pytestmark = pytest.mark.process

[COMMANDS] = re.findall(
    r"^```sh\n(export PREFECT_API_URL.*?)^```",
    (ROOT / "docs" / "how-to" / "nightly.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
EXPORT, *PREFECT = [line.split("#")[0].strip() for line in COMMANDS.splitlines()]


@contextmanager
def running(command: str, log: Path, environment: dict[str, str]) -> Generator[None]:
    """A command that goes on until the end, in the folder of its log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=log.parent,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def output_of(command: str, folder: Path, environment: dict[str, str], *, status: int = 0) -> str:
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
        check=False,
    )
    logs = "\n".join(log.read_text() for log in folder.glob("*.log"))
    assert done.returncode == status, f"{command}\n{done.stdout}\n{logs}"
    return done.stdout


def wait_for(url: str) -> None:
    for _ in range(600):
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError(url)


def imports_first(deploy: str, folder: Path, environment: dict[str, str]) -> None:
    """The other deployment, by its own parameters, and by wrong ones."""
    output_of(deploy.replace("nightly", "nightly-import"), folder, environment)
    now = "prefect deployment run import-and-rescore/nightly-import --watch --watch-interval 1"
    config = {"archive": ["spans"], "warehouse": "spans-warehouse", "embedder": "hashing"}
    option = f"-p 'config={json.dumps(config)}'"
    output_of(f"{now} {option}", folder, environment)
    wrong = [{"format": "otel", "sources": ["data"], "archive": "spans"}]
    output_of(f"{now} -p 'imports={json.dumps(wrong)}'", folder, environment, status=1)


def logged(url: str) -> list[tuple[int, str]]:
    """The level and the message of all that is in Prefect's log."""
    entries: list[dict[str, Any]] = []
    while True:  # it gives two hundred at a time
        body = json.dumps({"sort": "TIMESTAMP_ASC", "offset": len(entries)}).encode()
        where, kind = f"{url}/logs/filter", {"Content-Type": "application/json"}
        request = urllib.request.Request(where, body, kind)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if not (page := json.load(answer)):
                return [(entry["level"], entry["message"]) for entry in entries]
        entries += page


@pytest.mark.prefect
def test_a_worker_runs_the_nightly_deployment_logs_all_and_the_next_nights_are_scheduled(
    tmp_path: Path,
) -> None:
    for name in ("prefect.yaml", "flows", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    name, url = EXPORT.removeprefix("export ").replace("4200", port).split("=")
    (tmp_path / "home").mkdir()
    (tmp_path / "bad.parquet").write_text("no Parquet")
    environment = os.environ | {
        name: url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_API_PORT": port,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "DO_NOT_TRACK": "1",
    }
    server, pool, deploy, worker = PREFECT
    with running(server, tmp_path / "server.log", environment):
        wait_for(f"{url}/health")
        output_of(pool, tmp_path, environment)
        output_of(deploy, tmp_path, environment)
        with running(worker, tmp_path / "worker.log", environment):
            for archive, settings, status in (
                (["data/sample", "bad.parquet"], {"embedder": "hashing"}, 0),
                (["unmounted"], {"embedder": "hashing"}, 1),
                (["data/sample", "bad.parquet"], {"ttl": None}, 0),  # as the form sends it
            ):
                config = {"archive": archive, "warehouse": "warehouse", **settings}
                option = f"-p 'config={json.dumps(config)}'"
                now = f"prefect deployment run rescore/nightly --watch --watch-interval 1 {option}"
                output_of(now, tmp_path, environment, status=status)
            imports_first(deploy, tmp_path, environment)
            nights = output_of(
                "prefect flow-run ls --state SCHEDULED -o json", tmp_path, environment
            )
            log = logged(url)
    with connect(tmp_path / "warehouse") as connection:
        query = "SELECT encoder_id, count(*) FROM scores GROUP BY ALL"
        assert connection.execute(query).fetchall() == [("hashing-384-v1", 600)]
        runs = connection.execute("SELECT status FROM runs ORDER BY started_at").fetchall()
    assert runs == [("done",)]  # what could not begin is no run
    with connect(tmp_path / "spans-warehouse") as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(3,)]
    assert any(message.startswith("3 traces from 1 of 1 file") for _, message in log)
    [plan, _] = [message for level, message in log if level == 20 and "plan: restate" in message]
    assert plan.startswith("plan: restate 600 traces (code 153, ")
    assert (20, "  reject     1 file (unreadable_file 1)") in log
    [warning, again] = [message for level, message in log if level == 30]
    assert warning.startswith(f"{tmp_path}/bad.parquet is unreadable: ")
    assert again == warning
    [summary] = [message for level, message in log if "600 of 600 traces restated in" in message]
    assert "\n  unreadable " in summary
    errors = [message for level, message in log if level == 40]
    faults = [error for error in errors if "the settings of import 1 have faults: " in error]
    assert faults
    assert all("--format: 'otel' is none of atif, " in fault for fault in faults)
    unmounted = "ArchiveError: no Parquet or JSONL file at 'unmounted'"
    assert sum(unmounted in error for error in errors) == 4 == len(errors) - len(faults)
    printed = (tmp_path / "worker.log").read_text()
    assert printed.count("bad.parquet is unreadable") == 2
    assert "Traceback" not in printed
    assert "leaked" not in printed
    assert_scheduled(nights)


def assert_scheduled(nights: str) -> None:
    starts = sorted(run["expected_start_time"] for run in json.loads(nights))
    assert len(starts) >= 3
    assert {start[11:16] for start in starts} == {"02:15"}
