"""How the report groups traces: by domain label, and over all domains."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from kp_batch.report.labels import ALL
from kp_batch.report.scores import Part, Scores
from kp_batch.report.sums import ALL_OF, Grouping

_HOURS = 24
_FRAMES = {  # what the means of each frame are grouped by
    "domains": "domain",
    "over_time": "start",
    "success": "score",
    "calibration": "confidence",
    "agents": "agent",
    "frameworks": "framework",
}


@dataclass(frozen=True)
class Key:
    """A number of each trace.

    Args:
        code: returns the numbers, from 0; -1: none.
        size: greater than all numbers.
        name: the name of the column of the numbers; None: there is only one group, without a
            column.
        texts: the texts that the numbers mean.
    """

    code: Callable[[Part], np.ndarray]
    size: int
    name: str | None = None
    texts: Sequence[str] | None = None

    def columns(self, codes: np.ndarray) -> dict[str, pl.Series]:
        """Return the column of these numbers, or of the texts that they mean."""
        if not self.name:
            return {}
        own = pl.Series(codes, dtype=pl.Int64)
        is_text = self.texts is not None
        return {self.name: pl.Series(self.texts, dtype=pl.String).gather(own) if is_text else own}


def groupings(
    scores: Scores, labels: Sequence[str], steps: pl.DataFrame, frames: Collection[str]
) -> Iterator[Grouping]:
    """Yield the groupings whose means are in some frames.

    Args:
        scores: all scores.
        labels: the labels of the domains, by their places.
        steps: the steps of each scope's days, see `steps_of_days.sql`.
        frames: the names of the frames.
    """
    for frame, by in _FRAMES.items():
        if frame not in frames:
            continue
        if by == "start":
            yield from _in_time(scores, labels, steps)
        elif by in _UNITS:
            texts = scores.texts[by]
            key = Key(_column(by), max(1, len(texts)), "unit", texts)
            yield scoped(by, labels, key, compares=True)
        else:
            key, of = _KEYS[by]
            yield scoped(by, labels, key, of)


def scoped(
    by: str,
    labels: Sequence[str],
    key: Key,
    of: Sequence[str] = ALL_OF,
    *,
    compares: bool = False,
) -> Grouping:
    """Group by a key within each label, and over all domains.

    Args:
        by: the name of the grouping.
        labels: the labels of the domains, by their places.
        key: a number of each trace.
        of: the columns to sum.
        compares: see `Grouping`.
    """

    def of_label(part: Part) -> np.ndarray:
        own = key.code(part).astype(np.int64)
        return np.where(own < 0, -1, part["label"] * key.size + own)

    def keys(scopes: Sequence[str]) -> Callable[[np.ndarray], pl.DataFrame]:
        domains = pl.Series(scopes, dtype=pl.String)
        return lambda codes: pl.DataFrame(
            {"domain": domains.gather(codes // key.size), **key.columns(codes % key.size)}
        )

    whole = Grouping(by, keys([ALL]), key.code, key.size, of, compares=compares)
    return Grouping(by, keys(labels), of_label, len(labels) * key.size, of, whole, compares)


def _column(name: str) -> Callable[[Part], np.ndarray]:
    return lambda part: part[name]


def _all_alike(part: Part) -> np.ndarray:
    return np.zeros(len(part["task"]), np.int64)


def _tenth(part: Part) -> np.ndarray:
    return part["score_bin"] // 2


_UNITS = ("agent", "framework")
_KEYS = {  # and the columns to sum
    "domain": (Key(_all_alike, 1), ALL_OF),
    "score": (Key(_tenth, 10, "bin"), ("score", "success")),
    "confidence": (Key(_column("confidence_bin"), 10, "bin"), ("confidence", "success")),
}


def _in_time(scores: Scores, labels: Sequence[str], steps: pl.DataFrame) -> Iterator[Grouping]:
    """Group by the steps of time of each scope, which are hours in some."""
    place = {name: number for number, name in enumerate((*labels, ALL))}
    of_days, by_hour, starts = _steps(scores, steps, place)

    def code(part: Part, scope: np.ndarray) -> np.ndarray:
        step = of_days[scope, part["day"]]
        return np.where(step < 0, -1, step * _HOURS + by_hour[scope] * part["hour"])

    def keys(codes: np.ndarray) -> pl.DataFrame:
        hours = pl.Series(codes % _HOURS).cast(pl.Int64)
        rows = starts[codes // _HOURS].with_columns(hours=hours)
        start = pl.col("start") + pl.duration(hours="hours")
        return rows.select("domain", start=start)

    def of_all(part: Part) -> np.ndarray:
        return code(part, np.full(len(part["task"]), place[ALL]))

    of = ("score", "novelty", "meets_threshold", "warming_up")
    yield Grouping("start", keys, of_all, len(starts) * _HOURS, of)
    yield Grouping("start", keys, lambda part: code(part, part["label"]), len(starts) * _HOURS, of)


def _steps(
    scores: Scores, steps: pl.DataFrame, place: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray, pl.DataFrame]:
    """Return the step of each scope's days, (s, d), -1 for none; if it has hours; and all steps."""
    of_days = np.full((len(place), len(scores.days)), -1, np.int64)
    by_hour = np.zeros(len(place), np.int64)
    shown = steps.drop_nulls("start").sort("domain", "day")
    shown = shown.with_columns(step=pl.struct("domain", "start").rle_id().cast(pl.Int64))
    scope = shown["domain"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
    day = np.searchsorted(scores.days, shown["day"].to_numpy())
    of_days[scope, day] = shown["step"].to_numpy()
    by_hour[scope] = shown["is_by_hour"].to_numpy()
    return of_days, by_hour, shown.unique("step", keep="first", maintain_order=True)
