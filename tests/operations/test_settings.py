"""Settings belong to the warehouse: a run that leaves one out takes it from there."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kp_batch.planning.scorer
from kp_batch.config import SETTINGS
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import ArchiveError, EncoderError, WarehouseError
from kp_batch.operations.settings import settings
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.pipeline.summary import Summary
from kp_batch.planning.explain_plan import plan_text
from kp_batch.planning.limits import LimitInputs, exceeded_limits
from kp_batch.runs.record import RunCounts
from kp_batch.runs.run import Run
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.manifest import read_manifest
from tests.support.archives import trace, write_jsonl, write_parquet
from tests.support.commands import invoke
from tests.support.nights import Night
from tests.support.profiles import LEGAL
from tests.support.runs import ask, config, least

pytestmark = pytest.mark.slow

Rescore = Callable[..., Summary]
TO = "\N{RIGHTWARDS ARROW}"
NO_COUNTS = RunCounts(**{field.name: 0 for field in fields(RunCounts)} | {"rejected_by_code": {}})


@pytest.fixture
def rescore(tmp_path: Path) -> Rescore:
    """Run over two traces, with the settings that are given and no others."""
    rows = [trace(id="a"), trace(id="b", task_domain="customer_service")]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)

    def run(**changes: Any) -> Summary:
        places = {"archive": (str(tmp_path / "archive"),), "warehouse": tmp_path / "warehouse"}
        return rescore_and_report(least(**{**places, **changes}))

    return run


def kept(tmp_path: Path) -> dict[str, Any]:
    published = read_manifest(tmp_path / "warehouse")
    return dict(published.settings) if published else {}


def reasons(tmp_path: Path) -> list[dict[str, Any]]:
    """What the last run changed, as its row of `runs` has it."""
    query = "SELECT changes FROM runs ORDER BY started_at DESC, run_id DESC LIMIT 1"
    [(changes,)] = ask(config(tmp_path, tmp_path), query)
    return json.loads(changes)


def test_the_first_done_run_fixes_what_later_ones_leave_out(
    rescore: Rescore, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text(LEGAL)
    changes = {"embedder": "hashing", "cache_size": 7, "ttl": "7d", "threshold": 0.6}
    rescore(**changes, profiles=tmp_path / "p.toml")
    first = kept(tmp_path)
    assert {name: first[name] for name in changes} == changes
    assert first["profiles"] == load_profiles(tmp_path / "p.toml").as_json()
    (tmp_path / "p.toml").unlink()
    assert rescore().run_id is None
    rescore(threshold=0.5)
    assert kept(tmp_path) == first | {"threshold": 0.5}
    rescore(profiles="default", ttl="none")
    assert kept(tmp_path)["profiles"] == load_profiles().as_json()
    assert kept(tmp_path)["ttl"] == "none"
    for (row,) in ask(config(tmp_path, tmp_path), "SELECT published->'settings' FROM runs"):
        assert json.loads(row).keys() == set(SETTINGS)


def test_a_failed_run_changes_no_setting(rescore: Rescore, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "bad" / "b.jsonl", [trace(id="")])
    with pytest.raises(ArchiveError, match="none of the archive's"):
        rescore(archive=(str(tmp_path / "bad"),), embedder="hashing", threshold=0.1)
    assert kept(tmp_path) == {}
    rescore(embedder="hashing")
    both = (str(tmp_path / "archive"), str(tmp_path / "bad"))
    with pytest.raises(ArchiveError, match=r"1 of 3 rows is rejected"):
        rescore(archive=both, threshold=0.1, embedder="none")
    assert (kept(tmp_path)["threshold"], kept(tmp_path)["embedder"]) == (0.75, "hashing")
    rescore(max_reject_share=1)
    assert [reason["code"] for reason in reasons(tmp_path)] == ["after_failure"]


def test_what_cannot_begin_leaves_no_run(rescore: Rescore, tmp_path: Path) -> None:
    rescore(embedder="hashing")
    page = (tmp_path / "warehouse" / "report.html").read_bytes()
    before = read_manifest(tmp_path / "warehouse")
    with pytest.raises(ArchiveError, match="no Parquet or JSONL file"):
        rescore(archive=(str(tmp_path / "nothing"),))
    with pytest.raises(EncoderError, match="is neither minilm, hashing or none"):
        rescore(embedder=str(tmp_path / "nothing"))
    assert read_manifest(tmp_path / "warehouse") == before
    assert (tmp_path / "warehouse" / "report.html").read_bytes() == page


def test_what_another_kp_batch_or_other_model_files_change_is_named(
    rescore: Rescore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescore(embedder="hashing")
    monkeypatch.setattr(Hashing, "encoder_id", "hashing-other-v1")
    formulas = kp_batch.planning.scorer.FORMULAS
    monkeypatch.setitem(formulas, "scoring", formulas["scoring"] + 1)
    assert rescore().counts.restated == 2
    assert [(reason["code"], reason["of"], reason["words"]) for reason in reasons(tmp_path)] == [
        ("formula", "scoring", f"formula of scoring 1 {TO} 2"),
        ("model_files", None, f"files of the model hashing-384 {TO} hashing-other"),
    ]


def test_what_became_of_files_is_reported_by_number(rescore: Rescore, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for name in "bc":
        write_jsonl(archive / f"{name}.jsonl", [trace(id=name * 2)])
    write_parquet(archive / "d.parquet", [trace(id="dd")])
    rescore(embedder="none")
    content = (archive / "b.jsonl").read_bytes()
    (archive / "b.jsonl").unlink()
    (archive / "c.jsonl").unlink()
    (archive / "d.parquet").write_bytes(b"PAR1 and no more")
    write_jsonl(archive / "e.jsonl", [trace(id="ee")])
    rescore()
    changes = [(reason["code"], reason["new"]) for reason in reasons(tmp_path)]
    assert changes == [("files_new", 1), ("files_gone", 2), ("files_unreadable", 1)]
    (archive / "b.jsonl").write_bytes(content)
    write_jsonl(archive / "e.jsonl", [trace(id="ee"), trace(id="ef")])
    rescore(prune=True)
    changes = [(reason["code"], reason["words"]) for reason in reasons(tmp_path)]
    assert changes == [
        ("files_changed", "1 file changed"),
        ("files_back", "1 file back"),
        ("files_unreadable", "1 file unreadable"),
        ("files_pruned", "2 files pruned"),
    ]


def test_each_setting_is_shown_with_the_run_that_set_it(rescore: Rescore, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(LEGAL)
    first = rescore(embedder="hashing", threshold=0.5).run_id
    second = rescore(threshold=0.6, profiles=tmp_path / "p.toml").run_id
    third = rescore(threshold=0.5).run_id
    in_force = {
        setting.name: (setting.value, setting.run_id)
        for setting in settings(tmp_path / "warehouse")
    }
    assert in_force["embedder"] == ("hashing", first)
    assert in_force["threshold"] == (0.5, third)
    assert in_force["weights of legal"] == (
        load_profiles(tmp_path / "p.toml").as_json()["legal"],
        second,
    )
    assert in_force["weights of code"][1] == first
    shown = invoke("settings", "--warehouse", tmp_path / "warehouse").stdout.splitlines()
    assert shown[0].split() == ["embedder", "hashing", "since", "run", first]
    assert "complexity 0.25, novelty 0.25" in shown[-1]
    assert shown[-1].endswith(f"since run {second}")


def test_settings_of_no_warehouse_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="is no warehouse"):
        settings(tmp_path)


def test_a_profile_of_no_domain_is_asked_about_by_the_run_that_brings_it(
    rescore: Rescore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rescore(embedder="none")
    text = LEGAL.replace("legal", "cutsomer_service")
    (tmp_path / "p.toml").write_text(text + LEGAL)
    caplog.clear()
    rescore(profiles=tmp_path / "p.toml")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "no trace has the domain cutsomer_service; did you mean customer_service?",
        "no trace has the domain legal, which has a profile",
    ]
    caplog.clear()
    rescore(threshold=0.3)
    assert "no trace has" not in caplog.text


def test_traces_of_the_future_are_asked_about(
    rescore: Rescore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_jsonl(tmp_path / "archive" / "late.jsonl", [trace(id="x", created_at="2999-01-01")])
    rescore(embedder="none")
    assert "traces are dated in the future: 1 partition: 2999-01-01; once scored" in caplog.text
    caplog.clear()
    rescore(threshold=0.3)
    assert "dated in the future" not in caplog.text


@pytest.mark.parametrize(
    ("limit", "is_too_many"),
    [(None, False), (2, False), ("1", True), ("50%", False), ("49%", True), ("0", True)],
)
def test_unreadable_files_fail_a_run_where_they_are_more_than_is_allowed(
    rescore: Rescore, tmp_path: Path, limit: str | int | None, *, is_too_many: bool
) -> None:
    write_jsonl(tmp_path / "archive" / "b.jsonl", [trace(id="c")])
    for name in ("y", "z"):
        (tmp_path / "archive" / f"{name}.parquet").write_bytes(b"PAR1 and no more")
    options = {} if limit is None else {"max_unreadable": limit}
    if not is_too_many:
        assert rescore(embedder="none", **options).counts.accepted == 3
        return
    match = (
        rf"2 of 4 files are unreadable, more than --max-unreadable {limit} allows \(such as .*y\.p"
    )
    with pytest.raises(ArchiveError, match=match):
        rescore(embedder="none", **options)
    query = "SELECT len(reasons) FROM rejects"
    assert ask(config(tmp_path, tmp_path), query) == [(1,), (1,)]


def test_a_plan_tells_that_a_run_would_fail_and_how_much_is_rejected(tmp_path: Path) -> None:
    night = Night(tmp_path)
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(), trace(id="")])
    description = night.described(embedder="none")
    assert (description.rows_rejected, description.rejected_by_code) == (1, {"missing_id": 1})
    assert description.excess
    assert description.excess.startswith(
        "1 of 2 rows is rejected, more than --max-reject-share 0.05"
    )


def test_a_share_of_unreadable_files_is_exact() -> None:
    counts = replace(NO_COUNTS, accepted=1, rows=1, files=58, unreadable=29)
    counts = replace(counts, unreadable_files=["a"] * 29)
    for limit, is_too_many in (("50%", False), ("49%", True), ("29", False), ("28", True)):
        run = Run.begin(least(max_unreadable=limit), datetime.now(UTC))
        assert (exceeded_limits(run, counts, LimitInputs()) is not None) == is_too_many


def test_superseded_rows_and_files_are_told_apart_from_rejected_rows(tmp_path: Path) -> None:
    night = Night(tmp_path)
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(objective="old"), trace(id="")])
    write_jsonl(tmp_path / "archive" / "b.jsonl", [trace(objective="new")])
    (tmp_path / "archive" / "c.parquet").write_bytes(b"PAR1 and no more")
    text = plan_text(night.described(embedder="none"))
    rejected = "1 row, 1 file, 1 row superseded (missing_id 1, unreadable_file 1)"
    assert f"  reject     {rejected}" in text.splitlines()
