"""When the report is written, where it goes, and what happens where it cannot be."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from markupsafe import escape

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, KpBatchError, WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.rescore import rescore_and_report, rescore_archive
from kp_batch.report import build as reporting
from kp_batch.report.build import leave_report, report
from kp_batch.report.data import ReportData
from kp_batch.report.markdown import markdown
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke
from tests.support.processes.holder import HOLD, holding
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

HOSTILE = "\x1b[31mred\x9b31m\u202e"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "made"
    traces = [trace(id=f"{HOSTILE}{n}", task_domain=HOSTILE) for n in range(3)]
    write_jsonl(folder / "a.jsonl", traces)
    rescore_archive(config(folder))
    keep(folder)
    return folder


@pytest.fixture
def warehouse(made: Path) -> Path:
    """One that was scored once, whatever the last test made of it."""
    restore(made)
    return made / "warehouse"


def config(folder: Path, **changes: object) -> RescoreConfig:
    paths = {"archive": (str(folder / "a.jsonl"),), "warehouse": folder / "warehouse"}
    return RescoreConfig.model_validate({**paths, "embedder": "hashing", **changes})


def test_nothing_makes_a_page_unless_it_is_asked_to(warehouse: Path) -> None:
    rescore_and_report(config(warehouse.parent, threshold=0.1))
    rollback(warehouse, "previous")
    forget(warehouse, [f"{HOSTILE}0"])
    write_jsonl(warehouse.parent / "a.jsonl", [trace(steps=[])] * 5)
    with pytest.raises(KpBatchError):
        rescore_and_report(config(warehouse.parent))
    assert not (warehouse / "report.html").exists()


@pytest.mark.usefixtures("no_page")
def test_a_page_stays_until_one_is_asked_for_or_a_rollback_makes_it_anew(warehouse: Path) -> None:
    page = warehouse / "report.html"
    rescore_and_report(config(warehouse.parent, threshold=0.1, report=True))
    written = page.read_text("utf-8")
    rescore_and_report(config(warehouse.parent, threshold=0.2))
    assert page.read_text("utf-8") == written
    rollback(warehouse, "previous")
    assert page.read_text("utf-8") != written


def test_the_page_is_written_after_work_that_published_and_only_then(
    warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kp_batch")
    page = warehouse / "report.html"
    leave_report(warehouse, ThreadExecutor())
    assert page.read_text("utf-8").startswith(report(warehouse, "html"))
    assert caplog.messages == [f"the report is in {page}"]
    written = page.stat().st_mtime_ns
    leave_report(warehouse, ThreadExecutor())
    assert page.stat().st_mtime_ns == written
    rescore_archive(config(warehouse.parent, threshold=0.1))
    leave_report(warehouse, ThreadExecutor())
    assert "of 3 reach 0.1" in page.read_text("utf-8")


def test_another_encoder_has_a_report_that_says_that_the_scores_do_not_compare(
    warehouse: Path,
) -> None:
    for embedder in ("none", "none", "hashing"):
        rescore_archive(config(warehouse.parent, embedder=embedder))
        text = report(warehouse, "markdown")
        assert "The scores of the last two runs are not comparable, because" in text


def test_the_page_reports_a_failed_run_and_returns_what_it_shows(
    warehouse: Path,
) -> None:
    write_jsonl(warehouse.parent / "a.jsonl", [trace(steps=[])] * 5)
    shown: list[ReportData] = []
    with pytest.raises(KpBatchError) as failure:
        rescore_and_report(config(warehouse.parent, report=True), on_report=shown.append)
    assert [markdown(data) for data in shown] == [report(warehouse, "markdown")]
    text = (warehouse / "report.html").read_text("utf-8")
    assert "The last run, " in text
    assert f"failed: <bdi>{escape(str(failure.value))}</bdi>." in text


def test_the_report_is_gathered_in_bounded_memory(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[Any] = []

    def gather(connection: duckdb.DuckDBPyConnection, **how: Any) -> ReportData:
        settings = "SELECT current_setting('memory_limit'), current_setting('threads')"
        limits.extend(connection.execute(settings).fetchall())
        return gathered(connection, **how)

    gathered = reporting.gather
    monkeypatch.setattr(reporting, "gather", gather)
    report(warehouse, "markdown")
    assert limits == [("512.0 MiB", 2)]


def test_where_nothing_is_published_there_is_no_page_and_no_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kp_batch")
    leave_report(tmp_path, ThreadExecutor())
    assert list(tmp_path.iterdir()) == []
    assert caplog.messages == []


@pytest.mark.usefixtures("no_page")
def test_a_page_that_cannot_be_written_is_a_warning_and_leaves_no_stale_one(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_report(warehouse, ThreadExecutor())
    rescore_archive(config(warehouse.parent, threshold=0.1))

    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("no\nVega")

    monkeypatch.setattr(reporting, "gather", fail)
    leave_report(warehouse, ThreadExecutor())
    assert not (warehouse / "report.html").exists()
    assert caplog.messages == [
        "the report was not written: no Vega; fix that, then: kp-batch report -o FILE"
    ]


@pytest.mark.process
def test_while_another_run_writes_it_also_writes_the_page(
    warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kp_batch")
    with holding(HOLD, warehouse):
        leave_report(warehouse, ThreadExecutor())
    assert not (warehouse / "report.html").exists()
    assert caplog.messages == []


@pytest.mark.usefixtures("no_page")
def test_a_page_that_cannot_be_removed_hides_no_error(
    warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (warehouse / "report.html").mkdir()
    write_jsonl(warehouse.parent / "a.jsonl", [trace(steps=[])] * 5)
    with pytest.raises(ArchiveError):
        rescore_and_report(config(warehouse.parent, report=True))
    assert "the report was not written" in caplog.messages[-1]


@pytest.mark.usefixtures("no_page")
def test_a_run_prints_its_summary_before_its_report(warehouse: Path) -> None:
    page = warehouse / "report.html"
    page_existed: list[bool] = []
    changed = config(warehouse.parent, threshold=0.1, report=True)
    rescore_and_report(changed, on_result=lambda _: page_existed.append(page.exists()))
    assert page_existed == [False]
    assert page.exists()


def test_a_forgotten_trace_leaves_the_page(warehouse: Path) -> None:
    words, later = "words to be forgotten", "2026-01-06T08:00:00Z"
    rows = [trace(id="to-be-forgotten", objective=words), trace(id="stays", created_at=later)]
    write_jsonl(warehouse.parent / "a.jsonl", rows)
    rescore_archive(config(warehouse.parent, prune=True))
    leave_report(warehouse, ThreadExecutor())
    text = (warehouse / "report.html").read_text("utf-8")
    assert "to-be-forgotten" in text
    assert text.count(words) == 6  # both tables and its page, as itself and as what is nearest
    assert forget(warehouse, ["to-be-forgotten"]).traces == 1
    text = (warehouse / "report.html").read_text("utf-8")
    assert "to-be-forgotten" not in text
    assert words not in text
    assert "stays" in text


def test_report_writes_a_page_or_words_where_it_is_asked_to(warehouse: Path) -> None:
    place = warehouse.parent / "page.html"
    done = invoke("report", "--warehouse", warehouse, "-o", place)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"kp-batch: the report is in {place}\n"
    assert place.read_text("utf-8") == report(warehouse, "html")
    done = invoke("report", "--warehouse", warehouse, "--format", "markdown")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == report(warehouse, "markdown")


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("place", ["missing/page.html", "."])
def test_report_says_in_one_line_where_it_cannot_write(warehouse: Path, place: str) -> None:
    done = invoke("report", "--warehouse", warehouse, "-o", warehouse.parent / place)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("kp-batch: ")
    assert not any(path.name.endswith(".part") for path in warehouse.parent.rglob("*"))


def test_report_of_no_warehouse_says_what_to_do(tmp_path: Path) -> None:
    done = invoke("report", "--warehouse", tmp_path, "-o", tmp_path / "page.html")
    assert done.returncode == 1
    assert f"{tmp_path} is not a warehouse; run an archive first" in done.stderr


@pytest.mark.telling
def test_report_says_in_one_line_what_cannot_be_read(warehouse: Path) -> None:
    for path in warehouse.glob("scores/*/*.parquet"):
        path.unlink()
    with pytest.raises(WarehouseError, match="scores"):
        report(warehouse, "markdown")


@pytest.mark.telling
@pytest.mark.process
@pytest.mark.parametrize(
    "options", [["--format", "table"], ["--format", "csv"], ["--json"]], ids=str
)
def test_a_terminal_obeys_nothing_that_traces_contain(warehouse: Path, options: list[str]) -> None:
    query = "SELECT trace_id, task_domain FROM scores"
    ours, theirs = pty.openpty()
    arguments = ("sql", query, "--warehouse", str(warehouse), *options)
    subprocess.run([sys.executable, "-m", "kp_batch", *arguments], stdout=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "[31mred" in shown
    assert not any(sign in shown for sign in HOSTILE if not sign.isprintable())


def test_what_is_piped_is_what_traces_contain(warehouse: Path) -> None:
    done = invoke(
        "sql", "SELECT task_domain FROM scores", "--warehouse", warehouse, "--format", "csv"
    )
    assert HOSTILE in done.stdout
    with connect(warehouse) as connection:
        rows = connection.execute("SELECT DISTINCT task_domain FROM scores").fetchall()
    assert rows == [(HOSTILE,)]


def test_an_error_that_names_what_traces_contain_is_not_obeyed_either(warehouse: Path) -> None:
    done = invoke("sql", f'FROM "{HOSTILE}"', "--warehouse", warehouse)
    assert done.returncode == 1
    assert "[31mred" in done.stderr
    assert "\x1b" not in done.stderr
