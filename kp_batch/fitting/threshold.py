"""The threshold that serves yes-or-no labels best, and its precision and recall."""

from typing import NamedTuple

import numpy as np

from kp_batch.vectors import Bools, Float64s

_GRID = np.arange(101) / 100  # thresholds as people write them
_LITTLE = 1e-300


class Served(NamedTuple):
    """How a threshold serves labels; a share is NaN if it is one of none."""

    precision: float  # the share of traces at or above it that are labelled yes
    recall: float  # the share of traces labelled yes that are at or above it


def best_threshold(scores: Float64s, labels: Float64s, counts: Float64s) -> float:
    """Return the hundredth with the best F1, the harmonic mean of precision and recall.

    If several have the best, it is the highest of them.

    Args:
        scores: n scores.
        labels: n labels, each 0 or 1.
        counts: how much each label counts, (n,).
    """
    rows = np.argsort(scores)
    places = np.searchsorted(scores[rows], _GRID)
    found, good = (
        np.concatenate([np.cumsum(weights[rows][::-1])[::-1], [0]])[places]
        for weights in (counts, counts * labels)
    )
    harmonic = 2 * good / np.maximum(found + counts @ labels, _LITTLE)  # 0 if no label is yes
    return float(_GRID[np.flatnonzero(harmonic == harmonic.max())[-1]])


def served(passes: Bools, labels: Float64s, counts: Float64s) -> Served:
    """Return precision and recall.

    Args:
        passes: whether each trace is at or above its threshold, (n,).
        labels: see `best_threshold`.
        counts: see `best_threshold`.
    """
    good = float(counts @ (passes * labels))
    found, wanted = float(counts @ passes), float(counts @ labels)
    return Served(good / found if found else np.nan, good / wanted if wanted else np.nan)
