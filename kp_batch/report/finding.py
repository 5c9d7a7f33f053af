"""One finding: a sentence about the scores of a scope, and where it comes from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import polars as pl

from kp_batch.duck import literal
from kp_batch.report.data import Parts, ReportData
from kp_batch.report.labels import ALL

_PLAIN = re.compile(r"[\w./@:+-](?:[\w ./@:+-]{0,38}[\w./@:+-])?")  # what a shell leaves alone

MATTERS = 0.005  # of a score: the least that is worth a sentence
_NAMED = 5  # parts of a difference, at the most
VISIBLE = 0.0005  # in three decimals
_SMALL = 0.1  # of the largest part, below which one is not named
_PARTS = {  # of a difference between scores, and what a sentence calls them
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

    code: str  # what kind of sentence it is: mean_change, domain_moved, …
    parts: tuple[str, ...]  # text from the archive is `Untrusted`
    question: str  # the query that answers the same: FROM …
    # Those of the sentence, by the columns' names; parts of a difference as `from_` and their name.
    numbers: Mapping[str, Value]
    traces: int  # how many it is about
    effect: float  # how much it makes of their scores: 0..1

    @property
    def weight(self) -> float:
        """How much it matters: traces times effect."""
        return self.traces * self.effect

    @property
    def sentence(self) -> str:
        """All its parts, not escaped."""
        return "".join(self.parts)


def labels_of(data: ReportData, scope: str) -> list[str]:
    """The domains whose findings are a scope's."""
    return list(data.names) if scope == ALL else [scope]


def rows_of(data: ReportData, scope: str, frame: str) -> Iterator[Row]:
    """The rows of a frame that are of these domains."""
    of = pl.col("domain").is_in(labels_of(data, scope))
    yield from getattr(data, frame).filter(of).iter_rows(named=True)


def clearly(among: int, tasks: float) -> float:
    """How many times its 95% margin something is off 0, to be told.

    By Bonferroni: where it is sought among so many of which nothing is true, one page in twenty
    tells of any. Student's quantiles are those of Cornish and Fisher, for as many tasks as the
    margin is of: the effective ones, where some are tried more often and count as often.
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
    """These columns of a row, as JSON has them, and some by the names that a question has."""
    names = {name: name for name in columns} | renamed
    found = {name: row[column] for name, column in names.items()}
    return {name: str(value) if name == "begins" else value for name, value in found.items()}


def query(ask: str, then: str = "", /, **names: str | None) -> str:
    """A query where columns have these values, of those that a command line can hold."""
    known = {column: name for column, name in names.items() if name and _PLAIN.fullmatch(name)}
    conditions = [f"{column} = {literal(name)}" for column, name in known.items()]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return " ".join(filter(None, (ask, where, then)))


def of_scores(data: ReportData, scope: str, columns: str) -> str:
    """A query of columns of the scores of a scope; of every domain, if none can name its own."""
    if scope not in data.names:
        return _OF_SCORES.format(columns) + " GROUP BY ALL"
    ask = _OF_SCORES.format(f"task_domain, {columns}")
    return query(ask, "GROUP BY ALL", task_domain=data.names[scope])


def begin(*parts: str) -> tuple[str, ...]:
    """Sentences begin with a capital, unless it is a name that does."""
    first, *rest = parts
    return (first if isinstance(first, Untrusted) else first[:1].upper() + first[1:], *rest)


def traces_of(data: ReportData, label: str) -> int:
    """How many traces a scope has."""
    return sum(data.of("domains", label)["traces"].to_list())


def weights_of(data: ReportData, label: str) -> str:
    """The name of the weights that a domain takes."""
    name = data.names[label]
    own = data.run.settings.get("profiles", {}) if data.run else {}
    return name if name in own else "default"


def weight_of(data: ReportData, label: str, part: str) -> float:
    """The weight of a dimension, on average."""
    return sum(data.of("drivers", label).filter(part=part)["weight"].to_list())


def made_of(parts: Parts | None) -> tuple[str, dict[str, Value]]:
    """What a difference is made of, the largest parts first, and the numbers that this says.

    The rest is what the sum of all parts has beyond those that are named.
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
    """An interval in a sentence."""
    return f"({low:{form}} to {high:{form}})"


def sizes(low: float, high: float, form: str = ".3f") -> str:
    """Likewise, of how far something is off 0, where the words say to which side."""
    least, most = sorted((abs(low), abs(high)))
    return interval(least, most, form)


def percent(share: float) -> str:
    """A share, with as few decimals as tell it from none and from all."""
    for digits in range(3):
        text = f"{share:.{digits}%}"
        if 0 < float(text[:-1]) < 100:
            return text
    if share in {0, 1}:
        return f"{share:.0%}"
    return "under 0.01%" if share < 0.5 else "over 99.99%"
