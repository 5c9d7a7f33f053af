"""What a report finds in a scope: each code's claim, by plain loops over the scope's traces."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import pytest

from kp_batch.report.finding import Finding
from tests.support.oracle.answers import is_near
from tests.support.oracle.questions import driven
from tests.support.oracle.reports import ALL, Report, differences_from_others, means
from tests.support.oracle.scoring import effects
from tests.support.oracle.statistics import bin_of, grouped, mean, rank_correlation
from tests.support.oracle.uncertainty import OVERRIDES, effective

Row = Mapping[str, Any]
MATTERS = 0.005


@dataclass(frozen=True)
class ExpectedFinding:
    """The content of a finding: numbers by the columns of its question."""

    traces: int
    effect: float
    numbers: Mapping[str, Any]

    @property
    def weight(self) -> float:
        return self.traces * self.effect


def times_its_margin(among: int, degrees: float) -> float:
    """How far off 0 the least likely of so many is, of nothing but chance, in one of 20 pages."""
    from scipy import stats

    t = stats.t if math.isfinite(degrees) else stats.norm
    of = (degrees,) if math.isfinite(degrees) else ()
    return float(t.ppf(1 - 0.025 / among, *of) / t.ppf(0.975, *of))


def labels(report: Report, scope: str) -> list[str]:
    own = [label for label in report.labels if label != report.others]
    return own if scope == ALL else [scope]


@cache
def changes(report: Report) -> Sequence[Row]:
    return report.changes()


@cache
def domain_changes(report: Report) -> Sequence[Row]:
    return report.domain_changes()


def mean_change(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    if scope != ALL or len(report.labels) == 1:
        return
    for row in _recent(report, changes(report)):
        if row["mix"] is not None and row["p_value"] <= 0.05 / 4:
            yield ExpectedFinding(row["traces"], abs(row["change"]), _numbers_of(row, *PARTS))


# What differences are made of is as the questions have it, whose oracle is `measures`.
MADE_OF = ("from_", "cache_share")
PARTS = ("within", "mix", "entered", "exited")


def _numbers_of(row: Row, *more: str) -> dict[str, Any]:
    names = ("traces", "mean", "change", "low", "high", "p_value", *more)
    return {"begins": str(row["begins"]), **{name: row[name] for name in names}}


def _recent(report: Report, rows: Sequence[Row]) -> list[Row]:
    """Of the last four periods that are over, those that compare and matter."""
    over = sorted(row["begins"] for row in changes(report) if row["is_over"])[-4:]
    return [
        row
        for row in rows
        if row["begins"] in over and _compares(row) and abs(row["change"]) >= MATTERS
    ]


def _compares(row: Row) -> bool:
    return bool(
        row["is_over"]
        and row["traces"] >= 30
        and row["low"] is not None
        and max(row["warming_up"], row["warming_up_before"]) <= 0.1
    )


def domain_moved(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    of_all = {row["begins"]: row for row in changes(report) if _compares(row)}
    moved = [r["begins"] for r in _recent(report, changes(report)) if r["p_value"] <= 0.05 / 4]
    for row in _recent(report, domain_changes(report)):
        if row["domain"] not in labels(report, scope) or row["p_value"] > 0.05 / 4:
            continue
        numbers, about = _numbers_of(row), row
        if scope == ALL and len(report.labels) > 1 and row["begins"] in of_all:
            hidden = of_all[row["begins"]]
            numbers |= {"change_of_all": hidden["change"], **{name: hidden[name] for name in PARTS}}
            if row["begins"] in moved and hidden["change"] * row["change"] < 0:
                about = max(row, hidden, key=lambda each: each["traces"] * abs(each["change"]))
        yield ExpectedFinding(about["traces"], abs(about["change"]), numbers)


def driver(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    for label in labels(report, scope):
        rows = report.scopes[label]
        scores = [row["score"] for row in rows]
        middle = math.fsum(scores) / len(scores)
        deviation = math.sqrt(math.fsum((s - middle) ** 2 for s in scores) / len(scores))
        if len(rows) < 30 or deviation < MATTERS:
            continue
        parts = driven(rows, [row["weights"] for row in rows])
        first, second = sorted(parts, key=lambda part: -part["share_of_variance"])[:2]
        share = first["share_of_variance"]
        if share >= 0.3:
            numbers = _numbers_of_part(first)
            if second["share_of_variance"] >= 0.15:
                numbers |= {f"second_{key}": n for key, n in _numbers_of_part(second).items()}
            yield ExpectedFinding(len(rows), deviation * min(share, 1), numbers)


def _numbers_of_part(part: Row) -> dict[str, Any]:
    return {name: part[name] for name in ("part", "weight", "share_of_variance")}


def override(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    rows, totals = report.scopes[scope], dict[str, list[float]]()
    for row in rows:
        after = effects(row, row["composite"])
        for place, name in enumerate(OVERRIDES):
            if row[name]:
                totals.setdefault(name, []).append(after[place + 1] - after[place])
    ranked = sorted(totals, key=lambda name: -abs(math.fsum(totals[name])))
    own = totals[ranked[0]] if ranked else []
    if len(own) >= 30 and abs(middle := mean(own) or 0) >= MATTERS:
        numbers = {
            "override": ranked[0],
            "traces": len(own),
            "share": len(own) / len(rows),
            "mean_effect": middle,
            "effect_on_mean": math.fsum(own) / len(rows),
        }
        second = math.fsum(totals[ranked[1]]) / len(rows) if ranked[1:] else 0.0
        if abs(second) >= 0.0005:
            numbers["second_effect_on_mean"] = second
        yield ExpectedFinding(len(own), abs(middle), numbers)


def ranking(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    of_labels = {label: _by_agent(report.scopes[label]) for label in labels(report, scope)}
    compared = {label: agents for label, agents in of_labels.items() if len(agents) >= 8}
    for agents in compared.values():
        found = [means(rows) for rows in agents.values()]
        score = [round(row["mean"], 12) for row in found]
        tools, success = (
            None if _most_tied(score, values) > len(found) / 2 else rank_correlation(score, values)
            for values in ([round(row[name], 12) for row in found] for name in ("tools", "success"))
        )
        if tools is None or success is None or tools < 0.5 or success > 0.3:
            continue
        deviation = math.sqrt(1.06 / (len(agents) - 3))
        far = 1.96 * deviation * times_its_margin(len(compared), math.inf)
        if tools < math.tanh(far):
            continue
        rows = [row for own in agents.values() for row in own]
        if len(rows) < 30:
            continue
        middle = math.fsum(row["score"] for row in rows) / len(rows)
        off = math.fsum(row["traces"] * abs(row["mean"] - middle) for row in found) / len(rows)
        yield ExpectedFinding(
            len(rows), off, {"agents": len(agents), "tools": tools, "success": success}
        )


def _most_tied(*sides: Sequence[float]) -> int:
    return max(values.count(value) for values in sides for value in values)


def _by_agent(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    return grouped((row for row in rows if row["agent_id"] is not None), itemgetter("agent_id"))


def _paired(column: str) -> Callable[[Report, str], Iterator[ExpectedFinding]]:
    def findings_of(report: Report, scope: str) -> Iterator[ExpectedFinding]:
        found = [
            row
            for label in labels(report, scope)
            for row in differences_from_others(report.scopes[label], column)
            if row["tasks"] >= 10 and row["traces"] >= 30
        ]
        for row in found:
            difference = row["score_difference"]
            margin = row["score_high"] - difference
            far = margin * times_its_margin(len(found), row["tasks"] - 1)
            if abs(difference) > max(far, MATTERS):
                ends = [f"{name}_{end}" for name in ("score", "success") for end in ("low", "high")]
                names = ("unit", "traces", "tasks", "score_difference", "success_difference", *ends)
                numbers = {name: row[name] for name in names}
                yield ExpectedFinding(row["traces"], abs(difference), numbers)

    return findings_of


def confidence(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    agents = [
        (label, agent, found, effective(rows))
        for label in labels(report, scope)
        for agent, rows in _by_agent(report.scopes[label]).items()
        if (found := means(rows))["overconfidence_low"] is not None
    ]
    for label, agent, found, tasks in agents:
        over, low, high = (found[f"overconfidence{end}"] for end in ("", "_low", "_high"))
        far = times_its_margin(len(agents), tasks - 1) * max(high - over, over - low)
        if _is_of_outcomes(report.scopes[label]):
            continue
        if found["traces"] >= 30 and abs(over) > max(far, 0.05):
            numbers = {
                "agent_id": agent,
                "traces": found["traces"],
                "mean_confidence": found["confidence"],
                "success_rate": found["success"],
                "overconfidence": over,
                "overconfidence_low": low,
                "overconfidence_high": high,
            }
            weight = mean([row["weights"][3] for row in report.scopes[label]]) or 0
            yield ExpectedFinding(found["traces"], abs(over) * weight, numbers)


def _is_of_outcomes(rows: Sequence[Row]) -> bool:
    """Whether all fail up to a tenth of confidence, and all succeed above it."""
    fails, succeeds = (
        {bin_of(row["confidence"], 10) for row in rows if row["success"] is side}
        for side in (False, True)
    )
    return len(rows) >= 30 and bool(fails and succeeds) and max(fails) < min(succeeds)


def success(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    """The lower bin that succeeds most beyond a higher one, if their intervals are apart."""
    of_labels = {label: _tenths(report.scopes[label]) for label in labels(report, scope)}
    among = sum(len(found) * (len(found) - 1) // 2 for found in of_labels.values())
    for found in of_labels.values():
        best = None
        for low, row in found.items():
            for high, other in found.items():
                apart = row["success"] - other["success"]
                margins = (
                    row["success"] - row["success_low"],
                    other["success_high"] - other["success"],
                )
                tasks = min(row["effective_tasks"], other["effective_tasks"])
                far = times_its_margin(among, tasks - 1) if among else 0
                if low < high and apart > max(far * math.hypot(*margins), sum(margins)):
                    best = max(best or (apart, -low, -high), (apart, -low, -high))
        if not best:
            continue
        sides = {"low": -best[1], "high": -best[2]}
        names = ("traces", "success", "success_low", "success_high")
        numbers = {
            f"{side}_{name}": found[place][name] for side, place in sides.items() for name in names
        } | {f"{side}_least": place / 10 for side, place in sides.items()}
        low, high = (found[place] for place in sides.values())
        yield ExpectedFinding(low["traces"], high["mean"] - low["mean"], numbers)


def _tenths(rows: Sequence[Row]) -> dict[int, Row]:
    """Of each tenth of the scores that has enough traces and tasks."""
    of_bins = grouped(rows, lambda row: bin_of(row["score"], 10))
    found = {
        place: {**means(own), "effective_tasks": effective(own)}
        for place, own in of_bins.items()
        if len(own) >= 30
    }
    return {p: row for p, row in sorted(found.items()) if row["success_low"] is not None}


def cache_warming_up(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    rows = report.scopes[scope]
    warming_up = [row["novelty"] for row in rows if row["cache_warming_up"]]
    others = [row["novelty"] for row in rows if not row["cache_warming_up"]]
    novel, after = mean(warming_up), mean(others)
    if novel is None or len(warming_up) < 30 or (after is not None and novel - after < MATTERS):
        return
    numbers = {
        "cache_warming_up": len(warming_up),
        "novelty_warming_up": novel,
        "novelty_after": after,
        "share": len(warming_up) / len(rows),
    }
    effect = 0 if after is None else (novel - after) * _weight_of_novelty(rows)
    yield ExpectedFinding(len(warming_up), effect, numbers)


def _weight_of_novelty(rows: Sequence[Row]) -> float:
    return mean([row["weights"][1] for row in rows]) or 0


def near_repeats(report: Report, scope: str) -> Iterator[ExpectedFinding]:
    rows = report.scopes[scope]
    number = sum((row["max_similarity"] or 0) >= 0.95 for row in rows)
    if len(rows) >= 30 and number >= 0.1 * len(rows):
        effect = (mean([row["novelty"] for row in rows]) or 0) * _weight_of_novelty(rows)
        yield ExpectedFinding(number, effect, {"near_repeats": number / len(rows)})


KINDS: Sequence[Mapping[str, Callable[[Report, str], Iterator[ExpectedFinding]]]] = (
    MappingProxyType({"mean_change": mean_change, "domain_moved": domain_moved}),
    MappingProxyType(
        {
            "driver": driver,
            "override": override,
            "cache_warming_up": cache_warming_up,
            "near_repeats": near_repeats,
        }
    ),
    MappingProxyType(
        {
            "ranking": ranking,
            "paired_agents": _paired("agent_id"),
            "paired_frameworks": _paired("framework"),
        }
    ),
    MappingProxyType({"confidence": confidence}),
    MappingProxyType({"success": success}),
)


def expected_findings(report: Report, scope: str) -> dict[str, list[ExpectedFinding]]:
    """All findings that a scope may have, by code: of each the most weight first."""
    if scope == report.others:
        return {}
    found = {
        code: [*findings_of(report, scope)] for kind in KINDS for code, findings_of in kind.items()
    }
    return {code: sorted(own, key=lambda each: -each.weight) for code, own in found.items() if own}


def chosen(weights: Mapping[str, float]) -> list[str]:
    """The codes that are shown, of these with the weights of their heaviest.

    One after the other the heaviest of a kind that has none yet, then the heaviest of any; five.
    """
    kind_of = {code: place for place, kind in enumerate(KINDS) for code in kind}
    picked: list[str] = []
    while len(picked) < min(5, len(weights)):
        left = [code for code in weights if code not in picked]
        kinds = {kind_of[code] for code in picked}
        first = [code for code in left if kind_of[code] not in kinds]
        picked.append(max(first or left, key=weights.__getitem__))
    changes = ("mean_change", "domain_moved")
    return sorted(picked, key=lambda code: (code not in changes, -weights[code]))


def assert_findings(
    found: Sequence[Finding], wanted: Mapping[str, Sequence[ExpectedFinding]]
) -> None:
    """The most of each kind, at most five: what changed first, then the heaviest."""
    order = chosen({code: own[0].weight for code, own in wanted.items()})
    assert sorted(finding.code for finding in found) == sorted(order)
    weights = [wanted[code][0].weight for code in order]
    assert [finding.weight for finding in found] == pytest.approx(weights)
    for finding in found:
        most = wanted[finding.code][0]
        alike = [each for each in wanted[finding.code] if is_near(each.weight, most.weight)]
        assert any(is_same(finding, each) for each in alike), (finding, alike)


def is_same(finding: Finding, wanted: ExpectedFinding) -> bool:
    numbers = {name: n for name, n in finding.numbers.items() if not name.startswith(MADE_OF)}
    of_loops = wanted.numbers
    return (
        (finding.traces, numbers.keys()) == (wanted.traces, of_loops.keys())
        and is_near(finding.effect, wanted.effect)
        and all(is_near(numbers[name], value) for name, value in of_loops.items())
    )
