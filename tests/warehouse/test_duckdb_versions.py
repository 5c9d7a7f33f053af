"""The catalog by the oldest DuckDB that may read it and by the newest, without other libraries."""

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

OLDEST, NEWEST = "1.4.5", duckdb.__version__
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
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of a warehouse, as a command writes it."""
    warehouse = answering_warehouse(tmp_path_factory.mktemp("versions"))
    path = tmp_path_factory.mktemp("catalog") / "kp.duckdb"
    command = [sys.executable, "-m", "kp_batch", "catalog", "--warehouse", warehouse]
    subprocess.run([*command, "-o", path], cwd=ROOT, check=True)
    return path


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


def test_a_catalog_gives_the_same_rows_by_the_oldest_duckdb_as_by_the_newest(catalog: Path) -> None:
    wanted, elsewhere = answers(catalog, NEWEST)
    assert wanted == elsewhere
    assert all(len(answer) > 1 for answer in wanted)
    for answered in answers(catalog, OLDEST):
        for query, answer, rows in zip(queries(), answered, wanted, strict=True):
            assert answer == rows, query
