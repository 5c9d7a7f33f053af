"""The labels of each domain, their fits, and which of these have evidence for other weights."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, Literal

import numpy as np
import polars as pl

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.fitting.fit import EVIDENT, Fit, fit
from kp_batch.fitting.order import Ranked
from kp_batch.fitting.pairs import NoPairsError
from kp_batch.fitting.resampling import effective_tasks
from kp_batch.fitting.sample import Sample
from kp_batch.fitting.scoring import ScoreInputs
from kp_batch.log import progress
from kp_batch.scoring.profiles import DEFAULT, WeightProfile
from kp_batch.vectors import Float64s, Int64s

MIN_TASKS = 20  # fewer, counted by weight, say nothing
MIN_OF_EACH = 5  # tasks labelled yes, and labelled no
WIDEST = 0.5  # of an interval; with a wider one, labels are too few
_LEAK = 0.99, 0.98  # the AUC, or the correlation, from which a column alone says what labels do
# What a score is made of, and an earlier score.
_LEAKING = ("score", *DIMENSIONS, "success", "confidence", "recorded_score")
_SEED = 0

Decision = Literal["change", "keep", "too few labels", "no signal", "leak"]


def weights_of(profile: WeightProfile) -> Float64s:
    """Return the four weights of a profile."""
    return np.array([getattr(profile, dimension) for dimension in DIMENSIONS])


def _numbered(values: pl.Series) -> Int64s:
    """Number equal values, from 0 without gaps."""
    return (values.rank("dense").cast(pl.Int64) - 1).to_numpy()


def traces_of(rows: pl.DataFrame) -> ScoreInputs:
    """Return what the scores of rows are computed from."""
    return ScoreInputs(rows.select(DIMENSIONS).to_numpy(), rows.select(OVERRIDES).to_numpy())


@dataclass(frozen=True)
class Group:
    """The labels of a domain, of several, or of all."""

    task_domain: str | None  # null: all
    rows: pl.DataFrame  # of fit_labelled.sql
    published: Mapping[str, WeightProfile]  # the weights of each domain
    domains: frozenset[str]  # those that take its weights, also without labels
    is_binary: bool  # whether all labels, also of other groups, are yes (1) or no (0)
    fit: Fit | None = None  # None: too few labels
    p_value: float = 1.0  # adjusted, of a better order of held-out labels; see `Fit`

    @property
    def prior(self) -> WeightProfile:
        """The profile whose weights stay where labels say nothing."""
        domain = self.rows["task_domain"][0] if self.rows["task_domain"].n_unique() == 1 else None
        return self.published[DEFAULT if domain is None else domain]

    @cached_property
    def sample(self) -> Sample:
        """The labels as arrays."""
        by_domain = {name: weights_of(each) for name, each in self.published.items()}
        return Sample(
            traces_of(self.rows),
            np.array([by_domain[domain] for domain in self.rows["task_domain"]]),
            self.rows["label"].to_numpy(),
            self.rows["weight"].to_numpy(),
            _numbered(self.rows["objective_hash"]),
            _numbered(self.rows["task_domain"]),
            self.rows["created_us"].to_numpy(),
            self.is_binary,
        )

    @property
    def is_sufficient(self) -> bool:
        """Whether its labels are of enough tasks, and not all the same."""
        return _suffices(self.sample)

    def fitted(self) -> "Group":
        """Return the group with its fit; as it is if labels are too few, or pairs all the same."""
        if not self.is_sufficient:
            return self
        seed = zlib.crc32((self.task_domain or "").encode())
        try:
            found = fit(self.sample, weights_of(self.prior), np.random.default_rng([_SEED, seed]))
        except NoPairsError:
            return self
        return replace(self, fit=found, p_value=found.p_value)

    @property
    def widest(self) -> float | None:
        """The widest interval of a weight that labels can determine; None: there is none."""
        return self.fit.weights.widest() if self.fit else None

    @property
    def has_signal(self) -> bool:
        """Whether published or fitted weights order held-out labels better than chance does."""
        if self.fit is None:
            return False
        chance, order = 0.5 if self.is_binary else 0.0, self.fit.held_out
        return max(order.published.low, order.fitted.low) > chance

    @property
    def labels_needed(self) -> int | None:
        """About how many labels make all intervals narrow enough; None: unknown."""
        if self.fit is None or self.widest is None or not self.has_signal:
            return None
        times = np.geomspace(1, 1_000, 301)
        narrow = (each for each in times if (self.fit.weights.widest(each) or 0) <= WIDEST)
        enough = next(narrow, None)
        return ceil(self.rows.height * enough) if enough else None

    @property
    def decision(self) -> Decision:
        """What its evidence suffices for."""
        if self.leaks:
            return "leak"
        if self.widest is not None and self.widest <= WIDEST:
            return "change" if self.p_value < EVIDENT else "keep"
        return "too few labels" if self.fit is None or self.has_signal else "no signal"

    @cached_property
    def leaks(self) -> list[tuple[str, int, float]]:
        """The columns that alone order the labels almost perfectly: labels, and how well.

        The other domains of `default` may hide a leak in the one of this name.
        """
        found = [*self._leaks()] if self.is_sufficient else []
        if self.task_domain != DEFAULT or found:
            return found
        own = replace(self, task_domain=None, rows=self.rows.filter(task_domain=DEFAULT))
        return own.leaks

    def _leaks(self) -> Iterator[tuple[str, int, float]]:
        for name in _LEAKING:
            is_known = self.rows[name].is_not_null().to_numpy()
            known, values = self.sample.take(is_known), self.rows[name].to_numpy()[is_known]
            if not _suffices(known):
                continue
            ranked = Ranked.of([values], known.labels, known.domains, is_binary=self.is_binary)
            order = float(ranked.orders(np.ones((len(values), 1))).item())
            binary, number = _LEAK
            size = max(order, 1 - order) if self.is_binary else abs(order)
            if size >= (binary if self.is_binary else number):
                yield name, len(values), order


def _suffices(sample: Sample) -> bool:
    """Whether labels are of enough tasks, and not all the same."""
    kinds = np.unique(sample.labels)
    if len(kinds) < 2 or effective_tasks(sample.tasks, sample.counts) < MIN_TASKS:
        return False
    of_each = (sample.labels == kind for kind in (kinds if sample.is_binary else ()))
    return all(
        effective_tasks(sample.tasks[own], sample.counts[own]) >= MIN_OF_EACH for own in of_each
    )


def fit_groups(rows: pl.DataFrame, published: Mapping[str, WeightProfile]) -> list[Group]:
    """Fit the labels of all domains, of each, and of the others that take the weights of `default`.

    A p-value is multiplied by the number of fits that may change weights (Bonferroni).

    Args:
        rows: what fit_labelled.sql returns.
        published: the weights of each domain, and of `default`.

    Returns:
        All domains first, then each by its labels; at last `default`, if the labels have a domain
        of this name, or several that take its weights, keep them, and have no leak.
    """
    is_binary = bool(rows["label"].is_in([0.0, 1.0]).all())

    def labels_of(name: str | None, domains: Iterable[str]) -> Group:
        kept = rows.filter(pl.col("task_domain").is_in([*domains]))
        return Group(name, kept, published, frozenset(domains), is_binary)

    by_labels = rows["task_domain"].value_counts()
    ordered = by_labels.sort("count", "task_domain", descending=[True, False])["task_domain"]
    named = [labels_of(domain, [domain]) for domain in ordered if domain != DEFAULT]
    takes_default = {name for name in published if published[name].name == DEFAULT}
    labelled_default = takes_default.intersection(ordered)
    tests = sum(group.is_sufficient for group in named) + bool(labelled_default)
    with progress("fitting", len(named) + 1, "domain") as bar:
        found = [labels_of(None, published).fitted()]
        bar.add(1)
        for group in named:
            found.append(_adjusted(group.fitted(), tests))
            bar.add(1)
    apart = {each.task_domain for each in found if each.decision in ("change", "leak")}
    if DEFAULT in labelled_default - apart or len(labelled_default - apart) > 1:
        found.append(_adjusted(labels_of(DEFAULT, takes_default - apart).fitted(), tests))
    return found


def _adjusted(group: Group, tests: int) -> Group:
    return replace(group, p_value=min(1.0, group.p_value * tests))


def group_rows(groups: list[Group]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `FittedGroups`."""
    for group in groups:
        found = group.fit
        yield {
            "task_domain": group.task_domain,
            "labels": group.rows.height,
            "tasks": group.rows["objective_hash"].n_unique(),
            "pairs": found.pairs if found else 0,
            "widest": group.widest,
            "labels_needed": group.labels_needed,
            "adjusted_p_value": group.p_value if found and group.task_domain else None,
            "decision": None if group.task_domain is None else group.decision,
        }
