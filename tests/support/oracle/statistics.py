"""The statistics that answers name, each by its definition."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Row = Mapping[str, Any]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return math.fsum(there) / len(there) if there else None


def deviation(values: Sequence[float]) -> float | None:
    """The sample's standard deviation."""
    if len(values) < 2:
        return None
    return math.sqrt(_moment(values, 2) * len(values) / (len(values) - 1))


def skewness(values: Sequence[float]) -> float | None:
    """The sample's, without bias; null where the values are all one."""
    n, spread = len(values), _moment(values, 2)
    if n < 3 or len(set(values)) == 1:
        return None
    return math.sqrt(n * (n - 1)) / (n - 2) * _moment(values, 3) / spread**1.5


def _moment(values: Sequence[float], power: int) -> float:
    middle = math.fsum(values) / len(values)
    return math.fsum((value - middle) ** power for value in values) / len(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Interpolated linearly."""
    ordered, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def covariance(left: Sequence[float], right: Sequence[float]) -> float:
    of_left, of_right = math.fsum(left) / len(left), math.fsum(right) / len(right)
    products = [(a - of_left) * (b - of_right) for a, b in zip(left, right, strict=True)]
    return math.fsum(products) / len(products)


def correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Pearson's; null where one never varies."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    of_left, of_right = math.fsum(left) / len(left), math.fsum(right) / len(right)
    pairs = [(a - of_left, b - of_right) for a, b in zip(left, right, strict=True)]
    products = math.fsum(a * b for a, b in pairs)
    spread = math.fsum(a * a for a, _ in pairs) * math.fsum(b * b for _, b in pairs)
    return products / math.sqrt(spread)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's: equal values share the mean of their ranks."""
    return correlation(_ranks(left), _ranks(right))


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def bins(values: Iterable[float], count: int = 10) -> list[int]:
    counts = [0] * count
    for value in values:
        counts[bin_of(value, count)] += 1
    return counts


def bin_of(value: float, count: int) -> int:
    """The last one holds 1 as well."""
    return min(math.floor(value * count), count - 1)


def stability_index(old: Sequence[int], new: Sequence[int]) -> float | None:
    """The population stability index; a share is at least 0.0001. Of few there is none."""
    if min(sum(old), sum(new)) < 200:
        return None
    p, q = ([max(count / sum(counts), 1e-4) for count in counts] for counts in (old, new))
    return math.fsum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {f"p{round(share * 100)}": quantile(values, share) for share in QUANTILES}
