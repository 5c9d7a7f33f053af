"""Builds traces: a part of what an import has read, with the records that are kept of its units.

A part is built by a function that shares nothing, so that many processes may do so at once; what it
gives is put into the store, and into the days, by one.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kp_batch import bounds
from kp_batch.bounds import VALUE_BYTES, parse, trace_budget, weight
from kp_batch.conversion.apply_rules import Row
from kp_batch.conversion.model import Format, Rejected, Skipped, SourceRecord
from kp_batch.conversion.rules import Rules
from kp_batch.imports.blocks import SIZE, Record, pack
from kp_batch.imports.days import Piece, day_of, pieces_of
from kp_batch.imports.merging import Merge, Merged
from kp_batch.imports.refusals import waits
from kp_batch.imports.spool import Run, place_of, records_of_part
from kp_batch.imports.store import Store, Unit
from kp_batch.imports.traces import ImportCounts, make_row
from kp_batch.steps.step import cut

WAITING, SKIPPED = "waiting", "skipped"  # states of units
_UNITS = 4_000  # that are looked up at once
_GROUP_BYTES = 8 << 20  # of records in memory at once, unless a unit has more


@dataclass(frozen=True)
class Work:
    """What the parts of an import have in common.

    Attributes:
        form: of the sources.
        rules: of the import.
        merge: how records come together.
        store: the path of the store.
        runs: what was read; see `spool`.
        void: the files that turned out to be damaged: none of their records counts.
        now: the time of the import.
        settled: until when the last record of a unit that waits must have come, so that no more is
            waited for.
    """

    form: Format
    rules: Rules
    merge: Merge
    store: Path
    runs: Sequence[Run]
    void: frozenset[int]
    now: str
    settled: str


_Stored = tuple[Unit, Sequence[int]]  # see `Built.units`
_Refused = tuple[int | None, Rejected]  # with the first file


@dataclass
class Built:
    """What became of a part.

    Attributes:
        blocks: of records to store, by places that `units` have in place of ids.
        units: rows of the store. Of one whose records before do not count any more, or lie in other
            blocks now, `blocks` has the new ones alone.
        gone: the units of which nothing is kept.
        left: the blocks that units have left.
        leaving: days, and units to be taken out of them.
        pieces: the traces by their days.
        refused: what has no day: of each the id, the first file, and why; in the order of ids.
        skipped: how many are no agent's, by kind.
        days: of all that was built, by ids; None of what has none.
        traces: how many have a day.
        counts: of these, and of those that the rules refuse.
        only_gone: what only forgotten files have: units, and digests.
        seen_again: see `Merged`; of all units.
    """

    blocks: list[bytes] = field(default_factory=list[bytes])
    units: list[_Stored] = field(default_factory=list[_Stored])
    gone: list[str] = field(default_factory=list[str])
    left: set[int] = field(default_factory=set[int])
    leaving: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    pieces: list[Piece] = field(default_factory=list[Piece])
    refused: list[_Refused] = field(default_factory=list[_Refused])
    skipped: Counter[str] = field(default_factory=Counter[str])
    days: dict[str, str | None] = field(default_factory=dict[str, str | None])
    traces: int = 0
    counts: ImportCounts = field(default_factory=ImportCounts)
    only_gone: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    seen_again: int = 0


def build_part(work: Work, part: int, touched: Sequence[str]) -> Built:
    """Build the units of a part.

    Args:
        work: of the import.
        part: its number.
        touched: units of it that are built whether anything new is read of them or not.
    """
    new: dict[str, list[Record]] = {name: [] for name in touched}
    for record in records_of_part(work.runs, part):
        if record.file not in work.void:
            new.setdefault(record.unit, []).append(record)
    builder = _Builder(work, {*touched})
    with Store(work.store) as store:
        for names in _groups(new, store):
            builder.build({name: new.pop(name) for name in names}, store)
    return builder.finish()


def _groups(new: Mapping[str, Sequence[Record]], store: Store) -> Iterator[Sequence[str]]:
    """Units that are built at once, in the order of blocks."""
    for names in cut(sorted(new, key=place_of), lambda _: 1, _UNITS):
        known = store.units(names)

        def size(name: str, known: Mapping[str, Unit] = known) -> int:
            unit = known.get(name)
            return sum(len(x.content or b"") for x in new[name]) + (unit.bytes if unit else 0)

        yield from cut(names, size, _GROUP_BYTES)


class _Builder:
    """Builds units, and packs their records."""

    def __init__(self, work: Work, touched: Collection[str]) -> None:
        self._work, self._touched, self._result = work, touched, Built()
        self._packing: list[Record] = []
        self._bytes = 0
        self._rows: list[Row] = []

    def build(self, new: Mapping[str, Sequence[Record]], store: Store) -> None:
        """Build units of new records, and those that the store has."""
        known, kept = store.units(new), dict[str, list[Record]]()
        for record in store.records(known.values()):
            kept.setdefault(record.unit, []).append(record)
        forgotten = self._work.merge.forgotten | store.forgotten(new)
        merge = replace(self._work.merge, forgotten=forgotten)
        for name, records in new.items():
            merged = merge.merged(name, kept.get(name, ()), records)
            self._take(name, known.get(name), merged)

    def finish(self) -> Built:
        """All that was built."""
        self._pack()
        self._result.pieces = pieces_of(self._rows)
        return self._result

    def _take(self, name: str, before: Unit | None, merged: Merged) -> None:
        result, number = self._result, self._work.merge.number
        result.seen_again += merged.seen_again
        result.only_gone += ((name, digest) for digest in sorted(merged.only_gone))
        has_new = merged.has_new(number)
        is_built = has_new or merged.is_replaced or name in self._touched
        is_kept = any(record.number == number for record in merged.records) or merged.is_replaced
        if not (is_built or is_kept):
            return
        unit = before or Unit(name)
        if is_built:
            unit = self._built(unit, merged, has_new=has_new)
        self._store(unit, merged, is_replaced=merged.is_replaced)

    def _built(self, unit: Unit, merged: Merged, *, has_new: bool) -> Unit:
        """A unit as it is once it is built."""
        result, work = self._result, self._work
        is_settled = bool(unit.day) or (
            unit.state == WAITING and not has_new and (unit.since or "") <= work.settled
        )
        made = self._made(unit.name, merged, is_settled=is_settled)
        day, state = None, None
        if isinstance(made, dict):
            self._rows.append(made)
            day = day_of(made)
            result.traces += 1
        elif isinstance(made, Rejected):
            file = merged.contents[0].file if merged.contents else None
            result.refused.append((file, made))
            state = WAITING if waits(made) and not is_settled else None
        elif made:
            result.skipped[made.kind] += 1
            state = None if made.stays else SKIPPED
        result.days[work.form.id_of(unit.name)] = day
        if unit.day and unit.day != day:
            result.leaving.append((unit.day, unit.name))
        is_as_before = state == unit.state and not has_new
        since = unit.since if is_as_before else work.now
        number = work.merge.number
        return unit._replace(number=number, day=day, state=state, since=since if state else None)

    def _made(
        self, name: str, merged: Merged, *, is_settled: bool
    ) -> Row | Rejected | Skipped | None:
        """The row of a trace, or why it has none; None if it has no records by now."""
        if not merged.contents:
            return None
        form, rules = self._work.form, self._work.rules
        chosen = rules.settled if is_settled else rules
        return make_row(form, chosen, name, _parsed(merged), self._result.counts)

    def _store(self, unit: Unit, merged: Merged, *, is_replaced: bool) -> None:
        """Put the records of a unit that are new into blocks; or all, where some count no more."""
        number, result = self._work.merge.number, self._result
        if is_replaced:
            result.left |= {*unit.blocks}
            unit = unit._replace(blocks=())
        if not (merged.records or unit.day or unit.state):
            result.gone.append(unit.name)
            return
        stored = [x for x in merged.records if is_replaced or x.number == number]
        unit = unit._replace(
            files=sorted({record.file for record in merged.records}),
            bytes=sum(len(record.content or b"") for record in merged.contents),
        )
        result.units.append((unit, self._placed([*merged.packed(stored)])))

    def _placed(self, records: Sequence[Record]) -> Sequence[int]:
        """Put records into blocks; returns the places of these."""
        places = list[int]()
        for record in records:
            size = len(record.content or b"")
            if self._packing and self._bytes + size > SIZE:
                self._pack()
            self._packing.append(record)
            self._bytes += size
            if (place := len(self._result.blocks)) not in places:
                places.append(place)
        return places

    def _pack(self) -> None:
        if self._packing:
            self._result.blocks.append(pack(self._packing))
        self._packing.clear()
        self._bytes = 0


def _parsed(merged: Merged) -> Iterator[SourceRecord]:
    """The records of a trace; nothing is parsed of one that is too large."""
    budget = trace_budget()
    if merged.is_too_large:
        budget.take(bounds.TRACE_BYTES + 1)
    for record in merged.contents:
        budget.take(VALUE_BYTES + weight(record.content or b""))
    for record in merged.contents:
        yield SourceRecord(record.unit, parse(record.content or b""), record.line)
