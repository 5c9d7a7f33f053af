"""Errors by what stays when their words change."""

from typing import TypeVar

import pytest

from kp_batch.errors import KpBatchError

E = TypeVar("E", bound=KpBatchError)


def fails_with(kind: type[E], code: str) -> "pytest.RaisesExc[E]":
    """Expect an error of this class with this code; as `pytest.raises`."""
    return pytest.raises(kind, check=lambda error: error.code == code)
