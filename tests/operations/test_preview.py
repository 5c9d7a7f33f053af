"""A preview shows what a run would do, number for number, and leaves the warehouse as it was."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import ArchiveError, AuditError, KpBatchError
from kp_batch.operations.compare import compare
from kp_batch.operations.preview import Preview, preview, preview_parts
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.rendering import as_text
from kp_batch.runs.run import effective_config
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.publication import writing
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.make.sample import write_sample
from tests.support.processes.commands import command
from tests.support.processes.prefect_server import PrefectServer
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

LEGAL = {"legal": {"complexity": 1, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}}


def listing(warehouse: Path) -> dict[str, bytes]:
    """All files but vectors and candidates, which stay, and the lock's, which names its holder."""
    files = (path for path in warehouse.rglob("*") if path.is_file() and path.name != "kp.lock")
    left_out = {"vectors", "candidate"}
    return {str(file): file.read_bytes() for file in files if left_out.isdisjoint(file.parts)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preview") / "made"
    write_sample(folder / "archive", traces=80, days=4, seed=5)
    rescore_archive(config(folder, folder / "archive"))
    keep(folder)
    return folder


@pytest.fixture
def scored(made: Path) -> Path:
    """The folder of an archive and a warehouse, as its first run left it."""
    restore(made)
    return made


def config_of(folder: Path, **changes: Any) -> Any:
    return effective_config(config(folder, folder / "archive", **changes))


@pytest.mark.telling
def test_a_preview_is_the_comparison_of_the_run_afterwards_and_leaves_nothing(
    scored: Path,
) -> None:
    new = [trace(id=f"new {number}", objective=f"task {number}") for number in range(3)]
    write_jsonl(scored / "archive" / "new.jsonl", new)
    changes = {"profiles": LEGAL, "cache_size": 5, "threshold": 0.6}
    before = listing(scored / "warehouse")
    previews: list[Preview] = []
    page = scored / "page.html"
    result = preview(
        config_of(scored, preview=True, output=page, **changes), on_result=previews.append
    )
    assert previews == [result]
    assert listing(scored / "warehouse") == before
    assert "<html" in page.read_text("utf-8")
    summary = rescore_archive(config_of(scored, **changes))
    assert (summary.counts.embedded, result.counts.embedded) == (0, 3)  # its vectors stay
    done = compare(scored / "warehouse", "previous", "latest")
    assert result.comparison
    assert result.comparison.movers
    assert replace(result.comparison, after=done.after) == done
    assert result.comparison.domains[0]["traces"] == 80
    assert (result.changes, result.comparison.only_after) == (True, 3)
    objective = result.comparison.movers[0]["objective"]
    assert objective
    assert objective[:20] in str(result)
    assert objective not in as_text(preview_parts(result, shows_text=False))


@pytest.mark.telling
def test_a_first_preview_and_one_of_nothing_have_nothing_to_compare(
    tmp_path: Path, scored: Path
) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace()])
    first = preview(config_of(tmp_path, preview=True))
    assert (first.comparison, first.counts.rescored, first.changes) == (None, 1, True)
    assert read_manifest(tmp_path / "warehouse") is None
    assert "there is nothing to compare with" in str(first)
    quiet = preview(config_of(scored, preview=True))
    assert (quiet.comparison, quiet.changes) == (None, False)
    assert str(quiet).startswith("preview: nothing to do")


def test_another_encoder_is_previewed_too(scored: Path) -> None:
    result = preview(config_of(scored, preview=True, embedder="none"))
    assert result.comparison
    assert result.comparison.changes[0].code == "embedder"


@pytest.mark.telling
def test_audits_are_reported_before_they_fail_and_limits_hold(scored: Path) -> None:
    before = listing(scored / "warehouse")
    previews: list[Preview] = []
    audits = {"all": {"sql": "FROM scores WHERE score >= 0"}}
    with pytest.raises(AuditError, match=r"all \(80 rows\); a run would publish no scores"):
        preview(
            config_of(scored, preview=True, audits=audits, threshold=0.1), on_result=previews.append
        )
    assert previews[0].comparison
    assert [audit.rows for audit in previews[0].audits] == [80]
    write_jsonl(scored / "archive" / "bad.jsonl", [trace(id="")] * 20)
    with pytest.raises(ArchiveError, match="rejected, more than"):
        preview(config_of(scored, preview=True))
    assert listing(scored / "warehouse") == before


@pytest.mark.telling
def test_a_report_that_cannot_be_written_keeps_no_result_from_being_shown(
    scored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previews: list[Preview] = []
    monkeypatch.setattr(
        "kp_batch.operations.preview.report_on", lambda *_: Path("/").write_text("")
    )
    with pytest.raises(OSError, match="directory"):
        preview(
            config_of(scored, preview=True, output=scored / "page.html"), on_result=previews.append
        )
    assert previews


@pytest.mark.telling
def test_the_report_goes_neither_into_the_archive_nor_into_the_warehouse(scored: Path) -> None:
    for output in (scored / "warehouse" / "report.html", scored / "archive" / "x.jsonl"):
        with pytest.raises(KpBatchError, match="is in the archive or the warehouse"):
            preview(config_of(scored, preview=True, output=output))
    for output in (scored, scored / "nowhere" / "report.html"):
        with pytest.raises(
            KpBatchError, match="cannot be written as the report; name a file in an existing folder"
        ):
            preview(config_of(scored, preview=True, output=output))
    with pytest.raises(ValueError, match="-o is for the report of a --preview"):
        config_of(scored, output=scored / "page.html")


KILLED = """
import os, signal, sys
import kp_batch.operations.preview as preview
from kp_batch.config import RescoreConfig
preview._comparison = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
archive, warehouse = sys.argv[1:]
preview.preview(RescoreConfig(archive=(archive,), warehouse=warehouse, embedder="hashing",
    cache_size=3, preview=True))
"""


@pytest.mark.process
def test_what_a_killed_preview_leaves_goes_with_the_next_run(scored: Path) -> None:
    warehouse = scored / "warehouse"
    before = listing(warehouse)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, scored / "archive", warehouse], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert (warehouse / "candidate" / "manifest.json").exists()
    assert list((warehouse / "staging").iterdir())
    with writing(warehouse, wait=False):
        pass
    assert listing(warehouse) == before
    assert rescore_archive(config_of(scored)).run_id is None
    assert not (warehouse / "candidate").exists()


@pytest.mark.prefect
def test_under_prefect_the_comparison_is_an_artifact_without_texts(
    scored: Path, prefect: PrefectServer
) -> None:
    audits = scored / "audits.toml"
    audits.write_text("[audits.many]\nsql = 'FROM scores'\n")
    words = ["--warehouse", scored / "warehouse", "--audits", audits, "--cache-size", 3]
    done = subprocess.run(
        command(["run", scored / "archive", *words, "--preview"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "1 audit failed: many (80 rows); a run would publish no scores" in done.stderr
    lines = done.stdout.splitlines()
    objective = lines[lines.index("which moved most:") + 3].strip()
    with closing(sqlite3.connect(prefect.database)) as database:
        query = "SELECT id, state_type FROM flow_run WHERE name LIKE ?"
        [(flow_run, state)] = database.execute(query, [f"{scored / 'warehouse'} 20%"])
        query = "SELECT key, data FROM artifact WHERE key IS NOT NULL AND flow_run_id = ?"
        artifacts = dict(database.execute(query, [flow_run]).fetchall())
        dump = "\n".join(database.iterdump())
    assert state == "FAILED"
    assert sorted(key.rpartition("-")[0] for key in artifacts) == [
        "kp-batch-audits-warehouse",
        "kp-batch-plan-warehouse",
        "kp-batch-preview-warehouse",
    ]
    assert "which moved most:" in next(
        artifact for artifact in artifacts.values() if "stability" in artifact
    )
    assert objective
    assert objective not in dump
