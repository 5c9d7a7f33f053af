"""Tables read by others: by DuckDB without other libraries, from the oldest that may, and by Delta.

Kept warehouses of the current format are read as well, and Delta tables of all kept formats.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from kp_batch.schemas import VIEWS
from kp_batch.warehouse.manifest import FORMAT_VERSION
from kp_batch.warehouse.questions import questions
from kp_batch.warehouse.snapshot import published
from tests.support import ROOT
from tests.support.make.full_warehouse import answering_warehouse
from tests.support.make.kept import frames_of, same, unpacked

pytestmark = pytest.mark.process

OTHERS, NEWEST = ("1.4.5", "1.5.6"), duckdb.__version__
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
    return catalog_of(warehouse, tmp_path_factory.mktemp("catalog") / "kp.duckdb")


def catalog_of(warehouse: Path, path: Path) -> Path:
    command = [sys.executable, "-m", "kp_batch", "catalog", "--warehouse", warehouse]
    subprocess.run([*command, "-o", path], cwd=ROOT, check=True)
    return path


def queries() -> list[str]:
    """All rows of each view, the example of each question, and the formulas."""
    examples = [question.example.partition(" LIMIT ")[0] for question in questions()]
    return [*(f"FROM {view}" for view in VIEWS), *examples, *FORMULAS]


def answers(catalog: Path, version: str, *asked: str) -> list[list[list[str]]]:
    """What a version answers to all queries, or to some.

    It answers twice: where the catalog is opened, and where it has another name.
    """
    asking = [sys.executable, "-S", ROOT / "tests" / "warehouse" / "ask_alone.py"]
    command = [*asking, catalog, *(asked or queries())]
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


@pytest.mark.parametrize("version", OTHERS)
def test_a_catalog_gives_the_same_rows_by_an_older_duckdb_as_by_the_newest(
    catalog: Path, version: str
) -> None:
    wanted, elsewhere = answers(catalog, NEWEST)
    assert wanted == elsewhere
    assert all(len(answer) > 1 for answer in wanted)
    for answered in answers(catalog, version):
        for query, answer, rows in zip(queries(), answered, wanted, strict=True):
            assert answer == rows, query


@pytest.mark.parametrize("version", OTHERS)
def test_a_kept_warehouse_is_read_by_an_older_duckdb(tmp_path: Path, version: str) -> None:
    warehouse = unpacked(FORMAT_VERSION, 5, tmp_path)
    catalog = catalog_of(warehouse, tmp_path / "kp.duckdb")
    views = [f"FROM {view}" for view in VIEWS]
    assert answers(catalog, version, *views) == answers(catalog, NEWEST, *views)


@pytest.mark.parametrize("kept", [17, 19, 20])
def test_readers_of_delta_read_kept_tables(tmp_path: Path, kept: int) -> None:
    warehouse = unpacked(kept, 5, tmp_path)
    for name in {log.parent.name for log in warehouse.glob("*/_delta_log")}:
        table = DeltaTable(str(warehouse / name))
        by_polars = pl.read_delta(str(warehouse / name))
        assert by_polars.height == sum(pl.DataFrame(table.get_add_actions())["num_records"]), name
        assert by_polars.columns == [field.name for field in table.schema().fields], name
    if kept == FORMAT_VERSION:
        for name, frame in frames_of(published(warehouse)).items():
            assert same(pl.read_delta(str(warehouse / name)).select(frame.columns), frame), name
