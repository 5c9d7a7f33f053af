"""An archive for commands."""

from pathlib import Path

import pytest

from tests.support.make.sample import write_sample


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 traces of four days."""
    folder = tmp_path_factory.mktemp("archive")
    write_sample(folder, traces=120, days=4, seed=3)
    return folder
