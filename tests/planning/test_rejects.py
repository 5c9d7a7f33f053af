"""Which rows are refused, night after night: only what moved is looked at again."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kp_batch.archive.validation
import kp_batch.pipeline.rescore
import kp_batch.planning.rejects
import kp_batch.planning.scorer
import kp_batch.planning.write_tasks
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.operations.vacuum import vacuum
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.summary import Summary
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.warehouse.reader import connect
from tests.support.archives import trace, write_jsonl

pytestmark = pytest.mark.slow

ORDER = 'ORDER BY source_file, "row"'
REFUSED = f'SELECT source_file, "row", reasons, message, raw FROM rejects {ORDER}'


class Archive:
    """A folder of files that were written long ago, and its warehouse."""

    def __init__(self, folder: Path) -> None:
        self.files, self.warehouse = folder / "archive", folder / "warehouse"
        self.clock = 10**18

    def write(self, name: str, *traces: Any) -> None:
        path = write_jsonl(self.files / name, traces)
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def run(self, **changes: Any) -> Summary:
        usual = {"max_reject_share": 1.0, "embedder": "none", "prune": True}
        where = {"archive": (str(self.files),), "warehouse": self.warehouse}
        return rescore_archive(RescoreConfig(**{**usual, **where, **changes}))

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with connect(self.warehouse) as connection:
            return connection.execute(query).fetchall()

    def refused(self) -> list[tuple[str, int, list[str]]]:
        return [(Path(path).name, row, reasons) for path, row, reasons, *_ in self.ask(REFUSED)]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Two files, of which the later one has another trace of the same id, and each a bad row."""
    archive = Archive(tmp_path)
    archive.write("a.jsonl", trace(id="one", objective="before"), b"bad", trace(id="two"))
    archive.write("b.jsonl", trace(id="one", objective="after"), b"worse")
    return archive


SUPERSEDED = ("a.jsonl", 0, ["superseded"])
BAD = ("a.jsonl", 1, ["malformed_json"])
WORSE = ("b.jsonl", 1, ["malformed_json"])


def test_what_stays_refused_is_reported_by_the_run_that_refused_it(archive: Archive) -> None:
    first = archive.run()
    before = archive.ask(REFUSED)
    archive.write("c.jsonl", b"worst", trace(id="three"))
    second = archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, WORSE, ("c.jsonl", 0, ["malformed_json"])]
    assert archive.ask(REFUSED)[:3] == before
    runs = [run for (run,) in archive.ask(f"SELECT run_id FROM rejects {ORDER}")]
    assert runs == [first.run_id] * 3 + [second.run_id]


def test_a_row_is_refused_no_more_once_the_later_one_is_gone(archive: Archive) -> None:
    archive.run()
    (archive.files / "b.jsonl").unlink()
    archive.run()
    assert archive.refused() == [BAD]


def test_a_row_that_was_superseded_names_its_new_successor(archive: Archive) -> None:
    archive.run()
    archive.write("c.jsonl", trace(id="one", objective="last"))
    archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, ("b.jsonl", 0, ["superseded"]), WORSE]
    [*_, message, _] = archive.ask(REFUSED)[0]
    assert message.endswith("c.jsonl, row 0, later in the archive")


def test_copies_of_a_superseded_row_are_all_refused(archive: Archive) -> None:
    archive.write("a2.jsonl", trace(id="one", objective="before"), b"bad", trace(id="two"))
    archive.run()
    copies = [("a2.jsonl", 0, ["superseded"]), ("a2.jsonl", 1, ["malformed_json"])]
    assert archive.refused() == [SUPERSEDED, BAD, *copies, WORSE]
    archive.write("a3.jsonl", trace(id="one", objective="before"), b"bad", trace(id="two"))
    assert archive.run().counts.superseded == 3


def test_what_a_failed_run_refused_misleads_no_later_one(archive: Archive) -> None:
    archive.run()
    later = (archive.files / "b.jsonl").read_bytes()
    (archive.files / "b.jsonl").unlink()
    archive.write("c.jsonl", b"nothing but", b"bad rows", trace(id="two", objective="other"))
    with pytest.raises(ArchiveError):
        archive.run(max_reject_share=0)
    assert ("a.jsonl", 2, ["superseded"]) in archive.refused()
    assert SUPERSEDED not in archive.refused()
    (archive.files / "c.jsonl").unlink()
    archive.write("b.jsonl", *later.splitlines())
    archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, WORSE]


def test_after_vacuum_what_a_failed_run_refused_is_reported_with_its_json(archive: Archive) -> None:
    archive.run()
    archive.write("c.jsonl", trace(id="three", confidence=2))
    with pytest.raises(ArchiveError):
        archive.run(max_reject_share=0)
    vacuum(archive.warehouse, timedelta(0), datetime.now(UTC))
    archive.run()
    [*_, message, raw] = archive.ask(REFUSED)[-1]
    assert message == "outcome.confidence is 2, no number from 0 to 1"
    assert json.loads(raw) == trace(id="three", confidence=2)


def test_a_message_names_the_value_and_stays_once_the_file_is_gone(archive: Archive) -> None:
    archive.write("c.jsonl", trace(id="three", confidence=2), b"[")
    archive.run(prune=False)
    rows = archive.ask(f"SELECT message FROM rejects WHERE source_file LIKE '%c.jsonl' {ORDER}")
    assert [message for (message,) in rows] == [
        "outcome.confidence is 2, no number from 0 to 1",
        "line 2 is no JSON object: Expecting value at character 2",
    ]
    before = archive.ask(REFUSED)
    (archive.files / "c.jsonl").unlink()
    archive.run(prune=False)
    assert archive.ask(REFUSED) == before


def test_after_vacuum_a_message_names_no_value_and_a_later_run_tells_the_same(
    archive: Archive,
) -> None:
    archive.write("c.jsonl", trace(id="three", confidence=2), b'["private"]')
    archive.run()
    before = archive.ask(REFUSED)
    vacuum(archive.warehouse, timedelta(0), datetime.now(UTC))
    after = archive.ask(REFUSED)
    assert after[0][3] == before[0][3]
    assert [message for *_, message, _ in after[1:]] == [
        *(["line 2 is no JSON object"] * 2),
        "outcome.confidence is null, NaN, or outside 0..1",
        "line 2 is no JSON object",
    ]
    assert archive.run().run_id is None
    archive.write("d.jsonl", trace(id="four"))
    archive.run()
    assert archive.ask(REFUSED) == after


def test_vacuum_leaves_the_json_of_all_copies_of_a_row_while_one_was_rejected_lately(
    archive: Archive,
) -> None:
    archive.run()
    archive.write("a2.jsonl", trace(id="one", objective="before"), b"bad", trace(id="two"))
    archive.run()
    ends = archive.ask("SELECT epoch_us(finished_at) FROM runs ORDER BY number")
    between = sum(end for (end,) in ends) / 2e6
    vacuum(archive.warehouse, timedelta(0), datetime.fromtimestamp(between, UTC))
    kept = {(Path(path).name, raw) for path, *_, raw in archive.ask(REFUSED) if raw}
    assert kept == {("a.jsonl", '"bad"'), ("a2.jsonl", '"bad"')}
    archive.write("c.jsonl", trace(id="three"))
    archive.run()
    assert {(Path(path).name, raw) for path, *_, raw in archive.ask(REFUSED) if raw} == kept


def test_rejects_are_reported_anew_once_the_words_differ(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setitem(kp_batch.planning.scorer.MESSAGES, "messages", 1)
        earlier.setattr(kp_batch.archive.validation, "reject_message", lambda *_: "bad")
        first = archive.run()
        assert archive.run().run_id is None
    archive.run()
    [(changes,)] = archive.ask("SELECT changes->>'$[0].words' FROM runs WHERE run_id = latest()")
    assert changes == "the rejects are told in other words"
    rows = archive.ask(f'SELECT message, run_id FROM rejects WHERE "row" = 1 {ORDER}')
    wanted = "line 2 is no JSON object: Expecting value at character 1"
    assert rows == [(wanted, first.run_id)] * 2
    assert archive.run().run_id is None


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_however_many_rows_are_held_at_once_the_same_are_refused(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", rows)
    monkeypatch.setattr(kp_batch.planning.rejects, "PART_ROWS", rows)
    archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, WORSE]
    assert [text for *_, text in archive.ask(REFUSED)] == [None, '"bad"', '"worse"']


def test_a_plan_opens_no_file_of_the_archive(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_without_files(*args: Any) -> Plan:
        shutil.rmtree(archive.files)
        return make_plan(*args)

    monkeypatch.setattr(kp_batch.pipeline.rescore, "make_plan", plan_without_files)
    archive.write("c.jsonl", trace(id="three", confidence=2))
    archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, WORSE, ("c.jsonl", 0, ["bad_confidence"])]
    raw = [text for *_, text in archive.ask(REFUSED)]
    assert raw[:3] == [None, '"bad"', '"worse"']
    assert json.loads(raw[3]) == trace(id="three", confidence=2)
