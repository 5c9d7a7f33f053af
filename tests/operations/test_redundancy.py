"""How much of an archive nearly repeats itself, and how long the answer is kept."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.operations import redundancy as operation
from kp_batch.operations.redundancy import redundancy
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.redundancy import Redundancy
from tests.support.archives import write_jsonl
from tests.support.buckets import Machine
from tests.support.commands import invoke
from tests.support.encoders import set_encoder
from tests.support.folders import restore
from tests.support.hourly import eight_kept, said, settings_of, write
from tests.support.oracle.answers import ask

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return eight_kept(tmp_path_factory.mktemp("redundancy") / "made")


@pytest.fixture
def eight(made: Path) -> Path:
    """A warehouse of the traces of `WORDS`, an hour apart: two of them have the text of one."""
    restore(made)
    return made


def found(folder: Path, similarity: float = 0.95) -> Redundancy:
    return redundancy(folder / "warehouse", similarity)


def shown(folder: Path, as_of: str | None = None) -> list[dict[str, Any]]:
    with connect(folder / "warehouse", as_of) as connection:
        return ask(connection, "FROM redundancy")


@pytest.mark.telling
def test_texts_objectives_and_vectors_like_earlier_ones_are_counted(eight: Path) -> None:
    result = found(eight)
    assert result == Redundancy(0.95, Hashing.encoder_id, 8, 0, 2, 0, 2, 0.25, 0.25, 0.25, 2, 6)
    # "sum all rows" resembles "sum the rows", "fix the export" the import, by half.
    near = found(eight, 0.4)
    assert (near.exact_repeats, near.near_repeats, near.all_repeats, near.share) == (2, 2, 4, 0.5)


def test_it_is_shown_until_anything_else_is_published(eight: Path) -> None:
    assert shown(eight) == []
    before = require_manifest(eight / "warehouse")
    result = found(eight)
    now = require_manifest(eight / "warehouse")
    assert (now.tables, now.settings, now.failed) == (before.tables, before.settings, before.failed)
    assert now.warehouse_id == before.warehouse_id
    assert (now.redundancy, shown(eight)) == (result, [asdict(result)])
    with connect(eight / "warehouse") as connection:  # the catalog itself has it, too
        [(text,)] = connection.execute("SELECT redundancy FROM manifest").fetchall()
    assert json.loads(text) == asdict(result)
    again = found(eight, 0.4)  # in its place
    assert shown(eight) == [asdict(again)]
    rescore_archive(settings_of(eight))  # there is nothing to do, so it stays
    assert shown(eight) == [asdict(again)]
    assert shown(eight, "latest") == []
    write(eight, 0, name="b.jsonl", id="t9")
    rescore_archive(settings_of(eight))
    assert shown(eight) == []
    assert require_manifest(eight / "warehouse").redundancy is None


def test_what_failed_stays_failed(eight: Path) -> None:
    write_jsonl(eight / "archive" / "b.jsonl", [{"id": "bad"}])
    with pytest.raises(KpBatchError):
        rescore_archive(settings_of(eight, max_reject_share=0))
    assert require_manifest(eight / "warehouse").failed
    result = found(eight)
    assert require_manifest(eight / "warehouse").failed
    assert shown(eight) == [asdict(result)]


def test_it_is_not_kept_where_something_else_was_published(
    eight: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*arguments: Any) -> Any:
        write(eight, 0, name="b.jsonl", id="t9")
        rescore_archive(settings_of(eight))
        return compare(*arguments)

    compare = operation.resemble_earlier
    monkeypatch.setattr(operation, "resemble_earlier", meanwhile)
    assert found(eight).traces == 8
    assert shown(eight) == []
    assert "the redundancy is not kept in " in caplog.text
    assert "a run published meanwhile" in caplog.text


def test_it_is_not_kept_while_a_run_is_writing(
    eight: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = require_manifest(eight / "warehouse")
    with _other_process(eight / "warehouse"):
        assert found(eight).traces == 8
    assert require_manifest(eight / "warehouse") == before
    assert "the redundancy is not kept in " in caplog.text


@contextmanager
def _other_process(warehouse: Path) -> Iterator[None]:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    begun, ended = Event(), Event()

    def write() -> None:
        with locked(warehouse, wait=0):
            begun.set()
            ended.wait()

    with ThreadPoolExecutor() as threads:
        writer = threads.submit(write)
        begun.wait()
        try:
            yield
        finally:
            ended.set()
            writer.result()


def test_of_many_texts_a_sample_is_drawn_whose_interval_holds_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(3)
    nouns = ("import", "export", "test", "page", "row", "key", "log", "trip")
    words = [" ".join(draw.choice(nouns, 12)) for _ in range(300)]
    near = [f"{words[number]} now" for number in draw.integers(0, 300, 150)]
    traces = [said(number, text) for number, text in enumerate([*words, *near, *words[:50]])]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    rescore_archive(settings_of(tmp_path))
    truth = found(tmp_path, 0.8)
    assert (truth.traces, truth.compared, truth.is_exact) == (
        500,
        truth.traces - truth.exact_repeats,
        True,
    )
    monkeypatch.setattr(operation, "_ALL", 10)
    monkeypatch.setattr(operation, "_DRAWN", 60)
    held = 0
    for seed in range(20):
        monkeypatch.setattr(operation, "_SEED", seed)
        estimate = found(tmp_path, 0.8)
        assert (estimate.compared, estimate.is_exact) == (60, False)
        assert estimate.low <= estimate.share <= estimate.high
        assert estimate.exact_repeats / 500 <= estimate.low < estimate.high <= 1
        assert estimate.all_repeats == estimate.exact_repeats + estimate.near_repeats
        assert estimate.share == estimate.all_repeats / 500
        held += estimate.low <= truth.share <= estimate.high
    assert held >= 18
    assert found(tmp_path, 0.8) == estimate  # the same sample each time
    to = ("--similarity", 0.8, "--warehouse", tmp_path / "warehouse")
    text = invoke("redundancy", *to).stdout
    assert "all repeats: estimated, with a 95% interval from " in text
    assert f"about {estimate.near_repeats}  " in text
    assert f"of the {truth.compared} texts 60 were compared with all earlier ones" in text


def test_zero_vectors_are_like_none_and_equal_ones_are_whatever_the_rounding(
    tmp_path: Path,
) -> None:
    words = ("!", "?", "!", "sum the rows", "Sum, the rows!")
    traces = [said(number, text) for number, text in enumerate(words)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    rescore_archive(settings_of(tmp_path))
    result = found(tmp_path, 1)
    assert (result.exact_repeats, result.compared, result.near_repeats) == (1, 4, 1)


def test_one_trace_repeats_none(tmp_path: Path) -> None:
    write(tmp_path, 0)
    rescore_archive(settings_of(tmp_path))
    assert found(tmp_path) == Redundancy(0.95, Hashing.encoder_id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


def test_the_traces_of_another_encoder_do_not_count(eight: Path) -> None:
    set_encoder(eight / "warehouse", ("t0", "t7"), "another")
    result = found(eight, 0.4)
    # t4 was like t0 alone; t5 is like none.
    assert (result.traces, result.other_encoders) == (6, 2)
    assert (result.exact_repeats, result.near_repeats, result.all_repeats) == (1, 1, 2)
    text = invoke("redundancy", "--warehouse", eight / "warehouse").stdout
    assert "not counted: 2 with vectors of another encoder" in text


def test_missing_vectors_are_an_error_and_nothing_is_published(
    eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_ALL", 1)
    monkeypatch.setattr(operation, "_DRAWN", 2)  # all that lack are counted
    for path in Layout(eight / "warehouse").vectors(Hashing.encoder_id).glob("*.npy"):
        path.unlink()
    before = require_manifest(eight / "warehouse")
    with pytest.raises(WarehouseError, match=r"^6 of 6 vectors are not in .*--restore-vectors"):
        found(eight)
    assert require_manifest(eight / "warehouse") == before


def test_without_an_encoder_or_a_trace_there_is_nothing_to_compare(tmp_path: Path) -> None:
    write(tmp_path, *range(3))
    rescore_archive(settings_of(tmp_path, embedder="none"))
    with pytest.raises(KpBatchError, match=r"without an encoder, .* with an --embedder first"):
        found(tmp_path)
    with pytest.raises(WarehouseError, match="is no warehouse"):
        redundancy(tmp_path / "other", 0.95)
    assert not (tmp_path / "other").exists()


def test_the_command_prints_counts_and_shares(eight: Path) -> None:
    to = ("--warehouse", eight / "warehouse")
    assert invoke("redundancy", *to).stdout.splitlines() == [
        "8 traces, by hashing-384-v1",
        "  like an earlier one                                 traces   share",
        "  exact repeats: the same text                             2  25.00%",
        "  near repeats: another text, a similarity from 0.95       0   0.00%",
        "  all repeats: these together                              2  25.00%",
        "  the same objective                                       2  25.00%",
    ]
    printed = json.loads(invoke("redundancy", "--similarity", "0.4", *to, "--json").stdout)
    assert printed == shown(eight)[0]
    for wrong in ("0", "1.01", "-1", "nan", "1e-3", "x"):
        done = invoke("redundancy", "--similarity", wrong, *to)
        assert done.returncode == 2
        assert "a similarity is a number above 0, up to 1, got" in done.stderr


@pytest.mark.process
def test_in_a_bucket_vectors_are_fetched_and_the_answer_is_there_for_all(
    tmp_path: Path, bucket: str
) -> None:
    write(tmp_path, *range(8))
    url = f"{bucket}/team/warehouse"
    first, second = Machine(tmp_path / "first", url), Machine(tmp_path / "second", url)
    first.run(tmp_path / "archive", cache_size=3)
    with second.here():
        nearest = invoke("similar", "t4", "-n", 1, "--warehouse", url)
        asked = invoke("redundancy", "--warehouse", url)
    assert "  t0  " in nearest.stdout
    for done in (nearest, asked):
        assert done.stderr.splitlines()[-1].startswith("kp-batch: object storage: ")
    assert first.ask("SELECT traces, share FROM redundancy") == [(8, 0.25)]
    with first.here():
        first.run(tmp_path / "archive", threshold=0.5)
    assert second.ask("FROM redundancy") == []
