"""Steps that fail once, and the waiting that takes no time."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from kp_batch.steps import step as steps


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, which take no time."""
    seconds: list[float] = []
    monkeypatch.setattr(steps.time, "sleep", seconds.append)
    return seconds


def once_torn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; its first call fails after its work."""
    left = [OSError(errno.EIO, "Input/output error")]

    def torn(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if left:
            raise left.pop()
        return result

    return torn
