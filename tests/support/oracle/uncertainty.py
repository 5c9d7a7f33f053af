"""Means and their uncertainty, from the definitions: what is left out is really left out."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from operator import itemgetter, mul
from typing import Any

from tests.support.oracle.statistics import correlation, deviation, grouped

Row = Mapping[str, Any]
Answer = list[dict[str, Any]]
Key = Callable[[Row], Any]
Interval = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]

DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
OVERRIDES = ("single_thought", "recovery_bonus", "low_diversity_penalty")
EFFECTIVE = 5
_NOISE = 1e-24  # squares of what is nothing but rounding


def student_t(df: float) -> float:
    """The fit that the catalog has, whose error another test states."""
    terms = (2.37228, 2.82183, 2.56858, 1.4835, 1.14396)
    return 1.959963984540054 + sum(each / df**power for power, each in enumerate(terms, 1))


def p_value(t: float, df: float) -> float:
    """By Hill, and by Abramowitz and Stegun, as the catalog has it; a test states their error."""
    a, b = df - 0.5, 48 * (df - 0.5) ** 2
    y = a * math.log(1 + t * t / df)
    tail = y + 3 + (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y * y + 100 + b)
    deviate = math.sqrt(y) * (1 + tail / b)
    k, total = 1 / (1 + 0.23164189 * deviate), 0.0
    for each in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = (total + each) * k
    return total * math.exp(-deviate * deviate / 2)


def tasks_of(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    return grouped(rows, itemgetter("objective_hash"))


def effective(rows: Sequence[Row]) -> float:
    return len(rows) ** 2 / sum(len(task) ** 2 for task in tasks_of(rows).values())


def jackknife(rows: Sequence[Row], value: Key) -> float:
    """The variance of the mean, by leaving out each task in turn."""
    middle, tasks = _mean(rows, value), tasks_of(rows)
    without = [
        _mean([row for row in rows if row["objective_hash"] != task], value) for task in tasks
    ]
    return (len(tasks) - 1) / len(tasks) * math.fsum((each - middle) ** 2 for each in without)


def _mean(rows: Sequence[Row], value: Key) -> float:
    return math.fsum(map(value, rows)) / len(rows)


def interval(rows: Sequence[Row], value: Key) -> tuple[float | None, float | None]:
    if effective(rows) < EFFECTIVE:
        return None, None
    margin = student_t(effective(rows) - 1) * math.sqrt(jackknife(rows, value))
    return _mean(rows, value) - margin, _mean(rows, value) + margin


def share_interval(rows: Sequence[Row], hit: Key) -> tuple[float | None, float | None]:
    if effective(rows) < EFFECTIVE:
        return None, None
    share, tasks = _mean(rows, hit), list(tasks_of(rows).values())
    pulled = (4 + (len(tasks) - 4) * _alike(tasks, hit, len(rows))) / len(tasks)
    size = 1 / (pulled / effective(rows) + (1 - pulled) / len(rows))
    return wilson(share, size, student_t(effective(rows) - 1))


def wilson(share: float, n: float, t: float) -> tuple[float, float]:
    """Where the square of the deviation is t squared times the variance: roots of a quadratic."""
    a, b = 1 + t * t / n, 2 * share + t * t / n
    root = math.sqrt(max(0.0, b * b - 4 * a * share * share))
    return max(0.0, (b - root) / (2 * a)), min(1.0, (b + root) / (2 * a))


def _alike(tasks: Sequence[Sequence[Row]], hit: Key, n: int) -> float:
    """The intraclass correlation by the analysis of variance, of single attempts."""
    share = math.fsum(hit(row) for task in tasks for row in task) / n
    if share in {0, 1} or len(tasks) == n:
        return 1
    between = math.fsum(len(task) * (_mean(task, hit) - share) ** 2 for task in tasks)
    within = math.fsum((hit(row) - _mean(task, hit)) ** 2 for task in tasks for row in task)
    between, within = between / (len(tasks) - 1), within / (n - len(tasks))
    size = (n - sum(len(task) ** 2 for task in tasks) / n) / (len(tasks) - 1)
    return min(1, max(0, (between - within) / (between + (size - 1) * within)))


def _gap(row: Row) -> float:
    return float(row["confidence"] - row["success"])


def gap_interval(rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """By Newcombe: what is stated has the jackknife's uncertainty, what happened has Wilson's."""
    stated, happened = itemgetter("confidence"), itemgetter("success")
    (least, most), (low, high) = interval(rows, stated), share_interval(rows, happened)
    if least is None or most is None or low is None or high is None:
        return None, None
    shifts = [(_shift(rows, task, stated), _shift(rows, task, happened)) for task in tasks_of(rows)]
    products, *squares = (
        math.fsum(shift[a] * shift[b] for shift in shifts) for a, b in ((0, 1), (0, 0), (1, 1))
    )
    alike = products / math.sqrt(math.prod(squares)) if min(squares) > _NOISE else 0
    alike *= (len(shifts) - 4) / len(shifts)
    gap, margin, share = _mean(rows, _gap), (most - least) / 2, _mean(rows, happened)
    return (
        gap - math.sqrt(margin**2 - 2 * alike * margin * (high - share) + (high - share) ** 2),
        gap + math.sqrt(margin**2 - 2 * alike * margin * (share - low) + (share - low) ** 2),
    )


def _shift(rows: Sequence[Row], task: Any, value: Key) -> float:
    kept = [row for row in rows if row["objective_hash"] != task]
    return _mean(kept, value) - _mean(rows, value)


def difference(of_a: Sequence[float], of_b: Sequence[float]) -> tuple[float, float]:
    changes = [second - first for first, second in zip(of_a, of_b, strict=True)]
    n, middle = len(changes), math.fsum(changes) / len(changes)
    margin = student_t(n - 1) * (deviation(changes) or 0) / math.sqrt(n)
    return middle - margin, middle + margin


def difference_of_shares(of_a: Sequence[float], of_b: Sequence[float]) -> tuple[float, float]:
    """Newcombe's: the distances to the ends of both intervals, added as correlated errors are."""
    n, alike = len(of_a), correlation(of_a, of_b) or 0
    (a, (a_low, a_high)), (b, (b_low, b_high)) = (
        (share, wilson(share, n, student_t(n - 1)))
        for share in (math.fsum(each) / n for each in (of_a, of_b))
    )
    below, above = (b - b_low, a_high - a), (b_high - b, a - a_low)
    return (
        b - a - math.sqrt(below[0] ** 2 - 2 * alike * below[0] * below[1] + below[1] ** 2),
        b - a + math.sqrt(above[0] ** 2 - 2 * alike * above[0] * above[1] + above[1] ** 2),
    )


def begin_of(day: date, period: str) -> date:
    match period:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
        case _:
            return day.replace(day=1, month=1)


def before(begin: date, period: str) -> list[date]:
    """The beginnings of the four periods before."""
    begins = [begin]
    while len(begins) <= 4:
        begins.append(begin_of(begins[-1] - timedelta(days=1), period))
    return begins[1:]


def change_of(
    now: Sequence[Row], then: Sequence[Row], value: Key = itemgetter("score")
) -> dict[str, Any]:
    change = round(_mean(now, value) - _mean(then, value), 12) if then else None
    low = high = p = None
    enough = then and min(effective(now), effective(then)) >= EFFECTIVE
    if enough and change is not None and _is_known(change, (now, then), value):
        df = _welch(now, then, value)
        error = math.sqrt(_joint_variance(now, then, change, value))
        low, high = change - student_t(df) * error, change + student_t(df) * error
        t = 0 if change == 0 else min(abs(change) / error, 1e6) if error else 1e6
        p = p_value(t, df)
    return {
        "traces": len(now),
        "tasks": len(tasks_of(now)),
        "mean": _mean(now, value),
        "traces_before": len(then) or None,
        "tasks_before": len(tasks_of(then)),
        "mean_before": _mean(then, value) if then else None,
        "change": change,
        "low": low,
        "high": high,
        "p_value": p,
    }


def _is_known(change: float, sides: Sequence[Sequence[Row]], value: Key) -> bool:
    """Whether anything varies, or nothing changed at all."""
    return change == 0 or sum(jackknife(side, value) for side in sides) >= _NOISE


def _joint_variance(now: Sequence[Row], then: Sequence[Row], change: float, value: Key) -> float:
    """Each task is left out on both sides; at least as if single tasks varied alike on both."""
    tasks = tasks_of([*now, *then])
    without = [_change_without(value, task, now, then) - change for task in tasks]
    joint = (len(tasks) - 1) / len(tasks) * math.fsum(each**2 for each in without)
    sizes = [effective(side) for side in (now, then)]
    variances = [jackknife(side, value) for side in (now, then)]
    degrees = [size - 1 for size in sizes]
    singles = [size * variance for size, variance in zip(sizes, variances, strict=True)]
    single = math.fsum(map(mul, degrees, singles)) / sum(degrees)
    alike = single * sum(1 / size for size in sizes)
    return joint + max(0.0, alike - sum(variances))


def _change_without(value: Key, task: Any, *sides: Sequence[Row]) -> float:
    kept = [[row for row in side if row["objective_hash"] != task] for side in sides]
    return _mean(kept[0], value) - _mean(kept[1], value)


def _welch(now: Sequence[Row], then: Sequence[Row], value: Key) -> float:
    variances = [jackknife(side, value) for side in (now, then)]
    degrees = [effective(side) - 1 for side in (now, then)]
    if sum(variances) < _NOISE:
        return min(degrees)
    terms = (v * v / df for v, df in zip(variances, degrees, strict=True))
    return min(sum(variances) ** 2 / math.fsum(terms), _effective_of_both(now, then) - 1)


def _effective_of_both(now: Sequence[Row], then: Sequence[Row]) -> float:
    """Of the tasks of both sides; a task weighs what it does in both, and each side as much."""
    weights = dict.fromkeys((row["objective_hash"] for row in (*now, *then)), 0.0)
    for side in (now, then):
        for row in side:
            weights[row["objective_hash"]] += 0.5 / len(side)
    return 1 / math.fsum(weight**2 for weight in weights.values())


def calibration(rows: Sequence[Row]) -> dict[str, Any]:
    """The columns of `confidence_calibration` but the keys; of rows that state a confidence."""
    bins = grouped(rows, lambda row: min(int(row["confidence"] * 10), 9))
    gaps = [
        len(own) * abs(_mean(own, itemgetter("confidence")) - _mean(own, itemgetter("success")))
        for own in bins.values()
    ]
    rate = _mean(rows, itemgetter("success"))
    brier = _mean(rows, lambda row: (row["confidence"] - row["success"]) ** 2)
    always = _mean(rows, lambda row: (rate - row["success"]) ** 2)
    return {
        "expected_error": math.fsum(gaps) / len(rows),
        "brier_score": brier,
        "brier_skill": 1 - brier / always if 0 < rate < 1 else None,
        "constant": len({row["confidence"] for row in rows}) == 1,
    }
