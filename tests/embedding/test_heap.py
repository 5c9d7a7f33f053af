"""What a computation has left of the heap goes back to the system."""

from pathlib import Path

import numpy as np
import pytest

from kp_batch.embedding import minilm
from kp_batch.embedding.heap import release_heap
from kp_batch.embedding.minilm import MiniLM

_PAGE = 4_096


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def test_what_is_free_below_what_is_used_is_given_back() -> None:
    blocks = [bytearray(100_000) for _ in range(1_000)]  # each is too small to be mapped by itself
    last = blocks.pop()
    before = resident_bytes()
    del blocks
    release_heap()
    assert before - resident_bytes() > 50_000_000
    assert len(last)


@pytest.mark.model
def test_a_model_gives_back_what_each_of_several_batches_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, released = MiniLM(), list[int]()
    monkeypatch.setattr(minilm, "release_heap", lambda: released.append(1))
    window = np.full(512, 101, dtype=np.uint16)
    model.encode_windows([window])
    assert len(released) == 0  # of a single one it would take longer than it is worth
    model.encode_windows([window] * 9)
    assert len(released) == 3
