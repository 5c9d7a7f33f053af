"""The findings of the report: those about the scores, and here those about the last run."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import polars as pl

from kp_batch.report.comparability import incomparable, no_trend, of_weights, settings_changed
from kp_batch.report.report_data import LABEL, ReportData
from kp_batch.report.score_findings import among_domains, of_scores
from kp_batch.report.sentences import Finding, Untrusted, tell
from kp_batch.report.time_findings import of_times
from kp_batch.runs.reasons import listed
from kp_batch.text import are, number, printable, shortened

# Customary limits of the population stability index. From it we subtract what chance alone adds,
# which over ten bins is 9 (1/a + 1/b) for a and b traces: a good estimate from `_ENOUGH` traces on.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25
_ENOUGH = 200
_TOLD = 3  # at most, of the domains that shifted
_NAMED = 5  # at most, of the domains that came or went


def findings(data: ReportData) -> list[Finding]:
    """Find everything that is worth a sentence, warnings first."""
    found = [*of_weights(data), *of_scores(data), *of_times(data), *_of_runs(data)]
    return sorted(found, key=lambda finding: not finding.is_warning)


def _of_runs(data: ReportData) -> Iterator[Finding]:
    """What went wrong, what changed since the previous run, and what was rejected."""
    for notice in (
        _failure,
        _audits,
        _comparability,
        _settings,
        _drift,
        _turnover,
        _rejects,
        _unreadable,
    ):
        yield from notice(data)


def _failure(data: ReportData) -> Iterator[Finding]:
    if data.failed:
        reason = Untrusted(printable(data.failed.reason or "no reason was noted"))
        before = " The scores are those of the last run that succeeded." if data.run else ""
        yield tell(
            f"The last run, {data.failed.run_id}, failed: ",
            reason,
            f".{before}",
            is_warning=True,
        )


def _audits(data: ReportData) -> Iterator[Finding]:
    last = data.failed or data.run
    if last and last.audits:
        found = [each for each in last.audits if each.rows]
        named = (
            (", ", Untrusted(each.name), f" {each.state} ({number(each.rows, 'row')})")
            for each in found
        )
        yield tell(
            f"Audits of the last run: {len(last.audits) - len(found):,} of {len(last.audits):,} "
            "pass",
            *chain(*named),
            ".",
            is_warning=any(not each.allowed for each in found),
        )


def _comparability(data: ReportData) -> Iterator[Finding]:
    if differing := incomparable(data):
        yield tell(
            f"The scores of the last run do not compare with those of the previous run: they were "
            f"computed with {listed(differing)}.",
            is_warning=True,
        )


def _settings(data: ReportData) -> Iterator[Finding]:
    if changed := settings_changed(data):
        yield tell(
            "Settings changed since the previous run: ", Untrusted(printable(listed(changed))), "."
        )


def _drift(data: ReportData) -> Iterator[Finding]:
    overall = data.drift.filter(pl.col("domain").is_null())
    if overall.is_empty():
        return
    row = overall.row(0, named=True)
    more, reason = row["traces_b"] - row["traces_a"], no_trend(data)
    yield tell(
        f"Since the previous run: {more:+,} {'trace' if abs(more) == 1 else 'traces'}; mean score "
        f"{row['mean_shift']:+.4f}, median {row['p50_shift']:+.4f}"
        f"{f', but this is no trend, since {reason}' if reason else ''}."
    )
    yield from _shifts(data)


def _shifts(data: ReportData) -> Iterator[Finding]:
    chance = 9 * (1 / pl.col("traces_a") + 1 / pl.col("traces_b"))
    known = data.drift.drop_nulls("domain").with_columns(shift=pl.col("stability_index") - chance)
    enough = known.filter(pl.min_horizontal("traces_a", "traces_b") >= _ENOUGH)
    shifted = enough.filter(pl.col("shift") >= _MODERATE_SHIFT).sort("shift", descending=True)
    if shifted.is_empty():
        return
    among = among_domains(data, len(enough), _ENOUGH, " in both runs")
    more = f", and {len(shifted) - _TOLD} more" if len(shifted) > _TOLD else ""
    yield tell(
        f"Of {among}, these shifted: " if among else "Domains whose scores shifted: ",
        *[*chain(*map(_shift, shifted.head(_TOLD).iter_rows(named=True)))][1:],
        f"{more}.",
        is_warning=shifted["shift"][0] >= _LARGE_SHIFT and not no_trend(data),
    )


def _shift(row: Mapping[str, Any]) -> Iterator[str]:
    yield ", "
    yield Untrusted(row["domain"])
    how = "greatly" if row["shift"] >= _LARGE_SHIFT else "moderately"
    yield f" {how} (population stability index {row['stability_index']:.2f})"


def _turnover(data: ReportData) -> Iterator[Finding]:
    for is_new, what in ((True, "New"), (False, "Gone")):
        names = data.turnover.filter(is_new=is_new)["task_domain"]
        if len(names):
            labels = [Untrusted(shortened(name, LABEL)) for name in names[:_NAMED]]
            named = [part for label in labels for part in (", ", label)]
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            yield tell(f"{what} since the previous run: ", *named[1:], f"{more}.")


def _rejects(data: ReportData) -> Iterator[Finding]:
    if data.run and data.rejects.is_empty():
        yield tell("No row was rejected, and no file is unreadable.")
    if not data.rejects.is_empty():
        codes = data.rejects.group_by("code").agg(pl.col("rejected").sum())
        named = codes.sort("rejected", "code", descending=[True, False]).iter_rows()
        listed = ", ".join(f"{code} {rejected:,}" for code, rejected in named)
        yield tell(f"Rejected rows and unreadable files, by reason: {listed}.")


def _unreadable(data: ReportData) -> Iterator[Finding]:
    paths = data.run.counts.unreadable_files if data.run and data.run.counts else []
    if paths:
        such = ", such as" if len(paths) > 1 else ":"
        counted = f"{number(len(paths), 'file')} {are(len(paths))} unreadable{such} "
        yield tell(counted, Untrusted(printable(paths[0])), ".", is_warning=True)
