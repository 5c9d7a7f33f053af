"""Scored traces read again: each place with its trace, or why that is not read."""

from pathlib import Path

import pytest

from kp_batch.archive.formats.json import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.facts import with_facts
from kp_batch.ingest import reread as module
from kp_batch.ingest.reread import Place, reread, reread_batches
from tests.archives import trace, write_jsonl

NOWHERE = 2**63 - 1  # beyond all rows
TRACES = [trace(id=name, objective=f"fix {name}") for name in "abcd"]


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    """Of traces that are as they were, changed, gone from their file, or in no file."""
    facts = with_facts(rows_from_objects("", enumerate(TRACES)), reasons())
    hashes = dict(facts.select("trace_id", "content_hash").iter_rows())
    path = write_jsonl(tmp_path / "a.jsonl", [*TRACES[:3], None])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 of no use PAR1")
    return [
        Place(str(path), 0, "a", hashes["a"]),
        Place(str(path), 1, "b", "another content"),
        Place(str(path), 2, "c", hashes["c"]),
        Place(str(path), 3, "d", hashes["d"]),
        Place(str(path), NOWHERE, "d", hashes["d"]),
        Place(str(tmp_path / "b.parquet"), 0, "b", hashes["b"]),
        Place(str(tmp_path / "c.jsonl"), 0, "c", hashes["c"]),
    ]


def told(places: list[Place], most_bytes: int | None = None) -> list[str]:
    found = list(reread(places, most_bytes=most_bytes))
    assert [place for place, _ in found] == places
    return [read if isinstance(read, str) else read["id"] for _, read in found]


def test_each_place_has_its_trace_or_why_it_is_not_read(places: list[Place]) -> None:
    assert told(places) == ["a", "changed", "c", "changed", "changed", "unreadable", "gone"]
    assert told(places, most_bytes=1) == [*["large"] * 6, "gone"]


def test_batches_are_of_few_rows_and_letters(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", 2)
    assert [len(batch) for batch in reread_batches(places)] == [2, 2, 2, 1]
    monkeypatch.setattr(module, "_LETTERS", 1)
    assert [len(batch) for batch in reread_batches(places)] == [1, 1, 1, 1, 2, 1]
    assert told(places) == ["a", "changed", "c", "changed", "changed", "unreadable", "gone"]
