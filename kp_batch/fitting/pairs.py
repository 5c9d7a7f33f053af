"""Pairs of traces whose labels differ: what weights should put in order."""

from typing import NamedTuple

import numpy as np

from kp_batch.vectors import Float64s, Int64s

MAX_PAIRS = 1_000_000
_FEW_PAIRS, _PER_LABEL = 50_000, 20  # more pairs of one label hardly add to what they say


class NoPairsError(Exception):
    """No two traces that may be compared have different labels."""


class LabelPairs(NamedTuple):
    """The rows of the better and the worse trace of each pair."""

    better: Int64s
    worse: Int64s


def draw_pairs(labels: Float64s, strata: Int64s, random: np.random.Generator) -> LabelPairs:
    """Draw pairs of one stratum with different labels, each pair as likely as any other.

    These are all pairs up to 50,000, or twenty for each label if that is more; at most a million.

    Args:
        labels: n numbers; a greater one is better.
        strata: a number for each.
        random: draws them.
    """
    rows = np.lexsort((labels, strata))
    keys = np.stack([strata[rows], labels[rows]])
    is_new = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    begins_stratum = keys[0, 1:] != keys[0, :-1]
    places = np.arange(1, len(rows))
    # The first place of the same stratum and label, and of the same stratum.
    of_label = np.maximum.accumulate(np.concatenate([[0], np.where(is_new, places, 0)]))
    first = np.maximum.accumulate(np.concatenate([[0], np.where(begins_stratum, places, 0)]))
    until = np.cumsum(of_label - first)  # pairs of which this place, or one before, is the better
    total = int(until[-1])
    most = min(MAX_PAIRS, max(_FEW_PAIRS, _PER_LABEL * len(labels)))
    drawn = np.arange(total) if total <= most else np.sort(random.integers(0, total, most))
    better = np.searchsorted(until, drawn, side="right")
    before = np.concatenate([[0], until])[better]
    return LabelPairs(rows[better], rows[first[better] + drawn - before])
