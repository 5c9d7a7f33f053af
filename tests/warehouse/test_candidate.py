"""What a writer changes, laid over what is published: until it is published, or where it is not."""

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.errors import AuditError, KpBatchError, WarehouseError
from kp_batch.operations.compare import compare
from kp_batch.operations.explain import explain
from kp_batch.operations.forget import forget
from kp_batch.operations.kept_runs import kept_candidate_run
from kp_batch.operations.preview import preview
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.audit import audit
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.python.warehouse import Warehouse
from kp_batch.report.build import leave_report
from kp_batch.runs.run import effective_config
from kp_batch.schemas import SCORES, TABLES
from kp_batch.steps.step import ThreadExecutor
from kp_batch.storage.store import store_at
from kp_batch.warehouse.bucket.mirror import Mirror, refresh
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import write_data_file
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.layout import remove_candidate
from kp_batch.warehouse.manifest import read_manifest, require_manifest
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot, published
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import NOTHING, SETTINGS, Draft, profile
from tests.support.make.runs import config, run_night, two_nights
from tests.support.processes.buckets import Machine, make_bucket, s3_server
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore

REFUSED = {"audits": {"few": {"sql": "FROM scores"}}}
RMTREE = shutil.rmtree
# Of each run; and of how long before it a file was written.
OWN = ("run_id", "started_at", "finished_at", "seconds", "published", "config", "version")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidate") / "made"
    two_nights(folder)  # and a third file, which a run has to read
    keep(folder)
    return folder


@pytest.fixture
def folder(made: Path) -> Path:
    restore(made)
    return made


def refuse(folder: Path, **changes: Any) -> None:
    with pytest.raises(AuditError):
        run_night(folder, **REFUSED, **changes)


def rows(snapshot: PublishedSnapshot) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, but for what tells one run from the next."""
    frames = {name: snapshot.scan(name).drop(OWN, strict=False).collect() for name in TABLES}
    return {name: sorted(frame.rows(), key=repr) for name, frame in frames.items()}


# --- what is laid over ---


DAYS = [date(2026, 1, day) for day in (5, 6, 7)]


def scored(name: str, day: date) -> pl.DataFrame:
    row = dict.fromkeys(SCORES) | {"trace_id": name, "date": day}
    return pl.DataFrame([row], schema=SCORES)


Step = tuple[str, Sequence[int]]
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "overwrite", "days"]), st.lists(st.integers(0, 2))),
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.telling
@settings(max_examples=10, deadline=None)
@given(before=STEPS, steps=STEPS)
def test_a_candidate_is_what_is_there_once_it_is_published(
    before: list[Step], steps: list[Step]
) -> None:
    names = map(str, count())

    def changed(candidate: Candidate, step: Step) -> Candidate:
        kind, days = step
        if kind == "days":
            chosen = [DAYS[number] for number in sorted(set(days))]
            files = [of_day(candidate, day) for day in chosen[:2]]
            return candidate.replace_partitions("scores", files, chosen)
        rows = pl.concat([profile(next(names)) for _ in range(len(days) + 1)])
        write = candidate.append if kind == "append" else candidate.overwrite
        return write("profiles", rows)

    def of_day(candidate: Candidate, day: date) -> DataFile:
        name = next(names)
        return write_data_file(candidate.folder, "scores", scored(name, day), name)

    def of(snapshot: PublishedSnapshot) -> Any:
        profiles = sorted(snapshot.scan("profiles").collect()["name"])
        scores = {
            day: [pl.read_parquet(path)["trace_id"].item() for path in paths]
            for day, paths in snapshot.days.items()
        }
        by_day = dict(snapshot.rows_by_day().rows())
        assert by_day == {day: len(each) for day, each in scores.items()}
        return profiles, scores

    with TemporaryDirectory() as name:
        warehouse = Path(name)
        for step in before:
            draft = Draft(warehouse)
            publish(changed(draft.candidate, step), SETTINGS)
        was = of(PublishedSnapshot(warehouse, read_manifest(warehouse) or NOTHING))
        candidate = Draft(warehouse).candidate
        for step in steps:
            candidate = changed(candidate, step)
        would_be = of(candidate.snapshot(SETTINGS))
        assert of(PublishedSnapshot(warehouse, read_manifest(warehouse) or NOTHING)) == was
        publish(candidate, SETTINGS)
        assert of(published(warehouse)) == would_be
        for table in published(warehouse).manifest.tables:
            uris = DeltaTable(warehouse / table).file_uris()
            assert {Path(uri) for uri in uris} == {*published(warehouse).files(table)}


def test_a_file_is_of_a_partition_that_is_replaced(tmp_path: Path) -> None:
    candidate = Candidate(tmp_path, NOTHING, "a-run")
    file = write_data_file(candidate.folder, "scores", scored("a", DAYS[0]), "a")
    with pytest.raises(ValueError, match=r"is of no partition of scores that is replaced"):
        candidate.replace_partitions("scores", [file], DAYS[1:])


# --- what is kept to be asked ---


@pytest.mark.slow
@pytest.mark.telling
def test_what_a_refused_run_would_have_published_is_what_the_next_one_does(folder: Path) -> None:
    warehouse = folder / "warehouse"
    before = require_manifest(warehouse)
    refuse(folder)
    candidate = published(warehouse, "candidate")
    would_be = rows(candidate)
    moves = compare(warehouse, "latest", "candidate")
    assert (moves.in_both, moves.only_after, moves.after) == (
        2,
        1,
        kept_candidate_run(warehouse),
    )
    assert explain(warehouse, "kp:trace:3", candidate=True).run_id == moves.after
    with pytest.raises(WarehouseError, match="no trace 'kp:trace:3'"):
        explain(warehouse, "kp:trace:3")
    with connect(warehouse, "candidate") as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(3,)]
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(3,)]
    [result] = audit(warehouse, "candidate")
    assert (result.name, result.rows, result.fails) == ("few", 3, True)
    run_night(folder, audits={})
    now = rows(published(warehouse))
    failed, done = now.pop("runs"), would_be.pop("runs")
    assert len(failed) == len(done) + 1  # the row of the failure
    assert now == would_be
    assert require_manifest(warehouse).tables["scores"] != before.tables["scores"]
    with pytest.raises(WarehouseError, match="there is no candidate in"):
        published(warehouse, "candidate")


@pytest.mark.slow
def test_nothing_that_was_refused_or_previewed_is_published(folder: Path) -> None:
    warehouse = folder / "warehouse"

    def present() -> set[Path]:
        return {path for name in (*TABLES, "log") for path in (warehouse / name).rglob("*")}

    before = present()
    preview(effective_config(config(folder, folder / "archive", preview=True, max_reject_share=1)))
    assert present() == before
    refuse(folder)
    new = {path.relative_to(warehouse).parts[0] for path in present() - before}
    assert new == {"rejects", "runs", "log"}


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_candidate_stays_until_the_next_run(folder: Path) -> None:
    warehouse = folder / "warehouse"

    def kept() -> str:
        return kept_candidate_run(warehouse) or ""

    refuse(folder)
    first = kept()
    before = rows(published(warehouse, "candidate"))
    for _ in range(2):  # the first one rewrites files, the second one would remove them
        vacuum(warehouse, timedelta(0), datetime.now(UTC))
    leave_report(warehouse, ThreadExecutor())
    assert kept() == first
    assert rows(published(warehouse, "candidate")) == before
    with pytest.raises(KpBatchError, match="elsewhere"):  # a run that cannot begin
        rescore_archive(config(folder, folder / "elsewhere"))
    assert kept() == first
    preview(effective_config(config(folder, folder / "archive", preview=True, max_reject_share=1)))
    assert kept() > first
    forget(warehouse, ["kp:trace:1"])
    assert not (warehouse / "candidate").exists()
    refuse(folder)
    rollback(warehouse, "latest")
    assert not (warehouse / "candidate").exists()


@pytest.mark.slow
def test_a_first_run_that_is_refused_can_be_asked(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace()])
    refuse(tmp_path)
    assert published(tmp_path / "warehouse", "candidate").scored == 1
    with pytest.raises(KpBatchError, match="there is no latest run"):
        compare(tmp_path / "warehouse", "latest", "candidate")


@pytest.mark.slow
def test_the_candidate_of_a_first_preview_can_be_asked_and_audited(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "archive" / "a.jsonl", [trace()])
    wh = Warehouse(tmp_path / "warehouse")
    audits = {"new": {"sql": "SELECT trace_id FROM scores", "severity": "warn"}}
    wh.preview(path, embedder="none", audits=audits)
    assert wh.sql("SELECT count(*) FROM scores", as_of="candidate").item() == 1
    assert wh.scores(as_of="candidate").collect().height == 1
    assert wh.ask("means_by", "task_domain", ["score"], as_of="candidate").height == 1
    assert [result.rows for result in wh.audit("candidate")] == [1]
    for ask in (wh.scores, wh.runs, wh.audit, wh.verify, wh.settings, wh.vacuum, wh.sweep):
        with fails_with(WarehouseError, "no_warehouse"):
            ask()
    assert not (tmp_path / "warehouse" / "manifest.json").exists()


def damaged(content: Any, value: Any) -> Iterator[Any]:
    """The content with the value in place of one thing in it, of each in turn."""
    yield value
    if isinstance(content, dict):
        for key, each in cast("dict[str, Any]", content).items():
            yield from (content | {key: other} for other in damaged(each, value))
    elif isinstance(content, list):
        yield from ([other] for each in content for other in damaged(each, value))


def test_a_damaged_candidate_is_reported(tmp_path: Path) -> None:
    candidate = Candidate(tmp_path, NOTHING, "a-run").overwrite("profiles", profile("a"))
    candidate.keep({"threshold": 0.5})
    file = tmp_path / "candidate" / "manifest.json"
    content = json.loads(file.read_bytes())

    def asked() -> list[str]:
        names = published(tmp_path, "candidate").scan("profiles").collect()["name"]
        return names.to_list()

    assert asked() == ["a"]
    wrong = ["", "{}", "[" * 100_000]
    for value in (None, -1, 10**30, "x", "../x.parquet", [], [1], {"x": 1}):
        wrong += map(json.dumps, damaged(content, value))
    told = 0
    for text in wrong:
        file.write_text(text, "utf-8")
        try:
            assert asked() in (["a"], []), text
        except WarehouseError as error:
            told += error.code == "damaged"
    assert told > len(wrong) * 3 / 4  # of a table without changes, say, nothing is wrong


def test_a_candidate_with_lost_files_is_reported(tmp_path: Path) -> None:
    candidate = Candidate(tmp_path, NOTHING, "a-run").overwrite("profiles", profile("a"))
    candidate.keep({})
    [file] = (tmp_path / "candidate" / "profiles").iterdir()
    for lose in (lambda: file.write_bytes(file.read_bytes()[:-1]), file.unlink):
        lose()
        with pytest.raises(WarehouseError, match="is damaged: remove its folder candidate"):
            published(tmp_path, "candidate")


def test_a_candidate_that_is_half_removed_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Candidate(tmp_path, NOTHING, "a-run").overwrite("profiles", profile("a")).keep({})
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", is_not_removed)
        with pytest.raises(OSError, match="it fails"):
            remove_candidate(tmp_path)
    with pytest.raises(WarehouseError, match="there is no candidate"):
        published(tmp_path, "candidate")
    remove_candidate(tmp_path)
    remove_candidate(tmp_path)
    assert not (tmp_path / "candidate").exists()


def is_broken(*_: object, **__: object) -> None:
    raise OSError("it fails")


def is_not_removed(folder: Path, *, ignore_errors: bool = False, **others: Any) -> None:
    if Path(folder).name != "candidate":
        RMTREE(folder, ignore_errors, **others)
    elif not ignore_errors:
        raise OSError("it fails")


@pytest.mark.slow
def test_what_cannot_be_kept_is_refused_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Candidate, "keep", is_broken)
    refuse(folder)
    assert "the candidate could not be kept: it fails" in caplog.messages
    last = max(published(folder / "warehouse").runs(), key=lambda run: run.number)
    assert last.reason
    assert last.reason.startswith("1 audit failed: few")
    assert not (folder / "warehouse" / "candidate").exists()


@pytest.mark.slow
def test_nothing_is_left_that_nobody_can_ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = folder / "warehouse" / "candidate"
    with monkeypatch.context() as patch:
        patch.setattr(Candidate, "move_files", is_broken)
        with pytest.raises(OSError, match="it fails"):
            run_night(folder)
        assert not left.exists()
    vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC))
    assert not left.exists()
    write_data_file(left, "profiles", profile("of a killed run"), "a")
    run_night(folder)
    assert not left.exists()


@pytest.mark.slow
def test_what_is_forgotten_may_be_seen_by_a_candidate_alone(folder: Path) -> None:
    refuse(folder)
    result = forget(folder / "warehouse", ["kp:trace:3"])
    assert (result.traces, result.replaced, result.unseen) == (0, 1, 0)
    assert not (folder / "warehouse" / "candidate").exists()
    run_night(folder, audits={})
    assert published(folder / "warehouse").scored == 2


@pytest.mark.slow
def test_nothing_is_forgotten_where_a_candidate_stays_that_may_have_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = folder / "warehouse"
    refuse(folder)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", is_not_removed)
        with pytest.raises(OSError, match="it fails"):
            forget(warehouse, ["kp:trace:1"])
    assert published(warehouse).scored == 2
    assert forget(warehouse, ["kp:trace:1"]).traces == 1
    assert not (warehouse / "candidate").exists()


@pytest.mark.slow
def test_audits_of_a_candidate_find_what_its_run_found(folder: Path) -> None:
    query = "FROM rejects ANTI JOIN published.rejects USING (source_file)"
    with pytest.raises(AuditError):
        run_night(folder, audits={"new": {"sql": query}})
    [of_run] = max(published(folder / "warehouse").runs(), key=lambda run: run.number).audits
    [result] = audit(folder / "warehouse", "candidate")
    assert (result.rows, result.digest) == (of_run.rows, of_run.digest)
    assert result.rows == 1


@pytest.mark.process
def test_no_bucket_sees_a_candidate_and_it_is_asked_all_the_same(tmp_path: Path) -> None:
    with s3_server() as address:
        machine = Machine(tmp_path / "cache", make_bucket(address, "candidates"))
        write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="kp:trace:1")])
        machine.run(tmp_path / "archive")
        write_jsonl(tmp_path / "archive" / "b.jsonl", [trace(id="kp:trace:2")])
        store = store_at(machine.url)
        before = {each.path for each in store.objects()}
        with pytest.raises(AuditError):
            machine.run(tmp_path / "archive", **REFUSED)
        new = {each.path for each in store.objects()} - before
        assert {path.partition("/")[0] for path in new} == {"rejects", "runs", "log"}
        assert machine.ask("SELECT count(*) FROM scores") == [(1,)]
        with machine.here() as copy:
            assert published(copy, "candidate").scored == 2
        other = Machine(tmp_path / "other", machine.url)
        other.run(tmp_path / "archive")
        with machine.here() as copy, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Mirror, "prune_to", is_broken)
            with pytest.raises(OSError, match="it fails"):
                refresh(copy)
        assert machine.ask("SELECT count(*) FROM scores") == [(2,)]
        with machine.here() as copy, pytest.raises(WarehouseError, match="no candidate"):
            published(copy, "candidate")
