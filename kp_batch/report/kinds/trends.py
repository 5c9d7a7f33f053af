"""Findings about changes from period to period."""

from collections.abc import Iterator
from itertools import chain

import polars as pl

from kp_batch.report.data import ReportData
from kp_batch.report.finding import (
    MATTERS,
    Finding,
    Row,
    Untrusted,
    begin,
    interval,
    labels_of,
    only,
    weights_of,
)
from kp_batch.report.labels import ALL
from kp_batch.report.periods import shift

_RECENT = 4  # periods whose changes are told
_CHANCE = 0.05 / _RECENT  # of a p-value: of so many periods, each by itself
_PARTS = {  # of a change, and what each is where it is below 0, and above
    "within": ("within the domains", "within the domains"),
    "mix": ("by the mix of domains", "by the mix of domains"),
    "entered": ("as domains entered that score less", "as domains entered that score more"),
    "exited": ("as domains exited that score more", "as domains exited that score less"),
}
_OF_ALL = (
    " JOIN (SELECT begins, change AS change_of_all, within, mix, entered, exited "
    "FROM mean_changes('{}')) USING (begins)"
)
_CHANGE = ("begins", "traces", "mean", "change", "low", "high", "p_value")


def _time(data: ReportData, row: Row) -> str:
    on = "on" if data.period == "day" else f"in the {data.period} from"
    return f"{on} {row['begins']}"


def _recent(data: ReportData, scope: str) -> Iterator[Row]:
    """A scope's rows of the last periods that are over, where it compares with those before."""
    last = data.changes.filter("is_over")["begins"].tail(_RECENT)
    rows = data.comparable(scope).filter(pl.col("begins").is_in(last.implode()))
    yield from rows.filter(pl.col("change").abs() >= MATTERS).iter_rows(named=True)


def mean_change(data: ReportData, scope: str) -> Iterator[Finding]:
    """The periods in which the mean changed by more than chance, and by what."""
    if scope != ALL or len(data.labels) == 1:  # of one domain, it is that which moved
        return
    for row in _recent(data, ALL):
        if row["mix"] is None or row["p_value"] > _CHANCE:
            continue
        yield Finding(
            "mean_change",
            begin(
                f"{_time(data, row)} the mean score was {row['mean']:.3f}, {row['change']:+.3f} "
                f"{interval(row['low'], row['high'])} against the four {data.period}s before",
                *_reasons(row),
                *_meanwhile(data, row, None),
                ".",
            ),
            f"FROM mean_changes('{data.period}') WHERE begins = '{row['begins']}'",
            only(row, *_CHANGE, *_PARTS),
            row["traces"],
            abs(row["change"]),
        )


def _reasons(row: Row) -> Iterator[str]:
    """What the change is made of, if there is more than one part; the largest first."""
    values = [(row[part], whats) for part, whats in _PARTS.items()]
    parts = [(value, whats[value > 0]) for value, whats in values if abs(value) >= 0.0005]
    if len(parts) > 1:
        parts.sort(key=lambda part: -abs(part[0]))
        yield ": " + ", ".join(f"{value:+.3f} {what}" for value, what in parts)


def _meanwhile(data: ReportData, row: Row, label: str | None) -> Iterator[str]:
    """That weights changed within the periods that are compared, those of a label or any."""
    begins = pl.Series([row["begins"]])
    first, end = (begins.dt.offset_by(shift(by, data.period))[0] for by in (-4, 1))
    changed = data.weights.filter(
        pl.col("valid_from").dt.replace_time_zone(None).is_between(first, end, closed="none")
    )
    names = set(changed["name"])
    if (weights_of(data, label) in names) if label else names:
        yield (
            f"; meanwhile {'its ' if label else ''}weights changed, so that scores before and "
            "after do not compare"
        )


def domain_moved(data: ReportData, scope: str) -> Iterator[Finding]:
    """The domains that moved by more than chance, and what hid it."""
    of_all = {row["begins"]: row for row in data.comparable(ALL).iter_rows(named=True)}
    of_all = of_all if scope == ALL and len(data.labels) > 1 else {}
    for row in chain(*(_recent(data, label) for label in labels_of(data, scope))):
        if row["p_value"] > _CHANCE:
            continue
        hidden = of_all.get(row["begins"])
        yield Finding(
            "domain_moved",
            begin(
                f"{_time(data, row)} ",
                Untrusted(row["domain"]),
                f" scored {row['mean']:.3f}, {row['change']:+.3f} "
                f"{interval(row['low'], row['high'])} against its four {data.period}s before: more "
                "than chance",
                *_meanwhile(data, row, row["domain"]),
                *(_hidden(hidden) if hidden else ()),
                ".",
            ),
            _asked(data, row, hidden),
            only(row, *_CHANGE) | (_numbers_of_all(hidden) if hidden else {}),
            row["traces"],
            abs(row["change"]),
        )


def _hidden(row: Row) -> Iterator[str]:
    yield f". The mean of all domains changed by {row['change']:+.3f}"
    if row["mix"] is not None:
        yield from _reasons(row)


def _numbers_of_all(row: Row) -> dict[str, float | None]:
    return {"change_of_all": row["change"], **{part: row[part] for part in _PARTS}}


def _asked(data: ReportData, row: Row, hidden: Row | None) -> str:
    also = _OF_ALL.format(data.period) if hidden else ""
    of_period = f"FROM changes_by('task_domain', '{data.period}'){also}"
    return f"{of_period} WHERE begins = '{row['begins']}' AND adjusted_p_value < 0.05"
