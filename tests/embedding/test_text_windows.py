"""What a model reads of a text, and that it reads no window twice."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from kp_batch.embedding import minilm, precision
from kp_batch.embedding.chunks import count_vectors
from kp_batch.embedding.first_pieces import first_pieces
from kp_batch.embedding.minilm import WINDOW, MiniLM
from kp_batch.embedding.model_files import find_minilm
from kp_batch.embedding.windows import window_hash
from kp_batch.operations.forget import forget
from kp_batch.operations.verify import VECTOR_TOLERANCE, verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.run_record import RunCounts
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config, scores
from tests.support.make.vector_stores import Opened
from tests.support.read.folders import keep, restore

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.model

# Words of every kind that the tokeniser knows, and what is between them.
WORDS = st.sampled_from(
    [
        *("a", "river", "unbelievably", "don't", "1,000.50", "a_b-c", "x={y:[1]};", "[SEP]"),
        *("##ing", "e\u0301", "\u0130", "ß", "金融", "анализ", "ΟΔΟΣ", "ภาษา", "デ", "👩\u200d🚀"),
        *("[SE\u200bP]", "[SEP", "K]", "[", "]", "\u2260", "\u037e", "각", "\uf900", "\U0001d165"),
    ]
)
SPACES = st.sampled_from(
    [*" \n\t\u00a0\u2028\u3000\u200b\x00\x0b\x85\ufffd\u0301", "  ", "", "", "", ", "]
)
RUNS = st.tuples(
    st.one_of(WORDS, SPACES, st.characters(codec="utf-8")), st.sampled_from([60, 101, 300])
).map(lambda run: run[0] * run[1])
PARTS = st.tuples(st.one_of(WORDS, WORDS, WORDS, RUNS, st.text(max_size=5)), SPACES)
TEXTS = st.lists(PARTS, max_size=30).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)


@cache
def tokenizer() -> Tokenizer:
    return MiniLM().tokenizer


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=4), st.integers(1, 12), st.integers(1, 5))
def test_law_the_first_pieces_are_those_of_the_whole_text(
    texts: list[str], most: int, characters: int
) -> None:
    whole = [tokenizer().encode(text).ids[:most] for text in texts]
    assert first_pieces(tokenizer(), texts, most, characters) == whole


class Noting:
    """A tokenizer that notes what it is given."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.normalizer, self.pre_tokenizer = tokenizer().normalizer, tokenizer().pre_tokenizer

    def encode_batch_fast(self, texts: Sequence[str]) -> object:
        self.read.extend(texts)
        return tokenizer().encode_batch_fast(texts)


def test_no_more_of_a_long_text_is_tokenised_than_its_window_needs() -> None:
    noting = Noting()
    first_pieces(noting, ["word " * 100_000], WINDOW)
    assert [len(text) for text in noting.read] == [8 * WINDOW + 3]  # up to the next space


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("数据处理" * 50_000, 4_096),
        ("QUJD/2Rl+kZH" * 20_000, 4_112),
        ("f(x){return(x)}" * 20_000, 4_112),
        ("0123456789abcdef" * 20_000, 101),  # one unknown word
        ("0123456789abcdef" * 20_000 + " and so on" * 1_000, 2 * 4_096),
        ("กำลังประมวลผลข้อมูล" * 20_000, 250),  # marks and letters
        ("👩\u200d🚀" * 100_000, 250),
        ("\u0301\u200b" * 100_000, 0),
        (" \n" * 100_000, 4_096),
        ("[" * 100_000, 4_096),
        ("]" * 100_000, 4_096),
    ],
    ids=range(11),
)
def test_no_more_of_a_text_without_spaces_is_tokenised_either(text: str, most: int) -> None:
    noting = Noting()
    [pieces] = first_pieces(noting, [text], WINDOW)
    assert sum(map(len, noting.read)) <= most
    assert pieces == tokenizer().encode(text).ids[:WINDOW]


def test_the_tokeniser_is_the_one_that_transformers_makes_of_the_same_files() -> None:
    from transformers import AutoTokenizer

    texts = ["Analyze TSMC Q4 earnings", "[SEP] \u0301 金融 İ", "", "x" * 200]
    expected = AutoTokenizer.from_pretrained(find_minilm())(texts)["input_ids"]
    assert first_pieces(tokenizer(), texts, WINDOW) == expected


# --- attention without padding


def by_the_formula(
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    lengths: list[int],
    scale: float,
) -> "torch.Tensor":
    """Attention written out, a window at a time: shape (pieces, heads, dimensions)."""
    import torch

    attended: list[torch.Tensor] = []
    for q, k, v in zip(
        *(tensor.double().split(lengths, 1) for tensor in (query, key, value)), strict=True
    ):
        weights = (scale * q @ k.transpose(1, 2)).softmax(-1)
        attended.append((weights @ v).transpose(0, 1))
    return torch.cat(attended)


def on_no_card(
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    starts: "torch.Tensor",
    *others: object,
    scale: float,
) -> "torch.Tensor":
    """Takes what the card's kernel takes."""
    import torch

    same, longest, longest_key = others
    lengths = starts.diff().tolist()
    assert same is starts
    assert starts.dtype == torch.int32
    assert longest == longest_key == max(lengths)
    assert all(tensor.is_contiguous() for tensor in (query, key, value))
    heads = (tensor.transpose(0, 1) for tensor in (query, key, value))
    return by_the_formula(*heads, lengths, scale).to(query.dtype)


@pytest.mark.parametrize("way", ["fused", "in products", "on the card"])
@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-6), ("bfloat16", 2e-2)])
def test_attention_stays_within_each_window(
    way: str, name: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from kp_batch.embedding import attention
    from kp_batch.embedding.attention import Lengths, _by_length, _on_gpu

    kind = getattr(torch, name)
    monkeypatch.setattr(attention, "varlen_attn", on_no_card)
    monkeypatch.setattr(attention, "fused_is_slow", lambda _: way == "in products")
    attend = _on_gpu if way == "on the card" else _by_length
    generator = torch.Generator().manual_seed(0)
    for lengths in ([1], [3, 3, 3], [1, 2, 2, 7], [5, 1, 5], [40]):
        parts = (torch.randn((2, sum(lengths), 4), generator=generator) for _ in range(3))
        query, key, value = (part.to(kind) for part in parts)
        expected = by_the_formula(query, key, value, lengths, 0.5)
        both = Lengths(lengths, torch.tensor(lengths).cumsum(0))
        attended = attend(query, key, value, both, 0.5)
        assert attended.dtype == kind
        assert attended.shape == (sum(lengths), 2, 4)
        assert (attended.double() - expected).abs().max() < tolerance


# --- precisions


@cache
def model(name: precision.Precision) -> MiniLM:
    return MiniLM(name)


LONG = " ".join(f"step {number} looks at the river" for number in range(15))


def test_bf16_is_another_encoder_that_is_nearly_the_same() -> None:
    texts = [LONG, "Review PR #42 for security issues", "", "金融 dazu"]
    exact, rounded = (model(name).encode(texts) for name in ("float32", "bf16"))
    cosines = (exact * rounded).sum(axis=1)
    assert 1e-7 < (1 - cosines).max() < 2e-4


@pytest.mark.parametrize("name", ["float32", "bf16"])
def test_the_company_of_a_text_changes_its_vector_by_less_than_verify_tolerates(
    name: precision.Precision,
) -> None:
    texts = [LONG, LONG[:200], LONG[100:], "Review PR #42", "", "word " * 20]
    together = model(name).encode(texts)
    alone = np.concatenate([model(name).encode([text]) for text in texts])
    assert np.abs(together - alone).max() < VECTOR_TOLERANCE[name] / 3


@pytest.mark.telling
@pytest.mark.parametrize(
    ("processor", "is_native"),
    [([], False), (["avx512_f"], False), (["avx512_bf16"], True), (["avx512_f", "amx_bf16"], True)],
)
def test_a_processor_that_does_not_compute_in_bf16_is_known(
    processor: list[str], monkeypatch: pytest.MonkeyPatch, *, is_native: bool
) -> None:
    import torch

    has = dict.fromkeys(processor, True) | {"amx_tile": False}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert precision.is_native("bf16") is is_native
    assert precision.is_native("float32")


# --- each window once


def long_trace(number: int, end: str) -> dict[str, object]:
    """A trace whose window is the same for any end."""
    return trace(
        id=f"t{number}",
        objective=LONG,
        steps=[{"type": "thought", "content": end}],
    )


BOTH = [long_trace(1, "fails"), long_trace(2, "works")]


def rescored(folder: Path, *traces: dict[str, object], **changes: object) -> RunCounts:
    write_jsonl(folder / "a.jsonl", list(traces))
    settings = config(folder, folder / "a.jsonl", **{"embedder": "minilm", **changes})
    return rescore_archive(settings).counts


SHORT = (minilm, "WINDOW", 16)  # which is embedded in a tenth of the time


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows") / "made"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*SHORT)
        assert rescored(folder, *BOTH).windows == 1
    keep(folder)
    return folder


@pytest.fixture
def folder(scored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where two traces with the same window are scored."""
    monkeypatch.setattr(*SHORT)
    restore(scored)
    return scored


def vectors_by_trace(folder: Path) -> dict[str, bytes]:
    rows = scores(config(folder, folder / "a.jsonl"))
    store = Opened(folder / "warehouse" / "vectors" / MiniLM().encoder_id)
    vectors = store.gather(rows.get_column("text_hash"))
    return dict(zip(rows.get_column("trace_id"), map(bytes, vectors), strict=True))


def test_a_window_is_embedded_once_in_a_run_and_across_runs(folder: Path) -> None:
    other = trace(id="t9")
    counts = rescored(folder, *BOTH, long_trace(3, "works!"), other)
    assert (counts.embedded, counts.windows) == (2, 1)
    assert count_vectors(folder / "warehouse" / "vectors" / MiniLM().encoder_id) == 2
    vectors = vectors_by_trace(folder)
    assert vectors["t1"] == vectors["t2"] == vectors["t3"] != vectors["t9"]
    counts = rescored(folder, BOTH[0], long_trace(3, "works!"), other, precision="bf16")
    assert (counts.embedded, counts.windows) == (3, 2)


@pytest.mark.telling
def test_a_shared_vector_is_verified_and_kept_until_its_last_text_is_forgotten(
    folder: Path,
) -> None:
    warehouse = folder / "warehouse"
    result = verify(warehouse, traces=2, seed=0, embed=True)
    assert (result.checked, result.wrong) == (2, "")
    assert forget(warehouse, ["t1"]).vectors == 0
    assert vectors_by_trace(folder).keys() == {"t2"}
    windows = [np.load(path) for path in (warehouse / "vectors").rglob("*.windows.npy")]
    assert [array.shape for array in windows] == [(2, 1)]
    counts = rescored(folder, BOTH[1], long_trace(3, "works!"))
    assert (counts.embedded, counts.windows) == (1, 0)
    assert forget(warehouse, ["t2", "t3"]).vectors == 1
    assert not [*(warehouse / "vectors").rglob("*.npy")]


@pytest.mark.parametrize("lost", ["windows", "hashes", "vectors"])
def test_a_lost_file_of_vectors_costs_no_more_than_to_embed_again(folder: Path, lost: str) -> None:
    """As a run leaves it that was killed between two of its files."""
    before = vectors_by_trace(folder)
    [path] = (folder / "warehouse" / "vectors" / MiniLM().encoder_id).glob(f"*.{lost}.npy")
    path.unlink()
    counts = rescored(folder, *BOTH, long_trace(3, "works!"))
    assert (counts.embedded, counts.windows) == (3, int(lost != "windows"))
    assert vectors_by_trace(folder) == {**before, "t3": before["t1"]}


def test_no_text_has_the_hash_of_a_window() -> None:
    window = np.frombuffer(b"like", dtype="<u2")  # its pieces are those of a text, as UTF-8
    assert window_hash(window) != hashlib.sha256(b"like").hexdigest()


@pytest.mark.telling
def test_texts_without_a_space_and_of_one_word_have_windows() -> None:
    windows = MiniLM().windows(["", "x" * 100_000, "金" * 1_000])
    assert [len(window) for window in windows] == [2, 3, WINDOW]
    assert {window.dtype for window in windows} == {np.dtype(np.uint16)}
    assert pl.Series(windows).dtype == pl.List(pl.UInt16)
