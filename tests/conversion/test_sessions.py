"""Agents' own sessions: what Claude Code and Codex write becomes a trace a turn, or a session."""

import json
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kp_batch.bounds import TooLargeError
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import SourceRecord
from kp_batch.conversion.rules import Rules
from kp_batch.errors import KpBatchError, UnreadableError
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.formats.kits import KITS
from tests.support.formats.sessions import (
    BEGUN,
    BROWSER,
    FILES,
    HINT,
    REMINDER,
    Line,
    answer,
    asked,
    at,
    claude,
    claude_file,
    codex,
    event,
    item,
    meta,
    rollout,
    says,
    started,
    text,
    user,
    uuid_at,
    write,
)
from tests.support.imports.drafting import ALWAYS, always, converted, drafted, transcript
from tests.support.imports.importing import imported

SESSION = always(trace="session")
GIVEN = '{"at":"é"}'  # to the tools of `use`
PICTURE = {"type": "image", "source": {"type": "base64", "data": "SECRET"}}


def used(name: str, given: str = "{}") -> tuple[str, str, str]:
    return "tool_call", name, given


def read(name: str, source: Path, archive: Path, rules: Rules = ALWAYS) -> Imported:
    return import_traces(FORMATS[name], [str(source)], archive, rules)


def use(named: str, name: str = "Bash") -> Line:
    return {"type": "tool_use", "id": named, "name": name, "input": {"at": "é"}}


def gave(uuid: str, named: str, content: object, second: int = 2, **more: Any) -> Line:
    part = {"type": "tool_result", "tool_use_id": named, "content": content, **more}
    return user(uuid, [part], second, toolUseResult={"stdout": "SECRET"})


def test_a_trace_is_a_turn_of_the_user(tmp_path: Path) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "SECRET"}
    path = claude_file(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "p1", "snapshot": {"x": "SECRET"}},
        user("p1", "go", 0),
        says("a1", thinking, of="one"),
        says("a2", text("so"), of="one", second=2),
        says("a3", use("c1"), of="one", second=3),
        gave("r1", "c1", [text("a"), PICTURE, text("b")], 4),
        says("a4", use("c2", "mcp__web__open__page"), of="one", second=5),
        gave("r2", "c2", [PICTURE], 6),
        says("a5", text("done"), second=7, model="other"),
        user("p2", [text("<system-reminder>x"), text("and now?"), PICTURE], 8),
        says("a6", text("well"), second=9),
    )
    made = drafted("claude-code", path)
    first, second = made.drafts.values()
    assert ([*made.drafts], made.skipped) == (["kp:trace:p1", "kp:trace:p2"], [])
    assert (first.objective, second.objective) == ("go", "and now?")
    assert transcript(first) == [
        ("thought", "hm\nso"),
        used("Bash", GIVEN),
        used("web/open__page", GIVEN),
        ("observation", "a\nb"),
        ("observation", ""),
        ("thought", "done"),
    ]
    assert str(first.created_at) == "2026-05-01 09:00:00.500000+00:00"
    assert (first.native.root, first.native.log, first.framework) == ("p1", "s", "claude-code")
    assert (first.origin.agent, first.origin.model, first.origin.version) == ("m", "m", "2.1.1")
    assert first.fields == {
        "project": ["shop"],
        "cwd": ["/home/me/shop"],
        "gitBranch": ["main"],
        "version": ["2.1.1"],
        "model": ["m", "other"],
    }


@pytest.mark.parametrize(
    "line",
    [
        user("x", "told by the tool", isMeta=True),
        user("x", "a summary", isCompactSummary=True),
        user("x", "a summary", isVisibleInTranscriptOnly=True),
        user("x", "for a subagent", isSidechain=True),
        user("x", "it is done", origin={"kind": "task-notification"}),
        user("x", [text("[Request interrupted by user]")]),
        user("x", "<task-notification>done</task-notification>"),
        user("x", "<bash-stdout>so</bash-stdout><bash-stderr></bash-stderr>"),
        user("x", "<command-name>/cost</command-name><command-args></command-args>"),
        {**says("x", text("API Error")), "isApiErrorMessage": True},
        says("x", text("no answer"), model="<synthetic>"),
        {"type": "queue-operation", "sessionId": "s", "content": "typed"},
        {**user("x", ""), "type": "attachment", "attachment": {"type": "skill_listing"}},
    ],
)
def test_what_nobody_typed_is_no_step(tmp_path: Path, line: Line) -> None:
    lines = user("p", "go"), line, user("o", "<local-command-stdout>x"), says("a", text("so"))
    draft = drafted("claude-code", claude_file(tmp_path, *lines)).draft
    assert (draft.id, transcript(draft)) == ("kp:trace:p", [("thought", "so")])


@pytest.mark.parametrize(
    ("content", "objective"),
    [
        (f"{REMINDER}\nList the ropes.", "List the ropes."),
        (f"List the ropes.\n\n{REMINDER}", "List the ropes."),
        (f"List the {REMINDER}ropes.{REMINDER}{HINT}", "List the ropes."),
        ([text(f"{HINT}\n{REMINDER}"), text(f"{HINT}List the ropes.")], "List the ropes."),
        ("Why does <system-reminder> show?", "Why does <system-reminder> show?"),
        ("<system-reminder> shows. Why?", "<system-reminder> shows. Why?"),
        (f"Why does <system-reminder> show?\n{REMINDER}", "Why does <system-reminder> show?"),
        (f"<system-reminder>\nOf <system-reminder> tags.\n</system-reminder>{REMINDER}Go", "Go"),
        ("  a\n\n<b>b</b> ", "  a\n\n<b>b</b> "),
        (f"{REMINDER}<bash-input>ls</bash-input>", None),
        (f"{REMINDER}\n<system-reminder>cut off", None),
        ("<teammate-message teammate_id='a'>done</teammate-message>", None),
    ],
)
def test_of_what_a_tool_inserts_into_a_prompt_only_that_is_dropped(
    tmp_path: Path, content: object, objective: str | None
) -> None:
    path = claude_file(tmp_path, user("p", content), says("a", text("so")))
    made = drafted("claude-code", path)
    assert [draft.objective for draft in made.drafts.values()] == [objective] * bool(objective)
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": content}
    line = {**user("q", ""), "type": "attachment", "attachment": queued}
    draft = drafted("claude-code", claude_file(tmp_path, user("p", "go"), line)).draft
    assert transcript(draft) == [("observation", objective)] * bool(objective)


LISTED = [text("a"), {"type": "tool_reference", "tool_name": "b"}]


@pytest.mark.parametrize(
    ("content", "observed"),
    [
        (f"1\tx\n\n{REMINDER}\n", "1\tx"),
        (f"{REMINDER}\n     1→x", "     1→x"),
        (f"{REMINDER}\n\nx\n\n\n{REMINDER}\n{REMINDER}", "\nx\n"),
        (f"{REMINDER}\n", ""),
        ([text("a"), text(f"b\n\n{REMINDER}")], "a\nb"),
        ([text("a"), text(REMINDER)], "a"),
        ([*LISTED, text(REMINDER)], json.dumps(LISTED, separators=(",", ":"))),
        # What a tool returned of such itself.
        (f"1\t{REMINDER}", f"1\t{REMINDER}"),
        (f"a\n{REMINDER}\nb\n\n{REMINDER}", f"a\n{REMINDER}\nb"),
        (f"1\t<system-reminder>\n\n{REMINDER}", "1\t<system-reminder>"),
        ("a\n<system-reminder>cut off\n", "a\n<system-reminder>cut off\n"),
    ],
)
def test_reminders_around_what_a_tool_returned_are_no_part_of_it(
    tmp_path: Path, content: object, observed: str
) -> None:
    lines = user("p", "go"), says("a", use("c")), gave("r", "c", content)
    assert transcript(drafted("claude-code", claude_file(tmp_path, *lines)).draft) == [
        used("Bash", GIVEN),
        ("observation", observed),
    ]


def test_a_reminder_in_the_output_of_a_command_makes_it_no_prompt(tmp_path: Path) -> None:
    called = user("c", "<command-name>/cost</command-name>")
    output = user("o", f"{REMINDER}<local-command-stdout>1 $</local-command-stdout>")
    lines = user("p", "go"), called, output, says("a", text("so"))
    draft = drafted("claude-code", claude_file(tmp_path, *lines)).draft
    assert (draft.objective, transcript(draft)) == ("go", [("thought", "so")])


def test_many_tags_without_an_end_take_no_time(tmp_path: Path) -> None:
    content = "go " + "<system-reminder>" * 99_999 + "<ide_selection" * 99_999
    for returned in (content, "\n<system-reminder>" * 99_999, f"{REMINDER}\n" * 9_999 + "x"):
        lines = user("p", content), says("a", use("c")), gave("r", "c", returned)
        draft = drafted("claude-code", claude_file(tmp_path, *lines)).draft
        assert draft.objective == content


def test_a_reminder_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    content = f"{REMINDER}\n<system-reminder>\n" + "a\n" * 199_999
    path = claude_file(tmp_path, user("p", "go"), says("a", use("c")), gave("r", "c", content))
    tracemalloc.start()
    drafted("claude-code", path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(content)


@pytest.mark.parametrize("part", ["name", "args"])
def test_a_command_without_an_end_takes_no_time(tmp_path: Path, part: str) -> None:
    content = "<command-message>x</command-message>" + f"<command-{part}>" * 19_999
    prompt = user("p", "<command-name>/x</command-name>" + content)
    drafted("claude-code", claude_file(tmp_path, prompt, says("a", text("so"))))
    drafted("claude-code", claude_file(tmp_path, user("p", content), says("a", text("so"))))


def test_a_prompt_without_text_ends_the_turn_before(tmp_path: Path) -> None:
    lines = (
        user("p1", "go"),
        says("a1", text("so")),
        user("p2", [PICTURE, text("")], 2),
        says("a2", use("c"), second=3),
        gave("r", "c", [PICTURE], 4),
        says("a3", text("a mast"), second=5),
        user("p3", "on", 6),
        says("a4", text("yes"), second=7),
    )
    path = claude_file(tmp_path, *lines)
    made = drafted("claude-code", path)
    assert [transcript(draft) for draft in made.drafts.values()] == [
        [("thought", "so")],
        [("thought", "yes")],
    ]
    assert made.skipped == ["turn without a text"]
    steps = transcript(drafted("claude-code", path, SESSION).draft)
    assert [step[0] for step in steps].count("thought") == 3


def test_a_picture_that_the_tool_shows_ends_no_turn(tmp_path: Path) -> None:
    shown = user("x", [PICTURE], 1, isMeta=True)
    lines = user("p", "go"), says("a", use("c")), shown, gave("r", "c", "x")
    assert len(transcript(drafted("claude-code", claude_file(tmp_path, *lines)).draft)) == 2


@pytest.mark.parametrize("has_events", [True, False])
def test_a_prompt_of_codex_without_text_ends_the_turn_before(
    tmp_path: Path, *, has_events: bool
) -> None:
    """Where there are no turns."""

    def typed(words: str, second: int) -> Line:
        if has_events:
            return asked(words, second)
        parts = [{"type": "input_text", "text": words}] if words else []
        parts += [{"type": "input_image", "image_url": "SECRET"}]
        return item("message", second, role="user", content=parts)

    lines = meta(), typed("go", 1), answer("so", 2), typed("", 3), answer("a mast", 4)
    path = rollout(tmp_path, *lines, typed("on", 5), answer("yes", 6))
    made = drafted("codex", path)
    assert [transcript(draft) for draft in made.drafts.values()] == [
        [("thought", "so")],
        [("thought", "yes")],
    ]
    assert made.skipped == ["turn without a text"]


PEER = """Another Claude session sent a message:
<teammate-message teammate_id="a" color="green">
{"type":"idle_notification"}
</teammate-message>

This came from another Claude session — not typed by your user."""
NOTICE = """A background agent completed a task:
<task-notification>
<task-id>1</task-id>
</task-notification>"""


@pytest.mark.parametrize(
    "words",
    [
        "[Your previous response had no visible output. Please continue.]",
        NOTICE,
        f"[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated event.\n{NOTICE}",
        PEER,
        "Another Claude session sent a message while you were working:\nyes\n\nThis came from",
        '<agent-message from="a">done</agent-message>',
        "Stop hook feedback:\n- [test.sh]: it fails",
        "This session is being continued from a previous conversation that ran out of context.",
    ],
)
def test_what_the_tool_says_as_the_user_is_no_step(tmp_path: Path, words: str) -> None:
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": words}
    lines = (
        user("p", "go"),
        says("a", use("c")),
        {**user("q", ""), "type": "attachment", "attachment": queued},
        user("x", words),
        user("y", [text(f"{REMINDER}\n{words}")]),
        says("b", text("so")),
    )
    draft = drafted("claude-code", claude_file(tmp_path, *lines)).draft
    assert transcript(draft) == [used("Bash", GIVEN), ("thought", "so")]


@pytest.mark.parametrize(
    "words",
    [
        "Another Claude session sent a message: what does that mean?",
        "A background task failed:\nno rope",
        "Why is there [Your previous response had no visible output?",
    ],
)
def test_what_users_type_about_such_is_a_prompt(tmp_path: Path, words: str) -> None:
    path = claude_file(tmp_path, user("p", words), says("a", text("so")))
    assert drafted("claude-code", path).draft.objective == words


def test_what_people_type_in_a_chat_is_a_prompt(tmp_path: Path) -> None:
    def sent(words: str) -> str:
        return f'<channel source="telegram" chat_id="7" user="ida">\n{words}\n</channel>'

    origin = {"kind": "channel", "server": "plugin:telegram:telegram"}
    queued = {"type": "queued_command", "commandMode": "prompt", "origin": origin, "isMeta": True}
    queued["prompt"] = sent("and the key?")
    lines = (
        user("p", sent("Is the <channel> lock open?"), isMeta=True, origin=origin),
        says("a", use("c")),
        {**user("q", "", 1), "type": "attachment", "attachment": queued},
        says("b", text("yes")),
        user("x", sent("for a subagent"), isMeta=True, isSidechain=True, origin=origin),
        user("p2", [text(sent(f"Thanks.{REMINDER}"))], 5, isMeta=True, origin=origin),
        says("c", text("so"), second=6),
    )
    first, second = drafted("claude-code", claude_file(tmp_path, *lines)).drafts.values()
    assert (first.objective, second.objective) == ("Is the <channel> lock open?", "Thanks.")
    assert transcript(first) == [
        used("Bash", GIVEN),
        ("observation", "and the key?"),
        ("thought", "yes"),
    ]


def test_what_is_asked_at_a_set_time_is_a_prompt(tmp_path: Path) -> None:
    begun, said = user("u1", "go"), says("a1", text("so"))
    fired = claude("system", "f", "Running a task", subtype="scheduled_task_fire")
    for aside in ({"isMeta": True}, {}):
        asked = user("u2", "Is it <b>green</b>?", 3, **aside)
        notice = user("u3", "Continue.", 4, isMeta=True)
        path = claude_file(tmp_path, begun, said, fired, asked, says("a2", text("no")), notice)
        first, second = drafted("claude-code", path).drafts.values()
        assert (first.objective, transcript(first)) == ("go", [("thought", "so")])
        assert (second.objective, transcript(second)) == (
            "Is it <b>green</b>?",
            [("thought", "no")],
        )


def test_what_a_tool_of_the_model_s_provider_finds_is_an_observation(tmp_path: Path) -> None:
    call = {"type": "server_tool_use", "id": "s", "name": "advisor", "input": {}}
    told = {"type": "advisor_tool_result", "tool_use_id": "s"}
    hidden = {"type": "advisor_redacted_result", "encrypted_content": "SECRET"}
    for content, found in (
        ({"type": "advisor_result", "text": "Wait."}, "Wait."),
        (hidden, '{"type":"advisor_redacted_result"}'),
    ):
        lines = says("a1", call, of="m"), says("a2", {**told, "content": content}, of="m")
        path = claude_file(tmp_path, user("u", "go"), *lines, says("a3", text("so")))
        assert transcript(drafted("claude-code", path).draft) == [
            used("advisor"),
            ("observation", found),
            ("thought", "so"),
        ]


def test_a_command_is_a_prompt_where_the_model_answers(tmp_path: Path) -> None:
    called = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    prompt = user("p", f"{called}\n<command-args>the last one</command-args>")
    meant = user("x", [text("Look for bugs")], isMeta=True)
    path = claude_file(tmp_path, prompt, meant, says("a", text("so")))
    assert drafted("claude-code", path).draft.objective == "/review the last one"


def test_a_prompt_that_mentions_a_command_is_no_command(tmp_path: Path) -> None:
    words = "Why is <command-name>/cost</command-name> in my logs?"
    path = claude_file(tmp_path, user("p", words), says("a", text("so")))
    assert drafted("claude-code", path).draft.objective == words


def test_what_is_typed_meanwhile_is_an_observation(tmp_path: Path) -> None:
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": "and b"}
    line = {**user("q", "", 2), "type": "attachment", "attachment": queued}
    lines = user("p", "do a"), says("a", use("c")), line, says("b", text("done"), second=3)
    assert transcript(drafted("claude-code", claude_file(tmp_path, *lines)).draft) == [
        used("Bash", GIVEN),
        ("observation", "and b"),
        ("thought", "done"),
    ]


def test_lines_that_repeat_the_blocks_of_their_message_add_only_what_is_new(tmp_path: Path) -> None:
    thinking = {"type": "thinking", "thinking": "ropes", "signature": "x"}
    blocks = [thinking, text("I read."), use("c1"), use("c2"), text("And I look.")]
    early = {**use("c1"), "input": {}}
    lines = (
        user("p", "go"),
        says("a1", thinking, of="m", second=1),
        says("a2", *blocks[:2], early, of="m", second=2),
        gave("r1", "c1", "one", 2),
        says("a3", *blocks[:4], of="m", second=3),
        says("a4", blocks[4], of="m", second=3),
        says("a5", *blocks, of="m", second=4),
        gave("r2", "c2", "two", 5),
        says("b", text("I read."), second=6),
        says("c", text("I read."), second=7),
    )
    draft = drafted("claude-code", claude_file(tmp_path, *lines)).draft
    assert transcript(draft) == [
        ("thought", "ropes\nI read.\nAnd I look."),
        used("Bash", GIVEN),
        used("Bash", GIVEN),
        ("observation", "one"),
        ("observation", "two"),
        ("thought", "I read."),
        ("thought", "I read."),
    ]


def test_the_first_thought_after_a_failed_tool_may_be_a_recovery(tmp_path: Path) -> None:
    failed = gave("r", "c", "Exit code 1", is_error=True)
    lines = user("p", "go"), says("a", use("c")), failed, says("b", text("again"), second=3)
    path = claude_file(tmp_path, *lines)
    for rule, kind in (("after_tool_error", "error_recovery"), (None, "thought")):
        draft = drafted("claude-code", path, always(recovery=rule)).draft
        assert transcript(draft)[-1] == (kind, "again")


def copied(line: Line) -> Line:
    """A line as a fork has it."""
    origin = {"sessionId": "s", "messageUuid": line["uuid"]}
    return {**line, "sessionId": "fork", "forkedFrom": origin}


def chained(*lines: Line) -> list[Line]:
    """Lines of which each names the one above as its parent."""
    parents = [None, *(line["uuid"] for line in lines)]
    return [{**line, "parentUuid": x} for line, x in zip(lines, parents, strict=False)]


def forked(lines: Sequence[Line], session: str, second: int) -> list[Line]:
    """Lines as a fork has them that the SDK makes: with new ids, and the last with a new time."""
    ids = {line["uuid"]: f"{session}:{line['uuid']}" for line in lines}
    copies = [
        {
            **line,
            "uuid": ids[line["uuid"]],
            "parentUuid": ids.get(line["parentUuid"]),
            "sessionId": session,
            "forkedFrom": {"sessionId": line["sessionId"], "messageUuid": line["uuid"]},
        }
        for line in lines
    ]
    return [*copies[:-1], {**copies[-1], "timestamp": at(second)}]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_turn_that_two_sessions_have_in_the_same_place_is_of_one_whatever_their_files_are_called(
    tmp_path: Path, names: str
) -> None:
    for name, session in zip(names, ("s1", "s2"), strict=True):
        prompt = {**user("p", "go"), "sessionId": session}
        write(tmp_path / f"{name}.jsonl", prompt, says("a", text("so")))
    assert drafted("claude-code", tmp_path).draft.native.log == "s1"


def test_copied_history_counts_once(tmp_path: Path) -> None:
    old = user("p1", "go"), says("a1", text("so")), user("p2", "on", 2), says("a2", text("yes"))
    own = user("p3", "back", 5, sessionId="fork"), says("a3", text("no"), second=6)
    resumed = {**user("p1", "go"), "sessionId": "later"}
    write(tmp_path / "in/1.jsonl", *old)
    write(tmp_path / "in/2.jsonl", *map(copied, old[:2]), *own)
    title = {"type": "summary", "summary": "t", "leafUuid": "a1"}
    write(tmp_path / "in/3.jsonl", title, resumed, old[1])
    assert read("claude-code", tmp_path / "in", tmp_path / "out").refused == {}
    rows = imported(tmp_path / "out")
    assert {trace: transcript(row) for trace, row in rows.items()} == {
        "kp:trace:p1": [("thought", "so")],
        "kp:trace:p2": [("thought", "yes")],
        "kp:trace:p3": [("thought", "no")],
    }
    assert rows["kp:trace:p1"]["metadata"]["session"] == "s"
    assert rows["kp:trace:p1"]["task"]["objective"] == "go"


def test_a_session_of_a_fork_has_its_own_turns_and_the_question_that_it_copied(
    tmp_path: Path,
) -> None:
    old = user("p1", "go"), says("a1", text("so"))
    own = (
        {**user("p2", "and this?", 5), "sessionId": "fork"},
        {**says("a2", text("no"), second=6), "sessionId": "fork"},
    )
    path = claude_file(tmp_path, *map(copied, old), *own)
    trace = drafted("claude-code", path, SESSION).drafts["kp:trace:fork"]
    assert (trace.objective, transcript(trace)) == (
        "go",
        [("observation", "and this?"), ("thought", "no")],
    )
    assert trace.created_at
    assert trace.created_at.second == 5
    assert (trace.native.root, trace.native.log) == ("p2", "fork")


TURNS = chained(
    user("p1", "Name a knot."),
    says("a1", use("c", "Read"), second=1),
    gave("r1", "c", "bowline", 2),
    says("a2", text("Bowline."), second=3),
    user("p2", "And a rope?", 4),
    says("a3", text("Nylon."), second=5),
)


@pytest.mark.parametrize("names", ["abc", "cba", "bca"])
def test_what_a_fork_of_a_fork_copied_with_new_ids_counts_once(tmp_path: Path, names: str) -> None:
    asked, answered = user("p3", "Own?", 31), says("a4", text("Own."), second=32)
    fork = chained(*forked(TURNS, "f", 30), asked, answered)
    lines = TURNS, fork, chained(*forked(fork, "g", 40), user("p4", "On?", 41), says("a5"))
    for name, each in zip(names, lines, strict=True):
        write(tmp_path / "in" / f"{name}.jsonl", *each)
    made = drafted("claude-code", tmp_path / "in")
    assert {x.id[9:]: x.objective for x in made.drafts.values()} == {
        "p1": "Name a knot.",
        "p2": "And a rope?",
        "p3": "Own?",
        "p4": "On?",
    }
    assert transcript(made.drafts["kp:trace:p1"]) == [
        used("Read", GIVEN),
        ("observation", "bowline"),
        ("thought", "Bowline."),
    ]
    assert transcript(made.drafts["kp:trace:p2"]) == [("thought", "Nylon.")]
    assert str(made.drafts["kp:trace:p2"].ended_at) == "2026-05-01 09:00:05.500000+00:00"
    assert {x.native.log for x in made.drafts.values()} == {"s"}
    assert made.skipped == ["turn of another session"] * 5


def test_a_session_of_a_fork_with_new_ids_has_its_own_turns(tmp_path: Path) -> None:
    asked, answered = user("p3", "Own?", 31), says("a4", text("Own."), second=32)
    own = ({**line, "sessionId": "f"} for line in (asked, answered))
    path = claude_file(tmp_path, *chained(*forked(TURNS, "f", 30), *own))
    trace = drafted("claude-code", path, SESSION).draft
    assert transcript(trace) == [("observation", "Own?"), ("thought", "Own.")]


def test_a_copy_is_known_as_one_when_its_own_copy_grows_after_months(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, archive = forked(TURNS, "f", 30), tmp_path / "out"
    write(tmp_path / "in/a.jsonl", *TURNS)
    write(tmp_path / "in/b.jsonl", *fork)
    read("claude-code", tmp_path / "in", archive)
    later = datetime.now(UTC) + timedelta(days=99)
    monkeypatch.setattr("kp_batch.imports.change.now", lambda: later)
    write(tmp_path / "in/c.jsonl", *forked(fork, "g", 40))
    assert read("claude-code", tmp_path / "in", archive).traces == 0
    assert len(imported(archive)) == 2


def test_an_answer_whose_prompt_is_lost_is_of_no_turn(tmp_path: Path) -> None:
    lines = chained(
        user("p1", "First?"),
        says("a1", text("A1.")),
        user("p2", "Lost?", 2),
        says("a2", use("c"), second=3),
        gave("r", "c", "x", 4),
        says("a3", text("A2."), second=5),
    )
    path = claude_file(tmp_path, *lines)
    whole = path.read_bytes().splitlines(keepends=True)
    whole[2] = b"\0" * (len(whole[2]) - 1) + b"\n"
    path.write_bytes(b"".join(whole))
    made = drafted("claude-code", path)
    assert transcript(made.draft) == [("thought", "A1.")]
    assert (made.reasons, made.skipped) == ([["malformed_json"]], ["step without its prompt"] * 3)
    assert len(transcript(drafted("claude-code", path, SESSION).draft)) == 4


def test_an_answer_is_of_the_turn_of_the_line_above_it(tmp_path: Path) -> None:
    """Also below a command that is a prompt once it is answered, and a note of the tool's."""
    first = chained(user("p1", "go"), says("a1", use("c")))
    second = user("p2", "<command-name>/review</command-name>", 2, parentUuid="a1")
    note = user("x", [text("Look for bugs")], 2, isMeta=True, parentUuid="p2")
    late = {**gave("r", "c", "late", 3), "parentUuid": "a1"}
    lines = *first, second, note, late, {**says("a2", text("so"), second=4), "parentUuid": "x"}
    one, two = drafted("claude-code", claude_file(tmp_path, *lines)).drafts.values()
    assert transcript(one) == [used("Bash", GIVEN), ("observation", "late")]
    assert (two.objective, transcript(two)) == ("/review", [("thought", "so")])


def test_a_line_that_is_taken_out_doubles_no_step(tmp_path: Path) -> None:
    """Of a file whose records still count when it has them no more."""
    count = event("token_count", 1, info="SECRET")
    lines = [meta(), started(1), asked("go"), count, *ran("c", "a"), answer("so", 2)]
    lines += [*ran("c", "a"), answer("so", 2), answer("so", 2)]
    for each in (lines, [line for line in lines if line != count]):
        rollout(tmp_path / "in", *each)
        read("codex", tmp_path / "in", tmp_path / "out")
        (row,) = imported(tmp_path / "out").values()
        assert transcript(row) == [
            used("exec"),
            ("observation", "a"),
            ("thought", "so"),
            used("exec"),
            ("observation", "a"),
            ("thought", "so\nso"),
        ]


def test_a_record_that_is_changed_in_its_file_replaces_the_former_one(tmp_path: Path) -> None:
    parts = {
        "codex": (meta(), started(1), asked("go x"), *ran("c", "x")),
        "claude-code": (user("p", "go x"), says("a", use("c")), gave("r", "c", "x")),
    }
    for name, lines in parts.items():
        path, archive = tmp_path / name / "in.jsonl", tmp_path / f"{name}-out"
        for word in ("x", "y"):
            write(path, *lines)
            changed = path.read_text().replace('"go x"', f'"go {word}"')
            path.write_text(changed.replace(': "x"', f': "{word}"'))
            read(name, path, archive)
            (row,) = imported(archive).values()
            assert row["task"]["objective"] == f"go {word}"
            assert transcript(row)[1:] == [("observation", word)]


def test_a_turn_that_goes_on_is_made_anew(tmp_path: Path) -> None:
    lines = user("p", "go"), says("a", text("so")), says("b", text("more"), second=3)
    for count in (2, 3):
        claude_file(tmp_path / "in", *lines[:count])
        read("claude-code", tmp_path / "in", tmp_path / "out")
        (row,) = imported(tmp_path / "out").values()
        assert len(row["steps"]) == count - 1


def ran(named: str, output: object, *events: Line, name: str = "exec", **more: Any) -> list[Line]:
    """A call, what events tell of it, and its output."""
    call = item("function_call", name=name, arguments="{}", call_id=named, **more)
    return [call, *events, item("function_call_output", call_id=named, output=output)]


ODD: list[Any] = [None, 7, [], {}, [[]]]


@pytest.mark.parametrize("odd", ODD)
def test_a_line_of_claude_code_with_odd_values_spoils_no_other(tmp_path: Path, odd: Any) -> None:
    prompt, answered = user("p", "go"), says("a", text("so"), second=9)
    odd_lines: list[Line] = [dict.fromkeys(answered, odd), {**answered, "message": odd}]
    parts = [text("hm"), {"type": odd, "text": odd}, odd]
    message = {"role": odd, "id": odd, "model": odd, "content": parts}
    odd_lines.append({**says("b"), "uuid": odd, "timestamp": odd, "message": message})
    lines = [prompt, *odd_lines, answered]
    told = [("thought", "hm"), ("thought", "so")]
    assert transcript(drafted("claude-code", claude_file(tmp_path, *lines)).draft) == told


@pytest.mark.parametrize("odd", ODD)
def test_a_line_of_codex_with_odd_values_spoils_no_other(tmp_path: Path, odd: Any) -> None:
    calls = [item("function_call", name=x, arguments="{}", call_id=x) for x in ("a", "b")]
    odd_lines = [
        {"type": odd, "payload": odd},
        {"type": "event_msg", "payload": {"type": odd, "item": {"type": odd, "id": odd}}},
        *(
            event(kind, call_id=odd, exit_code=odd, status=odd)
            for kind in ("exec_command_end", "x")
        ),
        event("item_completed", item={"type": odd, "id": odd, "status": "failed"}),
    ]
    lines = [meta(), asked("go"), *calls, *odd_lines, answer("so")]
    told = [used("a"), used("b"), ("thought", "so")]
    assert transcript(drafted("codex", rollout(tmp_path, *lines)).draft) == told


def test_the_end_of_a_call_with_a_number_for_an_id_is_its_own(tmp_path: Path) -> None:
    calls = [
        item("function_call", name=x, arguments="{}", call_id=n) for n, x in enumerate("ab", 1)
    ]
    end = event("exec_command_end", call_id=1, exit_code=1)
    outputs = [item("function_call_output", call_id=n, output="x") for n in (1, 2)]
    lines = [meta(), asked("go"), *calls, end, outputs[1], answer("so"), outputs[0], answer("on")]
    rules = always(recovery="after_tool_error")
    steps = transcript(drafted("codex", rollout(tmp_path, *lines), rules).draft)
    assert [step for step, *_ in steps][-3:] == ["thought", "observation", "error_recovery"]


def test_a_turn_of_codex(tmp_path: Path) -> None:
    injected = [{"type": "input_text", "text": "<environment_context>x"}]
    reasoning = {
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "well"}],
        "encrypted_content": "SECRET",
    }
    shot = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "SECRET"}]
    path = rollout(
        tmp_path,
        meta(base_instructions={"text": "SECRET"}),
        started(1),
        item("message", 1, role="user", content=injected),
        codex("turn_context", 1, model="m"),
        asked("# Context\n\n## My request for Codex:\ngo", 2),
        item("reasoning", 3, **reasoning),
        event("agent_message", 4, message="so"),
        answer("so", 4),
        *ran("c1", shot, name="open", namespace="mcp__web"),
        item("web_search_call", 6, action={"query": "q"}),
        asked("quick", 7),
        answer("a", 8),
        answer("b", 8),
        event("task_complete", 9, turn_id=uuid_at(1)),
        started(20),
        codex("compacted", 21, message="SECRET"),
        event("task_complete", 22),
    )
    made = drafted("codex", path)
    trace = made.draft
    assert made.skipped == ["turn without a prompt"]
    assert (trace.id, trace.objective) == (f"kp:trace:{uuid_at(1)}", "go")
    assert transcript(trace) == [
        ("thought", "hm\nwell\nso"),
        used("web/open"),
        ("observation", "a"),
        used("web_search", '{"query":"q"}'),
        ("observation", "quick"),
        ("thought", "a\nb"),
    ]
    assert str(trace.created_at) == "2026-05-01 09:00:01.500000+00:00"
    assert (trace.native.root, trace.native.log) == (uuid_at(1), uuid_at(0))
    assert (trace.origin.agent, trace.origin.version, trace.framework) == ("m", "0.150", "codex")
    assert trace.fields["project"] == ["shop"]
    assert trace.fields["git.branch"] == ["main"]


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_no_record_holds_pictures_instructions_or_what_is_encrypted(
    tmp_path: Path, name: str
) -> None:
    if name == "codex":
        test_a_turn_of_codex(tmp_path)
    else:
        test_a_trace_is_a_turn_of_the_user(tmp_path)
    (path,) = tmp_path.iterdir()
    assert "SECRET" in path.read_text()
    records = [
        record for record in FORMATS[name].records(path, []) if isinstance(record, SourceRecord)
    ]
    assert "SECRET" not in json.dumps([record.payload for record in records])


FINE = "Wall time: 1 s\nProcess exited with code 0\nOutput:\nExit code: 1"


def completed(**fields: Any) -> Line:
    return event("item_completed", item={"type": "CommandExecution", "id": "c"} | fields)


def listed(*parts: str | Line) -> list[Line]:
    """An output of several parts."""
    return [
        {"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts
    ]


@pytest.mark.parametrize(
    ("output", "events", "has_failed"),
    [
        ("no", [event("exec_command_end", call_id="c", exit_code=2)], True),
        ("no", [event("patch_apply_end", call_id="c", success=False)], True),
        ("no", [event("mcp_tool_call_end", call_id="c", result={"Err": "x"})], True),
        ("no", [event("mcp_tool_call_end", call_id="c", result={"Ok": {"isError": True}})], True),
        ("no", [completed(status="failed")], True),
        ("no", [completed(status="completed", exit_code=0)], False),
        ({"content": "no", "success": False}, [], True),
        ({"content": "yes", "success": True}, [], False),
        ('{"output": "no", "metadata": {"exit_code": 1}}', [], True),
        ("Exit code: 1\nOutput:\nno", [], True),
        ("Process exited with code 3\nOutput:\n", [], True),
        (FINE, [], False),
        ("Exit code: 1\nOutput:\nno", [event("exec_command_end", call_id="c", exit_code=0)], False),
        (listed("Script failed\nWall time 0.2 seconds\nOutput:\n", "no rope"), [], True),
        (listed("Script completed\nWall time 1 s\nOutput:\n", "Script failed"), [], False),
        (listed("Exit code: 1\nOutput:\nno"), [], True),
        (listed('{"output": "no", "metadata": {"exit_code": 1}}'), [], True),
        (listed("Process exited with code 0\nOutput:\n", PICTURE), [], False),
        ("no", [completed(id="exec-1", status="failed"), completed(id="exec-2")], True),
        ("no", [event("exec_command_end", call_id="exec-1", exit_code=2)], True),
        ("no", [completed(id="exec-1", exit_code=0)], False),
    ],
)
def test_how_codex_records_that_a_tool_failed(
    tmp_path: Path, output: object, events: list[Line], *, has_failed: bool
) -> None:
    lines = meta(), started(1), asked("go"), *ran("c", output, *events), answer("then")
    trace = drafted("codex", rollout(tmp_path, *lines), always(recovery="after_tool_error")).draft
    assert transcript(trace)[-1] == ("error_recovery" if has_failed else "thought", "then")


def test_what_fails_after_a_call_is_answered_is_no_failure_of_it(tmp_path: Path) -> None:
    late = completed(id="exec-1", status="failed")
    lines = meta(), started(1), asked("go"), *ran("c", "x"), late, answer("then")
    rules = always(recovery="after_tool_error")
    assert transcript(drafted("codex", rollout(tmp_path, *lines), rules).draft)[-1][0] == "thought"
    begun = item("function_call", 2, name="exec", arguments="{}", call_id="open")
    lines = meta(), started(1), asked("go"), begun, started(5), asked("on", 5), late
    path = rollout(tmp_path, *lines, *ran("d", "x"), answer("then"))
    assert [transcript(x)[-1][0] for x in drafted("codex", path, rules).drafts.values()] == [
        "tool_call",
        "thought",
    ]


def test_what_is_injected_into_a_file_without_events_begins_no_turn(tmp_path: Path) -> None:
    def user_message(*texts: str) -> Line:
        return {"type": "message", "role": "user", "content": listed(*texts)}

    picture = {"type": "input_image", "image_url": "SECRET"}
    shown = user_message("go", '<image name=[Image #1] path="a.png">')
    shown["content"] += [picture, *listed("</image>")]
    lines = [
        user_message("<recommended_plugins>\nx\n</recommended_plugins>"),
        user_message(
            "<permissions instructions>x</permissions instructions>",
            '<app-context a="b">x</app-context>',
        ),
        shown,
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        user_message('<subagent_notification>\n{"status": "done"}\n</subagent_notification>'),
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        user_message("<b>on</b>"),
        {"type": "message", "role": "assistant", "content": "so"},
    ]
    header = {"id": "old", "timestamp": at(0)}
    first, second = drafted("codex", rollout(tmp_path, header, *lines)).drafts.values()
    assert (first.objective, second.objective) == ("go", "<b>on</b>")
    assert transcript(first) == [used("ls"), ("observation", "x")]


def test_a_line_above_the_header_hides_nothing_of_it(tmp_path: Path) -> None:
    above = event("token_count", 1, info="SECRET")
    message = {"type": "message", "role": "user", "content": "go"}
    old = [{"id": "old", "timestamp": at(0)}, message, {**message, "role": "assistant"}]
    for lines in ([meta(), started(1), asked("go"), answer("so")], old):
        alone, below = (
            drafted("codex", rollout(tmp_path, *each)).draft for each in (lines, [above, *lines])
        )
        assert alone == below


def test_turns_that_a_fork_replays_are_another_sessions(tmp_path: Path) -> None:
    parent = codex("session_meta", 100 % 60, id=uuid_at(0), timestamp=at(0))
    replayed = started(1), asked("go"), answer("so"), event("task_complete")
    by_time = event("task_started", turn_id="t", started_at=BEGUN + 2), asked("on"), answer("yes")
    own = started(120), asked("and?"), answer("no", 30)
    fork = meta(id=uuid_at(110), timestamp=at(40))
    path = rollout(tmp_path, fork, parent, *replayed, *by_time, *own)
    made = drafted("codex", path)
    assert [*made.drafts] == [f"kp:trace:{uuid_at(120)}"]
    assert made.skipped == ["turn of another session"] * 2
    trace = drafted("codex", path, SESSION).draft
    assert (trace.id, trace.objective) == (f"kp:trace:{uuid_at(110)}", "go")
    assert transcript(trace) == [("observation", "and?"), ("thought", "no")]


def test_without_turns_each_message_of_the_user_begins_one(tmp_path: Path) -> None:
    content = [{"type": "input_text", "text": "go"}]
    header = {"id": "old", "timestamp": at(0), "git": {"branch": "b"}, "instructions": None}
    bare = [
        {
            "type": "message",
            "role": "user",
            "content": [{**content[0], "text": "<user_instructions>"}],
        },
        {"type": "message", "role": "user", "content": content},
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
        {"record_type": "state"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "message", "role": "user", "content": content},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so"}],
        },
    ]
    drafts = drafted("codex", rollout(tmp_path, header, *bare)).drafts
    first, second = drafts.values()
    assert [*drafts] == ["kp:trace:old/1", "kp:trace:old/2"]
    assert transcript(first) == [used("local_shell", '{"command":["ls"]}'), ("observation", "x")]
    assert transcript(second) == [("thought", "so")]
    assert first.created_at
    assert second.created_at is None


def test_a_session_of_codex_may_have_several_files(tmp_path: Path) -> None:
    for second in (0, 40):
        begun = meta(timestamp=at(second)), started(second), asked(f"do {second}", second)
        write(tmp_path / f"in/{second}.jsonl", *begun, answer(f"so {second}", second + 1))
    trace = drafted("codex", tmp_path / "in", SESSION).draft
    assert (trace.objective, transcript(trace)) == (
        "do 0",
        [("thought", "so 0"), ("observation", "do 40"), ("thought", "so 40")],
    )


def test_a_turn_that_two_files_of_a_session_have_counts_once(tmp_path: Path) -> None:
    lines = started(1), asked("go"), answer("so"), answer("so"), event("task_complete")
    write(tmp_path / "rollout-1.jsonl", meta(), *lines)
    write(tmp_path / "rollout-2.jsonl", meta(timestamp=at(9)), *lines, started(2), asked("on"))
    trace = drafted("codex", tmp_path).drafts[f"kp:trace:{uuid_at(1)}"]
    assert (trace.objective, transcript(trace)) == ("go", [("thought", "so\nso")])


def context(second: int) -> Line:
    return codex("turn_context", second, turn_id=uuid_at(second), model="m")


def two_turns() -> list[Line]:
    """A session; its lines 2 to 5 are one turn, 6 to 10 another, and line 9 is typed meanwhile."""
    first = started(1), context(1), asked("go", 1), answer("so", 2)
    end = event("task_complete", 3, turn_id=uuid_at(1))
    second = started(4), context(4), asked("on", 4), answer("yes", 5), asked("but?", 6)
    return [meta(), *first, end, *second, answer("no", 7)]


@pytest.mark.parametrize("way", ["broken", "gone"])
@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ([9], {1: ["go", "so"]}),  # what is typed later did not ask for the answer above
        ([6, 7], {1: ["go", "so"], 4: ["on", "yes", "but?", "no"]}),  # an end, and the next start
        ([7], {1: ["go", "so"], 4: ["on", "yes", "but?", "no"]}),
        ([2], {1: ["go", "so"], 4: ["on", "yes", "but?", "no"]}),
        ([6, 7, 9], {1: ["go", "so"]}),
    ],
)
def test_a_step_of_codex_is_of_the_turn_that_its_lines_name(
    tmp_path: Path, lost: list[int], told: dict[int, list[str]], way: str
) -> None:
    lines = [json.dumps(line) for line in two_turns()]
    for place in reversed(lost):
        lines[place - 1 : place] = ["\0"] if way == "broken" else []
    path = rollout(tmp_path)
    path.write_text("".join(f"{line}\n" for line in lines))
    made = drafted("codex", path)
    assert {
        id_: [x.objective, *(y[1] for y in transcript(x))] for id_, x in made.drafts.items()
    } == {f"kp:trace:{uuid_at(second)}": words for second, words in told.items()}
    assert made.skipped == ["turn without a prompt"] * (2 - len(told))


def test_a_call_that_ends_after_its_turn_changes_no_other_turn(tmp_path: Path) -> None:
    ended = event("exec_command_end", 5, turn_id=uuid_at(1), call_id="old", exit_code=1)
    aborted = event("turn_aborted", 5, turn_id=uuid_at(1))
    lines = meta(), started(4), asked("go", 4), *ran("c", "x")
    path = rollout(tmp_path, *lines[:-1], ended, aborted, lines[-1], answer("so", 6))
    trace = drafted("codex", path, always(recovery="after_tool_error")).draft
    assert [step[0] for step in transcript(trace)] == ["tool_call", "observation", "thought"]


@pytest.mark.parametrize("name", [f"rollout-2026-05-01T09-00-40-{uuid_at(40)}", "fork"])
@pytest.mark.parametrize("is_fork", [True, False])
def test_a_session_of_codex_whose_header_is_lost_is_refused(
    tmp_path: Path, name: str, *, is_fork: bool
) -> None:
    """The next header is a parent's, and whose turns these are is unknown."""
    replayed = [{**line, "timestamp": at(40)} for line in two_turns()]
    path = write(tmp_path / f"{name}.jsonl", *replayed[not is_fork :])
    path.write_text("\0\n" + path.read_text())
    made = drafted("codex", path)
    assert made.drafts == {}
    assert "its first line, which identifies the session, is lost" in made.refused[-1][1].message


def test_an_empty_line_before_a_header_loses_nothing(tmp_path: Path) -> None:
    path = rollout(tmp_path, meta(id="s"), started(1), asked("go"), answer("so"))
    path.write_text("\n" + path.read_text())
    made = drafted("codex", path)
    assert made.draft.objective == "go"
    assert made.refused == []


def test_a_turn_without_a_uuid_is_named_within_its_session(tmp_path: Path) -> None:
    begun = event("task_started", 1, turn_id="7")
    path = rollout(tmp_path, meta(id="s"), begun, asked("go"), answer("so"))
    assert drafted("codex", path).draft.id == "kp:trace:s/7"


@pytest.mark.parametrize(
    ("source", "told"),
    [({"custom": "chatgpt"}, ["chatgpt"]), ("vscode", ["vscode"]), ({"new": {"a": 1}}, None)],
)
def test_sessions_of_any_app_are_a_users(
    tmp_path: Path, source: object, told: list[str] | None
) -> None:
    for thread in ("user", "codex_web_code_review"):
        lines = meta(source=source, thread_source=thread), started(1), asked("go"), answer("so")
        assert drafted("codex", rollout(tmp_path, *lines)).draft.fields.get("source") == told


EDITOR = """# Context from my IDE setup:

## Active file: a.py

## Open tabs:
- a.py: a.py

"""
MARKED = """# Response annotations:
Each item contains text selected from an earlier Codex response.
<response-annotations>
[{"text":"It is closed."}]
</response-annotations>

"""
OWN = "Tie it.\n\n## My request:\nis a heading that I typed"


@pytest.mark.parametrize(
    ("words", "objective"),
    [
        (f"{BROWSER}\n## My request:\nWhich knot?\n", "Which knot?"),
        (f"{BROWSER}\nWhich knot?", "Which knot?"),
        (f"{FILES}## My request:\nWhich knot?\n", "Which knot?"),
        (f"{FILES}## My request for Codex:\nWhich knot?", "Which knot?"),
        (f"{FILES}Which knot?\n\nAnd why?", "Which knot?\n\nAnd why?"),
        (f"{BROWSER}{FILES}## My request:\n{OWN}", OWN),
        (f"{EDITOR}## My request for Codex:\nWhich knot?", "Which knot?"),
        (f"{EDITOR}", None),
        (f"{MARKED}## My request for Codex:\nWhich knot?", "Which knot?"),
        ("## My request for Codex:\nWhich knot?", "Which knot?"),
        (OWN, OWN),
        (f"# A plan\n\n{OWN}", f"# A plan\n\n{OWN}"),
        (f"{FILES}## The knot\nWhich?", "## The knot\nWhich?"),
        ("# A plan\n\nWhich knot?", "# A plan\n\nWhich knot?"),
    ],
)
def test_what_apps_put_around_a_prompt_is_no_part_of_it(
    tmp_path: Path, words: str, objective: str | None
) -> None:
    told = item("message", role="user", content=[{"type": "input_text", "text": words}])
    completed = {"type": "UserMessage", "content": [{"type": "text", "text": words}]}
    for line in (told, asked(words), event("item_completed", item=completed)):
        made = drafted("codex", rollout(tmp_path, meta(), started(1), line, answer("so")))
        assert [draft.objective for draft in made.drafts.values()] == [objective] * bool(objective)


PROMPT = "Tie <it> & tell.\n\nThen sleep."
SCHEDULE = "Automation: Knots\nAutomation ID: knots\nAutomation memory: $CODEX_HOME/knots.md\n"
WAKE = """<heartbeat>
  <automation_id>knots</automation_id>
  <current_time_iso>2026-05-01T09:00:00.000Z</current_time_iso>
  <instructions>
Tie &lt;it&gt; &amp; tell.

Then sleep.
  </instructions>
</heartbeat>"""


@pytest.mark.parametrize(
    "words",
    [f"{SCHEDULE}{PROMPT}", f"{SCHEDULE}Last run: never (0)\n\n{PROMPT}", WAKE],
)
def test_what_a_user_has_scheduled_is_a_prompt(tmp_path: Path, words: str) -> None:
    scheduled = meta(thread_source="automation"), started(1)
    wake = {"name": "automation_update", "namespace": "codex_app", "id": "fco_1", "output": words}
    done = event("item_completed", item={"type": "FunctionCallOutput", **wake})
    for line in (asked(words), item("function_call_output", **wake)):
        path = rollout(tmp_path, *scheduled, line, done, answer("so"))
        trace = drafted("codex", path).draft
        assert (trace.objective, transcript(trace)) == (PROMPT, [("thought", "so")])


def test_the_result_of_a_call_that_schedules_is_no_prompt(tmp_path: Path) -> None:
    call = item("function_call", name="automation_update", call_id="c", arguments="{}")
    back = item("function_call_output", name="automation_update", call_id="c", output=WAKE)
    trace = drafted("codex", rollout(tmp_path, meta(), started(1), asked("go"), call, back)).draft
    assert transcript(trace) == [used("automation_update"), ("observation", WAKE)]


@pytest.mark.parametrize(
    "words",
    [
        "<codex_delegation>\n<input>go</input>\n</codex_delegation>",
        "<recommended_plugins>\nx\n</recommended_plugins>\n# AGENTS.md instructions for /x\nBe so.",
    ],
)
def test_what_other_threads_and_plugins_say_is_no_prompt(tmp_path: Path, words: str) -> None:
    made = drafted("codex", rollout(tmp_path, meta(), started(1), asked(words), answer("so")))
    assert (made.drafts, made.skipped) == ({}, ["turn without a prompt"])


@pytest.mark.parametrize(
    "fields",
    [
        {"source": {"subagent": "review"}},
        {"source": {"internal": "memory_consolidation"}},
        {"thread_source": "subagent"},
        {"thread_source": "guardian_review"},
        {"thread_source": "memory_consolidation"},
    ],
)
def test_subagents_of_codex_are_passed_over(tmp_path: Path, fields: Line) -> None:
    lines = meta(**fields), started(1), asked("go"), answer("so")
    made = drafted("codex", rollout(tmp_path, *lines))
    assert (made.drafts, made.skipped) == ({}, ["session of a subagent"])


def packed(path: Path) -> Path:
    """The file, packed beside itself."""
    beside = path.with_name(f"{path.name}.zst")
    with pa.CompressedOutputStream(str(beside), "zstd") as sink:
        sink.write(path.read_bytes())
    return beside


def test_sessions_packed_with_zstd_are_read_unless_they_are_also_there_unpacked(
    tmp_path: Path,
) -> None:
    lines = meta(), started(1), asked("go"), answer("so")
    path = rollout(tmp_path / "in", *lines)
    packed(path)
    assert read("codex", tmp_path / "in", tmp_path / "out").files == 1
    path.unlink()
    made = converted("codex", tmp_path / "in")
    assert (made.rows, made.refused) == (imported(tmp_path / "out"), [])


def test_a_cut_or_endless_file_of_zstd_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = packed(rollout(tmp_path, meta(), started(1), asked("go" * 9_999), answer("so")))
    whole = beside.read_bytes()
    beside.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableError, match="it cannot be unpacked"):
        list(FORMATS["codex"].records(beside, []))
    beside.write_bytes(whole)
    monkeypatch.setattr("kp_batch.bounds.MEMBER_BYTES", 1 << 10)
    with pytest.raises(TooLargeError, match="it unpacks to more than"):
        list(FORMATS["codex"].records(beside, []))


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_foreign_and_empty_files_are_reported_and_a_file_without_prompts_is_passed_over(
    tmp_path: Path, name: str
) -> None:
    other = {"claude-code": "codex", "codex": "claude-code"}[name]
    KITS[other].write(tmp_path, [KITS[other].make("aa", at(0), 1)])
    (foreign,) = tmp_path.iterdir()
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    lines = tmp_path / "lines.jsonl"
    lines.write_text("12:00 INFO\n" * 300)
    for path in (foreign, empty, lines):
        with pytest.raises(UnreadableError):
            list(FORMATS[name].records(path, []))
    titled = {"type": "summary", "summary": "t", "leafUuid": "x"}
    path = write(tmp_path / "none.jsonl", titled if name == "claude-code" else meta())
    made = drafted(name, path)
    assert (made.drafts, made.skipped) == ({}, ["session without a prompt"])


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_sessions_are_known_by_what_they_hold(tmp_path: Path, name: str) -> None:
    KITS[name].write(tmp_path / "in", [KITS[name].make("aa", at(0), 1)])
    done = import_traces(None, [str(tmp_path / "in")], tmp_path / "out", ALWAYS)
    assert done.traces == 1
    (row,) = imported(tmp_path / "out").values()
    assert row["metadata"]["framework"] == name


def test_a_prompt_without_a_uuid_is_refused(tmp_path: Path) -> None:
    nameless = claude_file(tmp_path, {**user("p", "go"), "uuid": None}, says("a", text("so")))
    assert drafted("claude-code", nameless).reasons == [["missing_id"]]


def test_an_archive_of_turns_becomes_one_of_sessions_and_back(tmp_path: Path) -> None:
    path = claude_file(tmp_path / "in", user("p", "go"), says("a", text("so")))
    read("claude-code", tmp_path / "in", tmp_path / "out")
    path.unlink()
    lines = user("q", "on"), says("b", text("yes"))
    write(tmp_path / "in" / "t.jsonl", *({**line, "sessionId": "t"} for line in lines))
    for rules, ids in ((SESSION, ["s", "t"]), (ALWAYS, ["p", "q"])):
        read("claude-code", tmp_path / "in", tmp_path / "out", rules)
        assert sorted(imported(tmp_path / "out")) == [f"kp:trace:{each}" for each in ids]


def test_only_formats_of_sessions_take_the_rule(tmp_path: Path) -> None:
    claude_file(tmp_path, user("p", "go"))
    with pytest.raises(KpBatchError, match="otlp has no sessions of several turns"):
        read("otlp", tmp_path, tmp_path / "out", SESSION)
    read("claude-code", tmp_path, tmp_path / "out")
    with pytest.raises(KpBatchError, match="has traces of claude-code"):
        read("otlp", tmp_path, tmp_path / "out", SESSION)


def test_a_prompt_without_an_answer_is_refused(tmp_path: Path) -> None:
    ((_, refusal),) = converted("claude-code", claude_file(tmp_path, user("p", "go"))).refused
    assert (refusal.id, refusal.reasons) == ("kp:trace:p", ["no_steps"])


def turn_of(words: str, said: str, second: int | None, *, events: bool = True) -> list[Line]:
    """A turn without an id; with a second each line comes a second later, else all are at once."""
    lines = [asked(words), answer(said), event("task_complete")]
    lines = [event("task_started"), *lines] if events else lines[:2]
    times = [40 if second is None else second + place for place in range(len(lines))]
    return [{**line, "timestamp": at(time)} for line, time in zip(lines, times, strict=True)]


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("begins", [50, 40])  # also where a program asks the fork at once
def test_turns_without_ids_that_a_fork_replays_are_another_sessions(
    tmp_path: Path, begins: int, *, events: bool
) -> None:
    first, second = ("go", "so"), ("on", "yes")
    own = turn_of("and?", "no", begins, events=events)
    own[-1 - events]["timestamp"] = at(begins + 5)
    parent, again = meta(id="parent"), meta(id="fork", timestamp=at(41))
    replayed = [line for x in (first, second) for line in turn_of(*x, None, events=events)]
    fork = meta(id="fork", timestamp=at(40)), parent, *replayed, *own
    old = (line for x in (first, second) for line in turn_of(*x, 9, events=events))
    write(tmp_path / "rollout-1.jsonl", parent, *old)
    write(tmp_path / "rollout-2.jsonl", *fork)
    last = turn_of("then?", "yes", 55, events=events)
    write(
        tmp_path / "rollout-3.jsonl", meta(id="next", timestamp=at(41)), again, *fork[1:-4], *last
    )
    made = drafted("codex", tmp_path)
    assert {x.objective: transcript(x)[-1][1] for x in made.drafts.values()} == {
        "go": "so",
        "on": "yes",
        "and?": "no",
        "then?": "yes",
    }
    assert len(made.drafts) == 4
