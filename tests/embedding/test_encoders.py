import shutil
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.embedding import encoders, minilm, model_files
from kp_batch.embedding.encoder import checked
from kp_batch.embedding.encoders import AnyModel, Hashing, load_encoder
from kp_batch.embedding.minilm import WINDOW, MiniLM, batches_by_length
from kp_batch.embedding.model_files import (
    MINILM_DIGESTS,
    _packaged,
    _snapshot,
    find_minilm,
    find_model,
)
from kp_batch.errors import EncoderError
from kp_batch.pipeline import embed
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.vectors import Float32s, normalised, unit
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.make.sample import write_sample

WEIGHTS = "model.safetensors"
BUDGET = 4 * 512


def norms(vectors: Float32s) -> npt.NDArray[np.float64]:
    return np.linalg.norm(vectors.astype(np.float64), axis=1)


@cache
def model() -> MiniLM:
    return MiniLM()


@cache
def any_model() -> AnyModel:
    return AnyModel(str(_packaged()))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the offline package's model, which is found in its place; no cache, no hub."""
    folder = tmp_path / "package" / "model"
    original = _packaged()
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns(WEIGHTS))
    (folder / WEIGHTS).symlink_to(original / WEIGHTS)
    origin = str(tmp_path / "package" / "__init__.py")
    monkeypatch.setattr(model_files, "find_spec", lambda _: SimpleNamespace(origin=origin))
    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    return folder


def unreachable(_model: str, **_: object) -> str:
    raise OSError("no network")


# --- the lexical stand-in


def test_hashing_gives_unit_vectors_of_384_dimensions() -> None:
    vectors = Hashing().encode(["Review the PR", "analyse Q4 earnings", "a"])
    assert vectors.shape == (3, Hashing.dimensions) == (3, 384)
    assert vectors.dtype == np.float32
    assert np.abs(norms(vectors) - 1).max() < 2.0**-23


@pytest.mark.parametrize("text", ["", " ", "?!... --", "🙂"])
def test_hashing_gives_a_zero_vector_for_a_text_without_a_word(text: str) -> None:
    assert not Hashing().encode([text]).any()


@pytest.mark.parametrize("text", ["a", "7", "é", "金", "ж", "ش", "अ"])
def test_hashing_sees_one_letter_words_of_every_script(text: str) -> None:
    assert np.count_nonzero(Hashing().encode([text])) == 1


def test_hashing_sees_words_and_their_order_but_not_their_case() -> None:
    one, other, upper, repeated = Hashing().encode(["bill pays", "pays bill", "BILL Pays", "bill"])
    assert one.tobytes() == upper.tobytes()
    assert 0.5 < one @ other < 0.9
    assert 0.3 < one @ repeated < 0.9


def test_hashing_depends_on_nothing_but_the_text() -> None:
    texts = ["Prüfung der Rechnung", "", "анализ 金融 data", "x y z x"]
    together = Hashing().encode(texts)
    assert together.tobytes() == Hashing().encode(texts).tobytes()
    assert together.tobytes() == b"".join(Hashing().encode([text]).tobytes() for text in texts)


@pytest.mark.telling
@pytest.mark.slow
@given(texts=st.lists(st.text() | st.sampled_from(["Ein Wort", "x y", "\0", "金融 data"])))
def test_hashing_counts_as_scikit_learn_does(texts: list[str]) -> None:
    from sklearn.feature_extraction.text import HashingVectorizer

    counted = HashingVectorizer(
        n_features=384, ngram_range=(1, 2), token_pattern=r"\w+", norm=None
    ).transform(texts or [""])[: len(texts)]
    assert Hashing().encode(texts).tobytes() == normalised(counted.toarray()).tobytes()


@pytest.mark.parametrize("encoder", [Hashing(), MiniLM()], ids=["hashing", "minilm"])
def test_no_texts_have_no_vectors(encoder: Hashing | MiniLM) -> None:
    vectors = encoder.encode([])
    assert vectors.shape == (0, 384)
    assert vectors.dtype == np.float32


# --- names


def test_an_encoder_is_found_by_its_name() -> None:
    assert load_encoder("none") is None
    assert isinstance(load_encoder("hashing"), Hashing)
    assert isinstance(load_encoder("minilm"), MiniLM)


def test_an_encoder_id_is_known_without_a_model() -> None:
    assert Hashing().encoder_id == "hashing-384-v1"
    assert MiniLM().encoder_id == "minilm-53aa5117-512-v1"
    assert MiniLM("bf16").encoder_id == "minilm-53aa5117-512-bf16-v1"


@pytest.mark.slow
def test_no_model_is_looked_for_where_every_text_has_a_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id=f"kp:{number}") for number in range(3)])
    settings = config(tmp_path, tmp_path / "a.jsonl")
    rescore_archive(settings)
    monkeypatch.setattr(embed, "loaded_encoder", lambda name: pytest.fail(f"{name} is looked for"))
    assert rescore_archive(settings.model_copy(update={"cache_size": 1})).counts.replayed == 1


# --- normalisation


def by_the_formula(vectors: npt.ArrayLike) -> Float32s:
    """The normalisation written out, which `vectors.normalised` must equal to the bit."""
    exact = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", exact, exact))
    return (exact / np.where(lengths == 0, 1.0, lengths)[:, None]).astype(np.float32)


def kept_where_unit(vectors: npt.ArrayLike) -> Float32s:
    """What a cache holds, written out, which `vectors.unit` must equal to the bit."""
    raw = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt(np.einsum("...j,...j->...", raw, raw))[..., None]
    rounded = raw.astype(np.float32)
    own = np.sqrt(np.einsum("...j,...j->...", rounded, rounded, dtype=np.float64))
    is_one = (own == 0) | (np.abs(own - 1) <= 2.0**-23)
    kept = is_one & (rounded == raw).all(axis=-1)
    divisors = np.where(kept[..., None] | (lengths == 0), 1.0, lengths)
    return np.ascontiguousarray(raw / divisors, dtype=np.float32)


def assert_bits(vectors: npt.NDArray[np.float32] | npt.NDArray[np.float64]) -> None:
    stored = normalised(vectors)
    assert stored.tobytes() == by_the_formula(vectors).tobytes()
    assert normalised(vectors[-1]).tobytes() == stored[-1].tobytes()
    assert unit(vectors).tobytes() == kept_where_unit(vectors).tobytes()
    assert unit(vectors[-1]).tobytes() == kept_where_unit(vectors)[-1].tobytes()
    assert unit(stored).tobytes() == stored.tobytes()
    assert stored.flags.c_contiguous
    assert unit(vectors).flags.c_contiguous


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[npt.NDArray[np.float32]]:
    """What a model itself returned, before it was normalised."""
    seen: list[npt.NDArray[np.float32]] = []

    def noted(vectors: npt.NDArray[np.float32]) -> Float32s:
        seen.append(vectors.copy())
        return checked(vectors)

    for module in (encoders, minilm):
        monkeypatch.setattr(module, "checked", noted)
    return seen


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, 384, 8_192, 9_000])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e3, 1e20])
def test_the_bits_of_random_vectors_are_those_of_the_formula(dimensions: int, scale: float) -> None:
    exact = scale * np.random.default_rng(dimensions).standard_normal((60, dimensions))
    exact[::7] = 0.0
    for vectors in (exact, exact.astype(np.float32), np.asfortranarray(exact), exact[:, ::-1]):
        assert_bits(vectors)
    assert_bits(np.concatenate([exact, normalised(exact), -normalised(exact)]))


def test_the_bits_of_the_samples_hashing_vectors_are_those_of_the_formula(
    tmp_path: Path, returned: list[npt.NDArray[np.float32]]
) -> None:
    stored = Hashing().encode(sample_texts(tmp_path))
    assert len(stored) > 100
    assert_bits(returned[0])
    assert_bits(stored)
    assert stored.tobytes() == by_the_formula(returned[0]).tobytes()


@pytest.mark.telling
@pytest.mark.model
def test_the_bits_of_the_models_vectors_are_those_of_the_formula(
    tmp_path: Path, returned: list[npt.NDArray[np.float32]]
) -> None:
    texts = [text[:60] for text in sample_texts(tmp_path)[:40]]  # as good as whole ones
    for encoder in (model(), any_model()):
        stored = encoder.encode(texts)
        raw = returned.pop()
        assert_bits(raw)
        assert_bits(stored)
        assert stored.tobytes() == by_the_formula(raw).tobytes()
    # Hence two functions: unit vectors that a model returns itself are not yet the stored ones.
    assert unit(raw).tobytes() != stored.tobytes()


def sample_texts(folder: Path) -> list[str]:
    rows = pl.concat(pl.read_parquet(path) for path in write_sample(folder, traces=200, days=3))
    contents = pl.col("steps").list.eval(pl.element().struct.field("content").fill_null(""))
    text = pl.concat_str(pl.col("task").struct.field("objective"), contents.list.join(" "))
    return rows.select(text.unique(maintain_order=True)).to_series().to_list()


def test_normalised_keeps_zero_rows_and_makes_the_others_unit() -> None:
    vectors = normalised([[3.0, 4.0], [0.0, 0.0], [1e-20, 0.0], [0.0, -1e20]])
    assert vectors.tolist() == [[np.float32(0.6), np.float32(0.8)], [0, 0], [1, 0], [0, -1]]
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("component", [np.nan, np.inf, -np.inf, 1e200])
def test_a_vector_that_is_not_finite_is_refused_and_its_text_numbered(component: float) -> None:
    with pytest.raises(EncoderError, match=r"NaN or infinity \(text 1\)"):
        checked([[1.0, 0.0], [component, 0.0]])
    with pytest.raises(ValueError, match="NaN, infinite or overflowing"):
        normalised([[1.0, 0.0], [component, 0.0]])


# --- batches


@given(st.lists(st.integers(1, WINDOW), max_size=120))
def test_law_batches_hold_every_row_once_within_the_budget_by_length(lengths: list[int]) -> None:
    batches = list(batches_by_length(lengths, BUDGET))
    rows = list(chain.from_iterable(batches))
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths)
    sizes = [sum(lengths[row] for row in batch) for batch in batches]
    assert all(0 < size <= BUDGET for size in sizes)
    # None is smaller than it must be.
    following = zip(sizes, batches[1:], strict=False)
    assert all(size + lengths[batch[0]] > BUDGET for size, batch in following)


# --- the files of all-MiniLM-L6-v2


@pytest.mark.model
def test_the_offline_package_is_used_where_the_cache_has_nothing(copied: Path) -> None:
    assert find_minilm() == copied
    (copied / "README.md").write_text("other words", "utf-8")
    assert find_minilm() == copied


@pytest.mark.telling
@pytest.mark.model
@pytest.mark.parametrize("name", ["vocab.txt", "1_Pooling/config.json", "modules.json"])
def test_an_offline_package_with_one_changed_byte_is_refused(copied: Path, name: str) -> None:
    path = copied / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(EncoderError) as caught:
        find_minilm()
    message = str(caught.value)
    assert "local cache: not in " in message
    assert f"offline package: {name} in {copied} differ from the published model; hub:" in message
    assert "hub: no network)" in message
    assert "pip install 'kp-batch[offline-model]'" in message


@pytest.mark.telling
@pytest.mark.model
def test_an_offline_package_with_a_file_more_or_less_is_refused(copied: Path) -> None:
    (copied / "modeling.py").write_text("print('run')", "utf-8")
    (copied / "config.json").unlink()
    with pytest.raises(EncoderError, match=r"offline package: config\.json, modeling\.py in "):
        find_minilm()


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(EncoderError, match=r"offline package: not installed; hub: no network"):
        find_minilm()


@pytest.mark.telling
@pytest.mark.model
def test_a_local_cache_comes_first_if_its_weights_and_tokenizer_are_right(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "cached"
    shutil.copytree(copied, cached, symlinks=True)
    (cached / "config_sentence_transformers.json").write_text("{}", "utf-8")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda _, **__: str(cached))
    assert find_minilm() == cached
    (cached / "tokenizer.json").write_text("{}", "utf-8")
    assert find_minilm() == copied
    (copied / "vocab.txt").unlink()
    with pytest.raises(EncoderError, match=r"local cache: tokenizer\.json in .* hub: tokenizer"):
        find_minilm()


def test_every_published_digest_is_a_sha256() -> None:
    assert len(MINILM_DIGESTS) == 10
    assert all(len(bytes.fromhex(digest)) == 32 for digest in MINILM_DIGESTS.values())


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"contains no sentence-transformers model"):
        load_encoder(str(tmp_path))


def test_an_unknown_model_is_refused_with_the_hubs_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(
        EncoderError, match=r"'miniml' is neither .* \(not in .*\) or .* \(no network\)"
    ):
        find_model("miniml")


def test_the_folder_is_named_in_which_no_such_model_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another one under cron, or in a container."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(EncoderError, match=f"^not in {tmp_path}/hub$"):
        _snapshot("no/model", offline=True)


# --- the live engine's model

TEXTS = [
    "Analyze TSMC Q4 earnings report",
    "Review PR #42 for security issues",
    "",
    "word " * 50,
    "Ein Satz auf Deutsch, und 金融 dazu.",
    *(" ".join(f"item {number} of list" for number in range(count)) for count in (3, 12)),
]


@cache
def vectors_of_texts() -> Float32s:
    return model().encode(TEXTS)


@cache
def reference() -> "tuple[object, object]":
    from transformers import AutoModel, AutoTokenizer

    folder = str(_packaged())
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


@cache
def pooled(ids: tuple[int, ...]) -> npt.NDArray[np.float64]:
    import torch

    with torch.inference_mode():
        hidden = reference()[1](input_ids=torch.tensor([ids])).last_hidden_state[0].double()
    mean = hidden.mean(0).numpy()
    return mean / np.linalg.norm(mean)


@pytest.mark.model
@pytest.mark.parametrize("words", [510, 511, 900])
def test_a_text_over_the_window_keeps_its_first_and_loses_its_last_special_piece(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []

    def noted(text_lengths: list[int], most: int) -> Iterator[list[int]]:
        lengths.extend(text_lengths)
        return batches_by_length(text_lengths, most)

    monkeypatch.setattr(minilm, "batches_by_length", noted)
    text = " ".join(("tree", "river", "stone", "cloud")[word % 4] for word in range(words))
    vector = model().encode([text])[0].astype(np.float64)
    pieces = reference()[0](text, truncation=False, verbose=False)["input_ids"]
    classify, separate = pieces[0], pieces[-1]
    assert len(pieces) == words + 2
    assert lengths == [min(words + 2, WINDOW)]
    assert np.abs(vector - pooled(tuple(pieces[:WINDOW]))).max() < 1e-6
    if words > 510:
        usual = (classify, *pieces[1 : WINDOW - 1], separate)
        assert np.abs(vector - pooled(usual)).max() > 1e-5


@pytest.mark.model
def test_minilm_gives_unit_vectors_even_for_an_empty_text() -> None:
    vectors = vectors_of_texts()
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.abs(norms(vectors) - 1).max() < 2.0**-23


@pytest.mark.model
def test_the_order_and_company_of_texts_change_a_vector_by_no_more_than_1e_6() -> None:
    vectors = vectors_of_texts()
    backwards = model().encode(TEXTS[::-1])[::-1]
    alone = np.concatenate([model().encode([text]) for text in TEXTS])
    assert np.abs(vectors - backwards).max() < 1e-6
    assert np.abs(vectors - alone).max() < 1e-6


@pytest.mark.model
def test_a_models_folder_is_an_encoder() -> None:
    encoder = any_model()
    assert isinstance(load_encoder(str(_packaged())), AnyModel)
    assert encoder.dimensions == 384
    vectors = encoder.encode(TEXTS[:3])
    assert vectors.shape == (3, 384)
    assert np.abs(norms(vectors) - 1).max() < 2.0**-23
    assert np.abs(vectors - vectors_of_texts()[:3]).max() < 1e-6
    assert encoder.encode([]).shape == (0, 384)


@pytest.mark.model
def test_a_models_id_changes_with_its_files_alone(copied: Path) -> None:
    first = AnyModel(str(copied)).encoder_id
    assert first == AnyModel(str(_packaged())).encoder_id
    (copied / "sentence_bert_config.json").write_text('{"max_seq_length": 128}', "utf-8")
    assert AnyModel(str(copied)).encoder_id != first
