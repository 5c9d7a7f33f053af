"""What fits of groups say, as rows of a result and as a sentence."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kp_batch.dimensions import DIMENSIONS
from kp_batch.fitting.comparison import Estimate, Order
from kp_batch.operations.fit_groups import Group
from kp_batch.operations.fit_result import Measure
from kp_batch.text import ten_of


def weight_rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `WeightRows`."""
    for group in groups:
        if group.fit is None:
            continue
        own = group.fit.weights
        is_one = group.rows["task_domain"].n_unique() == 1 or group.task_domain is not None
        for place, dimension in enumerate(DIMENSIONS):
            yield {
                "task_domain": group.task_domain,
                "dimension": dimension,
                "published_weight": getattr(group.prior, dimension) if is_one else None,
                "fitted_weight": float(own.values[place]),
                "fitted_weight_low": number(own.low[place]),
                "fitted_weight_high": number(own.high[place]),
                "problem": own.problems[place],
                **_estimate("alone", group.fit.alone[place]),
            }


def order_rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `LabelOrders`."""
    for group in groups:
        if group.fit is None:
            continue
        orders: dict[str, Order | None] = {
            "the same labels": group.fit.in_sample,
            "held-out folds": group.fit.held_out,
            "held out, same overrides": group.fit.same_overrides,
            "later labels": group.fit.later,
        }
        for tested_on, order in orders.items():
            if order:
                yield {
                    "task_domain": group.task_domain,
                    "tested_on": tested_on,
                    "labels": order.labels,
                    **_estimate("published_order", order.published),
                    **_estimate("fitted_order", order.fitted),
                    **_estimate("difference", order.difference),
                    "p_value": order.p_value,
                }


def _estimate(name: str, estimate: Estimate) -> dict[str, float | None]:
    value, low, high = map(number, estimate)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def number(value: float) -> float | None:
    """Return a number as JSON has it."""
    return float(value) if np.isfinite(value) else None


def leak_rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Leaks`."""
    for group in groups:
        for column, labels, alone in group.leaks:
            names = {"task_domain": group.task_domain, "column": column}
            yield {**names, "labels": labels, "alone": alone}


def conclusion_of(groups: Sequence[Group], measure: Measure) -> str:
    """Return whether the evidence suffices to change any weights, in a sentence."""
    changed = [
        f"{group.task_domain} ({measure} {order.published.value:.3f} → {order.fitted.value:.3f})"
        for group in groups[1:]
        if group.fit and group.decision == "change" and (order := group.fit.held_out)
    ]
    if changed:
        return (
            f"the evidence suffices to change the weights of {ten_of(changed)}: fitted weights "
            "order held-out labels better"
        )
    decisions = {group.decision for group in groups[1:]}
    if "leak" in decisions:
        why = "labels repeat what the score has"
    elif "keep" in decisions:
        why = "fitted weights do not order held-out labels better"
    elif {group.decision for group in groups[1:] if group.fit} == {"no signal"}:
        why = "no order of held-out labels is evidently better than chance"
    else:
        why = "the labels are too few"
    return f"no evidence to change any weights: {why}"
