"""The weights that order pairs best: a logistic loss, and its least value."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls  # pyrefly: ignore (it is in scipy's __all__)
from scipy.special import expit

from kp_batch.fitting.pairs import LabelPairs
from kp_batch.fitting.scoring import ScoreInputs, pieces_of
from kp_batch.vectors import Float64s

_PULL = 1e-6  # towards the prior weights, where labels say nothing
_BOUND = 1e-10  # of the slope, which labels in perfect order would raise for ever
_START = 10.0  # the slope from which to begin
_STEPS, _HALVINGS = 50, 30
_DONE = 1e-10  # of the loss


class Problem(NamedTuple):
    """Pairs to put in order."""

    traces: ScoreInputs  # n
    pairs: LabelPairs  # m pairs of them
    counts: Float64s  # (m,), how much each pair counts
    prior: Float64s  # (4,), weights that sum to 1, which stay where the pairs say nothing
    pulls: Float64s  # (r, 4), what is 0 times the prior weights, and should be times others


class Quadratic(NamedTuple):
    """A loss near a point: its value, gradient and matrix of second derivatives."""

    value: float
    gradient: Float64s  # (4,)
    hessian: Float64s  # (4, 4)


def loss_at(scaled: Float64s, problem: Problem) -> Quadratic:
    """Return the mean loss of the pairs, and a slight pull towards the prior weights.

    Formula: `sum c_ij log(1 + exp(-slope (score_i - score_j))) / sum c_ij`, i the better one.

    Args:
        scaled: the weights times the slope, (4,).
        problem: the pairs.
    """
    value, gradient, hessian = pull(scaled, problem)
    pieces, total = pieces_of(problem.traces, scaled), problem.counts.sum()
    differences = pieces[problem.pairs.better] - pieces[problem.pairs.worse]
    margins = differences @ scaled
    wrong = problem.counts * expit(-margins)
    curved = (wrong * expit(margins))[:, None]
    return Quadratic(
        value + float(problem.counts @ np.logaddexp(0, -margins) / total),
        gradient - wrong @ differences / total,
        hessian + (differences * curved).T @ differences / total,
    )


def pull(scaled: Float64s, problem: Problem) -> Quadratic:
    """Return the penalty of a slope, and of weights that the pairs say nothing about."""
    matrix = _PULL * problem.pulls.T @ problem.pulls + _BOUND * np.eye(4)
    gradient = matrix @ scaled
    return Quadratic(float(scaled @ gradient) / 2, gradient, matrix)


def optimum(problem: Problem) -> Float64s:
    """Return the weights times the slope with the least loss: Newton's method, none below 0."""
    scaled = problem.prior * _START
    near = loss_at(scaled, problem)
    for _ in range(_STEPS):
        following, then = _step(scaled, near, problem)
        gained, scaled, near = near.value - then.value, following, then
        if gained < _DONE:
            break
    return scaled


def _step(scaled: Float64s, near: Quadratic, problem: Problem) -> tuple[Float64s, Quadratic]:
    """Go to the least value of the quadratic, or less far if the loss is greater there."""
    target = least(scaled, near)
    for halving in range(_HALVINGS):
        following = scaled + (target - scaled) / 2**halving
        then = loss_at(following, problem)
        if then.value <= near.value:
            return following, then
    return scaled, near


def least(scaled: Float64s, near: Quadratic) -> Float64s:
    """Return the point, none of its numbers below 0, with the least value of a quadratic.

    Args:
        scaled: where the quadratic is known, (4,).
        near: the quadratic there; its matrix is positive definite.
    """
    root: Float64s = np.linalg.cholesky(near.hessian)  # pyrefly: ignore (float64)
    wanted = solve_triangular(root, near.hessian @ scaled - near.gradient, lower=True)
    return nnls(root.T, wanted)[0]


def weights_of(scaled: Float64s, prior: Float64s) -> Float64s:
    """Return the weights, which sum to 1; the prior ones if the slope is 0."""
    slope = scaled.sum()
    return scaled / slope if slope > 0 else prior
