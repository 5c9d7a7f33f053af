"""How much of an archive nearly repeats itself."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.operations import redundancy as operation
from kp_batch.operations.redundancy import Redundancy, redundancy
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.layout import Layout
from tests.support.make.archives import write_jsonl
from tests.support.make.encoders import set_encoder
from tests.support.make.hourly import eight_kept, said, settings_of, write
from tests.support.processes.buckets import Machine
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import contents, restore

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


@pytest.mark.telling
def test_texts_objectives_and_vectors_like_earlier_ones_are_counted(eight: Path) -> None:
    result = found(eight)
    assert result == Redundancy(0.95, Hashing.encoder_id, 8, 0, 2, 0, 2, 0.25, 0.25, 0.25, 2, 6)
    # "sum all rows" resembles "sum the rows", "fix the export" the import, by half.
    near = found(eight, 0.4)
    assert (near.exact_repeats, near.near_repeats, near.all_repeats, near.share) == (2, 2, 4, 0.5)


def test_nothing_is_published(eight: Path) -> None:
    before = contents(eight / "warehouse")
    found(eight)
    assert contents(eight / "warehouse") == before


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
    monkeypatch.setattr(operation, "MAX_EXACT_TEXTS", 10)
    monkeypatch.setattr(operation, "SAMPLE_TEXTS", 60)
    held = 0
    for seed in range(6):
        monkeypatch.setattr(operation, "SAMPLE_SEED", seed)
        estimate = found(tmp_path, 0.8)
        assert (estimate.compared, estimate.is_exact) == (60, False)
        assert estimate.low <= estimate.share <= estimate.high
        assert estimate.exact_repeats / 500 <= estimate.low < estimate.high <= 1
        assert estimate.all_repeats == estimate.exact_repeats + estimate.near_repeats
        assert estimate.share == estimate.all_repeats / 500
        held += estimate.low <= truth.share <= estimate.high
    assert held >= 5
    assert found(tmp_path, 0.8) == estimate  # the same sample each time
    to = ("--similarity", 0.8, "--warehouse", tmp_path / "warehouse")
    text = invoke("redundancy", *to).stdout
    assert "all repeats: an estimate, with a 95% interval from " in text
    assert f"about {estimate.near_repeats}  " in text
    assert f"only 60 of {truth.compared} texts were compared with all earlier ones" in text


def test_zero_vectors_are_like_none_and_equal_ones_are_whatever_the_rounding(
    tmp_path: Path,
) -> None:
    words = ("!", "?", "!", "sum the rows", "Sum, the rows!")
    traces = [said(number, text) for number, text in enumerate(words)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    rescore_archive(settings_of(tmp_path))
    result = found(tmp_path, 1)
    assert (result.exact_repeats, result.compared, result.near_repeats) == (1, 4, 1)


def test_the_traces_of_another_encoder_do_not_count(eight: Path) -> None:
    set_encoder(eight / "warehouse", ("t0", "t7"), "another")
    result = found(eight, 0.4)
    # t4 was like t0 alone; t5 is like none.
    assert (result.traces, result.other_encoders) == (6, 2)
    assert (result.exact_repeats, result.near_repeats, result.all_repeats) == (1, 1, 2)
    text = invoke("redundancy", "--warehouse", eight / "warehouse").stdout
    assert "not counted: 2 with vectors of another encoder" in text


def test_missing_vectors_are_an_error(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "MAX_EXACT_TEXTS", 1)
    monkeypatch.setattr(operation, "SAMPLE_TEXTS", 2)  # all that lack are counted
    for path in Layout(eight / "warehouse").vectors(Hashing.encoder_id).glob("*.npy"):
        path.unlink()
    with fails_with(WarehouseError, "missing_vectors", r"^6 of 6 vectors .*--restore-vectors"):
        found(eight)


def test_without_an_encoder_or_a_trace_there_is_nothing_to_compare(tmp_path: Path) -> None:
    write(tmp_path, *range(3))
    rescore_archive(settings_of(tmp_path, embedder="none"))
    with pytest.raises(KpBatchError, match=r"without an encoder, .* with an --embedder first"):
        found(tmp_path)
    with fails_with(WarehouseError, "no_warehouse"):
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
    assert printed == asdict(found(eight, 0.4))
    written = invoke("redundancy", "--similarity", "4e-1", *to, "--json").stdout
    assert json.loads(written) == printed


@pytest.mark.process
def test_in_a_bucket_vectors_are_fetched(tmp_path: Path, bucket: str) -> None:
    write(tmp_path, *range(8))
    url = f"{bucket}/team/warehouse"
    first, second = Machine(tmp_path / "first", url), Machine(tmp_path / "second", url)
    first.run(tmp_path / "archive", cache_size=3)
    with second.here():
        nearest = invoke("similar", "t4", "-n", 1, "--warehouse", url)
        asked = invoke("redundancy", "--warehouse", url)
    assert "  t0  " in nearest.stdout
    assert "  all repeats: these together                              2  25.00%" in asked.stdout
