"""The notebook runs from its top to its end, over any archive, and says nothing of one alone."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

import kp_batch
from tests.support.docs.pages import DOCS, ROOT
from tests.support.make.archives import write_jsonl
from tests.support.make.hourly import said

NOTEBOOK = DOCS / "notebook.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> kp_batch.Warehouse:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "data").symlink_to(ROOT / "data")
    copy(NOTEBOOK, folder)
    done = ran(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return kp_batch.Warehouse(folder / "kp-batch-demo" / "notebook")


def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"PYTHONPATH": str(ROOT)}
    script = [sys.executable, NOTEBOOK.name]
    return subprocess.run(script, cwd=folder, env=own, capture_output=True, text=True, check=False)


def ranks(warehouse: kp_batch.Warehouse, as_of: str | None = None) -> tuple[float, float]:
    query = """
        WITH agents AS (
            PIVOT (
                FROM means_by('agent_id', ['score', 'success', 'tools'], task_domain = 'code')
            )
            ON measure USING any_value(mean) GROUP BY agent_id
        ),
        ranks AS (
            SELECT
                average_rank(score, 1) AS score,
                average_rank(success, 1) AS success,
                average_rank(tools, 1) AS tools
            FROM agents
        )
        SELECT corr(score, success), corr(score, tools) FROM ranks
    """
    [row] = warehouse.sql(query, as_of).rows()
    return row


@pytest.mark.process
@pytest.mark.telling
def test_the_notebook_runs_as_a_script_and_shows_what_weights_do(run: kp_batch.Warehouse) -> None:
    success, tools = ranks(run)
    assert success < 0 < tools
    success, tools = ranks(run, "candidate")
    assert success == tools > 0
    assert [row["status"] for row in run.runs().to_dicts()] == ["done"]  # nothing else is published


def test_its_text_is_of_no_archive_alone() -> None:
    text = NOTEBOOK.read_text("utf-8")
    named = {
        "code",
        "legal",
        "finance",
        "four",
        "dozen",
        "tool_diversity explains",
        "By their tools",
    }
    told = "".join(re.findall(r'mo\.md\(f?"""(.*?)"""', text, re.DOTALL))
    assert {name for name in named if re.search(rf"\b{name}\b", told)} == set()
    assert text.count('"code"') == 1


@pytest.mark.process
def test_it_runs_over_another_archive(tmp_path: Path) -> None:
    text = NOTEBOOK.read_text("utf-8")
    traces = [
        said(number, f"do {number % 7}", agent_id="ab"[number % 2], task_domain="other")
        for number in range(20)
    ]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    own = text.replace("data/sample", "archive").replace('"code"', '"other"')
    (tmp_path / NOTEBOOK.name).write_text(own, "utf-8")
    done = ran(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_marimo_has_nothing_against_it() -> None:
    command = [sys.executable, "-m", "marimo", "check", "--strict", str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
