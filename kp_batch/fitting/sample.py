"""Labelled traces as arrays, and how they are divided to test weights on labels held out."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kp_batch.fitting.scoring import ScoreInputs
from kp_batch.vectors import Bools, Float64s, Int64s

FOLDS = 5
_EARLIER = 0.7  # the share of labels before the split in time


class Sample(NamedTuple):
    """Labelled traces, and what their labels are tested against."""

    traces: ScoreInputs
    published: Float64s  # (n, 4), the published weights of each
    labels: Float64s  # (n,), a greater one is better
    counts: Float64s  # (n,), how much each label counts, above 0
    tasks: Int64s  # (n,), from 0 without gaps
    domains: Int64s  # (n,), a number for each domain
    times: Int64s  # (n,), in microseconds
    is_binary: bool  # whether labels are yes (1) or no (0), also where all of these are 0 or 1

    @property
    def strata(self) -> Int64s:
        """A number for each domain with each combination of overrides, (n,).

        Labels of several domains may differ for reasons that no weight explains. Pairs of traces
        with different overrides would blame a dimension for what an override does.
        """
        return self.domains * 8 + (self.traces.overrides @ np.array([1, 2, 4])).astype(np.int64)

    def take(self, rows: Int64s | Bools) -> "Sample":
        """Return some of the traces."""
        tasks = np.unique(self.tasks[rows], return_inverse=True)[1]
        return Sample(
            self.traces.take(rows),
            self.published[rows],
            self.labels[rows],
            self.counts[rows],
            tasks.astype(np.int64),
            self.domains[rows],
            self.times[rows],
            self.is_binary,
        )


class Split(NamedTuple):
    """Labels to fit, and labels to test; no task has both."""

    fitted: Bools  # (n,)
    tested: Bools


def folds_of(tasks: Int64s, random: np.random.Generator) -> Int64s:
    """Draw the fold of each trace, from 0 on; attempts at one task have the same.

    Args:
        tasks: see `Sample`.
        random: draws them.
    """
    of_task = random.permutation(int(tasks.max()) + 1) % FOLDS
    return of_task[tasks]


def splits_of(folds: Int64s) -> Iterator[Split]:
    """Yield the split of each fold: its labels are tested, all others are fitted."""
    for fold in range(FOLDS):
        yield Split(folds != fold, folds == fold)


def split_in_time(tasks: Int64s, times: Int64s) -> Split:
    """Fit what is earlier than the last three tenths, and test the tasks that begin later.

    Later attempts at a task that began earlier are on neither side.

    Args:
        tasks: see `Sample`.
        times: see `Sample`.
    """
    cut = np.quantile(times, _EARLIER)
    begins = np.full(int(tasks.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begins, tasks, times)
    return Split(times < cut, begins[tasks] >= cut)
