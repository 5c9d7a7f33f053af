"""How results vary with other tasks: resamples of the tasks, and the best weights of each."""

import numpy as np
from scipy.special import expit
from scipy.stats import t as students_t

from kp_batch.fitting.optimum import Problem, pull
from kp_batch.fitting.scoring import pieces_of
from kp_batch.vectors import Float64s, Int64s

RESAMPLES = 200
_AT_ONCE = 512  # pairs, whose counts in all resamples stay in a processor's cache
_SHARE = 0.95  # of an interval
_LITTLE = 1e-300


def draw_tasks(tasks: Int64s, random: np.random.Generator) -> Float64s:
    """Draw as many tasks as there are, with replacement, `RESAMPLES` times.

    Args:
        tasks: the number of each trace's task, from 0 without gaps.
        random: draws them.

    Returns:
        How often each task is drawn in each resample: (tasks, RESAMPLES).
    """
    number = int(tasks.max()) + 1
    drawn = random.multinomial(number, np.full(number, 1 / number), RESAMPLES)
    return np.ascontiguousarray(drawn.T, dtype=np.float64)


def resampled_optima(
    scaled: Float64s, problem: Problem, tasks: Int64s, drawn: Float64s
) -> Float64s:
    """Return about the optimum of each resample: that of its quadratic at the optimum of all.

    A pair counts as often as both tasks are drawn; a pair within one task, as often as this. Here
    weights may be below 0. If they were not, those of small weights would vary too little.

    Args:
        scaled: the optimum of all tasks, (4,).
        problem: the pairs.
        tasks: see `draw_tasks`.
        drawn: see `draw_tasks`.

    Returns:
        Weights times the slope, (RESAMPLES, 4).
    """
    pieces, sums = pieces_of(problem.traces, scaled), np.zeros((drawn.shape[1], 21))
    for first in range(0, len(problem.counts), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        better, worse = (rows[part] for rows in problem.pairs)
        terms = _terms(pieces[better] - pieces[worse], scaled) * problem.counts[part, None]
        is_within = (tasks[better] == tasks[worse])[:, None]
        often = drawn[tasks[better]] * np.where(is_within, 1.0, drawn[tasks[worse]])
        sums += often.T @ terms
    means = sums[:, 1:] / np.maximum(sums[:, :1], _LITTLE)
    pulled = pull(scaled, problem)
    gradients = pulled.gradient + means[:, :4]
    hessians = pulled.hessian + means[:, 4:].reshape(-1, 4, 4)
    return scaled - np.linalg.solve(hessians, gradients[:, :, None])[:, :, 0]


def _terms(differences: Float64s, scaled: Float64s) -> Float64s:
    """Return 1, the gradient and the second derivatives of the loss of each pair: (m, 21)."""
    wrong = expit(-differences @ scaled)[:, None]
    products = (differences[:, :, None] * differences[:, None, :]).reshape(-1, 16)
    return np.hstack([np.ones_like(wrong), -wrong * differences, wrong * (1 - wrong) * products])


def effective_tasks(tasks: Int64s, counts: Float64s) -> float:
    """Return how many tasks of equal weight give the same precision: `n^2 / sum n_g^2`."""
    sizes = np.bincount(tasks, counts)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def reach(resampled: Float64s, effective: float) -> Float64s:
    """Return half the width of 95% intervals: Student's t times the deviation of the resamples.

    Args:
        resampled: (resamples, ...).
        effective: see `effective_tasks`.
    """
    return _quantile(effective) * resampled.std(0, ddof=1)


def interval_of_ratios(resampled: Float64s, effective: float) -> tuple[Float64s, Float64s]:
    """Return where 95% intervals begin and end.

    A few ratios may be far from all others, and more on one side. So these are quantiles of the
    resamples. Their distances to the median are multiplied by Student's t over that of the normal
    distribution; see `reach`.
    """
    ends = ((1 - _SHARE) / 2, 0.5, (1 + _SHARE) / 2)
    low, middle, high = np.quantile(resampled, ends, axis=0)
    more = _quantile(effective) / _quantile(np.inf)
    return middle - more * (middle - low), middle + more * (high - middle)


def _quantile(effective: float) -> float:
    return float(students_t.ppf((1 + _SHARE) / 2, max(effective - 1, 1)))
