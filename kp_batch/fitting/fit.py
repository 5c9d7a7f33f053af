"""Fit the weights of one group of labels, and test them on labels held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kp_batch.fitting.comparison import Estimate, Order, Resampled
from kp_batch.fitting.held_out import HeldOut, Threshold, later_order, problem_of
from kp_batch.fitting.identify import Unidentifiable, unidentifiable
from kp_batch.fitting.optimum import Problem, optimum, weights_of
from kp_batch.fitting.pairs import strata_of
from kp_batch.fitting.resampling import draw_tasks, effective_tasks, reach, resampled_optima
from kp_batch.fitting.sample import Sample, folds_of, splits_of
from kp_batch.fitting.scoring import scores_of
from kp_batch.vectors import Float64s

_EVIDENT = 0.05  # the greatest p-value of an order that is better
_UNSURE = 0.025  # the share of resamples without any slope from which weights are unknown


@dataclass(frozen=True)
class FittedWeights:
    """The weights that order labels best, each with its 95% interval."""

    values: Float64s  # (4,)
    low: Float64s  # (4,); NaN if the weight is not identifiable
    high: Float64s
    problems: Sequence[Unidentifiable | None]  # of each weight
    drawn: Float64s  # the weights of resamples, (RESAMPLES, 4)


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

        It is 1 if the order is not better, or only that of traces with different overrides is: then
        labels follow an override, and no weight.
        """
        both = (self.held_out, self.same_overrides)
        is_better = all(order.difference.value > 0 for order in both)
        follows_weights = self.same_overrides.p_value < _EVIDENT
        return self.held_out.p_value if is_better and follows_weights else 1.0


def fit(sample: Sample, prior: Float64s, random: np.random.Generator) -> Fit:
    """Fit weights, and test them.

    Args:
        sample: the labels of a group.
        prior: the weights that stay where labels say nothing, (4,).
        random: draws pairs, resamples and folds.

    Raises:
        ValueError: no two traces with the same overrides, none a single thought, have different
            labels.
    """
    problem = problem_of(sample, prior, random)
    if not len(problem.counts):
        raise ValueError("no pair of labels differs")
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
        same_overrides=resampled.compare(
            held_out.scores, strata_of(sample.traces.overrides), in_folds=True
        ),
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
    weights = weights_of(scaled, prior)
    drawn = np.array([weights_of(each, prior) for each in optima])
    half = reach(drawn, effective_tasks(tasks, sample.counts))
    if (optima.sum(1) <= 0).mean() > _UNSURE:
        half = np.ones(4)
    problems = unidentifiable(problem.traces.dimensions, problem.pairs)
    half = np.where([each is None for each in problems], half, np.nan)
    low, high = np.maximum(weights - half, 0), np.minimum(weights + half, 1)
    return FittedWeights(weights, low, high, problems, drawn)
