"""What each frame of the report has, by plain loops over the scores of each scope."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from tests.support.oracle import answers, measures
from tests.support.oracle.history import History
from tests.support.oracle.questions import driven
from tests.support.oracle.scoring import effects, weights_at
from tests.support.oracle.statistics import (
    bin_of,
    bins,
    grouped,
    mean,
    quantile,
    spread,
    stability_index,
)
from tests.support.oracle.uncertainty import DIMENSIONS, OVERRIDES, before, begin_of, effective

Row = Mapping[str, Any]
Answer = list[dict[str, Any]]
ALL = "all domains"
_DAY = timedelta(days=1)
_PAIRED = MappingProxyType(
    {
        "shared_traces": "traces",
        "shared_tasks": "tasks",
        "score_difference": "score_difference",
        "score_low": "score_low",
        "score_high": "score_high",
        "success_difference": "success_difference",
        "success_difference_low": "success_low",
        "success_difference_high": "success_high",
    }
)
_MEASURES = MappingProxyType(  # what the columns of each begin with
    {
        "score": "",
        "novelty": "novelty_",
        "success": "success_",
        "share_at_threshold": "share_",
        "overconfidence": "overconfidence_",
    }
)
LENGTHS = {  # of a unit of time, in days, on average
    "hour": 1 / 24,
    "day": 1,
    "week": 7,
    "month": 30.4,
    "quarter": 91.3,
    "year": 365.2,
    "decade": 3652,
    "century": 36524,
}


_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Archive:
    """What a report is of."""

    scores: Sequence[Row]  # of the view scores; with the current `weights`
    ended: datetime  # the last run
    begins: Mapping[str, Sequence[datetime | None]]  # of the weights of each name
    runs: Sequence[Mapping[str, Sequence[float]]]  # the last two that are done: scores by domain
    comparable: bool = True  # these two
    reasons: Sequence[Sequence[str]] = ()  # of each rejected row
    threshold: float = 0.75


def archive_of(history: History, ended: datetime) -> Archive:
    """What the report of its last run is of, which ended then."""
    state = history.last
    scores = [
        {**row, "weights": weights_at(state.settings, row["task_domain"], row["created_at"])[1]}
        for row in state.scores
    ]
    begins = {name: [begin for begin, _ in own] for name, own in state.settings.versions.items()}
    runs = [
        {
            name: [row["score"] for row in own]
            for name, own in grouped(each.scores, _domain_of).items()
        }
        for each in history.states[-2:]
    ]
    encoders = {each.settings.embedder for each in history.states[-2:]}
    reasons = [row.reasons for row in state.count.rejected]
    return Archive(
        scores, ended, begins, runs, len(encoders) == 1, reasons, state.settings.threshold
    )


def _domain_of(row: Row) -> str:
    return str(row["task_domain"])


@dataclass(frozen=True)
class Shown:
    """The days of a scope that the charts show."""

    first_day: date
    last_day: date
    grain: str
    others_by: str


class Report:
    """The frames of a report: each a method of its name."""

    NAMES = (
        *("domains", "over_time", "other_times", "histogram", "drivers", "agents", "frameworks"),
        *("success", "calibration", "changes", "domain_changes", "drift", "recorded"),
        *("implausible_dates", "gap", "weights", "entered_and_exited", "rejects", "traces"),
    )

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        days = (day_of(row["created_at"]) for row in archive.scores)
        scores: list[Row] = [
            {**row, **measures.measured(row, day, row["weights"], 0)}
            for row, day in zip(archive.scores, days, strict=True)
        ]
        self.label_of, self.others = labels(Counter(row["task_domain"] for row in scores))
        self.labels = [*dict.fromkeys(self.label_of.values())]
        by_label = grouped(scores, lambda row: self.label_of[row["task_domain"]])
        self.scopes = {ALL: scores, **{label: by_label[label] for label in self.labels}}
        self.spans = {scope: shown(rows, archive.ended) for scope, rows in self.scopes.items()}
        of_all = self.spans[ALL]
        days = (of_all.last_day - of_all.first_day).days
        grain = "week" if of_all.grain == "day" and days >= 42 else of_all.grain
        self.period = {"hour": "day", "decade": "year", "century": "year"}.get(grain, grain)

    @property
    def _apart(self) -> dict[str, str]:
        """The labels of the domains that have their own."""
        return {name: label for name, label in self.label_of.items() if label != self.others}

    def _of_scopes(self, answer: Callable[[list[Row]], Answer]) -> Answer:
        return [
            {"domain": scope, **row} for scope, rows in self.scopes.items() for row in answer(rows)
        ]

    def assert_same(self, data: Any) -> None:
        """The data of the report are these."""
        assert (data.labels, data.others, data.period) == (self.labels, self.others, self.period)
        spans = {
            scope: Shown(each.first_day, each.last_day, each.grain, each.others_by)
            for scope, each in data.spans.items()
        }
        assert spans == self.spans
        assert data.totals == self.totals()
        for name in self.NAMES:
            answers.assert_same(getattr(data, name).to_dicts(), getattr(self, name)())

    def domains(self) -> Answer:
        return self._of_scopes(_domain)

    def over_time(self) -> Answer:
        return [
            {"domain": scope, **step}
            for scope, rows in self.scopes.items()
            for step in self._steps(rows, self.spans[scope])
        ]

    def _steps(self, rows: Sequence[Row], span: Shown) -> Answer:
        ended = self.archive.ended.replace(tzinfo=None)
        until = datetime.combine(span.last_day, datetime.min.time()) + _DAY
        steps: Answer = []
        begin = step_of(datetime.combine(span.first_day, datetime.min.time()), span.grain)
        while begin < until:
            end = next_step(begin, span.grain)
            own = [
                row
                for row in rows
                if begin <= _naive(row["created_at"]) < end
                and span.first_day <= row["day"] <= span.last_day
            ]
            is_over = end <= ended
            steps.append({"start": begin, "end": end, **_step(own), "is_over": is_over})
            begin = end
        return steps

    def other_times(self) -> Answer:
        answer: Answer = []
        for scope, rows in self.scopes.items():
            span = self.spans[scope]
            letters = 4 if span.others_by == "year" else 7
            of_times: dict[str, list[float]] = {}
            for row in rows:
                if not span.first_day <= row["day"] <= span.last_day:
                    of_times.setdefault(str(row["day"])[:letters], []).append(row["score"])
            for time, scores in of_times.items():
                found = {"time": time, "traces": len(scores), "mean": mean(scores)}
                answer.append({"domain": scope, **found})
        return answer

    def histogram(self) -> Answer:
        return self._of_scopes(
            lambda rows: [
                {"low": place / 20, "high": place / 20 + 0.05, "traces": number}
                for place, number in enumerate(bins([row["score"] for row in rows], 20))
                if number
            ]
        )

    def drivers(self) -> Answer:
        return self._of_scopes(_drivers)

    def agents(self) -> Answer:
        return self._of_scopes(lambda rows: _units(rows, "agent_id"))

    def frameworks(self) -> Answer:
        return self._of_scopes(lambda rows: _units(rows, "framework"))

    def success(self) -> Answer:
        return self._of_scopes(lambda rows: _by_tenths(rows, "score", "mean", "effective_tasks"))

    def calibration(self) -> Answer:
        return self._of_scopes(lambda rows: _by_tenths(rows, "confidence", "confidence"))

    def changes(self) -> Answer:
        rows = self.scopes[ALL]
        found = self._within_span(measures.mean_changes(rows, self.period))
        return [{"domain": ALL, **row, **self._warming_up(rows, row["begins"])} for row in found]

    def domain_changes(self) -> Answer:
        """The p-values by Holm, over the domains of a period."""
        rows = self.scopes[ALL]
        found = measures.changes_by(rows, ["task_domain"], self.period, ["score"])
        answer: Answer = []
        for row in self._within_span(found):
            p_value = row.pop("adjusted_p_value")
            if label := self._apart.get(row.pop("task_domain")):
                moved = None if p_value is None else p_value < 0.05
                warming_up = self._warming_up(self.scopes[label], row["begins"])
                own = {"domain": label, "p_value": p_value, "moved": moved}
                answer.append({**row, **own, **warming_up})
        return answer

    def _within_span(self, changes: Answer) -> Answer:
        """Those of periods of which any day is shown; and whether these are over."""
        span, found = self.spans[ALL], []
        for row in changes:
            end = next_step(datetime.combine(row["begins"], datetime.min.time()), self.period)
            if end.date() > span.first_day and row["begins"] <= span.last_day:
                is_over = end <= _naive(self.archive.ended)
                own = {key: row[key] for key in row if key not in {"measure", "parts"}}
                found.append({**own, "is_over": is_over})
        return found

    def _warming_up(self, rows: Sequence[Row], begins: date) -> dict[str, float | None]:
        """What share of a period, and of the four before, came while the cache was warming up."""
        then = before(begins, self.period)
        sides = {
            "warming_up": [r for r in rows if begin_of(r["day"], self.period) == begins],
            "warming_up_before": [r for r in rows if begin_of(r["day"], self.period) in then],
        }
        return {
            name: sum(row["cache_warming_up"] for row in own) / len(own) if own else None
            for name, own in sides.items()
        }

    def drift(self) -> Answer:
        if len(self.archive.runs) < 2 or not self.archive.comparable:
            return []
        sides = [
            {ALL: [score for own in run.values() for score in own]}
            | {self._apart[name]: own for name, own in run.items() if name in self._apart}
            for run in self.archive.runs
        ]
        old, new = sides
        return [
            _shift(scope, old[scope], new[scope]) for scope in old if old[scope] and scope in new
        ]

    def recorded(self) -> Answer:
        of_engines = [row for row in self.archive.scores if row["recorded_score"] is not None]
        off = [row["score"] - row["recorded_score"] for row in of_engines if row["recorded_score"]]
        return [
            {
                "traces": len(off),
                "placeholders": len(of_engines) - len(off),
                "mean_difference": mean(off),
                "mean_absolute_difference": mean([abs(each) for each in off]),
            }
        ]

    def implausible_dates(self) -> Answer:
        days = sorted(row["day"] for row in self.scopes[ALL])
        past = [day for day in days if day <= self.archive.ended.date()]
        future = [day for day in days if day > self.archive.ended.date()]
        usual = _usual(past)
        sides = {
            "before": [day for day in past if usual and day < usual[0]],
            "after": [day for day in past if usual and day > usual[-1]],
            "future": future,
        }
        return [
            {"kind": kind, "traces": len(own), "first_day": own[0], "last_day": own[-1]}
            for kind, own in sides.items()
            if own
        ]

    def gap(self) -> Answer:
        span = self.spans[ALL]
        days = sorted({row["day"] for row in self.scopes[ALL]})
        gaps = [
            (-(b - a).days + 1, str(a + _DAY), str(b - _DAY))
            for a, b in pairwise(days)
            if b - a > _DAY and a >= span.first_day and b <= span.last_day
        ]
        return [
            {"days": -less, "first_day": first, "last_day": last}
            for less, first, last in sorted(gaps)[:1]
        ]

    def weights(self) -> Answer:
        begins = self.archive.begins
        told = set()
        for name, rows in grouped(self.archive.scores, lambda row: row["task_domain"]).items():
            weights = name if name in begins else "default"
            for begin in filter(None, begins.get(weights, ())):
                sides = {row["created_at"] < begin for row in rows}
                if sides == {True, False}:
                    told.add((weights, begin))
        return [{"name": name, "valid_from": begin} for name, begin in told]

    def entered_and_exited(self) -> Answer:
        if len(self.archive.runs) < 2:
            return []
        old, new = self.archive.runs
        return [{"task_domain": name, "is_new": name in new} for name in {*old} ^ {*new}]

    def rejects(self) -> Answer:
        codes = Counter(code for each in self.archive.reasons for code in each)
        return [{"code": code, "rejected": number} for code, number in codes.items()]

    def traces(self) -> Answer:
        return [*self._extremes("highest", -1), *self._extremes("lowest", 1)]

    def _extremes(self, which: str, sign: int) -> Answer:
        def place(row: Row) -> tuple[float, timedelta, str]:
            return sign * row["score"], _LATEST - row["created_at"], row["trace_id"]

        order = sorted(self.scopes[ALL], key=place)
        of_all = [row["trace_id"] for row in order[:10]]
        places: Counter[str] = Counter()
        answer: Answer = []
        for row in order:
            label = self.label_of[row["task_domain"]]
            places[label] += 1
            overall = row["trace_id"] in of_all
            if overall or places[label] <= 5:
                more = {"which": which, "domain": label, "overall": overall}
                answer.append({**more, **_trace(row), "place": places[label]})
        return answer

    def totals(self) -> dict[str, Any]:
        days = [row["day"] for row in self.scopes[ALL]]
        return {
            "threshold": self.archive.threshold,
            "domains": len(self.label_of),
            "first_day": min(days),
            "last_day": max(days),
        }


def day_of(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def labels(traces: Mapping[str, int]) -> tuple[dict[str, str], str | None]:
    """The label of each domain, and the one that several share; of names that are labels."""
    names = sorted(traces, key=lambda name: (-traces[name], name))
    total = sum(traces.values())
    small = [name for name in names if traces[name] < 30 and 100 * traces[name] < total]
    small = small if len(small) > 1 else []
    apart = len(names) - len(small)
    if apart > (9 if small else 10):
        apart = 9
    folded = names[apart:]
    what = "small ones" if folded and folded[0] in small else "others"
    shared = f"{len(folded)} {what}"
    while shared in names[:apart]:
        shared += "*"
    own = {name: name for name in names[:apart]}
    return own | dict.fromkeys(folded, shared), shared if folded else None


def shown(rows: Sequence[Row], ended: datetime) -> Shown:
    """The fewest days with 98 of 100, and those next to them; or all, if not twice as many."""
    days = sorted({row["day"] for row in rows})
    past = [day for day in days if day <= ended.date()] or days
    of_day = Counter(row["day"] for row in rows)
    first, last = _shortest_span(past, of_day)
    nearby = 0.1 * ((last - first).days + 1)
    while any(0 < (first - day).days <= nearby for day in past):
        first = max(day for day in past if day < first)
    while any(0 < (day - last).days <= nearby for day in past):
        last = min(day for day in past if day > last)
    if (past[-1] - past[0]).days + 1 < 2 * ((last - first).days + 1):
        first, last = past[0], past[-1]
    others_by = "month" if (days[-1] - days[0]).days <= 5 * 366 else "year"
    return Shown(first, last, grain_of((last - first).days + 1), others_by)


def _shortest_span(days: Sequence[date], of_day: Mapping[date, int]) -> tuple[date, date]:
    """The shortest, and of these the latest, stretch of days with 98 of 100 traces."""
    all_of = sum(of_day[day] for day in days)
    best = None
    for first in range(len(days)):
        traces = 0
        for last in range(first, len(days)):
            traces += of_day[days[last]]
            if 100 * traces >= 98 * all_of:
                found = ((days[last] - days[first]).days, -first, last)
                best = found if best is None else min(best, found)
                break
    assert best is not None
    return days[-best[1]], days[best[2]]


def grain_of(days: int) -> str:
    """The unit of which so many days have 20 to 60, or nearest to that; the finest of several.

    Twice as many steps are as far off as a quarter of them.
    """

    def off(grain: str) -> float:
        steps = days / LENGTHS[grain]
        return (steps / 60) ** 2 if steps > 60 else max(1.0, 20 / steps)

    return min(LENGTHS, key=off)


_YEARS = MappingProxyType({"year": 1, "decade": 10, "century": 100})
_MONTHS = MappingProxyType({"month": 1, "quarter": 3})


def step_of(moment: datetime, grain: str) -> datetime:
    """The beginning of the step that has a moment."""
    if grain == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if grain in _MONTHS:
        return day.replace(day=1, month=(day.month - 1) // _MONTHS[grain] * _MONTHS[grain] + 1)
    if grain in _YEARS:
        return day.replace(day=1, month=1, year=day.year // _YEARS[grain] * _YEARS[grain])
    return day - timedelta(days=day.weekday()) if grain == "week" else day


def next_step(begin: datetime, grain: str) -> datetime:
    if grain in _MONTHS:
        months = begin.month - 1 + _MONTHS[grain]
        return begin.replace(year=begin.year + months // 12, month=months % 12 + 1)
    if grain in _YEARS:
        return begin.replace(year=begin.year + _YEARS[grain])
    return begin + {"hour": timedelta(hours=1), "day": _DAY, "week": 7 * _DAY}[grain]


def means(rows: Sequence[Row]) -> dict[str, Any]:
    """The means of a group, in the columns of a frame."""
    columns: dict[str, Any] = {}
    for measure, name in _MEASURES.items():
        found = measures.mean_of(rows, measure)
        columns |= {name.rstrip("_") or "mean": found["mean"]}
        columns |= {f"{name}{end}": found[end] for end in ("low", "high")}
    return {
        "traces": len(rows),
        "tasks": len(measures.tasks_of(rows)),
        **columns,
        **{name: mean([row[name] for row in rows]) for name in ("confidence", "tools")},
        "cache_warming_up": sum(row["cache_warming_up"] for row in rows),
        "at_threshold": sum(row["share_at_threshold"] for row in rows),
        "low_diversity_penalty": mean([float(row["low_diversity_penalty"]) for row in rows]),
    }


def differences_from_others(rows: Sequence[Row], column: str) -> Answer:
    """Those of scores and of success, in the columns of a frame."""
    found: dict[Any, dict[str, Any]] = {}
    for row in measures.differences_from_others(rows, column, ("score", "success")):
        own = found.setdefault(
            (row["task_domain"], row[column]),
            {"unit": row[column], "traces": row["traces"], "tasks": row["tasks"]},
        )
        own |= {f"{row['measure']}_{name}": row[name] for name in ("difference", "low", "high")}
    return [*found.values()]


def _domain(rows: list[Row]) -> Answer:
    scores = [row["score"] for row in rows]
    middle = math.fsum(scores) / len(scores)
    near_repeats = sum((row["max_similarity"] or 0) >= 0.95 for row in rows)
    return [
        {
            **means(rows),
            **spread(scores),
            "near_repeats": near_repeats / len(rows),
            "novelty_warming_up": mean([row["novelty"] for row in rows if row["cache_warming_up"]]),
            "novelty_after": mean([row["novelty"] for row in rows if not row["cache_warming_up"]]),
            "deviation": math.sqrt(math.fsum((s - middle) ** 2 for s in scores) / len(scores)),
        }
    ]


_OF_STEPS = ("tasks", "mean", "low", "high", "share", "share_low", "share_high")
_NOVELTY = ("novelty", "novelty_low", "novelty_high")


def _step(rows: Sequence[Row]) -> dict[str, Any]:
    if not rows:
        empty = dict.fromkeys((*_OF_STEPS, *_NOVELTY))
        return {"traces": 0, **empty, "cache_warming_up": 0}
    found = means(rows)
    return {name: found[name] for name in ("traces", *_OF_STEPS, *_NOVELTY, "cache_warming_up")}


def _drivers(rows: list[Row]) -> Answer:
    totals: dict[str, list[float]] = {}
    for row in rows:
        after = effects(row, row["composite"])
        for place, name in enumerate(OVERRIDES):
            if row[name]:
                totals.setdefault(name, []).append(after[place + 1] - after[place])
    answer: Answer = []
    for part in driven(rows, [row["weights"] for row in rows]):
        own = totals.get(part["part"], [])
        answer.append(
            {
                "part": part["part"].replace("_", " "),
                "is_override": part["part"] not in DIMENSIONS,
                "weight": part["weight"],
                "share_of_variance": part["share_of_variance"],
                "effect_on_mean": part["mean_effect"],
                "traces": len(own) or None,
                "mean_effect": mean(own),
                "total_effect": math.fsum(own) if own else None,
            }
        )
    return answer


def _units(rows: list[Row], column: str) -> Answer:
    """The most traces first."""
    of_unit = grouped((row for row in rows if row[column] is not None), itemgetter(column))
    in_scope = [{**row, "task_domain": ALL} for row in rows]
    paired = {row["unit"]: row for row in differences_from_others(in_scope, column)}
    order = sorted(of_unit, key=lambda unit: (-len(of_unit[unit]), unit))
    return [
        {
            "unit": unit,
            **means(of_unit[unit]),
            "effective_tasks": effective(of_unit[unit]),
            "place": place,
            **{name: paired.get(unit, {}).get(own) for name, own in _PAIRED.items()},
        }
        for place, unit in enumerate(order, 1)
    ]


def _by_tenths(rows: list[Row], column: str, *more: str) -> Answer:
    """Of the traces that are within each tenth of a column, how many succeed."""
    names = ("traces", "tasks", *more, "success", "success_low", "success_high")
    answer: Answer = []
    for place, own in grouped(rows, lambda row: bin_of(row[column], 10)).items():
        found = {**means(own), "effective_tasks": effective(own)}
        edges = {"low": place / 10, "high": place / 10 + 0.1}
        answer.append({**edges, **{name: found[name] for name in names}})
    return answer


def _shift(scope: str, old: Sequence[float], new: Sequence[float]) -> dict[str, Any]:
    shifts = {
        f"p{round(100 * share)}_shift": quantile(new, share) - quantile(old, share)
        for share in (0.05, 0.5, 0.95)
    }
    return {
        "domain": scope,
        "traces_before": len(old),
        "traces": len(new),
        "mean_shift": math.fsum(new) / len(new) - math.fsum(old) / len(old),
        **shifts,
        "stability_index": stability_index(bins(old), bins(new)),
    }


def _usual(days: Sequence[date]) -> Sequence[date]:
    """Of the stretches without a gap of ten years, that with nine of ten; none if none has."""
    stretches: list[list[date]] = []
    for day in days:
        if stretches and day < _ten_years_after(stretches[-1][-1]):
            stretches[-1].append(day)
        else:
            stretches.append([day])
    return next((each for each in stretches if 10 * len(each) >= 9 * len(days)), ())


def _ten_years_after(day: date) -> date:
    is_leap_day = (day.month, day.day) == (2, 29)  # ten years later there is none
    return day.replace(year=day.year + 10, day=28 if is_leap_day else day.day)


_OF_TRACES = (*DIMENSIONS, "score", "max_similarity", "nearest_trace_id", "nearest_age_s")


def _trace(row: Row) -> dict[str, Any]:
    nearest_day = None
    if row["nearest_age_s"] is not None:
        nearest_day = day_of(row["created_at"] - timedelta(seconds=row["nearest_age_s"]))
    return {
        "trace_id": row["trace_id"],
        "created_at": f"{_naive(row['created_at']):%Y-%m-%d %H:%M}",
        **{name: row[name] for name in _OF_TRACES},
        "day": row["day"],
        "nearest_day": nearest_day,
    }
