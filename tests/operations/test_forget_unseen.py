"""Ids that are forgotten before the first run, which never publishes these traces."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kp_batch as kp
from kp_batch.errors import ArchiveError, IdentityError, KpBatchError, WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.kill.removal import published, refused, said, settings_of, write
from tests.support.make.publications import files_of
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import listing
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

SECRET, BAD = "kp:trace:secret", "kp:trace:bad"  # an accepted row and a rejected one


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive and the ids to forget, in the current folder."""
    rows = [said(1, "fix it", 8), said("secret", "a secret plan", 9), refused("bad"), refused("no")]
    write(tmp_path, {"a.jsonl": rows})
    (tmp_path / "ids").write_text(f"{SECRET}\n{BAD}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KP_BATCH_WAREHOUSE", raising=False)
    return tmp_path


def assert_never_published(warehouse: Path) -> None:
    assert ask_rows(warehouse, "SELECT trace_id FROM scores") == [("kp:trace:1",)]
    assert ask_rows(warehouse, "SELECT trace_id FROM rejects") == [("kp:trace:no",)]
    facts = pl.concat(map(pl.read_parquet, files_of(warehouse, "facts")))
    assert sorted(facts["trace_id"]) == ["kp:trace:1", "kp:trace:no"]
    hashes = [np.load(path)["hash"] for path in warehouse.glob("vectors/*/*.hashes.npy")]
    assert [*map(len, hashes)] == [1]


def test_the_first_run_of_a_project_never_publishes_what_was_forgotten_before(folder: Path) -> None:
    init = invoke("init", "archive", "--embedder", "hashing", "--max-reject-share", "100%")
    assert init.returncode == 0, init.stderr
    dry = invoke("forget", "--unseen-too", "--from", "ids", "--dry-run")
    assert dry.stdout.splitlines()[0] == "to be forgotten: 0 scored traces, 0 rejected rows"
    done = invoke("forget", "--unseen-too", "--from", "ids")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "forgotten: 0 scored traces, 0 rejected rows",
        f"  unseen     2 ids never seen: {SECRET}, {BAD}",
    ]
    again = json.loads(invoke("forget", "--unseen-too", SECRET, "--json").stdout)
    assert (again["status"], again["before"], again["run_id"]) == ("nothing_to_do", 1, None)
    run = invoke("run", "--max-new-rejects", "1", "--no-prefect")
    assert run.returncode == 0, run.stderr
    assert_never_published(folder / "warehouse")


def test_it_makes_a_warehouse_only_if_unseen_ids_are_to_be_forgotten(folder: Path) -> None:
    warehouse, before = folder / "new", listing(folder)
    with fails_with(WarehouseError, "no_warehouse"):
        forget(warehouse, [SECRET])
    assert invoke("forget", SECRET, "--warehouse", warehouse).returncode == 1
    dry = invoke("forget", "--unseen-too", SECRET, "--warehouse", warehouse, "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (0, "nothing was changed")
    assert listing(folder) == before
    done = invoke("forget", "--unseen-too", "--from", "ids", "--warehouse", warehouse)
    assert done.returncode == 0, done.stderr
    assert "new is a new warehouse, and nothing was removed elsewhere" in done.stderr
    rescore_archive(settings_of(folder, warehouse=warehouse))
    assert_never_published(warehouse)


def test_a_projects_warehouse_that_is_missing_is_not_made_again(folder: Path) -> None:
    assert invoke("init", "archive", "--embedder", "hashing").returncode == 0
    (folder / "warehouse").rename(folder / "unmounted")
    done = invoke("forget", "--unseen-too", SECRET)
    assert done.returncode == 1
    assert "contains no warehouse" in done.stderr
    with pytest.raises(IdentityError):
        kp.Project(folder / "kp_batch.toml").forget(SECRET, unseen_too=True)
    assert not (folder / "warehouse").exists()


def test_python_makes_a_warehouse_and_warns(folder: Path) -> None:
    warehouse = kp.Warehouse(folder / "new")
    with pytest.warns(UserWarning, match="is a new warehouse"):
        result = warehouse.forget(SECRET, BAD, unseen_too=True)
    assert (result.status, result.unseen, result.is_done) == ("done", 2, True)
    warehouse.run("archive", embedder="hashing", max_reject_share=1)
    assert_never_published(folder / "new")


def test_what_a_failed_first_run_rejected_is_forgotten(folder: Path) -> None:
    settings = settings_of(folder)
    with pytest.raises(ArchiveError):
        rescore_archive(settings.model_copy(update={"max_reject_share": "0%"}))
    with pytest.raises(KpBatchError, match="is unknown"):
        forget(settings.warehouse, [SECRET])
    result = forget(settings.warehouse, [SECRET, BAD], unseen_too=True)
    assert (result.rows, result.unseen) == (1, 1)
    assert ask_rows(settings.warehouse, "SELECT trace_id FROM rejects") == [("kp:trace:no",)]
    assert published(settings.warehouse).failed
    rescore_archive(settings)
    assert_never_published(settings.warehouse)
