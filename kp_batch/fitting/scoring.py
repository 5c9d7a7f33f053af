"""The score as a function of the weights, overrides included, and its slopes."""

from typing import NamedTuple

import numpy as np

from kp_batch.vectors import Bools, Float64s, Int64s

_SINGLE, _STEP = 0.1, 0.1  # the score of a single thought, and what the other overrides change


class ScoreInputs(NamedTuple):
    """What the scores of n traces are computed from."""

    dimensions: Float64s  # (n, 4), 0..1, in the order of `DIMENSIONS`
    overrides: Bools  # (n, 3): whether the condition of each of `OVERRIDES` holds

    def take(self, rows: Int64s | Bools) -> "ScoreInputs":
        """Return some of the traces."""
        return ScoreInputs(self.dimensions[rows], self.overrides[rows])


def scores_of(traces: ScoreInputs, weights: Float64s) -> Float64s:
    """Return the scores, bit for bit as `scoring.composite` computes them.

    Args:
        traces: n traces.
        weights: four for all traces, or (n, 4).
    """
    terms = traces.dimensions * weights
    composite = terms[:, 0] + terms[:, 1] + terms[:, 2] + terms[:, 3]
    single, bonus, penalty = traces.overrides.T
    start = np.where(single, _SINGLE, composite)
    raised = np.where(bonus, np.minimum(1.0, start + _STEP), start)
    return np.where(penalty, np.maximum(0.0, raised - _STEP), raised)


def pieces_of(traces: ScoreInputs, scaled: Float64s) -> Float64s:
    """Return the linear piece of each score at some weights, times a slope.

    The score is piecewise linear in the weights. As they sum to 1, a constant 0.1 is 0.1 times
    their sum: so `slope * score = piece @ scaled` for `scaled = slope * weights`, whose sum is the
    slope.

    Args:
        traces: n traces.
        scaled: the weights times the slope, four from 0 on.

    Returns:
        (n, 4); `piece @ scaled` is from 0 to the slope.
    """
    single, bonus, penalty = traces.overrides.T
    pieces = np.where(single[:, None], _SINGLE, traces.dimensions)
    pieces += _STEP * bonus[:, None]
    pieces[bonus & (pieces @ scaled > scaled.sum())] = 1.0
    pieces -= _STEP * penalty[:, None]
    pieces[penalty & (pieces @ scaled < 0)] = 0.0
    return pieces
