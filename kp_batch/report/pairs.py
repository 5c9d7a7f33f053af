"""The sums behind differences from others: over the tasks that others attempted, too."""

import numpy as np

from kp_batch.report.scores import Numbers, Sums

_MEANS = ("score_difference", "success", "success_of_others")
_PRODUCTS = (  # products of distances from the means
    ("score_squares", "score_difference", "score_difference"),
    ("success_squares", "success", "success"),
    ("others_squares", "success_of_others", "success_of_others"),
    ("products", "success", "success_of_others"),
)


class Pairs:
    """For each of `size` groups, sums over the tasks that other groups attempted, too.

    Traces are added part by part. The sums are `tasks`, and their `traces`. Over the tasks, each
    counting once, there are the means `score_difference` from the mean of the others, `success` and
    `success_of_others`; the sums of squared distances from these means (`score_squares`,
    `success_squares`, `others_squares`); and the sums of products of the last two.
    """

    def __init__(self, size: int) -> None:
        names = ("tasks", "traces", *_MEANS, *(name for name, _, _ in _PRODUCTS))
        self.sums: Sums = {name: np.zeros(size) for name in names}
        self._size = size

    def add(self, place: Numbers, task: Numbers, traces: np.ndarray, sums: Sums) -> None:
        """Add all traces of some tasks.

        Args:
            place: the group of each task's traces.
            task: the task of each, as a number from 0; only comparable tasks.
            traces: how many traces of the task are in the group.
            sums: the sums of their `score` and `success`.
        """
        others = np.bincount(task)[task] - 1
        is_shared = others > 0
        place, task, traces, others = (each[is_shared] for each in (place, task, traces, others))
        values = {"traces": traces}
        for name in ("score", "success"):
            mean = sums[name][is_shared] / traces
            # The last digits of a sum are noise if the others never vary.
            of_others = ((np.bincount(task, mean)[task] - mean) / others).round(12)
            values |= {name: mean, f"{name}_of_others": of_others}
        values["score_difference"] = values["score"] - values["score_of_others"]
        self._merge(place, values)

    def _merge(self, place: Numbers, values: Sums) -> None:
        """Add tasks to means, and to sums of squares and products around them (Chan)."""
        n, known = self._summed(place, None), self.sums
        of_part = {name: self._summed(place, values[name]) / np.maximum(n, 1) for name in _MEANS}
        apart = {name: (of_part[name] - known[name]) * (n > 0) for name in _MEANS}
        off = {name: values[name] - of_part[name][place] for name in _MEANS}
        of_both = np.maximum(known["tasks"] + n, 1)
        for name, a, b in _PRODUCTS:
            known[name] += self._summed(place, off[a] * off[b])
            known[name] += apart[a] * apart[b] * known["tasks"] * n / of_both
        for name in _MEANS:
            known[name] += apart[name] * n / of_both
        known["tasks"] += n
        known["traces"] += self._summed(place, values["traces"])

    def _summed(self, place: Numbers, values: np.ndarray | None) -> np.ndarray:
        return np.bincount(place, values, minlength=self._size)
