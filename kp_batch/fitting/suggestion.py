"""How sure the order of traces is, under weights that other labels might have led to."""

import numpy as np

from kp_batch.fitting.scoring import ScoreInputs, scores_of
from kp_batch.vectors import Float64s

_DRAWS = 100  # of the weights
_ENDS = (0.025, 0.975)


def rank_ranges(traces: ScoreInputs, drawn: Float64s) -> Float64s:
    """Return a range of each trace's rank, 0 (the lowest score) to 1.

    Args:
        traces: n traces, at least 2.
        drawn: weights of resamples, (resamples, 4).

    Returns:
        (2, n): the quantiles 0.025 and 0.975 of the ranks; equal scores share a rank.
    """
    ranks = np.empty((len(drawn[:_DRAWS]), len(traces.dimensions)), np.float32)
    for row, weights in enumerate(drawn[:_DRAWS]):
        scores = scores_of(traces, weights)
        ordered = np.sort(scores)
        low, high = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
        ranks[row] = (low + high - 1) / 2 / (len(scores) - 1)
    return np.quantile(ranks, _ENDS, axis=0).astype(np.float64)
