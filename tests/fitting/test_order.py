"""AUC and Spearman's correlation against scikit-learn and SciPy, ties included; thresholds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from kp_batch.fitting.order import Ranked
from kp_batch.fitting.threshold import best_threshold, served

SEEDS = st.integers(0, 2**32 - 1)


def orders(columns: list[np.ndarray], labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    parts, is_binary = np.zeros(len(labels), np.int64), labels.max() <= 1
    return Ranked.of(columns, labels, parts, is_binary=is_binary).orders(counts)


@given(SEEDS, st.integers(2, 40), st.sampled_from([2, 5, 1_000]))
def test_yes_and_no_are_ordered_as_scikit_learn_says(seed: int, number: int, values: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.concatenate([[0, 1], random.integers(0, 2, number)])) * 1.0
    columns = [random.integers(0, values, len(labels)) / values for _ in range(2)]
    counts = random.random((len(labels), 3)) + 0.1
    expected = [
        [roc_auc_score(labels, column, sample_weight=weights) for weights in counts.T]
        for column in columns
    ]
    assert orders(columns, labels, counts) == pytest.approx(np.array(expected))


@given(SEEDS, st.integers(3, 40), st.sampled_from([3, 1_000]))
def test_numbers_are_ordered_as_scipy_says(seed: int, number: int, values: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1, 2], random.integers(0, values, number)]) * 1.0
    columns = [np.concatenate([[0, 1], random.integers(0, values, number + 1)]) * 1.0]
    often = random.integers(1, 4, len(labels))
    repeated = [spearmanr(np.repeat(columns[0], often), np.repeat(labels, often)).statistic]
    once = [spearmanr(columns[0], labels).statistic]
    found = orders(columns, labels, np.stack([np.ones(len(labels)), often], axis=1))
    assert found == pytest.approx(np.array([once + repeated]))


def test_only_rows_of_one_part_are_compared() -> None:
    labels, scores = np.array([0.0, 1, 0, 1]), np.array([0.8, 0.9, 0.1, 0.2])
    parts = np.array([0, 0, 1, 1])
    assert Ranked.of([scores], labels, parts, is_binary=True).orders(np.ones((4, 1))).item() == 1
    assert orders([scores], labels, np.ones((4, 1))).item() == 0.75


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 40))
def test_the_threshold_with_the_best_f1_serves_best(seed: int, number: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.concatenate([[1], random.integers(0, 2, number)]) * 1.0
    scores = np.round(random.random(number + 1), 2)
    counts = random.choice([0.5, 1, 3], number + 1)
    each: list[float] = []
    for at in range(101):
        right, wrong = (counts[(scores >= at / 100) & (labels == kind)].sum() for kind in (1, 0))
        missed = counts[(scores < at / 100) & (labels == 1)].sum()
        each.append(2 * right / (2 * right + wrong + missed))
    found = best_threshold(scores, labels, counts)
    assert each[round(found * 100)] == pytest.approx(max(each))
    assert max(each[round(found * 100) + 1 :], default=0) < max(each)  # the highest of the best
    passes = scores >= found
    assert max(each) == pytest.approx(f1_score(labels, passes, sample_weight=counts))
    precision, recall = served(passes, labels, counts)
    assert precision == pytest.approx(precision_score(labels, passes, sample_weight=counts))
    assert recall == pytest.approx(recall_score(labels, passes, sample_weight=counts))


def test_without_a_yes_the_best_threshold_is_the_highest() -> None:
    """No harmonic mean is 0 / 0: a fold may have every yes."""
    assert best_threshold(np.array([0.2, 0.4]), np.zeros(2), np.ones(2)) == 1.0
