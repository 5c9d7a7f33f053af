"""What the questions about means answer, from the definitions; for intervals see `uncertainty`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from operator import itemgetter
from typing import Any

from tests.support.oracle.scoring import effects
from tests.support.oracle.statistics import grouped, mean
from tests.support.oracle.uncertainty import (
    DIMENSIONS,
    EFFECTIVE,
    OVERRIDES,
    Answer,
    Row,
    before,
    begin_of,
    change_of,
    difference,
    difference_of_shares,
    gap_interval,
    interval,
    share_interval,
    tasks_of,
)

PERIODS = ("day", "week", "month", "quarter", "year")
PARTS = (*DIMENSIONS, *OVERRIDES)
SHARES = ("success", "share_at_threshold", "near_repeats", "cache_warming_up", *OVERRIDES)
MEASURES = (
    "score",
    *(f"from_{part}" for part in PARTS),
    *DIMENSIONS,
    "tools",
    "confidence",
    "overconfidence",
    *SHARES,
    "cache_share_of_domain",
)
USUAL = ("score", "novelty", "success", "share_at_threshold")


def measured(row: Row, day: date, weights: Sequence[float], share: float) -> dict[str, Any]:
    """A row of `trace_measures`: of a score, its current weights, and its domain's share."""
    after = effects(row, row["composite"])
    of_overrides = [second - first for first, second in pairwise(after)]
    of_overrides[-1] = row["score"] - after[-2]
    of_weights = dict(zip(DIMENSIONS, weights, strict=True))
    similarity = row["max_similarity"]
    names = ("trace_id", "created_at", "task_domain", "agent_id", "framework", "source_skill")
    return {
        **{name: row[name] for name in (*names, "profile", "cache_group", "objective_hash")},
        **{name: row[name] for name in (*OVERRIDES, "score", *DIMENSIONS, "confidence")},
        **{period: begin_of(day, period) for period in PERIODS},
        "everything": "all",
        **{f"{name}_bin": min(int(row[name] * 10), 9) / 10 for name in ("score", "confidence")},
        **{f"from_{name}": row[name] * weight for name, weight in of_weights.items()},
        **{f"from_{name}": value for name, value in zip(OVERRIDES, of_overrides, strict=True)},
        **{f"weight_of_{name}": weight for name, weight in of_weights.items()},
        "tools": row["n_tools"],
        "success": int(row["success"]),
        "overconfidence": row["confidence"] - row["success"],
        "share_at_threshold": int(row["meets_threshold"]),
        "near_repeats": int(similarity is not None and similarity >= 0.95),
        "cache_warming_up": int(row["cache_warming_up"]),
        "cache_share_of_domain": share,
    }


def means_by(rows: Sequence[Row], keys: Sequence[str], measures: Sequence[str]) -> Answer:
    return [
        {**dict(zip(keys, values, strict=True)), **mean_of(own, measure)}
        for values, own in grouped(rows, itemgetter(*keys, "everything")).items()
        for values in [values[:-1]]
        for measure in measures
    ]


def mean_of(rows: Sequence[Row], measure: str) -> dict[str, Any]:
    low, high = _interval(rows, measure)
    return {
        "measure": measure,
        "traces": len(rows),
        "tasks": len(tasks_of(rows)),
        "mean": mean([row[measure] for row in rows]),
        "low": low,
        "high": high,
    }


def _interval(rows: Sequence[Row], measure: str) -> tuple[float | None, float | None]:
    if measure == "overconfidence":
        return gap_interval(rows)
    if measure in SHARES:
        return share_interval(rows, itemgetter(measure))
    return interval(rows, itemgetter(measure))


def differences_by(
    rows: Sequence[Row], unit: str, first: Any, second: Any, measures: Sequence[str]
) -> Answer:
    sides = [tasks_of(row for row in rows if row[unit] == side) for side in (first, second)]
    pairs = [(sides[0][task], sides[1][task]) for task in sides[0] if task in sides[1]]
    answer: Answer = []
    for measure in measures:
        of_a, of_b = ([_value(pair[side], measure) for pair in pairs] for side in (0, 1))
        low, high = _difference_interval(of_a, of_b, measure)
        answer.append(
            {
                "measure": measure,
                "tasks": len(pairs),
                "mean_a": mean(of_a),
                "mean_b": mean(of_b),
                "difference": mean(
                    [second - first for first, second in zip(of_a, of_b, strict=True)]
                ),
                "low": low,
                "high": high,
                "parts": _parts_of_pairs(pairs, _value) if measure == "score" else None,
            }
        )
    return answer


def _value(rows: Sequence[Row], measure: str) -> float:
    return math.fsum(row[measure] for row in rows) / len(rows)


def _difference_interval(
    of_a: Sequence[float], of_b: Sequence[float], measure: str
) -> tuple[float | None, float | None]:
    if len(of_a) < EFFECTIVE:
        return None, None
    find = difference_of_shares if measure in SHARES else difference
    return find(of_a, of_b)


def _parts_of_pairs(
    pairs: Sequence[tuple[Any, Any]], value: Callable[[Any, str], float]
) -> dict[str, float | None] | None:
    """The means over tasks of what each part differs by; weights are taken at the mean value."""
    if not pairs:
        return None
    parts: dict[str, float | None] = {}
    of_weights = []
    for name in DIMENSIONS:
        rest = []
        for a, b in pairs:
            heavier = value(b, f"weight_of_{name}") - value(a, f"weight_of_{name}")
            of_weights.append(heavier * (value(a, name) + value(b, name)) / 2)
            rest.append(value(b, f"from_{name}") - value(a, f"from_{name}") - of_weights[-1])
        parts[name] = mean(rest)
    parts["weights"] = math.fsum(of_weights) / len(pairs)
    for name in OVERRIDES:
        parts[name] = mean([value(b, f"from_{name}") - value(a, f"from_{name}") for a, b in pairs])
    return parts


def differences_from_others(rows: Sequence[Row], unit: str, measures: Sequence[str]) -> Answer:
    answer: Answer = []
    for domain, of_domain in grouped(rows, itemgetter("task_domain")).items():
        named = [row for row in of_domain if row[unit] is not None]
        tasks = [grouped(attempts, itemgetter(unit)) for attempts in tasks_of(named).values()]
        shared = [task for task in tasks if len(task) > 1]
        for value in {value for task in shared for value in task}:
            pairs = [
                ([own for other, own in task.items() if other != value], [task[value]])
                for task in shared
                if value in task
            ]
            answer += [
                {
                    "task_domain": domain,
                    unit: value,
                    "traces": sum(len(own) for _, [own] in pairs),
                    **_from_others(pairs, measure),
                }
                for measure in measures
            ]
    return answer


def _from_others(pairs: Sequence[tuple[Any, Any]], measure: str) -> dict[str, Any]:
    # Rounded, so that what never varies does not do so by the order of a sum.
    others = [round(_value_of_all(side, measure), 12) for side, _ in pairs]
    own = [_value_of_all(side, measure) for _, side in pairs]
    low, high = _difference_interval(others, own, measure)
    return {
        "measure": measure,
        "tasks": len(pairs),
        "mean": mean(own),
        "mean_of_others": mean(others),
        "difference": mean([b - a for a, b in zip(others, own, strict=True)]),
        "low": low,
        "high": high,
        "parts": _parts_of_pairs(pairs, _value_of_all) if measure == "score" else None,
    }


def _value_of_all(side: Sequence[Sequence[Row]], measure: str) -> float:
    """Each of several counts once, by the mean of its attempts."""
    return math.fsum(_value(rows, measure) for rows in side) / len(side)


def changes_by(
    rows: Sequence[Row], keys: Sequence[str], period: str, measures: Sequence[str]
) -> Answer:
    answer: Answer = []
    for values, own in grouped(rows, itemgetter(*keys, "everything")).items():
        of_period = grouped(own, itemgetter(period))
        for begin, now in of_period.items():
            then = [row for each in before(begin, period) for row in of_period.get(each, ())]
            for measure in measures:
                named = dict(zip(keys, values[:-1], strict=True))
                found = change_of(now, then, itemgetter(measure))
                parts = parts_of_change(now, then) if then and measure == "score" else None
                answer.append(
                    {**named, "begins": begin, "measure": measure, **found, "parts": parts}
                )
    _adjust(answer)
    return answer


def _adjust(answer: Answer) -> None:
    """By Holm, over the keys of one period and measure."""
    for rows in grouped(answer, itemgetter("begins", "measure")).values():
        ranked = sorted(
            (row for row in rows if row["p_value"] is not None), key=itemgetter("p_value")
        )
        adjusted = 0.0
        for row in rows:
            row["adjusted_p_value"] = None
        for place, row in enumerate(ranked):
            adjusted = max(adjusted, min(1.0, row["p_value"] * (len(ranked) - place)))
            row["adjusted_p_value"] = adjusted


def mean_changes(rows: Sequence[Row], period: str) -> Answer:
    """What each cause alone changes, with the means of both sides."""
    answer: Answer = []
    for total in changes_by(rows, ["everything"], period, ["score"]):
        begin = total["begins"]
        sides = [
            grouped([row for row in rows if row[period] in begins], itemgetter("task_domain"))
            for begins in (before(begin, period), [begin])
        ]
        splits = _splits([{k: [r["score"] for r in v] for k, v in side.items()} for side in sides])
        left_out = ("everything", "measure", "adjusted_p_value")
        named = {name: value for name, value in total.items() if name not in left_out}
        answer.append({**named, **splits})
    return answer


def _splits(sides: Sequence[Mapping[Any, Sequence[float]]]) -> dict[str, float | None]:
    then, now = sides
    both = now.keys() & then.keys()
    if not both:
        return dict.fromkeys(("mix", "within", "entered", "exited"))
    whole = [_of_keys(side, side.keys()) for side in sides]
    alike = [_of_keys(side, both) for side in sides]
    mix = within = 0.0
    for key in both:
        shares = [len(side[key]) / sum(len(side[each]) for each in both) for side in sides]
        own = [_of_keys(side, {key}) for side in sides]
        mix += (shares[1] - shares[0]) * sum(own) / 2
        within += sum(shares) / 2 * (own[1] - own[0])
    return {
        "mix": mix,
        "within": within,
        "entered": whole[1] - alike[1],
        "exited": alike[0] - whole[0],
    }


def _of_keys(side: Mapping[Any, Sequence[float]], keys: Iterable[Any]) -> float:
    values = [value for key in keys for value in side[key]]
    return math.fsum(values) / len(values)


def parts_of_change(now: Sequence[Row], then: Sequence[Row]) -> dict[str, float]:
    """Like is compared with like: what came while a cache was warming up, and what came later."""
    sides = [grouped(rows, itemgetter("cache_warming_up")) for rows in (then, now)]
    both = sides[0].keys() & sides[1].keys()
    parts = dict.fromkeys(PARTS, 0.0) | {"weights": 0.0}
    if not both:
        return {**parts, "cache_warming_up": _value(now, "score") - _value(then, "score")}
    shares = [
        {each: len(side[each]) / sum(len(side[one]) for one in both) for each in both}
        for side in sides
    ]
    for name in PARTS:
        parts[name] = math.fsum(
            (shares[0][each] + shares[1][each])
            / 2
            * (_value(sides[1][each], f"from_{name}") - _value(sides[0][each], f"from_{name}"))
            for each in both
        )
    for name, effect in _effects_of_weights(now, then).items():
        parts[name] -= effect
        parts["weights"] += effect
    return {**parts, "cache_warming_up": _shift_of_shares(sides, shares, (then, now))}


def _shift_of_shares(
    sides: Sequence[Mapping[Any, Sequence[Row]]],
    shares: Sequence[Mapping[Any, float]],
    rows: Sequence[Sequence[Row]],
) -> float:
    """By other shares of what is on both sides; and by what is on one side alone."""
    within = [_value([row for each in shares[0] for row in side[each]], "score") for side in sides]
    entered, left = (
        _value(own, "score") - alike for own, alike in zip(rows[::-1], within[::-1], strict=True)
    )
    moved = math.fsum(
        (shares[1][each] - shares[0][each])
        * (_value(sides[0][each], "score") + _value(sides[1][each], "score"))
        / 2
        for each in shares[0]
    )
    return moved + entered - left


def _effects_of_weights(now: Iterable[Row], then: Iterable[Row]) -> dict[str, float]:
    """Of the profiles that are on both sides, at the mean of what they have of both."""
    sides = [grouped(rows, itemgetter("profile")) for rows in (then, now)]
    sizes = [sum(map(len, side.values())) for side in sides]
    found = dict.fromkeys(DIMENSIONS, 0.0)
    for profile in sides[0].keys() & sides[1].keys():
        for name in DIMENSIONS:
            old, new = (_value(side[profile], f"weight_of_{name}") for side in sides)
            values = (
                math.fsum(row[name] for row in side[profile]) / size
                for side, size in zip(sides, sizes, strict=True)
            )
            found[name] += (new - old) * math.fsum(values) / 2
    return found
