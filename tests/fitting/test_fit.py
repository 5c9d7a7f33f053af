"""Planted weights are found, their intervals hold them, and chance finds nothing."""

import numpy as np
import pytest

from kp_batch.fitting.fit import fit, fit_weights
from kp_batch.fitting.held_out import problem_of
from kp_batch.fitting.pairs import NoPairsError
from kp_batch.fitting.sample import FOLDS, Sample, folds_of, split_in_time, splits_of
from kp_batch.fitting.scoring import scores_of
from kp_batch.fitting.suggestion import rank_ranges
from tests.support.make.labels import PUBLISHED, drawn_traces, planted, sample_of


def weights_of(sample: Sample, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return fit_weights(sample, problem_of(sample, PUBLISHED, random), random).values


@pytest.mark.parametrize("overrides", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_planted_weights_are_found(seed: int, *, overrides: bool) -> None:
    sample, weights = planted(seed, overrides=overrides)
    assert weights_of(sample) == pytest.approx(weights, abs=0.05)


def are_held(sample: Sample, weights: np.ndarray, seed: int) -> np.ndarray:
    """Whether the intervals hold the planted weights."""
    random = np.random.default_rng(seed)
    found = fit_weights(sample, problem_of(sample, PUBLISHED, random), random)
    return (found.low <= weights) & (weights <= found.high)


def held(seed: int, number: int, noise: float) -> np.ndarray:
    sample, weights = planted(seed, number, noise=noise, overrides=True)
    return are_held(sample, weights, seed)


def held_at_the_edge(seed: int, number: int, slope: float) -> np.ndarray:
    """Some weights are small; labels are as the loss assumes."""
    random, weights = np.random.default_rng(seed), np.array([0.03, 0.03, 0.14, 0.8])
    traces = drawn_traces(random, number)
    labels = slope * scores_of(traces, weights) + random.gumbel(size=number)
    return are_held(sample_of(traces, labels), weights, seed)


def test_intervals_hold_planted_weights() -> None:
    assert (sum(held(seed, 200, 0.1) for seed in range(20)) >= 17).all()


@pytest.mark.slow
@pytest.mark.timeout(900)  # 12 s alone
@pytest.mark.parametrize(("number", "noise"), [(1_000, 0.02), (300, 0.1)])
def test_in_a_hundred_draws_the_intervals_hold_at_least_92(number: int, noise: float) -> None:
    assert (sum(held(seed, number, noise) for seed in range(100)) >= 92).all()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "slope"), [(150, 8), (60, 20)])
def test_in_a_hundred_draws_the_intervals_hold_small_weights(number: int, slope: float) -> None:
    assert (sum(held_at_the_edge(seed, number, slope) for seed in range(100)) >= 92).all()


def is_evident(seed: int, number: int, attempts: int) -> bool:
    """Whether labels at random order themselves better by fitted weights."""
    random = np.random.default_rng(seed)
    labels = random.random(number) < 0.3
    sample = sample_of(drawn_traces(random, number, overrides=True), labels, attempts=attempts)
    return fit(sample, PUBLISHED, random).p_value < 0.05


def test_labels_at_random_are_no_evidence() -> None:
    assert sum(is_evident(seed, 200, 2) for seed in range(10)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "attempts"), [(400, 1), (300, 3)])
def test_in_a_hundred_draws_labels_at_random_are_no_evidence_in_at_least_95(
    number: int, attempts: int
) -> None:
    assert sum(is_evident(seed, number, attempts) for seed in range(100)) <= 5


def test_labels_planted_through_an_override_are_not_blamed_on_a_dimension() -> None:
    """Labels follow an override alone, which depends on a dimension."""
    random = np.random.default_rng(5)
    traces = drawn_traces(random, 1_000, overrides=True)
    for override in (0, 2):
        labels = random.random(1_000) < np.where(traces.overrides[:, override], 0.2, 0.6)
        assert fit(sample_of(traces, labels), PUBLISHED, random).p_value > 0.05
        problem = problem_of(sample_of(traces, labels), PUBLISHED, random)
        flags = traces.overrides
        assert (flags[problem.pairs.better] == flags[problem.pairs.worse]).all()


def test_a_better_order_is_evident_and_overfitting_is_visible() -> None:
    truth = np.array([0.1, 0.1, 0.2, 0.6])
    sample, weights = planted(7, 600, noise=0.15, weights=truth)
    found = fit(sample, PUBLISHED, np.random.default_rng(7))
    assert found.p_value < 0.01
    assert found.held_out.difference.low > 0
    assert found.later is not None
    assert found.later.labels == 180
    small = fit(sample.take(np.arange(25)), PUBLISHED, np.random.default_rng(7))
    assert small.in_sample.fitted.value > small.held_out.fitted.value
    assert small.later is None
    best = int(np.argmax(weights))
    assert int(np.argmax([each.value for each in found.alone])) == best


def test_dimensions_that_labels_say_nothing_of_are_not_identifiable() -> None:
    sample, _ = planted(1, 300)
    sample.traces.dimensions[:, 3] = 0.5
    sample.traces.dimensions[:, 0] = 0.25 + sample.traces.dimensions[:, 1] / 2
    random = np.random.default_rng(1)
    found = fit_weights(sample, problem_of(sample, PUBLISHED, random), random)
    assert [*found.problems] == ["collinear", "collinear", None, "constant"]
    assert np.isnan(found.low).tolist() == [True, True, False, True]
    assert found.values[3] == pytest.approx(PUBLISHED[3], abs=0.01)


def test_single_thoughts_determine_no_weight() -> None:
    """Their score is 0.1 under any weights: complexity varies among them alone."""
    sample, _ = planted(1, 300)
    sample.traces.overrides[:100, 0] = True
    sample.traces.dimensions[100:, 0] = 0.3
    random = np.random.default_rng(1)
    found = fit_weights(sample, problem_of(sample, PUBLISHED, random), random)
    assert [*found.problems] == ["constant", None, None, None]
    with pytest.raises(NoPairsError):
        fit(sample.take(np.arange(100)), PUBLISHED, random)


@pytest.mark.parametrize("seed", range(5))
def test_attempts_at_one_task_are_never_on_both_sides(seed: int) -> None:
    random = np.random.default_rng(seed)
    tasks = np.unique(random.integers(0, 60, 200), return_inverse=True)[1]
    times = random.integers(0, 1_000, 200)
    folds = [*splits_of(folds_of(tasks, random))]
    assert len(folds) == FOLDS
    tested = sum(split.tested for split in folds)
    assert tested.tolist() == [1] * 200
    in_time = split_in_time(tasks, times)
    for split in (*folds, in_time):
        assert {*tasks[split.fitted]}.isdisjoint(tasks[split.tested])
    assert times[in_time.fitted].max() < times[in_time.tested].min()
    assert in_time.tested.any()


def test_the_order_of_traces_is_unsure_where_weights_disagree() -> None:
    traces = drawn_traces(np.random.default_rng(0), 50)
    drawn = np.random.default_rng(1).dirichlet(np.ones(4) * 3, 100)
    low, high = rank_ranges(traces, drawn)
    ranks = []
    for weights in drawn:
        scores = scores_of(traces, weights)
        ranks.append([sum(other < own for other in scores) / 49 for own in scores])
    assert low == pytest.approx(np.quantile(ranks, 0.025, axis=0), abs=1e-6)
    assert high == pytest.approx(np.quantile(ranks, 0.975, axis=0), abs=1e-6)
    same = rank_ranges(traces, np.tile(PUBLISHED, (10, 1)))
    assert same[0].tolist() == same[1].tolist()
