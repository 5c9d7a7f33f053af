"""Calls that wait to be told once more: which one is taken, and that others are not looked at."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.conversion.conversation.messages import ALIKE, ToolCall
from kp_batch.conversion.conversation.waiting_calls import WaitingCalls

ARGUMENTS = ({"at": 1}, {"at": 1, "far": False}, {"far": [False, {}]}, [1], '{"at": 1.0}', None)
CALLS = st.builds(
    ToolCall, st.sampled_from(["look", "see"]), st.sampled_from(ARGUMENTS), st.sampled_from("12 ")
)


def taken(calls: list[ToolCall], call: ToolCall, least: int) -> ToolCall | None:
    """The first of those that most likely are the same call, where answered ones have the id 1."""

    def rank(other: ToolCall) -> tuple[bool, int, bool]:
        likeness, is_open = call.likeness(other), other.id != "1"
        enough = likeness >= (least if is_open else ALIKE)
        same_id = bool(call.id) and call.id == other.id
        return (same_id, likeness, is_open) if enough else (False, 0, False)

    best = max(calls, key=rank, default=None)
    return best if best and rank(best)[1] else None


@given(
    st.lists(st.tuples(st.booleans(), CALLS), max_size=12),
    st.sampled_from([1, ALIKE]),
)
@settings(max_examples=60)
def test_the_first_that_is_most_likely_the_same_call_is_taken(
    told: list[tuple[bool, ToolCall]], least: int
) -> None:
    waiting, calls = WaitingCalls(), list[ToolCall]()
    for is_asked, call in told:
        call.id = call.id.strip()
        if is_asked:
            waiting.add(call)
            calls.append(call)
            continue
        expected = taken(calls, call, least)
        assert waiting.take(call, least, lambda other: other.id == "1") is expected
        calls = [other for other in calls if other is not expected]


class Compared(ToolCall):
    """A call that counts how often it was compared."""

    times = 0

    def likeness(self, other: ToolCall) -> int:
        Compared.times += 1
        return super().likeness(other)


@pytest.mark.parametrize("asked_id", ["c", ""])
@pytest.mark.parametrize("run_id", ["c", ""])
def test_one_of_many_calls_is_found_without_a_look_at_the_others(
    asked_id: str, run_id: str
) -> None:
    waiting, number = WaitingCalls(), 300
    for at in range(number):
        waiting.add(ToolCall("look", {"at": at}, asked_id and f"c{at}"))
    order = list(range(number))
    random.Random(0).shuffle(order)
    Compared.times = 0
    for at in order:
        found = waiting.take(Compared("look", f'{{"at": {at}}}', run_id and f"c{at}"), 1)
        assert found
        assert found.arguments == {"at": at}
    assert Compared.times <= number
