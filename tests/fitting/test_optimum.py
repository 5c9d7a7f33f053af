"""The loss of pairs by plain loops, and its optimum by a grid."""

from itertools import product
from math import exp, log1p

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.fitting.identify import pulls_of, unidentifiable
from kp_batch.fitting.optimum import Problem, loss_at, optimum, weights_of
from kp_batch.fitting.pairs import draw_pairs
from kp_batch.fitting.scoring import ScoreInputs, pieces_of, scores_of
from kp_batch.scoring.composite import scores_by_profile
from kp_batch.scoring.profiles import WeightProfile
from tests.support.make.labels import PUBLISHED, drawn_traces, sample_of

SEEDS = st.integers(0, 2**32 - 1)


def strata_of(traces: ScoreInputs) -> np.ndarray:
    return sample_of(traces, np.zeros(len(traces.dimensions))).strata


def problem_of(seed: int, number: int = 14) -> tuple[Problem, np.ndarray]:
    """Few traces with repeated labels and dimensions, and their labels."""
    random = np.random.default_rng(seed)
    traces = drawn_traces(random, number, overrides=True)
    traces = ScoreInputs(np.round(traces.dimensions, 1), traces.overrides)
    labels = random.integers(0, 4, number).astype(np.float64)
    weights = random.choice([0.5, 1, 2], number)
    pairs = draw_pairs(labels, strata_of(traces), random)
    counts = weights[pairs.better] * weights[pairs.worse]
    return Problem(traces, pairs, counts, PUBLISHED, np.zeros((0, 4))), labels


def scores_of_loops(problem: Problem, weights: tuple[float, ...]) -> list[float]:
    """The scores, as the engine computes them."""
    columns = dict(zip(DIMENSIONS, problem.traces.dimensions.T, strict=True))
    flags = dict(zip(OVERRIDES, problem.traces.overrides.T, strict=True))
    rows = pl.DataFrame(columns | flags)
    return [row["x"] for row in scores_by_profile(rows, {"x": WeightProfile("x", *weights)})]


def loss_of_loops(problem: Problem, slope: float, weights: tuple[float, ...]) -> float:
    scores = scores_of_loops(problem, weights)
    total = 0.0
    for better, worse, count in zip(*problem.pairs, problem.counts, strict=True):
        total += count * log1p(exp(-slope * (scores[better] - scores[worse])))
    return total / sum(problem.counts)


@given(SEEDS)
def test_scores_are_those_of_the_engine_bit_for_bit(seed: int) -> None:
    problem, _ = problem_of(seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(4))
    assert scores_of(problem.traces, weights).tolist() == scores_of_loops(problem, tuple(weights))


@given(SEEDS)
def test_a_piece_times_the_weights_is_the_score_overrides_included(seed: int) -> None:
    random = np.random.default_rng(seed)
    traces = drawn_traces(random, 50, overrides=True)
    traces.dimensions[:25] **= 8  # near 0, where the penalty is bounded
    traces.dimensions[25:] **= 1 / 8  # near 1, where the bonus is
    weights = random.dirichlet(np.ones(4))
    pieces = pieces_of(traces, 7 * weights)
    assert pieces @ (7 * weights) == pytest.approx(7 * scores_of(traces, weights))
    assert not pieces[traces.overrides[:, 0] & ~traces.overrides[:, 2]].std(axis=1).any()


@given(SEEDS)
def test_all_pairs_are_those_with_the_same_overrides_and_different_labels(seed: int) -> None:
    problem, labels = problem_of(seed)
    flags = problem.traces.overrides.tolist()
    expected = {
        (one, other)
        for one, other in product(range(len(labels)), repeat=2)
        if flags[one] == flags[other] and labels[one] > labels[other]
    }
    found = [*zip(*(rows.tolist() for rows in problem.pairs), strict=True)]
    assert len(found) == len(expected)
    assert {*found} == expected


def test_of_many_pairs_each_is_as_likely_as_any_other() -> None:
    labels = np.repeat([0.0, 1.0, 2.0], [5, 300, 295])
    drawn = draw_pairs(labels, np.zeros(600, np.int64), np.random.default_rng(1))
    assert len(drawn.better) == 50_000
    assert (labels[drawn.better] > labels[drawn.worse]).all()
    share = (labels[drawn.worse] == 0).mean()
    assert share == pytest.approx(5 * 595 / (5 * 595 + 300 * 295), abs=0.01)
    assert np.bincount(drawn.better[labels[drawn.better] == 2]).max() < 300  # of 170 expected


@given(SEEDS)
def test_the_loss_is_that_of_plain_loops_and_so_are_its_slopes(seed: int) -> None:
    problem, _ = problem_of(seed)
    if not len(problem.counts):
        return
    random = np.random.default_rng(seed)
    weights, slope = random.dirichlet(np.ones(4)), float(random.uniform(1, 30))
    near = loss_at(slope * weights, problem)
    assert near.value == pytest.approx(loss_of_loops(problem, slope, tuple(weights)), abs=1e-6)
    for place, step in enumerate(np.eye(4) * 1e-6):
        up, down = (loss_at(slope * weights + side * step, problem) for side in (1, -1))
        assert near.gradient[place] == pytest.approx((up.value - down.value) / 2e-6, abs=1e-5)
        curve = (up.gradient - down.gradient) / 2e-6
        assert near.hessian[place] == pytest.approx(curve, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_no_point_of_a_grid_has_less_loss_than_the_optimum(seed: int) -> None:
    problem, _ = problem_of(seed, 12)
    found = loss_at(optimum(problem), problem).value
    steps = range(11)
    grid = [
        tuple(part / 10 for part in (one, two, three, 10 - one - two - three))
        for one, two, three in product(steps, repeat=3)
        if one + two + three <= 10
    ]
    losses = {
        (slope, weights): loss_at(slope * np.array(weights), problem).value
        for weights in grid
        for slope in (0.5, 1, 2, 5, 10, 20, 50)
    }
    (slope, weights), least = min(losses.items(), key=lambda item: item[1])
    assert found <= least
    assert found == pytest.approx(loss_of_loops(problem, slope, weights), abs=0.05)


@settings(max_examples=20)
@given(SEEDS)
def test_no_nearby_weights_have_less_loss(seed: int) -> None:
    problem, _ = problem_of(seed, 60)
    if not len(problem.counts):
        return
    best = optimum(problem)
    least = loss_at(best, problem).value
    random = np.random.default_rng(seed)
    for _ in range(50):
        near = np.maximum(best + random.normal(0, 0.05, 4) * (1 + best.sum()), 0)
        # At a bound of an override the loss has an edge, from which no step of Newton's leads.
        assert loss_at(near, problem).value >= least - 1e-3


def test_weights_stay_where_labels_say_nothing() -> None:
    """A constant dimension keeps its weight; two that are equal share theirs as before."""
    random = np.random.default_rng(2)
    traces = drawn_traces(random, 400)
    traces.dimensions[:, 3] = 0.8
    traces.dimensions[:, 2] = 0.2 + traces.dimensions[:, 0] / 2
    labels = traces.dimensions[:, 1] * 0.5 + traces.dimensions[:, 2]
    labels += random.normal(0, 0.3, 400)
    pairs = draw_pairs(labels, strata_of(traces), random)
    problems = unidentifiable(traces.dimensions, pairs)
    assert problems == ["collinear", None, "collinear", "constant"]
    pulls = pulls_of(problems, PUBLISHED)
    assert pulls @ PUBLISHED == pytest.approx([0, 0])
    problem = Problem(traces, pairs, np.ones(len(pairs.better)), PUBLISHED, pulls)
    weights = weights_of(optimum(problem), PUBLISHED)
    assert weights[3] == pytest.approx(PUBLISHED[3], abs=0.001)
    assert weights[0] / weights[2] == pytest.approx(PUBLISHED[0] / PUBLISHED[2], abs=0.001)


def test_labels_in_perfect_or_reverse_order_have_weights_too() -> None:
    random = np.random.default_rng(3)
    traces = drawn_traces(random, 100)
    truth = np.array([0.1, 0.2, 0.3, 0.4])
    for labels in (scores_of(traces, truth), -traces.dimensions.sum(1)):
        pairs = draw_pairs(labels, strata_of(traces), random)
        problem = Problem(traces, pairs, np.ones(len(pairs.better)), PUBLISHED, np.zeros((0, 4)))
        weights = weights_of(optimum(problem), PUBLISHED)
        assert weights.sum() == pytest.approx(1)
        assert weights.min() >= 0
    assert weights.tolist() == PUBLISHED.tolist()  # no slope orders the second ones
