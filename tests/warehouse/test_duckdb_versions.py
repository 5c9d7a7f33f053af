"""The catalog by the versions of DuckDB that may build or read it, each without other libraries."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kp_batch.schemas import VIEWS
from kp_batch.warehouse.questions import questions
from tests.support import ROOT
from tests.support.make.full_warehouse import answering_warehouse

pytestmark = pytest.mark.process

NEWEST = duckdb.__version__
BUILDERS = ("2.0.0", NEWEST)
READERS = ("1.4.5", "1.5.6", "2.0.0", NEWEST)
FORMULAS = (
    "SELECT score_mean(score) AS mean, score_quantiles(score) AS quantiles FROM scores",
    "SELECT stability_index(a.bins, b.bins) AS i FROM distributions AS a, distributions AS b",
    "SELECT trace_id, apply_overrides(composite, true, true, true) AS score FROM scores",
    "SELECT trace_id, composite(complexity, novelty, 1, 1, 0.1, 0.2, 0.3, 0.4) AS c FROM scores",
    "SELECT trace_id, shows_novelty(score, novelty, false, true, true) AS shows FROM scores",
    "SELECT DISTINCT day_of(created_at) AS day, bin_of(score, 3) AS bin FROM scores",
)


def of_version(version: str) -> dict[str, str]:
    """The environment of a process that has this version of DuckDB."""
    if version == NEWEST:
        [folder] = {str(Path(duckdb.__file__).parents[1])}
    else:
        folder = str(Path(sys.prefix) / f"duckdb-{version}")
        assert Path(folder).exists(), f"there is no DuckDB {version} in {folder}: make install"
    return {**os.environ, "PYTHONPATH": folder}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answering_warehouse(tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def catalogs(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The catalog of the same warehouse, by the version that built it."""
    built: dict[str, Path] = {}
    for version in BUILDERS:
        built[version] = tmp_path_factory.mktemp(version) / "kp.duckdb"
        command = [sys.executable, "-m", "kp_batch", "catalog", "--warehouse", warehouse]
        subprocess.run(
            [*command, "-o", built[version]], env=of_version(version), cwd=ROOT, check=True
        )
    return built


def queries() -> list[str]:
    """All rows of each view, the example of each question, and the formulas."""
    examples = [question.example.partition(" LIMIT ")[0] for question in questions()]
    return [*(f"FROM {view}" for view in VIEWS), *examples, *FORMULAS]


def answers(catalog: Path, version: str) -> list[list[list[str]]]:
    """What a version answers, where the catalog is opened and where it has another name."""
    asking = [sys.executable, "-S", ROOT / "tests" / "warehouse" / "ask_alone.py"]
    command = [*asking, catalog, *queries()]
    process = subprocess.run(command, env=of_version(version), capture_output=True, check=False)
    assert process.returncode == 0, process.stderr.decode()
    by, *answered = json.loads(process.stdout, parse_float=rounded)
    assert by == version
    return [[comparable(answer) for answer in answers] for answers in answered]


def rounded(number: str) -> float:
    """Versions differ in the last digits of sums."""
    return float(f"{float(number):.10g}")


def comparable(answer: Sequence[Any]) -> list[str]:
    columns, *rows = map(json.dumps, answer)
    return [columns, *sorted(rows)]


@pytest.fixture(scope="module")
def wanted(catalogs: dict[str, Path]) -> list[list[str]]:
    here, elsewhere = answers(catalogs[NEWEST], NEWEST)
    assert here == elsewhere
    assert all(len(answer) > 1 for answer in here)
    return here


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("reader", READERS)
def test_a_catalog_gives_the_same_rows_whatever_duckdb_built_it_and_reads_it(
    catalogs: dict[str, Path], wanted: list[list[str]], builder: str, reader: str
) -> None:
    for answered in answers(catalogs[builder], reader):
        for query, answer, rows in zip(queries(), answered, wanted, strict=True):
            assert answer == rows, query
