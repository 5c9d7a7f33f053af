"""The tests' folders mirror the rooms, and what they share is in `support` alone."""

import ast
from pathlib import Path

from tests.support import ROOT

TESTS = ROOT / "tests"
OTHERS = {"bench", "docs", "flows", "golden", "laws", "support"}  # about no one room


def test_each_folder_of_tests_is_that_of_a_room() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    rooms = {path.parent.relative_to(ROOT / "kp_batch") for path in ROOT.glob("kp_batch/**/*.py")}
    assert {path for path in folders if OTHERS.isdisjoint(path.parts)} <= rooms
    assert {path.parts[0] for path in rooms if path.parts} <= {str(path) for path in folders}


def test_no_test_imports_another() -> None:
    names = [name for path in TESTS.rglob("*.py") for name in imported(path)]
    assert [name for name in names if ".test_" in name] == []


def imported(path: Path) -> list[str]:
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    plain = [node for node in nodes if isinstance(node, ast.Import)]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return [
        *(name.name for node in plain for name in node.names),
        *(f"{node.module}.{name.name}" for node in froms for name in node.names),
    ]
