"""The files of days, against a plain sort; and where a trace is while it moves."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.conversion.apply_rules import Row
from kp_batch.conversion.model import SourceRecord
from kp_batch.conversion.rules import load_rules
from kp_batch.imports import days
from kp_batch.imports.days import Piece, pieces_of, write_days
from kp_batch.imports.destination import Archive
from kp_batch.imports.traces import ImportCounts, make_row
from tests.support.imports.importing import RULES, spans_format

SPANS, RULES_OF_SPANS = spans_format(), load_rules(None, RULES)
Traces = Mapping[str, tuple[int, int, int]]  # by id: the day, the hour, and the length of a text


def row(id_: str, at: tuple[int, int, int]) -> Row:
    """A trace as imports have it."""
    day, hour, length = at
    said = {"trace": id_, "at": f"2026-03-0{day}T0{hour}:00:00.000Z", "say": "x" * length}
    name = SPANS.trace_of(id_)
    made = make_row(SPANS, RULES_OF_SPANS, name, [SourceRecord(name, said)], ImportCounts())
    assert isinstance(made, dict)
    return made


def day_of(at: tuple[int, int, int]) -> str:
    return f"2026-03-0{at[0]}"


class Change:
    """A change from some traces to others; see `days.DayChanges`."""

    def __init__(self, before: Traces, after: Traces) -> None:
        self._built = after
        # Pieces come from several parts, of which none knows the others.
        parts = [[*after.items()][start::2] for start in range(2)]
        self._pieces = [x for part in parts for x in pieces_of([row(*each) for each in part])]
        self._leaving = [
            (day_of(at), id_, id_ in after)
            for id_, at in before.items()
            if id_ not in after or day_of(after[id_]) != day_of(at)
        ]

    def days(self) -> list[str]:
        return [*{piece.day for piece in self._pieces}]

    def ids(self, day: str) -> list[str]:
        return [id_ for id_, at in self._built.items() if day_of(at) == day]

    def pieces(self, day: str) -> Iterator[Piece]:
        return iter(sorted(piece for piece in self._pieces if piece.day == day))

    def leaving(self) -> list[tuple[str, str, bool]]:
        return self._leaving


class Watched(Archive):
    """An archive that is looked at after each write."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def put(self, name: str, write: Callable[[Path], int]) -> bool:
        is_changed = super().put(name, write)
        type(self).look()
        return is_changed


def ids_of(folder: Path) -> list[str]:
    tables = [pl.read_parquet(x, columns=["id"]) for x in folder.glob("*.parquet")]
    return [id_ for table in tables for id_ in table["id"]]


def in_order(traces: Traces) -> dict[str, list[str]]:
    """The ids of each day, by their times and then their ids."""
    ordered = sorted(traces, key=lambda id_: (*traces[id_][:2], id_))
    all_days = sorted({day_of(at) for at in traces.values()})
    return {day: [x for x in ordered if day_of(traces[x]) == day] for day in all_days}


def written(folder: Path) -> dict[str, list[str]]:
    return {x.stem: pl.read_parquet(x)["id"].to_list() for x in sorted(folder.glob("*.parquet"))}


def contents(folder: Path) -> dict[str, bytes]:
    return {x.name: x.read_bytes() for x in folder.glob("*.parquet")}


AT = st.tuples(st.integers(1, 3), st.integers(0, 2), st.sampled_from([0, 9, 3_000]))
IDS = st.sampled_from([f"kp:trace:{letter}" for letter in "abcdéf"])


@pytest.mark.slow
@settings(max_examples=60)
@given(before=st.dictionaries(IDS, AT), changed=st.dictionaries(IDS, st.none() | AT))
def test_days_are_what_a_plain_sort_makes_and_no_trace_is_missing_meanwhile(
    before: Traces, changed: Mapping[str, tuple[int, int, int] | None]
) -> None:
    after = {id_: at for id_, at in {**before, **changed}.items() if at}
    built = {id_: at for id_, at in changed.items() if at}
    touched = {id_: at for id_, at in before.items() if id_ in changed}
    stay: Collection[str] = before.keys() & after.keys()
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as name:
        patch.setattr(days, "PIECE_ROWS", 2)
        patch.setattr(days, "ROW_GROUP_ROWS", 2)
        patch.setattr(days, "ROW_GROUP_BYTES", 2_000)
        archive, folder = Watched("archive", Path(name)), Path(name)
        write_days(archive, Change({}, before), {})
        assert written(folder) == in_order(before)
        patch.setattr(Watched, "look", lambda: missing.append({*stay} - {*ids_of(folder)}))
        missing = list[set[str]]()
        files = contents(folder)
        number = write_days(archive, Change(touched, built), {})
        assert written(folder) == in_order(after)
        now = contents(folder)
        assert number == len({name for name, _ in files.items() ^ now.items()})
        fresh = folder / "fresh"
        fresh.mkdir()
        write_days(Archive("fresh", fresh), Change({}, after), {})
        assert now == contents(fresh)
    assert not any(missing)
