from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.resemblance import most_similar
from kp_batch.vectors import cosines, unit

NOW = datetime(2026, 1, 5, tzinfo=UTC)
few = st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=3, max_size=3)


@given(st.lists(few, max_size=8), few, st.integers(1, 4), st.integers(0, 8), st.integers(1, 3))
def test_law_the_first_of_the_nearest_is_the_nearest_of_the_cache(
    rows: list[list[float]], vector: list[float], most: int, without: int, at_once: int
) -> None:
    entries = unit(np.array(rows, dtype=np.float32).reshape(-1, 3))
    wanted = unit(np.array(vector, dtype=np.float32))
    cache = VectorCache(10, 3)
    kept = [row for row in range(len(entries)) if row != without]
    for row in kept:
        cache.add(entries[row], NOW + timedelta(seconds=row))
    parts = [entries[start : start + at_once] for start in range(0, len(entries), at_once)]
    [nearby] = most_similar([wanted], parts, most, [without])
    expected = cache.nearest(wanted)
    assert nearby.max_similarity == (expected and expected.similarity)
    if expected and expected.position is not None:
        assert nearby.nearest[0] == (kept[expected.position], expected.similarity)
    real = [row for row in kept if entries[row].any() and wanted.any()]
    exact = {row: float(cosines(wanted[None], entries[row][None])[0]) for row in real}
    ranked = sorted(exact.items(), key=lambda pair: (-pair[1], pair[0]))
    assert list(nearby.nearest) == ranked[:most]
