"""What the time of a run goes into: one thing at a time, and nothing is lost."""

import pytest

from kp_batch import clock as clocks
from kp_batch.clock import Clock, work


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves."""
    told = [1000.0]
    monkeypatch.setattr(clocks.time, "time", lambda: told[0])
    monkeypatch.setattr(clocks.time, "monotonic", lambda: told[0] - 900)
    return told


def test_each_second_counts_for_the_innermost_thing_alone(now: list[float]) -> None:
    clock = Clock(began=998.0)  # by another process
    now[0] += 1
    with clock.on("prefect"):
        now[0] += 4
        with clock.on("read"):
            now[0] += 8
        now[0] += 16
        with clock.on("start"):
            now[0] += 32
    now[0] += 64
    assert clock.seconds == {"start": 2 + 1 + 32 + 64, "prefect": 4 + 16, "read": 8}
    assert sum(clock.seconds.values()) == now[0] - 998
    assert work(clock.seconds) == {"read": 8}


def test_a_thing_that_fails_has_its_seconds_and_one_that_goes_on_those_so_far(
    now: list[float],
) -> None:
    clock = Clock()

    @clock.on("read")
    def fail() -> None:
        now[0] += 1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with clock.on("plan"):
        now[0] += 2
        assert clock.seconds == {"start": 0, "read": 1, "plan": 2}
