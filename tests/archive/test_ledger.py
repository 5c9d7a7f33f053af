"""What became of each file of an archive, and that no content is read twice."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.ingest.staged_rows
from kp_batch.archive.folders import IS_WAREHOUSE
from kp_batch.archive.sources import SourceFile
from kp_batch.archive.validation import reasons
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.log import show_on_stderr, show_only_new_warnings
from kp_batch.operations.preview import plan
from kp_batch.operations.vacuum import vacuum
from kp_batch.operations.verify import verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.summary import Summary, as_text
from kp_batch.scoring.facts import FACTS_VERSION
from kp_batch.storage.store import TRAFFIC, store_at
from kp_batch.warehouse.reader import connect
from tests.support.archives import trace, write_damaged, write_jsonl, write_parquet
from tests.support.buckets import fill
from tests.support.commands import restored_log

pytestmark = pytest.mark.slow

CONTENT = "SELECT * EXCLUDE (run_id, source_file) FROM scores ORDER BY trace_id"
ENTRY = "status, size, mtime_ns, rows, reasons, message"


class Night:
    """An archive, its warehouse, and which files each run over it looked into."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive, self.warehouse = folder / "archive", folder / "warehouse"
        self.clock = 10**18
        self.read = noted(monkeypatch, "read_rows_with_raw")
        self.hashed = noted(monkeypatch, "content_digest")

    def write(self, name: str, *ids: str, **changes: Any) -> Path:
        """Write a file of traces long ago."""
        traces = [trace(id=trace_id, **changes) for trace_id in ids]
        return self.aged(write_jsonl(self.archive / name, traces))

    def aged(self, path: Path) -> Path:
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))
        return path

    def config(self, **changes: Any) -> RescoreConfig:
        usual = {"archive": (str(self.archive),), "warehouse": self.warehouse, "embedder": "none"}
        return RescoreConfig(**{**usual, **changes})

    def run(self, **changes: Any) -> Summary:
        self.read.clear()
        self.hashed.clear()
        return rescore_archive(self.config(**changes))

    def differing(self) -> dict[str, list[str]]:
        """The names of the files that a plan names, by how they differ."""
        file_changes = asdict(plan(self.config()).files)
        return {
            how: [Path(path).name for path in paths] for how, paths in file_changes.items() if paths
        }

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with connect(self.warehouse) as connection:
            return connection.execute(query).fetchall()

    def entry(self, name: str) -> dict[str, Any]:
        """A row of the view `files`."""
        query = f"SELECT {ENTRY} FROM files WHERE source_file = ?"
        with connect(self.warehouse) as connection:
            [row] = connection.execute(query, [str(self.archive / name)]).fetchall()
        return dict(zip(ENTRY.split(", "), row, strict=True))

    def statuses(self) -> dict[str, str]:
        rows = self.ask("SELECT source_file, status FROM files")
        return {Path(path).name: status for path, status in rows}

    def scored_in(self, trace_id: str) -> str:
        """The name of the file that a trace was scored from."""
        [(path,)] = self.ask(f"SELECT source_file FROM scores WHERE trace_id = '{trace_id}'")
        return Path(path).name

    @property
    def ids(self) -> list[str]:
        return [trace_id for (trace_id,) in self.ask("SELECT trace_id FROM scores ORDER BY ALL")]


def noted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """The names of the files that a function of ingest is called with from now on."""
    function, names = getattr(kp_batch.ingest.stage, name), []

    def noting(source: SourceFile, *rest: Any) -> Any:
        names.append(Path(source.path).name)
        return function(source, *rest)

    monkeypatch.setattr(kp_batch.ingest.stage, name, noting)
    return names


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Two files, not looked at yet."""
    night = Night(tmp_path, monkeypatch)
    night.write("a.jsonl", "a1", "a2")
    night.write("b.jsonl", "b1", "b2", "b3")
    return night


def test_each_file_is_read_once(night: Night) -> None:
    assert night.differing() == {"new": ["a.jsonl", "b.jsonl"]}
    night.run()
    assert night.read == night.hashed == ["a.jsonl", "b.jsonl"]
    assert night.differing() == {}
    assert night.run().run_id is None
    assert night.read == night.hashed == []


def test_a_new_file_alone_is_read(night: Night) -> None:
    night.run()
    night.write("c.jsonl", "c1")
    assert night.differing() == {"new": ["c.jsonl"]}
    assert night.run().counts.accepted == 6
    assert night.read == night.hashed == ["c.jsonl"]
    assert night.ids == ["a1", "a2", "b1", "b2", "b3", "c1"]


def test_a_changed_file_alone_is_read(night: Night) -> None:
    night.run()
    night.write("a.jsonl", "a2", "a3")
    assert night.differing() == {"changed": ["a.jsonl"]}
    assert night.run().counts.removed == 1
    assert night.read == night.hashed == ["a.jsonl"]
    assert night.ids == ["a2", "a3", "b1", "b2", "b3"]


def test_a_file_of_other_size_at_the_same_time_is_read(night: Night) -> None:
    night.run()
    path = night.archive / "a.jsonl"
    before = path.stat()
    write_jsonl(path, [trace(id="a1")])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    night.run()
    assert night.read == ["a.jsonl"]
    assert night.ids == ["a1", "b1", "b2", "b3"]


def test_a_touched_file_is_hashed_and_there_is_nothing_to_do(night: Night) -> None:
    night.run()
    night.aged(night.archive / "a.jsonl")
    assert night.differing() == {}
    assert night.run().run_id is None
    assert (night.hashed, night.read) == (["a.jsonl"], [])


def test_a_file_that_was_just_written_is_hashed_again_by_the_next_run(night: Night) -> None:
    (night.archive / "b.jsonl").touch()
    night.run()
    assert night.entry("b.jsonl")["mtime_ns"] == 0
    assert night.run().run_id is None
    assert (night.hashed, night.read) == (["b.jsonl"], [])


@pytest.mark.process
def test_an_object_is_hashed_again_only_if_its_etag_or_time_differs(
    night: Night, bucket: str
) -> None:
    url = f"{bucket}/archive/a.jsonl"

    def store(objective: str) -> None:
        store_at(bucket).write("archive/a.jsonl", json.dumps(trace(objective=objective)).encode())

    store("one")
    night.run(archive=(url,))
    assert night.run(archive=(url,)).run_id is None
    assert (night.hashed, night.read) == ([], [])
    store("two")  # as long, and maybe within the same second
    night.run(archive=(url,))
    assert (night.hashed, night.read) == (["a.jsonl"], ["a.jsonl"])


@pytest.mark.parametrize("name", ["0.jsonl", "z/renamed.jsonl"])
def test_a_renamed_file_is_not_read_again(night: Night, name: str) -> None:
    night.run()
    scores = night.ask(CONTENT)
    (night.archive / "z").mkdir()
    (night.archive / "b.jsonl").rename(night.archive / name)
    assert night.differing() == {"new": [Path(name).name], "gone": ["b.jsonl"]}
    night.run()
    assert (night.hashed, night.read) == ([Path(name).name], [])
    assert night.statuses() == {"a.jsonl": "read", "b.jsonl": "gone", Path(name).name: "read"}
    assert night.ask(CONTENT) == scores
    night.run(prune=True)
    assert (night.hashed, night.read) == ([], [])
    assert night.statuses() == {"a.jsonl": "read", Path(name).name: "read"}
    assert night.ask(CONTENT) == scores
    where = night.ask("SELECT DISTINCT source_file FROM scores WHERE trace_id[1] = 'b'")
    assert where == [(str(night.archive / name),)]


@pytest.mark.parametrize("name", ["0.jsonl", "z.jsonl"])
def test_a_renamed_file_leaves_no_mark_on_its_rows(night: Night, name: str) -> None:
    night.write("b.jsonl", "b1", "b2", "b3")
    broken = night.archive / "b.jsonl"
    broken.write_text(broken.read_text() + '{"id": "b4"}\n')
    night.aged(broken)
    night.run(max_reject_share=1)
    broken.rename(night.archive / name)
    counts = night.run(max_reject_share=1).counts
    assert (counts.files, counts.rows, counts.rows_kept) == (2, 6, 0)
    assert (counts.accepted, counts.duplicates, counts.rejected) == (5, 0, 1)
    places = "SELECT DISTINCT source_file FROM {} WHERE trace_id[1] = 'b'"
    renamed = [(str(night.archive / name),)]
    assert night.ask(places.format("scores")) == night.ask(places.format("rejects")) == renamed


@pytest.mark.parametrize("then_prune", [False, True])
def test_a_correction_under_an_earlier_name_beats_the_file_that_is_gone(
    night: Night, *, then_prune: bool
) -> None:
    night.run()
    night.write("0.jsonl", "b1", "b2", objective="Something else", confidence=0.5)
    night.run()
    assert night.scored_in("b1") == "b.jsonl"  # the later of two that can be read
    (night.archive / "b.jsonl").unlink()
    counts = night.run().counts
    assert night.scored_in("b1") == night.scored_in("b2") == "0.jsonl"
    assert night.scored_in("b3") == "b.jsonl"
    assert (counts.rows, counts.rows_kept, counts.accepted, counts.superseded) == (7, 3, 5, 2)
    messages = night.ask("SELECT message FROM rejects ORDER BY message")
    place = f"the same id stands with other content in {night.archive}/0.jsonl, row"
    assert messages == [(f"{place} {row}, which can be read",) for row in (0, 1)]
    fresh = night.run(warehouse=night.warehouse.with_name("fresh"))
    assert fresh.counts.accepted == 4
    if then_prune:
        assert night.run(prune=True).counts.accepted == 4
    assert night.run().run_id is None


def test_a_superseded_row_of_a_file_that_is_gone_comes_to_count_no_more(night: Night) -> None:
    night.write("0.jsonl", "b1", objective="Something else")
    night.run(embedder="hashing")
    (night.archive / "0.jsonl").unlink()
    night.write("b.jsonl", "b2", "b3")  # and b1 no more; the other text of it has no vector
    counts = night.run(embedder="hashing", max_removed=1).counts
    assert (counts.rows, counts.rows_kept, counts.accepted, counts.superseded) == (5, 1, 4, 1)
    assert not night.ask("FROM scores WHERE trace_id = 'b1'")
    [(message,)] = night.ask("SELECT message FROM rejects")
    assert message == "the row that superseded it is in the archive no more"
    assert not verify(night.warehouse, traces=9, seed=0, embed=False).wrong
    assert night.run(embedder="hashing").run_id is None


def test_another_encoder_is_refused_where_texts_are_in_files_that_are_gone(night: Night) -> None:
    night.write("b.jsonl", "b1", objective="Something else")
    night.run()
    (night.archive / "b.jsonl").unlink()
    with pytest.raises(ArchiveError, match=r"traces of 1 file, gone .* no vectors of the encoder"):
        night.run(embedder="hashing")
    assert night.run(embedder="hashing", prune=True).counts.accepted == 2


def test_what_is_published_of_a_trace_stays_whichever_of_its_files_goes(night: Night) -> None:
    night.write("c.jsonl", "b1", objective="Something else")
    night.run()
    (night.archive / "c.jsonl").unlink()
    night.run()
    (night.archive / "b.jsonl").unlink()
    scores = night.ask(CONTENT)
    counts = night.run().counts
    assert (counts.rows_kept, counts.superseded) == (4, 1)
    assert night.ask(CONTENT) == scores
    assert night.scored_in("b1") == "b.jsonl"
    [(message,)] = night.ask("SELECT message FROM rejects")
    place = f"{night.archive}/b.jsonl, row 0"
    assert message == f"the same id stands with other content in {place}, whose score is published"


def test_a_file_that_is_back_counts_by_its_name_again(night: Night) -> None:
    night.write("0.jsonl", "b1", objective="Something else")
    night.run()
    path = night.archive / "b.jsonl"
    aside = path.rename(night.archive.parent / "aside")
    night.run()
    assert night.scored_in("b1") == "0.jsonl"
    aside.rename(path)
    night.run()
    assert night.scored_in("b1") == "b.jsonl"


def test_an_unreadable_file_yields_to_one_that_can_be_read(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.run()
    night.write("0.jsonl", "b1", objective="Something else")
    night.aged(night.archive / "b.jsonl")
    with monkeypatch.context() as patch:
        deny(patch, night.archive / "b.jsonl")
        assert night.run().counts.rows_kept == 3
        assert night.scored_in("b1") == "0.jsonl"
        assert night.scored_in("b2") == "b.jsonl"
    night.run()
    assert night.scored_in("b1") == "b.jsonl"


def test_a_damaged_file_that_was_gone_is_looked_at_when_it_is_back(night: Night) -> None:
    rows = [trace(id=f"c{number}") for number in range(8)]
    path = night.aged(write_parquet(night.archive / "c.parquet", rows))
    night.run()
    path.write_bytes(path.read_bytes()[:-100])
    night.aged(path)
    night.run()
    aside = path.rename(night.archive.parent / "aside")
    night.run()
    aside.rename(path)
    counts = night.run().counts
    assert (counts.unreadable, night.statuses()["c.parquet"]) == (1, "unreadable")
    assert night.ask("SELECT reasons FROM rejects") == [(["unreadable_file"],)]
    assert len(night.ids) == 13


@pytest.mark.parametrize("stricter", [False, True])
def test_a_file_renamed_before_a_new_version_of_the_facts_leaves_no_mark(
    night: Night, monkeypatch: pytest.MonkeyPatch, *, stricter: bool
) -> None:
    night.run()
    (night.archive / "b.jsonl").rename(night.archive / "z.jsonl")
    for module in (kp_batch.ingest.stage, kp_batch.ingest.scan):
        monkeypatch.setattr(module, "VERSION", "-v99")
    if stricter:
        is_refused = pl.when(trace_id="b1").then(pl.lit(["empty_domain"])).otherwise(reasons())
        monkeypatch.setattr(kp_batch.ingest.staged_rows, "reasons", lambda: is_refused)
    counts = night.run(max_reject_share=1).counts
    assert (counts.rows, counts.rows_kept, counts.duplicates, counts.superseded) == (5, 0, 0, 0)
    assert (counts.accepted, counts.rejected) == (5 - stricter, stricter)
    assert verify(night.warehouse, traces=9, seed=1, embed=False).missing == 0


@pytest.mark.process
@pytest.mark.parametrize("kept", [4 << 30, 1])
def test_an_object_of_a_bucket_is_fetched_once(
    night: Night, bucket: str, monkeypatch: pytest.MonkeyPatch, *, kept: int
) -> None:
    monkeypatch.setattr(kp_batch.ingest.scan, "_COPIED_BYTES", kept)
    night.write("c.jsonl", "c1")
    night.write("d.jsonl", "c1")  # the content of c.jsonl, which is there once more
    night.write("e.jsonl", "e1", outcome={"confidence": 2})
    fill(bucket, night.archive)
    before = TRAFFIC.read
    assert night.run(archive=(bucket,), max_reject_share=1).counts.rejected == 1
    assert night.ask("SELECT raw IS NULL FROM rejects") == [(False,)]
    once = sum(path.stat().st_size for path in night.archive.iterdir())
    assert TRAFFIC.read - before == once
    for path in night.archive.iterdir():  # their times alone may be those of the same second
        path.write_text(path.read_text().replace('1"', '9"'))
    fill(bucket, night.archive)
    night.run(archive=(bucket,), max_reject_share=1)
    assert TRAFFIC.read - before == 2 * once


def test_a_copied_file_is_not_read_again(night: Night) -> None:
    night.run()
    (night.archive / "c.jsonl").write_bytes((night.archive / "a.jsonl").read_bytes())
    night.aged(night.archive / "c.jsonl")
    counts = night.run().counts
    assert (night.hashed, night.read) == (["c.jsonl"], [])
    assert (counts.rows, counts.accepted, counts.duplicates) == (7, 5, 2)
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]


def test_copies_that_are_new_at_once_are_read_once(night: Night) -> None:
    (night.archive / "c.jsonl").write_bytes((night.archive / "a.jsonl").read_bytes())
    assert night.run().counts.duplicates == 2
    assert night.read == ["a.jsonl", "b.jsonl"]


def test_the_same_bytes_under_another_ending_are_other_content(night: Night) -> None:
    night.run()
    (night.archive / "a.parquet").write_bytes((night.archive / "a.jsonl").read_bytes())
    night.run()
    assert night.read == ["a.parquet"]
    assert night.statuses()["a.parquet"] == "unreadable"


def test_a_file_that_is_put_back_to_what_it_was_is_not_read_again(night: Night) -> None:
    first = (night.archive / "a.jsonl").read_bytes()
    night.run()
    scores = night.ask(CONTENT)
    night.write("a.jsonl", "a1", objective="Something else")
    night.run()
    assert night.ask(CONTENT) != scores
    (night.archive / "a.jsonl").write_bytes(first)
    night.aged(night.archive / "a.jsonl")
    assert night.differing() == {"changed": ["a.jsonl"]}
    night.run()
    assert (night.hashed, night.read) == (["a.jsonl"], [])
    assert night.ask(CONTENT) == scores


def test_a_file_that_may_not_be_read_is_read_once_it_may(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        deny(patch, night.archive / "b.jsonl")
        counts = night.run().counts
        assert (counts.rows, counts.unreadable_files) == (2, [f"{night.archive}/b.jsonl"])
        entry = night.entry("b.jsonl")
        assert (entry["status"], entry["rows"]) == ("unreadable", 0)
        assert entry["message"] == "Permission denied"
        assert night.run().run_id is None
    assert night.differing() == {"changed": ["b.jsonl"]}
    night.run()
    assert night.read == ["b.jsonl"]
    assert night.entry("b.jsonl")["message"] == ""
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]


def test_what_an_unreadable_file_held_last_stays_until_it_is_pruned(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.run()
    stat = night.write("b.jsonl", "b4").stat()
    deny(monkeypatch, night.archive / "b.jsonl")
    assert night.differing() == {"unreadable": ["b.jsonl"]}
    night.run()
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]
    entry = night.entry("b.jsonl")
    assert (entry["status"], entry["rows"]) == ("unreadable", 3)
    assert (entry["size"], entry["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns)
    night.run(prune=True)
    assert night.ids == ["a1", "a2"]
    assert night.entry("b.jsonl") == entry | {"rows": 0}


def test_a_damaged_file_is_read_once_it_is_mended_at_the_same_size_and_time(night: Night) -> None:
    path = night.archive / "c.parquet"
    rows = [trace(id=f"c{number}") for number in range(8)]
    write_damaged(path, rows, good=4)
    damaged = night.aged(path).stat()
    night.run()
    assert night.statuses()["c.parquet"] == "unreadable"
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]
    assert night.run().run_id is None
    write_parquet(path, rows, row_group_size=2, use_dictionary=False)
    os.utime(path, ns=(damaged.st_mtime_ns, damaged.st_mtime_ns))
    assert path.stat().st_size == damaged.st_size
    night.run()
    assert night.read == ["c.parquet"]
    assert len(night.ids) == 13


def test_what_a_file_held_that_is_gone_stays_until_it_is_pruned(night: Night) -> None:
    night.run()
    (night.archive / "a.jsonl").unlink()
    assert night.differing() == {"gone": ["a.jsonl"]}
    night.run()
    assert night.statuses() == {"a.jsonl": "gone", "b.jsonl": "read"}
    assert (night.entry("a.jsonl")["rows"], len(night.ids)) == (2, 5)
    assert night.run().run_id is None
    assert night.run(prune=True).counts.removed == 2
    assert night.statuses() == {"b.jsonl": "read"}
    assert night.ids == ["b1", "b2", "b3"]
    assert night.hashed == night.read == []


@pytest.mark.parametrize("was_read", [False, True])
def test_an_unreadable_file_that_is_gone_is_no_reject_any_more(
    night: Night, *, was_read: bool
) -> None:
    if was_read:
        night.run()
    night.archive.joinpath("b.jsonl").write_bytes(b"")
    night.run()
    assert night.ask("SELECT reasons FROM rejects") == [(["unreadable_file"],)]
    (night.archive / "b.jsonl").unlink()
    night.run()
    assert night.ask("SELECT reasons FROM rejects") == []
    assert night.statuses() == {"a.jsonl": "read", **({"b.jsonl": "gone"} if was_read else {})}
    assert len(night.ids) == (5 if was_read else 2)


@pytest.mark.parametrize("prune", [False, True])
def test_a_file_that_was_gone_and_is_back_is_not_read_again(night: Night, *, prune: bool) -> None:
    night.run()
    aside = night.archive.parent / "aside.jsonl"
    (night.archive / "a.jsonl").rename(aside)
    night.run(prune=prune)
    aside.rename(night.archive / "a.jsonl")
    assert night.run().run_id
    assert night.read == []
    assert night.hashed == (["a.jsonl"] if prune else [])
    assert night.statuses() == {"a.jsonl": "read", "b.jsonl": "read"}
    assert len(night.ids) == 5


def test_only_a_vacuum_forgets_the_content_of_a_pruned_file(night: Night) -> None:
    night.run()
    aside = night.archive.parent / "aside.jsonl"
    (night.archive / "a.jsonl").rename(aside)
    night.run(prune=True)
    assert vacuum(night.warehouse, timedelta(0), datetime.now(UTC)).facts == 2
    aside.rename(night.archive / "a.jsonl")
    night.run()
    assert night.read == ["a.jsonl"]
    assert len(night.ids) == 5


def test_a_file_that_grows_while_it_is_read_is_left_to_the_next_run(
    night: Night, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    night.run()
    night.write("b.jsonl", "b4", "b5")
    with monkeypatch.context() as patch:
        grow_when_read(patch, night.archive / "b.jsonl", b'{"id": "b6"}\n')
        night.run()
    message = "the file changed while it was read; the next run reads it again"
    assert f"{night.archive}/b.jsonl is unreadable: {message}" in caplog.messages
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]
    assert night.entry("b.jsonl")["message"] == message
    night.run(max_reject_share=1)
    assert night.read == ["b.jsonl"]
    assert night.ids == ["a1", "a2", "b4", "b5"]
    assert night.ask("SELECT trace_id FROM rejects") == [("b6",)]


@pytest.mark.parametrize(("kept", "lost"), [(3, 3), (3, 4), (4, 3)])
def test_an_archive_that_lost_half_of_its_rows_is_reported(
    night: Night, caplog: pytest.LogCaptureFixture, kept: int, lost: int
) -> None:
    night.write("a.jsonl", *(f"a{number}" for number in range(kept)))
    night.write("b.jsonl", *(f"b{number}" for number in range(lost)))
    night.run()
    night.run()
    assert caplog.messages == []
    (night.archive / "b.jsonl").unlink()
    night.run()
    warning = (
        "the archive has lost half of its rows or more: it holds "
        f"{kept} now, and held {kept + lost}; 1 file is gone (such as {night.archive}/b.jsonl)"
    )
    assert caplog.messages == ([warning] if lost >= kept else [])


def test_an_archive_whose_half_cannot_be_read_is_reported(
    night: Night, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    night.run()
    deny(monkeypatch, night.aged(night.archive / "b.jsonl"))
    night.run()
    assert caplog.messages[-1].endswith(
        "it holds 2 now, and held 5; 1 file is unreadable "
        f"(such as {night.archive}/b.jsonl: Permission denied)"
    )


def test_a_stray_lock_makes_no_known_file_gone(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.write("sub/c.jsonl", "c1", "c2", "c3", "c4", "c5")
    night.run()
    (night.archive / "sub" / "kp.lock").touch()
    with pytest.raises(ArchiveError, match="2 of 4 files are unreadable"):
        night.run(prune=True, max_unreadable="0")
    assert caplog.messages[0] == f"{night.archive}/sub is unreadable: {IS_WAREHOUSE}"
    assert caplog.messages[1].endswith(
        "it holds 5 now, and held 10; 1 file is unreadable "
        f"(such as {night.archive}/sub/c.jsonl: it is in {night.archive}/sub)"
    )
    night.run()
    assert len(night.ids) == 10
    (night.archive / "sub" / "kp.lock").unlink()
    night.run()
    assert set(night.statuses().values()) == {"read"}


def test_the_view_of_the_files(night: Night) -> None:
    paths = {name: night.archive / name for name in ("a.jsonl", "b.jsonl", "c.parquet")}
    paths["c.parquet"].write_bytes(b"")
    night.aged(paths["c.parquet"])
    night.run()
    stats = {name: path.stat() for name, path in paths.items()}
    paths["b.jsonl"].unlink()
    night.run()
    of = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
    query = "SELECT source_file, status, size, mtime_ns, rows, reasons, message FROM files"
    assert night.ask(query) == [
        (str(paths["a.jsonl"]), "read", *of["a.jsonl"], 2, [], ""),
        (str(paths["b.jsonl"]), "gone", *of["b.jsonl"], 3, [], ""),
        (
            *(str(paths["c.parquet"]), "unreadable", *of["c.parquet"]),
            *(0, ["unreadable_file"], "the file is empty (0 bytes)"),
        ),
    ]
    ids = dict(night.ask("SELECT file_id, source_file FROM files WHERE file_id IS NOT NULL"))
    digest = sha256(paths["a.jsonl"].read_bytes()).hexdigest()
    assert ids.pop(f"jsonl-{digest}-v{FACTS_VERSION}") == str(paths["a.jsonl"])
    assert list(ids.values()) == [str(paths["b.jsonl"])]


def test_the_first_row_of_runs_holds_each_file_with_its_content(night: Night) -> None:
    (night.archive / "c.parquet").write_bytes(b"")
    night.run()
    [(inputs,)] = night.ask("SELECT inputs FROM runs")
    columns = ("source_file", "status", "size", "mtime_ns", "file_id")
    rows = night.ask(f"SELECT {', '.join(columns)} FROM files")
    assert json.loads(inputs) == [dict(zip(columns, row, strict=True)) for row in rows]
    assert [entry["file_id"] is None for entry in json.loads(inputs)] == [False, False, True]


def test_a_later_row_of_runs_holds_what_became_of_the_files_that_are_not_as_before(
    night: Night,
) -> None:
    def became(**changes: Any) -> dict[str, str]:
        assert night.run(**changes).run_id
        [(inputs,)] = night.ask("SELECT max_by(inputs, started_at) FROM runs")
        return {Path(entry["source_file"]).name: entry["status"] for entry in json.loads(inputs)}

    assert became() == {"a.jsonl": "read", "b.jsonl": "read"}
    night.write("b.jsonl", "b1", "b2")
    night.write("c.jsonl", "c1")
    (night.archive / "d.parquet").write_bytes(b"")
    assert became() == {"b.jsonl": "read", "c.jsonl": "read", "d.parquet": "unreadable"}
    assert became(threshold=0.5) == {"d.parquet": "unreadable"}  # it is looked at every time
    for name in ("c.jsonl", "d.parquet"):
        (night.archive / name).unlink()
    assert became() == {"c.jsonl": "gone", "d.parquet": "gone"}
    night.write("c.jsonl", "c1")
    assert became() == {"c.jsonl": "read"}
    (night.archive / "b.jsonl").unlink()
    assert became() == {"b.jsonl": "gone"}
    (night.archive / "a.jsonl").unlink()
    assert became(prune=True) == {"a.jsonl": "gone"}
    assert became(threshold=0.25) == {}


def quiet_stderr(night: Night, capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    """What a run with --quiet writes to stderr."""
    with restored_log():
        show_on_stderr()
        show_only_new_warnings()
        night.run(**changes)
    return capsys.readouterr().err.splitlines()


def test_a_quiet_run_tells_what_cannot_be_read_once_and_again_when_that_changes(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quiet_stderr(night, capsys) == []
    damaged = night.archive / "c.parquet"
    damaged.write_bytes(b"")
    line = f"kp-batch: warning: {damaged} is unreadable: the file is empty (0 bytes)"
    assert quiet_stderr(night, capsys) == [line]
    assert quiet_stderr(night, capsys) == []
    for number in range(6):
        (night.archive / f"{number}.parquet").write_bytes(b"")
    *named, more = quiet_stderr(night, capsys)
    assert [line.partition(" is ")[0] for line in named] == [
        f"kp-batch: warning: {night.archive}/{number}.parquet" for number in range(5)
    ]
    assert more.startswith("kp-batch: warning: 2 more files are unreadable; ")
    assert quiet_stderr(night, capsys) == []
    damaged.write_bytes(b"PAR1 and no more")
    [warning] = quiet_stderr(night, capsys)
    assert warning.startswith(f"kp-batch: warning: {damaged} is unreadable: Parquet magic bytes")


def test_a_quiet_run_tells_once_that_half_of_the_archive_is_lost(
    night: Night, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run()
    deny(monkeypatch, night.aged(night.archive / "b.jsonl"))
    assert len(quiet_stderr(night, capsys)) == 2
    assert quiet_stderr(night, capsys) == []
    night.write("a.jsonl", "a1")
    [warning] = quiet_stderr(night, capsys)
    assert "lost half of its rows or more: it holds 1 now, and held 5" in warning


def test_a_run_with_nothing_to_do_says_so_in_one_line_with_what_is_wrong(night: Night) -> None:
    (night.archive / "c.parquet").write_bytes(b"")
    write_jsonl(night.archive / "d.jsonl", [trace(id="d1"), trace(id="", steps=[])])
    night.run(max_reject_share=1)
    (night.archive / "a.jsonl").unlink()
    night.run(max_reject_share=1)
    summary = night.run(max_reject_share=1)
    assert summary.run_id is None
    assert as_text(summary) == (
        "nothing to do: 6 traces scored as they have to be; "
        "1 row rejected, 1 file unreadable, 1 file gone"
    )


def deny(patch: pytest.MonkeyPatch, path: Path) -> None:
    """As a file whose owner alone may read it, of which a superuser takes no notice."""
    content_digest = kp_batch.ingest.stage.content_digest

    def denied(source: SourceFile) -> str:
        if source.path == str(path):
            raise PermissionError(13, "Permission denied")
        return content_digest(source)

    patch.setattr(kp_batch.ingest.stage, "content_digest", denied)


def grow_when_read(patch: pytest.MonkeyPatch, path: Path, more: bytes) -> None:
    read_rows_with_raw = kp_batch.ingest.stage.read_rows_with_raw

    def growing(source: SourceFile, *rest: Any) -> Iterator[pl.DataFrame]:
        yield from read_rows_with_raw(source, *rest)
        if source.path == str(path):
            with path.open("ab") as file:
                file.write(more)

    patch.setattr(kp_batch.ingest.stage, "read_rows_with_raw", growing)
