"""The sentences about the published scores, whichever run computed them."""

from collections.abc import Iterator

import polars as pl

from kp_batch.report.report_data import ReportData
from kp_batch.report.sentences import ENOUGH, Finding, Untrusted, number, share, tell

_NOTABLE = 0.01  # the least difference between two means that is worth a sentence
_LONG = 7  # days without a trace


def of_scores(data: ReportData) -> Iterator[Finding]:
    """How the scores are distributed, by domain and over time, and what moved them."""
    for notice in (_extent, _between_domains, _worth_sharing, _copies, _override, _lately, _gap):
        yield from notice(data)


def _extent(data: ReportData) -> Iterator[Finding]:
    overall = data.domains.filter(pl.col("domain").is_null())
    if overall.is_empty():
        yield tell("No trace is scored yet.")
        return
    row = overall.row(0, named=True)
    domains = number(data.totals["domains"], "domain")
    first, last = data.totals["first_day"], data.totals["last_day"]
    days = f"on {first}" if first == last else f"from {first} to {last}"
    sharing = share(row["worth_sharing"], row["traces"]) if row["worth_sharing"] else "none"
    yield tell(
        f"{number(row['traces'], 'trace')} in {domains}, {days}. The mean score is "
        f"{row['mean']:.3f}, the median {row['p50']:.3f}; {sharing} of them reach the threshold of "
        f"{data.totals['threshold']:g}."
    )


def _between_domains(data: ReportData) -> Iterator[Finding]:
    known = _well_known(data).sort("mean")
    if len(known) > 1 and known["mean"][-1] - known["mean"][0] >= _NOTABLE:
        low, high = known.row(0, named=True), known.row(-1, named=True)
        yield tell(
            Untrusted(high["domain"]),
            f" scores highest (mean {high['mean']:.3f}), ",
            Untrusted(low["domain"]),
            f" lowest ({low['mean']:.3f}).",
        )


def _worth_sharing(data: ReportData) -> Iterator[Finding]:
    shares = _well_known(data).sort(pl.col("worth_sharing") / pl.col("traces"))
    if len(shares) > 1 and shares["worth_sharing"].sum():
        row = shares.row(-1, named=True)
        shared = share(row["worth_sharing"], row["traces"])
        yield tell(
            "Worth sharing most often: ", Untrusted(row["domain"]), f", {shared} of its traces."
        )


def _copies(data: ReportData) -> Iterator[Finding]:
    row = data.totals
    if row["alike"]:
        most = f"; the most repeated text occurs {row['most_repeated']:,} times"
        yield tell(
            f"{row['alike']:.1%} of the traces nearly repeat one that they met (similarity of 0.95 "
            f"and more), {row['same']:.1%} repeat it fully{most if row['most_repeated'] else ''}."
        )


def _override(data: ReportData) -> Iterator[Finding]:
    common = data.overrides.join(_well_known(data).select("domain"), on="domain")
    if not common.is_empty():
        row = common.sort(pl.col("effect_on_mean").abs()).row(-1, named=True)
        way = "lowers" if row["effect_on_mean"] < 0 else "raises"
        yield tell(
            f"The override with the largest effect, {row['override']}, applies to "
            f"{row['share']:.0%} of ",
            Untrusted(row["domain"]),
            f" and {way} its mean score by {abs(row['effect_on_mean']):.3f}.",
        )


def _lately(data: ReportData) -> Iterator[Finding]:
    """Compare the last step of time that is over and has enough traces with all steps before it."""
    steps = data.over_time.filter("is_over").group_by("start")
    sums = steps.agg(pl.col("traces", "score", "novelty").sum())
    full = sums.filter(pl.col("traces") >= ENOUGH).sort("start")
    if len(full) > 1:
        last = full.row(-1, named=True)
        before = sums.filter(pl.col("start") < last["start"]).sum().row(0, named=True)
        on = "On" if data.grain == "day" else f"In the {data.grain} from"
        now, then = (
            [each[name] / each["traces"] for name in ("score", "novelty")]
            for each in (last, before)
        )
        yield tell(
            f"{on} {last['start']} the mean score was {now[0]:.3f} "
            f"(before: {then[0]:.3f}) and the mean novelty {now[1]:.3f} ({then[1]:.3f})."
        )


def _gap(data: ReportData) -> Iterator[Finding]:
    if not data.gaps.is_empty():
        row = data.gaps.row(0, named=True)
        if row["days"] >= _LONG:
            yield tell(
                f"The longest time without a trace is {row['days']:,} days, from "
                f"{row['first_day']} to {row['last_day']}."
            )


def _well_known(data: ReportData) -> pl.DataFrame:
    """The domains with enough traces for a comparison."""
    known = pl.col("domain").ne_missing(data.others) & pl.col("domain").is_not_null()
    return data.domains.filter(known, pl.col("traces") >= ENOUGH)
