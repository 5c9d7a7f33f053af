"""Scored traces read again: each location with its trace, or why that is not read."""

from pathlib import Path

import pytest

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.ingest import reread as module
from kp_batch.ingest.reread import TraceLocation, reread, reread_batches
from kp_batch.scoring.facts import with_facts
from tests.support.make.archives import trace, write_jsonl

NOWHERE = 2**63 - 1  # beyond all rows
TRACES = [trace(id=name, objective=f"fix {name}") for name in "abcd"]


@pytest.fixture
def locations(tmp_path: Path) -> list[TraceLocation]:
    """Of traces that are as they were, changed, gone from their file, or in no file."""
    facts = with_facts(rows_from_objects("", enumerate(TRACES)), reasons())
    hashes = dict(facts.select("trace_id", "content_hash").iter_rows())
    path = write_jsonl(tmp_path / "a.jsonl", [*TRACES[:3], None])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 of no use PAR1")
    return [
        TraceLocation(str(path), 0, "a", hashes["a"]),
        TraceLocation(str(path), 1, "b", "another content"),
        TraceLocation(str(path), 2, "c", hashes["c"]),
        TraceLocation(str(path), 3, "d", hashes["d"]),
        TraceLocation(str(path), NOWHERE, "d", hashes["d"]),
        TraceLocation(str(tmp_path / "b.parquet"), 0, "b", hashes["b"]),
        TraceLocation(str(tmp_path / "c.jsonl"), 0, "c", hashes["c"]),
    ]


def outcomes(locations: list[TraceLocation], most_bytes: int | None = None) -> list[str]:
    results = list(reread(locations, most_bytes=most_bytes))
    assert [location for location, _ in results] == locations
    return [read if isinstance(read, str) else read["id"] for _, read in results]


def test_each_location_has_its_trace_or_why_it_is_not_read(locations: list[TraceLocation]) -> None:
    assert outcomes(locations) == ["a", "changed", "c", "changed", "changed", "unreadable", "gone"]
    assert outcomes(locations, most_bytes=1) == [*["large"] * 6, "gone"]


def test_batches_are_of_few_rows_and_letters(
    locations: list[TraceLocation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 2)
    assert [len(batch) for batch in reread_batches(locations)] == [2, 2, 2, 1]
    monkeypatch.setattr(module, "BATCH_CHARS", 1)
    assert [len(batch) for batch in reread_batches(locations)] == [1, 1, 1, 1, 2, 1]
    assert outcomes(locations) == ["a", "changed", "c", "changed", "changed", "unreadable", "gone"]
