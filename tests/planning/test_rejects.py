"""Which rows are refused, night after night: only what moved is looked at again."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from itertools import count
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
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.report.run_summary import Summary
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

ORDER = 'ORDER BY source_file, "row"'
EARLIER = [trace(id="one", objective="before"), b"bad", trace(id="two")]
CLOCK = count(10**18, 10**9)  # files were written long ago, each at its own second
REFUSED = f'SELECT source_file, "row", reasons, message, raw FROM rejects {ORDER}'


class Archive:
    """A folder of files that were written long ago, and its warehouse."""

    def __init__(self, folder: Path) -> None:
        self.files, self.warehouse = folder / "archive", folder / "warehouse"

    def write(self, name: str, *traces: Any) -> None:
        time = next(CLOCK)
        os.utime(write_jsonl(self.files / name, traces), ns=(time, time))

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
def first(tmp_path: Path) -> Archive:
    """Not run yet."""
    return with_bad_rows(tmp_path)


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rejects") / "made"
    with_bad_rows(folder).run()
    keep(folder)
    return folder


@pytest.fixture
def archive(after_first: Path) -> Archive:
    """Run once."""
    restore(after_first)
    return Archive(after_first)


def with_bad_rows(folder: Path) -> Archive:
    """Three files: the second has another trace of an id of the first, and each has bad rows."""
    archive = Archive(folder)
    archive.write("a.jsonl", *EARLIER)
    archive.write("b.jsonl", trace(id="one", objective="after"), b"worse")
    archive.write("c.jsonl", trace(id="three", confidence=2), b"[", b'["private"]')
    return archive


MALFORMED = ["malformed_json"]
SUPERSEDED = ("a.jsonl", 0, ["superseded"])
BAD = ("a.jsonl", 1, MALFORMED)
WORSE = ("b.jsonl", 1, MALFORMED)
LATER = [("c.jsonl", 0, ["bad_confidence"]), ("c.jsonl", 1, MALFORMED), ("c.jsonl", 2, MALFORMED)]


@pytest.mark.telling
def test_what_stays_refused_is_reported_by_the_run_that_refused_it(archive: Archive) -> None:
    [(first,)] = archive.ask("SELECT run_id FROM runs")
    before = archive.ask(REFUSED)
    archive.write("d.jsonl", trace(id="one", objective="last"), b"worst", trace(id="four"))
    second = archive.run().run_id
    assert archive.refused() == [
        *(SUPERSEDED, BAD, ("b.jsonl", 0, ["superseded"]), WORSE, *LATER),
        ("d.jsonl", 1, MALFORMED),
    ]
    after = archive.ask(REFUSED)
    assert [after[row] for row in (1, 3, 4, 5, 6)] == before[1:]
    runs = [run for (run,) in archive.ask(f"SELECT run_id FROM rejects {ORDER}")]
    assert runs == [second, first, second, *[first] * 4, second]
    [*_, message, _] = after[0]
    assert message.endswith("d.jsonl, row 0, later in the archive")  # and no more in b.jsonl


def test_a_row_is_refused_no_more_once_the_later_one_is_gone(archive: Archive) -> None:
    (archive.files / "b.jsonl").unlink()
    archive.run()
    assert archive.refused() == [BAD, *LATER]


def test_copies_of_a_row_are_all_refused_and_have_their_json_while_one_was_rejected_lately(
    archive: Archive,
) -> None:
    for name in ("a2.jsonl", "a3.jsonl"):
        archive.write(name, *EARLIER)
    assert archive.run().counts.superseded == 3
    rows = [(0, ["superseded"]), (1, MALFORMED)]
    copies = [(name, *row) for name in ("a.jsonl", "a2.jsonl", "a3.jsonl") for row in rows]
    assert archive.refused() == [*copies, WORSE, *LATER]
    ends = archive.ask("SELECT epoch_us(finished_at) FROM runs ORDER BY number")
    between = sum(end for (end,) in ends) / 2e6
    vacuum(archive.warehouse, timedelta(0), datetime.fromtimestamp(between, UTC))
    kept = {(Path(path).name, raw) for path, *_, raw in archive.ask(REFUSED) if raw}
    assert kept == {(name, '"bad"') for name in ("a.jsonl", "a2.jsonl", "a3.jsonl")}
    archive.write("d.jsonl", trace(id="four"))
    archive.run()
    assert {(Path(path).name, raw) for path, *_, raw in archive.ask(REFUSED) if raw} == kept


def test_what_a_failed_run_refused_misleads_no_later_one(archive: Archive) -> None:
    later = (archive.files / "b.jsonl").read_bytes()
    (archive.files / "b.jsonl").unlink()
    archive.write("d.jsonl", b"nothing but", b"bad rows", trace(id="two", objective="other"))
    with pytest.raises(ArchiveError):
        archive.run(max_reject_share=0)
    assert ("a.jsonl", 2, ["superseded"]) in archive.refused()
    assert SUPERSEDED not in archive.refused()
    (archive.files / "d.jsonl").unlink()
    archive.write("b.jsonl", *later.splitlines())
    archive.run()
    assert archive.refused() == [SUPERSEDED, BAD, WORSE, *LATER]


def test_after_vacuum_what_a_failed_run_refused_is_reported_with_its_json(archive: Archive) -> None:
    archive.write("d.jsonl", trace(id="four", confidence=2))
    with pytest.raises(ArchiveError):
        archive.run(max_reject_share=0)
    vacuum(archive.warehouse, timedelta(0), datetime.now(UTC))
    archive.run()
    [*_, message, raw] = archive.ask(REFUSED)[-1]
    assert message == "outcome.confidence is 2, not a number from 0 to 1"
    assert json.loads(raw) == trace(id="four", confidence=2)


def test_a_message_names_the_value_and_stays_once_the_file_is_gone(archive: Archive) -> None:
    before = archive.ask(REFUSED)
    assert [message for *_, message, _ in before[1:]] == [
        *(["line 2 is not a JSON object: Expecting value at character 1"] * 2),
        "outcome.confidence is 2, not a number from 0 to 1",
        "line 2 is not a JSON object: Expecting value at character 2",
        'line 3 is ["private"], not a JSON object',
    ]
    (archive.files / "c.jsonl").unlink()
    archive.run(prune=False)
    assert archive.ask(REFUSED) == before


def test_after_vacuum_a_message_names_no_value_and_a_later_run_repeats_it(
    archive: Archive,
) -> None:
    [(first,)] = archive.ask("SELECT run_id FROM runs")
    before = archive.ask(REFUSED)
    vacuum(archive.warehouse, timedelta(0), datetime.now(UTC))
    after = archive.ask(REFUSED)
    assert after[0][3] == before[0][3]
    assert [message for *_, message, _ in after[1:]] == [
        *(["line 2 is not a JSON object"] * 2),
        "outcome.confidence is null, NaN, or outside 0..1",
        "line 2 is not a JSON object",
        "line 3 is not a JSON object",
    ]
    assert archive.run().run_id is None
    archive.write("d.jsonl", trace(id="four"))
    archive.run()
    assert archive.ask(REFUSED) == after
    assert archive.ask("SELECT DISTINCT run_id FROM rejects") == [(first,)]


def test_rejects_are_reported_anew_once_the_words_differ(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f'SELECT message, run_id FROM rejects WHERE "row" = 1 {ORDER}'
    before = archive.ask(query)
    monkeypatch.setitem(kp_batch.planning.scorer.MESSAGES, "messages", 99)
    monkeypatch.setattr(kp_batch.archive.validation, "reject_message", lambda *_: "bad")
    archive.run()
    [(changes,)] = archive.ask("SELECT changes->>'$[0].words' FROM runs WHERE run_id = latest()")
    assert changes == "messages of rejects changed"
    assert archive.ask(query) == [("bad", run_id) for _, run_id in before]
    assert archive.run().run_id is None


def test_a_plan_that_holds_few_rows_at_once_refuses_the_same_and_opens_no_file(
    first: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_without_files(*args: Any) -> Plan:
        shutil.rmtree(first.files)
        return make_plan(*args)

    monkeypatch.setattr(kp_batch.pipeline.rescore, "make_plan", plan_without_files)
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", 2)
    monkeypatch.setattr(kp_batch.planning.rejects, "PART_ROWS", 2)
    first.run()
    assert first.refused() == [SUPERSEDED, BAD, WORSE, *LATER]
    raw = [text for *_, text in first.ask(REFUSED)]
    assert raw[:3] == [None, '"bad"', '"worse"']
    assert json.loads(raw[3]) == trace(id="three", confidence=2)
