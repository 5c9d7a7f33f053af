"""Rejected rows without their texts: neither JSON nor values in messages are stored."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from kp_batch.operations.current_settings import settings as current_settings
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.runs.run import effective_config
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.publication import publish
from tests.support.kill.removal import published, refused, said, settings_of, write
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

QUERY = "SELECT trace_id, raw IS NULL, message FROM rejects ORDER BY trace_id"
CANARY = "a canary of a rejected row"
WITHOUT = "outcome.confidence is null, NaN, or outside 0..1"


def rejected(name: str, domain: str = "code") -> dict[str, object]:
    return refused(name, objective=CANARY, task_domain=domain)


def holding(warehouse: Path, text: str) -> list[str]:
    """The files that contain a text, also those of Parquet, which are compressed."""
    found = []
    for path in (path for path in sorted(warehouse.rglob("*")) if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += repr(pl.read_parquet(path, hive_partitioning=False).rows()).encode()
        if text.encode() in content:
            found.append(str(path.relative_to(warehouse)))
    return found


def test_without_reject_text_no_file_has_texts_of_a_rejected_row(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [said(1, "fix it", 8), rejected("no")]})
    with (tmp_path / "archive" / "b.jsonl").open("w") as file:
        file.write(f'"{CANARY}"\n')
    settings = settings_of(tmp_path, reject_text=False, report=True)
    rescore_archive(settings)
    rows = ask_rows(settings.warehouse, QUERY)
    assert rows == [
        ("kp:trace:no", True, WITHOUT),
        (None, True, "line 1 is not a JSON object"),
    ]
    assert holding(settings.warehouse, "kp:trace:no")
    assert holding(settings.warehouse, CANARY) == []


def test_newly_read_rows_follow_the_setting_and_a_vacuum_removes_the_others(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [said(1, "fix it", 8), rejected("a")]})
    rescore_archive(settings_of(tmp_path))
    write(tmp_path, {"b.jsonl": [rejected("b")]})
    run = rescore_archive(settings_of(tmp_path, reject_text=False))
    assert run.counts.rescored == 0
    warehouse = tmp_path / "warehouse"
    [(_, is_null, words), b] = ask_rows(warehouse, QUERY)
    assert not is_null
    assert words != WITHOUT
    assert b == ("kp:trace:b", True, WITHOUT)
    vacuum(warehouse, timedelta(days=1), datetime.now(UTC) + timedelta(days=2))
    assert [row[1:] for row in ask_rows(warehouse, QUERY)] == [(True, WITHOUT)] * 2
    write(tmp_path, {"c.jsonl": [rejected("c")]})
    rescore_archive(settings_of(tmp_path))
    assert [is_null for _, is_null, _ in ask_rows(warehouse, QUERY)] == [True, True, False]


def test_a_warehouse_that_is_older_than_the_setting_has_its_default(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [said(1, "fix it", 8), rejected("a")]})
    rescore_archive(settings_of(tmp_path))
    now = published(tmp_path / "warehouse")
    older = {name: value for name, value in now.settings.items() if name != "reject_text"}
    publish(Candidate(tmp_path / "warehouse", now, "older"), older)
    assert "reject_text" not in published(tmp_path / "warehouse").settings
    assert rescore_archive(settings_of(tmp_path)).status == "nothing_to_do"
    assert effective_config(settings_of(tmp_path)).reject_text
    rows = {row["name"]: row for row in current_settings(tmp_path / "warehouse")}
    assert rows["reject_text"]["value"] is True
    run = rescore_archive(settings_of(tmp_path, reject_text=False))
    assert (run.status, run.counts.rescored) == ("done", 0)
    [(changes,)] = ask_rows(
        tmp_path / "warehouse", "SELECT changes FROM runs ORDER BY started_at DESC LIMIT 1"
    )
    assert "reject text yes" in changes
