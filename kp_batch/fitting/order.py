"""How well scores order labels: AUC for yes and no, Spearman's correlation for numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kp_batch.vectors import Float64s, Int64s

_LEAST = 1e-12  # the share of a whole that is more than rounding


class Ranking(NamedTuple):
    """The rows of a column in ascending order, with equal values together."""

    rows: Int64s
    firsts: Int64s  # the place of the first of each run of equal values
    runs: Int64s  # the run of each row, in the order of the rows themselves

    @classmethod
    def of(cls, values: Float64s) -> "Ranking":
        """Rank values."""
        rows = np.argsort(values, kind="stable")
        ordered = values[rows]
        is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        runs = np.empty(len(rows), np.int64)
        runs[rows] = np.cumsum(is_first) - 1
        return cls(rows, np.flatnonzero(is_first), runs)

    def shares(self, counts: Float64s) -> Float64s:
        """Return the share below each value, and half of the share of the values equal to it.

        Args:
            counts: how often each row counts, (n, resamples).

        Returns:
            (n, resamples), 0..1.
        """
        sizes = np.add.reduceat(counts[self.rows], self.firsts, axis=0)
        until = np.cumsum(sizes, axis=0)
        return ((until - sizes / 2) / np.maximum(until[-1], 1e-300))[self.runs]


class _Part(NamedTuple):
    """Rows that are compared with each other."""

    rows: Int64s
    labels: Float64s
    of_labels: Ranking
    of_columns: list[Ranking]


class Ranked(NamedTuple):
    """Columns and labels, ranked once for all resamples."""

    parts: list[_Part]
    is_binary: bool

    @classmethod
    def of(
        cls, columns: Sequence[Float64s], labels: Float64s, parts: Int64s, *, is_binary: bool
    ) -> "Ranked":
        """Rank columns and labels within each part.

        Args:
            columns: k columns of n values.
            labels: n numbers.
            parts: the part of each row.
            is_binary: whether labels are yes (1) or no (0), so that orders are AUCs.
        """
        each = (np.flatnonzero(parts == part) for part in np.unique(parts))
        ranked = [
            _Part(
                rows,
                labels[rows],
                Ranking.of(labels[rows]),
                [Ranking.of(column[rows]) for column in columns],
            )
            for rows in each
        ]
        return cls(ranked, is_binary)

    def orders(self, counts: Float64s) -> Float64s:
        """Return how well each column orders the labels, in each resample.

        If they are yes or no, it is the AUC: the share of pairs, one yes and one no, in which the
        yes is higher, ties half. Otherwise it is Spearman's correlation. Only rows of one part are
        compared.

        Args:
            counts: how often each row counts, (n, resamples).

        Returns:
            (k, resamples); NaN if the labels, or the values, are equal within each part.
        """
        sums_of = _of_pairs if self.is_binary else _of_ranks
        sums = [sums_of(part, counts[part.rows]) for part in self.parts]
        over, first_under, second_under = np.sum(sums, axis=0)
        under = np.sqrt(first_under * second_under)
        return np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0)


def _of_pairs(part: _Part, counts: Float64s) -> Float64s:
    """Return the weight of pairs in order, and twice that of all pairs: (3, k, resamples)."""
    good = part.labels == 1
    of_good, all_ = counts[good], counts.sum(0)
    goods = of_good.sum(0)
    pairs = np.tile(_rounded(goods * (all_ - goods), all_**2), (len(part.of_columns), 1))
    shares = (ranking.shares(counts)[good] for ranking in part.of_columns)
    in_order = [(of_good * own).sum(0) * all_ - goods**2 / 2 for own in shares]
    return np.stack([np.array(in_order), pairs, pairs])


def _of_ranks(part: _Part, counts: Float64s) -> Float64s:
    """Return the covariance of ranks, and both variances: (3, k, resamples)."""
    of_labels = part.of_labels.shares(counts) - 0.5  # the mean of shares is a half
    all_ = counts.sum(0)
    variance = _rounded((counts * of_labels**2).sum(0), all_)
    found: list[Float64s] = []
    for ranking in part.of_columns:
        own = ranking.shares(counts) - 0.5
        own_variance = _rounded((counts * own**2).sum(0), all_)
        found.append(np.array([(counts * own * of_labels).sum(0), own_variance, variance]))
    return np.stack(found, axis=1)


def _rounded(sums: Float64s, whole: Float64s) -> Float64s:
    """Return sums, but 0 for those that differ from 0 only by rounding."""
    return np.where(sums > _LEAST * whole, sums, 0.0)
