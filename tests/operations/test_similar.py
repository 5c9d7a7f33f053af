"""The nearest traces of a whole archive: unlike those of a cache, they may be later."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from kp_batch.embedding.chunks import HASHES
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import DamagedVectorsError, KpBatchError, WarehouseError
from kp_batch.files import NAMED_PIPE
from kp_batch.operations.similar import SimilarTraces, similar_to_lines, similar_to_trace
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import lines, trace, write_jsonl
from tests.support.make.encoders import set_encoder
from tests.support.make.hourly import WORDS, eight_kept, said, settings_of, write
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import contents, restore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return eight_kept(tmp_path_factory.mktemp("similar") / "made")


@pytest.fixture
def eight(made: Path) -> Path:
    """A warehouse of the traces of `WORDS`, an hour apart."""
    restore(made)
    return made


def found(folder: Path, name: str, most: int = 10) -> SimilarTraces:
    return similar_to_trace(folder / "warehouse", name, most)


def ids(result: SimilarTraces) -> list[str]:
    return [each["trace_id"] for each in result.nearest]


@pytest.mark.telling
def test_the_nearest_are_earlier_and_later_whatever_the_cache(eight: Path) -> None:
    before = contents(eight / "warehouse")
    result = found(eight, "t4")
    assert contents(eight / "warehouse") == before
    assert ids(result)[:2] == ["t0", "t2"]  # its cache of three held only t2
    first, second, *_ = result.nearest
    assert (first["is_same_text"], first["age_s"]) == (True, 4 * 3600)
    assert round(first["similarity"], 6) == 1
    assert (second["is_same_text"], second["age_s"]) == (False, 2 * 3600)
    assert found(eight, "t0").nearest[0]["age_s"] == -4 * 3600
    assert (result.compared, result.other_encoders, result.missing) == (8, 0, 0)
    assert ids(found(eight, "t4", 1)) == ["t0"]


def test_nothing_is_similar_to_a_zero_vector_nor_is_one_to_anything(eight: Path) -> None:
    result = found(eight, "t3")
    assert (result.is_zero, result.nearest) == (True, ())
    assert not {"t3", "t6"} & {*ids(found(eight, "t0"))}
    text = invoke("similar", "t3", "--warehouse", eight / "warehouse").stdout
    assert "its vector is zero, and similar to none" in text


def test_vectors_of_no_trace_any_more_are_passed_over(eight: Path) -> None:
    # Nearly all of the nearest are of traces that the archive has no more.
    gone = [
        said(9, f"fix the import {'now ' * number}", id=f"g{number}") for number in range(1, 40)
    ]
    write_jsonl(eight / "archive" / "b.jsonl", gone)
    rescore_archive(settings_of(eight))
    wanted = ids(found(eight, "t4", 2))
    assert "g1" in wanted
    (eight / "archive" / "b.jsonl").unlink()
    rescore_archive(settings_of(eight, prune=True))
    assert ids(found(eight, "t4", 2)) == ["t0", "t2"]
    result = found(eight, "t4", 100)
    assert {*ids(result)} == {"t0", "t1", "t2", "t5", "t7"}
    assert result.compared == 8


def test_traces_of_another_encoder_are_counted_and_not_compared(eight: Path) -> None:
    set_encoder(eight / "warehouse", ("t0", "t7"), "another")
    result = found(eight, "t4")
    assert (result.compared, result.other_encoders, ids(result)[0]) == (6, 2, "t2")
    assert not {"t0", "t7"} & {*ids(result)}
    text = invoke("similar", "t4", "--warehouse", eight / "warehouse").stdout
    assert "not compared: 2 that have vectors of another encoder" in text


def test_missing_vectors_are_counted_and_reported(eight: Path) -> None:
    chunk = _only_chunk(eight)
    write_jsonl(eight / "archive" / "b.jsonl", [said(9, "count the stars", id="later")])
    rescore_archive(settings_of(eight))
    for path in chunk.parent.iterdir():
        if path not in _files(chunk):
            path.unlink()
    result = found(eight, "t4")
    assert (result.compared, result.missing) == (8, 1)
    assert "later" not in ids(result)
    done = invoke("similar", "t4", "--warehouse", eight / "warehouse")
    assert "not compared: 1 whose vectors are missing; kp-batch run --restore-ve" in done.stdout
    with pytest.raises(WarehouseError, match=r"the vector of later is not in .*--restore-vectors"):
        found(eight, "later")


def _only_chunk(folder: Path) -> Path:
    [chunk] = Layout(folder / "warehouse").vectors(Hashing.encoder_id).glob("*.vectors.npy")
    return chunk


def _files(chunk: Path) -> set[Path]:
    return {chunk, chunk.with_name(chunk.name.replace(".vectors.npy", HASHES))}


def test_a_damaged_vector_is_an_error_that_names_its_file(eight: Path) -> None:
    chunk = _only_chunk(eight)
    vectors = np.load(chunk)
    vectors[1, 0] += 1
    np.save(chunk, vectors)
    with pytest.raises(DamagedVectorsError, match=rf"{chunk.name} is damaged: row 1 .* makes it"):
        found(eight, "t4")
    # Once it is removed, what is left of it counts no more.
    hashes = chunk.with_name(chunk.name.replace(".vectors.npy", HASHES))
    records = np.load(hashes)
    records["hash"][1] = b""
    np.save(hashes, records)
    assert found(eight, "t7").missing + found(eight, "t7").compared == 8


def test_without_an_encoder_there_is_nothing_to_compare(tmp_path: Path) -> None:
    write(tmp_path, *range(3))
    rescore_archive(settings_of(tmp_path, embedder="none"))
    with fails_with(KpBatchError, "no_encoder", r"encoder, .* with an --embedder first"):
        found(tmp_path, "t1")
    with fails_with(KpBatchError, "no_encoder"):
        list(similar_to_lines(tmp_path / "warehouse", lines(trace()), datetime.now(UTC), 1))


def test_new_traces_are_compared_line_by_line(eight: Path) -> None:
    moment = datetime(2026, 1, 6, tzinfo=UTC)
    new = [said(0, words, id=f"n{number}") for number, words in enumerate(WORDS)]
    answers = similar_to_lines(eight / "warehouse", lines(*new), moment, 3)
    asked = [asdict(each) for each in answers]
    assert [each["line"] for each in asked] == [*range(1, 9)]
    for number, each in enumerate(asked):
        own = [near["trace_id"] for near in each["nearest"] if near["is_same_text"]]
        assert own == [f"t{n}" for n in range(8) if WORDS[n] == WORDS[number] != "!"]


def test_a_trace_of_the_same_id_is_left_out(eight: Path) -> None:
    [own] = similar_to_lines(
        eight / "warehouse", lines(said(0, "fix the import", id="t0")), datetime.now(UTC), 1
    )
    assert isinstance(own, SimilarTraces)
    assert ids(own) == ["t4"]


def test_the_command_takes_a_trace_a_file_and_stdin(eight: Path, tmp_path: Path) -> None:
    to = ("--warehouse", eight / "warehouse")
    text = invoke("similar", "t4", *to, "-n", 1).stdout
    assert text.splitlines() == [
        "trace t4",
        "  made 2026-01-06 00:00:00 UTC, code",
        "the nearest of 8 traces, by hashing-384-v1",
        "  similarity  trace  domain   score           made",
        f"  1.0000         t0    code  {_score(eight, 't0'):.4f}  4.0 h earlier  the same text",
        "",
    ]
    file = write_jsonl(tmp_path / "new.jsonl", [said(1, "sum the rows", id=None), {"id": "bad"}])
    done = invoke("similar", file, *to, "--json")
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["line"], first["nearest"][0]["trace_id"]) == (1, "t1")
    assert second["reasons"]
    assert "1 of 2 traces cannot be compared, the first on line 2: " in done.stderr
    piped = invoke("similar", "-", *to, stdin=file.read_text().splitlines()[0])
    assert piped.stdout.startswith("line 1: a trace without an id, code\nthe nearest of 8 traces")
    assert "the same text" in piped.stdout
    parquet = tmp_path / "a.parquet"
    parquet.write_bytes(b"PAR1" + bytes(100))
    assert "cannot be compared: it is Parquet" in invoke("similar", parquet, *to).stderr


def test_a_name_too_long_for_a_file_is_a_traces_and_a_folder_is_none(eight: Path) -> None:
    for name in ("x" * 10_000, str(eight)):
        done = invoke("similar", name, "--warehouse", eight / "warehouse")
        assert done.stderr.startswith(f"kp-batch: there is no trace '{name[:20]}")


def test_the_pipe_of_a_command_is_read_and_none_in_a_folder(eight: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, lines(said(0, "fix the import")).getvalue())
    os.close(writing)
    done = invoke("similar", f"/dev/fd/{reading}", "--warehouse", eight / "warehouse")
    os.close(reading)
    assert done.stdout.startswith("line 1: ")
    os.mkfifo(tmp_path / "pipe")
    done = invoke("similar", tmp_path / "pipe", "--warehouse", eight / "warehouse")
    assert (done.returncode, NAMED_PIPE in done.stderr) == (2, True)


def _score(folder: Path, trace_id: str) -> Any:
    rows = published(folder / "warehouse").scan("scores").collect()
    return rows.row(by_predicate=pl.col("trace_id") == trace_id, named=True)["score"]
