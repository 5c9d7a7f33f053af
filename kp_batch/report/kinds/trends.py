"""Findings about changes from period to period."""

from collections.abc import Iterator
from itertools import chain

import polars as pl

from kp_batch.report.data import Parts, ReportData
from kp_batch.report.finding import (
    MATTERS,
    Finding,
    Row,
    Untrusted,
    Value,
    begin,
    labels_of,
    made_of,
    only,
    percent,
    query,
    sizes,
)
from kp_batch.report.labels import ALL
from kp_batch.report.periods import starting

_RECENT = 4  # periods whose changes are reported
_CHANCE = 0.05 / _RECENT  # the largest p-value, corrected for the number of periods
_CACHE = 0.1  # the smallest reported change of a domain's share in its cache
_SPLIT = {  # parts of a change of the overall mean
    "within": "from changes within domains",
    "mix": "from the mix of domains",
    "entered": "from domains that entered",
    "exited": "from domains that exited",
}
_OF_ALL = (
    " JOIN (SELECT begins, change AS change_of_all, within, mix, entered, exited "
    "FROM mean_changes('{}')) USING (begins)"
)
_CHANGE = ("begins", "traces", "mean", "change", "low", "high", "p_value")


def clear_changes(data: ReportData, scope: str) -> list[Row]:
    """Return a scope's changes by more than chance, in the last periods."""
    return [row for row in _recent(data, scope) if row["p_value"] <= _CHANCE]


def _by(row: Row) -> str:
    side = "up" if row["change"] > 0 else "down"
    return f"{side} {abs(row['change']):.3f} {sizes(row['low'], row['high'])}"


def _recent(data: ReportData, scope: str) -> Iterator[Row]:
    """Yield a scope's rows of the last periods that are over and comparable with those before."""
    last = data.changes.filter("is_over")["begins"].tail(_RECENT)
    rows = data.comparable(scope).filter(pl.col("begins").is_in(last.implode()))
    yield from rows.filter(pl.col("change").abs() >= MATTERS).iter_rows(named=True)


def mean_change(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find the periods in which the mean changed by more than chance, and why."""
    if scope != ALL or len(data.labels) == 1:  # a single domain is the one that moved
        return
    for row in clear_changes(data, ALL):
        if row["mix"] is None:
            continue
        parts, said = made_of(data.parts.get((ALL, row["begins"])))
        yield Finding(
            "mean_change",
            begin(
                f"{starting(row['begins'], data.period)} the mean score was {row['mean']:.3f}, "
                f"{_by(row)} from the previous four {data.period}s",
                *_reasons(row),
                f". By part of the score{parts}" if parts else "",
                ".",
            ),
            f"FROM mean_changes('{data.period}') WHERE begins = '{row['begins']}'",
            only(row, *_CHANGE, *_SPLIT) | said,
            row["traces"],
            abs(row["change"]),
        )


def _reasons(row: Row) -> Iterator[str]:
    """Yield the parts of the change, if there are several; the largest first."""
    parts = [(row[part], what) for part, what in _SPLIT.items() if abs(row[part]) >= 0.0005]
    if len(parts) > 1:
        parts.sort(key=lambda part: -abs(part[0]))
        yield ": " + ", ".join(f"{value:+.3f} {what}" for value, what in parts)


def domain_moved(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find the domains that moved by more than chance, why, and the mean of all.

    A domain that moved against the mean is as important as the mean, which would mislead by itself.
    """
    is_of_all = scope == ALL and len(data.labels) > 1
    of_all = {row["begins"]: row for row in data.comparable(ALL).iter_rows(named=True)}
    clear_of_all = {row["begins"] for row in clear_changes(data, ALL)}
    for row in chain(*(clear_changes(data, label) for label in labels_of(data, scope))):
        parts, said = made_of(found := data.parts.get((row["domain"], row["begins"])))
        cache, shares = _cache(found)
        hidden = of_all.get(row["begins"]) if is_of_all else None
        is_against = (
            hidden is not None
            and row["begins"] in clear_of_all
            and hidden["change"] * row["change"] < 0
        )
        about = max(row, hidden if is_against else row, key=_weight)
        yield Finding(
            "domain_moved",
            begin(
                f"{starting(row['begins'], data.period)} ",
                Untrusted(row["domain"]),
                f" scored {row['mean']:.3f}, {_by(row)} from its previous four {data.period}s",
                parts,
                cache,
                *(_hidden(hidden) if hidden else ()),
                ".",
            ),
            _asked(data, row, hidden, with_cache=bool(cache)),
            only(row, *_CHANGE) | said | shares | (_numbers_of_all(hidden) if hidden else {}),
            about["traces"],
            abs(about["change"]),
        )


def _weight(row: Row) -> float:
    return row["traces"] * abs(row["change"])


def _cache(parts: Parts | None) -> tuple[str, dict[str, Value]]:
    """Explain a change of novelty by the cache: a domain's own traces resemble each other."""
    share, before = ((parts or {}).get(name) for name in ("cache_share", "cache_share_before"))
    if share is None or before is None or abs(share - before) < _CACHE:
        return "", {}
    if not parts or (share > before) == ((parts["novelty"] or 0) > 0):
        return "", {}
    side, novelty = ("up", "lower") if share > before else ("down", "raise")
    text = (
        f". Its own traces made up {percent(share)} of its cache, {side} from {percent(before)}, "
        f"which alone can {novelty} novelty"
    )
    return text, {"cache_share": share, "cache_share_before": before}


def _hidden(row: Row) -> Iterator[str]:
    is_clear = not row["low"] <= 0 <= row["high"]
    says = "changed by {:+.3f}" if is_clear else "shows no clear change ({:+.3f})"
    yield f". The mean of all traces {says.format(row['change'])}"
    if row["mix"] is not None:
        yield from _reasons(row)


def _numbers_of_all(row: Row) -> dict[str, float | None]:
    return {"change_of_all": row["change"], **{part: row[part] for part in _SPLIT}}


def _asked(data: ReportData, row: Row, hidden: Row | None, *, with_cache: bool) -> str:
    measures = ", ['score', 'cache_share_of_domain']" if with_cache else ""
    also = _OF_ALL.format(data.period) if hidden else ""
    return query(
        f"FROM changes_by('task_domain', '{data.period}'{measures}){also}",
        begins=str(row["begins"]),
        task_domain=data.names[row["domain"]],
    )
