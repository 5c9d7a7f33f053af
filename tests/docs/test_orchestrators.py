"""The asset of Dagster that a page shows does what it says; Dagster itself is a stand-in here."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.docs.pages import DOCS, ROOT, blocks

PAGE = DOCS / "how-to" / "orchestrators.md"


@dataclass
class MaterializeResult:
    metadata: dict[str, Any]


@dataclass
class Definitions:
    assets: list[Any] = field(default_factory=list[Any])


def asset(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """As Dagster's, which is called with options, or stands alone above a function."""
    if function is None:
        return lambda own: asset(own, **options)
    return function


@pytest.mark.slow
def test_an_asset_of_dagster_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dagster = ModuleType("dagster")
    vars(dagster).update(asset=asset, MaterializeResult=MaterializeResult, Definitions=Definitions)
    monkeypatch.setitem(sys.modules, "dagster", dagster)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    [shown] = [block.text for block in blocks(PAGE) if "from dagster" in block.text]
    names: dict[str, Any] = {}
    exec(shown, names)
    assert names["scores"]() == MaterializeResult({"status": "done", "traces": 600, "warnings": []})
    assert names["best_traces"]() is None
    assert (tmp_path / "best.jsonl").stat().st_size > 0
    assert names["defs"].assets == [names["scores"], names["best_traces"]]
