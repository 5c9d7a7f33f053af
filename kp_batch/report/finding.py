"""A finding: a sentence about the scores of a scope, and the query behind it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import polars as pl

from kp_batch.duck import literal
from kp_batch.report.data import Parts, ReportData
from kp_batch.report.labels import ALL

_PLAIN = re.compile(r"[\w./@:+-](?:[\w ./@:+-]{0,38}[\w./@:+-])?")  # safe in a shell

MATTERS = 0.005  # the smallest effect on a score that is worth a sentence
_NAMED = 5  # at most so many parts of a difference
VISIBLE = 0.0005  # the smallest number that shows in three decimals
_SMALL = 0.1  # of the largest part: smaller ones are not named
_PARTS = {  # parts of a difference between scores, and their names in a sentence
    "complexity": "complexity",
    "novelty": "novelty",
    "tool_diversity": "tool diversity",
    "outcome_confidence": "outcome confidence",
    "weights": "other weights",
    "single_thought": "single thoughts",
    "recovery_bonus": "recovery bonuses",
    "low_diversity_penalty": "low diversity penalties",
    "cache_warming_up": "caches warming up",
}
_MARGIN = NormalDist().inv_cdf(0.975)  # of a 95% interval

_OF_SCORES = "SELECT {} FROM scores"

Row = Mapping[str, Any]
Value = float | int | str | bool | None


class Untrusted(str):
    """Text from the archive, which every page escapes in its own way."""

    __slots__ = ()


@dataclass(frozen=True)
class Finding:
    """One sentence, in parts, and where it comes from."""

    code: str  # the kind of sentence: mean_change, domain_moved, …
    parts: tuple[str, ...]  # text from the archive is `Untrusted`
    question: str  # the query that answers the same: FROM …
    # The numbers in the sentence, by column; parts of a difference are `from_` and their name.
    numbers: Mapping[str, Value]
    traces: int  # how many it is about
    effect: float  # its effect on their scores: 0..1

    @property
    def weight(self) -> float:
        """How important it is: traces times effect."""
        return self.traces * self.effect

    @property
    def sentence(self) -> str:
        """All its parts, unescaped."""
        return "".join(self.parts)


def labels_of(data: ReportData, scope: str) -> list[str]:
    """Return the domains whose findings belong to a scope."""
    return list(data.names) if scope == ALL else [scope]


def rows_of(data: ReportData, scope: str, frame: str) -> Iterator[Row]:
    """Yield the rows of a frame that belong to these domains."""
    of = pl.col("domain").is_in(labels_of(data, scope))
    yield from getattr(data, frame).filter(of).iter_rows(named=True)


def clearly(among: int, tasks: float) -> float:
    """Return how many 95% margins a value must be away from 0 to be reported.

    By Bonferroni: if nothing is true of any of the `among` candidates, one page in twenty reports
    one. Student's quantiles are those of Cornish and Fisher, for the effective tasks: repeated
    attempts at a task weigh less.
    """
    far = NormalDist().inv_cdf(1 - 0.025 / max(1, among))
    return _student(far, tasks - 1) / _student(_MARGIN, tasks - 1)


def _student(z: float, degrees: float) -> float:
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / degrees**power for power, term in enumerate(terms))


def only(row: Row, *columns: str, **renamed: str) -> dict[str, Value]:
    """Return these columns of a row, as JSON has them, some under the names that a question has."""
    names = {name: name for name in columns} | renamed
    found = {name: row[column] for name, column in names.items()}
    return {name: str(value) if name == "begins" else value for name, value in found.items()}


def query(ask: str, then: str = "", /, **names: str | None) -> str:
    """Return a query with conditions on columns, for values that fit a command line."""
    known = {column: name for column, name in names.items() if name and _PLAIN.fullmatch(name)}
    conditions = [f"{column} = {literal(name)}" for column, name in known.items()]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return " ".join(filter(None, (ask, where, then)))


def of_scores(data: ReportData, scope: str, columns: str) -> str:
    """Return a query of columns of a scope's scores; of every domain, if it cannot name its own."""
    if scope not in data.names:
        return _OF_SCORES.format(columns) + " GROUP BY ALL"
    ask = _OF_SCORES.format(f"task_domain, {columns}")
    return query(ask, "GROUP BY ALL", task_domain=data.names[scope])


def begin(*parts: str) -> tuple[str, ...]:
    """Capitalise the first letter of a sentence, unless it is part of a name."""
    first, *rest = parts
    return (first if isinstance(first, Untrusted) else first[:1].upper() + first[1:], *rest)


def traces_of(data: ReportData, label: str) -> int:
    """Return how many traces a scope has."""
    return sum(data.of("domains", label)["traces"].to_list())


def weights_of(data: ReportData, label: str) -> str:
    """Return the name of the weights that a domain uses."""
    name = data.names[label]
    own = data.run.settings.get("profiles", {}) if data.run else {}
    return name if name in own else "default"


def weight_of(data: ReportData, label: str, part: str) -> float:
    """Return the mean weight of a dimension."""
    return sum(data.of("drivers", label).filter(part=part)["weight"].to_list())


def made_of(parts: Parts | None) -> tuple[str, dict[str, Value]]:
    """Return the parts of a difference, largest first, and the numbers that the text shows.

    The rest is the difference between all parts and the named ones.
    """
    known = {name: (parts or {}).get(name) or 0.0 for name in _PARTS}
    ranked = sorted(known, key=lambda name: -abs(known[name]))
    least = max(VISIBLE, _SMALL * abs(known[ranked[0]]))
    named = [name for name in ranked[:_NAMED] if abs(known[name]) >= least]
    said: dict[str, Value] = {f"from_{name}": known[name] for name in named}
    texts = [f"{known[name]:+.3f} from {_PARTS[name]}" for name in named]
    rest = sum(known[name] for name in ranked[len(named) :])
    if named and abs(rest) >= VISIBLE:
        said["from_rest"] = rest
        texts.append(f"{rest:+.3f} from the rest")
    return f": {', '.join(texts)}" if texts else "", said


def interval(low: float, high: float, form: str = "+.3f") -> str:
    """Write an interval in a sentence."""
    return f"({low:{form}} to {high:{form}})"


def sizes(low: float, high: float, form: str = ".3f") -> str:
    """Write an interval of a size, if the words give its sign."""
    least, most = sorted((abs(low), abs(high)))
    return interval(least, most, form)


def percent(share: float) -> str:
    """Write a share with just enough decimals to differ from 0% and 100%."""
    for digits in range(3):
        text = f"{share:.{digits}%}"
        if 0 < float(text[:-1]) < 100:
            return text
    if share in {0, 1}:
        return f"{share:.0%}"
    return "under 0.01%" if share < 0.5 else "over 99.99%"
