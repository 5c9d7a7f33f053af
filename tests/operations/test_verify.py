"""Published traces computed from scratch: sound ones verify, and any tampering is found."""

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from kp_batch.cli.options import json_line
from kp_batch.embedding.chunks import write_chunk
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import ArchiveError, DamagedVectorsError, WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.operations.verify import VECTOR_TOLERANCE, Verification, verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report.run_summary import Summary
from kp_batch.warehouse.manifest import read_manifest
from tests.support import GOLDEN
from tests.support.make.archives import write_jsonl
from tests.support.make.hourly import WORDS, of_several_caches, said, settings_of, write
from tests.support.make.publications import files_of
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows
from tests.support.read.schemas import TypeAdapter

pytestmark = pytest.mark.slow

ALL = 1_000


def checked(folder: Path, traces: int = ALL, *, seed: int = 0, embed: bool = True) -> Verification:
    return verify(folder / "warehouse", traces=traces, seed=seed, embed=embed)


def differing(result: Verification) -> dict[str, str | None]:
    """The columns that differ, each with the trace that shows it."""
    return {
        difference["column"]: difference["trace_id"]
        for difference in result.differences
        if difference["max_difference"]
    }


def assert_sound(folder: Path, traces: int) -> None:
    for embed in (True, False):
        result = checked(folder, embed=embed)
        assert (result.missing, result.sampled, result.checked) == (0, traces, traces)
        assert differing(result) == {}
        assert result.wrong == ""
        assert embed or result.differences[-1]["max_difference"] is None


# --- what is sound ---


def without_an_encoder(folder: Path) -> int:
    write(folder, *range(8))
    rescore_archive(settings_of(folder, embedder="none"))
    return 8


def of_zero_vectors_in_a_cache_of_one(folder: Path) -> int:
    write_jsonl(folder / "archive" / "a.jsonl", [said(n, "!") for n in range(4)])
    rescore_archive(settings_of(folder, cache_size=1))
    return 4


def night_after_night(folder: Path) -> int:
    write(folder, 0, 3, 7)
    rescore_archive(settings_of(folder))
    write(folder, 1, 2, name="b.parquet", confidence=0.3)
    rescore_archive(settings_of(folder))
    write(folder, 0, 3, task_domain="finance")
    write(folder, 4, 5, 6, name="c.jsonl")
    rescore_archive(settings_of(folder, ttl="3h"))
    return 7


def at_one_moment_with_refused_and_repeated_rows(folder: Path) -> int:
    """And with a cache that no memory would hold."""
    moment = {"created_at": "2026-01-05T20:00:00.000001Z"}
    twin = said(1, WORDS[1], type="Other", agent_id="another", framework="another")
    rows = [said(n, WORDS[n], **moment) for n in range(8)]
    write_jsonl(folder / "archive" / "a.jsonl", [*rows[:2], twin, *rows[2:]])
    refused = [said(1, WORDS[1], type="Other", agent_id="another"), said(9, "", confidence=7.0)]
    write_jsonl(folder / "archive" / "b.jsonl", [rows[2], rows[5], rows[2], b"no json", *refused])
    rescore_archive(settings_of(folder, cache_size=10**12))
    return 8


@pytest.mark.parametrize(
    "make",
    [
        without_an_encoder,
        of_zero_vectors_in_a_cache_of_one,
        night_after_night,
        at_one_moment_with_refused_and_repeated_rows,
    ],
)
def test_law_what_runs_made_verifies_to_the_bit(
    tmp_path: Path, make: Callable[[Path], int]
) -> None:
    assert_sound(tmp_path, make(tmp_path))


# --- what is not ---


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    write(folder, 0, 1, 2, 3)
    write(folder, 4, 5, 6, 7, name="b.parquet")
    rescore_archive(settings_of(folder))
    keep(folder)
    return folder


@pytest.fixture
def folder(sound: Path) -> Path:
    """The same warehouse again, at the same path, whatever the last test made of it."""
    restore(sound)
    return sound


def test_law_what_one_run_made_verifies_to_the_bit_and_after_vacuum_and_forget(
    folder: Path,
) -> None:
    assert_sound(folder, 8)
    forget(folder / "warehouse", ["t2"])
    vacuum(folder / "warehouse", timedelta(0), datetime.now().astimezone())
    assert_sound(folder, 7)


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Path) -> None:
    path = next(folder.rglob("b.parquet"))
    path.unlink()
    os.mkfifo(path)
    result = checked(folder)
    assert (result.sampled, result.checked, result.wrong) == (8, 4, "")


def tamper(folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change the published scores behind everyone's back."""
    manifest = read_manifest(folder / "warehouse")
    assert manifest
    for path in files_of(folder / "warehouse", "scores"):
        change(pl.read_parquet(path, hive_partitioning=False)).write_parquet(path)


def setting(trace_id: str, name: str, value: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    is_it = pl.col("trace_id") == trace_id
    return lambda rows: rows.with_columns(pl.when(is_it).then(value).otherwise(name).alias(name))


SLIGHTLY = 1 + 2.0**-52


def test_a_changed_value_of_any_column_is_found(folder: Path) -> None:
    values = {
        "score": pl.col("score") * SLIGHTLY,
        "composite": pl.col("composite") * SLIGHTLY,
        "novelty": pl.col("novelty") * SLIGHTLY,
        "nearest_trace_id": pl.lit("t0"),
        "nearest_age_s": pl.col("nearest_age_s") + 1e-6,
        "cached_vectors": pl.col("cached_vectors") + 1,
        "complexity": pl.col("complexity") + 0.05,
        "tool_diversity": pl.lit(0.5),
        "outcome_confidence": pl.col("outcome_confidence") * SLIGHTLY,
        "single_thought": ~pl.col("single_thought"),
        "low_diversity_penalty": ~pl.col("low_diversity_penalty"),
        "success": ~pl.col("success"),
        "task_domain": pl.lit("finance"),
        "framework": pl.lit("another"),
    }
    for name, value in values.items():
        tamper(folder, setting("t4", name, value))
    result = checked(folder, embed=False)
    assert differing(result) == dict.fromkeys(differing(result), "t4")
    assert values.keys() <= differing(result).keys()
    for name in values:
        assert f"{name} of t4 is off by" in result.wrong


@pytest.mark.parametrize("value", [pl.col("score") * SLIGHTLY, pl.lit(float("nan"))])
def test_a_changed_score_alone_is_found(folder: Path, value: pl.Expr) -> None:
    tamper(folder, setting("t4", "score", value))
    result = checked(folder, embed=False)
    assert differing(result) == {"score": "t4"}
    assert result.wrong.startswith("score of t4 is off by")


def test_several_caches_verify_and_another_one_than_of_the_row_and_its_path_is_found(
    tmp_path: Path,
) -> None:
    assert_sound(tmp_path, of_several_caches(tmp_path))
    tamper(tmp_path, setting("t4", "cache_group", pl.lit('{"agent_id":"x","host":"b"}')))
    assert differing(checked(tmp_path))["cache_group"] == "t4"
    tamper(tmp_path, setting("t4", "cache_group", pl.lit('{"agent_id":"y","host":"b"}')))
    assert checked(tmp_path).wrong == ""
    manifest = read_manifest(tmp_path / "warehouse")
    assert manifest
    [path] = files_of(tmp_path / "warehouse", "files")
    moved = pl.col("path_keys").str.replace('"a"', '"other"', literal=True)
    pl.read_parquet(path).with_columns(moved).write_parquet(path)
    assert differing(checked(tmp_path)).keys() == {"cache_group"}


@pytest.mark.parametrize("hours", [-1.5, 0.5, 30])
def test_a_changed_time_is_found(folder: Path, hours: float) -> None:
    value = pl.col("created_at") + timedelta(hours=hours)
    tamper(folder, setting("t4", "created_at", value))
    result = checked(folder)
    assert differing(result)["created_at"] == "t4"
    assert "created_at of t4 is off by" in result.wrong


@pytest.mark.parametrize("name", ["encoder_id", "cache_id", "profile_id", "text_hash"])
def test_a_changed_fingerprint_is_reported_in_some_way(folder: Path, name: str) -> None:
    other = {
        "encoder_id": "none",
        "cache_id": "fifo-1-ttl-none-v1",
        "profile_id": "another",
        "text_hash": "0" * 64,
    }
    tamper(folder, setting("t4", name, pl.lit(other[name])))
    try:
        result = checked(folder)
    except WarehouseError as error:
        assert error.code == "missing_vectors"  # noqa: PT017
    else:
        assert result.wrong


@pytest.mark.telling
def test_a_removed_score_is_missing(folder: Path) -> None:
    tamper(folder, lambda rows: rows.filter(pl.col("trace_id") != "t4"))
    result = checked(folder)
    assert (result.missing, result.sampled) == (1, 7)
    assert "no score for 1 trace of the archive" in result.wrong


@pytest.mark.telling
def test_a_score_of_no_trace_of_the_archive_shows_in_those_that_meet_it(folder: Path) -> None:
    tamper(
        folder,
        lambda rows: pl.concat(
            [rows, rows.filter(trace_id="t4").with_columns(trace_id=pl.lit("alien"))]
        ),
    )
    result = checked(folder)
    assert (result.sampled, result.checked) == (9, 8)
    assert result.wrong


def vectors(folder: Path) -> tuple[Path, np.ndarray]:
    [path] = (folder / "warehouse" / "vectors" / Hashing.encoder_id).glob("*.vectors.npy")
    return path, np.load(path)


def store(folder: Path, changed: np.ndarray) -> None:
    """Store other vectors in place of the ones that were made, as a faulty encoder would."""
    path, _ = vectors(folder)
    hashes = path.with_name(path.name.replace("vectors", "hashes"))
    texts = pl.Series(np.load(hashes)["hash"].astype(str))
    path.unlink()
    hashes.unlink()
    write_chunk(path.parent, texts, changed)


def place(folder: Path, words: str) -> int:
    """The row of a text's vector."""
    [vector] = Hashing().encode([f"{words} {words}"])
    [row] = np.flatnonzero((vectors(folder)[1] == vector).all(axis=1))
    return int(row)


def test_a_turned_component_of_a_vector_is_found_where_it_changes_a_novelty(folder: Path) -> None:
    _, stored = vectors(folder)
    row = place(folder, "fix the import")
    stored[row, np.flatnonzero(stored[row])[0]] *= -1
    store(folder, stored)
    for embed in (True, False):
        result = checked(folder, embed=embed)
        assert "novelty" in differing(result)
        assert ("vector" in differing(result)) is embed
        assert "novelty of" in result.wrong


def test_a_turned_component_is_found_where_it_changes_no_novelty(folder: Path) -> None:
    """No other text has the word, and what is nearest stays so without it."""
    _, stored = vectors(folder)
    row = place(folder, "plan a trip")
    others = np.delete(stored, row, axis=0)
    alone = np.flatnonzero((stored[row] != 0) & ~others.any(axis=0))
    stored[row, alone[0]] *= -1
    store(folder, stored)
    assert checked(folder, embed=False).wrong == ""
    result = checked(folder)
    assert differing(result) == {"vector": "t5"}
    assert result.wrong.startswith("vector of t5 is off by ")


def test_a_difference_within_the_tolerance_of_embedding_is_none(folder: Path) -> None:
    _, stored = vectors(folder)
    row = place(folder, "plan a trip")
    others = np.delete(stored, row, axis=0)
    alone = np.flatnonzero((stored[row] == 0) & ~others.any(axis=0))[0]
    tolerance = VECTOR_TOLERANCE["float32"]
    for value, is_wrong in ((tolerance / 2, False), (tolerance * 2, True)):
        stored[row, alone] = value
        store(folder, stored)
        result = checked(folder)
        assert differing(result).get("vector") == "t5"
        assert ("vector of t5" in result.wrong) is is_wrong


@pytest.mark.parametrize(("value", "embed"), [(np.nan, True), (-np.inf, False)])
def test_a_vector_that_is_no_number_is_found(folder: Path, value: float, *, embed: bool) -> None:
    _, stored = vectors(folder)
    stored[place(folder, "plan a trip"), 7] = value
    store(folder, stored)
    result = checked(folder, embed=embed)
    assert {"novelty", "score", "vector"} <= differing(result).keys()
    assert "novelty of t5 is off by" in result.wrong
    assert "vector of t5 is off by inf" in result.wrong


@pytest.mark.telling
def test_a_damaged_vector_is_an_error_that_names_its_file(folder: Path) -> None:
    path, stored = vectors(folder)
    stored[place(folder, "plan a trip"), 7] += 0.5
    np.save(path, stored)
    for traces in (0, ALL):
        with pytest.raises(DamagedVectorsError, match=rf"1 vector in {path}"):
            checked(folder, traces)
    assert checked(folder, 0, embed=False).wrong == ""
    with pytest.raises(DamagedVectorsError, match=f"^{path} is damaged: row"):
        checked(folder, embed=False)


def restored(folder: Path) -> Summary:
    summary = rescore_archive(settings_of(folder).model_copy(update={"restore_vectors": True}))
    assert summary.counts.rescored == summary.counts.replayed == 0
    return summary


@pytest.mark.telling
def test_vectors_that_are_gone_can_be_made_again_and_no_score_changes(folder: Path) -> None:
    before = ask_rows(settings_of(folder).warehouse, "FROM scores ORDER BY trace_id")
    path, stored = vectors(folder)
    path.unlink()
    with fails_with(WarehouseError, "missing_vectors", r"are not in .* --restore-vectors makes"):
        checked(folder)
    assert restored(folder).counts.embedded == len(stored)
    assert checked(folder).wrong == ""
    assert ask_rows(settings_of(folder).warehouse, "FROM scores ORDER BY trace_id") == before
    words = "SELECT changes->>'$[0].words' FROM runs ORDER BY started_at DESC LIMIT 1"
    assert ask_rows(settings_of(folder).warehouse, words) == [("missing vectors to be restored",)]
    assert restored(folder).run_id is None


@pytest.mark.telling
def test_damaged_vectors_that_no_run_needs_are_made_again(folder: Path) -> None:
    path, stored = vectors(folder)
    stored[place(folder, "plan a trip")] = 0
    np.save(path, stored)
    assert restored(folder).counts.embedded == 1
    assert checked(folder).wrong == ""


def test_vectors_of_files_that_are_gone_are_not_made_again_and_one_is_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, stored = vectors(folder)
    path.unlink()
    lost = folder / "archive" / "b.parquet"
    lost.rename(folder / "b.parquet")
    assert 0 < restored(folder).counts.embedded < len(stored)
    assert (
        f"cannot be made again: their files are gone or unreadable (such as {lost})" in caplog.text
    )
    assert restored(folder).run_id is None
    (folder / "b.parquet").rename(lost)
    assert restored(folder).counts.embedded > 0
    assert checked(folder).wrong == ""


def test_a_changed_profile_is_found(folder: Path) -> None:
    manifest = read_manifest(folder / "warehouse")
    assert manifest
    [path] = files_of(folder / "warehouse", "profiles")
    weights = pl.col("novelty") + 0.1, pl.col("outcome_confidence") - 0.1
    pl.read_parquet(path).with_columns(weights).write_parquet(path)
    assert {"composite", "score"} <= differing(checked(folder)).keys()


# --- what cannot be verified ---


@pytest.mark.telling
def test_one_of_each_is_reported_in_the_singular() -> None:
    line = str(Verification(0, 0, 2, 1, (), "")).splitlines()[0]
    assert line == "1 trace verified (--seed 0), 1 skipped: its file is gone or changed"


@pytest.mark.telling
def test_changed_and_lost_files_are_skipped_and_counted(folder: Path) -> None:
    write(folder, 0, 1, 2)
    result = checked(folder)
    assert (result.missing, result.sampled, result.checked) == (0, 8, 4)
    assert result.wrong == ""
    assert str(result).splitlines()[0] == (
        "4 traces verified (--seed 0), 4 skipped: their files are gone or changed"
    )
    (folder / "archive" / "b.parquet").unlink()
    result = checked(folder)
    assert (result.sampled, result.checked) == (8, 0)
    assert result.wrong == (
        "nothing could be checked: the files of all drawn traces (8) are gone, unreadable "
        "or changed"
    )
    assert {difference["max_difference"] for difference in result.differences} == {None}
    text = str(result)
    assert text.startswith("0 traces verified (--seed 0), 8 skipped")
    assert text.count("not compared") == len(result.differences)


@pytest.mark.telling
def test_a_file_that_is_a_folder_now_is_skipped(folder: Path) -> None:
    (folder / "archive" / "b.parquet").unlink()
    (folder / "archive" / "b.parquet").mkdir()
    assert checked(folder).checked == 4


def test_files_that_the_last_run_missed_are_skipped(folder: Path) -> None:
    content = (folder / "archive" / "b.parquet").read_bytes()
    (folder / "archive" / "b.parquet").unlink()
    rescore_archive(settings_of(folder))
    (folder / "archive" / "b.parquet").write_bytes(content)
    result = checked(folder)
    assert (result.sampled, result.checked, result.wrong) == (8, 4, "")


@pytest.mark.parametrize(("traces", "sampled"), [(1, 1), (8, 8), (10**9, 8)])
def test_a_sample_is_at_the_most_all(folder: Path, traces: int, sampled: int) -> None:
    result = checked(folder, traces)
    assert (result.sampled, result.checked, result.wrong) == (sampled, sampled, "")


def test_a_sample_is_drawn_by_its_seed(folder: Path) -> None:
    tamper(folder, setting("t4", "score", pl.lit(0.0)))
    drawn = [checked(folder, 4, seed=seed, embed=False).wrong for seed in (*range(4), *range(4))]
    assert set(map(bool, drawn)) == {True, False}
    assert drawn[:4] == drawn[4:]


@pytest.mark.telling
def test_verifying_changes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "warehouse").rglob("*")}
    checked(folder)
    assert {path: path.stat().st_mtime_ns for path in (folder / "warehouse").rglob("*")} == before
    assert ask_rows(settings_of(folder).warehouse, "SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.telling
def test_a_person_reads_the_column_the_difference_and_the_trace(folder: Path) -> None:
    tamper(folder, setting("t4", "score", pl.col("score") + 0.25))
    lines = str(checked(folder)).splitlines()
    assert lines[0] == "8 traces verified (--seed 0)"
    [line] = [line for line in lines if line.split()[:1] == ["score"]]
    assert line.split() == ["score", "0.25", "0", "t4"]


@pytest.mark.telling
def test_its_json_is_the_golden_text(folder: Path) -> None:
    _, stored = vectors(folder)
    stored[place(folder, "plan a trip"), 7] = np.inf
    store(folder, stored)
    tamper(folder, setting("t4", "score", pl.lit(2.0**60)))
    result = checked(folder, embed=False)
    assert TypeAdapter(Verification).validate_json(json_line(result), strict=True) == result
    assert json_line(result) == (GOLDEN / "verification.json").read_text("utf-8").rstrip()


def test_a_warehouse_without_scores_verifies(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [said(0, "refused", confidence=7.0)])
    with pytest.raises(ArchiveError):
        rescore_archive(settings_of(tmp_path))
    assert_sound(tmp_path, 0)


def test_no_warehouse_is_reported(tmp_path: Path) -> None:
    with fails_with(WarehouseError, "no_warehouse"):
        checked(tmp_path)


@pytest.mark.parametrize("name", ["trace_id", "content_hash", "source_file"])
def test_a_scored_trace_that_is_in_no_file_is_found(folder: Path, name: str) -> None:
    tamper(folder, setting("t4", name, pl.lit("invented")))
    result = checked(folder)
    assert "1 scored trace (such as " in result.wrong
    assert "no known file has the content of" in result.wrong
