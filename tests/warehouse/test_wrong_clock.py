"""Runs count in the order in which they were published, whatever the clock said."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kp_batch.operations.compare import compare
from kp_batch.operations.current_settings import settings
from kp_batch.operations.explain import explain
from kp_batch.operations.kept_runs import RUNS as LISTED
from kp_batch.pipeline import rescore
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report.build import report
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.queries import ask

pytestmark = pytest.mark.slow

AHEAD = timedelta(days=1)


@contextmanager
def clock(off: timedelta) -> Iterator[None]:
    """Let runs start by a clock that is wrong."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + off

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescore, "datetime", Wrong)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nights of a clock that was a day ahead in the second one."""
    folder = tmp_path_factory.mktemp("nights")
    for night, off in enumerate((timedelta(0), AHEAD, timedelta(0))):
        rows = [trace(id=f"{night}-{n}", objective=f"Do {night} {n}") for n in range(2)]
        write_jsonl(folder / "archive" / f"{night}.jsonl", rows)
        with clock(off):
            rescore_archive(config(folder, folder / "archive", threshold=0.5 + night / 10))
    return folder


@pytest.fixture(scope="module")
def warehouse(folder: Path) -> Path:
    return folder / "warehouse"


@pytest.fixture(scope="module")
def runs(warehouse: Path) -> list[str]:
    """The runs in the order of their nights."""
    query = "SELECT run_id FROM runs ORDER BY (counts->>'accepted')::BIGINT"
    return [name for (name,) in ask(warehouse, query).rows()]


@pytest.mark.telling
def test_runs_are_numbered_as_they_were_published(warehouse: Path, runs: list[str]) -> None:
    assert sorted(runs) != runs  # their names tell the clock's order
    numbered = ask(warehouse, "SELECT run_id FROM runs ORDER BY number").rows()
    assert [name for (name,) in numbered] == runs
    assert ask(warehouse, "SELECT list(number ORDER BY number) FROM runs").item().to_list() == [
        *(1, 2, 3)
    ]


@pytest.mark.telling
def test_the_last_run_is_the_one_that_was_published_last(warehouse: Path, runs: list[str]) -> None:
    assert ask(warehouse, "SELECT latest(), previous()").row(0) == (runs[2], runs[1])
    listed = ask(warehouse, LISTED).get_column("run_id").to_list()
    assert listed == runs[::-1]
    set_by = {setting["name"]: setting["run_id"] for setting in settings(warehouse)}
    assert set_by["threshold"] == runs[2]
    assert runs[2] in report(warehouse, "markdown")


def test_the_next_run_counts_from_it(folder: Path, warehouse: Path) -> None:
    [(fingerprints,)] = ask(
        warehouse, "SELECT fingerprints FROM runs WHERE run_id = latest()"
    ).rows()
    assert sum(json.loads(fingerprints)["encoder_id"].values()) == 6
    again = rescore_archive(config(folder, folder / "archive", threshold=0.7))
    assert again.run_id is None
    assert again.counts.accepted == sum(score["traces"] for score in again.scores) == 6


@pytest.mark.parametrize("night", range(3))
def test_what_a_run_left_ends_with_it(warehouse: Path, runs: list[str], night: int) -> None:
    with connect(warehouse, runs[night]) as connection:
        seen = connection.execute("SELECT run_id FROM runs ORDER BY number").fetchall()
        assert [name for (name,) in seen] == runs[: night + 1]
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(2 * night + 2,)]
        assert connection.execute("SELECT latest()").fetchall() == [(runs[night],)]


def test_latest_as_of_is_the_last(warehouse: Path) -> None:
    with connect(warehouse, "latest") as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(6,)]


@pytest.mark.telling
def test_the_past_of_a_trace_is_shown_in_that_order(warehouse: Path, runs: list[str]) -> None:
    explanation = explain(warehouse, "1-0")
    assert explanation.history[0]["run_id"] == runs[1]
    moved = compare(warehouse, "previous", "latest")
    assert (moved.before, moved.after, moved.only_after) == (runs[1], runs[2], 2)


@pytest.mark.telling
def test_a_vacuum_looks_back_in_that_order(warehouse: Path, runs: list[str]) -> None:
    now = datetime.now(UTC)
    result = vacuum(warehouse, AHEAD / 2, now, dry_run=True)
    assert result.readable == tuple(runs)
