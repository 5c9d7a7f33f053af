"""The tests' folders mirror the rooms, and what they share is in `support` alone."""

import re

from tests.support import ROOT

TESTS = ROOT / "tests"
OTHERS = {"bench", "docs", "golden", "laws", "support"}  # about no one room


def test_each_folder_of_tests_is_that_of_a_room() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    rooms = {path.parent.relative_to(ROOT / "kp_batch") for path in ROOT.glob("kp_batch/**/*.py")}
    assert {path for path in folders if OTHERS.isdisjoint(path.parts)} <= rooms
    assert {path.parts[0] for path in rooms if path.parts} <= {str(path) for path in folders}


def test_no_test_imports_another() -> None:
    """Nor does a script in a test; a process of its own may import the test that starts it."""
    imported = re.compile(r"^\s*(?:from|import) .*\b(test_\w+)", re.MULTILINE)
    paths = [*TESTS.rglob("*.py")]
    assert len(paths) > 100
    others = [
        (path.name, name)
        for path in paths
        for name in imported.findall(path.read_text("utf-8"))
        if name != path.stem
    ]
    assert others == []
