"""Which weights labels can determine at all, whatever they are."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from kp_batch.fitting.pairs import LabelPairs
from kp_batch.vectors import Float64s

_SAME = 1e-6  # the deviation of a dimension that is constant
_NONE = 1e-6  # the variance of a combination that is constant, of standardised dimensions
_PART = 0.05  # of such a combination, whose squares sum to 1

Unidentifiable = Literal["constant", "collinear"]


def unidentifiable(dimensions: Float64s, pairs: LabelPairs) -> list[Unidentifiable | None]:
    """Return why the labels cannot determine the weight of a dimension; None: they can.

    A dimension is constant if the traces of all pairs have the same value. Some are collinear if a
    sum of them, each times a number, is constant: then only some sums of their weights matter.

    Args:
        dimensions: (n, 4).
        pairs: of n traces.
    """
    if not len(pairs.better):
        return ["constant"] * dimensions.shape[1]
    differences = dimensions[pairs.better] - dimensions[pairs.worse]
    sizes = np.sqrt((differences**2).mean(0))
    varied = np.flatnonzero(sizes > _SAME)
    found: list[Unidentifiable | None] = ["constant"] * dimensions.shape[1]
    standard = differences[:, varied] / sizes[varied]
    variances, sums = np.linalg.eigh(standard.T @ standard / len(standard))
    collinear = np.any(np.abs(sums[:, variances < _NONE]) > _PART, axis=1).tolist()
    for place, is_collinear in zip(varied, collinear, strict=True):
        found[place] = "collinear" if is_collinear else None
    return found


def pulls_of(problems: Sequence[Unidentifiable | None], prior: Float64s) -> Float64s:
    """Return what keeps such weights as they are: rows that are 0 times the prior weights.

    The weight of a constant dimension stays the same share of all; the weights of collinear ones
    keep their ratios.

    Args:
        problems: of each of the four dimensions; see `unidentifiable`.
        prior: the weights to keep, (4,).

    Returns:
        (r, 4).
    """
    units = np.eye(4)
    constant = [
        units[place] - prior[place] for place, each in enumerate(problems) if each == "constant"
    ]
    collinear = [place for place, each in enumerate(problems) if each == "collinear"]
    ratios = [
        prior[other] * units[one] - prior[one] * units[other]
        for one, other in combinations(collinear, 2)
    ]
    return np.array([*constant, *ratios]).reshape(-1, 4)
