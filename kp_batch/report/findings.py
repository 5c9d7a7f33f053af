"""The findings of the report: those about the scores, and here those about the last run."""

from collections.abc import Iterator

import polars as pl

from kp_batch.reasons import setting_changes
from kp_batch.report.report_data import LABEL, ReportData
from kp_batch.report.score_findings import of_scores
from kp_batch.report.sentences import Finding, Untrusted, number, tell
from kp_batch.run_record import differences
from kp_batch.text import printable, shortened

# Customary limits of the population stability index. From it we subtract what chance alone adds,
# which over ten bins is 9 (1/a + 1/b) for a and b traces: a good estimate from `_ENOUGH` traces on.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25
_ENOUGH = 200
_NAMED = 5  # at most, of the domains that came or went


def findings(data: ReportData) -> list[Finding]:
    """Find everything that is worth a sentence, warnings first."""
    found = [*of_scores(data), *_of_runs(data)]
    return sorted(found, key=lambda finding: not finding.is_warning)


def _of_runs(data: ReportData) -> Iterator[Finding]:
    """What went wrong, what changed since the previous run, and what was refused."""
    for notice in (_failure, _comparability, _settings, _drift, _turnover, _rejects, _unreadable):
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


def _comparability(data: ReportData) -> Iterator[Finding]:
    if differing := _incomparable(data):
        yield tell(
            f"The scores of the last run do not compare with those of the previous run: they were "
            f"computed with {'; '.join(differing)}.",
            is_warning=True,
        )


def _settings(data: ReportData) -> Iterator[Finding]:
    if changed := _changed_settings(data):
        listed = Untrusted(printable("; ".join(changed)))
        yield tell("Settings changed since the previous run: ", listed, ".")


def _drift(data: ReportData) -> Iterator[Finding]:
    overall = data.drift.filter(pl.col("domain").is_null())
    if overall.is_empty():
        return
    row = overall.row(0, named=True)
    yield tell(
        f"Since the previous run: {row['traces_b'] - row['traces_a']:+,} traces; mean score "
        f"{row['mean_shift']:+.4f}, median {row['p50_shift']:+.4f}."
    )
    yield from _shifts(data)


def _shifts(data: ReportData) -> Iterator[Finding]:
    is_surprising = not (_incomparable(data) or _changed_settings(data))
    chance = 9 * (1 / pl.col("traces_a") + 1 / pl.col("traces_b"))
    known = data.drift.drop_nulls("domain").with_columns(shift=pl.col("stability_index") - chance)
    shifted = known.filter(
        pl.min_horizontal("traces_a", "traces_b") >= _ENOUGH, pl.col("shift") >= _MODERATE_SHIFT
    )
    for each in shifted.sort("shift", descending=True).head(3).iter_rows(named=True):
        is_large = each["shift"] >= _LARGE_SHIFT
        yield tell(
            "The scores of ",
            Untrusted(each["domain"]),
            f" shifted {'greatly' if is_large else 'moderately'} (population stability index "
            f"{each['stability_index']:.2f}).",
            is_warning=is_large and is_surprising,
        )


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
        yield tell("No row and no file was refused.")
    if not data.rejects.is_empty():
        codes = data.rejects.group_by("code").agg(pl.col("refused").sum())
        named = codes.sort("refused", "code", descending=[True, False]).iter_rows()
        listed = ", ".join(f"{code} {refused:,}" for code, refused in named)
        yield tell(f"Refused rows and files, by reason: {listed}.")


def _unreadable(data: ReportData) -> Iterator[Finding]:
    paths = data.run.counts.unreadable_files if data.run and data.run.counts else []
    if paths:
        such = ", such as" if len(paths) > 1 else ":"
        counted = f"{number(len(paths), 'file')} could not be read{such} "
        yield tell(counted, Untrusted(printable(paths[0])), ".", is_warning=True)


def _incomparable(data: ReportData) -> list[str]:
    return differences(data.before, data.run) if data.before and data.run else []


def _changed_settings(data: ReportData) -> list[str]:
    if not (data.before and data.run):
        return []
    return [each.words for each in setting_changes(data.before.settings, data.run.settings)]
