"""The nightly deployment, by the own commands of its page: a real server, a real worker."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kp_batch.warehouse.reader import connect
from tests.support import ROOT
from tests.support.imports.importing import kp_trace, write_json
from tests.support.processes.commands import kp_batch, until
from tests.support.processes.prefect_server import OTHERS, PrefectServer

pytestmark = pytest.mark.process

POOL, DEPLOY, WORKER = OTHERS  # the server itself is the suite's
GOOD, BAD = ["data/sample", "bad.parquet"], ["unmounted"]


@contextmanager
def running(command: str, log: Path) -> Generator[None]:
    """A command that goes on until the end, in the folder of its log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=log.parent,
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


def do(command: str, folder: Path) -> None:
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
        check=False,
    )
    logs = "\n".join(log.read_text() for log in folder.glob("*.log"))
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{logs}"


def run_now(server: PrefectServer, deployment: str, **parameters: Any) -> str:
    """Have a deployment run, as the form of Prefect's page does; in which state it ended."""
    to_run = server.ask(f"deployments/name/{deployment}")["id"]
    wanted = {"parameters": parameters, "idempotency_key": uuid4().hex}
    run = server.ask(f"deployments/{to_run}/create_flow_run", wanted)
    for _ in range(600):
        state = server.ask(f"flow_runs/{run['id']}")["state"]["type"]
        if state in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}:
            return state
        time.sleep(0.2)
    raise TimeoutError(deployment)


def run_nights(server: PrefectServer, folder: Path) -> None:
    """One as the page has it, and one without its archive."""
    config = {"archive": GOOD, "warehouse": "of-sample", "embedder": "hashing"}
    option = shlex.quote(f"config={json.dumps(config)}")
    do(f"prefect deployment run rescore/nightly --watch --watch-interval 1 -p {option}", folder)
    config = {"archive": BAD, "warehouse": "of-sample"}
    assert run_now(server, "rescore/nightly", config=config) == "FAILED"


def begin(folder: Path) -> None:
    """A project that imports, with both deployments: its file has the second as a comment."""
    do("kp-batch init to-a --embedder hashing --prefect", folder)
    with (folder / "kp_batch.toml").open("a") as project:
        project.write("[[imports]]\nsources = ['source']\narchive = 'to-a'\n")
    file = folder / "prefect.yaml"
    head, second = file.read_text("utf-8").split("  # If the project")
    second = "\n".join(line.replace("# ", "", 1) for line in second.splitlines()[1:])
    file.write_text(f"{head}{second}", "utf-8")


def import_first(server: PrefectServer) -> None:
    """The other deployment by wrong parameters, then both by their own, as the form sends them."""
    name = "import-and-rescore/nightly-import"
    own = {"config": {"project": "kp_batch.toml"}}
    wrong = [{"format": "otel", "sources": ["data"], "archive": "spans"}]
    assert run_now(server, name, **own, imports=wrong) == "FAILED"
    assert run_now(server, name, **own) == "COMPLETED"
    own["config"]["ttl"] = None
    assert run_now(server, "rescore/nightly", **own) == "COMPLETED"


def flow_runs(server: PrefectServer) -> list[dict[str, Any]]:
    """Those of these deployments that a worker has taken up."""
    pool = {"work_pools": {"name": {"any_": ["nightly"]}}}
    return [run for run in server.ask("flow_runs/filter", pool) if run["infrastructure_pid"]]


def is_there(run: dict[str, Any]) -> bool:
    """Whether its process goes on: the last messages come after the state."""
    with suppress(ProcessLookupError):
        os.kill(int(run["infrastructure_pid"]), 0)
        return True
    return False


def logged(server: PrefectServer) -> list[tuple[int, str]]:
    """The level and the message of all that these deployments have logged."""
    runs = [run["id"] for run in flow_runs(server)]
    these = {"logs": {"flow_run_id": {"any_": runs}}, "sort": "TIMESTAMP_ASC"}
    entries: list[dict[str, Any]] = []
    while page := server.ask("logs/filter", {**these, "offset": len(entries)}):
        entries += page  # it gives two hundred at a time
    return [(entry["level"], entry["message"]) for entry in entries]


@pytest.mark.prefect
def test_a_worker_runs_what_init_wrote_logs_all_and_the_next_nights_are_scheduled(
    tmp_path: Path, prefect: PrefectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "bad.parquet").write_text("no Parquet")
    (tmp_path / "elsewhere").mkdir()
    write_json(tmp_path / "source" / "a.json", kp_trace("a"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
    begin(tmp_path)
    do(POOL, tmp_path)
    for name in ("nightly", "nightly-import"):
        do(DEPLOY.replace("nightly", name), tmp_path)
    log = tmp_path / "elsewhere" / "worker.log"
    with running(WORKER, log), ThreadPoolExecutor() as both:
        ways = [both.submit(run_nights, prefect, tmp_path), both.submit(import_first, prefect)]
        for way in ways:
            way.result()
        until(lambda: not any(map(is_there, flow_runs(prefect))), 60)
    check_tables(tmp_path)
    check_messages(tmp_path, logged(prefect), log.read_text())
    for name in ("rescore/nightly", "import-and-rescore/nightly-import"):
        check_deployment(prefect, name)
    scheduled = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    nights = prefect.ask("flow_runs/filter", scheduled)
    assert len(nights) >= 3
    assert {run["expected_start_time"][11:16] for run in nights} == {"02:15"}


def check_tables(folder: Path) -> None:
    with connect(folder / "of-sample") as connection:
        query = "SELECT encoder_id, count(*) FROM scores GROUP BY ALL"
        assert connection.execute(query).fetchall() == [("hashing-384-v1", 600)]
        runs = connection.execute("SELECT status FROM runs ORDER BY started_at").fetchall()
    assert runs == [("done",)]  # what could not begin is no run
    with connect(folder / "warehouse") as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(1,)]


def check_messages(folder: Path, log: list[tuple[int, str]], printed: str) -> None:
    assert any(
        message.startswith("1 trace from 1 new or changed file (1 in all)") for _, message in log
    )
    plans = [message for level, message in log if level == 20 and "plan: rescore 6" in message]
    [plan] = plans
    assert plan.startswith("plan: rescore 600 traces (code 153, ")
    assert (20, "  reject     1 file (unreadable_file 1)") in log
    warnings = Counter(message.partition(": ")[0] for level, message in log if level == 30)
    audit = "audit scores_as_recorded found 1 row"  # of the project, by both its deployments
    assert warnings == {f"{folder}/bad.parquet is unreadable": 1, audit: 2}
    [summary] = [message for level, message in log if "600 of 600 traces rescored in" in message]
    assert "\n  unreadable " in summary
    # On a busy machine Prefect's worker adds how the process of a failed run ended.
    own = "Process exited with status code: 1"
    errors = [message for level, message in log if level == 40 and not message.startswith(own)]
    faults = [error for error in errors if "the settings of import 1 have faults: " in error]
    assert faults
    assert all("--format: 'otel' is none of atif, " in fault for fault in faults)
    unmounted = "ArchiveError: no Parquet or JSONL file at 'unmounted'"
    assert sum(unmounted in error for error in errors) == 4 == len(errors) - len(faults)
    assert printed.count("bad.parquet is unreadable") == 1
    assert "Traceback" not in printed
    assert "leaked" not in printed


def check_deployment(server: PrefectServer, name: str) -> None:
    """It runs every night, one run at a time."""
    deployment = server.ask(f"deployments/name/{name}")
    assert [each["schedule"]["cron"] for each in deployment["schedules"]] == ["15 2 * * *"]
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["parameters"] == {"config": {"project": "kp_batch.toml"}}


@pytest.mark.prefect
@pytest.mark.usefixtures("prefect")
def test_an_alert_that_is_made_as_the_page_says_says_why_a_night_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    page = (ROOT / "docs" / "how-to" / "nightly.md").read_text("utf-8")
    [make] = re.findall(r"^python -c .*SlackWebhook.*$", page, re.MULTILINE)
    [alert] = re.findall(r"^```text\n(name: a night failed.*?)^```", page, re.MULTILINE | re.DOTALL)
    with receiving() as (address, received):
        make = make.replace("SlackWebhook", "CustomWebhookNotificationBlock").replace(
            "url='URL'",
            f"name='x', url='{address}', json_data=dict(text='{{{{subject}}}}: {{{{body}}}}')",
        )
        made = subprocess.run(shlex.split(make), capture_output=True, text=True, check=True)
        alert = alert.replace("THE-ID-OF-THE-BLOCK", made.stdout.strip())
        (tmp_path / "alert.yaml").write_text(alert, "utf-8")
        do("prefect automation create --from-file alert.yaml", tmp_path)
        warehouse = tmp_path / "warehouse"
        assert kp_batch("run", tmp_path / "unmounted", "--warehouse", warehouse).returncode == 1
        until(lambda: any(str(warehouse) in text for text in received), 60)
    [text] = [text for text in received if str(warehouse) in text]
    assert re.search(
        r"warehouse \d{4}-\d\d-\d\d \d\d:\d\d Failed: .*ArchiveError: no Parquet", text
    )


@contextmanager
def receiving() -> Generator[tuple[str, list[str]]]:
    """A server that takes what is posted: its address, and the texts."""
    received: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Receiver) as server, ThreadPoolExecutor() as thread:
        thread.submit(server.serve_forever)
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
