"""What the report says about the runs, the archive, and the reliability of its numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain
from typing import Any

import polars as pl

from kp_batch.report.data import ReportData
from kp_batch.report.finding import Untrusted
from kp_batch.report.labels import ALL, LABEL
from kp_batch.text import be, count_of, printable, shortened
from kp_batch.warehouse.author import signed
from kp_batch.warehouse.reasons import join_reasons

_FAR = 0.01  # the smallest mean difference from recorded scores that is a warning
_FINE = 0.0001  # of scores: finer differences are not shown in digits
_NONE = 1e-12  # and smaller ones are rounding errors
_LONG = 7  # days without a trace
# Customary limits of the population stability index. We subtract what chance alone adds: over ten
# bins, 9 (1/a + 1/b) for a and b traces. This is a good estimate from so many traces on; with fewer
# there is no index.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25
_MIN_OF_BOTH = 200
_LISTED = 3  # at most so many domains that shifted
_NAMED = 5  # at most so many domains that entered or exited, or dates of weights


@dataclass(frozen=True)
class Notice:
    """One sentence, in parts."""

    code: str  # the kind of sentence
    parts: tuple[str, ...]  # text from the archive is `Untrusted`
    is_warning: bool = False

    @property
    def sentence(self) -> str:
        """All its parts, unescaped."""
        return "".join(self.parts)


def notices(data: ReportData) -> list[Notice]:
    """Return the sentences about the data, warnings first."""
    kinds = (
        *(_failure, _comparability, _unreadable, _implausible, _emptiness),
        *(_drift, _shifts, _entered_and_exited, _settings, _audits, _rejects),
        *(_recorded, _weights, _gap, _folded),
    )
    sentences = (sentence for kind in kinds for sentence in kind(data))
    return sorted(sentences, key=lambda notice: not notice.is_warning)


def _notice(code: str, *parts: str, is_warning: bool = False) -> Notice:
    return Notice(code, parts, is_warning)


def _days_text(first: date, last: date) -> str:
    """Write a span of days, or its only day."""
    return f"on {first}" if first == last else f"from {first} to {last}"


def _listed(items: Iterable[Sequence[str]], more: int, before: str = ", and") -> Iterator[str]:
    """Yield the end of a sentence: items, each in parts, and how many more there are."""
    for place, item in enumerate(items):
        yield from (", ", *item) if place else item
    yield f"{before} {more:,} more." if more > 0 else "."


def _emptiness(data: ReportData) -> Iterator[Notice]:
    if not data.scopes:
        yield _notice("no_traces", "No trace is scored yet.")


def _failure(data: ReportData) -> Iterator[Notice]:
    if data.failed:
        reason = Untrusted(printable(data.failed.reason or "no reason was noted"))
        before = " The scores are those of the last successful run." if data.run else ""
        yield _notice(
            "failed_run",
            f"The last run, {data.failed.run_id} ",
            Untrusted(signed(data.failed.user, data.failed.note)),
            ", failed: ",
            reason,
            f".{before}",
            is_warning=True,
        )


def _audits(data: ReportData) -> Iterator[Notice]:
    last = data.failed or data.run
    if last and last.audits:
        failing = [audit for audit in last.audits if audit.rows]
        names = (
            (", ", Untrusted(audit.name), f" {audit.state} ({count_of(audit.rows, 'row')})")
            for audit in failing
        )
        yield _notice(
            "audits",
            f"Audits of the last run: {len(last.audits) - len(failing):,} of {len(last.audits):,} "
            "pass",
            *chain(*names),
            ".",
            is_warning=any(not audit.allowed for audit in failing),
        )


def _comparability(data: ReportData) -> Iterator[Notice]:
    if data.incomparable:
        yield _notice(
            "incomparable",
            "The scores of the last two runs are not comparable, because this changed: "
            f"{join_reasons(data.incomparable)}.",
            is_warning=True,
        )


def _settings(data: ReportData) -> Iterator[Notice]:
    if data.changed_settings:
        yield _notice(
            "settings",
            "Settings changed since the previous run: ",
            Untrusted(printable(join_reasons(data.changed_settings))),
            ".",
        )


def _drift(data: ReportData) -> Iterator[Notice]:
    for row in data.of("drift", ALL).iter_rows(named=True):
        more, reason = row["traces"] - row["traces_before"], data.no_trend
        traces = (
            f"{more:+,} {'trace' if abs(more) == 1 else 'traces'}"
            if more
            else "the same number of traces"
        )
        yield _notice(
            "drift",
            f"Since the previous run: {traces}; mean score {_change(row['mean_shift'])}, median "
            f"{_change(row['p50_shift'])}"
            f"{f', but this is not a trend, because {reason}' if reason else ''}.",
        )


def _change(of_scores: float) -> str:
    if abs(of_scores) < _NONE:
        return "the same"
    if abs(of_scores) < _FINE:
        return f"changed by less than {_FINE:g}"
    return f"{of_scores:+.4f}"


def _shifts(data: ReportData) -> Iterator[Notice]:
    chance = 9 * (1 / pl.col("traces_before") + 1 / pl.col("traces"))
    known = data.drift.filter(pl.col("domain") != ALL)
    enough = known.with_columns(shift=pl.col("stability_index") - chance).drop_nulls("shift")
    shifted = enough.filter(pl.col("shift") >= _MODERATE_SHIFT).sort("shift", descending=True)
    if shifted.is_empty():
        return
    among = _among_domains(data, len(enough))
    yield _notice(
        "shifted",
        f"Of {among}, these shifted: " if among else "Domains whose scores shifted: ",
        *_listed(map(_shift, shifted.rows(named=True)[:_LISTED]), len(shifted) - _LISTED),
        is_warning=shifted["shift"][0] >= _LARGE_SHIFT and not data.no_trend,
    )


def _shift(row: Mapping[str, Any]) -> tuple[Untrusted, str]:
    how = "greatly" if row["shift"] >= _LARGE_SHIFT else "moderately"
    index = f"population stability index {row['stability_index']:.2f}"
    return Untrusted(row["domain"]), f" {how} ({index})"


def _among_domains(data: ReportData, known: int) -> str:
    """Name the domains with enough traces in both runs; empty if these are all.

    Domains without their own label are ignored, because they have the fewest traces.
    """
    own = data.domains.filter(pl.col("domain").is_in([*data.names]))
    if known == len(own) and not data.others:
        return ""
    are_all = not data.others or (own["traces"] < _MIN_OF_BOTH).any()
    what = "domain" if are_all else "largest domain"
    count = f"only {what}" if known == 1 else count_of(known, what)
    return f"the {count} with {_MIN_OF_BOTH} traces or more in both runs"


def _entered_and_exited(data: ReportData) -> Iterator[Notice]:
    for is_new, code, what in (
        (True, "new_domains", "New domains"),
        (False, "gone_domains", "Domains that disappeared"),
    ):
        names = data.entered_and_exited.filter(is_new=is_new)["task_domain"]
        if len(names):
            labels = ([Untrusted(shortened(name, LABEL))] for name in names[:_NAMED])
            listed = _listed(labels, len(names) - _NAMED, " and")
            yield _notice(code, f"{what} since the previous run: ", *listed)


def _rejects(data: ReportData) -> Iterator[Notice]:
    if not data.rejects.is_empty():
        counts = ", ".join(f"{code} {rejected:,}" for code, rejected in data.rejects.iter_rows())
        yield _notice(
            "rejects",
            "Rows without a score and unreadable files, by reason (FROM rejects_by_code): ",
            f"{counts}.",
        )
    elif data.run and not _unreadable_files(data):
        yield _notice("none_rejected", "No row was rejected, and no file is unreadable.")


def _unreadable_files(data: ReportData) -> Sequence[str]:
    return data.run.counts.unreadable_files if data.run and data.run.counts else []


def _unreadable(data: ReportData) -> Iterator[Notice]:
    if paths := _unreadable_files(data):
        such = ", such as" if len(paths) > 1 else ":"
        count = f"{count_of(len(paths), 'file')} {be(len(paths))} unreadable{such} "
        yield _notice(
            "unreadable_files", count, Untrusted(printable(paths[0])), ".", is_warning=True
        )


def _implausible(data: ReportData) -> Iterator[Notice]:
    rows = data.implausible_dates.rows()
    others = "other traces"
    if any(kind == "future" for kind, *_ in rows):
        others = "traces with past dates"
    ended = f": the last run ended on {data.run.finished_at:%Y-%m-%d}" if data.run else ""
    for kind, traces, first, last in sorted(rows, key=lambda row: row[0] != "future"):
        dated = f"{count_of(traces, 'trace')} {be(traces)} dated"
        when = _days_text(first, last)
        yield _notice(
            "implausible_dates",
            f"{dated} in the future, {when}{ended}."
            if kind == "future"
            else f"{dated} at least ten years {kind} nearly all {others}, {when}.",
            is_warning=True,
        )


def _gap(data: ReportData) -> Iterator[Notice]:
    """Yield the longest time without a trace, within the days with nearly all traces."""
    for first, last, days in data.gap.iter_rows():
        if days >= _LONG:
            shown = data.spans[ALL]
            yield _notice(
                "gap",
                f"Between {shown.first_day} and {shown.last_day}, the longest time without traces "
                f"is {count_of(days, 'day')}, from {first} to {last}.",
            )


def _weights(data: ReportData) -> Iterator[Notice]:
    """Yield the times from which a domain's weights differ from its earlier ones."""
    rows = data.weights.rows()
    if rows:
        yield _notice(
            "weights",
            "Weights changed at these times, so scores before and after are not comparable: ",
            *_listed((_dated(*row) for row in rows[:_NAMED]), len(rows) - _NAMED),
        )


def _dated(name: str, begin: datetime) -> tuple[Untrusted, str]:
    is_day = begin.timetz().replace(tzinfo=None) == time()
    day = begin.date().isoformat() if is_day else begin.isoformat()
    return Untrusted(shortened(name, LABEL)), f" from {day}"


def _recorded(data: ReportData) -> Iterator[Notice]:
    [row] = data.recorded.rows(named=True)
    if row["placeholders"]:
        yield _notice(
            "placeholders",
            f"{count_of(row['placeholders'], 'trace')} {be(row['placeholders'])} recorded with a "
            "score of 0, the live engine's placeholder for a missing score.",
        )
    if row["traces"]:
        yield _difference(row["traces"], row["mean_absolute_difference"])


_BY_DIFFERENCE = ("FROM recorded_score_differences", "FROM largest_score_differences")


def _difference(traces: int, difference: float) -> Notice:
    by = f"less than {_FINE:g}" if difference < _FINE else f"{difference:.4f}"
    is_far = difference >= _FAR
    why = "; the live engine may have had another clock, cache, model or profile" if is_far else ""
    return _notice(
        "recorded",
        f"On average, the scores of {count_of(traces, 'trace')} differ by {by} from those that "
        f"live engines recorded{why} (",
        _BY_DIFFERENCE[is_far],
        ").",
        is_warning=is_far,
    )


def _folded(data: ReportData) -> Iterator[Notice]:
    if data.others:
        domains = data.totals["domains"]
        folded = domains - len(data.names)
        yield _notice(
            "folded",
            f"The {folded:,} smallest of {domains:,} domains are shown together, as ",
            Untrusted(data.others),
            " (FROM means_by('task_domain') lists each).",
        )
