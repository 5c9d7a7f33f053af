"""The warehouse that is asked about everything, made once."""

import pytest

from tests.support.oracle.history import History
from tests.support.oracle.ugly import ugly


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return ugly(tmp_path_factory.mktemp("ugly"))
