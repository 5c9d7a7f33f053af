"""The notebook runs from its top to its end, and what it says of the sample is so."""

import os
import subprocess
import sys
from shutil import copy

import pytest

import kp_batch
from tests.support.pages import DOCS, ROOT

NOTEBOOK = DOCS / "notebook.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> kp_batch.Warehouse:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "data").symlink_to(ROOT / "data")
    copy(NOTEBOOK, folder)
    own = os.environ | {"PYTHONPATH": str(ROOT)}
    script = [sys.executable, NOTEBOOK.name]
    done = subprocess.run(script, cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return kp_batch.Warehouse(folder / "kp-batch-demo" / "notebook")


def ranks(warehouse: kp_batch.Warehouse, as_of: str | None = None) -> tuple[float, float]:
    [row] = (
        warehouse.ask("agent_rank_correlations", as_of=as_of).filter(task_domain="code").to_dicts()
    )
    return row["success"], row["tools"]


@pytest.mark.process
@pytest.mark.telling
def test_the_notebook_runs_as_a_script_and_its_text_is_true(run: kp_batch.Warehouse) -> None:
    effects = run.ask("dimension_effects").filter(task_domain="code")
    assert effects.sort("share_of_variance")["part"].to_list()[-1] == "tool_diversity"
    success, tools = ranks(run)
    assert success < 0 < tools
    success, tools = ranks(run, "candidate")
    assert success == tools > 0
    for as_of in (None, "candidate"):
        agents = run.ask("scores_by_agent", as_of=as_of).filter(task_domain="code")
        assert len(agents) == 4
        assert agents["low"].max() < agents["high"].min()  # all overlap
    assert [row["status"] for row in run.runs().to_dicts()] == ["done"]  # nothing else is published


@pytest.mark.process
def test_marimo_has_nothing_against_it() -> None:
    command = [sys.executable, "-m", "marimo", "check", "--strict", str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
