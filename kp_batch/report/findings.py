"""The findings of the report: sentences about the scores, their times and the last runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain
from typing import Any

import polars as pl

from kp_batch.report.data import LABEL, ReportData
from kp_batch.runs.author import signed
from kp_batch.runs.reasons import join_reasons
from kp_batch.text import be, count_of, printable, shortened

_MIN_TRACES = 30  # traces, from which on a mean is worth a sentence
_NOTABLE = 0.01  # the least difference between two means that is worth a sentence
_LONG = 7  # days without a trace
# Customary limits of the population stability index. From it we subtract what chance alone adds,
# which over ten bins is 9 (1/a + 1/b) for a and b traces: a good estimate from that many traces on,
# and of fewer there is no index.
_MODERATE_SHIFT, _LARGE_SHIFT = 0.1, 0.25
_MIN_OF_BOTH = 200
_LISTED = 3  # at most, of the domains that shifted
_NAMED = 5  # at most, of the domains that came or went, and of dates of weights


class Untrusted(str):
    """Text from the archive, which every page escapes in its own way."""

    __slots__ = ()


@dataclass(frozen=True)
class Finding:
    """One sentence, in parts."""

    parts: tuple[str, ...]  # text from the archive is `Untrusted`
    is_warning: bool = False


def _finding(*parts: str, is_warning: bool = False) -> Finding:
    return Finding(parts, is_warning)


def _days_text(first: date, last: date) -> str:
    """Write a span of days, or the one day that it is."""
    return f"on {first}" if first == last else f"from {first} to {last}"


def _share_text(part: int, whole: int) -> str:
    """Write a count and its percentage of the whole."""
    return f"{part:,} ({part / whole:.1%})"


def findings(data: ReportData) -> list[Finding]:
    """The sentences that the data is worth, warnings first."""
    notices = (
        *(_weights, _extent, _between_domains, _worth_sharing, _copies, _override, _recorded),
        *(_implausible, _lately, _gap),
        *(_failure, _audits, _comparability, _settings, _drift, _domain_changes),
        *(_rejects, _unreadable),
    )
    sentences = (sentence for notice in notices for sentence in notice(data))
    return sorted(sentences, key=lambda finding: not finding.is_warning)


def _listed(items: Iterable[Sequence[str]], more: int, before: str = ", and") -> Iterator[str]:
    """The end of a sentence: items, each of some parts, and how many more there are."""
    for place, item in enumerate(items):
        yield from (", ", *item) if place else item
    yield f"{before} {more:,} more." if more > 0 else "."


def _overall(frame: pl.DataFrame) -> Mapping[str, Any] | None:
    """The row of all domains together, if there is one."""
    return next(frame.filter(pl.col("domain").is_null()).iter_rows(named=True), None)


def _weights(data: ReportData) -> Iterator[Finding]:
    """The times from which other weights hold than for earlier traces of the same domain."""
    rows = data.weights.rows()
    if rows:
        yield _finding(
            "Weights change with time, and scores before and after do not compare: those of ",
            *_listed((_dated(*row) for row in rows[:_NAMED]), len(rows) - _NAMED),
        )


def _dated(name: str, begin: datetime) -> tuple[Untrusted, str]:
    is_day = begin.timetz().replace(tzinfo=None) == time()
    day = begin.date().isoformat() if is_day else begin.isoformat()
    return Untrusted(shortened(name, LABEL)), f" from {day}"


def _failure(data: ReportData) -> Iterator[Finding]:
    if data.failed:
        reason = Untrusted(printable(data.failed.reason or "no reason was noted"))
        before = " The scores are those of the last run that succeeded." if data.run else ""
        yield _finding(
            f"The last run, {data.failed.run_id} ",
            Untrusted(signed(data.failed.user, data.failed.note)),
            ", failed: ",
            reason,
            f".{before}",
            is_warning=True,
        )


def _audits(data: ReportData) -> Iterator[Finding]:
    last = data.failed or data.run
    if last and last.audits:
        failing = [audit for audit in last.audits if audit.rows]
        names = (
            (", ", Untrusted(audit.name), f" {audit.state} ({count_of(audit.rows, 'row')})")
            for audit in failing
        )
        yield _finding(
            f"Audits of the last run: {len(last.audits) - len(failing):,} of {len(last.audits):,} "
            "pass",
            *chain(*names),
            ".",
            is_warning=any(not audit.allowed for audit in failing),
        )


def _comparability(data: ReportData) -> Iterator[Finding]:
    if data.incomparable:
        yield _finding(
            f"The scores of the last run do not compare with those of the previous run: they were "
            f"computed with {join_reasons(data.incomparable)}.",
            is_warning=True,
        )


def _settings(data: ReportData) -> Iterator[Finding]:
    if data.changed_settings:
        yield _finding(
            "Settings changed since the previous run: ",
            Untrusted(printable(join_reasons(data.changed_settings))),
            ".",
        )


def _drift(data: ReportData) -> Iterator[Finding]:
    row = _overall(data.drift)
    if not row:
        return
    more, reason = row["traces_b"] - row["traces_a"], data.no_trend
    yield _finding(
        f"Since the previous run: {more:+,} {'trace' if abs(more) == 1 else 'traces'}; mean score "
        f"{row['mean_shift']:+.4f}, median {row['p50_shift']:+.4f}"
        f"{f', but this is no trend, since {reason}' if reason else ''}."
    )
    yield from _shifts(data)


def _shifts(data: ReportData) -> Iterator[Finding]:
    chance = 9 * (1 / pl.col("traces_a") + 1 / pl.col("traces_b"))
    known = data.drift.drop_nulls("domain").with_columns(shift=pl.col("stability_index") - chance)
    enough = known.drop_nulls("shift")
    shifted = enough.filter(pl.col("shift") >= _MODERATE_SHIFT).sort("shift", descending=True)
    if shifted.is_empty():
        return
    among = _among_domains(data, len(enough), _MIN_OF_BOTH, " in both runs")
    yield _finding(
        f"Of {among}, these shifted: " if among else "Domains whose scores shifted: ",
        *_listed(map(_shift, shifted.rows(named=True)[:_LISTED]), len(shifted) - _LISTED),
        is_warning=shifted["shift"][0] >= _LARGE_SHIFT and not data.no_trend,
    )


def _shift(row: Mapping[str, Any]) -> tuple[Untrusted, str]:
    how = "greatly" if row["shift"] >= _LARGE_SHIFT else "moderately"
    index = f"population stability index {row['stability_index']:.2f}"
    return Untrusted(row["domain"]), f" {how} ({index})"


def _domain_changes(data: ReportData) -> Iterator[Finding]:
    for is_new, what in ((True, "New"), (False, "Gone")):
        names = data.domain_changes.filter(is_new=is_new)["task_domain"]
        if len(names):
            labels = ([Untrusted(shortened(name, LABEL))] for name in names[:_NAMED])
            listed = _listed(labels, len(names) - _NAMED, " and")
            yield _finding(f"{what} since the previous run: ", *listed)


def _rejects(data: ReportData) -> Iterator[Finding]:
    if data.run and data.rejects.is_empty():
        yield _finding("No row was rejected, and no file is unreadable.")
    if not data.rejects.is_empty():
        codes = data.rejects.group_by("code").agg(pl.col("rejected").sum())
        rows = codes.sort("rejected", "code", descending=[True, False]).iter_rows()
        counts = ", ".join(f"{code} {rejected:,}" for code, rejected in rows)
        yield _finding(f"Rejected rows and unreadable files, by reason: {counts}.")


def _unreadable(data: ReportData) -> Iterator[Finding]:
    paths = data.run.counts.unreadable_files if data.run and data.run.counts else []
    if paths:
        such = ", such as" if len(paths) > 1 else ":"
        count = f"{count_of(len(paths), 'file')} {be(len(paths))} unreadable{such} "
        yield _finding(count, Untrusted(printable(paths[0])), ".", is_warning=True)


def _among_domains(data: ReportData, known: int, floor: int, where: str = "") -> str:
    """Name the domains with enough traces, which a sentence is about; empty if it is about all.

    Those without a label of their own are not looked at. They have the fewest traces.
    """
    own = data.own_domains
    if known == len(own) and not data.others:
        return ""
    are_all = not data.others or (own["traces"] < floor).any()
    what = "domain" if are_all else "largest domain"
    count = f"only {what}" if known == 1 else count_of(known, what)
    return f"the {count} with {floor} traces or more{where}"


def _extent(data: ReportData) -> Iterator[Finding]:
    row = _overall(data.domains)
    if not row:
        yield _finding("No trace is scored yet.")
        return
    domains = count_of(data.totals["domains"], "domain")
    when = _days_text(data.totals["first_day"], data.totals["last_day"])
    sharing = _share_text(row["worth_sharing"], row["traces"]) if row["worth_sharing"] else "none"
    reach = "reaches" if row["worth_sharing"] == 1 else "reach"
    yield _finding(
        f"{count_of(row['traces'], 'trace')} in {domains}, {when}. The mean score is "
        f"{row['mean']:.3f}, the median {row['p50']:.3f}; {sharing} of them {reach} the threshold "
        f"of {data.totals['threshold']:g}."
    )


def _between_domains(data: ReportData) -> Iterator[Finding]:
    known = _well_known(data).sort("mean")
    if len(known) > 1 and known["mean"][-1] - known["mean"][0] >= _NOTABLE:
        low, high = known.row(0, named=True), known.row(-1, named=True)
        among = _among_domains(data, len(known), _MIN_TRACES)
        yield _finding(
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
        among = _among_domains(data, len(known), _MIN_TRACES)
        yield _finding(
            f"Of {among}, worth sharing most often: " if among else "Worth sharing most often: ",
            Untrusted(row["domain"]),
            f", {_share_text(row['worth_sharing'], row['traces'])} of its traces.",
        )


def _copies(data: ReportData) -> Iterator[Finding]:
    row = data.totals
    if row["alike"]:
        most = f"; the most repeated text occurs {row['most_repeated']:,} times"
        yield _finding(
            f"{row['alike']:.1%} of the traces nearly repeat one that their cache held (similarity "
            f"of 0.95 and more), {row['same']:.1%} repeat it fully"
            f"{most if row['most_repeated'] else ''}."
        )
    if found := row["redundancy"]:
        sampled = found["low"] < found["high"]
        interval = f" ({found['low']:.1%} to {found['high']:.1%}, from a sample)" if sampled else ""
        yield _finding(
            f"{found['share']:.1%}{interval} of the traces nearly repeat any earlier one of the "
            f"whole archive (similarity of {found['similarity']:g} and more)."
        )


def _override(data: ReportData) -> Iterator[Finding]:
    known = _well_known(data)
    common = data.overrides.join(known.select("domain"), on="domain")
    notable = common.filter(pl.col("effect_on_mean").abs() >= _NOTABLE)
    if not notable.is_empty():
        row = notable.sort((pl.col("traces") * pl.col("mean_effect")).abs()).row(-1, named=True)
        way = "lowers" if row["effect_on_mean"] < 0 else "raises"
        among = _among_domains(data, len(known), _MIN_TRACES)
        yield _finding(
            f"In {among}, the" if among else "The",
            f" override with the largest effect in all, {row['override']}, applies to "
            f"{row['traces']:,} traces ({row['share']:.0%}) of ",
            Untrusted(row["domain"]),
            f" and {way} its mean score by {abs(row['effect_on_mean']):.3f}.",
        )


def _recorded(data: ReportData) -> Iterator[Finding]:
    row = _overall(data.recorded)
    if not row:
        return
    if row["placeholders"]:
        carry = "carries" if row["placeholders"] == 1 else "carry"
        yield _finding(
            f"{count_of(row['placeholders'], 'trace')} {carry} a recorded score of 0, the live "
            "engine's placeholder for none."
        )
    if row["traces"]:
        far = row["mean_absolute_difference"] >= _NOTABLE
        other = (
            "; the live engine may have had another clock, cache, model or profile "
            "(FROM largest_score_differences)"
        )
        yield _finding(
            f"From the scores that live engines gave {count_of(row['traces'], 'trace')}, "
            f"ours differ by {row['mean_absolute_difference']:.4f} on average"
            f"{other if far else ''}.",
            is_warning=far,
        )


def _well_known(data: ReportData) -> pl.DataFrame:
    """The domains with enough traces for a comparison."""
    return data.own_domains.filter(pl.col("traces") >= _MIN_TRACES)


def _implausible(data: ReportData) -> Iterator[Finding]:
    for kind, traces, first, last in data.date_outliers.iter_rows():
        dated = f"{count_of(traces, 'trace')} {be(traces)} dated"
        if kind == "future" and data.run:
            yield _finding(
                f"{dated} in the future, {_days_text(first, last)}: the scores are of "
                f"{data.run.finished_at:%Y-%m-%d}.",
                is_warning=True,
            )
        elif kind in ("before", "after"):
            yield _finding(
                f"{dated} ten years or more {kind} nearly all others, {_days_text(first, last)}.",
                is_warning=True,
            )


def _lately(data: ReportData) -> Iterator[Finding]:
    """Compare the last step of time that is over and has enough traces with all steps before it."""
    steps = data.over_time.filter("is_over").group_by("start")
    sums = steps.agg(pl.col("traces", "score", "novelty").sum())
    enough = sums.filter(pl.col("traces") >= _MIN_TRACES).sort("start")
    # Weights affect no novelty, whose means compare even where they change with time.
    measures = ["score", "novelty"] if data.weights.is_empty() else ["novelty"]
    if len(enough) > 1:
        last = enough.row(-1, named=True)
        before = sums.filter(pl.col("start") < last["start"]).sum().row(0, named=True)
        on, full = ("On", "") if data.grain == "day" else (f"In the {data.grain} from", "full ")
        means = (
            f"the mean {name} was {last[name] / last['traces']:.3f} "
            f"(before: {before[name] / before['traces']:.3f})"
            for name in measures
        )
        yield _finding(
            f"{on} {last['start']}, the last {full}{data.grain} with {_MIN_TRACES} traces or more, "
            f"{' and '.join(means)}."
        )


def _gap(data: ReportData) -> Iterator[Finding]:
    if not data.gaps.is_empty():
        row = data.gaps.row(0, named=True)
        if row["days"] >= _LONG:
            apart = "Apart from the times warned of, the" if data.omitted else "The"
            yield _finding(
                f"{apart} longest time without a trace is {count_of(row['days'], 'day')}, from "
                f"{row['first_day']} to {row['last_day']}."
            )
