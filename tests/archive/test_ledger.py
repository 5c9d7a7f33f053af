"""What became of each file of an archive, and that no content is read twice."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.ingest.staged_rows
import kp_batch.planning.changes
from kp_batch.archive import folders
from kp_batch.archive.folders import IS_WAREHOUSE
from kp_batch.archive.sources import SourceFile
from kp_batch.archive.validation import reasons
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, NoTextsError
from kp_batch.log import show_on_stderr, show_only_new_warnings
from kp_batch.operations.preview import plan
from kp_batch.operations.verify import verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report.run_summary import Summary
from kp_batch.scoring.facts import FACTS_VERSION
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_damaged, write_jsonl, write_parquet
from tests.support.make.runs import config
from tests.support.processes.buckets import counted_reads, fill
from tests.support.processes.commands import restored_log
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

CONTENT = "SELECT * EXCLUDE (run_id, source_file) FROM scores ORDER BY trace_id"
CLOCK = count(10**18, 10**9)  # files were written long ago, each at its own second
ENTRY = "status, size, mtime_ns, rows, reasons, message"


class Night:
    """An archive, its warehouse, and which files each run over it looked into."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive, self.warehouse = folder / "archive", folder / "warehouse"
        # No test can set a ctime: here it is the other time.
        monkeypatch.setattr(folders, "version_of", lambda status: str(status.st_mtime_ns or ""))
        self.read = noted(monkeypatch, "read_rows_with_raw")
        self.hashed = noted(monkeypatch, "content_digest")

    def write(self, name: str, *ids: str, **changes: Any) -> Path:
        """Write a file of traces long ago."""
        traces = [trace(id=trace_id, **changes) for trace_id in ids]
        return self.aged(write_jsonl(self.archive / name, traces))

    def aged(self, path: Path) -> Path:
        time = next(CLOCK)
        os.utime(path, ns=(time, time))
        return path

    def copy(self, name: str, to: str) -> Path:
        (self.archive / to).write_bytes((self.archive / name).read_bytes())
        return self.aged(self.archive / to)

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
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Two files, not looked at yet."""
    return with_two_files(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights") / "made"
    with pytest.MonkeyPatch.context() as patch:
        with_two_files(folder, patch).run()
    keep(folder)
    return folder


@pytest.fixture
def night(after_first: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Two files that a first run has read."""
    restore(after_first)
    return Night(after_first, monkeypatch)


def with_two_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    night = Night(folder, monkeypatch)
    night.write("a.jsonl", "a1", "a2")
    night.write("b.jsonl", "b1", "b2", "b3")
    return night


def test_each_content_is_read_once_and_a_file_that_was_just_written_hashed_again(
    first: Night,
) -> None:
    first.copy("a.jsonl", "c.jsonl")
    (first.archive / "b.jsonl").touch()
    assert first.differing() == {"new": ["a.jsonl", "b.jsonl", "c.jsonl"]}
    assert first.run().counts.duplicates == 2
    assert first.hashed == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert first.read == ["a.jsonl", "b.jsonl"]
    assert first.entry("b.jsonl")["mtime_ns"] == (first.archive / "b.jsonl").stat().st_mtime_ns
    assert first.differing() == {}
    assert first.run().run_id is None
    assert (first.hashed, first.read) == (["b.jsonl"], [])


def test_a_file_without_a_time_is_hashed_again(night: Night) -> None:
    path = night.write("a.jsonl", "a1", "a3")  # as reproducible archives are unpacked
    os.utime(path, ns=(0, 0))
    night.run()
    os.utime(write_jsonl(path, [trace(id="a1"), trace(id="a4")]), ns=(0, 0))
    assert night.differing() == {"changed": ["a.jsonl"]}


def test_what_is_known_is_not_even_hashed_and_a_touched_file_not_read(night: Night) -> None:
    assert night.differing() == {}
    assert night.run().run_id is None
    assert night.hashed == night.read == []
    night.aged(night.archive / "a.jsonl")
    assert night.differing() == {}
    assert night.run().run_id is None
    assert (night.hashed, night.read) == (["a.jsonl"], [])
    assert night.run().run_id is None
    assert night.hashed == []  # its time is remembered, though there was no run


def test_other_content_of_the_same_length_and_time_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.ingest.scan, "MTIME_MARGIN_NS", -(10**18))
    settings = config(tmp_path, tmp_path / "archive", embedder="none")
    path = write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="a1")])
    rescore_archive(settings)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"a1"', b'"a2"'))
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert rescore_archive(settings).run_id
    assert ask_rows(settings.warehouse, "SELECT trace_id FROM scores") == [("a2",)]


def test_a_file_with_a_new_link_or_owner_is_compared_once_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.ingest.scan, "MTIME_MARGIN_NS", -(10**18))
    hashed, read = noted(monkeypatch, "content_digest"), noted(monkeypatch, "read_rows_with_raw")
    settings = config(tmp_path, tmp_path / "archive", embedder="none")
    path = write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="a1")])
    rescore_archive(settings)
    (tmp_path / "backup").hardlink_to(path)
    path.chmod(0o600)
    assert rescore_archive(settings).run_id is None
    assert (hashed, read) == (["a.jsonl"] * 2, ["a.jsonl"])
    assert rescore_archive(settings).run_id is None
    assert (hashed, read) == (["a.jsonl"] * 2, ["a.jsonl"])


@pytest.mark.telling
def test_content_alone_that_is_new_is_read(first: Night) -> None:
    first.write("short.jsonl", "s1", "s2")
    first.run()
    scores = first.ask(CONTENT)
    was = (first.archive / "a.jsonl").read_bytes()
    first.write("a.jsonl", "a2", "a3")
    first.copy("b.jsonl", "copy.jsonl")
    first.copy("b.jsonl", "copy.parquet")  # under another ending, it is other content
    first.write("new.jsonl", "n1")
    short = first.archive / "short.jsonl"
    stat = short.stat()
    write_jsonl(short, [trace(id="s1")])
    os.utime(short, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert first.differing() == {
        "new": ["copy.jsonl", "new.jsonl"],
        "changed": ["a.jsonl", "short.jsonl"],
        "unreadable": ["copy.parquet"],
    }
    counts = first.run().counts
    assert first.hashed == ["a.jsonl", "copy.jsonl", "copy.parquet", "new.jsonl", "short.jsonl"]
    assert sorted(first.read) == ["a.jsonl", "copy.parquet", "new.jsonl", "short.jsonl"]
    assert (counts.rows, counts.accepted, counts.duplicates, counts.removed) == (10, 7, 3, 2)
    assert first.ids == ["a2", "a3", "b1", "b2", "b3", "n1", "s1"]
    assert first.statuses()["copy.parquet"] == "unreadable"
    (first.archive / "new.jsonl").unlink()
    (first.archive / "a.jsonl").write_bytes(was)  # as it was first
    first.write("short.jsonl", "s1", "s2")
    first.aged(first.archive / "a.jsonl")
    assert first.differing() == {
        "changed": ["a.jsonl", "short.jsonl"],
        "gone": ["new.jsonl"],
        "unreadable": ["copy.parquet"],
    }
    first.run(prune=True)
    assert first.hashed == ["a.jsonl", "copy.parquet", "short.jsonl"]
    assert first.read == ["copy.parquet"]
    assert first.ask(CONTENT) == scores


@pytest.mark.process
def test_an_object_of_a_bucket_is_fetched_once_and_again_if_its_etag_or_time_differs(
    first: Night, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.write("c.jsonl", "c1")
    first.write("d.jsonl", "c1")  # the content of c.jsonl, which is there once more
    first.write("e.jsonl", "e1", outcome={"confidence": 2})
    for kept in (1, 4 << 30):
        monkeypatch.setattr(kp_batch.ingest.scan, "DOWNLOAD_BATCH_BYTES", kept)
        fill(bucket, first.archive)
        with counted_reads() as sizes:
            assert first.run(archive=(bucket,), max_reject_share=1).counts.rejected == 1
        assert first.ask("SELECT raw IS NULL FROM rejects") == [(False,)]
        once = sum(path.stat().st_size for path in first.archive.iterdir())
        assert sum(sizes) == once, kept
        assert first.run(archive=(bucket,), max_reject_share=1).run_id is None
        assert (first.hashed, first.read) == ([], [])
        for path in first.archive.iterdir():  # as long, and their times maybe of the same second
            path.write_text(path.read_text().replace('1"', '9"'))


def test_a_renamed_file_is_not_read_again_and_leaves_no_mark(first: Night) -> None:
    places = "SELECT DISTINCT source_file FROM {} ORDER BY ALL"
    for name in ("a.jsonl", "b.jsonl"):
        with (first.archive / name).open("a") as file:
            file.write(f'{{"id": "{name}"}}\n')
        first.aged(first.archive / name)
    first.run(max_reject_share=1)
    scores = first.ask(CONTENT)
    names = [str(first.archive / name) for name in ("0.jsonl", "z/renamed.jsonl")]
    (first.archive / "z").mkdir()
    (first.archive / "a.jsonl").rename(names[1])
    (first.archive / "b.jsonl").rename(names[0])
    new = ["0.jsonl", "renamed.jsonl"]
    assert first.differing() == {"new": new, "gone": ["a.jsonl", "b.jsonl"]}
    counts = first.run(max_reject_share=1).counts
    assert (first.hashed, first.read) == (new, [])
    assert (counts.files, counts.rows, counts.rows_kept) == (2, 7, 0)
    assert (counts.accepted, counts.duplicates, counts.rejected) == (5, 0, 2)
    read = dict.fromkeys(new, "read")
    assert first.statuses() == read | {"a.jsonl": "gone", "b.jsonl": "gone"}
    assert first.ask(CONTENT) == scores
    assert first.scored_in("a1") == "renamed.jsonl"
    for table in ("scores", "rejects"):
        assert first.ask(places.format(table)) == [(name,) for name in names]
    first.run(max_reject_share=1, prune=True)
    assert (first.hashed, first.read) == ([], [])
    assert first.statuses() == read
    assert first.ask(CONTENT) == scores
    assert first.ask(places.format("scores")) == [(name,) for name in names]


def test_a_correction_under_an_earlier_name_beats_the_file_that_is_gone(night: Night) -> None:
    night.write("0.jsonl", "b1", "b2", objective="Something else", confidence=0.5)
    night.run()
    assert night.scored_in("b1") == "b.jsonl"  # the later of two that can be read
    (night.archive / "b.jsonl").unlink()
    counts = night.run().counts
    assert night.scored_in("b1") == night.scored_in("b2") == "0.jsonl"
    assert night.scored_in("b3") == "b.jsonl"
    assert (counts.rows, counts.rows_kept, counts.accepted, counts.superseded) == (7, 3, 5, 2)
    messages = night.ask("SELECT message FROM rejects ORDER BY message")
    place = f"the same id has other content in {night.archive}/0.jsonl, row"
    assert messages == [(f"{place} {row}, which can be read",) for row in (0, 1)]
    fresh = plan(night.config(warehouse=night.warehouse.with_name("fresh")))
    assert fresh.traces_to_rescore == 4
    assert night.run().run_id is None
    assert night.run(prune=True).counts.accepted == 4
    assert night.run().run_id is None


def test_a_superseded_row_of_a_file_that_is_gone_comes_to_count_no_more(first: Night) -> None:
    first.write("0.jsonl", "b1", objective="Something else")
    first.run(embedder="hashing")
    (first.archive / "0.jsonl").unlink()
    first.write("b.jsonl", "b2", "b3")  # and b1 no more; the other text of it has no vector
    counts = first.run(embedder="hashing", max_removed=1).counts
    assert (counts.rows, counts.rows_kept, counts.accepted, counts.superseded) == (5, 1, 4, 1)
    assert not first.ask("FROM scores WHERE trace_id = 'b1'")
    [(message,)] = first.ask("SELECT message FROM rejects")
    assert message == "the row that superseded it is no longer in the archive"
    assert not verify(first.warehouse, traces=9, seed=0, embed=False).wrong
    assert first.run(embedder="hashing").run_id is None


def test_another_encoder_is_refused_where_texts_are_in_files_that_are_gone(first: Night) -> None:
    first.write("b.jsonl", "b1", objective="Something else")
    first.run()
    (first.archive / "b.jsonl").unlink()
    told = (
        r"^settings changed: embedder none to hashing; traces of 1 file that is gone, .* have no "
        r"vectors of the encoder .*; go back with --embedder none, restore what is missing"
    )
    with pytest.raises(NoTextsError, match=told):
        first.run(embedder="hashing")
    assert first.run(embedder="hashing", prune=True).counts.accepted == 2


def test_what_is_published_of_a_trace_stays_whichever_of_its_files_goes(first: Night) -> None:
    first.write("c.jsonl", "b1", objective="Something else")
    first.run()
    (first.archive / "c.jsonl").unlink()
    first.run()
    (first.archive / "b.jsonl").unlink()
    scores = first.ask(CONTENT)
    counts = first.run().counts
    assert (counts.rows_kept, counts.superseded) == (4, 1)
    assert first.ask(CONTENT) == scores
    assert first.scored_in("b1") == "b.jsonl"
    [(message,)] = first.ask("SELECT message FROM rejects")
    place = f"{first.archive}/b.jsonl, row 0"
    assert message == f"the same id has other content in {place}, whose score is published"


def test_a_file_that_is_back_counts_by_its_name_again_and_is_not_read(night: Night) -> None:
    path = night.archive / "b.jsonl"
    aside = path.rename(night.archive.parent / "aside")
    night.write("0.jsonl", "b1", objective="Something else")
    night.run()
    assert night.statuses()["b.jsonl"] == "gone"
    assert night.scored_in("b1") == "0.jsonl"
    aside.rename(path)
    assert night.run().run_id
    assert night.hashed == night.read == []
    assert set(night.statuses().values()) == {"read"}
    assert night.scored_in("b1") == "b.jsonl"
    assert len(night.ids) == 5


def test_an_unreadable_file_yields_to_one_that_can_be_read(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.write("0.jsonl", "b1", objective="Something else")
    night.aged(night.archive / "b.jsonl")
    with monkeypatch.context() as patch:
        deny(patch, night.archive / "b.jsonl")
        assert night.run().counts.rows_kept == 3
        assert night.scored_in("b1") == "0.jsonl"
        assert night.scored_in("b2") == "b.jsonl"
    night.run()
    assert night.scored_in("b1") == "b.jsonl"


def test_an_unreadable_file_that_is_gone_is_no_reject_until_it_is_back(first: Night) -> None:
    rows = [trace(id=f"c{number}") for number in range(8)]
    path = first.aged(write_parquet(first.archive / "c.parquet", rows))
    first.run()
    path.write_bytes(path.read_bytes()[:-100])
    first.aged(path)
    first.archive.joinpath("d.jsonl").write_bytes(b"")  # it was never read
    first.run()
    assert first.ask("SELECT reasons FROM rejects") == [(["unreadable_file"],)] * 2
    (first.archive / "d.jsonl").unlink()
    aside = path.rename(first.archive.parent / "aside")
    first.run()
    assert first.ask("SELECT reasons FROM rejects") == []
    assert first.statuses() == {"a.jsonl": "read", "b.jsonl": "read", "c.parquet": "gone"}
    assert len(first.ids) == 13
    aside.rename(path)
    counts = first.run().counts
    assert (counts.unreadable, first.statuses()["c.parquet"]) == (1, "unreadable")
    assert first.ask("SELECT reasons FROM rejects") == [(["unreadable_file"],)]
    assert len(first.ids) == 13


def test_a_file_renamed_before_a_new_version_of_the_facts_leaves_no_mark(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version refuses a row as well."""
    (night.archive / "b.jsonl").rename(night.archive / "z.jsonl")
    for module in (kp_batch.ingest.stage, kp_batch.ingest.scan):
        monkeypatch.setattr(module, "VERSION", "-v99")
    is_refused = pl.when(trace_id="b1").then(pl.lit(["empty_domain"])).otherwise(reasons())
    monkeypatch.setattr(kp_batch.ingest.staged_rows, "reasons", lambda: is_refused)
    counts = night.run(max_reject_share=1).counts
    assert (counts.rows, counts.rows_kept, counts.duplicates, counts.superseded) == (5, 0, 0, 0)
    assert (counts.accepted, counts.rejected) == (4, 1)
    assert verify(night.warehouse, traces=9, seed=1, embed=False).missing == 0


def test_a_file_gone_before_a_new_version_of_the_facts_keeps_its_rows(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT trace_id, confidence, objective_hash, source_file FROM scores ORDER BY ALL"
    rows = night.ask(query)
    assert None not in chain(*rows)
    (night.archive / "b.jsonl").unlink()
    for module in (kp_batch.ingest.stage, kp_batch.ingest.scan, kp_batch.planning.changes):
        monkeypatch.setattr(module, "VERSION", "-v99")
    counts = night.run().counts
    assert (counts.rows_kept, counts.rows_of_earlier) == (3, 3)
    assert night.ask(query) == rows


def test_rows_of_an_unreadable_file_are_kept_until_it_can_be_read_or_is_pruned(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = night.write("b.jsonl", "b4").stat()
    new = night.write("c.jsonl", "c1")
    with monkeypatch.context() as patch:
        deny(patch, night.archive / "b.jsonl", new)
        assert night.differing() == {"unreadable": ["b.jsonl", "c.jsonl"]}
        counts = night.run().counts
        assert (counts.rows, counts.rows_kept) == (5, 3)
        assert counts.unreadable_files == [f"{night.archive}/b.jsonl", str(new)]
        assert night.ids == ["a1", "a2", "b1", "b2", "b3"]
        entry = night.entry("b.jsonl")
        assert (entry["status"], entry["rows"]) == ("unreadable", 3)
        assert (entry["size"], entry["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns)
        never_read = night.entry("c.jsonl")
        assert (never_read["status"], never_read["rows"]) == ("unreadable", None)
        assert never_read["message"] == "Permission denied"
        assert night.run().run_id is None
        night.run(prune=True)
        assert night.ids == ["a1", "a2"]
        assert night.entry("b.jsonl") == entry | {"rows": None}
    assert night.differing() == {"changed": ["b.jsonl", "c.jsonl"]}
    night.run()
    assert night.read == ["b.jsonl", "c.jsonl"]
    assert night.entry("b.jsonl")["message"] == night.entry("c.jsonl")["message"] == ""
    assert night.ids == ["a1", "a2", "b4", "c1"]


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


def test_rows_of_a_file_that_is_gone_are_kept_until_pruned_and_reused_when_it_is_back(
    night: Night,
) -> None:
    aside = (night.archive / "a.jsonl").rename(night.archive.parent / "aside")
    assert night.differing() == {"gone": ["a.jsonl"]}
    night.run()
    assert night.statuses() == {"a.jsonl": "gone", "b.jsonl": "read"}
    assert (night.entry("a.jsonl")["rows"], len(night.ids)) == (2, 5)
    assert night.run().run_id is None
    assert night.run(prune=True).counts.removed == 2
    assert night.statuses() == {"b.jsonl": "read"}
    assert night.ids == ["b1", "b2", "b3"]
    assert night.hashed == night.read == []
    aside.rename(night.archive / "a.jsonl")
    assert night.run().run_id
    assert (night.hashed, night.read) == (["a.jsonl"], [])
    assert night.statuses() == {"a.jsonl": "read", "b.jsonl": "read"}
    assert len(night.ids) == 5


def test_only_a_vacuum_forgets_the_content_of_a_pruned_file(night: Night) -> None:
    aside = night.archive.parent / "aside.jsonl"
    (night.archive / "a.jsonl").rename(aside)
    night.run(prune=True)
    assert vacuum(night.warehouse, timedelta(0), datetime.now(UTC)).facts == 2
    aside.rename(night.archive / "a.jsonl")
    night.run()
    assert night.read == ["a.jsonl"]
    assert len(night.ids) == 5


def cut(path: Path, lines: int) -> bytes:
    """Cut a file within the line after so many; returns what it was."""
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:lines]) + b'{"id": "')
    return whole


def test_what_a_cut_file_had_stays_until_it_is_whole(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    path = night.archive / "b.jsonl"
    whole = cut(path, 1)
    with pytest.raises(
        ArchiveError, match=r"1 of 2 files is unreadable, .* \(such as .*/b.jsonl\); "
    ):
        night.run(max_unreadable="0")
    for _ in range(2):
        caplog.clear()
        counts = night.run().counts
        assert (counts.rows, counts.rows_kept, counts.rejected, counts.unreadable) == (5, 3, 0, 1)
        assert caplog.messages[0].startswith(f"{path} is cut: it ends within a line, and lacks")
        assert night.statuses()["b.jsonl"] == "unreadable"
        assert night.ask('SELECT "row", reasons FROM rejects') == [(None, ["cut_file"])]
        assert night.ids == ["a1", "a2", "b1", "b2", "b3"]
    assert night.run(prune=True).counts.removed == 2
    assert night.ids == ["a1", "a2", "b1"]
    path.write_bytes(whole)
    night.run()
    assert set(night.statuses().values()) == {"read"}
    assert night.ids == ["a1", "a2", "b1", "b2", "b3"]


def test_a_file_that_is_written_further_is_read_up_to_its_last_line(night: Night) -> None:
    path = night.archive / "b.jsonl"
    lines = path.read_bytes() + json.dumps(trace(id="b4")).encode() + b"\n"
    path.write_bytes(lines + b'{"id": "b5", "me')
    night.aged(path)
    for _ in range(2):
        counts = night.run().counts
        assert (counts.rows, counts.rows_kept, counts.rejected, counts.unreadable) == (6, 0, 0, 1)
        assert night.entry("b.jsonl")["status"] == "read"
        assert night.entry("b.jsonl")["message"] == "it ends within a line"
    assert night.hashed == []
    aside = path.rename(night.archive.parent / "aside")
    night.run()
    aside.rename(path)
    assert night.run().counts.unreadable == 1  # though it was gone meanwhile
    path.write_bytes(lines + json.dumps(trace(id="b5")).encode())
    assert night.run().counts.unreadable == 0
    assert night.ids == ["a1", "a2", "b1", "b2", "b3", "b4", "b5"]


@pytest.mark.telling
def test_a_new_cut_file_is_reported_and_read_up_to_its_last_line(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    path = night.write("c.jsonl", "c1", "c2")
    cut(path, 1)
    warning = f"kp-batch: warning: {path} is cut: it ends within a line"
    assert quiet_stderr(night, capsys) == [warning]
    assert night.ids == ["a1", "a2", "b1", "b2", "b3", "c1"]
    assert quiet_stderr(night, capsys) == []


def test_a_file_whose_mode_changes_while_it_is_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_rows_with_raw = kp_batch.ingest.stage.read_rows_with_raw

    def changing(source: SourceFile, *rest: Any) -> Iterator[pl.DataFrame]:
        Path(source.path).chmod(0o600)
        yield from read_rows_with_raw(source, *rest)

    monkeypatch.setattr(kp_batch.ingest.stage, "read_rows_with_raw", changing)
    write_jsonl(tmp_path / "a.jsonl", [trace(id="a1")])
    counts = rescore_archive(config(tmp_path, tmp_path / "a.jsonl", embedder="none")).counts
    assert (counts.accepted, counts.unreadable) == (1, 0)


def test_a_file_that_grows_while_it_is_read_is_left_to_the_next_run(
    night: Night, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_an_archive_that_lost_half_of_its_rows_or_cannot_read_them_is_reported(
    night: Night, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings_without(name: str) -> list[str]:
        aside = (night.archive / name).rename(night.archive.parent / "aside")
        caplog.clear()
        plan(night.config())
        aside.rename(night.archive / name)
        return caplog.messages

    def lost(rows: int, before: int, cause: str) -> str:
        return (
            f"the archive has lost at least half of its rows: it has {rows} now, and had "
            f"{before}; 1 file is {cause}; restore what is missing, or remove its traces with "
            "--prune"
        )

    gone = f"gone (such as {night.archive}/b.jsonl)"
    plan(night.config())
    assert caplog.messages == []
    assert warnings_without("a.jsonl") == []  # two of five
    assert warnings_without("b.jsonl") == [lost(2, 5, gone)]
    with monkeypatch.context() as patch:
        deny(patch, night.aged(night.archive / "b.jsonl"))
        plan(night.config())
    denied = f"unreadable (such as {night.archive}/b.jsonl)"
    assert caplog.messages[-1] == lost(2, 5, denied)
    night.write("c.jsonl", "c1")
    caplog.clear()
    night.run()
    assert caplog.messages == []
    assert warnings_without("b.jsonl") == [lost(3, 6, gone)]


def test_a_stray_lock_makes_no_known_file_gone(
    first: Night, caplog: pytest.LogCaptureFixture
) -> None:
    first.write("sub/c.jsonl", "c1", "c2", "c3", "c4", "c5")
    first.run()
    (first.archive / "sub" / "kp.lock").touch()
    with pytest.raises(ArchiveError, match="2 of 4 files are unreadable"):
        first.run(prune=True, max_unreadable="0")
    assert caplog.messages[0] == f"{first.archive}/sub is unreadable: {IS_WAREHOUSE}"
    assert (
        "it has 5 now, and had 10; 1 file is unreadable "
        f"(such as {first.archive}/sub/c.jsonl); restore"
    ) in caplog.messages[1]
    first.run()
    assert len(first.ids) == 10
    (first.archive / "sub" / "kp.lock").unlink()
    first.run()
    assert set(first.statuses().values()) == {"read"}


def test_the_view_of_the_files_and_with_which_content_the_first_row_of_runs_holds_them(
    first: Night,
) -> None:
    paths = {name: first.archive / name for name in ("a.jsonl", "b.jsonl", "c.parquet")}
    paths["c.parquet"].write_bytes(b"")
    first.aged(paths["c.parquet"])
    first.run()
    [(inputs,)] = first.ask("SELECT inputs FROM runs")
    columns = ("source_file", "status", "size", "mtime_ns", "file_id")
    rows = first.ask(f"SELECT {', '.join(columns)} FROM files")
    assert json.loads(inputs) == [dict(zip(columns, row, strict=True)) for row in rows]
    assert [entry["file_id"] is None for entry in json.loads(inputs)] == [False, False, True]
    stats = {name: path.stat() for name, path in paths.items()}
    paths["b.jsonl"].unlink()
    first.run()
    of = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
    query = "SELECT source_file, status, size, mtime_ns, rows, reasons, message FROM files"
    assert first.ask(query) == [
        (str(paths["a.jsonl"]), "read", *of["a.jsonl"], 2, [], ""),
        (str(paths["b.jsonl"]), "gone", *of["b.jsonl"], 3, [], ""),
        (
            *(str(paths["c.parquet"]), "unreadable", *of["c.parquet"]),
            *(None, ["unreadable_file"], "the file is empty (0 bytes)"),
        ),
    ]
    ids = dict(first.ask("SELECT file_id, source_file FROM files WHERE file_id IS NOT NULL"))
    digest = sha256(paths["a.jsonl"].read_bytes()).hexdigest()
    assert ids.pop(f"jsonl-{digest}-v{FACTS_VERSION}") == str(paths["a.jsonl"])
    assert list(ids.values()) == [str(paths["b.jsonl"])]


def test_a_later_row_of_runs_holds_what_became_of_the_files_that_are_not_as_before(
    night: Night,
) -> None:
    def became(**changes: Any) -> dict[str, str]:
        assert night.run(**changes).run_id
        [(inputs,)] = night.ask("SELECT max_by(inputs, started_at) FROM runs")
        return {Path(entry["source_file"]).name: entry["status"] for entry in json.loads(inputs)}

    night.write("b.jsonl", "b1", "b2")
    night.write("c.jsonl", "c1")
    (night.archive / "d.parquet").write_bytes(b"")
    assert became() == {"b.jsonl": "read", "c.jsonl": "read", "d.parquet": "unreadable"}
    assert became(threshold=0.5) == {"d.parquet": "unreadable"}  # it is looked at every time
    for name in ("b.jsonl", "c.jsonl", "d.parquet"):
        (night.archive / name).unlink()
    assert became() == {"b.jsonl": "gone", "c.jsonl": "gone", "d.parquet": "gone"}
    night.write("c.jsonl", "c1")
    (night.archive / "a.jsonl").unlink()
    assert became(prune=True) == {"a.jsonl": "gone", "c.jsonl": "read"}
    assert became(threshold=0.25) == {}


def quiet_stderr(night: Night, capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    """What a run with --quiet writes to stderr."""
    with restored_log():
        show_on_stderr()
        show_only_new_warnings()
        night.run(**changes)
    return capsys.readouterr().err.splitlines()


def test_a_quiet_run_says_that_its_warehouse_is_new_until_a_run_is_done(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    new = night.archive.with_name("elsewhere")
    write_jsonl(night.archive / "d.jsonl", [trace(id="", steps=[])])
    with pytest.raises(ArchiveError, match="--max-reject-share"):
        quiet_stderr(night, capsys, warehouse=new, max_reject_share=0)
    told = capsys.readouterr().err
    start = (
        f"kp-batch: {new} is a new warehouse, with embedder none, the built-in weights, no audits;"
    )
    assert told.startswith(start)
    assert len(quiet_stderr(night, capsys, warehouse=new, max_reject_share=1)) == 1
    assert quiet_stderr(night, capsys, warehouse=new, max_reject_share=1) == []


def test_a_run_with_nothing_to_do_says_so_in_one_line_with_what_is_wrong(night: Night) -> None:
    (night.archive / "c.parquet").write_bytes(b"")
    write_jsonl(night.archive / "d.jsonl", [trace(id="d1"), trace(id="", steps=[])])
    (night.archive / "a.jsonl").unlink()
    night.run(max_reject_share=1)
    summary = night.run(max_reject_share=1)
    assert summary.run_id is None
    assert str(summary) == (
        "nothing to do: 6 scores are up to date; 1 row rejected, 1 file unreadable, 1 file gone"
    )


def deny(patch: pytest.MonkeyPatch, *paths: Path) -> None:
    """As a file whose owner alone may read it, of which a superuser takes no notice."""
    content_digest = kp_batch.ingest.stage.content_digest

    def denied(source: SourceFile) -> str:
        if Path(source.path) in paths:
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
