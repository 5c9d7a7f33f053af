"""The sentences about the published scores by domain, whichever run computed them."""

from collections.abc import Iterator

import polars as pl

from kp_batch.report.report_data import ReportData
from kp_batch.report.sentences import ENOUGH, Finding, Untrusted, days, share, tell
from kp_batch.text import number

_NOTABLE = 0.01  # the least difference between two means that is worth a sentence


def of_scores(data: ReportData) -> Iterator[Finding]:
    """How the scores are distributed, by domain, and what moved them."""
    for notice in (_extent, _between_domains, _worth_sharing, _copies, _override, _recorded):
        yield from notice(data)


def among_domains(data: ReportData, known: int, floor: int, where: str = "") -> str:
    """Name the domains with enough traces, which a sentence is about; empty if it is about all.

    Those without a label of their own are not looked at. They have the fewest traces.
    """
    own = data.own_domains
    if known == len(own) and not data.others:
        return ""
    are_all = not data.others or (own["traces"] < floor).any()
    what = "domain" if are_all else "largest domain"
    counted = f"only {what}" if known == 1 else number(known, what)
    return f"the {counted} with {floor} traces or more{where}"


def _extent(data: ReportData) -> Iterator[Finding]:
    overall = data.domains.filter(pl.col("domain").is_null())
    if overall.is_empty():
        yield tell("No trace is scored yet.")
        return
    row = overall.row(0, named=True)
    domains = number(data.totals["domains"], "domain")
    when = days(data.totals["first_day"], data.totals["last_day"])
    sharing = share(row["worth_sharing"], row["traces"]) if row["worth_sharing"] else "none"
    reach = "reaches" if row["worth_sharing"] == 1 else "reach"
    yield tell(
        f"{number(row['traces'], 'trace')} in {domains}, {when}. The mean score is "
        f"{row['mean']:.3f}, the median {row['p50']:.3f}; {sharing} of them {reach} the threshold "
        f"of {data.totals['threshold']:g}."
    )


def _between_domains(data: ReportData) -> Iterator[Finding]:
    known = _well_known(data).sort("mean")
    if len(known) > 1 and known["mean"][-1] - known["mean"][0] >= _NOTABLE:
        low, high = known.row(0, named=True), known.row(-1, named=True)
        among = among_domains(data, len(known), ENOUGH)
        yield tell(
            f"Of {among}, " if among else "",
            Untrusted(high["domain"]),
            f" scores highest (mean {high['mean']:.3f}), ",
            Untrusted(low["domain"]),
            f" lowest ({low['mean']:.3f}).",
        )


def _worth_sharing(data: ReportData) -> Iterator[Finding]:
    shared = pl.col("worth_sharing") / pl.col("traces")
    known = _well_known(data).with_columns(shared=shared).sort("shared")
    if len(known) > 1 and known["shared"][-1] > known["shared"][-2]:
        row = known.row(-1, named=True)
        among = among_domains(data, len(known), ENOUGH)
        yield tell(
            f"Of {among}, worth sharing most often: " if among else "Worth sharing most often: ",
            Untrusted(row["domain"]),
            f", {share(row['worth_sharing'], row['traces'])} of its traces.",
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
    known = _well_known(data)
    common = data.overrides.join(known.select("domain"), on="domain")
    notable = common.filter(pl.col("effect_on_mean").abs() >= _NOTABLE)
    if not notable.is_empty():
        row = notable.sort(pl.col("effect_on_mean").abs()).row(-1, named=True)
        way = "lowers" if row["effect_on_mean"] < 0 else "raises"
        among = among_domains(data, len(known), ENOUGH)
        yield tell(
            f"In {among}, the" if among else "The",
            f" override with the largest effect, {row['override']}, applies to "
            f"{row['share']:.0%} of ",
            Untrusted(row["domain"]),
            f" and {way} its mean score by {abs(row['effect_on_mean']):.3f}.",
        )


def _recorded(data: ReportData) -> Iterator[Finding]:
    overall = data.recorded.filter(pl.col("domain").is_null())
    if overall.is_empty():
        return
    row = overall.row(0, named=True)
    if row["placeholders"]:
        carry = "carries" if row["placeholders"] == 1 else "carry"
        yield tell(
            f"{number(row['placeholders'], 'trace')} {carry} a recorded score of 0, the live "
            "engine's placeholder for none."
        )
    if row["traces"]:
        far = row["mean_absolute_difference"] >= _NOTABLE
        other = (
            "; the live engine may have had another clock, cache, model or profile "
            "(FROM furthest_from_recorded)"
        )
        yield tell(
            f"From the scores that live engines gave {number(row['traces'], 'trace')}, ours differ "
            f"by {row['mean_absolute_difference']:.4f} on average{other if far else ''}.",
            is_warning=far,
        )


def _well_known(data: ReportData) -> pl.DataFrame:
    """The domains with enough traces for a comparison."""
    return data.own_domains.filter(pl.col("traces") >= ENOUGH)
