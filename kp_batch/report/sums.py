"""The sums behind means and their uncertainty, over the tasks of groups of traces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from kp_batch.report.pairs import Pairs
from kp_batch.report.scores import Part, Scores, Summed, Sums, firsts, in_groups, numbered

_FLOATS = ("score", "novelty", "confidence")
_HITS = ("success", "meets_threshold")
_COUNTED = ("warming_up", "tools", "penalty")
ALL_OF = (*_FLOATS, *_HITS, *_COUNTED)


@dataclass(frozen=True)
class Grouping:
    """What the traces of one group have in common.

    Args:
        by: its name.
        keys: returns the columns of groups, by their codes.
        code: returns each trace's group; -1 for no group.
        size: greater than all codes.
        of: the columns to sum.
        whole: the same over all labels, whose codes are the remainders by its size.
        compares: whether groups are compared with others on the same tasks.
    """

    by: str
    keys: Callable[[np.ndarray], pl.DataFrame]
    code: Callable[[Part], np.ndarray]
    size: int
    of: Sequence[str] = ALL_OF
    whole: "Grouping | None" = None
    compares: bool = False


def sums_of(scores: Scores, grouping: Grouping) -> pl.DataFrame:
    """Sum over the traces of each group, and over its tasks.

    With n traces of a task of N, and the sums s and S of a column of theirs, the squares of a
    column are the sum over tasks of ((n S / N - s) / (N - n))^2, which the jackknife is made of;
    `products` likewise of confidence and success; `success_between` and `meets_threshold_between`
    are sums of s^2 / n.

    Returns:
        `by` and the keys; `traces`; sums of the columns; `tasks`; `squares`, the sum of n^2; those
        that are said above; where groups are compared, the sums of `Pairs`, named `paired_`. Of
        the labels, and of the whole if there is one.
    """
    own, of_groups = _GroupSums.of_groups(scores, grouping)
    whole, place_of_whole = _whole(own)
    for part in of_groups.parts(len(own.codes)):
        clusters = _clusters(part, place_of_whole, own)
        own.add(clusters)
        if whole:
            whole.add(clusters.placed(place_of_whole))
    return pl.concat([each.frame() for each in (own, whole) if each])


def totals_of(scores: Scores, grouping: Grouping) -> pl.DataFrame:
    """Sum only over the traces of each group: `by`, the keys, `traces` and the columns."""
    own, _ = _GroupSums.of_groups(scores, grouping)
    return pl.concat([each.frame() for each in (own, _whole(own)[0]) if each])


@dataclass(frozen=True)
class _TaskClusters:
    """The traces of each task in each group: (c,) the group, how many, and the sums of columns."""

    place: np.ndarray
    task: np.ndarray
    n: np.ndarray
    sums: Sums

    def placed(self, places: np.ndarray) -> "_TaskClusters":
        """Return the same in other groups: those at these places."""
        return replace(self, place=places[self.place]).merged()

    def merged(self) -> "_TaskClusters":
        """Sum clusters of one task in one group, which must be adjacent."""
        cluster = numbered(self.place, self.task)
        first = firsts(cluster)
        if len(first) == len(cluster):
            return self
        n, *sums = (np.bincount(cluster, values) for values in (self.n, *self.sums.values()))
        named = dict(zip(self.sums, sums, strict=True))
        return _TaskClusters(self.place[first], self.task[first], n, named)


class _GroupSums:
    """The sums of groups."""

    def __init__(self, grouping: Grouping, codes: np.ndarray, totals: Sums) -> None:
        self.grouping, self.codes, self.totals = grouping, codes, totals
        self.of = [name for name in (*_FLOATS, *_HITS) if name in totals]  # columns summed by task
        self._means = {name: totals[name] / totals["traces"] for name in self.of}
        self._summed = Summed(len(codes))
        self._pairs = Pairs(len(codes)) if grouping.compares else None

    @classmethod
    def of_groups(cls, scores: Scores, grouping: Grouping) -> tuple["_GroupSums", Scores]:
        """The sums of a grouping, its totals alone yet; and the scores, see `in_groups`."""
        of_groups, codes = in_groups(scores, grouping.code, grouping.size)
        return cls(grouping, codes, _totals(of_groups, len(codes), grouping.of)), of_groups

    def frame(self) -> pl.DataFrame:
        paired = self._pairs.sums if self._pairs else {}
        paired = {f"paired_{name}": values for name, values in paired.items()}
        columns = (self.totals | self._summed.sums | paired).items()
        own = (pl.Series(name, values) for name, values in columns)
        return self.grouping.keys(self.codes).with_columns(*own, by=pl.lit(self.grouping.by))

    def add(self, clusters: _TaskClusters) -> None:
        place, n, sums = clusters.place, clusters.n, clusters.sums
        self._summed.add("tasks", place)
        self._summed.add("squares", place, n * n)
        # Without the only task there is no mean, and no interval: any number will do.
        weight = 1 / np.maximum(self.totals["traces"][place] - n, 1)
        shifts = {
            name: (n * self._means[name][place] - sums[name]) * weight
            for name in self.of
            if name != "meets_threshold"
        }
        for name, shift in shifts.items():
            self._summed.add(f"{name}_squares", place, shift * shift)
        if {"confidence", "success"} <= shifts.keys():
            self._summed.add("products", place, shifts["confidence"] * shifts["success"])
        for name in _HITS:
            if name in sums:
                self._summed.add(f"{name}_between", place, sums[name] * sums[name] / n)
        if self._pairs and len(place):
            self._pairs.add(place, self._compared(clusters), n, sums)

    def _compared(self, clusters: _TaskClusters) -> np.ndarray:
        """Return a number for each task, or for each label if there is a whole over them."""
        task = (clusters.task - clusters.task.min()).astype(np.int64)
        if not (whole := self.grouping.whole):
            return task
        labels = self.grouping.size // whole.size
        return task * labels + self.codes[clusters.place] // whole.size


def _whole(own: _GroupSums) -> tuple[_GroupSums | None, np.ndarray]:
    """Return the sums over all labels, if any; and the place among them of each group.

    Their totals are added up from those of the labels.
    """
    whole = own.grouping.whole
    if not whole:
        return None, np.arange(len(own.codes))
    codes, place = np.unique(own.codes % whole.size, return_inverse=True)
    summed = Summed(len(codes))
    for name, values in own.totals.items():
        summed.add(name, place, values)
    totals = {name: values.astype(own.totals[name].dtype) for name, values in summed.sums.items()}
    return _GroupSums(whole, codes, totals), place


def _totals(scores: Scores, size: int, of: Sequence[str]) -> Sums:
    """Return the number of traces in each group, and the sums of columns."""
    summed = Summed(size)
    for part in scores.parts(size):
        place, columns = _within(part, of)
        summed.add("traces", place)
        for name, values in columns.items():
            summed.add(name, place, values)
    return summed.sums


def _within(part: Part, names: Sequence[str]) -> tuple[np.ndarray, Sums]:
    """Return the places and the columns of traces that are in a group."""
    place = part["place"]
    is_in = place >= 0
    if is_in.all():
        return place, {name: part[name] for name in names}
    return place[is_in], {name: part[name][is_in] for name in names}


def _clusters(part: Part, place_of_whole: np.ndarray, of: _GroupSums) -> _TaskClusters:
    """Return clusters sorted by group of the whole, then by task and label."""
    place, columns = _within(part, ("task", *of.of))
    task = columns.pop("task")
    n = np.ones(len(task))
    if not (task[1:] == task[:-1]).any():  # one trace per task
        return _TaskClusters(place, task, n, columns)
    key = place_of_whole[place]
    # Small types are sorted by digits, in a tenth of the time.
    small = key.astype(np.uint16) if len(of.codes) <= 1 << 16 else key
    order = np.argsort(small, kind="stable")
    sums = {name: values[order] for name, values in columns.items()}
    return _TaskClusters(place[order], task[order], n, sums).merged()
