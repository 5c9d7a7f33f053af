"""Settings belong to the warehouse: a run that leaves one out takes it from there."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kp_batch.planning.scorer
from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import ArchiveError, EncoderError, WarehouseError
from kp_batch.operations.current_settings import settings
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.excess import LimitInputs, exceeded_limits
from kp_batch.report.run_summary import Summary
from kp_batch.runs.run import Run, effective_config
from kp_batch.scoring.profiles import load_profiles
from kp_batch.settings import Settings
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.run_record import RunCounts
from tests.support.make.archives import trace, write_jsonl, write_parquet
from tests.support.make.nights import Night
from tests.support.make.profiles import LEGAL
from tests.support.make.runs import config, least
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

TO = "\N{RIGHTWARDS ARROW}"
NO_COUNTS = RunCounts(**{field.name: 0 for field in fields(RunCounts)} | {"rejected_by_code": {}})


def options(folder: Path, **changes: Any) -> RescoreConfig:
    """The settings that are given and no others."""
    places = {"archive": (str(folder / "archive"),), "warehouse": folder / "warehouse"}
    return least(**{**places, **changes})


def rescored(folder: Path, **changes: Any) -> Summary:
    return rescore_archive(effective_config(options(folder, **changes)))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The folder of an archive of two traces, which no run has seen."""
    rows = [trace(id="a"), trace(id="b", task_domain="customer_service")]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    return tmp_path


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings") / "made"
    rows = [trace(id="a"), trace(id="b", task_domain="customer_service")]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    for name in "bc":
        write_jsonl(folder / "archive" / f"{name}.jsonl", [trace(id=name * 2)])
    write_parquet(folder / "archive" / "d.parquet", [trace(id="dd")])
    rescored(folder, embedder="hashing")
    keep(folder)
    return folder


@pytest.fixture
def done(once: Path) -> Path:
    """The folder of an archive of five traces in four files, after its first run."""
    restore(once)
    return once


def kept(folder: Path) -> dict[str, Any]:
    published = read_manifest(folder / "warehouse")
    return dict(published.settings) if published else {}


def reasons(folder: Path) -> list[dict[str, Any]]:
    """What the last run changed, as its row of `runs` has it."""
    query = "SELECT changes FROM runs ORDER BY started_at DESC, run_id DESC LIMIT 1"
    [(changes,)] = ask_rows(config(folder, folder).warehouse, query)
    return json.loads(changes)


def test_the_first_done_run_fixes_what_later_ones_leave_out(new: Path) -> None:
    profiles = new / "p.toml"
    profiles.write_text(LEGAL)
    changes = {"embedder": "hashing", "cache_size": 7, "ttl": "7d", "threshold": 0.5}
    first = rescored(new, **changes).run_id
    assert {name: kept(new)[name] for name in changes} == changes
    second = rescored(new, threshold=0.6, profiles=profiles).run_id
    before, legal = kept(new), load_profiles(profiles).as_json()
    assert before["profiles"] == legal
    profiles.unlink()
    assert rescored(new).run_id is None
    third = rescored(new, threshold=0.5).run_id
    assert kept(new) == before | {"threshold": 0.5}
    current = {
        setting["name"]: (setting["value"], setting["run_id"])
        for setting in settings(new / "warehouse")
    }
    assert current["embedder"] == ("hashing", first)
    assert current["threshold"] == (0.5, third)
    assert current["weights of legal"] == (legal["legal"], second)
    assert current["weights of code"][1] == first
    shown = invoke("settings", "--warehouse", new / "warehouse").stdout.splitlines()
    assert shown[0].split() == ["embedder", "hashing", "warehouse", "since", "run", first]
    assert "complexity 0.25, novelty 0.25" in shown[-1]
    assert shown[-1].endswith(f"since run {second}")
    rescored(new, profiles="default", ttl="none")
    assert kept(new)["profiles"] == load_profiles().as_json()
    assert kept(new)["ttl"] == "none"
    for (row,) in ask_rows(config(new, new).warehouse, "SELECT published->'settings' FROM runs"):
        assert json.loads(row).keys() == set(Settings.model_fields)


def test_a_failed_run_changes_no_setting(new: Path) -> None:
    write_jsonl(new / "bad" / "b.jsonl", [trace(id="")])
    with fails_with(ArchiveError, "nothing_to_score"):
        rescored(new, archive=(str(new / "bad"),), embedder="hashing", threshold=0.1)
    assert kept(new) == {}
    rescored(new, embedder="hashing")
    both = (str(new / "archive"), str(new / "bad"))
    with pytest.raises(ArchiveError, match=r"1 of 3 rows is rejected"):
        rescored(new, archive=both, threshold=0.1, embedder="none")
    assert (kept(new)["threshold"], kept(new)["embedder"]) == (0.75, "hashing")
    rescored(new, max_reject_share=1)
    assert [reason["code"] for reason in reasons(new)] == ["after_failure"]


@pytest.mark.telling
def test_what_cannot_begin_leaves_no_run(done: Path) -> None:
    before = read_manifest(done / "warehouse")
    with fails_with(ArchiveError, "no_archive"):
        rescored(done, archive=(str(done / "nothing"),))
    with fails_with(EncoderError, "encoder"):
        rescored(done, embedder=str(done / "nothing"))
    assert read_manifest(done / "warehouse") == before


def test_what_another_kp_batch_or_other_model_files_change_is_named(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hashing, "encoder_id", "hashing-other-v1")
    formulas = kp_batch.planning.scorer.FORMULAS
    monkeypatch.setitem(formulas, "scoring", formulas["scoring"] + 1)
    assert rescored(done).counts.rescored == 5
    assert [(reason["code"], reason["of"], reason["words"]) for reason in reasons(done)] == [
        ("formula", "scoring", f"formula of scoring 1 {TO} 2"),
        ("model_files", None, f"files of the model hashing-384 {TO} hashing-other"),
    ]


def test_what_became_of_files_is_reported_by_number(done: Path) -> None:
    archive = done / "archive"
    content = (archive / "b.jsonl").read_bytes()
    (archive / "b.jsonl").unlink()
    (archive / "c.jsonl").unlink()
    (archive / "d.parquet").write_bytes(b"PAR1 and no more")
    write_jsonl(archive / "e.jsonl", [trace(id="ee")])
    rescored(done)
    changes = [(reason["code"], reason["new"]) for reason in reasons(done)]
    assert changes == [("files_new", 1), ("files_gone", 2), ("files_unreadable", 1)]
    (archive / "b.jsonl").write_bytes(content)
    write_jsonl(archive / "e.jsonl", [trace(id="ee"), trace(id="ef")])
    rescored(done, prune=True)
    changes = [(reason["code"], reason["words"]) for reason in reasons(done)]
    assert changes == [
        ("files_changed", "1 file changed"),
        ("files_back", "1 file back"),
        ("files_unreadable", "1 file unreadable"),
        ("files_pruned", "2 files pruned"),
    ]


def test_settings_of_no_warehouse_are_refused(tmp_path: Path) -> None:
    with fails_with(WarehouseError, "no_warehouse"):
        settings(tmp_path)


def test_what_may_be_a_mistake_is_asked_about_by_the_run_that_brings_it(
    done: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A profile of no domain, and traces of the future."""
    (done / "p.toml").write_text(LEGAL.replace("legal", "cutsomer_service") + LEGAL)
    write_jsonl(done / "archive" / "late.jsonl", [trace(id="x", created_at="2999-01-01")])
    rescored(done, profiles=done / "p.toml")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    profiles = [warning for warning in warnings if "no trace has" in warning]
    assert profiles == [
        "no trace has the domain cutsomer_service; did you mean customer_service?",
        "no trace has the domain legal, though a profile has this name; check its spelling",
    ]
    assert (
        "traces are dated in the future: 1 partition: 2999-01-01; to list them once they are scored"
        in caplog.text
    )
    caplog.clear()
    rescored(done, threshold=0.3)
    assert "no trace has" not in caplog.text
    assert "dated in the future" not in caplog.text


def test_unreadable_files_fail_a_run_where_they_are_more_than_is_allowed(done: Path) -> None:
    for name in "yz":
        (done / "archive" / f"{name}.parquet").write_bytes(b"PAR1 and no more")
    match = r"2 of 6 files are unreadable, more than --max-unreadable 33% allows \(such as .*y\.p"
    with pytest.raises(ArchiveError, match=match):
        rescored(done, max_unreadable="33%")
    assert ask_rows(config(done, done).warehouse, "SELECT len(reasons) FROM rejects") == [
        (1,),
        (1,),
    ]
    assert rescored(done).counts.accepted == 5


def test_a_plan_says_that_a_run_would_fail_and_how_much_is_rejected(tmp_path: Path) -> None:
    night = Night(tmp_path)
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(), trace(id="")])
    description = night.described(embedder="none")
    assert (description.rows_rejected, description.rejected_by_code) == (1, {"missing_id": 1})
    assert description.excess
    assert description.excess.startswith("1 of 2 rows is rejected, more than --max-reject-share 5%")


@pytest.mark.telling
def test_a_share_of_unreadable_files_is_exact_and_without_a_limit_all_may_be() -> None:
    counts = replace(NO_COUNTS, accepted=1, rows=1, files=58, unreadable=29)
    counts = replace(counts, unreadable_files=["a"] * 29)
    inputs = LimitInputs(unreadable=("a",) * 29)
    allowed: list[Any] = [{}, *({"max_unreadable": limit} for limit in ("50%", "29", 29, "100%"))]
    for changes in allowed:
        run = Run.begin(least(**changes), datetime.now(UTC))
        assert exceeded_limits(run, counts, inputs) is None, changes
        assert exceeded_limits(run, counts, LimitInputs()) is None  # they have been unreadable
    for limit in ("49%", "28", 28, "0", "0%"):
        run = Run.begin(least(max_unreadable=limit), datetime.now(UTC))
        exceeded = f"29 of 58 files are unreadable, more than --max-unreadable {limit} allows"
        assert str(exceeded_limits(run, counts, inputs)).startswith(exceeded)


def test_superseded_rows_and_files_are_counted_apart_from_rejected_rows(tmp_path: Path) -> None:
    night = Night(tmp_path)
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(objective="old"), trace(id="")])
    write_jsonl(tmp_path / "archive" / "b.jsonl", [trace(objective="new")])
    (tmp_path / "archive" / "c.parquet").write_bytes(b"PAR1 and no more")
    text = str(night.described(embedder="none"))
    rejected = "1 row, 1 file, 1 row superseded (missing_id 1, unreadable_file 1)"
    assert f"  reject     {rejected}" in text.splitlines()
