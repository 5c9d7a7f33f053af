"""A run that finds everything as the last one left it looks at no trace."""

import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kp_batch.planning.plan as planning
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.ingest.scan import ArchiveScan, scan_archive
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.explain_plan import describe
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer, is_current, is_up_to_date
from kp_batch.runs.run import Run
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.run_record import RunRecord, last_done
from kp_batch.warehouse.snapshot import published
from kp_batch.warehouse.staging import Staging
from tests.support.make.archives import trace, write_damaged, write_jsonl
from tests.support.make.runs import config
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

ROWS = [
    trace(id="kp:a"),
    trace(id="kp:b", task_domain="code", created_at="2026-01-06T00:00:00Z"),
    trace(id="kp:b", objective="another", created_at="2026-01-07T00:00:00Z"),
    trace(id="kp:a"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    """A warehouse with a duplicate, a superseded and a rejected row, and an unreadable file."""
    folder = tmp_path_factory.mktemp("noop") / "made"
    archive = folder / "archive"
    write_jsonl(archive / "a.jsonl", ROWS)
    write_jsonl(archive / "b.jsonl", [trace(id="kp:c"), trace(id="kp:d", success=None)])
    write_damaged(archive / "c.parquet", [trace(id="kp:e")] * 9, 3)
    settings = config(folder, archive, max_reject_share=0.5)
    rescore_archive(settings)
    keep(folder)
    return settings


@pytest.fixture
def scored(made: RescoreConfig) -> RescoreConfig:
    """The same, whatever the last test made of it."""
    restore(made.warehouse.parent)
    return made


def begun(settings: RescoreConfig, folder: str) -> tuple[Run, ArchiveScan, Scorer]:
    run = Run.begin(settings, datetime.now(UTC), Staging(Path(folder)))
    run.staging.make()
    return run, scan_archive(run, ThreadExecutor()), Scorer.of(run)


def planned(settings: RescoreConfig) -> tuple[Plan, dict[str, Any]]:
    """The plan, and what it tells."""
    with tempfile.TemporaryDirectory() as folder:
        run, scan, scorer = begun(settings, folder)
        plan = make_plan(run, scan, scorer)
        return plan, asdict(describe(run, plan, by_domain_and_day=True))


def last(settings: RescoreConfig) -> RunRecord:
    record = last_done(published(settings.warehouse).runs())
    assert record
    return record


def hide_scores(settings: RescoreConfig) -> None:
    for path in (settings.warehouse / "scores").rglob("*.parquet"):
        path.unlink()


@pytest.mark.telling
def test_nothing_to_do_opens_no_file_of_scores(scored: RescoreConfig) -> None:
    before = last(scored)
    hide_scores(scored)
    summary = rescore_archive(scored)
    assert summary.run_id is None
    assert before.counts
    assert summary.counts == before.counts.without_work
    assert last(scored) == before


@pytest.mark.telling
def test_it_finds_what_a_look_at_all_traces_finds(
    scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, description = planned(scored)
    monkeypatch.setattr(planning, "is_up_to_date", lambda *_: False)
    compared, compared_description = planned(scored)
    assert plan.pending == compared.pending == ()
    assert (plan.counts, description) == (compared.counts, compared_description)
    assert plan.counts.unreadable == plan.counts.superseded == plan.counts.rejected == 1


@pytest.mark.telling
def test_it_fails_as_a_look_at_all_traces_would(scored: RescoreConfig) -> None:
    with pytest.raises(ArchiveError, match="more than --max-reject-share"):
        rescore_archive(scored.model_copy(update={"max_reject_share": "1%"}))


def bearing_another(record: RunRecord, kind: str) -> RunRecord:
    ids = {**record.fingerprints[kind], "another-v1": 1}
    return replace(record, fingerprints={**record.fingerprints, kind: ids})


@pytest.mark.telling
def test_it_looks_where_anything_may_differ(scored: RescoreConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, scan, scorer = begun(scored, folder)
        record = last(scored)
        assert is_up_to_date(run, scorer, scan, record)
        for kind in ("encoder_id", "cache_id"):
            assert not is_current(run, scorer, bearing_another(record, kind))
        assert not is_current(run, scorer, None)
        assert not is_current(run, scorer, bearing_another(record, "profile_id"))
        assert not is_up_to_date(run, scorer, replace(scan, differs=True), record)
        failed = replace(run, published=replace(run.published, failed=True))
        assert not is_up_to_date(failed, scorer, scan, record)
        run.staging.to_forget.touch()
        assert not is_up_to_date(run, scorer, scan, record)


@pytest.mark.telling
def test_it_looks_where_a_setting_differs(scored: RescoreConfig) -> None:
    for changes in ({"threshold": 0.1}, {"cache_size": 9}):
        plan, _ = planned(config(scored.warehouse.parent, *map(Path, scored.archive), **changes))
        assert "settings" in plan.pending


@pytest.mark.telling
def test_the_lists_count_the_rows_of_each_day(scored: RescoreConfig) -> None:
    expected = ask_rows(
        scored.warehouse, "SELECT created_at::DATE, count(*) FROM scores GROUP BY 1 ORDER BY 1"
    )
    assert published(scored.warehouse).rows_by_day().sort("day").rows() == expected


def test_a_run_records_how_many_scores_have_each_id(scored: RescoreConfig) -> None:
    late = [trace(id=f"kp:{letter}", created_at="2030-01-01T00:00:00Z") for letter in "xyz"]
    for rows in (late, [{**late[0], "task": {"objective": "another"}}]):
        write_jsonl(Path(*scored.archive) / "late.jsonl", rows)
        rescore_archive(scored.model_copy(update={"prune": True}))
    for name, counts in last(scored).fingerprints.items():
        query = f"SELECT {name}, count(*) FROM scores GROUP BY ALL ORDER BY ALL"
        assert list(counts.items()) == ask_rows(scored.warehouse, query)
