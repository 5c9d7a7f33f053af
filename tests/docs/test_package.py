"""What is handed to others: the source distribution, the wheel made of it, and an index's page."""

import json
import os
import re
import subprocess
import venv
from email.message import Message
from email.parser import Parser
from pathlib import Path
from shutil import copytree

import pytest

from tests.support import ROOT
from tests.support.docs.commands import shell
from tests.support.docs.pages import DOCS, README, blocks, links
from tests.support.make.archives import trace, write_jsonl

pytestmark = pytest.mark.process


def files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths if "__pycache__" not in path.parts}


@pytest.mark.telling
def test_a_wheel_is_built_and_installed_as_the_page_says(sdist: Path, tmp_path: Path) -> None:
    """Without a network: the tools that build it are here, and what it needs is not installed."""
    checkout = copytree(sdist, tmp_path / "checkout")
    building, installing = [
        block.text for block in blocks(DOCS / "README.md") if block.language == "sh"
    ]
    shell(f"export PIP_NO_BUILD_ISOLATION=0 PIP_NO_INDEX=1\n{building}", checkout)
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    shell(f"export PIP_NO_DEPS=1 PIP_NO_INDEX=1 PIP_PYTHON={python}\n{installing}", checkout)
    assert (tmp_path / "venv" / "bin" / "kp-batch").exists()


@pytest.fixture
def site(installed: Path) -> Path:
    """The folder that the wheel was installed into."""
    [folder] = installed.parent.parent.glob("lib/python*/site-packages")
    return folder


@pytest.fixture
def metadata(site: Path) -> Message:
    """What an index reads of the wheel."""
    [path] = site.glob("kp_batch-*.dist-info/METADATA")
    return Parser().parsestr(path.read_text("utf-8"))


@pytest.mark.telling
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_the_source_distribution_holds_what_a_checkout_holds(sdist: Path) -> None:
    listed = ["git", "ls-files", "--", ".", ":!.ci"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tracked
    assert set(tracked.splitlines()) - files(sdist) == set()


@pytest.mark.telling
def test_the_source_distribution_holds_no_cache(sdist: Path) -> None:
    names = {path.name for path in sdist.rglob("*")}
    caches = re.compile(r"__pycache__|.*\.pyc|\.\w*(cache|venv|hypothesis)")
    assert [name for name in names if caches.fullmatch(name)] == []


@pytest.mark.telling
def test_the_wheel_ships_kp_batch_alone_all_of_it_and_the_sample(site: Path) -> None:
    shipped = {path.name for path in site.iterdir() if path.is_dir()}
    assert {name for name in shipped if not name.endswith(".dist-info")} == {"kp_batch"}
    sample = {f"data/sample/{name}" for name in files(ROOT / "data" / "sample")}
    assert files(site / "kp_batch") == files(ROOT / "kp_batch") | sample
    assert sample


@pytest.mark.telling
def test_init_out_of_a_wheel_writes_what_deploys_it(installed: Path, tmp_path: Path) -> None:
    begin = [str(installed), "init", "archive", "--embedder", "none", "--prefect"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(begin, cwd=tmp_path, env=own, check=True, capture_output=True)
    assert "kp_batch.toml" in (tmp_path / "prefect.yaml").read_text()


IN_PYTHON = """
import json, sys
from pathlib import Path
import kp_batch as kp

traces = [json.loads(line) for line in Path("archive/a.jsonl").read_text().splitlines()]
scored = kp.score(traces, embedder="hashing")
warehouse = kp.Warehouse("warehouse")
run = warehouse.run("archive", embedder="hashing")
same = scored["score"].to_list() == warehouse.scores().collect()["score"].to_list()
live = kp.Session(warehouse).evaluate(traces[0])
html = [type(each).__name__ for each in (scored, run, live) if "<" in each._repr_html_()]
chart = warehouse.chart("scores_by_week").to_dict()
questions = warehouse.questions()["name"].to_list()
missing = [name for name in dir(kp) if not hasattr(kp, name)]
print(json.dumps([kp.__file__, run.status, same, html, chart["$schema"], len(questions), missing]))
"""


@pytest.mark.telling
def test_the_wheel_alone_has_all_that_python_and_notebooks_use(
    site: Path, installed: Path, tmp_path: Path
) -> None:
    rows = [trace(id=f"kp:trace:{n}", created_at=f"2026-01-{n:02d}T08:00:00Z") for n in (5, 15)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = [str(installed.parent / "python"), "-c", IN_PYTHON]
    done = subprocess.run(
        python, cwd=tmp_path, env=own, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    module, status, is_same, html, schema, questions, missing = json.loads(done.stdout)
    assert Path(module) == site / "kp_batch" / "__init__.py"
    assert (status, is_same, missing) == ("done", True, [])
    assert html == ["ScoredFrame", "Summary", "Scored"]
    assert "vega-lite" in schema
    assert questions == len([*ROOT.glob("kp_batch/warehouse/sql/questions/*.sql")])


@pytest.mark.telling
def test_the_wheel_names_its_licence_and_brings_it(site: Path, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    [licence] = site.glob("kp_batch-*.dist-info/licenses/LICENSE")
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.telling
def test_the_page_of_an_index_is_the_front_page_without_what_leads_into_a_checkout(
    metadata: Message, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(metadata.get_payload(), "utf-8")
    assert [link for link in links(README) if ":" not in link]
    assert [link for link in links(page) if ":" not in link] == []
    assert "change weights or the cache | weights, caches" in page.read_text("utf-8")
