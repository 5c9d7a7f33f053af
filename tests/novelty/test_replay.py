import tracemalloc
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from kp_batch.novelty import nearest
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.replay import (
    Replay,
    nested_similarities,
    replay,
    replay_windows,
    window_starts,
)
from kp_batch.vectors import cosines, unit

pytestmark = pytest.mark.slow

Float32s = npt.NDArray[np.float32]
Int64s = npt.NDArray[np.int64]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# To either side of the band of 1e-5 and of a float32 step; a cosine moves by half the square.
SHIFTS = (0.0, 0.0, 0.0, 1e-7, 1e-6, 1e-3, 3e-3, 4.5e-3, 1e-2, 0.3)

laws = settings(max_examples=200)


def blocks_of(rows: int) -> Any:
    return patch.multiple(nearest, MIN_BLOCK_ROWS=rows, MAX_BLOCK_ROWS=rows)


@dataclass(frozen=True)
class History:
    vectors: Float32s
    times: Int64s
    max_elements: int
    ttl: timedelta | None

    def replayed(self, block: int = 7) -> Replay:
        with blocks_of(block):
            return replay(self.vectors, self.times, max_elements=self.max_elements, ttl=self.ttl)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Few topics and their near duplicates, opposites and zero vectors, at often equal times."""
    dimensions = draw(st.sampled_from([1, 2, 3, 24, 384]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    topics = generator.integers(-1, 2, (draw(st.integers(1, 4)), dimensions)).astype(np.float64)
    row = st.tuples(
        st.integers(0, len(topics) - 1),
        st.sampled_from([1.0, 1.0, 1.0, -1.0, 0.0]),
        st.sampled_from(SHIFTS),
        st.sampled_from([0, 0, 1, 2, 5]),
    )
    rows = draw(st.lists(row, max_size=50))
    vectors = np.zeros((len(rows), dimensions))
    for at, (topic, sign, shift, _) in enumerate(rows):
        direction = unit(generator.standard_normal(dimensions)) * (sign != 0)
        vectors[at] = sign * unit(topics[topic]) + shift * direction
    start = draw(st.sampled_from([-5, 0, 1_767_600_000_000_000]))
    times = start + np.cumsum([step for *_, step in rows], dtype=np.int64)
    ttl = draw(st.none() | st.integers(1, 12).map(lambda number: number * MICROSECOND))
    # Times 3, so that `unit` finds none that it takes for one already.
    return History(unit(3 * vectors), times, draw(st.integers(1, 12) | st.just(1_000)), ttl)


def bits(result: Replay, rows: slice | Int64s = slice(None)) -> tuple[bytes, ...]:
    columns = (result.max_similarity, result.nearest, result.cached_vectors, result.novelty)
    return tuple(column[rows].tobytes() for column in columns)


def part(history: History, rows: slice) -> History:
    return History(history.vectors[rows], history.times[rows], history.max_elements, history.ttl)


def one_at_a_time(history: History) -> Replay:
    cache = VectorCache(history.max_elements, history.vectors.shape[1], history.ttl)
    results: list[tuple[float, int, int]] = []
    for vector, time in zip(history.vectors, history.times.tolist(), strict=True):
        now = EPOCH + time * MICROSECOND
        closest = cache.nearest(vector, now)
        similarity = cache.max_cosine_similarity(vector, now)
        assert cache.size <= history.max_elements
        if closest is None:
            assert similarity is None
            results.append((np.nan, -1, cache.size))
        else:
            assert similarity == closest.similarity
            position = -1 if closest.position is None else closest.position
            results.append((closest.similarity, position, cache.size))
        cache.add(vector, now)
    return Replay(
        np.array([similarity for similarity, _, _ in results], dtype=np.float64),
        np.array([nearest for _, nearest, _ in results], dtype=np.int64),
        np.array([size for _, _, size in results], dtype=np.int64),
    )


@laws
@given(histories())
def test_law_replay_equals_the_cache_one_at_a_time(history: History) -> None:
    assert bits(history.replayed()) == bits(one_at_a_time(history))


@laws
@given(histories(), st.integers(1, 60))
def test_law_the_block_size_changes_nothing(history: History, block: int) -> None:
    assert bits(history.replayed(block)) == bits(history.replayed(1_000))


@laws
@given(histories(), st.integers(1, 60))
def test_law_the_size_of_a_product_changes_nothing(history: History, columns: int) -> None:
    whole = bits(history.replayed())
    with patch.object(nearest, "BLOCK_COLUMNS", columns):
        assert bits(history.replayed()) == whole


@laws
@given(histories(), st.integers(0, 10**9))
def test_law_how_dense_candidates_are_narrowed_changes_nothing(
    history: History, pairs: int
) -> None:
    whole = bits(history.replayed())
    with patch.object(nearest, "PAIRS_PER_COSINE", pairs):
        assert bits(history.replayed()) == whole


@laws
@given(histories(), st.data())
def test_law_rows_that_are_only_compared_with_change_nothing(
    history: History, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(history.times)))
    starts = window_starts(history.times, history.max_elements, history.ttl)
    with blocks_of(7):
        result = replay_windows(history.vectors, starts, first=first)
    assert bits(result) == bits(history.replayed(), slice(first, None))


@laws
@given(histories(), st.data())
def test_law_rows_that_are_not_wanted_change_nothing(history: History, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.booleans(), min_size=len(history.times), max_size=1_000))
    wanted = np.array(rows[: len(history.times)], dtype=np.bool_)
    starts = window_starts(history.times, history.max_elements, history.ttl)
    with blocks_of(7):
        result = replay_windows(history.vectors, starts, wanted=wanted)
    assert bits(result, np.flatnonzero(wanted)) == bits(history.replayed(), np.flatnonzero(wanted))


@dataclass(frozen=True)
class Groups:
    """A history as the rows of several caches, one after the other."""

    bounds: list[int]
    first: Int64s  # of each row, the first of its group
    times: Int64s  # they ascend within a group alone


def grouped(history: History, data: st.DataObject) -> Groups:
    ends = data.draw(st.lists(st.integers(0, len(history.times)), max_size=8))
    bounds = sorted({0, *ends, len(history.times)})
    first = np.zeros(len(history.times), dtype=np.int64)
    for begin, end in pairwise(bounds):
        first[begin:end] = begin
    return Groups(bounds, first, history.times - first)


@laws
@given(histories(), st.data(), st.integers(1, 60))
def test_law_no_group_meets_another(history: History, data: st.DataObject, block: int) -> None:
    """One product for the groups, one after the other, gives what a cache for each gives."""
    groups = grouped(history, data)
    bounds, first, times = groups.bounds, groups.first, groups.times
    starts = window_starts(times, history.max_elements, history.ttl, first)
    with blocks_of(block):
        result = replay_windows(history.vectors, starts)
    for begin, end in pairwise(bounds):
        rows = slice(begin, end)
        alone = one_at_a_time(part(history, rows))
        nearest = np.where(result.nearest[rows] < 0, -1, result.nearest[rows] - begin)
        ours = Replay(result.max_similarity[rows], nearest, result.cached_vectors[rows])
        assert bits(ours) == bits(alone)


CACHES = st.tuples(st.integers(1, 12) | st.just(1_000), st.none() | st.integers(1, 12))


@laws
@given(histories(), st.lists(CACHES, min_size=1, max_size=5), st.data(), st.integers(1, 60))
def test_law_several_caches_at_once_equal_each_alone(
    history: History, caches: list[tuple[int, int | None]], data: st.DataObject, block: int
) -> None:
    """The widths of their windows may cross from row to row."""
    groups = grouped(history, data)
    alone = [
        replace(history, max_elements=size, ttl=None if ttl is None else ttl * MICROSECOND)
        for size, ttl in caches
    ]
    starts = np.array(
        [window_starts(groups.times, x.max_elements, x.ttl, groups.first) for x in alone]
    )
    own = data.draw(st.integers(0, len(history.times)))
    with blocks_of(block):
        result = nested_similarities(history.vectors, starts, first=own)
    for similarities, each in zip(result, alone, strict=True):
        of_groups = [
            one_at_a_time(part(each, slice(*bounds))).max_similarity
            for bounds in pairwise(groups.bounds)
        ]
        assert similarities.tobytes() == np.concatenate([[], *of_groups])[own:].tobytes()


@laws
@given(histories(), st.data())
def test_law_later_traces_never_change_earlier_results(
    history: History, data: st.DataObject
) -> None:
    kept = slice(0, data.draw(st.integers(0, len(history.times))))
    assert bits(part(history, kept).replayed()) == bits(history.replayed(), kept)


@laws
@given(histories(), st.data())
def test_law_parts_after_a_warm_up_equal_the_whole(history: History, data: st.DataObject) -> None:
    count = len(history.times)
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    warm = max(0, first - history.max_elements)
    result = part(history, slice(warm, last)).replayed()
    result = Replay(
        result.max_similarity,
        np.where(result.nearest < 0, -1, result.nearest + warm),
        result.cached_vectors,
    )
    assert bits(result, slice(first - warm, None)) == bits(history.replayed(), slice(first, last))


@laws
@given(histories())
def test_law_nothing_beyond_capacity_or_ttl_is_compared_with(history: History) -> None:
    result = history.replayed()
    rows = np.arange(len(history.times))
    assert (result.cached_vectors <= np.minimum(rows, history.max_elements)).all()
    has_nearest = result.nearest >= 0
    nearest = result.nearest[has_nearest]
    assert (nearest < rows[has_nearest]).all()
    assert (nearest >= rows[has_nearest] - result.cached_vectors[has_nearest]).all()
    if history.ttl is not None:
        ages = history.times[has_nearest] - history.times[nearest]
        assert (ages < history.ttl // MICROSECOND).all()


@laws
@given(histories())
def test_law_a_window_holds_exactly_what_is_not_pushed_out_and_not_expired(
    history: History,
) -> None:
    times = history.times.tolist()
    ttl = None if history.ttl is None else history.ttl // MICROSECOND
    expected = [
        next(
            (
                first
                for first in range(max(0, row - history.max_elements), row)
                if ttl is None or times[first] > times[row] - ttl
            ),
            row,
        )
        for row in range(len(times))
    ]
    assert window_starts(history.times, history.max_elements, history.ttl).tolist() == expected


@laws
@given(histories())
def test_law_the_oldest_wins_a_tie(history: History) -> None:
    result = history.replayed()
    starts = window_starts(history.times, history.max_elements, history.ttl)
    for row in np.flatnonzero(result.nearest >= 0).tolist():
        older = history.vectors[starts[row] : result.nearest[row]]
        own = np.broadcast_to(history.vectors[row], older.shape)
        real = older.any(axis=1)
        assert (cosines(own, older)[real] < result.max_similarity[row]).all()


@laws
@given(histories())
def test_law_novelty_is_in_range_and_half_where_the_cache_was_empty(history: History) -> None:
    result = history.replayed()
    empty = result.cached_vectors == 0
    assert (np.isnan(result.max_similarity) == empty).all()
    assert (result.novelty[empty] == 0.5).all()
    assert ((result.novelty >= 0) & (result.novelty <= 1)).all()
    zero = ~history.vectors.any(axis=1)
    assert (result.novelty[zero & ~empty] == 1).all()
    assert (result.nearest[zero] == -1).all()


@laws
@given(histories(), st.randoms(use_true_random=False))
def test_law_the_order_of_input_rows_changes_nothing(history: History, random: Random) -> None:
    frame = pl.DataFrame(
        {
            "row": range(len(history.times)),
            "created_at": history.times,
            "trace_id": [f"kp:trace:{row % 3}-{row}" for row in range(len(history.times))],
        },
        schema={"row": pl.Int64, "created_at": pl.Int64, "trace_id": pl.String},
    )
    shuffled = list(range(len(frame)))
    random.shuffle(shuffled)

    def replayed_bits(unsorted: pl.DataFrame) -> tuple[bytes, ...]:
        rows = unsorted.sort("created_at", "trace_id").get_column("row").to_numpy()
        ordered = History(
            history.vectors[rows], history.times[rows], history.max_elements, history.ttl
        )
        return bits(ordered.replayed())

    assert replayed_bits(frame[shuffled]) == replayed_bits(frame)


def archive(count: int, dimensions: int = 384) -> History:
    """Topics that return as near duplicates, as in an archive."""
    generator = np.random.default_rng(11)
    topics = unit(generator.standard_normal((40, dimensions)))
    noise = generator.standard_normal((count, dimensions)) * 10.0 ** -generator.integers(
        1, 9, (count, 1)
    )
    vectors = unit(topics[generator.integers(0, 40, count)] + noise)
    times = np.sort(generator.integers(0, 10 * count, count))
    return History(vectors, times, 500, timedelta(microseconds=3 * count))


def test_law_the_thread_count_changes_nothing() -> None:
    history = archive(2_000)
    starts = np.array([window_starts(history.times, size, history.ttl) for size in (50, 9, 500)])
    alone = [replay_windows(history.vectors, each).max_similarity.tobytes() for each in starts]
    answers: set[tuple[bytes, ...]] = set()
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            answers.update(bits(history.replayed(block)) for block in (64, 256, 5_000))
            nested = nested_similarities(history.vectors, starts)
            assert [each.tobytes() for each in nested] == alone
    assert len(answers) == 1


def test_an_archive_equals_the_cache_one_at_a_time() -> None:
    history = archive(1_200)
    assert bits(history.replayed(256)) == bits(one_at_a_time(history))


@pytest.mark.telling
def test_vectors_over_8192_dimensions_equal_the_cache_one_at_a_time() -> None:
    history = archive(40, dimensions=9_000)
    assert bits(history.replayed()) == bits(one_at_a_time(history))


def test_near_ties_across_products_equal_the_cache_one_at_a_time() -> None:
    generator = np.random.default_rng(13)
    topic = generator.standard_normal(384)
    vectors = unit(topic + 1e-4 * generator.standard_normal((300, 384)))
    vectors[::7] = vectors[3]
    history = History(vectors, np.arange(300), 120, None)
    one = bits(one_at_a_time(history))
    for columns in (1, 10, 64, 2_048):
        with patch.object(nearest, "BLOCK_COLUMNS", columns):
            assert bits(history.replayed(64)) == one


def test_many_candidates_compared_in_parts_equal_the_cache_one_at_a_time() -> None:
    generator = np.random.default_rng(15)
    vectors = unit(generator.standard_normal(24) + 1e-4 * generator.standard_normal((60, 24)))
    history = History(vectors, np.arange(60), 40, None)
    one = bits(one_at_a_time(history))
    for pairs in (1, 7, 64):
        with (
            patch.object(nearest, "PAIRS_PER_COSINE", 0),
            patch.object(nearest, "BATCH_PAIRS", pairs),
        ):
            assert bits(history.replayed()) == one


def test_the_oldest_wins_a_tie_across_products() -> None:
    vectors = unit([[3.0, 4.0], [4.0, 3.0], [1.0, 1.0]])
    assert np.unique(cosines(vectors[[2, 2]], vectors[:2])).size == 1
    with patch.object(nearest, "BLOCK_COLUMNS", 1):
        assert replay(vectors, np.arange(3)).nearest[2] == 0


def test_the_memory_is_bounded_however_large_the_windows_are() -> None:
    vectors = archive(20_000, dimensions=8).vectors
    tracemalloc.start()
    replay(vectors, np.arange(20_000), max_elements=20_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 12_000_000  # a product of all columns has 20 MB


def misjudged_by_float32() -> tuple[Float32s, int]:
    """A history whose last row's nearest is not the argmax of the float32 product, and which."""
    generator = np.random.default_rng(12)
    for _ in range(50):
        topic = generator.standard_normal(384)
        entries = unit(topic + 1e-4 * generator.standard_normal((60, 384)))
        query = unit(topic + 0.3 * generator.standard_normal(384))
        exact = cosines(np.broadcast_to(query, entries.shape), entries)
        if int(np.argmax(entries @ query)) != int(np.argmax(exact)):
            return np.concatenate([entries, query[None]]), int(np.argmax(exact))
    raise AssertionError("no case found")


def test_the_exact_cosine_decides_where_the_float32_product_errs() -> None:
    vectors, nearest = misjudged_by_float32()
    times = np.arange(len(vectors), dtype=np.int64)
    for block in (1, 16, 256):
        with blocks_of(block):
            result = replay(vectors, times)
        assert result.nearest[-1] == nearest
        assert result.max_similarity[-1] == cosines(vectors[-1:], vectors[[nearest]])[0]


def test_repeated_texts_meet_the_oldest_that_is_left() -> None:
    vectors = unit([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    result = replay(vectors, np.arange(5), max_elements=2)
    assert result.nearest.tolist() == [-1, 0, 0, 2, 2]
    assert result.max_similarity[1:].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert result.cached_vectors.tolist() == [0, 1, 2, 2, 2]
    assert result.novelty.tolist() == [0.5, 1.0, 0.0, 0.0, 0.0]


def test_exactly_one_ttl_old_is_gone() -> None:
    vectors = unit([[1.0], [1.0], [1.0]])
    result = replay(vectors, np.array([0, 9, 10]), ttl=10 * MICROSECOND)
    assert result.cached_vectors.tolist() == [0, 1, 1]
    assert result.nearest.tolist() == [-1, 0, 1]


def test_a_negative_similarity_is_kept_and_novelty_clamped() -> None:
    result = replay(unit([[1.0, 0.0], [-1.0, 0.0]]), np.arange(2))
    assert result.max_similarity[1] == -1.0
    assert result.nearest[1] == 0
    assert result.novelty[1] == 1.0


@pytest.mark.parametrize("dimensions", [0, 384])
def test_no_traces_give_no_results(dimensions: int) -> None:
    result = replay(np.zeros((0, dimensions), np.float32), np.zeros(0, np.int64))
    assert [
        len(column) for column in (result.max_similarity, result.nearest, result.cached_vectors)
    ] == [0] * 3
    assert len(result.novelty) == 0


ONE = np.ones((2, 1), np.float32)
TIMES = np.array([0, 1])


@pytest.mark.telling
@pytest.mark.parametrize(
    ("vectors", "times", "sentence"),
    [
        (ONE, TIMES[::-1], "times must ascend"),
        (ONE * np.float32([[1], [1.001]]), TIMES, "row 1 is neither a unit nor a zero vector"),
        (ONE * np.float32(100), TIMES, "row 0 is neither"),
        (np.full((2, 1), np.nan, np.float32), TIMES, "row 0 is neither"),
        (ONE.astype(np.float64), TIMES, r"float32 of shape \(2, dimensions\), got float64"),
        (ONE[:1], TIMES, r"float32 of shape \(2, dimensions\), got float32 of shape \(1, 1\)"),
        (ONE[:, 0], TIMES, r"got float32 of shape \(2,\)"),
    ],
)
def test_wrong_vectors_and_times_are_refused(
    vectors: Float32s, times: Int64s, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        replay(vectors, times)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_are_those_of_microseconds(unit: str) -> None:
    seconds = np.array([0, 3600, 7200])
    times = seconds.astype("datetime64[s]").astype(f"datetime64[{unit}]")
    vectors, hour = np.ones((3, 1), np.float32), timedelta(hours=1)
    wanted = [0, 0, 0]
    assert replay(vectors, seconds * 10**6, ttl=hour).cached_vectors.tolist() == wanted
    assert replay(vectors, times, ttl=hour).cached_vectors.tolist() == wanted
    polars = pl.Series(times if unit != "s" else times.astype("datetime64[ms]"))
    assert replay(vectors, polars, ttl=hour).cached_vectors.tolist() == wanted
    assert replay(vectors, pd.Series(times), ttl=hour).cached_vectors.tolist() == wanted


@pytest.mark.parametrize("dtype", [np.uint64, np.uint32, np.int32, np.int64])
def test_whole_numbers_of_any_type_are_microseconds(dtype: type[np.integer]) -> None:
    vectors, times = np.ones((3, 1), np.float32), np.array([5, 6, 7], dtype)
    assert replay(vectors, times, ttl=2 * MICROSECOND).cached_vectors.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="ascend"):
        replay(vectors, times[::-1])


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (np.array([0, 2**63], np.uint64), "too large for microseconds"),
        (np.array([0.0, 1.5]), "got float64 of shape"),
        (np.array(["2026-01-05", "NaT"], "datetime64[us]"), "the time of row 1 is missing"),
        (np.array([0, 1], "timedelta64[us]"), "got timedelta64"),
        ([datetime(2026, 1, 5, tzinfo=UTC)] * 2, "got object of shape"),
        (np.array([[0, 1]]), "one row of whole numbers"),
        (5, "one row of whole numbers"),
    ],
)
def test_what_are_no_times_is_refused(times: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replay(ONE, times)


@pytest.mark.telling
@pytest.mark.parametrize(
    "arguments", [{"max_elements": 0}, {"ttl": timedelta(0)}, {"ttl": -MICROSECOND}]
)
def test_sizes_below_1_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        replay(ONE, TIMES, **arguments)
