"""Errors by what stays when their words change."""

from typing import TypeVar

import pytest

from kp_batch.errors import KpBatchError

E = TypeVar("E", bound=KpBatchError)


def fails_with(kind: type[E], code: str, match: str | None = None) -> "pytest.RaisesExc[E]":
    """Expect an error of this class with this code; as `pytest.raises`.

    Args:
        kind: the class.
        code: the code.
        match: a pattern of what is in the message for this case alone, such as the name of a file.
    """
    return pytest.raises(kind, match=match, check=lambda error: error.code == code)
