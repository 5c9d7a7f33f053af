"""What a person should notice of the last run: what failed, what changed, what was refused."""

import json
from collections.abc import Iterator

import polars as pl

from kp_batch.report.report_data import LABEL, Figures
from kp_batch.report.sentences import Finding, Name, number, tell
from kp_batch.run_record import changed_settings, differences
from kp_batch.text import printable, shortened

# Of the population stability index, as the field reads it; what chance alone gives it is taken off:
# over ten bins 9 (1/a + 1/b), which holds from about so many traces on.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25
_ENOUGH = 200
_NAMED = 5  # of the domains that came or went


def of_runs(figures: Figures) -> Iterator[Finding]:
    """What went wrong, what changed since the run before, and what was refused."""
    for notice in (_failure, _otherwise, _settings, _drift, _turnover, _rejects, _unreadable):
        yield from notice(figures)


def _failure(figures: Figures) -> Iterator[Finding]:
    if figures.failed:
        reason = Name(printable(figures.failed["reason"] or "no reason was noted"))
        before = " The scores are those of the last run that succeeded." if figures.run else ""
        yield tell(
            f"The last run, {figures.failed['run_id']}, failed: ",
            reason,
            f".{before}",
            is_warning=True,
        )


def _otherwise(figures: Figures) -> Iterator[Finding]:
    if differing := _incomparable(figures):
        yield tell(
            f"The scores of the last run do not compare with those of the previous run: they were "
            f"computed with {'; '.join(differing)}.",
            is_warning=True,
        )


def _settings(figures: Figures) -> Iterator[Finding]:
    if changed := _changed_settings(figures):
        told = Name(printable("; ".join(changed)))
        yield tell("Settings changed since the previous run: ", told, ".")


def _drift(figures: Figures) -> Iterator[Finding]:
    of_all = figures.drift.filter(pl.col("domain").is_null())
    if of_all.is_empty():
        return
    row = of_all.row(0, named=True)
    yield tell(
        f"Since the previous run: {row['traces_b'] - row['traces_a']:+,} traces; mean score "
        f"{row['mean_shift']:+.4f}, median {row['p50_shift']:+.4f}."
    )
    is_surprising = not (_incomparable(figures) or _changed_settings(figures))
    chance = 9 * (1 / pl.col("traces_a") + 1 / pl.col("traces_b"))
    known = figures.drift.drop_nulls("domain").with_columns(
        shift=pl.col("stability_index") - chance
    )
    shifted = known.filter(
        pl.min_horizontal("traces_a", "traces_b") >= _ENOUGH, pl.col("shift") >= _MODERATE_SHIFT
    )
    for each in shifted.sort("shift", descending=True).head(3).iter_rows(named=True):
        is_large = each["shift"] >= _LARGE_SHIFT
        yield tell(
            "The scores of ",
            Name(each["domain"]),
            f" shifted {'greatly' if is_large else 'moderately'} (population stability index "
            f"{each['stability_index']:.2f}).",
            is_warning=is_large and is_surprising,
        )


def _turnover(figures: Figures) -> Iterator[Finding]:
    for is_new, what in ((True, "New"), (False, "Gone")):
        names = figures.turnover.filter(is_new=is_new)["task_domain"]
        if len(names):
            labels = [Name(shortened(name, LABEL)) for name in names[:_NAMED]]
            named = [part for label in labels for part in (", ", label)]
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            yield tell(f"{what} since the previous run: ", *named[1:], f"{more}.")


def _rejects(figures: Figures) -> Iterator[Finding]:
    if figures.run and figures.rejects.is_empty():
        yield tell("No row and no file was refused.")
    if not figures.rejects.is_empty():
        codes = figures.rejects.group_by("code").agg(pl.col("refused").sum())
        named = codes.sort("refused", "code", descending=[True, False]).iter_rows()
        listed = ", ".join(f"{code} {refused:,}" for code, refused in named)
        yield tell(f"Refused rows and files, by reason: {listed}.")


def _unreadable(figures: Figures) -> Iterator[Finding]:
    paths = json.loads(figures.run.get("counts", "{}")).get("unreadable_files")
    if paths:
        such = ", such as" if len(paths) > 1 else ":"
        told = f"{number(len(paths), 'file')} could not be read{such} "
        yield tell(told, Name(printable(paths[0])), ".", is_warning=True)


def _incomparable(figures: Figures) -> list[str]:
    return differences(figures.before, figures.run) if figures.before else []


def _changed_settings(figures: Figures) -> list[str]:
    both = figures.drift["domain"]
    return changed_settings(figures.before, figures.run, both) if figures.before else []
