"""How sure the share of a sample is."""

from math import sqrt

_Z = 1.959963984540054  # the normal distribution has 95% within so many deviations


def wilson_interval(hits: int, draws: int) -> tuple[float, float]:
    """The 95% interval of a share, by a sample of it.

    Formula: Wilson's, `(h + z^2 / 2 +- z sqrt(h (n - h) / n + z^2 / 4)) / (n + z^2)` for h hits of
    n draws.

    Args:
        hits: 0..draws.
        draws: at least 1.
    """
    middle = hits + _Z**2 / 2
    reach = _Z * sqrt(hits * (draws - hits) / draws + _Z**2 / 4)
    low, high = ((middle + side * reach) / (draws + _Z**2) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)
