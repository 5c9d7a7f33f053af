"""The bench of a GPU, in small, on the CPU: it runs, and prints each figure."""

import re
import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.model

ALONE = """
import sys
for name in ("polars", "duckdb", "prefect", "deltalake", "pydantic"):
    sys.modules[name] = None  # as if it were not installed
import tests.bench.gpu
"""


def test_it_needs_neither_polars_nor_duckdb() -> None:
    command = [sys.executable, "-c", ALONE]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)


def test_every_figure_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.bench import gpu

    for name, value in {"FULL": 2, "COMPARED": 2, "REPEATED": 1, "PRODUCTS": 1}.items():
        monkeypatch.setattr(gpu, name, value)
    gpu.main(["one text", "another, longer text", "one text more"])
    printed = capsys.readouterr().out
    figures = re.findall(r"^  (.+?) {2,}([0-9.,]+)(?: /s|%| times)$", printed, re.MULTILINE)
    assert len(figures) == 1 + 2 * (2 + 2 + 1 + 1 + 4)
    assert all(float(number.replace(",", "")) > 0 for _, number in figures)
