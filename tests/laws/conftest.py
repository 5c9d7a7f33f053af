"""The warehouses that are asked about everything, each made once."""

import os

import pytest

from tests.support.oracle.drawn import drawn
from tests.support.oracle.history import History
from tests.support.oracle.ugly import ugly

EXAMPLES = int(os.environ.get("KP_ORACLE_EXAMPLES", "2"))


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return ugly(tmp_path_factory.mktemp("ugly"))


@pytest.fixture(scope="session", params=range(EXAMPLES))
def by_chance(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> History:
    return drawn(tmp_path_factory.mktemp("drawn"), request.param)
