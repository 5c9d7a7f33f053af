"""A run with `keep` removes what is older, as a vacuum does, once it has published."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kp_batch as kp
from kp_batch.pipeline import rescore
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.warehouse.vacuum_result import VacuumResult
from tests.support.kill.removal import parquet, published, refused, said, settings_of, write
from tests.support.processes.commands import invoke
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

MONTH = timedelta(days=30)


class MonthLater(datetime):
    """A clock: all runs of these tests are older than a month by it."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + MONTH + timedelta(hours=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; the second one's archive has other content in the same file."""
    folder = tmp_path_factory.mktemp("keep")
    for words in ("fix it", "fix all"):
        write(folder, {"a.jsonl": [said(1, words, 8), refused("no")]})
        rescore_and_report(settings_of(folder))
    keep(folder)
    return folder


@pytest.fixture
def folder(made: Path) -> Path:
    restore(made)
    return made


def test_a_run_removes_what_a_vacuum_would_remove_after_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = folder / "warehouse"
    copy = Path(shutil.copytree(warehouse, folder / "copy"))
    wanted = vacuum(copy, MONTH, MonthLater.now(UTC))
    assert len(wanted.lost) == 1
    monkeypatch.setattr(rescore, "datetime", MonthLater)
    summary = rescore_and_report(settings_of(folder, keep="30d"))
    assert (summary.status, summary.removed) == ("nothing_to_do", wanted)
    assert wanted.words in str(summary)
    assert len(parquet(warehouse)) == len(parquet(copy))


def test_a_run_that_publishes_removes_afterwards(folder: Path) -> None:
    write(folder, {"b.jsonl": [said(2, "sum it", 9)]})
    summary = rescore_and_report(settings_of(folder, keep="30d"))
    assert summary.status == "done"
    assert summary.removed
    assert summary.removed.facts == 2  # of the replaced content
    assert f"removed  {summary.removed.words}" in " ".join(str(summary).split("   "))
    assert summary.run_id in summary.removed.readable


def removed(folder: Path) -> VacuumResult:
    result = rescore_and_report(settings_of(folder, keep="30d")).removed
    assert result
    return result


def test_a_night_with_nothing_to_remove_publishes_nothing(folder: Path) -> None:
    before = published(folder / "warehouse")
    assert rescore_and_report(settings_of(folder)).removed is None
    assert published(folder / "warehouse") == before
    while removed(folder).removes_anything:
        assert published(folder / "warehouse") != before
    then = published(folder / "warehouse")
    assert len(removed(folder).readable) == 2
    assert published(folder / "warehouse") == then


def test_a_run_is_done_even_if_nothing_can_be_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(rescore, "vacuum", full)
    write(folder, {"b.jsonl": [said(2, "sum it", 9)]})
    run = kp.Warehouse(folder / "warehouse").run(keep="30d", max_reject_share=1)
    assert (run.status, run.removed) == ("done", None)
    [warning] = [text for text in run.warnings if "keep" in text]
    assert "the run is done, but some data older than `keep` was not removed" in warning


def test_a_project_says_how_long_runs_are_kept(folder: Path) -> None:
    file = folder / "kp_batch.toml"
    head = f'warehouse = "{folder / "warehouse"}"\narchive = "{folder / "archive"}"\n'
    settings = '[settings]\nembedder = "hashing"\n[limits]\nmax_reject_share = 1\n'
    file.write_text(f'{head}[run]\nkeep = "30d"\n{settings}')
    done = invoke("run", "--project", file, "--no-prefect", "--json")
    assert '"removed": {"files"' in done.stdout
    off = invoke("run", "--project", file, "--no-prefect", "--json", "--keep", "none")
    assert '"removed": null' in off.stdout


def test_minutes_may_be_months(folder: Path) -> None:
    done = invoke("run", "--warehouse", folder / "warehouse", "--keep", "30m")
    assert done.returncode
    assert "--keep: '30m' may be minutes or months; write hours or days" in done.stderr
