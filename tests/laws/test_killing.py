"""A few kills; `make torture` does many."""

from pathlib import Path

import pytest

from tests.support.kill.imports import torture_imports
from tests.support.kill.runs import torture

pytestmark = pytest.mark.process


@pytest.mark.telling
def test_runs_killed_at_any_moment_leave_lawful_tables_and_readers_in_peace(tmp_path: Path) -> None:
    assert torture(tmp_path, str(tmp_path / "warehouse"), kills=6, seed=1) > 0


@pytest.mark.telling
def test_imports_killed_at_any_moment_are_made_good_to_the_byte(tmp_path: Path) -> None:
    assert torture_imports(tmp_path, kills=5, seed=1) > 0
