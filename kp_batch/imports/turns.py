"""Builds all units that an import touches, then the traces of those that are sessions.

Several sessions may contain the same turn: one session may continue another. So all sessions are
cut first, in their parts. Then each trace is built from the records that all of them have.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kp_batch import bounds
from kp_batch.imports.blocks import Record, is_session
from kp_batch.imports.building import Builder, Built, Work, build_part
from kp_batch.imports.change import ArchiveChange
from kp_batch.imports.cutting import Cutter
from kp_batch.imports.merging import Merged
from kp_batch.imports.spool import SortedRun, Spool, part_of, place_of, records_of_part
from kp_batch.imports.store import RecordStore, Unit
from kp_batch.imports.workers import Workers
from kp_batch.steps.step import cut

_GROUP_BYTES = 8 << 20


def build_all(
    change: ArchiveChange, workers: Workers, work: Work, touched: Iterable[str]
) -> set[tuple[str, bytes]]:
    """Build the units that have new records, and those to rebuild for other reasons.

    Returns:
        Units and digests of contents that only forgotten files had.
    """
    names = {*touched}
    is_cut = bool(work.form.turns)
    units = _by_part(filter(is_session, names) if is_cut else names, work.parts)
    begun = [workers.submit(build_part, work, x, part) for x, part in enumerate(units)]
    only_gone, sessions, runs = set[tuple[str, bytes]](), set[str](), list[SortedRun]()
    names = {name for name in names if is_cut and not is_session(name)}
    for answer in begun:
        change.take(built := answer())
        only_gone |= {*built.only_gone}
        sessions |= {*built.cut}
        names |= built.changed
        runs += built.turns
    if is_cut:
        turns = replace(work, runs=runs, void=frozenset())
        begun = [
            workers.submit(build_turns, turns, x, part, frozenset(sessions))
            for x, part in enumerate(_by_part(names, work.parts))
        ]
        for answer in begun:
            change.take(answer())
    return only_gone


def _by_part(names: Iterable[str], parts: int) -> Sequence[Sequence[str]]:
    by_part: list[list[str]] = [[] for _ in range(parts)]
    for name in names:
        by_part[part_of(name, parts)].append(name)
    return by_part


def build_turns(work: Work, part: int, touched: Sequence[str], sessions: frozenset[str]) -> Built:
    """Build the traces of sessions.

    Args:
        work: work of the import; its runs are the parts of these sessions.
        part: number of the part.
        touched: traces of the part that may no longer have records.
        sessions: sessions that were built; for other sessions, the store counts.
    """
    new: dict[str, list[Record]] = {name: [] for name in touched}
    for record in records_of_part(work.runs, part):
        new.setdefault(record.unit, []).append(record)
    builder, lost = Builder(work, (), Spool(work.folder / "none", 1)), list[str]()
    with RecordStore(work.store) as store:
        ordered = sorted(new, key=place_of)
        for names in cut(
            ordered, lambda x: 100 + sum(len(y.content or b"") for y in new[x]), _GROUP_BYTES
        ):
            known = store.units(names)
            others = {each for unit in known.values() for each in unit.links} - sessions
            for record in _kept(work, store, others):
                if record.unit in known:
                    new[record.unit].append(record)
            lost += (name for name in names if not new[name])
            for name in names:
                _build(builder, known.get(name) or Unit(name), new.pop(name))
    built = builder.finish()
    if work.merge.gone and work.rules.trace == "turn":  # a copy would bring them back
        built.forgotten += ((name, None) for name in lost)
    return built


def _kept(work: Work, store: RecordStore, names: Iterable[str]) -> Iterator[Record]:
    """Yield the records of traces that come from sessions in the store."""
    cutter = Cutter(work.form, work.rules, store, work.merge.forgotten)
    for unit in store.units(names).values():
        merged = work.merge.merged(unit.name, store.records([unit]), ())
        yield from cutter.cut(unit.name, merged).parts


def _build(builder: Builder, unit: Unit, parts: Sequence[Record]) -> None:
    contents, size, sessions = dict[bytes, Record](), 0, set[str]()
    for part in sorted(parts):
        session, _, content = (part.content or b"").partition(b"\0")
        sessions.add(session.decode())
        if content not in contents:
            contents[content] = part._replace(content=content)
            size += len(content)
    merged = Merged(contents=[*contents.values()], is_too_large=size > bounds.TRACE_BYTES)
    built = builder.built(unit, merged, has_new=True)
    builder.keep(built._replace(links=sorted(sessions)), ())
