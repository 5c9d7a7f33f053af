"""Questions over archives with an answer key: they find what is planted, and nothing else."""

from pathlib import Path

import pytest

from tests.bench.planted import DRAWS, counts
from tests.support.make.planted import build_catalog


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_catalog(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("seed", [1, 2])
def test_each_question_finds_what_is_planted(catalog: Path, seed: int) -> None:
    assert [str(each) for each in counts(catalog, [seed]) if not each.is_kept] == []


@pytest.mark.slow
def test_of_100_archives_each_question_is_right_as_often_as_it_promises(catalog: Path) -> None:
    assert [str(each) for each in counts(catalog, range(DRAWS)) if not each.is_kept] == []
