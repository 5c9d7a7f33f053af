"""What a person should notice of the last run: what failed, what changed, what was refused."""

import json
from collections.abc import Iterator

import polars as pl

from kp_batch.plain_text import printable
from kp_batch.provenance import differences
from kp_batch.report.figures import Figures
from kp_batch.report.sentences import ENOUGH, Finding, Name, tell

# Of the population stability index, as the field reads it.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25


def of_runs(figures: Figures) -> Iterator[Finding]:
    """What went wrong, what changed since the run before, and what was refused."""
    for notice in (_failure, _otherwise, _drift, _new_domains, _rejects, _unreadable):
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
            f"The scores of the last run do not compare with those of the run before: they were "
            f"computed with {'; '.join(differing)}.",
            is_warning=True,
        )


def _drift(figures: Figures) -> Iterator[Finding]:
    of_all = figures.drift.filter(pl.col("domain").is_null())
    if of_all.is_empty():
        return
    row = of_all.row(0, named=True)
    more = row["traces_b"] - row["traces_a"]
    yield tell(
        f"Since the run before: {more:+,} traces, the mean score moved by "
        f"{row['mean_shift']:+.4f}, the median by {row['p50_shift']:+.4f}."
    )
    shifted = figures.drift.drop_nulls("domain").filter(
        pl.min_horizontal("traces_a", "traces_b") >= ENOUGH,
        pl.col("stability_index") >= _MODERATE_SHIFT,
    )
    for each in shifted.sort("stability_index", descending=True).head(3).iter_rows(named=True):
        index = each["stability_index"]
        yield tell(
            "The scores of ",
            Name(each["domain"]),
            f" shifted {'greatly' if index >= _LARGE_SHIFT else 'moderately'} (PSI {index:.2f}).",
            is_warning=index >= _LARGE_SHIFT and not _incomparable(figures),
        )


def _new_domains(figures: Figures) -> Iterator[Finding]:
    known = set(figures.drift["domain"])
    new = [label for label in figures.labels if label not in {*known, figures.others}]
    if known and new:
        named = [part for label in new for part in (", ", Name(label))]
        yield tell("New since the run before: ", *named[1:], ".")


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
        told = f"Files that could not be read: {len(paths):,}, such as "
        yield tell(told, Name(printable(paths[0])), ".", is_warning=True)


def _incomparable(figures: Figures) -> list[str]:
    return differences(figures.before, figures.run) if figures.before else []
