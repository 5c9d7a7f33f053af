"""Builds units: a part of the records that an import has read, with those that the store has.

A function builds a part and shares nothing, so many processes can build at once. One process puts
the results into the store and into the days.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kp_batch import bounds
from kp_batch.bounds import TOO_LARGE, VALUE_BYTES, parse, trace_budget, weight
from kp_batch.conversion.apply_rules import Row
from kp_batch.conversion.model import Format, Refused, Skipped, SourceRecord
from kp_batch.conversion.rules import Rules
from kp_batch.imports.blocks import SIZE, Record, is_session, pack
from kp_batch.imports.cutting import Cutter
from kp_batch.imports.days import Piece, day_of, pieces_of
from kp_batch.imports.merging import Merge, Merged
from kp_batch.imports.refusals import waits
from kp_batch.imports.spool import SortedRun, Spool, place_of, records_of_part
from kp_batch.imports.store import RecordStore, Unit
from kp_batch.imports.traces import ImportCounts, make_row
from kp_batch.steps.step import cut

WAITING, SKIPPED = "waiting", "skipped"  # states of units
_UNITS = 4_000  # looked up at once
_GROUP_BYTES = 8 << 20  # of records in memory at once, unless a unit has more


@dataclass(frozen=True)
class Work:
    """What the parts of an import have in common.

    Attributes:
        form: format of the sources.
        rules: rules of the import.
        merge: merges kept and new records.
        number: number of the import in the store, from then on.
        store: path of the store.
        runs: what was read, see `spool`; or the turns of the sessions that were built.
        void: the damaged files, whose records do not count.
        now: time of the import.
        overdue_since: a waiting unit whose last record came before this time waits no longer.
        parts: how many there are.
        folder: folder for the turns of sessions.
    """

    form: Format
    rules: Rules
    merge: Merge
    number: int
    store: Path
    runs: Sequence[SortedRun]
    void: frozenset[int]
    now: str
    overdue_since: str
    parts: int
    folder: Path


_Stored = tuple[Unit, Sequence[int]]  # see `Built.units`
_Refused = tuple[int, str, Refused]  # the first file, the id of what is refused, and why


@dataclass
class Built:
    """The result of a part.

    Attributes:
        blocks: blocks of records to store.
        units: rows of the store, each with the places in `blocks` of its new ones.
        gone: units that no longer have records.
        left: blocks that units no longer use.
        leaving: days, and units to take out of them.
        pieces: traces by day.
        refused: what could not become a trace.
        skipped: how many are not an agent's, by kind.
        days: days of everything built, by id; None if it has no day.
        traces: how many have a day.
        counts: counts of these traces, and of those that the rules refuse.
        only_gone: units and digests that only forgotten files have.
        forgotten: likewise; also lines of forgotten turns, and turns that only forgotten files
            had.
        seen_again: see `Merged`; summed over all units.
        turns: turns of sessions; see `turns`.
        cut: the sessions that were built.
        changed: the traces that these sessions had before.
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
    forgotten: list[tuple[str, bytes | None]] = field(
        default_factory=list[tuple[str, bytes | None]]
    )
    seen_again: int = 0
    turns: Sequence[SortedRun] = ()
    cut: list[str] = field(default_factory=list[str])
    changed: set[str] = field(default_factory=set[str])


def build_part(work: Work, part: int, touched: Sequence[str]) -> Built:
    """Build the units of a part.

    Args:
        work: work of the import.
        part: number of the part.
        touched: units to build even if nothing new of them was read.
    """
    new: dict[str, list[Record]] = {name: [] for name in touched}
    for record in records_of_part(work.runs, part):
        if record.file not in work.void:
            new.setdefault(record.unit, []).append(record)
    builder = Builder(work, {*touched}, Spool(work.folder / f"{part}", work.parts))
    with RecordStore(work.store) as store:
        for names in _groups(new, store):
            builder.build({name: new.pop(name) for name in names}, store)
    return builder.finish()


def _groups(new: Mapping[str, Sequence[Record]], store: RecordStore) -> Iterator[Sequence[str]]:
    """Group units that are built at once, in the order of blocks."""
    for names in cut(sorted(new, key=place_of), lambda _: 1, _UNITS):
        sizes = {name: sum(len(x.content or b"") for x in new[name]) for name in names}
        for name, unit in store.units(names).items():
            sizes[name] += unit.bytes
        yield from cut(names, sizes.__getitem__, _GROUP_BYTES)


class Builder:
    """Builds units, and packs their records into blocks."""

    def __init__(self, work: Work, touched: Collection[str], turns: Spool) -> None:
        self._work, self._touched, self._turns = work, touched, turns
        self._result = Built()
        self._packing: list[Record] = []
        self._bytes = 0
        self._rows: list[Row] = []

    def build(self, new: Mapping[str, Sequence[Record]], store: RecordStore) -> None:
        """Build units from new records and from those in the store."""
        known, kept = store.units(new), dict[str, list[Record]]()
        for record in store.records(known.values()):
            kept.setdefault(record.unit, []).append(record)
        forgotten = self._work.merge.forgotten | store.forgotten(new)
        merge = replace(self._work.merge, forgotten=forgotten)
        for name, records in new.items():
            merged = merge.merged(name, kept.get(name, ()), records)
            self._take(known.get(name) or Unit(name), merged, store)

    def finish(self) -> Built:
        """Return everything built."""
        self._pack()
        self._result.pieces = pieces_of(self._rows)
        self._result.turns = self._turns.runs()
        return self._result

    def _take(self, unit: Unit, merged: Merged, store: RecordStore) -> None:
        result, number = self._result, self._work.merge.number
        result.seen_again += merged.seen_again
        # This is kept per file, not per session: it stays until the files are read again.
        result.refused += ((file, "", _too_large_session()) for file in merged.left_out)
        if self._lacks_records(unit):
            merged.is_too_large = True
        result.only_gone += ((unit.name, digest) for digest in sorted(merged.only_gone))
        is_added_to = any(record.number >= number for record in merged.records)
        has_new = is_added_to if is_session(unit.name) else merged.has_new(number)
        is_built = has_new or merged.is_replaced or unit.name in self._touched
        if is_built and is_session(unit.name):
            unit = self._cut(unit, merged, store)
        elif is_built:
            unit = self.built(unit, merged, has_new=has_new)
        elif not is_added_to:
            return
        self._store(unit, merged)

    def _lacks_records(self, unit: Unit) -> bool:
        """Whether a trace was too large, and has not been read again as a whole."""
        merge = self._work.merge
        is_read = merge.source != "stream" and {*unit.files} <= {*merge.read}
        return unit.bytes > bounds.TRACE_BYTES and not is_read

    def _cut(self, unit: Unit, merged: Merged, store: RecordStore) -> Unit:
        """Return a session after spooling its turns."""
        result, work = self._result, self._work
        found = Cutter(work.form, work.rules, store, work.merge.forgotten).cut(unit.name, merged)
        for record in found.parts:
            self._turns.add(record)
        result.days[unit.name] = None
        result.cut.append(unit.name)
        result.changed |= {*unit.links}
        result.refused += ((file, unit.name, refused) for file, refused in found.refused)
        result.skipped += found.skipped
        result.forgotten += found.forgotten
        return unit._replace(number=work.number, links=found.traces)

    def built(self, unit: Unit, merged: Merged, *, has_new: bool) -> Unit:
        """Return the unit of a trace after building the trace."""
        result, work = self._result, self._work
        is_final = bool(unit.day) or (
            unit.state == WAITING and not has_new and (unit.since or "") <= work.overdue_since
        )
        made = self._made(unit.name, merged, is_final=is_final)
        id_, day, state = work.form.id_of(unit.name), None, None
        if isinstance(made, dict):
            self._rows.append(made)
            day = day_of(made)
            result.traces += 1
        elif isinstance(made, Refused):
            result.refused.append((merged.contents[0].file, id_, made))
            state = WAITING if waits(made) and not is_final else None
        elif made:
            result.skipped[made.kind] += 1
            state = None if made.keeps_records else SKIPPED
        result.days[id_] = day
        if unit.day and unit.day != day:
            result.leaving.append((unit.day, unit.name))
        is_as_before = state == unit.state and not has_new
        since = unit.since if is_as_before else work.now
        since = since if state else None
        return unit._replace(number=work.number, day=day, state=state, since=since)

    def _made(self, name: str, merged: Merged, *, is_final: bool) -> Row | Refused | Skipped | None:
        """Return a trace's row, or why it has none; None if it no longer has records."""
        if not merged.contents:
            return None
        form, rules = self._work.form, self._work.rules
        chosen = rules.without_waiting if is_final else rules
        return make_row(form, chosen, name, _parsed(merged), self._result.counts)

    def _store(self, unit: Unit, merged: Merged) -> None:
        """Put a unit's new records into blocks; all of them, if some no longer count."""
        number, result = self._work.merge.number, self._result
        if merged.is_replaced:
            result.left |= {*unit.blocks}
            unit = unit._replace(blocks=())
        stored = [x for x in merged.records if merged.is_replaced or x.number >= number]
        size = sum(len(record.content or b"") for record in merged.contents)
        unit = unit._replace(
            files=sorted({record.file for record in merged.records}),
            bytes=max(size, unit.bytes) if merged.is_too_large else size,
        )
        self.keep(unit, self._placed(merged.packed(stored)))

    def keep(self, unit: Unit, places: Sequence[int]) -> None:
        """Store a unit, unless nothing of it is kept."""
        if places or unit.blocks or unit.links or unit.day or unit.state:
            self._result.units.append((unit, places))
        else:
            self._result.gone.append(unit.name)

    def _placed(self, records: Sequence[Record]) -> Sequence[int]:
        """Put records into blocks; return their places."""
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


def _too_large_session() -> Refused:
    limit = f"{bounds.TRACE_BYTES >> 20} MiB"
    message = f"its session takes more than {limit}, and stays as it was before"
    return Refused([TOO_LARGE], message)


def _parsed(merged: Merged) -> Iterator[SourceRecord]:
    """Yield a trace's parsed records; of a trace that is too large, nothing is parsed."""
    budget = trace_budget()
    budget.take(bounds.TRACE_BYTES + 1 if merged.is_too_large else 0)
    for record in merged.contents:
        budget.take(VALUE_BYTES + weight(record.content or b""))
    for record in merged.contents:
        yield SourceRecord(record.unit, parse(record.content or b""), record.line)
