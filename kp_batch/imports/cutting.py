"""Cuts a session into the records of its traces: its turns, or, by the rules, all of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from kp_batch.bounds import TooLargeError, parse
from kp_batch.conversion.conversation.sessions import FORGOTTEN
from kp_batch.conversion.model import Format, InTurn, ReadItem, Refused, Skipped, SourceRecord
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.blocks import Record, session_name, unit_of
from kp_batch.imports.merging import BLANK, FIRST, Merged, forgotten_of
from kp_batch.imports.reading import content_of, fault_of
from kp_batch.imports.store import RecordStore
from kp_batch.text import one_line


@dataclass
class Cut:
    """The result of cutting a session.

    Attributes:
        parts: records of its traces; each content begins with the session and a NUL.
        traces: traces that have records.
        refused: refused items, each with its file.
        skipped: items that are only counted, by kind, each with its file.
        forgotten: digests of the lines of forgotten turns.
    """

    parts: list[Record] = field(default_factory=list[Record])
    traces: Sequence[str] = ()
    refused: list[tuple[int, Refused]] = field(default_factory=list[tuple[int, Refused]])
    skipped: Counter[str] = field(default_factory=Counter[str])
    forgotten: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])


@dataclass(frozen=True)
class Cutter:
    """Cuts sessions into the records of their traces.

    Attributes:
        form: a format that has `turns`.
        rules: rules of the import.
        store: contains what is forgotten.
        forgotten: further forgotten units and digests.
    """

    form: Format
    rules: Rules
    store: RecordStore
    forgotten: AbstractSet[tuple[str, bytes | None]]

    def cut(self, unit: str, merged: Merged) -> Cut:
        """Cut a session; blank the lines of forgotten turns in its records."""
        forgotten = list[tuple[str, bytes]]()
        if self.store.has_forgotten_ids:
            # What was forgotten as a turn is not part of a session, and vice versa.
            other = "turn" if self.rules.trace == "session" else "session"
            files = self._files(unit, merged, self.rules.model_copy(update={"trace": other}))
            forgotten += _blank(merged, files, self._gone(files))
        files = self._files(unit, merged, self.rules)
        gone = self._gone(files)
        names = {name for file in files for name in file.traces}
        result = Cut(traces=sorted(names - gone))
        for file in files:
            result.parts += file.parts(unit, gone)
            result.refused += ((file.id, item) for item in file.items if isinstance(item, Refused))
            result.skipped.update(item.kind for item in file.items if isinstance(item, Skipped))
        result.forgotten = [*forgotten, *_blank(merged, files, gone)]
        return result

    def _files(self, unit: str, merged: Merged, rules: Rules) -> Sequence["_File"]:
        """Return the files of a session, cut by rules."""
        files: dict[int, _File] = {}
        for record in sorted(merged.records, key=lambda record: record.position):
            files.setdefault(record.file, _File(record.file)).records.append(record)
        for file in files.values():
            file.cut(self.form, rules, session_name(unit))
        return [*files.values()]

    def _gone(self, files: Sequence["_File"]) -> AbstractSet[str]:
        """Return the names of the files' forgotten traces."""
        names = {name for file in files for name in file.traces}
        forgotten = self.forgotten | self.store.forgotten(names)
        return {FORGOTTEN, *(name for name, digest in forgotten if digest is None)}


def _blank(
    merged: Merged, files: Sequence["_File"], gone: AbstractSet[str]
) -> Sequence[tuple[str, bytes]]:
    """Blank the lines of some traces in a session's records; return their digests."""
    lines = {x: first for file in files for x, first in file.lines_of(gone)}
    if not lines:
        return ()
    blanks = {x: x._replace(content=FIRST if lines[x] else BLANK) for x in lines}
    merged.records = [blanks.get(record, record) for record in merged.records]
    merged.is_replaced = True
    return [forgotten_of(x, is_first=first) for x, first in lines.items()]


def _name_of(trace: str) -> str:
    return trace if trace == FORGOTTEN else unit_of(trace)


class _Lines:
    """The lines of a file, parsed again in each iteration."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        for record in self._records:
            yield record.line or 0, parse(record.content or BLANK)


@dataclass
class _File:
    """A file of a session.

    Attributes:
        id: id in the store.
        records: its lines.
        items: what the lines become, with the places of the lines.
        turns: turns of the lines that belong to one.
    """

    id: int
    records: list[Record] = field(default_factory=list[Record])
    items: list[ReadItem] = field(default_factory=list[ReadItem])
    _places: list[int] = field(default_factory=list[int])
    _turns: list[InTurn] = field(default_factory=list[InTurn])

    def cut(self, form: Format, rules: Rules, name: str) -> None:
        """Cut the lines into items; a damaged file has none."""
        assert form.turns  # noqa: S101 (it has sessions)
        places = dict[int, int]()
        try:
            for item in form.turns(name, _Lines(self.records), rules):
                place = len(self._turns)
                if place < len(self.records):
                    places[self.records[place].line or 0] = place
                if isinstance(item, InTurn):
                    self._turns.append(item)
                else:
                    self.items.append(item)
                    line = item.line if isinstance(item, SourceRecord) else None
                    self._places.append(places.get(line or 0, place))
        except (TooLargeError, UnreadableError) as error:
            self._refuse(fault_of(error))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = one_line(f"{type(error).__name__}: {error}")
            self._refuse(Refused(["unreadable_file"], f"it is not understood: {reason}"))

    def _refuse(self, fault: Refused) -> None:
        self.items.clear()
        self.items.append(fault)
        self._places = [0]

    @property
    def traces(self) -> set[str]:
        """Return the names of the traces with records in this file."""
        return {_name_of(x.trace) for x in self.items if isinstance(x, SourceRecord)}

    def parts(self, unit: str, gone: AbstractSet[str]) -> Iterator[Record]:
        """Yield the records of all traces except some."""
        for position, (item, place) in enumerate(zip(self.items, self._places, strict=True)):
            if isinstance(item, SourceRecord) and (trace := _name_of(item.trace)) not in gone:
                number = self.records[place].number
                content = unit.encode() + b"\0" + content_of(item)
                yield Record(trace, number, self.id, position, item.line, content)

    def lines_of(self, traces: AbstractSet[str]) -> Iterator[tuple[Record, bool]]:
        """Yield the lines of some traces, and whether each is the first of its trace."""
        of_turns = {
            x
            for x, each in enumerate(self._turns)
            if each.turn and _name_of(each.turn.trace) in traces
        }
        firsts: dict[str, int] = {}
        for item, place in zip(self.items, self._places, strict=True):
            if isinstance(item, SourceRecord) and _name_of(item.trace) in traces:
                firsts.setdefault(item.trace, place)
                of_turns.add(place)
        for place in sorted(of_turns):
            if self.records[place].content not in (BLANK, FIRST):
                yield self.records[place], place in firsts.values()
