"""Sessions of Pi; those in `golden` were recorded with its own package and a faux model."""

from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.model import TraceDraft
from tests.support import GOLDEN
from tests.support.formats import sessions
from tests.support.formats.sessions import Line, at, pi, pi_call, pi_file, pi_result, text, write
from tests.support.imports.drafting import always, converted, drafted, transcript

SESSION = always(trace="session")
RECORDED = GOLDEN / "imports" / "pi"
PICTURE = {"type": "image", "data": "SECRET", "mimeType": "image/png"}


def asked(id_: str, words: object, parent: str | None, second: int = 1) -> Line:
    return pi(id_, {"role": "user", "content": words}, parent, second)


def said(id_: str, parent: str | None, *parts: Line, second: int = 2, **more: Any) -> Line:
    message = {"role": "assistant", "content": [*parts], "model": "m", "stopReason": "stop"}
    return pi(id_, {**message, **more}, parent, second)


def gave(id_: str, parent: str, call: str, words: object, second: int = 3) -> Line:
    return pi(id_, pi_result(call, words), parent, second)


def recorded() -> dict[str, TraceDraft]:
    """By their objectives."""
    return {draft.objective: draft for draft in drafted("pi", RECORDED).drafts.values()}


def test_each_prompt_of_a_recorded_session_and_its_forks_is_a_trace() -> None:
    made = drafted("pi", RECORDED)
    assert [draft.objective for draft in made.drafts.values()] == [
        "Which lamps are there?",
        "Count them.",
        "And the red ones?",
        "Thank you.",
        "Is it dark?",
        "Wait for the morning.",
        "What is this?",
        "/skill:knots for the lantern",
        "/skill:knots",
        "Sort these.",
        "Go on.",
        "Which is the brightest?",
        "Never mind, paint one.",
        "How many are left?",
    ]
    assert (made.refused, {*made.skipped}) == ([], {"turn without a text"})


def test_a_turn_has_thoughts_calls_and_results() -> None:
    draft = recorded()["Which lamps are there?"]
    assert draft.id == "kp:trace:1a88fa40/2026-11-29T19:50:22.015Z"
    assert transcript(draft) == [
        ("thought", "I look into the folder.\nI will look."),
        ("tool_call", "read", '{"path":"lamps.txt"}'),
        ("tool_call", "read", '{"path":"none.txt"}'),
        ("observation", "red\ngreen\nwhite\n"),
        (
            "observation",
            "ENOENT: no such file or directory, access '/home/juno/lanterns/none.txt'",
        ),
        ("thought", "Red, green and white."),
    ]
    assert str(draft.created_at) == "2026-11-29 19:50:22.015000+00:00"
    assert (draft.framework, draft.origin.agent, draft.native.root) == ("pi", "faux-1", "1a88fa40")
    assert draft.fields["project"] == ["lanterns"]


def test_what_steers_the_model_is_an_observation_and_what_follows_an_answer_a_prompt() -> None:
    assert transcript(recorded()["Count them."]) == [
        ("tool_call", "bash", '{"command":"grep -c white lamps.txt"}'),
        ("observation", "1\n"),
        ("observation", "Only the white ones."),
        ("thought", "There is one."),
    ]
    assert transcript(recorded()["Thank you."]) == [("thought", "You are welcome.")]


def test_of_a_failed_call_of_the_model_nothing_counts_and_an_interrupted_turn_does() -> None:
    assert transcript(recorded()["Is it dark?"]) == [("thought", "It is.")]
    assert transcript(recorded()["Wait for the morning."]) == [
        ("tool_call", "bash", '{"command":"sleep 5"}'),
        ("observation", "Command aborted"),
    ]


def test_a_branch_has_turns_of_its_own() -> None:
    assert transcript(recorded()["Which is the brightest?"]) == [("thought", "The white one.")]
    # It begins below the result of a tool, after which the model went on elsewhere.
    painted = [step[0] for step in transcript(recorded()["Never mind, paint one."])]
    assert painted == ["tool_call", "observation", "thought"]


def test_a_failed_tool_is_an_error_to_recover_from() -> None:
    rules = always(recovery="after_tool_error")
    (first, *_) = drafted("pi", RECORDED, rules).drafts.values()
    assert first.steps[-1]["type"] == "error_recovery"


def test_under_session_a_fork_has_its_own_turns_alone() -> None:
    first, fork = drafted("pi", RECORDED, SESSION).drafts.values()
    assert (first.id, len(first.steps)) == ("kp:trace:01a228db-c829-7107-b44a-7a28c64562b2", 37)
    assert (fork.objective, transcript(fork)) == (
        "Which lamps are there?",
        [("observation", "How many are left?"), ("thought", "Two.")],
    )


def test_a_fork_lacks_the_labels_of_what_it_copies(tmp_path: Path) -> None:
    lines = asked("p", "go", None), said("a", "gone", text("so"), second=2)
    pi_file(tmp_path, *lines, second=9, parentSession="/x.jsonl")
    assert transcript(drafted("pi", tmp_path).draft) == [("thought", "so")]


def test_entries_below_a_lost_line_are_reported(tmp_path: Path) -> None:
    lines = asked("p", "go", None), said("a", "p", text("so")), said("b", "gone", text("lost"))
    made = drafted("pi", pi_file(tmp_path, *lines))
    assert transcript(made.draft) == [("thought", "so")]
    assert made.skipped == ["step without its prompt"]


def test_pictures_and_thoughts_that_are_withheld_are_left_out(tmp_path: Path) -> None:
    hidden = {"type": "thinking", "thinking": "SECRET", "redacted": True}
    lines = (
        asked("p", [text("go"), PICTURE], None),
        said("a", "p", hidden, text("so"), pi_call("c", "mcp__web__open", {})),
        gave("r", "a", "c", [text("a"), PICTURE, text("b")]),
    )
    assert transcript(drafted("pi", pi_file(tmp_path, *lines)).draft) == [
        ("thought", "so"),
        ("tool_call", "web/open", "{}"),
        ("observation", "a\nb"),
    ]


def test_a_session_of_version_1_is_a_list(tmp_path: Path) -> None:
    header = {"type": "session", "id": "s", "timestamp": at(0), "cwd": "/x", "provider": "p"}
    lines = [
        asked("", "go", None, 1),
        said("", None, pi_call("c", "read", {}), second=2),
        gave("", "", "c", "found", 3),
        asked("", "faster", None, 4),
        said("", None, text("so"), second=5),
        asked("", "on", None, 6),
        said("", None, text("yes"), second=7),
    ]
    bare = [
        {name: x for name, x in line.items() if name not in ("id", "parentId")} for line in lines
    ]
    first, second = drafted("pi", write(tmp_path / "s.jsonl", header, *bare)).drafts.values()
    assert (first.id, second.id) == ("kp:trace:s/1", "kp:trace:s/2")
    assert [step[0] for step in transcript(first)][-2:] == ["observation", "thought"]
    assert second.fields["provider"] == ["p"]


def test_the_hub_s_simple_format_is_read(tmp_path: Path) -> None:
    told = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "what time is it?", "timestamp": 1_777_626_000_000},
        {
            "role": "assistant",
            "content": "",
            "reasoningContent": "the clock",
            "toolCalls": [{"id": "t", "function": {"name": "clock", "arguments": "{}"}}],
            "model": "m",
        },
        {"role": "tool", "toolCallId": "t", "content": "15:00"},
        {"role": "assistant", "content": "three"},
    ]
    header = {"type": "session", "harness": "my-agent", "id": "s", "name": "the time"}
    lines = ({"type": "message", "message": message} for message in told)
    draft = drafted("pi", write(tmp_path / "s.jsonl", header, *lines)).draft
    assert transcript(draft) == [
        ("thought", "the clock"),
        ("tool_call", "clock", "{}"),
        ("observation", "15:00"),
        ("thought", "three"),
    ]
    assert str(draft.created_at) == "2026-05-01 09:00:00+00:00"
    assert (draft.origin.model, draft.fields["harness"]) == ("m", ["my-agent"])


def test_without_times_a_rule_has_to_give_one(tmp_path: Path) -> None:
    header = {"type": "session", "harness": "h", "id": "s"}
    talk = ({"role": "user", "content": "go"}, {"role": "assistant", "content": "so"})
    lines = ({"type": "message", "message": message} for message in talk)
    write(tmp_path / "s.jsonl", header, *lines)
    assert converted("pi", tmp_path).reasons == [["bad_created_at"]]
    row = converted("pi", tmp_path, always(created_at="2026-05-01")).row
    assert row["metadata"]["created_at"] == "2026-05-01T00:00:00.000000Z"


def test_entries_of_an_unknown_kind_are_counted(tmp_path: Path) -> None:
    odd = {"type": "dream", "id": "d", "parentId": "p", "timestamp": at(2)}
    lines = asked("p", "go", None), odd, said("a", "d", text("so"))
    made = drafted("pi", pi_file(tmp_path, *lines))
    assert (len(made.drafts), made.skipped) == (1, ["line of an unknown kind: dream"])


@pytest.mark.parametrize("lines", [[], [{"type": "message"}], [{"type": "session"}]])
def test_a_file_without_a_header_is_no_session(tmp_path: Path, lines: list[Line]) -> None:
    write(tmp_path / "s.jsonl", *lines)
    assert drafted("pi", tmp_path).reasons == [["unreadable_file"]]


def test_a_session_without_a_prompt_is_passed_over(tmp_path: Path) -> None:
    made = drafted("pi", pi_file(tmp_path, sessions.pi("x", {"role": "bashExecution"}, None)))
    assert (made.drafts, made.skipped) == ({}, ["session without a prompt"])
