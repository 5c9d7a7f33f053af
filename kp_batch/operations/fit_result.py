"""The result of fitting weights to labels, as data and text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kp_batch.columns import Rows, cells
from kp_batch.html import Displayed
from kp_batch.rendering import Head, Part, Row, Table, rest_in
from kp_batch.text import count_of, printable, shortened, some_of

if TYPE_CHECKING:
    from altair.typing import ChartType

Measure = Literal["AUC", "Spearman"]
_DOMAINS = 10  # shown
_NAME = 30  # characters


class UnusedLabels(Rows):
    """Why labels are not used."""

    __slots__ = ()
    names = ("code", "because", "labels", "examples")


class FittedGroups(Rows):
    """The labels of all domains and of each, and what their evidence is for.

    The last row may be `default`: the other domains whose traces take the weights of `default`.
    """

    __slots__ = ()
    names = (
        *("task_domain", "labels", "tasks", "pairs", "widest", "labels_needed"),
        *("adjusted_p_value", "decision"),
    )


class WeightRows(Rows):
    """The weights of each dimension, and how well it orders the labels alone."""

    __slots__ = ()
    names = (
        *("task_domain", "dimension", "published_weight", "fitted_weight"),
        *("fitted_weight_low", "fitted_weight_high", "problem"),
        *("alone", "alone_low", "alone_high"),
    )


class LabelOrders(Rows):
    """How well published and fitted weights order labels: those of the fit, and others."""

    __slots__ = ()
    names = (
        *("task_domain", "tested_on", "labels"),
        *("published_order", "published_order_low", "published_order_high"),
        *("fitted_order", "fitted_order_low", "fitted_order_high"),
        *("difference", "difference_low", "difference_high", "p_value"),
    )


class BestThresholds(Rows):
    """The thresholds that serve labels best, and how many of all traces reach them."""

    __slots__ = ()
    names = (
        *("task_domain", "weights", "best_threshold", "precision", "recall"),
        *("traces", "at_threshold"),
    )


class Leaks(Rows):
    """Columns that order labels nearly perfectly, so that labels repeat what the score has."""

    __slots__ = ()
    names = ("task_domain", "column", "labels", "alone")


class Suggestions(Rows):
    """Unlabelled traces whose order is least sure, each of another task."""

    __slots__ = ()
    names = ("trace_id", "task_domain", "score", "rank_low", "rank_high")


@dataclass(frozen=True)
class WeightFit(Displayed):
    """Weights that order labels best, and whether they order other labels better."""

    measure: Measure  # AUC for labels that are yes or no, else Spearman's correlation
    labels: int  # used
    unused: UnusedLabels
    reused: float | None  # the share of labels that `reused_in` was fitted to; null: no such file
    reused_in: str | None
    groups: FittedGroups  # all domains first, then each by its labels
    weights: WeightRows
    orders: LabelOrders
    thresholds: BestThresholds  # empty if labels are numbers
    leaks: Leaks
    suggestions: Suggestions
    conclusion: str  # whether the evidence suffices to change any weights
    # All profiles, with the fitted weights if these have evidence; for `profiles` of a run.
    profiles: Mapping[str, Any]
    changed: tuple[str, ...]  # the profiles with fitted weights
    output: str | None  # the file with these profiles
    next_step: str | None  # null: there is nothing to change

    def _parts(self) -> Iterator[Part]:
        yield Head(self.conclusion)
        if self.next_step:
            yield f"  next: {self.next_step}"
        yield from _labels(self)
        shown = [row["task_domain"] for row in self.groups[: _DOMAINS + 1]]
        yield from ("", Head("labels by domain:"), Table(_groups(self, shown)))
        if more := len(self.groups) - len(shown):
            yield f"  {count_of(more, 'more domain')}, with fewer labels: {rest_in('groups')}"
        if weights := _shown(self.weights, shown):
            yield from ("", Head("weights, with 95% intervals by task:"), Table(_weights(weights)))
        if orders := _shown(self.orders, shown):
            yield ""
            yield Head(f"{_in_words(self.measure)}, with 95% intervals by task:")
            yield Table(_orders(orders))
        if thresholds := _shown(self.thresholds, shown):
            yield from ("", Head("thresholds with the best F1; precision and recall are held out:"))
            yield Table(cells(thresholds, *BestThresholds.names))
        if self.suggestions:
            yield from ("", Head("to label next: ranks, 0 to 1, are least sure of these traces"))
            yield Table(cells(self.suggestions, *Suggestions.names))

    def chart(self) -> "ChartType":
        """Return a chart in Altair of how well weights order labels held out, by domain."""
        from kp_batch.operations.fit_chart import order_chart

        return order_chart(self.orders, self.measure)


def _in_words(measure: Measure) -> str:
    what = "the share of pairs in order" if measure == "AUC" else "the correlation of ranks"
    return f"how well weights order labels by {measure}, {what}"


def _shown(rows: Rows, domains: list[str | None]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["task_domain"] in domains]


def _labels(result: WeightFit) -> Iterator[Part]:
    unused = sum(row["labels"] for row in result.unused)
    yield f"  {count_of(result.labels, 'label')} used, {unused:,} not used"
    for row in result.unused:
        examples = some_of(row["examples"], row["labels"])
        yield f"    {row['labels']:,}: {row['because']} ({printable(examples)})"
    for row in result.leaks:
        domain = _domain(row["task_domain"])
        yield (
            f"  LEAK: in {domain}, {row['column']} alone orders the labels almost perfectly "
            f"({result.measure} {row['alone']:.3f}): they repeat what the score has"
        )
    if result.reused:
        yield (
            f"  REUSED: {result.reused:.0%} of these labels were fitted before, for "
            f"{printable(result.reused_in or '')}; they do not test those weights"
        )


def _domain(name: str | None) -> str:
    return "all domains" if name is None else shortened(name, _NAME)


def _groups(result: WeightFit, shown: list[str | None]) -> list[Row]:
    return cells(_shown(result.groups, shown), *FittedGroups.names)


def _weights(rows: list[Mapping[str, Any]]) -> list[Row]:
    return [
        {
            **cells([row], "task_domain", "dimension", "published_weight")[0],
            "fitted": _interval(row, "fitted_weight", ".3f")
            if not row["problem"]
            else f"{row['fitted_weight']:.3f} (not identifiable: {row['problem']})",
            "order alone": _interval(row, "alone", ".3f"),
        }
        for row in rows
    ]


def _orders(rows: list[Mapping[str, Any]]) -> list[Row]:
    return [
        {
            **cells([row], "task_domain", "tested_on", "labels")[0],
            "published": _interval(row, "published_order", ".3f"),
            "fitted": _interval(row, "fitted_order", ".3f"),
            "difference": _interval(row, "difference", "+.3f"),
        }
        for row in rows
    ]


def _interval(row: Mapping[str, Any], name: str, form: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return ""
    text = format(value, form)
    return text if low is None else f"{text} ({low:{form}} to {high:{form}})"
