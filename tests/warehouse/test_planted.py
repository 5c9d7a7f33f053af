"""Questions over archives with an answer key: they find what is planted, and nothing else."""

from pathlib import Path

import pytest

from tests.bench.planted import counts
from tests.support.make.planted import build_catalog


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_catalog(tmp_path_factory.mktemp("planted"))


@pytest.mark.slow
@pytest.mark.telling
def test_each_question_finds_what_is_planted_as_often_as_it_promises(catalog: Path) -> None:
    """Of ten archives; `make torture` draws a hundred."""
    assert [str(each) for each in counts(catalog, range(10)) if not each.is_kept] == []
