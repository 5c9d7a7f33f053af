"""The whole run, without Prefect: what it publishes, and what it never does."""

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.exceptions import PanicException

import kp_batch.archive.reading
import kp_batch.ingest.scan
import kp_batch.pipeline.rescore
import kp_batch.planning.timeline
import kp_batch.planning.write_tasks
from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.embedding.chunks import count_vectors, damaged_rows
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import (
    ArchiveError,
    KpBatchError,
    ProfileError,
    SettingError,
    StorageError,
    explain_error,
)
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.run_summary import Summary
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_damaged, write_jsonl, write_parquet
from tests.support.make.runs import config, facts, scores
from tests.support.make.sample import write_sample
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    write_sample(folder, traces=300, days=5, seed=3)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> tuple[RescoreConfig, Summary]:
    """The settings of the first run over the archive, and what it said."""
    settings = config(tmp_path_factory.mktemp("scored") / "made", archive)
    summary = rescore_archive(settings)
    keep(settings.warehouse)
    return settings, summary


@pytest.fixture
def scored(made: tuple[RescoreConfig, Summary]) -> RescoreConfig:
    """The same, whatever the last test made of the warehouse."""
    restore(made[0].warehouse)
    return made[0]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> tuple[RescoreConfig, Summary]:
    """A run with a small cache that soon forgets."""
    folder = tmp_path_factory.mktemp("short")
    settings = config(folder, archive, cache_size=50, ttl="12h")
    return settings, rescore_archive(settings)


@pytest.mark.telling
def test_a_second_run_has_nothing_to_do_and_publishes_nothing(
    made: tuple[RescoreConfig, Summary], scored: RescoreConfig
) -> None:
    settings, first = scored, made[1]
    before, published = scores(settings), read_manifest(settings.warehouse)
    second = rescore_archive(settings)
    assert second.run_id is None
    done = ("embedded", "reused", "replayed", "rescored", "reweighted", "removed", "partitions")
    assert second.counts == replace(first.counts, **dict.fromkeys(done, 0))
    assert second.scores == first.scores
    assert scores(settings).equals(before)
    assert read_manifest(settings.warehouse) == published
    assert ask_rows(settings.warehouse, "SELECT run_id FROM runs") == [(first.run_id,)]
    assert len(before) == first.counts.accepted == first.counts.replayed == 300


def test_another_cache_and_back_embeds_nothing_and_gives_the_same(
    made: tuple[RescoreConfig, Summary], scored: RescoreConfig
) -> None:
    settings, first = scored, made[1]
    before = scores(settings)
    assert first.counts.embedded > 100
    for changed in (settings.model_copy(update={"cache_size": 50}), settings):
        counts = rescore_archive(changed).counts
        assert (counts.embedded, counts.reused) == (0, first.counts.embedded)
        # The first 51 traces have the same cache in both.
        assert (counts.replayed, counts.rescored, counts.reweighted) == (249, 300, 0)
        assert scores(changed).equals(before) == (changed == settings)
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM runs") == [(3,)]


def test_ranges_batches_and_file_order_change_nothing(
    tmp_path: Path,
    archive: Path,
    short: tuple[RescoreConfig, Summary],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kp_batch.planning.timeline, "RANGE_ROWS", 37)
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", 29)
    monkeypatch.setattr(kp_batch.archive.reading, "BATCH_ROWS", 11)
    monkeypatch.setattr(kp_batch.ingest.scan, "MAX_PART_BYTES", 1)
    files = sorted(archive.iterdir(), reverse=True)
    parts = config(tmp_path, *files, cache_size=50, ttl="12h")
    rescore_archive(parts)
    assert scores(parts).equals(scores(short[0]))


def test_an_interrupted_embedding_keeps_the_chunks_it_made(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path, archive)
    monkeypatch.setattr(Hashing, "chunk_size", 50)
    encode, calls = Hashing.encode, []

    def interrupted(self: Hashing, texts: Sequence[str]) -> np.ndarray:
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, texts)

    monkeypatch.setattr(Hashing, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rescore_archive(settings)
    stored = [count_vectors(path) for path in Layout(settings.warehouse).all_vectors.iterdir()]
    counts = rescore_archive(settings).counts
    assert counts.reused == sum(stored) >= 100
    assert counts.embedded > 0


def test_damaged_vectors_are_made_again_by_a_run_that_needs_them(
    scored: RescoreConfig,
    short: tuple[RescoreConfig, Summary],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = Layout(scored.warehouse).vectors(Hashing.encoder_id)
    [path] = folder.glob("*.vectors.npy")
    vectors = np.lib.format.open_memmap(path, mode="r+")
    vectors[3] = 0
    vectors[7] *= -1  # a unit vector still
    vectors.flush()
    changed = scored.model_copy(update={"cache_size": 50, "ttl": short[0].ttl})
    assert rescore_archive(changed).counts.embedded == 2
    assert scores(changed).equals(scores(short[0]))
    assert [f"{path} is damaged: row 3" in record.message for record in caplog.records] == [True]
    assert not [*damaged_rows(folder)]


def test_rows_within_a_file_are_in_time_order(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.planning.timeline, "RANGE_ROWS", 20)
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", 20)
    profiles = tmp_path / "profiles.toml"
    profiles.write_text("[profiles.default]\n" + "\n".join(f"{name} = 0.25" for name in DIMENSIONS))
    changes = [{}, {"cache_size": 50}, {"cache_size": 50, "profiles": profiles}]
    for change in changes:
        settings = config(tmp_path, archive, **change)
        assert rescore_archive(settings).run_id
    days = sorted((settings.warehouse / "scores").glob("date=*"))
    assert len(days) == 5
    for day in days:
        by_run: dict[str, list[Path]] = {}
        for path in sorted(day.glob("*.parquet")):
            by_run.setdefault(path.stem.rpartition("-")[0], []).append(path)
        assert len(by_run) == len(changes)
        for paths in by_run.values():  # no file has a row of before another's
            assert len(paths) > 1
            frame = pl.read_parquet(paths, hive_partitioning=False)
            assert frame["created_at"].is_sorted()
            assert set(frame["created_at"].dt.strftime("date=%Y-%m-%d")) == {day.name}
    monkeypatch.undo()
    whole = settings.model_copy(update={"warehouse": tmp_path / "whole"})
    rescore_archive(whole)
    assert scores(whole).equals(scores(settings))


def test_too_many_rejects_publish_their_reasons_and_no_scores(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    write_parquet(good, [trace(id=f"kp:trace:{n}") for n in range(9)])
    rescore_archive(config(tmp_path, good))
    write_parquet(bad, [trace(id="kp:trace:bad", confidence=7.0, success=None)])
    with pytest.raises(ArchiveError, match=r"1 of 10 rows is rejected.*5%.*bad_confidence 1"):
        rescore_archive(config(tmp_path, good, bad))
    settings = config(tmp_path, good, bad)
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM scores") == [(9,)]
    assert ask_rows(settings.warehouse, "SELECT trace_id, reasons FROM rejects") == [
        ("kp:trace:bad", ["missing_success", "bad_confidence"])
    ]
    runs = ask_rows(settings.warehouse, "SELECT status, reason FROM runs ORDER BY started_at")
    assert runs[0] == ("done", None)
    assert runs[1][0] == "failed"
    assert "1 of 10 rows" in runs[1][1]
    rescore_archive(config(tmp_path, good, bad, max_reject_share=0.1))
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM scores") == [(9,)]


def test_superseded_rows_and_unreadable_files_fail_no_run_nor_does_a_warehouse_among_them(
    tmp_path: Path,
) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(objective="old")])
    write_jsonl(tmp_path / "b.jsonl", [trace(objective="new")])
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and no more")
    settings = config(tmp_path, tmp_path, max_reject_share=0)
    counts = rescore_archive(settings).counts
    assert counts.rejected_by_code == {"superseded": 1, "unreadable_file": 1}
    assert (counts.rows, counts.accepted, counts.rejected) == (2, 1, 0)
    assert counts.unreadable_files == [str(tmp_path / "c.parquet")]
    assert ask_rows(settings.warehouse, "SELECT source_file FROM scores") == [
        (str(tmp_path / "b.jsonl"),)
    ]
    assert rescore_archive(settings).counts.files == counts.files == 3  # not the warehouse's


def test_a_damaged_file_leaves_none_of_its_rows_in_any_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.archive.reading, "BATCH_ROWS", 2)
    write_parquet(tmp_path / "a.parquet", [trace(id="good")])
    rows = [trace(id=str(number)) for number in range(8)]
    write_damaged(tmp_path / "b.parquet", rows, good=4)
    settings = config(tmp_path, tmp_path, warehouse=tmp_path / "_warehouse")
    counts = rescore_archive(settings).counts
    assert (counts.rows, counts.accepted) == (1, 1)
    assert facts(settings)["trace_id"].to_list() == ["good"]
    assert ask_rows(settings.warehouse, "SELECT trace_id FROM scores") == [("good",)]
    write_parquet(tmp_path / "b.parquet", rows)
    assert rescore_archive(settings).counts.accepted == 9
    assert len(facts(settings)) == 9


def test_an_archive_without_an_acceptable_row_fails(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(objective="")])
    settings = config(tmp_path, tmp_path / "a.parquet", max_reject_share=1)
    with pytest.raises(ArchiveError, match="none of the archive's 1 row"):
        rescore_archive(settings)
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM scores") == [(0,)]
    assert ask_rows(settings.warehouse, "SELECT reasons FROM rejects") == [(["empty_objective"],)]


def test_faulty_profiles_are_refused_before_a_run_begins(tmp_path: Path, archive: Path) -> None:
    faulty = tmp_path / "profiles.toml"
    faulty.write_text("[profiles.code]\ncomplexity = 1.5\n")
    with pytest.raises(ProfileError, match="fault"):
        config(tmp_path, archive, profiles=faulty)


def test_a_run_that_fails_while_it_looks_at_the_archive_leaves_its_row(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(kp_batch.pipeline.rescore, "scan_archive", fail)
    settings = config(tmp_path, archive)
    with pytest.raises(OSError, match="the disk is gone"):
        rescore_archive(settings)
    assert ask_rows(settings.warehouse, "SELECT status FROM runs") == [("failed",)]
    assert not (settings.warehouse / "staging").exists()


def test_a_run_that_the_disk_or_the_network_failed_leaves_its_row(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("read failed 4 times")

    monkeypatch.setattr(kp_batch.pipeline.rescore, "scan_archive", fail)
    with pytest.raises(StorageError):
        rescore_archive(config(tmp_path, archive))
    query = "SELECT status, reason FROM runs"
    assert ask_rows(config(tmp_path, archive).warehouse, query) == [
        ("failed", "read failed 4 times")
    ]


def test_what_fails_once_a_run_is_published_undoes_nothing(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    settings = config(tmp_path, archive)
    with monkeypatch.context() as patch:
        patch.setattr(kp_batch.pipeline.rescore, "summarise", fail)
        with pytest.raises(OSError, match="the disk is full"):
            rescore_archive(settings)
    assert ask_rows(settings.warehouse, "SELECT status FROM runs") == [("done",)]
    assert rescore_archive(settings).run_id is None


def test_profiles_hold_all_of_the_settings_and_scores_bear_some(tmp_path: Path) -> None:
    write_parquet(
        tmp_path / "a.parquet",
        [trace(id="1", task_domain="code"), trace(id="2", task_domain="poetry")],
    )
    settings = config(tmp_path, tmp_path / "a.parquet")
    rescore_archive(settings)
    query = (
        "SELECT s.task_domain, p.name, p.novelty FROM scores s JOIN profiles p USING (profile_id)"
    )
    assert sorted(ask_rows(settings.warehouse, query)) == [
        ("code", "code", 0.3),
        ("poetry", "default", 0.35),
    ]
    known = [
        (profile.profile_id, *astuple(profile), [None]) for profile in load_profiles().profiles
    ]
    assert ask_rows(settings.warehouse, "FROM profiles") == sorted(known)


def test_the_threshold_is_met_by_a_score_equal_to_it(scored: RescoreConfig) -> None:
    [(score,)] = ask_rows(scored.warehouse, "SELECT quantile_disc(score, 0.5) FROM scores")
    exact = scored.model_copy(update={"threshold": score})
    rescore_archive(exact)
    query = "SELECT bool_and(meets_threshold = (score >= ?)), bool_or(meets_threshold) FROM scores"
    with connect(exact.warehouse) as connection:
        assert connection.execute(query, [score]).fetchall() == [(True, True)]
        query = "SELECT bool_and(meets_threshold) FROM scores WHERE score = ?"
        assert connection.execute(query, [score]).fetchall() == [(True,)]


def test_a_row_of_runs_describes_the_run(
    archive: Path, short: tuple[RescoreConfig, Summary]
) -> None:
    settings, summary = short
    [row] = ask_rows(
        settings.warehouse, "SELECT run_id, config, inputs, counts, seconds, versions FROM runs"
    )
    run_id, recorded_config, inputs, counts, seconds, versions = row
    assert run_id == summary.run_id
    assert RescoreConfig(**json.loads(recorded_config)) == settings
    files = sorted(map(str, archive.iterdir()))
    assert [entry["source_file"] for entry in json.loads(inputs)] == files
    assert [entry["status"] for entry in json.loads(inputs)] == ["read"] * len(files)
    assert json.loads(counts) == asdict(summary.counts)
    steps = ["read", "plan", "embed", "replay", "write"]
    assert list(json.loads(seconds)) == ["start", *steps]
    assert json.loads(versions)["polars"] == pl.__version__
    assert ask_rows(settings.warehouse, "SELECT DISTINCT run_id, cache_id FROM scores") == [
        (run_id, "fifo-50-ttl-12h-v1")
    ]


def test_a_row_of_runs_says_what_computed_the_current_scores(
    scored: RescoreConfig, archive: Path
) -> None:
    weights = dict.fromkeys(DIMENSIONS, 0.25)
    [[middle]] = ask_rows(
        scored.warehouse, "SELECT median(created_at) FROM scores WHERE task_domain = 'code'"
    )
    dated = [
        {**weights, "complexity": 0.3, "novelty": 0.2},
        {"from": middle.isoformat(), **weights},
    ]
    rescore_archive(config(scored.warehouse.parent, archive, profiles={"code": dated}))
    query = "SELECT fingerprints FROM runs ORDER BY started_at DESC LIMIT 1"
    fingerprints = json.loads(ask_rows(scored.warehouse, query)[0][0])
    assert (
        len(
            [
                profile_id
                for profile_id in fingerprints["profile_id"]
                if profile_id.startswith("code-")
            ]
        )
        == 2
    )
    for name, counts in fingerprints.items():
        assert counts == dict(
            ask_rows(scored.warehouse, f"SELECT {name}, count(*) FROM scores GROUP BY ALL")
        )


def test_without_an_embedder_novelty_is_a_half_and_a_late_trace_is_scored_alone(
    tmp_path: Path, archive: Path
) -> None:
    rescore_archive(config(tmp_path, archive, embedder="none"))
    late = tmp_path / "late.jsonl"
    write_jsonl(late, [trace(id="kp:late", created_at="2026-01-07T08:00:00Z")])
    settings = config(tmp_path, archive, late, embedder="none")
    counts = rescore_archive(settings).counts
    assert (counts.replayed, counts.rescored, counts.partitions) == (1, 1, 1)
    assert ask_rows(
        settings.warehouse,
        "SELECT DISTINCT novelty, max_similarity, nearest_trace_id, encoder_id FROM scores",
    ) == [(0.5, None, None, "none")]


def test_a_failed_run_after_a_lost_catalog_takes_no_score_away(
    tmp_path: Path, archive: Path, scored: RescoreConfig
) -> None:
    (scored.warehouse / "kp.duckdb").unlink()
    refused = tmp_path / "refused.jsonl"
    write_jsonl(refused, [trace(id="")])
    with pytest.raises(ArchiveError):
        rescore_archive(config(scored.warehouse.parent, archive, refused, max_reject_share=0))
    assert ask_rows(scored.warehouse, "SELECT count(*) FROM scores") == [(300,)]
    assert ask_rows(scored.warehouse, "SELECT count(*) FROM runs") == [(2,)]


def test_a_panic_of_a_library_leaves_a_failed_run(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object) -> None:
        raise PanicException("index\nout of bounds")

    monkeypatch.setattr(kp_batch.pipeline.rescore, "embed", panic)
    settings = config(tmp_path, archive)
    with pytest.raises(PanicException):
        rescore_archive(settings)
    [(status, reason)] = ask_rows(settings.warehouse, "SELECT status, reason FROM runs")
    assert (status, reason.partition(";")[0]) == ("failed", "unexpected PanicException")


@pytest.mark.telling
def test_a_fault_of_ours_is_one_line_that_names_the_log(tmp_path: Path) -> None:
    error = explain_error(ZeroDivisionError("division\nby zero"), str(tmp_path / "log"))
    assert isinstance(error, KpBatchError)
    expected = f"unexpected ZeroDivisionError: division by zero; details are in {tmp_path / 'log'}"
    assert str(error) == expected


def test_scattered_days_are_written_as_a_full_run_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late traces on every second day: what is written has gaps, read and passed over."""
    archive = tmp_path / "archive"
    often = [
        trace(id=f"{n}", created_at=f"2026-01-{1 + n // 2:02d}T08:0{n % 2}:00Z") for n in range(60)
    ]
    late = [trace(id=f"late{n}", created_at=f"2026-01-{n:02d}T23:00:00Z") for n in range(2, 30, 2)]
    write_jsonl(archive / "a.jsonl", often)
    settings = config(tmp_path, archive, ttl="1h")
    rescore_archive(settings)
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", 20)
    write_jsonl(archive / "b.jsonl", late)
    counts = rescore_archive(settings).counts
    assert (counts.partitions, counts.replayed) == (14, 14)
    whole = settings.model_copy(update={"warehouse": tmp_path / "whole"})
    rescore_archive(whole)
    assert scores(settings).equals(scores(whole))


@pytest.mark.telling
def test_vectors_cannot_be_restored_where_no_embedder_makes_any(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace()])
    settings = config(tmp_path, tmp_path / "archive", embedder="none", restore_vectors=True)
    with pytest.raises(SettingError, match=r"is none, .* leave out --restore-vectors"):
        rescore_archive(settings)
    assert read_manifest(settings.warehouse) is None
