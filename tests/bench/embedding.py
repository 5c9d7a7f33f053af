"""Embedding beside sentence-transformers' own encode, with full windows of random words."""

import os
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from kp_batch.embedding.first_pieces import first_pieces
from kp_batch.embedding.minilm import WINDOW, MiniLM
from kp_batch.embedding.model_files import find_minilm
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.staging import Staging
from tests.bench.measuring import medians
from tests.support.make.slow_model import Sleeping, embed_staged, stage

TEXTS = 512 if torch.cuda.is_available() else 16
REPEATED = 3
PARTS, PART = 100, 64  # of texts
# Of a full window: 6 layers of 4 + 2 * 4 products of 384 by 384 for each of its 512 pieces, and two
# of 512 by 384 for its attention.
OPERATIONS = 2 * 6 * WINDOW * (12 * 384**2 + 2 * WINDOW * 384)


def bench_embedding() -> dict[str, float]:
    """Print the rates, and their ratios to that of float32.

    Returns:
        Full windows a second, by precision.
    """
    texts = _full_windows(TEXTS)
    exact, rounded = MiniLM(), MiniLM("bf16")
    plain = SentenceTransformer(str(find_minilm()), local_files_only=True)
    plain.max_seq_length = WINDOW
    rates = _rates(
        {
            "float32": lambda: exact.encode(texts),
            "bf16": lambda: rounded.encode(texts),
            "sentence-transformers' encode": lambda: plain.encode(texts),
        }
    )
    print(f"embedding full windows of {WINDOW} pieces, on {_where()}")
    for label, rate in rates.items():
        ratio, work = rate / rates["float32"], rate * OPERATIONS / 1e9
        print(f"  {label:<36}{rate:>12,.1f} texts/s{ratio:>8.2f} of float32{work:>8,.0f} GFLOP/s")
    product = _product_rate(torch.bfloat16) / 1e9
    print(f"  {'a product in bf16 alone':<36}{'':>37}{product:>8,.0f} GFLOP/s")
    _tokenising()
    return {precision: rates[precision] for precision in ("float32", "bf16")}


def bench_stream() -> None:
    """Print how busy the slower of a tokenizer and a model is that only sleep, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        print("the step, of the slower of tokenizer and model that sleep so many seconds a part")
        _share(0.0, 0.0)  # it loads what there is to load
        for seconds in ((0.025, 0.1), (0.1, 0.1), (0.1, 0.05), (0.05, 0.1)):
            print(f"  {seconds[0]:>5} and {seconds[1]:<5}{_share(*seconds):>36.0%}")
    finally:
        os.sched_setaffinity(0, cores)


def _share(tokenizer_s: float, model_s: float) -> float:
    with Staging.temporary() as staging:
        stage(staging, [f"{number:04d}" for number in range(PARTS * PART)])
        began, executor = time.perf_counter(), ThreadExecutor(cores=1)
        encoder = Sleeping(tokenizer_s, model_s)
        embed_staged(encoder, staging, staging.folder / "vectors", executor, at_once=PART)
        return PARTS * max(tokenizer_s, model_s) / (time.perf_counter() - began)


def _full_windows(count: int) -> list[str]:
    words = ("tree", "river", "stone", "cloud", "light", "house", "water", "field")
    chosen = np.random.default_rng(0).choice(words, (count, WINDOW))
    return [" ".join(row) for row in chosen]


def _rates(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Texts a second, the median of interleaved runs after a first one that loads the model."""
    for work in works.values():
        work()
    seconds = medians(*works.values(), times=REPEATED)
    return {label: TEXTS / duration for label, duration in zip(works, seconds, strict=True)}


def _product_rate(kind: torch.dtype) -> float:
    """Operations a second of a large product."""
    left, right = (torch.ones((4_096, 1_536), dtype=kind, device=_device()) for _ in range(2))
    began, times = time.perf_counter(), 10
    for _ in range(times):
        product = left @ right.T
    float(product[0, 0])  # waits for a card
    return times * 2 * 4_096 * 4_096 * 1_536 / (time.perf_counter() - began)


def _tokenising() -> None:
    """Long texts: as much as their window needs, and all of them."""
    texts = [" ".join(_full_windows(20))] * 64
    tokenizer = MiniLM().tokenizer
    for label, work in (
        ("tokenising texts of 60 kB", lambda: first_pieces(tokenizer, texts, WINDOW)),
        ("all of these texts", lambda: tokenizer.encode_batch_fast(texts)),
    ):
        began = time.perf_counter()
        work()
        print(f"  {label:<36}{len(texts) / (time.perf_counter() - began):>12,.0f} texts/s")


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _where() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{torch.cpu.get_capabilities()['cpu_name']}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    bench_embedding()
