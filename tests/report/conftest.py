"""A catalog of scores without a run, and what a report of drawn ones is made of."""

from functools import cache
from pathlib import Path

import pytest

from kp_batch.report.data import ReportData, gather
from tests.support.make.drawn_scores import Drawn, draw, opened, write
from tests.support.make.planted import build_catalog
from tests.support.make.report_data import Gathered


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a catalog whose tables each test replaces."""
    return build_catalog(tmp_path_factory.mktemp("catalog")).parent


@pytest.fixture(scope="session")
def drawn_report(folder: Path) -> Gathered:
    """The archive of a seed, and the data of its report, which are gathered once."""

    @cache
    def gathered(seed: int) -> tuple[Drawn, ReportData]:
        drawn = draw(seed)
        write(drawn, folder)
        with opened(folder) as connection:
            return drawn, gather(connection)

    return gathered
