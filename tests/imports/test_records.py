"""What was read of files, joined by trace: what counts, what is written, what is built."""

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kp_batch.imports.join import Join, Outcome, Segments, TraceRecords
from kp_batch.imports.records import NewRecords, contents_only_in, count_missing, traces_of
from kp_batch.imports.waiting import WAITING, Waiting

from kp_batch import bounds
from kp_batch.conversion.model import SourceRecord
from kp_batch.imports import join

FileRecord = tuple[str, str, Any]  # a file, a trace, a content


class Nights:
    """Imports one after another; traces that begin with `web` are no agent's."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self.built: dict[str, list[Any]] = {}
        self.too_large: set[str] = set()
        self.days: dict[str, list[str]] = {}

    def night(
        self,
        file_records: Iterable[FileRecord] = (),
        *,
        touch: Sequence[str] = (),
        void: Collection[str] = (),
        all_anew: bool = False,
        **old: Any,
    ) -> tuple[Path, Path]:
        """Returns the segments that it writes: of traces, and of what is no agent's."""
        self._number += 1
        self.built, self.days = {}, {}
        new = NewRecords(self._folder / f"new{self._number}", self._number)
        for position, (file, trace, content) in enumerate(file_records):
            new.add(SourceRecord(trace, content, position + 1), file, position)
        for file in void:
            new.void(file)
        new.touch(pl.Series(touch, dtype=pl.String))
        waiting = Waiting(pl.DataFrame(schema=WAITING), datetime.now(UTC))
        folder = self._folder / f"{self._number}"
        join = Join(new, Segments(**old), waiting, folder, all_anew=all_anew)
        join.build(lambda traces: lambda: map(self._build, traces))
        return join.paths

    def _build(self, records: TraceRecords) -> Outcome:
        self.built[records.trace] = [json.loads(content) for content in records.contents]
        if records.is_too_large:
            self.too_large.add(records.trace)
        self.days[records.trace] = list(records.days)
        is_skipped = records.trace.startswith("web")
        return Outcome(None if is_skipped else f"2026-01-{self._number:02d}", is_skipped)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def rows(path: Path) -> list[tuple[Any, ...]]:
    columns = ["trace", "told", "file", "json"]
    return pl.read_parquet(path, glob=False).select(columns).rows()


def test_contents_come_in_the_order_in_which_they_were_first_read(nights: Nights) -> None:
    first, _ = nights.night([("b", "t", 1), ("a", "t", 2), ("a", "t", 1), ("b", "u", 3)])
    assert nights.built == {"t": [2, 1], "u": [3]}
    second, _ = nights.night([("c", "t", 2), ("c", "t", 4)], unchanged=[first])
    assert nights.built == {"t": [2, 1, 4]}
    assert nights.days == {"t": ["2026-01-01"]}
    assert rows(second) == [
        ("t", 2, "c", None),
        ("t", 2, "c", "4"),
        ("t", 2, None, None),
    ]


def test_what_traces_had_before_is_read_of_few_at_once(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = nights.night([("a", f"t{x}", x) for x in range(5)])
    read, rows_of = list[int](), join._rows_of  # noqa: SLF001

    def watched(traces: pl.Series, segments: Sequence[Path]) -> Iterable[pl.DataFrame]:
        read.append(len(traces))
        return rows_of(traces, segments)

    monkeypatch.setattr(join, "_TRACES", 2)
    monkeypatch.setattr(join, "_rows_of", watched)
    new = [("b", "t1", 7), ("b", "t1", 8), ("b", "t3", 9)]
    nights.night(new, unchanged=[first], touch=["t0", "t2", "t3", "t4"])
    assert nights.built == {"t0": [0], "t1": [1, 7, 8], "t2": [2], "t3": [3, 9], "t4": [4]}
    assert max(read) == 2


def test_what_is_known_already_builds_nothing(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1), ("a", "u", 2)])
    second, _ = nights.night([("a", "t", 1), ("moved", "u", 2)], unchanged=[first])
    assert nights.built == {}
    assert rows(second) == [("u", 2, "moved", None)]


def test_a_rewritten_segment_has_each_content_once(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1), ("a", "u", 2)])
    second, _ = nights.night([("b", "t", 1), ("b", "t", 3)], unchanged=[first])
    third, _ = nights.night([("b", "u", 4)], rewritten=[first, second])
    assert nights.built == {"u": [2, 4]}
    assert [row for row in rows(third) if row[2]] == [
        ("t", 1, "a", "1"),
        ("t", 2, "b", None),
        ("t", 2, "b", "3"),
        ("u", 1, "a", "2"),
        ("u", 3, "b", "4"),
    ]


def test_a_day_counts_until_the_trace_was_put_into_another(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1)])
    second, _ = nights.night([("a", "t", 2)], rewritten=[first])
    nights.night(touch=["t"], rewritten=[second])
    assert nights.days == {"t": ["2026-01-01", "2026-01-02"]}


def test_a_document_counts_as_it_was_written_last(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1), ("a", "t", 2), ("copy", "t", 1)])
    second, _ = nights.night([("a", "u", 3)], unchanged=[first], since={"a": 2}, touch=["t"])
    assert nights.built == {"t": [1], "u": [3]}
    third, _ = nights.night(
        [("a", "t", 2)], unchanged=[first, second], since={"a": 3}, touch=["t", "u"]
    )
    assert nights.built == {"t": [1, 2], "u": []}
    nights.night(all_anew=True, rewritten=[first, second, third], since={"a": 3})
    assert nights.built == {"t": [1, 2], "u": []}


def test_a_registry_counts_as_it_tells_last_of_each_trace(nights: Nights) -> None:
    registry = {"is_registry": True}
    first, _ = nights.night([("r", "t", 1), ("r", "u", 2)], **registry)
    second, _ = nights.night([("r", "t", 3)], unchanged=[first], **registry)
    assert nights.built == {"t": [3]}  # and u stays
    third, _ = nights.night([("r", "t", 1)], unchanged=[first, second], **registry)
    assert nights.built == {"t": [1]}
    nights.night([("r", "t", 1), ("r", "u", 2)], unchanged=[first, second, third], **registry)
    assert nights.built == {}


def test_what_is_no_agents_is_kept_apart_and_comes_back(nights: Nights) -> None:
    kept, aside = nights.night([("a", "web", 1), ("a", "t", 2)])
    assert {row[0] for row in rows(kept)} == {"t"}
    assert {row[0] for row in rows(aside)} == {"web"}
    _, again = nights.night([("b", "web", 1)], unchanged=[kept], skipped=[aside])
    assert nights.built == {}
    assert rows(again)[0] == ("web", 1, "a", "1")  # with all that was read of it
    nights.night([("b", "web", 3)], unchanged=[kept], skipped=[aside, again])
    assert nights.built == {"web": [1, 3]}


def test_what_was_read_of_a_damaged_file_is_void(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1), ("b", "t", 2)], void=["b"])
    assert nights.built == {"t": [1]}
    assert len(rows(first)) == 2


def test_what_is_forgotten_stays_out(nights: Nights) -> None:
    first, _ = nights.night([("a", "t", 1), ("a", "u", 2), ("b", "u", 3), ("b", "v", 4)])
    alone = contents_only_in(["b"], [first])
    assert alone["trace"].to_list() == ["u", "v"]
    gone = pl.concat([pl.DataFrame({"trace": ["t"]}), alone], how="diagonal")
    second, _ = nights.night(touch=["t", "u", "v"], rewritten=[first], forgotten=gone)
    assert nights.built == {"t": [], "u": [2], "v": []}
    assert [row for row in rows(second) if row[2]] == [("u", 1, "a", "2")]
    nights.night([("c", "t", 9), ("c", "u", 3)], unchanged=[second], forgotten=gone)
    assert nights.built == {}


@pytest.mark.parametrize("names", [["x/a"], ["x"], ["x/"]])
def test_a_folder_stands_for_the_files_below_it(nights: Nights, names: list[str]) -> None:
    first, _ = nights.night([("x/a", "t", 1), ("xx/a", "u", 2), ("x/a", "v", 3), ("y", "v", 3)])
    assert contents_only_in(names, [first])["trace"].to_list() == ["t"]


def test_what_a_registry_has_deleted_is_counted(nights: Nights, tmp_path: Path) -> None:
    first, _ = nights.night([("r", "t", 1), ("r", "u", 2), ("other", "v", 3)])
    now = NewRecords(tmp_path / "now", 2)
    now.add(SourceRecord("t", 1), "r", 0)
    assert count_missing([first], now.records.runs(), ["r"]) == 1
    assert count_missing([], now.records.runs(), ["r"]) == 0


@pytest.mark.parametrize("letter", ["x", "ж"])
def test_of_a_trace_that_is_too_large_not_all_is_held_and_nothing_is_built(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    monkeypatch.setattr(bounds, "TRACE_BYTES", 100)
    size = 30 // len(letter.encode())
    texts = [("a", "t", letter * size + f"{number:02}") for number in range(100)]
    kept, _ = nights.night([*texts, ("a", "u", 1)])
    assert (nights.built, nights.too_large) == ({"t": [], "u": [1]}, {"t"})
    stored = pl.read_parquet(kept).filter(pl.col("trace") == "t", pl.col("json").is_not_null())
    assert len(stored) == 3


def test_traces_are_named_once(nights: Nights) -> None:
    first, aside = nights.night([("a", "t", 1), ("b", "t", 2), ("b", "web", 3)])
    assert traces_of([first, aside]).to_list() == ["t", "web"]
    assert traces_of([first], pl.col("file") == "b").to_list() == ["t"]
    assert traces_of([]).to_list() == []


def _nested(levels: int) -> Any:
    return [] if levels == 0 else [_nested(levels - 1)]


@pytest.mark.parametrize(
    "content",
    [
        {"é": "\u2028\x00\x7f", "b": [1e22, 5e-324, -0.0, 10**40, None, True]},
        [float("inf"), -float("inf")],
        {"half of a surrogate": "\ud800"},
        _nested(400),
    ],
    ids=["any", "infinite", "surrogate", "deep"],
)
def test_contents_are_kept_as_they_are(tmp_path: Path, content: Any) -> None:
    nights = Nights(tmp_path)
    nights.night([("file", "trace", content)])
    assert repr(nights.built["trace"]) == repr([content])


def test_what_is_nested_too_deep_is_kept_as_too_large(tmp_path: Path) -> None:
    content: list[Any] = []
    for _ in range(100_000):
        content = [content]
    nights = Nights(tmp_path)
    nights.night([("file", "trace", content)])
    assert nights.built["trace"] == [None]
    while content:  # level by level: freeing it at once would be as deep
        content = content[0]
