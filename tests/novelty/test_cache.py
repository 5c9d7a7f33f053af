from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kp_batch.novelty.cache import Nearest, VectorCache
from kp_batch.vectors import cosines, nonzero, unit

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EAST, NORTH, WEST, NOTHING = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]


def test_an_empty_cache_has_no_similarity() -> None:
    cache = VectorCache(dimensions=2)
    assert cache.max_cosine_similarity(EAST, START) is None
    assert cache.nearest(EAST) is None
    assert cache.size == 0


def test_its_defaults_are_the_live_engines() -> None:
    cache = VectorCache()
    assert (cache.max_elements, cache.dimensions, cache.ttl) == (1_000, 384, None)


def test_the_oldest_goes_first() -> None:
    cache = VectorCache(max_elements=2, dimensions=2)
    sizes: list[int] = []
    for vector in (EAST, NORTH, NORTH):
        cache.add(vector, START)
        sizes.append(cache.size)
    assert sizes == [1, 2, 2]
    assert cache.max_cosine_similarity(EAST, START) == 0.0
    assert cache.nearest(NORTH) == Nearest(1.0, 1, START)


@pytest.mark.parametrize(
    ("age", "remaining"),
    [
        (SECOND - timedelta(microseconds=1), 1),
        (SECOND, 0),
        (SECOND + timedelta(microseconds=1), 0),
    ],
)
def test_what_is_exactly_one_ttl_old_is_gone(age: timedelta, remaining: int) -> None:
    cache = VectorCache(dimensions=2, ttl=SECOND)
    cache.add(EAST, START)
    cache.evict_expired(START + age)
    assert cache.size == remaining


def test_adding_and_asking_evict_what_has_expired() -> None:
    cache = VectorCache(dimensions=2, ttl=SECOND)
    cache.add(EAST, START)
    assert cache.max_cosine_similarity(EAST, START + SECOND) is None
    cache.add(EAST, START + SECOND)
    cache.add(NORTH, START + 2 * SECOND)
    assert cache.size == 1


def test_without_a_time_nothing_expires() -> None:
    cache = VectorCache(dimensions=2, ttl=SECOND)
    cache.add(EAST, START)
    assert cache.max_cosine_similarity(EAST) == 1.0
    assert cache.size == 1


@pytest.mark.parametrize("call", ["add", "max_cosine_similarity", "evict_expired"])
def test_a_clock_that_runs_backwards_is_refused(call: str) -> None:
    cache = VectorCache(dimensions=2)
    cache.add(EAST, START)
    before = START - timedelta(microseconds=1)
    arguments = (before,) if call == "evict_expired" else (EAST, before)
    with pytest.raises(ValueError, match=r"clock runs backwards.*07:59:59.*08:00:00"):
        getattr(cache, call)(*arguments)
    assert cache.size == 1


@pytest.mark.parametrize("call", ["add", "max_cosine_similarity"])
def test_a_wrong_length_names_both_lengths(call: str) -> None:
    cache = VectorCache(dimensions=384)
    with pytest.raises(ValueError, match=r"length 3 .* 384 dimensions"):
        getattr(cache, call)([1.0, 0.0, 0.0], START)
    assert cache.size == 0


def test_clear_forgets_the_vectors_and_the_time() -> None:
    cache = VectorCache(dimensions=2)
    cache.add(EAST, START)
    cache.clear()
    assert cache.size == 0
    assert cache.max_cosine_similarity(EAST, START - SECOND) is None


def test_the_cosine_of_vectors_of_any_length_is_the_true_one() -> None:
    cache = VectorCache(dimensions=2)
    cache.add([300.0, 400.0], START)
    assert cache.max_cosine_similarity([1e-3, 0.0], START) == pytest.approx(0.6, abs=1e-7)
    assert cache.max_cosine_similarity([-2e6, 0.0], START) == pytest.approx(-0.6, abs=1e-7)


def test_the_oldest_wins_a_tie() -> None:
    cache = VectorCache(dimensions=2)
    for vector in (NORTH, EAST, [2.0, 0.0]):
        cache.add(vector, START)
    assert cache.nearest(EAST) == Nearest(1.0, 1, START)


@pytest.mark.parametrize(
    ("entries", "query", "expected"),
    [
        ([WEST], EAST, Nearest(-1.0, 0, START)),
        ([WEST, NOTHING], EAST, Nearest(0.0, None, None)),
        ([NOTHING], EAST, Nearest(0.0, None, None)),
        ([EAST], NOTHING, Nearest(0.0, None, None)),
        ([NOTHING, NORTH], EAST, Nearest(0.0, 1, START)),
    ],
)
def test_a_zero_vector_has_similarity_0_and_is_nobodys_nearest(
    entries: list[list[float]], query: list[float], expected: Nearest
) -> None:
    cache = VectorCache(dimensions=2)
    for vector in entries:
        cache.add(vector, START)
    assert cache.nearest(query, START) == expected


@pytest.mark.parametrize(
    ("max_elements", "dimensions", "ttl"),
    [(0, 1, None), (1, 0, None), (1, 1, timedelta(0)), (1, 1, -SECOND)],
)
def test_sizes_below_1_and_a_ttl_of_0_are_refused(
    max_elements: int, dimensions: int, ttl: timedelta | None
) -> None:
    with pytest.raises(ValueError, match=r"at least 1|positive"):
        VectorCache(max_elements, dimensions, ttl)


@pytest.mark.parametrize("component", [np.nan, np.inf, 1e200])
def test_a_vector_that_is_not_finite_is_refused(component: float) -> None:
    with pytest.raises(ValueError, match="NaN, infinite or overflowing"):
        VectorCache(dimensions=2).add([component, 1.0], START)


def test_unit_is_idempotent_and_keeps_zero_vectors() -> None:
    generator = np.random.default_rng(5)
    vectors = (
        generator.standard_normal((400, 384)) * np.repeat([1e-20, 1.0, 1e20, 0.0], 100)[:, None]
    )
    once = unit(vectors)
    assert once.dtype == np.float32
    assert once.flags.c_contiguous
    assert once.tobytes() == unit(once).tobytes()
    assert once.tobytes() == b"".join(unit(row).tobytes() for row in vectors)
    assert nonzero(once).tolist() == [True] * 300 + [False] * 100
    norms = np.linalg.norm(once[:300].astype(np.float64), axis=1)
    assert np.abs(norms - 1).max() < 2.0**-23


@pytest.mark.parametrize("dimensions", [1, 7, 384, 8_192, 8_193, 20_000])
def test_the_bits_of_a_cosine_do_not_depend_on_the_batch(dimensions: int) -> None:
    generator = np.random.default_rng(6)
    left = unit(generator.standard_normal((33, dimensions)))
    right = unit(generator.standard_normal((33, dimensions)))
    together = cosines(left, right)
    alone = [cosines(left[row : row + 1], right[row : row + 1])[0] for row in range(33)]
    assert together.tolist() == alone
    assert together[3:].tolist() == cosines(left[3:], right[3:]).tolist()
    one_query = cosines(np.broadcast_to(left[0], right.shape), right)
    assert one_query.tolist() == cosines(np.tile(left[0], (33, 1)), right).tolist()
    exact = np.einsum("ij,ij->i", left.astype(np.longdouble), right.astype(np.longdouble))
    assert np.abs(together - exact).max() < 1e-14
