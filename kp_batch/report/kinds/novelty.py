"""Findings about the limits of novelty."""

from collections.abc import Iterator

from kp_batch.report.data import MIN_TRACES, ReportData
from kp_batch.report.finding import MATTERS, Finding, of_scores, only, percent, weight_of
from kp_batch.text import count_of

_REPEATS = 0.1  # of the traces: the smallest share that is worth a sentence
_REPEATING = "count(*) FILTER (max_similarity >= 0.95) / count(*) AS near_repeats"


def warming_up(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find how much more novel traces looked while their caches were warming up."""
    row = data.of("domains", scope).row(0, named=True)
    number, after = row["cache_warming_up"], row["novelty_after"]
    if number < MIN_TRACES or (after is not None and row["novelty_warming_up"] - after < MATTERS):
        return
    share = number / row["traces"]
    if after is None:
        text = (
            "All traces were made while their cache was warming up, so their novelty is not "
            "comparable with that of later traces."
        )
        effect = 0.0
    else:
        text = (
            f"{count_of(number, 'trace')} ({percent(share)}) were made while their cache was "
            "warming up and had few traces to compare with. Their mean novelty is "
            f"{row['novelty_warming_up']:.3f}; that of the other traces is {after:.3f}."
        )
        effect = row["novelty_warming_up"] - after
    yield Finding(
        "cache_warming_up",
        (text,),
        of_scores(data, scope, "cache_warming_up, count(*) AS traces, avg(novelty) AS novelty"),
        only(row, "cache_warming_up", "novelty_warming_up", "novelty_after") | {"share": share},
        number,
        effect * weight_of(data, scope, "novelty"),
    )


def near_repeats(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find how many traces nearly repeat one in their cache."""
    row = data.of("domains", scope).row(0, named=True)
    share = row["near_repeats"]
    if row["traces"] < MIN_TRACES or share < _REPEATS:
        return
    text = (
        f"{percent(share)} of the traces nearly repeat another one in their cache (similarity of "
        "0.95 or more). A repeat of a trace that has left the cache counts as novel."
    )
    yield Finding(
        "near_repeats",
        (text,),
        of_scores(data, scope, _REPEATING),
        {"near_repeats": share},
        round(share * row["traces"]),
        row["novelty"] * weight_of(data, scope, "novelty"),
    )
