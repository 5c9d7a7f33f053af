"""Sessions, their forks and forks of forks, in any order of files and nights: each turn is one."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.conversion.formats import FORMATS
from kp_batch.imports.importing import import_traces
from tests.support.formats.sessions import (
    Line,
    answer,
    asked,
    at,
    event,
    item,
    meta,
    pi,
    pi_call,
    pi_header,
    pi_result,
    says,
    text,
    user,
    uuid_at,
    write,
)
from tests.support.imports.drafting import ALWAYS, transcript
from tests.support.imports.importing import imported

Drawn = tuple[str, dict[str, list[Line]], dict[str, int]]
# How a session begins: anew, as a fork of the SDK's, as one of the command line's (which keeps
# ids), or resumed as by 1.0 (which keeps them, too, and says nothing of it).
_KINDS = ("sdk", "anew", "sdk", "command", "sdk", "resumed")


def _turn(name: str, session: str, parent: str | None, calls: int) -> list[Line]:
    """A turn: a prompt, calls with their results, and an answer."""
    lines = [user(name, f"do {name}", 1)]
    for place in range(calls):
        call = {"type": "tool_use", "id": f"{name}c{place}", "name": "Read", "input": {}}
        lines.append(says(f"{name}u{place}", call, second=2 + 2 * place))
        result = {"type": "tool_result", "tool_use_id": f"{name}c{place}", "content": f"{place}"}
        lines.append(user(f"{name}r{place}", [result], 3 + 2 * place))
    lines.append(says(f"{name}a", text(f"did {name}"), second=9))
    parents = [parent, *(line["uuid"] for line in lines)]
    return [
        {**line, "sessionId": session, "parentUuid": above}
        for line, above in zip(lines, parents, strict=False)
    ]


def _copied(lines: Sequence[Line], session: str, kind: str) -> list[Line]:
    """The lines as a session has them that goes on with them; the SDK's with new ids and a time."""
    if kind == "resumed":
        return [{**line, "sessionId": session} for line in lines]
    origins = [
        {**line, "forkedFrom": {"sessionId": line["sessionId"], "messageUuid": line["uuid"]}}
        for line in lines
    ]
    copies = [{**line, "sessionId": session} for line in origins]
    if kind == "sdk" and copies:
        new = {line["uuid"]: f"{session}-{line['uuid']}" for line in copies}
        for line in copies:
            line["uuid"], line["parentUuid"] = new[line["uuid"]], new.get(line["parentUuid"])
        copies[-1]["timestamp"] = at(50)
    return copies


@st.composite
def _claude_code(draw: st.DrawFn) -> Drawn:
    """The lines of sessions by name, and the calls of each turn; some are rewound to a turn."""
    sessions: dict[str, list[Line]] = {}
    turns: dict[str, int] = {}
    for number in range(draw(st.integers(3, 5))):
        name, kind = f"s{number}", draw(st.sampled_from(_KINDS)) if number else "anew"
        lines: list[Line] = []
        if kind != "anew":
            other = sessions[draw(st.sampled_from([f"s{number - 1}", *sessions]))]
            ends = [place for place, line in enumerate(other, 1) if line["uuid"].endswith("a")]
            lines = _copied(other[: draw(st.sampled_from(ends))], name, kind)
        for place in range(draw(st.integers(not lines, 2))):
            turn = f"{name}t{place}"
            turns[turn] = draw(st.integers(0, 2))
            above = [None, *(x["uuid"] for x in lines if x["uuid"].endswith("a"))]
            lines += _turn(turn, name, draw(st.sampled_from(above)), turns[turn])
        sessions[name] = lines
    return "claude-code", sessions, turns


def _codex_turn(name: str, second: int, calls: int, **ids: str) -> list[Line]:
    lines = [event("task_started", second, **ids), asked(f"do {name}", second)]
    for place in range(calls):
        call = f"{name}c{place}"
        lines.append(item("function_call", second, name="Read", arguments="{}", call_id=call))
        lines.append(item("function_call_output", second, call_id=call, output=f"{place}"))
    return [*lines, answer(f"did {name}", second + 1), event("task_complete", second + 1, **ids)]


@st.composite
def _codex(draw: st.DrawFn) -> Drawn:
    """Likewise; a fork copies its parent's file up to the end of a turn, with the time of then."""
    sessions: dict[str, list[Line]] = {}
    turns: dict[str, int] = {}
    has_ids = draw(st.booleans())
    for begun in range(0, 10 * draw(st.integers(3, 5)), 10):
        id_, copied = uuid_at(begun), list[Line]()
        if sessions and draw(st.booleans()):
            other = sessions[draw(st.sampled_from([*sessions]))]
            copied = other[: draw(st.sampled_from(_ends(other)))]
        lines = [meta(id=id_, timestamp=at(begun)), *copied]
        lines = [{**line, "timestamp": at(begun)} for line in lines]
        for second in range(begun + 2, begun + 2 + 3 * draw(st.integers(not copied, 2)), 3):
            turn = uuid_at(second) if has_ids else f"{id_}/{len(_ends(lines)) + 1}"
            turns[turn] = draw(st.integers(0, 2))
            ids = {"turn_id": turn} if has_ids else {}
            lines += _codex_turn(turn, second, turns[turn], **ids)
        sessions[id_] = lines
    return "codex", sessions, turns


def _ends(lines: Sequence[Line]) -> list[int]:
    return [n for n, line in enumerate(lines, 1) if line["payload"].get("type") == "task_complete"]


@st.composite
def _pi(draw: st.DrawFn) -> Drawn:
    """Likewise; a fork has what its parent has up to the end of a turn, in any branch."""
    sessions: dict[str, list[Line]] = {}
    turns: dict[str, int] = {}
    for begun in range(0, 10 * draw(st.integers(3, 5)), 10):
        name, lines = f"s{begun}", list[Line]()
        if sessions and draw(st.booleans()):
            other = sessions[draw(st.sampled_from([*sessions]))][1:]
            lines = other[: draw(st.sampled_from(_answers(other)))]
        more = {"parentSession": "/x.jsonl"} if lines else {}
        for place in range(draw(st.integers(not lines, 2))):
            turn = f"{name}t{place}"
            turns[turn] = draw(st.integers(0, 2))
            above = [None, *(lines[end - 1]["id"] for end in _answers(lines))]
            lines = [*lines, *_pi_turn(turn, draw(st.sampled_from(above)), turns[turn], begun + 1)]
        sessions[name] = [pi_header(begun, id=name, **more), *lines]
    return "pi", sessions, turns


def _pi_turn(name: str, parent: str | None, calls: int, second: int) -> list[Line]:
    told: list[Line] = [{"role": "user", "content": f"do {name}"}]
    for place in range(calls):
        call = pi_call(f"{name}c{place}", "Read", {})
        told.append({"role": "assistant", "content": [call]})
        told.append(pi_result(f"{name}c{place}", f"{place}"))
    told.append({"role": "assistant", "content": f"did {name}"})
    ids = [parent, *(f"{name} {place}" for place in range(len(told)))]
    return [
        pi(f"{name} {place}", message, ids[place], second) for place, message in enumerate(told)
    ]


def _answers(lines: Sequence[Line]) -> list[int]:
    return [n for n, line in enumerate(lines, 1) if "did" in str(line["message"]["content"])]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.one_of(_claude_code(), _codex(), _pi()), st.data())
def test_each_turn_counts_once(drawn: Drawn, data: st.DataObject) -> None:
    form, sessions, turns = drawn
    with TemporaryDirectory() as name:
        folder, archive = Path(name, "in"), Path(name, "out")
        order = data.draw(st.permutations(sorted(sessions)))
        for file, session in enumerate(order):
            write(folder / f"{file}.jsonl", *sessions[session])
            if session == order[-1] or data.draw(st.booleans()):  # a night ends
                import_traces(FORMATS[form], [str(folder)], archive, ALWAYS)
        rows = imported(archive).values()
    assert sorted(row["task"]["objective"] for row in rows) == sorted(f"do {x}" for x in turns)
    for row in rows:
        turn = row["task"]["objective"].removeprefix("do ")
        run = [("tool_call", "Read", "{}"), ("observation", "0")]
        run += [("tool_call", "Read", "{}"), ("observation", "1")]
        assert transcript(row) == [*run[: 2 * turns[turn]], ("thought", f"did {turn}")]
        ids = (
            {f"kp:trace:{turn}"}
            if form != "pi"
            else {f"kp:trace:{turn} 0/{at(second)}" for second in range(50)}
        )
        assert row["id"] in ids
