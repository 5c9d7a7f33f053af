"""Vector arithmetic that several rooms share: norms, normalisation and the exact cosine."""

import numpy as np
import numpy.typing as npt

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# einsum sums up to 8,192 products at once; beyond that, its buffering affects the last bits.
_ONE_SUM = 8_192
# A float32 unit vector's own norm is off by at most half a float32 step.
_UNIT_TOLERANCE = 2.0**-23


def norms(vectors: Float32s | Float64s) -> Float64s:
    """Return the Euclidean norm of each vector, summed in float64.

    Formula: `sqrt(sum_j v[j] * v[j])`; NaN or infinite if a component is, or if the sum overflows.

    Args:
        vectors: shape (..., dimensions).

    Returns:
        float64, shape (...).
    """
    squares = np.einsum("...j,...j->...", vectors, vectors, dtype=np.float64)
    return np.asarray(np.sqrt(squares), dtype=np.float64)


def nonzero(vectors: Float32s) -> Bools:
    """Return which rows are not zero vectors: bool, shape (n,)."""
    return np.asarray(vectors.any(axis=-1), dtype=np.bool_)


def is_unit(vectors: Float32s) -> Bools:
    """Return which rows are float32 unit vectors, or zero: bool, shape (n,)."""
    lengths = norms(vectors)
    return (lengths == 0) | (np.abs(lengths - 1) <= _UNIT_TOLERANCE)


def normalised(vectors: npt.ArrayLike) -> Float32s:
    """Divide vectors by their norm; zero vectors stay zero.

    Formula: `float32(v / |v|)`, the norm and the division in float64.

    Args:
        vectors: shape (n, dimensions) or (dimensions,), finite numbers.

    Returns:
        float32, C-contiguous, of the same shape.

    Raises:
        ValueError: a component is NaN, infinite, or so large that the norm overflows.
    """
    exact = np.asarray(vectors, dtype=np.float64)
    lengths = norms(exact)[..., None]
    if not np.isfinite(lengths).all():
        raise ValueError("a vector has a NaN, infinite or overflowing component")
    return np.ascontiguousarray(exact / np.where(lengths == 0, 1.0, lengths), dtype=np.float32)


def unit(vectors: npt.ArrayLike) -> Float32s:
    """Return vectors of norm 1: `normalised`, but float32 unit vectors stay as they are.

    A cache thus holds exactly the vectors of the store. Normalising one again could change its last
    bits, because its norm is 1 only within `2**-23`.

    Args:
        vectors: shape (n, dimensions) or (dimensions,), finite numbers.

    Returns:
        float32, C-contiguous, of the same shape.

    Raises:
        ValueError: as for `normalised`.
    """
    exact = np.asarray(vectors, dtype=np.float64)
    divided = normalised(exact)
    rounded = exact.astype(np.float32)
    is_exact = is_unit(rounded) & (rounded == exact).all(axis=-1)
    return np.ascontiguousarray(np.where(is_exact[..., None], rounded, divided))


def cosines(left: Float32s, right: Float32s, work: Float64s | None = None) -> Float64s:
    """Return the cosine similarity of each pair of unit vectors, by one fixed summation.

    `VectorCache` and `replay` both compare by it. Formula: `sum_j left[i, j] * right[i, j]` in
    float64. The bits depend only on the two vectors: not on the number of pairs, the threads, or
    the width of the processor's registers.

    Args:
        left: float32, shape (pairs, dimensions), unit or zero rows.
        right: float32, the same shape.
        work: float64, shape (2, pairs, dimensions), overwritten: the working memory of one thread,
            to be reused.

    Returns:
        float64, shape (pairs,).
    """
    both = np.empty((2, *left.shape)) if work is None else work
    both[0], both[1] = left, right
    total = np.zeros(len(left), dtype=np.float64)
    for start in range(0, left.shape[1], _ONE_SUM):
        total += np.einsum("ij,ij->i", *both[:, :, start : start + _ONE_SUM])
    return total
