"""The one search for the nearest, by `VectorCache` and by loops, over ugly inputs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.novelty import nearest as kernel
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.nearest import BAND, Matches, Windows, nearest
from kp_batch.vectors import Float32s, cosines, unit

NOW = datetime(2026, 1, 5, tzinfo=UTC)
# Equal, opposite and zero vectors, and those that differ beside the band and a float32 step.
SHIFTS = (0.0, 0.0, 1e-7, 1e-6, 1e-3, 4.5e-3, 0.3)


@dataclass(frozen=True)
class Case:
    queries: Float32s
    columns: Float32s
    windows: Windows

    def kept(self, query: int) -> list[int]:
        """The columns of a query's window, in their order."""
        own = self.windows
        end = min(int(own.end[query]), len(self.columns))
        without = -1 if own.without is None else own.without[query]
        return [row for row in range(int(own.first[query]), end) if row != without]


def drawn_vectors(draw: st.DrawFn, generator: np.random.Generator, topics: Float32s) -> Float32s:
    row = st.tuples(
        st.integers(0, len(topics) - 1),
        st.sampled_from([1.0, 1.0, 1.0, -1.0, 0.0]),
        st.sampled_from(SHIFTS),
    )
    rows = draw(st.lists(row, max_size=40))
    vectors = np.zeros((len(rows), topics.shape[1]))
    for at, (topic, sign, shift) in enumerate(rows):
        noise = unit(generator.standard_normal(topics.shape[1])) * (sign != 0)
        vectors[at] = sign * topics[topic] + shift * noise
    return unit(3 * vectors)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dimensions = draw(st.sampled_from([1, 2, 24]))
    topics = unit(generator.standard_normal((draw(st.integers(1, 4)), dimensions)))
    columns = drawn_vectors(draw, generator, topics)
    queries = columns if draw(st.booleans()) else drawn_vectors(draw, generator, topics)
    bounds = st.lists(
        st.integers(0, len(columns)), min_size=len(queries), max_size=len(queries)
    ).map(sorted)
    first, end = (np.array(draw(bounds), dtype=np.int64) for _ in range(2))
    without = None
    if draw(st.booleans()):
        without = generator.integers(-1, len(columns) + 1, len(queries))
    wanted = draw(st.none() | st.just(generator.random(len(queries)) < 0.5))
    return Case(queries, columns, Windows(first, np.maximum(first, end), without, wanted))


def found(case: Case, k: int = 1, bound: float | None = None, at_once: int = 40) -> Matches:
    starts = range(0, len(case.columns), at_once)
    tiles = (case.columns[start : start + at_once] for start in starts)
    return nearest(case.queries, tiles, k, bound, case.windows)


def bits(matches: Matches) -> list[bytes]:
    columns = (matches.columns, matches.cosines, matches.met, matches.zeros)
    return [column.tobytes() for column in columns]


def is_wanted(case: Case, query: int) -> bool:
    return case.windows.wanted is None or bool(case.windows.wanted[query])


def ranked(case: Case, query: int) -> list[tuple[int, float]]:
    """The columns of a window by their cosines, the first of equal ones before the others."""
    own = case.queries[query]
    real = [row for row in case.kept(query) if case.columns[row].any() and own.any()]
    exact = {row: float(cosines(own[None], case.columns[row][None])[0]) for row in real}
    return sorted(exact.items(), key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.slow
@settings(max_examples=300)
@given(cases(), st.integers(1, 7))
def test_law_the_nearest_is_that_of_a_cache(case: Case, at_once: int) -> None:
    matches = found(case, at_once=at_once)
    similarity = matches.max_similarity
    for query, vector in enumerate(case.queries):
        if not is_wanted(case, query):
            continue
        kept = case.kept(query)
        cache = VectorCache(max(len(kept), 1), len(vector))
        for row in kept:
            cache.add(case.columns[row], NOW + timedelta(seconds=row))
        expected = cache.nearest(vector)
        assert matches.met[query] == cache.size
        if expected is None:
            assert np.isnan(similarity[query])
            continue
        assert similarity[query] == expected.similarity
        if expected.position is not None:
            assert matches.columns[query, 0] == kept[expected.position]


@pytest.mark.slow
@settings(max_examples=300)
@given(cases(), st.integers(1, 5), st.integers(1, 7))
def test_law_the_k_nearest_are_those_that_a_sort_has_first(
    case: Case, k: int, at_once: int
) -> None:
    matches = found(case, k, at_once=at_once)
    for query in range(len(case.queries)):
        wanted = ranked(case, query)[:k] if is_wanted(case, query) else []
        own = zip(matches.columns[query].tolist(), matches.cosines[query].tolist(), strict=True)
        assert [pair for pair in own if pair[0] >= 0] == wanted
        kept = case.kept(query)
        assert (matches.met[query], matches.zeros[query]) == (
            len(kept),
            sum(not case.columns[row].any() for row in kept),
        )


@pytest.mark.slow
@settings(max_examples=300)
@given(cases(), st.integers(1, 3), st.data())
def test_law_what_reaches_a_bound_is_found_at_the_bound_itself_too(
    case: Case, k: int, data: st.DataObject
) -> None:
    every = sorted({cosine for q in range(len(case.queries)) for _, cosine in ranked(case, q)})
    exact = data.draw(st.sampled_from([*every, 0.9, 1.0]))
    beside = [np.nextafter(exact, 2), np.nextafter(exact, 0), exact + BAND, exact - BAND]
    bound = float(np.clip(data.draw(st.sampled_from([exact, *beside])), 1e-3, 1.0))
    matches = found(case, k, bound, data.draw(st.integers(1, 7)))
    for query, vector in enumerate(case.queries):
        reaching = {
            row
            for row, cosine in ranked(case, query)
            if cosine >= bound or (case.columns[row] == vector).all()
        }
        own = [row for row in matches.columns[query].tolist() if row >= 0]
        assert {*own} <= reaching
        assert len({*own}) == len(own)
        assert len(own) == (min(k, len(reaching)) if is_wanted(case, query) else 0)


@pytest.mark.slow
@settings(max_examples=300)
@given(cases(), st.integers(1, 3), st.data())
def test_law_blocks_and_tiles_change_nothing(case: Case, k: int, data: st.DataObject) -> None:
    whole = bits(found(case, k))
    few = {
        name: data.draw(st.integers(1, 9))
        for name in ("BLOCK_COLUMNS", "BATCH_PAIRS", "MAX_BLOCK_ROWS")
    }
    with patch.multiple(
        kernel, **few, MIN_BLOCK_ROWS=1, PAIRS_PER_COSINE=data.draw(st.integers(0, 40))
    ):
        assert bits(found(case, k, at_once=data.draw(st.integers(1, 40)))) == whole


def test_of_equal_columns_only_the_oldest_of_a_window_is_compared() -> None:
    rows = unit(np.eye(2)[np.arange(400) % 2])
    windows = Windows(np.maximum(np.arange(400) - 100, 0), np.arange(400))
    with patch.object(kernel, "cosines", side_effect=cosines) as compared:
        nearest(rows, [rows], windows=windows)
    assert sum(len(call.args[0]) for call in compared.call_args_list) < 1_000


def reaching(left: Float32s, right: Float32s, bound: float) -> list[bool]:
    return nearest(left, [right], bound=bound).found.tolist()


@pytest.mark.parametrize("terms", [4, 5])
def test_a_bound_at_which_all_pairs_tie_is_decided_by_the_fixed_sum(terms: int) -> None:
    # Of each two, 2 of the terms are the same: their cosine is as near to the bound as can be.
    vectors = np.zeros((100, 2 + 100 * (terms - 2)))
    vectors[:, :2] = 1
    for row in range(100):
        vectors[row, 2 + row * (terms - 2) : 2 + (row + 1) * (terms - 2)] = 1
    rows, bound = unit(vectors), 2 / terms
    for other in rows[:5]:
        wanted = [float(cosines(row[None], other[None])[0]) >= bound for row in rows[5:]]
        assert reaching(rows[5:], other[None], bound) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_a_bound_that_is_a_cosine_is_reached_and_the_next_number_is_not(seed: int) -> None:
    left = unit(np.random.default_rng(seed).standard_normal((20, 384)))
    close = unit(left[:1] + 0.1 * left[1:2])
    right = np.repeat(close, 30, axis=0)
    bound = float(cosines(left[:1], close)[0])
    for rows in (left[:1], left):  # so that nearly all pairs are near it, or few
        assert reaching(rows, right, bound)[0]
        assert not reaching(rows, right, float(np.nextafter(bound, 1)))[0]


def test_equal_vectors_reach_any_bound_even_if_another_is_closer_by_rounding() -> None:
    generator = np.random.default_rng(4)
    for _ in range(200):
        own = unit(generator.standard_normal((1, 384)))
        close = unit(own + 1e-8 * generator.standard_normal((40, 384)))
        for dense in (0, 1 << 30):
            with patch.object(kernel, "PAIRS_PER_COSINE", dense):
                assert reaching(own, np.concatenate([close, own]), 1.0) == [True]


def test_several_groups_in_one_search_meet_their_own_columns_alone() -> None:
    columns = unit(np.repeat(np.eye(3), 4, axis=0))
    first = np.repeat([0, 4, 8], 4)
    matches = nearest(columns, [columns], windows=Windows(first, np.arange(12)))
    assert matches.columns[:, 0].tolist() == [-1, 0, 0, 0, -1, 4, 4, 4, -1, 8, 8, 8]
    assert matches.met.tolist() == [0, 1, 2, 3] * 3


def test_no_queries_and_no_columns_find_nothing() -> None:
    one, none = unit(np.ones((1, 3))), np.zeros((0, 3), np.float32)
    for matches in (nearest(one, []), nearest(one, [none], 2)):
        assert matches.columns.max() == -1
        assert np.isnan(matches.max_similarity).all()
        assert not matches.found.any()
    assert nearest(none, [one]).columns.shape == (0, 1)


def test_a_query_that_has_found_enough_is_compared_no_further() -> None:
    one = unit(np.ones((1, 3)))
    with patch.object(kernel, "cosines", side_effect=cosines) as compared:
        matches = nearest(one, [one, one, one], bound=0.5)
    assert (compared.call_count, matches.columns.tolist()) == (1, [[0]])
