"""Which traces an export should have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]  # of the view scores
Vector = Sequence[float]


def cosine(left: Vector, right: Vector) -> float:
    """By the one summation that the contract states."""
    pair = [np.array([each], dtype=np.float64) for each in (left, right)]
    return float(np.einsum("ij,ij->i", *pair)[0])


def best_first(rows: Iterable[Row]) -> list[Row]:
    """By score; of equal ones the oldest, then the one whose id comes first."""
    return sorted(rows, key=lambda row: (-row["score"], row["created_at"], row["trace_id"]))


def distinct(rows: Iterable[Row], bound: float, vector: Callable[[Row], Vector]) -> list[Row]:
    """The rows, the best first, of which none resembles one before it that is taken as well."""
    taken: list[Row] = []
    for row in best_first(rows):
        if not any(_is_alike(row, other, bound, vector) for other in taken):
            taken.append(row)
    return taken


def _is_alike(row: Row, other: Row, bound: float, vector: Callable[[Row], Vector]) -> bool:
    if row["encoder_id"] != other["encoder_id"]:
        return False
    if row["text_hash"] == other["text_hash"]:
        return True
    left, right = vector(row), vector(other)
    if bound == 1 or not any(left):
        return False
    return list(left) == list(right) or cosine(left, right) >= bound
