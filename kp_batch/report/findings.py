"""What a person should notice, in sentences."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from kp_batch.plain_text import printable
from kp_batch.report.figures import Figures

_ENOUGH = 30  # traces of which a mean says something
_LARGE_SHIFT = (
    0.25  # of the population stability index, as the field reads it; 0.1 is a moderate one
)
_MODERATE_SHIFT = 0.1


class Name(str):
    """A part of a sentence that comes from the archive: each page escapes it in its own way."""

    __slots__ = ()


@dataclass(frozen=True)
class Finding:
    """One sentence, in parts."""

    parts: tuple[str, ...]  # what comes from the archive is a `Name`
    is_warning: bool = False


def findings(figures: Figures) -> list[Finding]:
    """All that is worth a sentence, what is wrong first."""
    told = (
        _failure,
        _extent,
        _between_domains,
        _worth_sharing,
        _copies,
        _override,
        _lately,
        _drift,
        _rejects,
        _gaps,
    )
    return [finding for tell in told for finding in tell(figures)]


def _tell(*parts: str, is_warning: bool = False) -> Finding:
    return Finding(parts, is_warning)


def _failure(figures: Figures) -> Iterator[Finding]:
    if figures.failed:
        reason = Name(printable(figures.failed["reason"] or "no reason was noted"))
        before = " The scores are those of the last run that succeeded." if figures.run else ""
        yield _tell(
            f"The last run, {figures.failed['run_id']}, failed: ",
            reason,
            f".{before}",
            is_warning=True,
        )


def _extent(figures: Figures) -> Iterator[Finding]:
    of_all = figures.domains.filter(pl.col("domain").is_null())
    if of_all.is_empty():
        yield _tell("No trace is scored yet.")
        return
    row = of_all.row(0, named=True)
    number = figures.whole["domains"]
    domains = f"{number:,} domains" if number > 1 else "one domain"
    yield _tell(
        f"{row['traces']:,} traces in {domains}, from {figures.whole['first_day']} to "
        f"{figures.whole['last_day']}. The mean score is {row['mean']:.3f}, the median "
        f"{row['p50']:.3f}; {_share(row['worth_sharing'], row['traces'])} reach the threshold "
        f"of {figures.whole['threshold']:g}."
    )


def _between_domains(figures: Figures) -> Iterator[Finding]:
    known = _well_known(figures).sort("mean")
    if len(known) > 1:
        low, high = known.row(0, named=True), known.row(-1, named=True)
        yield _tell(
            Name(high["domain"]),
            f" scores highest (mean {high['mean']:.3f}), ",
            Name(low["domain"]),
            f" lowest ({low['mean']:.3f}).",
        )


def _worth_sharing(figures: Figures) -> Iterator[Finding]:
    shares = _well_known(figures).sort(pl.col("worth_sharing") / pl.col("traces"))
    if len(shares) > 1 and shares["worth_sharing"].sum():
        row = shares.row(-1, named=True)
        told = _share(row["worth_sharing"], row["traces"])
        yield _tell("Worth sharing most often: ", Name(row["domain"]), f", {told} of its traces.")


def _copies(figures: Figures) -> Iterator[Finding]:
    row = figures.whole
    if row["same"] or row["nearly_same"]:
        yield _tell(
            f"{row['same']:.1%} of the traces are the same as one that they met, another "
            f"{row['nearly_same']:.1%} nearly so (similarity 0.95 and more)"
            + (
                f"; the text that came most often came {row['most_repeated']:,} times."
                if row["most_repeated"]
                else "."
            )
        )


def _override(figures: Figures) -> Iterator[Finding]:
    common = figures.overrides.join(_well_known(figures).select("domain"), on="domain")
    if not common.is_empty():
        moved = pl.col("mean_effect") * pl.col("traces")
        row = common.sort(moved.abs()).row(-1, named=True)
        way = "lowers" if row["effect_on_mean"] < 0 else "raises"
        yield _tell(
            f"The override that moves most, {row['override']}, applies to {row['share']:.0%} of ",
            Name(row["domain"]),
            f" and {way} its mean by {abs(row['effect_on_mean']):.3f}.",
        )


def _lately(figures: Figures) -> Iterator[Finding]:
    """The last step of time that has enough traces, against all before it."""
    sums = figures.over_time.group_by("start").agg(pl.col("traces", "score", "novelty").sum())
    full = sums.filter(pl.col("traces") >= _ENOUGH).sort("start")
    if len(full) > 1:
        last = full.row(-1, named=True)
        before = sums.filter(pl.col("start") < last["start"]).sum().row(0, named=True)
        now, then = (
            [each[name] / each["traces"] for name in ("score", "novelty")]
            for each in (last, before)
        )
        yield _tell(
            f"In the {figures.grain} from {last['start']} the mean score was {now[0]:.3f} "
            f"(before: {then[0]:.3f}) and the mean novelty {now[1]:.3f} ({then[1]:.3f})."
        )


def _drift(figures: Figures) -> Iterator[Finding]:
    of_all = figures.drift.filter(pl.col("domain").is_null())
    if of_all.is_empty():
        return
    row = of_all.row(0, named=True)
    more = row["traces_b"] - row["traces_a"]
    yield _tell(
        f"Since the run before: {more:+,} traces, the mean score moved by "
        f"{row['mean_shift']:+.4f}, the median by {row['p50_shift']:+.4f}."
    )
    enough = pl.min_horizontal("traces_a", "traces_b") >= _ENOUGH
    compared = figures.drift.filter(enough).drop_nulls("domain")
    for each in compared.sort("stability_index", descending=True).head(3).iter_rows(named=True):
        index = each["stability_index"]
        if index >= _MODERATE_SHIFT:
            size = "greatly" if index >= _LARGE_SHIFT else "moderately"
            yield _tell(
                "The scores of ",
                Name(each["domain"]),
                f" shifted {size} (PSI {index:.2f}).",
                is_warning=index >= _LARGE_SHIFT,
            )


def _rejects(figures: Figures) -> Iterator[Finding]:
    if figures.run and figures.rejects.is_empty():
        yield _tell("No row and no file was refused.")
    if not figures.rejects.is_empty():
        codes = figures.rejects.group_by("code").agg(pl.col("refused").sum())
        named = codes.sort("refused", "code", descending=[True, False]).iter_rows()
        listed = ", ".join(f"{code} {refused:,}" for code, refused in named)
        yield _tell(f"Refused rows and files, by reason: {listed}.")
    unreadable = json.loads(figures.run.get("counts", "{}")).get("unreadable_files", [])
    if unreadable:
        first = Name(printable(unreadable[0]))
        yield _tell(
            f"Files that could not be read: {len(unreadable):,}, such as ",
            first,
            ".",
            is_warning=True,
        )


def _gaps(figures: Figures) -> Iterator[Finding]:
    if not figures.gaps.is_empty():
        row = figures.gaps.row(0, named=True)
        number = len(figures.gaps)
        times = "One gap" if number == 1 else f"{number:,} gaps"
        yield _tell(
            f"{times} in time without any trace, the longest of {row['days']:,} days from "
            f"{row['first_day']} to {row['last_day']}."
        )


def _well_known(figures: Figures) -> pl.DataFrame:
    """The domains that have enough traces for a comparison."""
    return figures.domains.drop_nulls("domain").filter(pl.col("traces") >= _ENOUGH)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})"
