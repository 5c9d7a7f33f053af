"""Fit weights and thresholds to some labels, and test them on others."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kp_batch.fitting.comparison import Order, Resampled
from kp_batch.fitting.identify import pulls_of, unidentifiable
from kp_batch.fitting.optimum import Problem, optimum, weights_of
from kp_batch.fitting.pairs import LabelPairs, NoPairsError, draw_pairs
from kp_batch.fitting.resampling import effective_tasks
from kp_batch.fitting.sample import Sample, Split, split_in_time
from kp_batch.fitting.scoring import scores_of
from kp_batch.fitting.threshold import Served, best_threshold, served
from kp_batch.vectors import Bools, Float64s

_LATER_TASKS = 20  # fewer later tasks test nothing


class Threshold(NamedTuple):
    """A threshold, and how it serves labels; of folds, those that did not choose it."""

    value: float  # 0..1
    served: Served


def problem_of(sample: Sample, prior: Float64s, random: np.random.Generator) -> Problem:
    """Draw the pairs of labels; see `draw_pairs`.

    A single thought has the same score under any weights, so it is in no pair.

    Args:
        sample: the labels.
        prior: see `Problem`.
        random: draws pairs.

    Raises:
        NoPairsError: there is none.
    """
    rows = np.flatnonzero(~sample.traces.overrides[:, 0])
    drawn = draw_pairs(sample.labels[rows], sample.strata[rows], random)
    if not len(drawn.better):
        raise NoPairsError
    pairs = LabelPairs(rows[drawn.better], rows[drawn.worse])
    counts = sample.counts[pairs.better] * sample.counts[pairs.worse]
    problems = unidentifiable(sample.traces.dimensions, pairs)
    return Problem(sample.traces, pairs, counts, prior, pulls_of(problems, prior))


def fitted_weights(sample: Sample, prior: Float64s, random: np.random.Generator) -> Float64s:
    """Return the weights that order labels best; the prior ones if no pair of labels differs."""
    try:
        return weights_of(optimum(problem_of(sample, prior, random)), prior)
    except NoPairsError:
        return prior


class HeldOut(NamedTuple):
    """What weights and thresholds say about labels that they were not fitted to."""

    scores: Float64s  # fitted, (n,)
    passes: Bools  # (2, n): whether published and fitted scores reach their best thresholds

    @classmethod
    def of(
        cls,
        sample: Sample,
        splits: Iterable[Split],
        prior: Float64s,
        random: np.random.Generator,
    ) -> "HeldOut":
        """Fit each split, and test it."""
        published = scores_of(sample.traces, sample.published)
        fitted, passes = np.zeros_like(published), np.zeros((2, len(published)), bool)
        for split in splits:
            weights = fitted_weights(sample.take(split.fitted), prior, random)
            own = scores_of(sample.traces, weights)
            fitted[split.tested] = own[split.tested]
            if sample.is_binary:
                for each, scores in zip(passes, (published, own), strict=True):
                    known = (scores, sample.labels, sample.counts)
                    best = best_threshold(*(values[split.fitted] for values in known))
                    each[split.tested] = scores[split.tested] >= best
        return cls(fitted, passes)

    def thresholds(self, sample: Sample, fitted: Float64s) -> tuple[Threshold, Threshold] | None:
        """Return the best thresholds of published and of fitted scores, tested by the splits.

        None if labels are numbers.
        """
        if not sample.is_binary:
            return None
        known = (sample.labels, sample.counts)
        columns = (scores_of(sample.traces, sample.published), fitted)
        first, second = (
            Threshold(best_threshold(scores, *known), served(passes, *known))
            for scores, passes in zip(columns, self.passes, strict=True)
        )
        return first, second


def later_order(sample: Sample, prior: Float64s, random: np.random.Generator) -> Order | None:
    """Fit the earlier labels, and test the later ones.

    None if the later ones are few or all the same.
    """
    split = split_in_time(sample.tasks, sample.times)
    if not split.fitted.any() or not split.tested.any():
        return None
    later = sample.take(split.tested)
    if effective_tasks(later.tasks, later.counts) < _LATER_TASKS or np.ptp(later.labels) == 0:
        return None
    weights = fitted_weights(sample.take(split.fitted), prior, random)
    return Resampled.of(later, random).compare(scores_of(later.traces, weights))
