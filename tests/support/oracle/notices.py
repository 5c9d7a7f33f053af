"""What the report notices of an archive that was scored twice, with numbers by plain loops."""

from collections.abc import Iterator

from tests.support.oracle.reports import ALL, Report

ALL_ACCEPTED = "No row was rejected, and no file is unreadable."
MIDNIGHT = "T00:00:00+00:00"
REFUSED = "Rows without a score and unreadable files, by reason (FROM rejects_by_code): "
PLACEHOLDER = "recorded with a score of 0, the live engine's placeholder for a missing score."
OURS = "On average, the scores of {} differ by {} from those that live engines recorded{}."
NEAR = " (FROM recorded_score_differences)"
FAR_OFF = (
    "; the live engine may have had another clock, cache, model or profile "
    "(FROM largest_score_differences)"
)


def expected_notices(report: Report) -> Iterator[tuple[str, str]]:
    """The code and the text of each sentence, in any order."""
    yield from _of_rows(report)
    yield from _since_the_previous_run(report)
    yield from (("implausible_dates", text) for text in _odd_times(report))
    span = report.spans[ALL]
    for row in report.gap():
        if row["days"] >= 7:
            within = f"Between {span.first_day} and {span.last_day}"
            long = f"{row['days']:,} days, from {row['first_day']} to {row['last_day']}"
            yield "gap", f"{within}, the longest time without traces is {long}."
    if report.others:
        domains, own = len(report.label_of), len(report.labels) - 1
        shown = f"shown together, as {report.others} (FROM means_by('task_domain') lists each)"
        yield "folded", f"The {domains - own} smallest of {domains} domains are {shown}."


def _of_rows(report: Report) -> Iterator[tuple[str, str]]:
    rejects = sorted(report.rejects(), key=lambda row: (-row["rejected"], row["code"]))
    counted = [f"{row['code']} {row['rejected']}" for row in rejects]
    if counted:
        yield "rejects", f"{REFUSED}{', '.join(counted)}."
    else:
        yield "none_rejected", ALL_ACCEPTED
    [recorded] = report.recorded()
    if number := recorded["placeholders"]:
        are = "1 trace is" if number == 1 else f"{number} traces are"
        yield "placeholders", f"{are} {PLACEHOLDER}"
    if number := recorded["traces"]:
        off = recorded["mean_absolute_difference"]
        question = FAR_OFF if off >= 0.01 else NEAR
        yield "recorded", OURS.format(_traces(number), f"{off:.4f}", question)
    dates = sorted((row["name"], row["valid_from"]) for row in report.weights())
    texts = ((name, begin.isoformat()) for name, begin in dates)
    listed = ", ".join(f"{name} from {text.removesuffix(MIDNIGHT)}" for name, text in texts)
    compare = "scores before and after are not comparable"
    if listed:
        yield "weights", f"Weights changed at these times, so {compare}: {listed}."


def _since_the_previous_run(report: Report) -> Iterator[tuple[str, str]]:
    since = "since the previous run"
    for row in report.drift():
        if row["domain"] == ALL:
            more = row["traces"] - row["traces_before"]
            traces = (
                f"{more:+} trace{'' if abs(more) == 1 else 's'}"
                if more
                else "the same number of traces"
            )
            shifts = f"mean score {row['mean_shift']:+.4f}, median {row['p50_shift']:+.4f}"
            yield "drift", f"{since.capitalize()}: {traces}; {shifts}."
    old, new = report.archive.runs
    for code, what, run, other in (
        ("new", "New domains", new, old),
        ("gone", "Domains that disappeared", old, new),
    ):
        names = sorted({*run} - {*other}, key=lambda name: (-len(run[name]), name))
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        if names:
            yield f"{code}_domains", f"{what} {since}: {', '.join(names[:5])}{more}."


def _odd_times(report: Report) -> Iterator[str]:
    rows = {row["kind"]: row for row in report.implausible_dates()}
    for kind, row in rows.items():
        first, last = row["first_day"], row["last_day"]
        when = f"on {first}" if first == last else f"from {first} to {last}"
        dated = f"{_traces(row['traces'])} {'is' if row['traces'] == 1 else 'are'} dated"
        others = "traces with past dates" if "future" in rows else "other traces"
        if kind == "future":
            ended = f"the last run ended on {report.archive.ended:%Y-%m-%d}"
            yield f"{dated} in the future, {when}: {ended}."
        else:
            yield f"{dated} at least ten years {kind} nearly all {others}, {when}."


def _traces(number: int) -> str:
    return "1 trace" if number == 1 else f"{number} traces"
