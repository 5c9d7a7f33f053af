"""A few kills; `make torture` does many."""

from pathlib import Path

import pytest

from tests.killing import torture


@pytest.mark.prefect
def test_runs_killed_at_any_moment_leave_lawful_tables_and_readers_in_peace(tmp_path: Path) -> None:
    assert torture(tmp_path, kills=8, seed=1) > 0
