"""How the scores of each scope are spread: over the days, and about their mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from kp_batch.report.groupings import Key, scoped
from kp_batch.report.labels import ALL
from kp_batch.report.scores import Part, Scores
from kp_batch.report.sums import totals_of

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_EXTREMES = 10
_SPREAD = pl.Schema(
    {
        "domain": pl.String,
        **{f"p{100 * share:.0f}": pl.Float64 for share in _QUANTILES},
        **dict.fromkeys(("repeats", "novelty_filling", "novelty_after", "deviation"), pl.Float64),
    }
)


def days_of(scores: Scores, labels: Sequence[str]) -> pl.DataFrame:
    """Of each scope's days: `traces`, the sum `score`, and how many came to a filling cache."""
    key = Key(lambda part: part["day"], max(1, len(scores.days)), "day")
    days = scoped("day", labels, key, ("score", "filling"))
    found = totals_of(scores, days)
    day = pl.Series(scores.days, dtype=pl.Date).gather(found["day"])
    filling = pl.col("filling").cast(pl.Int64)
    return found.select("domain", day.alias("day"), "traces", "score", cache_filling=filling)


def spread_of(scores: Scores, labels: Sequence[str]) -> pl.DataFrame:
    """Of each scope: quantiles and deviation of the scores, repeats, and novelty by the cache."""
    rows = []
    if len(scores):
        rows.append({"domain": ALL, **_spread(scores.columns)})
    for place, label in enumerate(labels):
        is_in = scores.columns["label"] == place
        own = {name: scores.columns[name][is_in] for name in _OF_SPREAD}
        rows.append({"domain": label, **_spread(own)})
    return pl.DataFrame(rows, _SPREAD)


_OF_SPREAD = ("score", "novelty", "filling", "repeats")


def _spread(own: Part) -> dict[str, Any]:
    score, novelty, filling = own["score"], own["novelty"], own["filling"]
    names = [name for name in _SPREAD if name.startswith("p")]
    return {
        **dict(zip(names, np.quantile(score, _QUANTILES).tolist(), strict=True)),
        "repeats": own["repeats"].mean(),
        "novelty_filling": _mean(novelty[filling]),
        "novelty_after": _mean(novelty[~filling]),
        "deviation": score.std(),
    }


def extremes_of(scores: Scores, labels: Sequence[str]) -> pl.DataFrame:
    """The highest and the lowest scores of each label's domains: `score`, of distinct values."""
    found = [np.array([])]
    for place in range(len(labels)):
        own = scores.columns["score"][scores.columns["label"] == place]
        ends = min(_EXTREMES, len(own)) - 1
        own.partition((ends, len(own) - 1 - ends))
        found += [own[: ends + 1], own[len(own) - 1 - ends :]]
    return pl.DataFrame({"score": np.unique(np.concatenate(found))})


def _mean(values: np.ndarray) -> float | None:
    return values.mean() if len(values) else None
