"""What systems repeat is counted once, in the order of time."""

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
    }


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
)
def test_a_call_in_a_message_and_in_a_span_is_one(
    order: list[str], arguments: str | None, call_id: str, result_id: str
) -> None:
    transcript = Transcript()
    ran = ToolCall("look", arguments, call_id)
    for action in order:
        if action == "say":
            transcript.add_answer(Message("assistant", calls=(CALL,)))
        else:
            transcript.add_tool_run(ran, ToolResult("found"))
    transcript.add_prompt([Message("tool", results=(ToolResult("found", result_id),))])
    assert sorted(map(str, steps_of(transcript))) == [
        "('observation', 'found')",
        "('tool_call', 'look')",
    ]


def test_other_calls_of_the_same_tool_are_others() -> None:
    transcript = Transcript()
    transcript.add_answer(Message("assistant", calls=(ToolCall("look", {"at": 1}), CALL)))
    transcript.add_tool_run(ToolCall("look", {"at": 2}), ToolResult("b"))
    assert [step_type for step_type, _ in steps_of(transcript)] == ["tool_call"] * 3 + [
        "observation"
    ]


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
