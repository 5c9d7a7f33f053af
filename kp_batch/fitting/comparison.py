"""How well published and fitted weights order labels, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as students_t

from kp_batch.fitting.order import Ranked
from kp_batch.fitting.resampling import draw_tasks, effective_tasks, reach
from kp_batch.fitting.sample import FOLDS, Sample
from kp_batch.fitting.scoring import scores_of
from kp_batch.vectors import Float64s, Int64s

# Each fold's weights are fitted to labels that others share, so results of folds vary more than
# resamples of them show. Nadeau and Bengio (2003) correct the variance by `1 + folds * tested /
# fitted`; this is its root.
_SHARED_FITS = (1 + FOLDS / (FOLDS - 1)) ** 0.5
_AT_ONCE = 1_000_000  # counts of labels, 8 MB


class Estimate(NamedTuple):
    """A number with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Order:
    """How well published and fitted weights order the same labels."""

    labels: int
    published: Estimate  # AUC, 0..1, or Spearman's correlation, -1..1
    fitted: Estimate
    difference: Estimate  # fitted - published
    p_value: float  # of no difference, two-sided


@dataclass(frozen=True)
class Resampled:
    """Labels, and how often each task counts: at first once, then in each resample."""

    sample: Sample
    drawn: Float64s  # (tasks, 1 + RESAMPLES)

    @classmethod
    def of(cls, sample: Sample, random: np.random.Generator) -> "Resampled":
        """Resample the tasks of labels."""
        drawn = draw_tasks(sample.tasks, random)
        return cls(sample, np.hstack([np.ones((len(drawn), 1)), drawn]))

    def compare(
        self, fitted: Float64s, parts: Int64s | None = None, *, in_folds: bool = False
    ) -> Order:
        """Compare how well published scores and others order the labels.

        Args:
            fitted: the other scores, (n,).
            parts: only traces of one part are compared; None: those of one domain.
            in_folds: whether several fits made the other scores, each for one fold.
        """
        more = _SHARED_FITS if in_folds else 1.0
        columns = [scores_of(self.sample.traces, self.sample.published), fitted]
        published, own = self._orders(columns, parts)
        difference = own - published
        half = more * self._reach(difference)
        middle = float(difference[0])
        return Order(
            labels=len(self.sample.labels),
            published=self._estimate(published),
            fitted=self._estimate(own, more),
            difference=Estimate(middle, middle - half, middle + half),
            p_value=self._p_value(difference, more),
        )

    def alone(self) -> list[Estimate]:
        """Return how well each dimension orders the labels."""
        return [*map(self._estimate, self._orders([*self.sample.traces.dimensions.T], None))]

    def _orders(self, columns: Sequence[Float64s], parts: Int64s | None) -> Float64s:
        sample, size = self.sample, max(_AT_ONCE // len(self.sample.labels), 1)
        parts = sample.domains if parts is None else parts
        ranked = Ranked.of(columns, sample.labels, parts, is_binary=sample.is_binary)
        found: list[Float64s] = []
        for first in range(0, self.drawn.shape[1], size):
            counts = self.drawn[:, first : first + size][sample.tasks] * sample.counts[:, None]
            found.append(ranked.orders(counts))
        return np.concatenate(found, axis=1)

    def _estimate(self, values: Float64s, more: float = 1.0) -> Estimate:
        value, half = float(values[0]), more * self._reach(values)
        least = 0.0 if self.sample.is_binary else -1.0
        return Estimate(value, max(value - half, least), min(value + half, 1.0))

    def _reach(self, values: Float64s) -> float:
        known = values[1:][np.isfinite(values[1:])]
        return float(reach(known, self._effective)) if len(known) > 1 else np.nan

    def _p_value(self, difference: Float64s, more: float) -> float:
        known = difference[1:][np.isfinite(difference[1:])]
        deviation = more * float(known.std(ddof=1)) if len(known) > 1 else 0.0
        ratio = abs(difference[0]) / deviation if deviation > 0 else 0.0
        return float(2 * students_t.sf(ratio, max(self._effective - 1, 1)))

    @property
    def _effective(self) -> float:
        return effective_tasks(self.sample.tasks, self.sample.counts)
