"""The spread of the scores of each scope: over the days, and around their mean."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from kp_batch.report.groupings import Key, scoped
from kp_batch.report.labels import ALL
from kp_batch.report.scores import Scores
from kp_batch.report.sums import totals_of

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_EXTREMES = 10
_SPREAD = pl.Schema(
    {**{f"p{100 * share:.0f}": pl.Float64 for share in _QUANTILES}, "deviation": pl.Float64}
)


def days_of(scores: Scores, labels: Sequence[str]) -> pl.DataFrame:
    """Return for each scope's days `traces`, the sum `score`, and the count `cache_warming_up`."""
    key = Key(lambda part: part["day"], max(1, len(scores.days)), "day")
    days = scoped("day", labels, key, ("score", "warming_up"))
    found = totals_of(scores, days)
    day = pl.Series(scores.days, dtype=pl.Date).gather(found["day"])
    warming_up = pl.col("warming_up").cast(pl.Int64)
    return found.select("domain", day.alias("day"), "traces", "score", cache_warming_up=warming_up)


def spread_of(scores: Scores, labels: Sequence[str]) -> pl.DataFrame:
    """Return each scope's quantiles, deviation, near repeats, and novelty by state of the cache."""
    key = Key(lambda part: part["warming_up"].astype(np.int64), 2, "warming_up")
    sums = totals_of(scores, scoped("spread", labels, key, ("novelty", "near_repeats")))
    novelty = pl.col("novelty") / pl.col("traces")
    shares = sums.group_by("domain").agg(
        near_repeats=pl.col("near_repeats").sum() / pl.col("traces").sum(),
        novelty_warming_up=novelty.filter(warming_up=1).first(),
        novelty_after=novelty.filter(warming_up=0).first(),
    )
    rows = [_spread(_of_label(scores, place)) for place in range(len(labels))]
    if rows:
        rows.append(_spread(scores.columns["score"]))
    names = pl.Series([*labels, ALL][: len(rows)], dtype=pl.String)
    return pl.DataFrame(rows, _SPREAD).with_columns(domain=names).join(shares, on="domain")


def _spread(score: np.ndarray) -> dict[str, float]:
    shares = np.quantile(score, _QUANTILES).tolist()
    return {**dict(zip(_SPREAD, shares, strict=False)), "deviation": float(score.std())}


def _of_label(scores: Scores, place: int) -> np.ndarray:
    return scores.columns["score"][scores.columns["label"] == place]


def extremes_of(scores: Scores, labels: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the highest and the lowest scores of each label's domains: `score`, distinct values.

    Returns:
        These; and the days of ten or more traces at either end, the latest of equal ones.
    """
    found, has_one = [np.array([])], np.zeros(len(scores.days), np.bool_)
    for place in range(len(labels)):
        is_own = scores.columns["label"] == place
        own, days = (scores.columns[name][is_own] for name in ("score", "day"))
        for sign in (1, -1):
            values, of_values = _lowest(sign * own, days)
            found.append(sign * values)
            has_one[of_values] = True
    values = pl.DataFrame({"score": np.unique(np.concatenate(found))})
    return values, pl.Series(scores.days[has_one], dtype=pl.Date)


def _lowest(score: np.ndarray, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ten lowest scores, and their days; the latest of those that equal the last one."""
    ends = min(_EXTREMES, len(score))
    lowest = np.partition(score, ends - 1)[:ends]
    is_lower, is_last = score < lowest[-1], score == lowest[-1]
    left = ends - int(is_lower.sum())
    latest = np.sort(day[is_last])[-left:]
    return lowest, np.concatenate([day[is_lower], latest])


def recorded_of(scores: Scores) -> pl.DataFrame:
    """Return the distances of scores from those that live engines recorded; 0 is a placeholder."""
    recorded = scores.columns["recorded"]
    is_known = np.nan_to_num(recorded) != 0
    off = pl.Series(scores.columns["score"][is_known] - recorded[is_known], dtype=pl.Float64)
    return pl.DataFrame(
        {
            "traces": [len(off)],
            "placeholders": [int((recorded == 0).sum())],
            "mean_difference": [off.mean()],
            "mean_absolute_difference": [off.abs().mean()],
        },
        {
            **dict.fromkeys(("traces", "placeholders"), pl.Int64),
            **dict.fromkeys(("mean_difference", "mean_absolute_difference"), pl.Float64),
        },
    )
