"""The one cosine that decides: `VectorCache` and `replay` both take it from here."""

import numpy as np
import numpy.typing as npt

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]

# einsum sums up to 8,192 products in one go; beyond that its buffering would show in the last bits.
_ONE_SUM = 8_192
# A float32 unit vector's own norm is off by at most half a float32 step.
_UNIT_TOLERANCE = 2.0**-23

NO_NEIGHBOUR = 0.5  # the novelty of a trace that meets nothing


def novelty(max_similarity: npt.ArrayLike) -> Float64s:
    """Formula: `1 - max_similarity` within [0, 1]; 0.5 where that is NaN, the cache being empty.

    Args:
        max_similarity: float64 of any shape.

    Returns:
        float64 of the same shape.
    """
    similarity = np.asarray(max_similarity, dtype=np.float64)
    return np.where(np.isnan(similarity), NO_NEIGHBOUR, np.clip(1.0 - similarity, 0.0, 1.0))


def nonzero(vectors: Float32s) -> npt.NDArray[np.bool_]:
    """Which of the rows are not zero vectors: bool, shape (n,)."""
    return np.asarray(vectors.any(axis=-1), dtype=np.bool_)


def is_unit(vectors: Float32s) -> npt.NDArray[np.bool_]:
    """Which of the rows are float32 unit vectors, or zero: bool, shape (n,)."""
    norms = np.sqrt(np.einsum("...j,...j->...", vectors, vectors, dtype=np.float64))
    return (norms == 0) | (np.abs(norms - 1) <= _UNIT_TOLERANCE)


def unit(vectors: npt.ArrayLike) -> Float32s:
    """Vectors on the unit sphere, as they are stored.

    Formula: `float32(v / |v|)`, the norm and the division in float64. A vector that is already a
    float32 unit vector, and a zero vector, are returned bit for bit.

    Args:
        vectors: shape (n, dimensions) or (dimensions,), finite numbers.

    Returns:
        float32, C-contiguous, of the same shape.

    Raises:
        ValueError: a component is NaN or infinite.
    """
    given = np.asarray(vectors, dtype=np.float64)
    norms = np.sqrt(np.einsum("...j,...j->...", given, given))[..., None]
    if not np.isfinite(norms).all():
        raise ValueError("a vector has a NaN, infinite or overflowing component")
    rounded = given.astype(np.float32)
    kept = is_unit(rounded) & (rounded == given).all(axis=-1)
    divisors = np.where(kept[..., None] | (norms == 0), 1.0, norms)
    return np.ascontiguousarray(given / divisors, dtype=np.float32)


def cosines(left: Float32s, right: Float32s) -> Float64s:
    """The cosine similarity of each pair of unit vectors, by one fixed summation.

    Formula: `sum_j left[i, j] * right[i, j]` in float64. The bits depend on the two vectors alone:
    not on how many pairs are given, on threads, or on the width of the processor's registers.

    Args:
        left: float32, shape (pairs, dimensions), unit or zero rows.
        right: float32, the same shape.

    Returns:
        float64, shape (pairs,).
    """
    total = np.zeros(len(left), dtype=np.float64)
    for start in range(0, left.shape[1], _ONE_SUM):
        part = slice(start, start + _ONE_SUM)
        a = np.ascontiguousarray(left[:, part], dtype=np.float64)
        b = np.ascontiguousarray(right[:, part], dtype=np.float64)
        total += np.einsum("ij,ij->i", a, b)
    return total
