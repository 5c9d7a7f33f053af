"""Sessions, their forks and forks of forks, in any order of files and nights: each turn is one."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.conversion.formats import FORMATS
from kp_batch.imports.run import import_traces
from tests.support.drafting import ALWAYS, transcript
from tests.support.formats.sessions import Line, at, says, text, user, write
from tests.support.importing import imported

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
def _sessions(draw: st.DrawFn) -> tuple[dict[str, list[Line]], dict[str, int]]:
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
    return sessions, turns


@pytest.mark.slow
@settings(max_examples=20)
@given(_sessions(), st.data())
def test_each_turn_counts_once(
    drawn: tuple[dict[str, list[Line]], dict[str, int]], data: st.DataObject
) -> None:
    sessions, turns = drawn
    with TemporaryDirectory() as name:
        folder, archive = Path(name, "in"), Path(name, "out")
        order = data.draw(st.permutations(sorted(sessions)))
        for file, session in enumerate(order):
            write(folder / f"{file}.jsonl", *sessions[session])
            if session == order[-1] or data.draw(st.booleans()):  # a night ends
                import_traces(FORMATS["claude-code"], [str(folder)], archive, ALWAYS)
        rows = imported(archive).values()
    assert sorted(row["task"]["objective"] for row in rows) == sorted(f"do {x}" for x in turns)
    for row in rows:
        turn = row["task"]["objective"].removeprefix("do ")
        run = [("tool_call", "Read", "{}"), ("observation", "0")]
        run += [("tool_call", "Read", "{}"), ("observation", "1")]
        assert transcript(row) == [*run[: 2 * turns[turn]], ("thought", f"did {turn}")]
        assert row["id"] == f"kp:trace:{turn}"
