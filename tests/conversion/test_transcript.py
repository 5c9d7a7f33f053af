"""What systems repeat is counted once, in the order of time."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.conversion.conversation.messages import Message, ToolCall, ToolResult
from kp_batch.conversion.conversation.transcript import Transcript


def user(text: str) -> Message:
    return Message("user", text)


def steps_of(transcript: Transcript) -> list[tuple[object, object]]:
    """Each step's type, and its content or its tool's name."""
    steps: list[tuple[object, object]] = []
    for step in transcript.steps:
        tool = step["tool"]
        steps.append((step["type"], tool["name"] if isinstance(tool, dict) else step["content"]))
    return steps


CALL = ToolCall("look", {"at": 1}, "c1", "maps")


def test_a_conversation_becomes_an_objective_and_steps() -> None:
    transcript = Transcript()
    transcript.add_conversation(
        [
            Message("system", "be kind"),
            user("go"),
            Message("assistant", "going", "which way?", (CALL,)),
            Message("tool", results=(ToolResult({"b": "ü", "a": 1}, "c1"),)),
            Message("user", results=(ToolResult("", "c2"), ToolResult(None, "c3"))),
            user("faster"),
            Message("assistant"),
        ]
    )
    assert transcript.objective == "go"
    assert steps_of(transcript) == [
        ("thought", "which way?\ngoing"),
        ("tool_call", "look"),
        ("observation", '{"b":"ü","a":1}'),
        ("observation", ""),  # empty is a result, unset is none
        ("observation", "faster"),
    ]
    assert transcript.steps[1] == {
        "step_id": 1,
        "type": "tool_call",
        "content": None,
        "tool": {"name": "look", "mcp_server": "maps"},
        "input": '{"at":1}',
        "output_summary": None,
        "latency_ms": None,
        "role": "assistant",
        "call_id": "c1",
        "reasoning_chars": None,
    }
    assert transcript.steps[0]["reasoning_chars"] == len("which way?")


def test_history_is_counted_once() -> None:
    transcript = Transcript()
    first, answer = user("yes?"), Message("assistant", "no", calls=(CALL,))
    result = Message("tool", results=(ToolResult("found", "c1"),))
    transcript.add_prompt([first])
    transcript.add_answer(answer)
    transcript.add_prompt([first, answer, result, user("yes?")])  # the same words once more
    transcript.add_answer(Message("assistant", "done"))
    transcript.add_prompt([first, answer, result, user("yes?"), Message("assistant", "done")])
    assert transcript.objective == "yes?"
    assert steps_of(transcript) == [
        ("thought", "no"),
        ("tool_call", "look"),
        ("observation", "found"),
        ("observation", "yes?"),
        ("thought", "done"),
    ]


@given(
    st.permutations(["say", "run"]),
    st.sampled_from(['{"at": 1}', None]),
    st.sampled_from(["c1", ""]),
    st.sampled_from(["c1", ""]),
    st.sampled_from(["c1", ""]),
)
def test_a_call_in_a_message_and_in_a_span_is_one(
    order: list[str], arguments: str | None, asked_id: str, call_id: str, result_id: str
) -> None:
    transcript = Transcript()
    ran = ToolCall("look", arguments, call_id)
    for action in order:
        if action == "say":
            transcript.add_answer(Message("assistant", calls=(replace(CALL, id=asked_id),)))
        else:
            transcript.add_tool_run(ran, ToolResult("found"))
    transcript.add_prompt([Message("tool", results=(ToolResult("found", result_id),))])
    assert sorted(map(str, steps_of(transcript))) == [
        "('observation', 'found')",
        "('tool_call', 'look')",
    ]


AT_ONE, AT_TWO = ToolCall("look", {"at": 1}, "c1"), ToolCall("look", {"at": 2}, "c2")


@pytest.mark.parametrize(
    "arguments",
    [
        {"at": 1, "far": False},
        '{"at": 1, "far": false}',
        {"kwargs": {"at": 1}},
        {"args": [], "kwargs": {"at": 1}},
        {"args": [1], "kwargs": {"far": False}},
        {"args": [{"at": 1}], "kwargs": {}},
        [1],
        "{'at': 1}",
        {"place": "one"},
        {},
        None,
    ],
)
@pytest.mark.parametrize("number", ["c1", ""])
def test_an_open_call_of_its_name_takes_a_run_with_differently_written_arguments(
    arguments: object, number: str
) -> None:
    transcript, asked = Transcript(), replace(AT_ONE, id=number)
    transcript.add_answer(Message("assistant", calls=(asked,)))
    transcript.add_tool_run(ToolCall("look", arguments), ToolResult("found"))
    transcript.add_prompt([Message("tool", results=(ToolResult("found", number),))])
    assert steps_of(transcript) == [("tool_call", "look"), ("observation", "found")]
    assert transcript.steps[0]["input"] == '{"at":1}'


@pytest.mark.parametrize("order", [[1, 2], [2, 1]])
@pytest.mark.parametrize("kind", [{"far": False}, {"args": [], "kwargs": {}}])
def test_of_several_open_calls_that_of_the_same_arguments_takes_a_run(
    order: list[int], kind: dict[str, Any]
) -> None:
    transcript = Transcript()
    transcript.add_answer(Message("assistant", calls=(AT_ONE, AT_TWO)))
    for at in order:
        given = {**kind, "kwargs": {"at": at}} if "kwargs" in kind else {"at": at, **kind}
        transcript.add_tool_run(ToolCall("look", given), ToolResult(f"at {at}"))
    results = [Message("tool", results=(ToolResult(f"at {at}", f"c{at}"),)) for at in (1, 2)]
    transcript.add_prompt(results)
    found = [("observation", f"at {at}") for at in order]
    assert steps_of(transcript) == [("tool_call", "look"), ("tool_call", "look"), *found]


def test_a_result_that_its_span_lacks_is_taken_from_the_next_prompt() -> None:
    found = Message("tool", results=(ToolResult("found", "c1"),))
    for order in ([0, 1], [1, 0]):
        transcript = Transcript()
        for action in order:
            if action:
                transcript.add_answer(Message("assistant", calls=(AT_ONE,)))
            else:
                transcript.add_tool_run(replace(AT_ONE, id=""), ToolResult())
        transcript.add_prompt([found])
        assert steps_of(transcript) == [("tool_call", "look"), ("observation", "found")]


def test_results_of_several_calls_that_are_alike_are_several() -> None:
    transcript = Transcript()
    transcript.add_tool_run(ToolCall("see"), ToolResult("ok"))
    transcript.add_answer(Message("assistant", calls=(AT_ONE, AT_TWO)))
    transcript.add_prompt([Message("tool", results=(ToolResult("ok", x),)) for x in ("c1", "c2")])
    told = [kind for kind, _ in steps_of(transcript)]
    assert told == ["tool_call", "observation", "tool_call", "tool_call"] + ["observation"] * 2


def test_other_calls_of_the_same_tool_are_others() -> None:
    def types(*runs: ToolCall, answered: str = "") -> str:
        transcript = Transcript()
        transcript.add_answer(Message("assistant", calls=(AT_ONE,)))
        transcript.add_prompt(
            [Message("tool", results=(ToolResult("a", answered),))] * bool(answered)
        )
        for run in runs:
            transcript.add_tool_run(run, ToolResult(f"of {run.arguments}"))
        return "".join(str(kind)[0] for kind, _ in steps_of(transcript))

    bare = replace(AT_TWO, id="")
    assert types(bare) == "to"
    assert types(bare, bare) == "toto"  # it has one run
    assert types(AT_TWO) == "tto"  # of another id
    assert types(bare, answered="c1") == "toto"  # it had another result already


def test_messages_before_the_question_are_no_steps() -> None:
    before = [user("a"), Message("assistant", "b"), user("c")]
    for at_root, asked in (([], before[:1]), (before, [*before, user("d")]), ([], before)):
        transcript = Transcript()
        transcript.ask("d", at_root)
        transcript.add_prompt(asked)
        transcript.add_prompt([*asked, Message("assistant", "e"), user("f")])
        assert (transcript.objective, steps_of(transcript)) == ("d", [("observation", "f")])


@pytest.mark.parametrize("works", [False, True])
def test_nor_where_another_model_was_given_the_question_alone_before(*, works: bool) -> None:
    old = Message("tool", results=(ToolResult("old", "c0"),))
    asked = [user("a"), Message("assistant", "b"), old, user("go")]
    transcript = Transcript()
    transcript.ask("go", [])
    transcript.add_prompt([user("go")])
    if works:
        transcript.add_answer(Message("assistant", calls=(AT_ONE,)))
        transcript.add_prompt([user("go"), Message("tool", results=(ToolResult("x", "c1"),))])
    del transcript.steps[:]
    transcript.add_prompt(asked)
    transcript.add_prompt([*asked, Message("assistant", "d"), user("e"), user("go")])
    assert steps_of(transcript) == [("observation", "e"), ("observation", "go")]


@pytest.mark.parametrize("has_runs", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_calls_of_several_agents_with_the_same_id_have_each_its_result(
    *, has_runs: bool, before: bool
) -> None:
    transcript = Transcript()
    old = [user("so?"), Message("tool", results=(ToolResult("old", "c1"),))] if before else []
    transcript.ask("go", [])
    for place in ("one", "two", "three"):
        asked, found = replace(CALL, arguments={"at": place}), ToolResult(place, "c1")
        transcript.add_prompt([*old, user("go")])
        transcript.add_answer(Message("assistant", calls=(asked,)))
        if has_runs:
            transcript.add_tool_run(replace(asked, id="" if place == "two" else "c1"), found)
        for _ in range(2):
            transcript.add_prompt([*old, user("go"), Message("tool", results=(found,))])
    told = [content for _, content in steps_of(transcript)]
    assert told == ["look", "one", "look", "two", "look", "three"]


def test_what_ran_unasked_is_not_taken_for_a_call_of_other_arguments() -> None:
    transcript = Transcript()
    transcript.add_tool_run(ToolCall("look", {"at": 1}), ToolResult("a"))
    transcript.add_answer(Message("assistant", calls=(AT_TWO,)))
    transcript.add_tool_run(AT_TWO, ToolResult("b"))
    assert [content for _, content in steps_of(transcript)] == ["look", "a", "look", "b"]


def test_the_first_thought_after_a_failed_tool_recovers_where_that_is_asked_for() -> None:
    for recovery, kind in ((True, "error_recovery"), (False, "thought")):
        transcript = Transcript(recovery=recovery)
        transcript.add_tool_run(CALL, ToolResult("no such place", failed=True))
        transcript.add_answer(Message("assistant", calls=(ToolCall("turn"),)))
        transcript.add_answer(Message("assistant", "try the other way"))
        transcript.add_answer(Message("assistant", "there"))
        assert [step_type for step_type, _ in steps_of(transcript)] == [
            "tool_call",
            "observation",
            "tool_call",
            kind,
            "thought",
        ]
