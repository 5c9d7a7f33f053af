"""What is lawful where several use one warehouse: some order of their commands explains it all.

The order is that of the rows in `runs`, each of which has its command's note. The commands are done
again in it, one after another, in a new warehouse; what was read has to be what stands after one of
them, and after none that had not begun, nor before one that had ended.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import kp_batch as kp
from tests.laws.actors import READS, REMOVES, WRITES, Command, Event, do, scored

_REFUSED = {
    "rollback": (
        "cannot be published again",
        "cannot be published again yet",
        "there is no previous",
    ),
    "vacuum": ("a kp-batch forget did not finish",),
}


def assert_linear(
    folder: Path, on: str, firsts: Sequence[Command], events: Sequence[Event]
) -> None:
    """What was read and done of one warehouse is explained by the order of its runs."""
    of_this = [event for event in events if event.command.on == on]
    by_note = {event.command.note: event for event in of_this}
    notes = READS["notes"](kp.Warehouse(folder / on))
    assert len(notes) == len({*notes}), notes
    assert notes[: len(firsts)] == [first.note for first in firsts]
    writers = [by_note[note] for note in notes[len(firsts) :]]
    assert all(event.command.does in WRITES for event in writers), notes
    _assert_in_time(writers)
    _assert_ended_well(of_this, notes)
    asked = {question for event in of_this if (question := _question(event))}
    commands = [*firsts, *(event.command for event in writers)]
    states = [*_states(folder, on, commands, asked)][len(firsts) - 1 :]
    for event in of_this:
        if question := _question(event):
            _assert_read(event, question, states, writers, of_this)


def assert_scored(folder: Path, events: Iterable[Event]) -> None:
    """What `kp.score` gave beside others is what it gives alone."""
    for event in events:
        if event.command.does == "scored" and event.how:
            assert event.how in {"done", "interrupted"}, event
            assert event.how != "done" or event.value == scored(event.command, folder), event


def _question(event: Event) -> str | None:
    does = event.command.does
    return "scores" if does in {"pinned", "again"} else does if does in READS else None


def _states(
    folder: Path, on: str, commands: Iterable[Command], asked: Iterable[str]
) -> Iterable[dict[str, Any]]:
    """The answers after each command, in a warehouse that nobody else uses."""
    wh = kp.Warehouse(folder / f"{on}, one by one")
    for command in commands:
        do(wh, command, folder)
        yield {name: READS[name](wh) for name in asked}


def _assert_in_time(writers: Sequence[Event]) -> None:
    """No command comes before one that had ended when it began."""
    for number, later in enumerate(writers):
        for earlier in writers[:number]:
            assert not later.is_before(earlier), (earlier, later)


def _assert_ended_well(events: Sequence[Event], notes: Sequence[str]) -> None:
    """What is done is published, and what is refused is not; only a second writer is refused."""
    for event in events:
        does, has_row = event.command.does, event.command.note in notes
        others = [each for each in events if each is not event and event.overlaps(each)]
        match event.how:
            case "done":
                published = does in WRITES and event.value not in {None, "nothing_to_do"}
                by_command_line = does in WRITES and event.value is None
                assert has_row == published or by_command_line, event
            case "busy":
                assert any(each.command.does in _TAKE_TURNS for each in others), event
                assert does in _TAKE_TURNS, event
                assert not event.command.how.get("wait"), event
                assert not has_row, event
            case "failed" if does in _REFUSED:
                assert any(text in event.value for text in _REFUSED[does]), event
            case "failed":
                assert _question(event), event
                assert any(each.command.does in REMOVES for each in others), event
            case _:  # it was killed, or interrupted
                assert event.how in {"", "interrupted"}, event


_TAKE_TURNS = (*WRITES, "preview", "vacuum")


def _assert_read(
    event: Event,
    question: str,
    states: Sequence[dict[str, Any]],
    writers: Sequence[Event],
    events: Sequence[Event],
) -> None:
    """What was read stood, as a whole, at some moment of the reading."""
    if event.how != "done":
        return
    until = event
    if event.command.does == "again":  # it was pinned then
        [until] = [each for each in events if f"{each.command.note} again" == event.command.note]
        assert until.value is None or event.value == until.value, (until, event)
    at_least = max((n for n, each in enumerate(writers, 1) if each.is_before(event)), default=0)
    at_most = max((n for n, each in enumerate(writers, 1) if not until.is_before(each)), default=0)
    lawful = [state[question] for state in states[at_least : at_most + 1]]
    assert event.value in lawful, (event, at_least, at_most, lawful)
