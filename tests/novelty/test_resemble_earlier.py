"""Which vectors resemble an earlier one, by loops; and how often an interval holds the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.novelty.resemblance import resemble_earlier
from kp_batch.operations.redundancy import wilson_interval
from kp_batch.vectors import Float32s, cosines, unit


def vectors_of(seed: int, rows: int = 60) -> Float32s:
    """Vectors that are equal, nearly equal, zero and far apart."""
    draw = np.random.default_rng(seed)
    drawn = draw.standard_normal((rows, 6))
    drawn[draw.integers(0, rows, rows // 4)] = drawn[0]
    drawn[draw.integers(0, rows, rows // 4)] += drawn[1] * 20
    drawn[draw.integers(0, rows, 3)] = 0
    return unit(drawn)


def one_by_one(vectors: Float32s, bound: float) -> list[bool]:
    """Whether any earlier one is as similar, or equal."""
    found: list[bool] = []
    for row, vector in enumerate(vectors):
        exact = cosines(np.broadcast_to(vector, vectors[:row].shape), vectors[:row])
        equal = vector.any() and (vectors[:row] == vector).all(axis=1).any()
        found.append(bool(equal or (exact >= bound).any()))
    return found


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.3, 0.5, 0.95, 0.9999999, 1.0]),
    st.integers(1, 70),
    st.integers(1, 60),
)
def test_law_those_that_resemble_an_earlier_one_are_found(
    seed: int, bound: float, at_once: int, compared: int
) -> None:
    vectors = vectors_of(seed)
    positions = np.sort(np.random.default_rng(seed).choice(60, compared, replace=False))
    parts = (vectors[start : start + at_once] for start in range(0, 60, at_once))
    found = resemble_earlier(positions, vectors[positions], parts, bound)
    wanted = one_by_one(vectors, bound)
    assert found.tolist() == [wanted[position] for position in positions]


def test_one_vector_resembles_no_other_and_none_are_none() -> None:
    one = unit(np.ones((1, 3)))
    assert resemble_earlier(np.arange(1), one, [one], 0.1).tolist() == [False]
    assert resemble_earlier(np.arange(0), one[:0], [], 0.1).tolist() == []


def test_the_interval_is_wilsons() -> None:
    # Of Newcombe (1998), table I.
    wanted = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0, 0.1611)}
    for (hits, draws), (low, high) in wanted.items():
        assert wilson_interval(hits, draws) == pytest.approx((low, high), abs=5e-5)
    low, high = wilson_interval(29, 29)
    assert (round(low, 4), high) == (0.8830, 1)


@pytest.mark.parametrize("bound", [0.6, 0.9, 0.999])
def test_the_interval_of_a_sample_holds_the_truth_for_nearly_all_seeds(bound: float) -> None:
    vectors = vectors_of(1, 600)
    truth = np.array(one_by_one_with_numpy(vectors, bound))
    held = 0
    for seed in range(400):
        drawn = np.sort(np.random.default_rng(seed).choice(600, 100, replace=False))
        hits = int(truth[drawn].sum())
        if seed < 5:
            found = resemble_earlier(drawn, vectors[drawn], [vectors], bound)
            assert found.tolist() == truth[drawn].tolist()
        low, high = wilson_interval(hits, 100)
        held += low <= truth.mean() <= high
    assert held >= 0.93 * 400


def one_by_one_with_numpy(vectors: Float32s, bound: float) -> list[bool]:
    exact = vectors.astype(np.float64)
    return [bool(row and (exact[:row] @ exact[row] >= bound).any()) for row in range(len(exact))]
