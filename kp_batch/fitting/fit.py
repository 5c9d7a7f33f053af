"""Fit the weights of one group of labels, and test them on labels held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kp_batch.fitting.comparison import Estimate, Order, Resampled
from kp_batch.fitting.held_out import HeldOut, Threshold, later_order, problem_of
from kp_batch.fitting.identify import Unidentifiable, unidentifiable
from kp_batch.fitting.optimum import Problem, optimum, weights_of
from kp_batch.fitting.resampling import (
    draw_tasks,
    effective_tasks,
    interval_of_ratios,
    resampled_optima,
)
from kp_batch.fitting.sample import Sample, folds_of, splits_of
from kp_batch.fitting.scoring import scores_of
from kp_batch.vectors import Float64s

EVIDENT = 0.05  # below it, a p-value is evidence of a better order
_UNSURE = 0.025  # the share of resamples without any slope from which weights are unknown


@dataclass(frozen=True)
class FittedWeights:
    """The weights that order labels best, each with its 95% interval."""

    values: Float64s  # (4,)
    below: Float64s  # (4,), how far the interval goes below it; NaN: it is not identifiable
    above: Float64s  # (4,); infinite if it is unknown
    problems: Sequence[Unidentifiable | None]  # of each weight
    drawn: Float64s  # the weights of resamples, (RESAMPLES, 4)

    @property
    def low(self) -> Float64s:
        """Where each interval begins, (4,), 0..1; NaN if the weight is not identifiable."""
        return self.interval()[0]

    @property
    def high(self) -> Float64s:
        """Where each interval ends; see `low`."""
        return self.interval()[1]

    def interval(self, labels: float = 1.0) -> tuple[Float64s, Float64s]:
        """Return where intervals begin and end, with so many times as many labels.

        Distances shrink with its root. If all other weights may be 0, a weight may be 1.
        """
        low = np.maximum(self.values - self.below / labels**0.5, 0)
        high = np.minimum(self.values + self.above / labels**0.5, 1)
        is_positive = ~(low <= 0)  # or not identifiable: then it stays as it is
        others = is_positive.sum() - is_positive
        return low, np.where((others == 0) & np.isfinite(high), 1.0, high)

    def widest(self, labels: float = 1.0) -> float | None:
        """Return the widest interval, with so many times as many labels; None: there is none."""
        low, high = self.interval(labels)
        return None if np.isnan(low).all() else float(np.nanmax(high - low))


@dataclass(frozen=True)
class Fit:
    """The fitted weights of a group, and how well they order its labels."""

    labels: int
    tasks: int
    pairs: int
    weights: FittedWeights
    alone: Sequence[Estimate]  # how well each dimension orders the labels
    in_sample: Order
    held_out: Order  # in folds; traces of different folds are compared, too
    same_overrides: Order  # likewise, of traces with the same overrides
    later: Order | None  # None: see `later_order`
    thresholds: tuple[Threshold, Threshold] | None  # published, fitted; None: labels are numbers

    @property
    def p_value(self) -> float:
        """The p-value of a better order of held-out labels.

        It is 1 if the order is not better, or if only that of traces with different overrides
        evidently is: then labels follow an override, and no weight.
        """
        both = (self.held_out, self.same_overrides)
        is_better = all(order.difference.value > 0 for order in both)
        follows_weights = self.same_overrides.p_value < EVIDENT
        return self.held_out.p_value if is_better and follows_weights else 1.0


def fit(sample: Sample, prior: Float64s, random: np.random.Generator) -> Fit:
    """Fit weights, and test them.

    Args:
        sample: the labels of a group.
        prior: the weights that stay where labels say nothing, (4,).
        random: draws pairs, resamples and folds.

    Raises:
        NoPairsError: no two traces of one domain with the same overrides, none a single thought,
            have different labels.
    """
    problem = problem_of(sample, prior, random)
    weights = fit_weights(sample, problem, random)
    folds = folds_of(sample.tasks, random)
    held_out = HeldOut.of(sample, splits_of(folds), prior, random)
    own = scores_of(sample.traces, weights.values)
    resampled = Resampled.of(sample, random)
    return Fit(
        labels=len(sample.labels),
        tasks=int(sample.tasks.max()) + 1,
        pairs=len(problem.counts),
        weights=weights,
        alone=resampled.alone(),
        in_sample=resampled.compare(own),
        held_out=resampled.compare(held_out.scores, in_folds=True),
        same_overrides=resampled.compare(held_out.scores, sample.strata, in_folds=True),
        later=later_order(sample, prior, random),
        thresholds=held_out.thresholds(sample, own),
    )


def fit_weights(sample: Sample, problem: Problem, random: np.random.Generator) -> FittedWeights:
    """Fit weights, with intervals over resamples of the tasks.

    Args:
        sample: the labels.
        problem: their pairs, at least one.
        random: draws resamples.
    """
    scaled = optimum(problem)
    tasks, prior = sample.tasks, problem.prior
    optima = resampled_optima(scaled, problem, tasks, draw_tasks(tasks, random))
    # What labels go against does not count, or it would hide the slope of the other dimensions.
    slopes = np.maximum(optima, 0).sum(1, keepdims=True)
    has_slope = slopes[:, 0] > 0
    low, high = np.full(4, -np.inf), np.full(4, np.inf)
    if has_slope.mean() >= 1 - _UNSURE:
        shares = optima[has_slope] / slopes[has_slope]
        low, high = interval_of_ratios(shares, effective_tasks(tasks, sample.counts))
    weights = weights_of(scaled, prior)
    problems = unidentifiable(problem.traces.dimensions, problem.pairs)
    is_known = [each is None for each in problems]
    below = np.where(is_known, np.maximum(weights - low, 0), np.nan)
    above = np.where(is_known, np.maximum(high - weights, 0), np.nan)
    drawn = np.array([weights_of(np.maximum(each, 0), prior) for each in optima])
    return FittedWeights(weights, below, above, problems, drawn)
