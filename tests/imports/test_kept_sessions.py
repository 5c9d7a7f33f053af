"""What an archive keeps of sessions: their lines, of which turns are cut again and again."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch import bounds
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, InTurn, Lines, ReadItem, SourceRecord
from kp_batch.conversion.rules import Rules
from kp_batch.imports import importing
from kp_batch.imports.blocks import unpack
from kp_batch.imports.forgetting import forget
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.formats.sessions import (
    Line,
    answer,
    asked,
    claude,
    event,
    item,
    meta,
    says,
    started,
    text,
    user,
    uuid_at,
    write,
)
from tests.support.imports.drafting import ALWAYS, always, transcript
from tests.support.imports.importing import imported

SESSION = always(trace="session")


def claude_turn(name: str, second: int, above: str | None = None) -> list[Line]:
    prompt = {**user(name, f"ask {name}", second), "parentUuid": above}
    reply = says(f"{name}-a", text(f"tell {name}"), second=second + 1)
    return [prompt, {**reply, "parentUuid": name}]


def codex_turn(name: str, second: int) -> list[Line]:
    end = event("task_complete", second + 2, turn_id=uuid_at(second))
    return [started(second), asked(f"ask {name}", second), answer(f"tell {name}", second + 1), end]


def old_codex_turn(name: str, second: int) -> list[Line]:
    message = item(
        "message", second, role="user", content=[{"type": "input_text", "text": f"ask {name}"}]
    )
    return [message, answer(f"tell {name}", second + 1)]


TURNS = {
    "claude-code": lambda: [
        *claude_turn("x", 1),
        *claude_turn("y", 5, "x-a"),
        *claude_turn("z", 9, "y-a"),
    ],
    "codex": lambda: [meta(), *codex_turn("x", 1), *codex_turn("y", 5), *codex_turn("z", 9)],
    "old codex": lambda: [
        meta(),
        *old_codex_turn("x", 1),
        *old_codex_turn("y", 5),
        *old_codex_turn("z", 9),
    ],
}


def form_of(kind: str) -> Format:
    return FORMATS[kind.removeprefix("old ")]


def night(form: Format, source: Path, archive: Path, rules: Rules = ALWAYS) -> Imported:
    return import_traces(form, [str(source)], archive, rules)


def contents(archive: Path) -> dict[str, bytes]:
    """The days, and the lists of what is refused and what waits."""
    files = [*archive.glob("*.parquet"), *archive.glob("_*.jsonl")]
    return {path.name: path.read_bytes() for path in files}


def words(archive: Path) -> dict[str, list[object]]:
    rows = imported(archive).values()
    return {row["task"]["objective"]: [x[1] for x in transcript(row)] for row in rows}


def is_anywhere(archive: Path, word: str) -> bool:
    """Whether a text is in any file of an archive, or in what is packed there."""
    files = [path.read_bytes() for path in archive.rglob("*") if path.is_file()]
    with sqlite3.connect(archive / "_import" / "records.sqlite") as store:
        blocks = [
            x.content for (y,) in store.execute("SELECT records FROM blocks") for x in unpack(y)
        ]
    rows = str(imported(archive)).encode()
    return any(word.encode() in each for each in [*files, *filter(None, blocks), rows])


def older(form: Format) -> Format:
    """The format as an older importer had it: it cut sessions into other traces."""

    def turns(name: str, lines: Lines, rules: Rules) -> Iterator[ReadItem | InTurn]:
        assert form.turns
        for each in form.turns(name, lines, rules):
            if isinstance(each, SourceRecord):
                yield SourceRecord(f"old-{each.trace}", each.payload, each.line)
            else:
                yield each

    return replace(form, turns=turns)


@pytest.mark.parametrize("kind", TURNS)
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_newer_importer_makes_what_a_fresh_import_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, is_gone: bool
) -> None:
    form, source = form_of(kind), tmp_path / "in"
    lines = TURNS[kind]()
    write(source / "a.jsonl", *lines[:-2])
    night(older(form), source, tmp_path / "out")
    write(source / "a.jsonl", *lines)
    night(older(form), source, tmp_path / "out")
    night(form, source, tmp_path / "fresh")
    if is_gone:
        (source / "a.jsonl").unlink()
        write(source / "b.jsonl", {})
        night(form, source, tmp_path / "fresh")
    monkeypatch.setattr(importing, "IMPORTER", importing.IMPORTER + 1)
    night(form, source, tmp_path / "out")
    assert set(words(tmp_path / "out")) == {"ask x", "ask y", "ask z"}
    monkeypatch.setattr(importing, "IMPORTER", importing.IMPORTER + 1)
    night(form, source, tmp_path / "fresh")
    assert words(tmp_path / "out") == words(tmp_path / "fresh")
    assert imported(tmp_path / "out").keys() == imported(tmp_path / "fresh").keys()


@pytest.mark.parametrize("kind", TURNS)
def test_other_rules_cut_what_is_kept(tmp_path: Path, kind: str) -> None:
    form, source = form_of(kind), tmp_path / "in"
    write(source / "a.jsonl", *TURNS[kind]())
    night(form, source, tmp_path / "turns")
    night(form, source, tmp_path / "session", SESSION)
    turns, session = contents(tmp_path / "turns"), contents(tmp_path / "session")
    shutil.rmtree(source)
    write(source / "b.txt", {})
    write(
        source / "b.jsonl",
        meta() if "codex" in kind else {**user("w", "wait", 20), "sessionId": "t"},
    )
    for archive, rules, expected in (("turns", SESSION, session), ("session", ALWAYS, turns)):
        night(form, source, tmp_path / archive, rules)
        made = {name: row for name, row in contents(tmp_path / archive).items() if "2026" in name}
        assert made == {name: row for name, row in expected.items() if "2026" in name}


@pytest.mark.parametrize("kind", TURNS)
def test_a_turn_that_is_forgotten_is_nowhere_and_stays_out(tmp_path: Path, kind: str) -> None:
    form, source, archive = form_of(kind), tmp_path / "in", tmp_path / "out"
    lines = TURNS[kind]()
    write(source / "a.jsonl", *lines)
    night(form, source, archive)
    rows = imported(archive)
    (gone,) = (id_ for id_, row in rows.items() if row["task"]["objective"] == "ask y")
    others = {id_: row for id_, row in rows.items() if id_ != gone}
    assert forget(archive, ids=[gone]).traces == 1
    assert imported(archive) == others
    for word in ("ask y", "tell y"):
        assert not is_anywhere(archive, word)
    write(source / "a.jsonl", *lines, *([] if "codex" in kind else claude_turn("v", 20, "z-a")))
    write(source / "copy.jsonl", *lines)
    for rules in (ALWAYS, always(confidence={"always": 0.9})):
        night(form, source, archive, rules)
        assert words(archive).keys() - {"ask v"} == {"ask x", "ask z"}
        assert words(archive)["ask x"] == ["tell x"]
        assert words(archive)["ask z"] == ["tell z"]
        for word in ("ask y", "tell y"):
            assert not is_anywhere(archive, word)


@pytest.mark.parametrize("kind", TURNS)
@pytest.mark.parametrize("rules", [(ALWAYS, SESSION), (SESSION, ALWAYS)])
def test_what_is_forgotten_by_other_rules_stays_out(
    tmp_path: Path, kind: str, rules: tuple[Rules, Rules]
) -> None:
    form, source, archive = form_of(kind), tmp_path / "in", tmp_path / "out"
    write(source / "a.jsonl", *TURNS[kind]())
    night(form, source, archive, rules[0])
    rows = imported(archive)
    forget(archive, ids=[next(x for x, row in rows.items() if "ask x" in str(row))])
    shutil.copy(source / "a.jsonl", source / "b.jsonl")
    night(form, source, archive, rules[1])
    assert not is_anywhere(archive, "ask x")
    assert not is_anywhere(archive, "tell x")
    assert len(imported(archive)) == (rules[0] is ALWAYS)


def test_what_a_forgotten_turn_goes_on_with_stays_out(tmp_path: Path) -> None:
    source, archive = tmp_path / "in", tmp_path / "out"
    lines = claude_turn("x", 1)
    write(source / "a.jsonl", *lines)
    night(FORMATS["claude-code"], source, archive)
    forget(archive, ids=["kp:trace:x"])
    more = {**says("x-b", text("latecomer"), second=4), "parentUuid": "x-a"}
    write(source / "a.jsonl", *lines, more, *claude_turn("y", 9, "x-b"))
    night(FORMATS["claude-code"], source, archive)
    assert words(archive) == {"ask y": ["tell y"]}
    assert not is_anywhere(archive, "latecomer")


@pytest.mark.parametrize("kind", TURNS)
def test_a_session_that_gets_too_large_stays_as_it_was_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    form, source, archive = form_of(kind), tmp_path / "in", tmp_path / "out"
    lines = TURNS[kind]()
    write(source / "a.jsonl", *lines[:-2])
    total = night(form, source, archive).unresolved["refused"]
    before = imported(archive)
    more = {**lines[-1], "timestamp": "x" * 100_000}
    write(source / "a.jsonl", *lines, more)
    with monkeypatch.context() as patch:
        patch.setattr(bounds, "TRACE_BYTES", 100_000)
        assert night(form, source, archive).refused == {"too_large": 1}
        other = always(confidence={"always": 0.9})
        for rules in (other, ALWAYS):
            assert night(form, source, archive, rules).unresolved["refused"] == total + 1
        assert imported(archive) == before
    write(source / "a.jsonl", *lines)
    assert night(form, source, archive).unresolved["refused"] == 0
    assert set(words(archive)) == {"ask x", "ask y", "ask z"}


@pytest.mark.parametrize("kind", TURNS)
def test_a_first_line_that_comes_later_is_the_first(tmp_path: Path, kind: str) -> None:
    form, source, archive = form_of(kind), tmp_path / "in", tmp_path / "out"
    lines = TURNS[kind]()
    write(source / "a.jsonl", *lines[1:])
    night(form, source, archive)
    write(source / "a.jsonl", *lines)
    assert night(form, source, archive).unresolved["refused"] == 0
    night(form, source, tmp_path / "fresh")
    assert imported(archive) == imported(tmp_path / "fresh")


@pytest.mark.parametrize("kind", TURNS)
def test_no_copy_of_a_file_that_is_forgotten_brings_its_turns_back(
    tmp_path: Path, kind: str
) -> None:
    form, source, archive = form_of(kind), tmp_path / "in", tmp_path / "out"
    lines = TURNS[kind]()
    write(source / "a.jsonl", *lines)
    write(source / "b.jsonl", *lines[: len(lines) // 3 + ("codex" in kind)])
    night(form, source, archive)
    forget(archive, files=[str(source / "a.jsonl")])
    shutil.copy(source / "a.jsonl", source / "c.jsonl")
    night(form, source, archive)
    assert words(archive) == {"ask x": ["tell x"]}
    assert not is_anywhere(archive, "ask y")


def repeated(kind: str) -> Sequence[Line]:
    """A turn in which the same line stands several times, as of a tool that says the same."""
    if kind == "codex":
        call = item("function_call", 2, name="Read", arguments="{}", call_id="c")
        back = item("function_call_output", 2, call_id="c", output="same")
        return [meta(), started(1), asked("ask", 1), call, back, call, back, answer("tell", 3)]
    use: dict[str, Any] = {"type": "tool_use", "name": "Read", "input": {}}
    result: dict[str, Any] = {"type": "tool_result", "content": "same"}
    lines = [user("p", "ask", 1)]
    for number in range(2):
        lines.append(claude("assistant", f"u{number}", [{**use, "id": f"c{number}"}], 2))
        lines.append(user(f"r{number}", [{**result, "tool_use_id": f"c{number}"}], 2))
    return [*lines, says("a", text("tell"), second=3)]


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_lines_that_a_file_repeats_count_each_time(tmp_path: Path, kind: str) -> None:
    lines = repeated(kind)
    for end in range(3, len(lines) + 1):  # a night for each line
        write(tmp_path / "in" / "a.jsonl", *lines[:end])
        night(FORMATS[kind], tmp_path / "in", tmp_path / "out")
    night(FORMATS[kind], tmp_path / "in", tmp_path / "fresh")
    assert imported(tmp_path / "out") == imported(tmp_path / "fresh")
    (row,) = imported(tmp_path / "out").values()
    assert [step["content"] for step in row["steps"]].count("same") == 2


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_a_line_of_an_unknown_kind_is_counted(tmp_path: Path, kind: str) -> None:
    unknown = {
        "type": "hologram",
        "payload": {},
        "sessionId": "s",
        "timestamp": "2026-05-01T09:00:30Z",
    }
    write(tmp_path / "in" / "a.jsonl", *TURNS[kind](), unknown)
    done = night(FORMATS[kind], tmp_path / "in", tmp_path / "out")
    assert done.skipped == {"line of an unknown kind: hologram": 1}
