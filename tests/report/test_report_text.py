"""What the report says in words, and how it is written in markdown."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.report import report
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.data import ReportData
from kp_batch.report.findings import Finding, Untrusted, findings
from kp_batch.report.markdown import markdown
from kp_batch.report.panels import PANELS
from kp_batch.runs.audits import AuditResult
from kp_batch.runs.record import RunCounts, RunRecord
from kp_batch.text import code, printable, shortened
from tests.support.archives import trace, write_jsonl

DOMAINS = ("domain", "traces", "worth_sharing", "mean", "p50", "p5", "p95")
OVERRIDES = ("domain", "override", "traces", "share", "mean_effect", "effect_on_mean")
OVER_TIME = ("start", "traces", "score", "novelty", "is_over")
DRIFT = ("domain", "traces_a", "traces_b", "mean_shift", "p50_shift", "stability_index")
RECORDED = {
    "domain": pl.String,
    "traces": pl.Int64,
    "placeholders": pl.Int64,
    "mean_absolute_difference": pl.Float64,
}
TURNOVER = ("task_domain", "is_new")
WEIGHTS = {"name": pl.String, "valid_from": pl.Datetime("us", "UTC")}
TIMES = ("kind", "traces", "first_day", "last_day")
USUAL = ("usual", 1300, date(2026, 1, 1), date(2026, 2, 1))
TEXT = {"run_id", "domain", "task_domain", "override", "start", "code", "first_day", "last_day"}
NOTHING = pl.DataFrame()
ALL = (None, 1300, 130, 0.41251, 0.5, 0.1, 0.9)
# As an archive may hold them; beside each, how it is written inside a code span.
HOSTILE = {
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "[x](javascript:alert(1))": "[x](javascript:alert(1))",
    "a|b`c``d": r"a\x7cb\x60c\x60\x60d",
    "https://evil.example": "https://evil.example",
    "\x1b[31mred": r"\x1b[31mred",
    "\u202ereversed": r"\u202ereversed",
    "two\n\n# lines": r"two\n\n# lines",
    "![](x)": "![](x)",
    "at the end\\": "at the end\\",
    "<b>*_~~": "<b>*_~~",
}
ALLOWED = {"h1", "p", "ul", "li", "strong", "code"}
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


def rows(names: Iterable[str], *records: tuple[Any, ...]) -> pl.DataFrame:
    kinds = {name: pl.String if name in TEXT else pl.Float64 for name in names}
    counts = ("traces", "traces_a", "traces_b", "worth_sharing", "rejected", "days")
    counted = {name: pl.Int64 for name in kinds if name in counts}
    flags = {name: pl.Boolean for name in kinds if name.startswith("is_")}
    return pl.DataFrame(list(records), schema=kinds | counted | flags, orient="row")


SETTINGS = {"cache_size": 1000, "ttl": "none", "profiles": {"code": {"novelty": 0.5}}}
SETTINGS |= {"embedder": "minilm", "threshold": 0.75, "text": True, "audits": {}}
FINGERPRINTS = {
    "encoder_id": {"minilm-1": 1300},
    "cache_id": {"fifo-1000-ttl-none-v1": 1300},
    "profile_id": {"code-0-v1": 1300},
}
FORMULAS = {"facts": 1, "encoder": 1, "replay": 1, "scoring": 1}
NONE = (
    *("embedded", "reused", "replayed", "restated", "reweighted", "removed", "partitions"),
    *("duplicates", "superseded", "rejected", "unreadable", "rows_kept", "rows_of_earlier"),
    *("gone", "excluded", "cut"),
)
COUNTS = RunCounts(
    files=1,
    rows=1300,
    accepted=1300,
    **dict.fromkeys(NONE, 0),
    rejected_by_code={},
    unreadable_files=[],
)
RUN = RunRecord(
    run_id="run-2",
    status="done",
    reason=None,
    note=None,
    user="ana",
    started_at=datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
    finished_at=datetime(2026, 2, 3, 4, 6, tzinfo=UTC),
    counts=COUNTS,
    seconds={"plan": 0.256, "embed": 1},
    versions=FORMULAS,
    config={},
    changes=[],
    fingerprints=FINGERPRINTS,
    published={"settings": SETTINGS},
    audits=(),
)
# One domain, no override, nothing refused, no other run.
QUIET = ReportData(
    run=RUN,
    before=None,
    failed=None,
    labels=["code"],
    others=None,
    grain="week",
    totals={
        "threshold": 0.75,
        "domains": 1,
        "first_day": date(2026, 1, 1),
        "last_day": date(2026, 2, 1),
        "same": 0.0,
        "alike": 0.0,
        "most_repeated": 0,
        "redundancy": None,
    },
    date_outliers=pl.DataFrame([USUAL], schema=TIMES, orient="row"),
    domains=rows(DOMAINS, ALL, ("code", *ALL[1:])),
    histogram=rows(["domain", "low", "high", "traces"], ("code", 0.25, 0.3, 1300)),
    over_time=rows(OVER_TIME),
    dimensions=pl.DataFrame(schema={"stddev": pl.Float64}),
    overrides=rows(OVERRIDES),
    novelty_and_age=NOTHING,
    thresholds=NOTHING,
    weights=pl.DataFrame(schema=WEIGHTS),
    drift=rows(DRIFT),
    recorded=pl.DataFrame(schema=RECORDED),
    domain_changes=rows(TURNOVER),
    rejects=rows(["code", "domain", "rejected"]),
    gaps=rows(["first_day", "last_day", "days"]),
    traces=NOTHING,
)
EXTENT = (
    "1,300 traces in 1 domain, from 2026-01-01 to 2026-02-01. The mean score is 0.413, the "
    "median 0.500; 130 (10.0%) of them reach the threshold of 0.75."
)
ALL_ACCEPTED = "No row was rejected, and no file is unreadable."
EMPTY = replace(
    QUIET,
    run=None,
    labels=[],
    domains=rows(DOMAINS),
    histogram=QUIET.histogram.clear(),
    totals=QUIET.totals | {"domains": 0, "first_day": None, "last_day": None},
)


def sentence(finding: Finding) -> str:
    return "".join(finding.parts)


def sentences(data: ReportData = QUIET, **changes: Any) -> list[str]:
    """The sentences, without those that the quiet data has too."""
    texts = map(sentence, findings(replace(data, **changes)))
    return [text for text in texts if text not in (EXTENT, ALL_ACCEPTED)]


def totals(**changes: Any) -> dict[str, Any]:
    return {**QUIET.totals, **changes}


def by_domain(*records: tuple[str, int, int, float]) -> pl.DataFrame:
    """Domains with their traces, those worth sharing, and their mean."""
    return rows(DOMAINS, ALL, *((*record, 0.5, 0.1, 0.9) for record in records))


def counts(**more: Any) -> RunRecord:
    return replace(RUN, counts=replace(COUNTS, **more))


def failing(run_id: str, reason: str | None) -> RunRecord:
    return replace(RUN, run_id=run_id, status="failed", reason=reason)


def under(**changes: Any) -> RunRecord:
    """A run under other settings."""
    return replace(RUN, run_id="run-1", published={"settings": SETTINGS | changes})


def test_where_there_is_nothing_to_notice_the_extent_is_reported() -> None:
    assert [sentence(finding) for finding in findings(QUIET)] == [EXTENT, ALL_ACCEPTED]
    assert not any(finding.is_warning for finding in findings(QUIET))


def test_the_extent_counts_the_domains() -> None:
    [first, *_] = findings(replace(QUIET, totals=totals(domains=1200, threshold=0.5)))
    assert sentence(first) == EXTENT.replace("1 domain", "1,200 domains").replace("0.75", "0.5")


def test_one_day_is_named_once_and_that_no_trace_reaches_the_threshold() -> None:
    domains, day = rows(DOMAINS, (None, 1300, 0, *ALL[3:])), totals(last_day=date(2026, 1, 1))
    [first, *_] = findings(replace(QUIET, totals=day, domains=domains))
    assert sentence(first).startswith("1,300 traces in 1 domain, on 2026-01-01. The mean ")
    assert sentence(first).endswith("; none of them reach the threshold of 0.75.")


def test_without_a_trace_that_alone_is_reported() -> None:
    assert sentences(EMPTY) == ["No trace is scored yet."]


def test_a_failure_is_reported_first_as_a_warning_with_its_reason() -> None:
    failed = replace(failing("run-3", "no\nspace \x1b[31mleft"), note="*try* it")
    [first, *others] = findings(replace(QUIET, failed=failed))
    assert first.is_warning
    assert sentence(first) == (
        r"The last run, run-3 by ana: *try* it, failed: no\nspace \x1b[31mleft. "
        "The scores are those of the last run that succeeded."
    )
    assert [part for part in first.parts if isinstance(part, Untrusted)] == [
        "by ana: *try* it",
        r"no\nspace \x1b[31mleft",
    ]
    assert others == findings(QUIET)


def test_what_the_audits_of_the_last_run_found_is_reported() -> None:
    passes = AuditResult("a", "error", 0, allowed=False)
    allowed = AuditResult("b", "error", 1, allowed=True)
    fails = AuditResult("c", "error", 1200, allowed=False)
    warns = AuditResult("_d_", "warn", 2, allowed=False)
    done = replace(RUN, audits=(passes, allowed))
    [finding, *_] = findings(replace(QUIET, run=done))
    assert sentences(run=done) == ["Audits of the last run: 1 of 2 pass, b allowed (1 row)."]
    assert not finding.is_warning
    failed = replace(failing("run-3", "x"), audits=(passes, warns, fails))
    [_, finding, *_] = findings(replace(QUIET, run=done, failed=failed))
    assert sentence(finding) == (
        "Audits of the last run: 1 of 3 pass, _d_ warns (2 rows), c fails (1,200 rows)."
    )
    assert finding.is_warning
    assert "`_d_` warns" in markdown(replace(QUIET, run=replace(RUN, audits=(warns,))))


def test_a_failure_before_any_run_succeeded_speaks_of_no_scores() -> None:
    failed = failing("run-1", None)
    assert sentences(EMPTY, failed=failed) == [
        "The last run, run-1 by ana, failed: no reason was noted.",
        "No trace is scored yet.",
    ]


def test_the_highest_and_the_lowest_of_the_domains_with_enough_traces_are_named() -> None:
    domains = by_domain(
        ("few", 29, 0, 0.9), ("law", 30, 0, 0.6127), ("code", 50, 0, 0.3), ("art", 31, 0, 0.4)
    )
    scores = "law scores highest (mean 0.613), code lowest (0.300)."
    assert sentences(domains=domains) == [f"Of the 3 domains with 30 traces or more, {scores}"]
    assert sentences(domains=domains.filter(pl.col("traces") > 29)) == [scores]


def test_domains_of_nearly_the_same_mean_are_not_compared() -> None:
    assert sentences(domains=by_domain(("law", 30, 0, 0.3), ("code", 50, 0, 0.309))) == []


def test_one_domain_with_enough_traces_is_compared_with_none() -> None:
    overrides = rows(OVERRIDES, ("few", "recovery bonus", 29, 1.0, 0.1, 0.1))
    assert sentences(domains=by_domain(("few", 29, 9, 0.9), ("law", 30, 9, 0.6))) == []
    assert sentences(domains=by_domain(("few", 29, 9, 0.9)), overrides=overrides) == []


def test_the_domain_worth_sharing_most_often_is_named_where_any_is() -> None:
    domains = by_domain(
        ("few", 29, 29, 0.5),
        ("7 others", 900, 900, 0.9),
        ("law", 60, 10, 0.6),
        ("code", 99, 9, 0.4),
    )
    [_, second] = sentences(domains=domains, others="7 others")
    assert second == (
        "Of the 2 domains with 30 traces or more, worth sharing most often: law, 10 (16.7%) of its "
        "traces."
    )
    [_, second] = sentences(domains=by_domain(("law", 60, 10, 0.6), ("code", 99, 9, 0.4)))
    assert second == "Worth sharing most often: law, 10 (16.7%) of its traces."


def test_two_domains_that_are_worth_sharing_as_often_are_not_told_apart() -> None:
    assert sentences(domains=by_domain(("law", 60, 6, 0.6), ("code", 30, 3, 0.6))) == []
    assert sentences(domains=by_domain(("law", 60, 0, 0.6), ("code", 30, 0, 0.6))) == []


@pytest.mark.parametrize(("fewest", "which"), [(30, "2 largest domains"), (29, "only domain")])
def test_where_the_others_may_have_enough_traces_the_largest_domains_are_spoken_of(
    fewest: int, which: str
) -> None:
    domains = by_domain(("law", 60, 0, 0.6), ("code", fewest, 0, 0.6), ("7 others", 99, 0, 0.6))
    overrides = rows(OVERRIDES, ("law", "single thought", 30, 0.5, -0.5, -0.25))
    assert sentences(domains=domains, overrides=overrides, others="7 others") == [
        (
            f"In the {which} with 30 traces or more, the override with the largest effect in all, "
            "single thought, applies to 30 traces (50%) of law and lowers its mean score by 0.250."
        )
    ]


def test_an_override_without_a_notable_effect_is_not_reported() -> None:
    overrides = rows(OVERRIDES, ("code", "low diversity penalty", 9, 0.1, -0.09, -0.009))
    assert sentences(overrides=overrides) == []


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"same": 0.1234, "alike": 0.1234, "most_repeated": 0}, ("12.3%", "12.3%", ".")),
        (
            {"same": 0.0, "alike": 0.05, "most_repeated": 1234},
            ("0.0%", "5.0%", "; the most repeated text occurs 1,234 times."),
        ),
    ],
)
def test_copies_are_reported(changes: dict[str, Any], wanted: tuple[str, str, str]) -> None:
    same, alike, end = wanted
    assert sentences(totals=totals(**changes)) == [
        (
            f"{alike} of the traces nearly repeat one that their cache held (similarity of 0.95 "
            f"and more), {same} repeat it fully{end}"
        )
    ]


@pytest.mark.parametrize(
    ("low", "high", "interval"),
    [(0.2, 0.2, ""), (0.18, 0.2234, " (18.0% to 22.3%, from a sample)")],
)
def test_the_redundancy_of_the_whole_archive_is_reported_where_it_was_asked(
    low: float, high: float, interval: str
) -> None:
    found = {"similarity": 0.95, "share": 0.2, "low": low, "high": high}
    assert sentences(totals=totals(redundancy=found)) == [
        (
            f"20.0%{interval} of the traces nearly repeat any earlier one of the whole archive "
            "(similarity of 0.95 and more)."
        )
    ]


def test_texts_that_came_again_unseen_are_no_copies() -> None:
    assert sentences(totals=totals(most_repeated=7)) == []


@pytest.mark.parametrize(("sign", "way"), [(-1, "lowers"), (1, "raises")])
def test_the_override_of_the_largest_effect_is_named_for_a_domain_with_enough_traces(
    sign: int, way: str
) -> None:
    overrides = rows(
        OVERRIDES,
        ("code", "recovery bonus", 900, 0.9, sign * 0.05, sign * 0.045),
        ("law", "low diversity penalty", 15, 0.5, 0.1, 0.05),
        ("few", "single thought", 29, 1.0, -0.5, -0.5),
    )
    domains = by_domain(("code", 1000, 0, 0.5), ("law", 30, 0, 0.5), ("few", 29, 0, 0.5))
    effect = (
        "he override with the largest effect in all, recovery bonus, applies to 900 traces (90%) "
        f"of code and {way} its mean score by 0.045."
    )
    assert sentences(domains=domains, overrides=overrides) == [
        f"In the 2 domains with 30 traces or more, t{effect}"
    ]
    assert sentences(domains=domains.head(3), overrides=overrides) == [f"T{effect}"]


PLACEHOLDER = "a recorded score of 0, the live engine's placeholder for none."
OURS = "From the scores that live engines gave {}, ours differ by {} on average{}."
CAUSES = (
    "; the live engine may have had another clock, cache, model or profile "
    "(FROM largest_score_differences)"
)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ((None, 0, 1, None), [f"1 trace carries {PLACEHOLDER}"]),
        (
            (None, 7, 1200, 0.0099),
            [f"1,200 traces carry {PLACEHOLDER}", OURS.format("7 traces", "0.0099", "")],
        ),
        ((None, 1, 0, 0.0101), [OURS.format("1 trace", "0.0101", CAUSES)]),
    ],
)
def test_what_live_engines_recorded_is_reported_and_warned_of_where_it_is_far(
    row: tuple[Any, ...], wanted: list[str]
) -> None:
    recorded = pl.DataFrame([row, ("code", *row[1:])], schema=RECORDED, orient="row")
    assert sentences(recorded=recorded) == wanted
    far = [finding for finding in findings(replace(QUIET, recorded=recorded)) if finding.is_warning]
    assert len(far) == (row[3] == 0.0101)


OVER_WEEKS = rows(
    OVER_TIME,
    ("2026-01-01", 30, 15.0, 12.0, True),
    ("2026-01-08", 0, None, None, True),
    ("2026-01-15", 10, 1.0, 8.0, True),
    ("2026-01-22", 20, 12.0, 4.0, True),  # of two domains
    ("2026-01-22", 20, 4.0, 8.0, True),
    ("2026-01-29", 29, 29.0, 29.0, True),  # too few
    ("2026-02-05", 99, 99.0, 99.0, False),
)


@pytest.mark.parametrize(
    ("grain", "when", "which"),
    [("week", "In the week from", "the last full week"), ("day", "On", "the last day")],
)
def test_the_last_step_of_time_that_is_over_is_compared_with_all_before(
    grain: str, when: str, which: str
) -> None:
    assert sentences(over_time=OVER_WEEKS, grain=grain) == [
        (
            f"{when} 2026-01-22, {which} with 30 traces or more, the mean score was "
            "0.400 (before: 0.400) and the mean novelty was 0.300 (before: 0.500)."
        )
    ]


def test_one_step_of_time_with_enough_traces_is_compared_with_none() -> None:
    few, enough = ("2026-01-01", 29, 15.0, 12.0, True), ("2026-01-08", 30, 1.0, 1.0, True)
    assert sentences(over_time=rows(OVER_TIME, few, enough)) == []


def test_drift_is_reported_and_a_large_one_is_a_warning() -> None:
    chance = 9 * (1 / 200 + 1 / 300)
    domains = by_domain(
        *((domain, 300, 0, 0.4) for domain in ("code", "law", "few", "art", "chess"))
    )
    drift = rows(
        DRIFT,
        (None, 1100, 1000, -0.01234, 0.02, 0.5),
        ("code", 200, 300, 0.0, 0.0, chance + 0.251),
        ("law", 200, 300, 0.0, 0.0, chance + 0.249),
        ("few before", 199, 300, 0.0, 0.0, None),
        ("few now", 300, 199, 0.0, 0.0, None),
        ("art", 200, 300, 0.0, 0.0, chance + 0.101),
        ("chess", 200, 300, 0.0, 0.0, chance + 0.099),
    )
    all_findings = findings(replace(QUIET, drift=drift, domains=domains))
    assert [sentence(finding) for finding in all_findings if finding not in findings(QUIET)] == [
        (
            "Of the 4 domains with 200 traces or more in both runs, these shifted: "
            "code greatly (population stability index 0.33), "
            "law moderately (population stability index 0.32), "
            "art moderately (population stability index 0.18)."
        ),
        "Since the previous run: -100 traces; mean score -0.0123, median +0.0200.",
    ]
    assert [finding.is_warning for finding in all_findings] == [
        True,
        *[False] * (len(all_findings) - 1),
    ]


SHIFTED = rows(DRIFT, (None, 900, 900, 0.1, 0.1, 1.0), ("code", 900, 900, 0.1, 0.1, 1.0))
FAR = "Domains whose scores shifted: code greatly (population stability index 1.00)."
SINCE = "Since the previous run: +0 traces; mean score +0.1000, median +0.1000"
NO_TREND = f"{SINCE}, but this is no trend, since settings or formulas changed."


def test_runs_that_do_not_compare_are_a_warning_and_their_drift_is_none() -> None:
    before = replace(
        RUN,
        versions=FORMULAS | {"replay": 0},
        fingerprints=FINGERPRINTS | {"encoder_id": {"hashing-1": 9}},
    )
    all_findings = findings(replace(QUIET, before=before, drift=SHIFTED))
    assert [sentence(finding) for finding in all_findings if finding.is_warning] == [
        (
            "The scores of the last run do not compare with those of the previous run: they were "
            "computed with formula of replay 0 → 1; encoder hashing-1 → minilm-1."
        )
    ]
    assert {FAR, NO_TREND} <= {*map(sentence, all_findings)}


def test_settings_that_changed_are_named_and_their_drift_is_no_warning() -> None:
    changes = {"cache_size": 20, "ttl": "1d", "threshold": 0.5}
    all_findings = findings(replace(QUIET, before=under(**changes), drift=SHIFTED))
    [settings] = [
        sentence(finding) for finding in all_findings if sentence(finding).startswith("Settings")
    ]
    assert settings == (
        "Settings changed since the previous run: cache size 20 → 1000; ttl 1d → none; "
        "threshold 0.5 → 0.75."
    )
    assert {FAR, NO_TREND} <= {*map(sentence, all_findings)}
    assert not any(finding.is_warning for finding in all_findings)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"threshold": 0.5, "text": False, "audits": {"a": {"sql": "x"}}},  # move no score
        {"profiles": SETTINGS["profiles"] | {"misspelt": {"novelty": 1}}},  # which no score bears
    ],
)
def test_scores_that_shift_under_the_same_settings_are_a_warning(changes: Any) -> None:
    all_findings = findings(replace(QUIET, before=under(**changes), drift=SHIFTED))
    assert FAR in [sentence(finding) for finding in all_findings if finding.is_warning]
    assert f"{SINCE}." in map(sentence, all_findings)


@pytest.mark.parametrize("changes", [{"cache_size": 9}, {"profiles": {"code": {"novelty": 1}}}])
def test_each_setting_that_moves_scores_makes_a_shift_no_trend(changes: Any) -> None:
    all_findings = findings(replace(QUIET, before=under(**changes), drift=SHIFTED))
    assert {FAR, NO_TREND} <= {
        sentence(finding) for finding in all_findings if not finding.is_warning
    }


def test_a_cache_moves_no_score_where_there_is_no_encoder() -> None:
    kept = {"settings": SETTINGS | {"embedder": "none"}}
    before = under(embedder="none", cache_size=9)
    all_findings = findings(
        replace(QUIET, run=replace(RUN, published=kept), before=before, drift=SHIFTED)
    )
    assert f"{SINCE}." in map(sentence, all_findings)


def test_dates_of_weights_are_reported_and_the_score_over_time_is_no_trend() -> None:
    noon = datetime(2026, 1, 9, 12, tzinfo=UTC)
    dates = [
        ("a*b", noon),
        *((f"d{day}", datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 7)),
    ]
    weights = pl.DataFrame(dates, schema=WEIGHTS, orient="row")
    all_findings = findings(replace(QUIET, weights=weights, over_time=OVER_WEEKS))
    assert (
        "Weights change with time, and scores before and after do not compare: those of a*b from "
        "2026-01-09T12:00:00+00:00, d1 from 2026-01-01, d2 from 2026-01-02, d3 from 2026-01-03, d4 "
        "from 2026-01-04, and 2 more."
    ) in map(sentence, all_findings)
    change = next(finding for finding in all_findings if "Weights change" in sentence(finding))
    assert not any("*" in part for part in change.parts if not isinstance(part, Untrusted))
    week = "In the week from 2026-01-22, the last full week with 30 traces or more"
    assert [
        sentence(finding) for finding in all_findings if "last full week" in sentence(finding)
    ] == [f"{week}, the mean novelty was 0.300 (before: 0.500)."]


def test_one_trace_more_or_less_is_one_trace() -> None:
    for more in (1, -1):
        drift = rows(DRIFT, (None, 100, 100 + more, 0.0, 0.0, 0.0))
        assert sentences(drift=drift) == [
            f"Since the previous run: {more:+} trace; mean score +0.0000, median +0.0000."
        ]
    domains = rows(DOMAINS, (None, 10, 1, *ALL[3:]))
    [first, *_] = findings(replace(QUIET, domains=domains))
    assert sentence(first).endswith("; 1 (10.0%) of them reaches the threshold of 0.75.")


def times(*records: tuple[str, int, str, str]) -> pl.DataFrame:
    parted = [(k, n, date.fromisoformat(a), date.fromisoformat(b)) for k, n, a, b in records]
    return pl.DataFrame([USUAL, *parted], schema=TIMES, orient="row")


def test_times_that_can_hardly_be_are_warnings() -> None:
    odd = times(
        ("before", 1, "1970-01-01", "1970-01-01"),
        ("after", 1200, "2025-01-01", "2025-02-01"),
        ("future", 2, "2031-01-01", "2031-01-01"),
    )
    gaps = rows(["first_day", "last_day", "days"], ("2026-01-05", "2026-01-12", 8))
    all_findings = findings(replace(QUIET, date_outliers=odd, gaps=gaps))
    assert [sentence(finding) for finding in all_findings if finding.is_warning] == [
        "1 trace is dated ten years or more before nearly all others, on 1970-01-01.",
        (
            "1,200 traces are dated ten years or more after nearly all others, from 2025-01-01 to "
            "2025-02-01."
        ),
        "2 traces are dated in the future, on 2031-01-01: the scores are of 2026-02-03.",
    ]
    assert (
        "Apart from the times warned of, the longest time without a trace is 8 days, from "
        "2026-01-05 to 2026-01-12."
    ) in map(sentence, all_findings)


def test_what_a_chart_leaves_out_and_where_weights_change_is_in_its_caption() -> None:
    panels = {panel.name: panel for panel in PANELS}

    def notes(name: str, **changes: Any) -> str:
        panel, data = panels[name], replace(QUIET, **changes)
        return panel.caption(data).removeprefix(panel.about).strip()

    odd = times(
        ("before", 2, "1970-01-01", "1970-01-01"), ("future", 1, "2031-01-01", "2031-01-01")
    )
    left_out = "Left out: 3 traces, of times that are warned of above."
    dated = pl.DataFrame([("code", RUN.started_at)], schema=WEIGHTS, orient="row")
    assert notes("volume", date_outliers=odd, weights=dated) == left_out
    assert notes("over_time", date_outliers=odd) == left_out
    assert notes("over_time", weights=dated) == (
        "Weights change within these times: how the score changes is no trend."
    )
    assert notes("drift", before=RUN, others="3 others") == "3 others are left out."
    few = rows(DRIFT, ("few", 199, 300, 0.0, 0.0, None))
    assert notes("drift", drift=few) == "There is no stability index of fewer than 200 traces."
    single = pl.DataFrame({"domain": ["one"], "stddev": [None]})
    assert notes("dimensions", dimensions=single) == "A single trace has no deviation."
    assert not any(notes(name) for name in panels)


def test_domains_that_came_or_went_since_the_previous_run_are_named() -> None:
    turnover = rows(TURNOVER, ("gone\x1b", False), *((f"d{number}", True) for number in range(7)))
    assert sentences(domain_changes=turnover) == [
        "New since the previous run: d0, d1, d2, d3, d4 and 2 more.",
        r"Gone since the previous run: gone\x1b.",
    ]


def test_of_many_that_shifted_the_three_that_did_most_are_named() -> None:
    drift = rows(
        DRIFT,
        (None, 1800, 2900, 0.0, 0.0, 0.0),
        *((f"d{number}", 200, 200, 0.0, 0.0, number / 10) for number in range(9)),
    )
    domains = by_domain(*((f"d{number}", 200, 0, 0.4) for number in range(9)))
    since = "Since the previous run: +1,100 traces; mean score +0.0000, median +0.0000."
    shifted = ", ".join(
        f"d{number} greatly (population stability index 0.{number}0)" for number in (8, 7, 6)
    )
    assert sentences(drift=drift, domains=domains) == [
        f"Domains whose scores shifted: {shifted}, and 4 more.",
        since,
    ]


def test_what_is_refused_is_reported_by_reason_over_all_domains() -> None:
    rejects = rows(
        ["code", "domain", "rejected"],
        ("no_steps", None, 1000),
        ("no_steps", "law", 234),
        ("bad_confidence", "law", 3),
        ("missing_id", None, 3),
    )
    counted = "no_steps 1,234, bad_confidence 3, missing_id 3"
    wanted = f"Rejected rows and unreadable files, by reason: {counted}."
    assert [sentence(finding) for finding in findings(replace(QUIET, rejects=rejects))] == [
        EXTENT,
        wanted,
    ]
    assert sentences(EMPTY, rejects=rejects) == ["No trace is scored yet.", wanted]


def test_unreadable_files_are_a_warning_that_names_the_first() -> None:
    run = counts(unreadable_files=["a\n.parquet", "b.parquet"])
    [first] = findings(replace(QUIET, run=run))[:-2]
    assert first.is_warning
    assert first.parts == ("2 files are unreadable, such as ", r"a\n.parquet", ".")
    assert isinstance(first.parts[1], Untrusted)
    assert sentences(run=counts(unreadable_files=["a"])) == ["1 file is unreadable: a."]


def test_the_longest_gap_is_reported_if_it_is_of_a_week_or_more() -> None:
    names = ["first_day", "last_day", "days"]
    long, short = ("2026-01-05", "2029-09-30", 1365), ("2026-01-01", "2026-01-06", 6)
    assert sentences(gaps=rows(names, short)) == []
    assert sentences(gaps=rows(names, long, short)) == [
        "The longest time without a trace is 1,365 days, from 2026-01-05 to 2029-09-30."
    ]


def test_all_that_comes_from_the_archive_is_marked_as_untrusted() -> None:
    label, other = "**label**", "__other__"
    data = replace(
        QUIET,
        labels=[label],
        failed=failing("run-3", label),
        run=counts(unreadable_files=[label]),
        domains=by_domain((label, 100, 90, 0.9), (other, 100, 0, 0.1)),
        overrides=rows(OVERRIDES, (label, "single thought", 50, 0.5, -0.5, -0.25)),
        drift=rows(DRIFT, (None, 9, 9, 0.0, 0.0, 0.0), (label, 999, 999, 0.1, 0.1, 0.3)),
        domain_changes=rows(TURNOVER, (label, True), (other, False)),
    )
    all_findings = findings(data)
    assert sum(label in sentence(finding) for finding in all_findings) == 7
    parts = [part for finding in all_findings for part in finding.parts]
    assert {part for part in parts if isinstance(part, Untrusted)} == {
        *(label, other, "by ana"),
    }
    assert not any(
        sign in part for part in parts if not isinstance(part, Untrusted) for sign in "*_"
    )


class Elements(HTMLParser):
    """What HTML holds: its elements, the texts of its code, how many cells each row has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.codes: list[str] = []
        self.cells: list[int] = []
        self.is_code = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        self.is_code = tag == "code"
        if tag == "tr":
            self.cells.append(0)
        elif tag in ("th", "td"):
            self.cells[-1] += 1
        elif tag == "code":
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self.is_code = self.is_code and tag != "code"

    def handle_data(self, data: str) -> None:
        if self.is_code:
            self.codes[-1] += data


def rendered(text: str) -> Elements:
    """Markdown with tables, raw HTML and, where it is installed, whatever looks like a link."""
    if find_spec("linkify_it"):
        reader = MarkdownIt("gfm-like", {"html": True, "linkify": True})
    else:
        reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return Elements(reader.render(text))


@pytest.mark.telling
@pytest.mark.slow
def test_hostile_names_stand_in_markdown_as_text_and_no_trace_is_named(tmp_path: Path) -> None:
    traces = [
        trace(id=f"kp:trace:{number}-{copy}", task_domain=name, confidence=number / 9)
        for number, name in enumerate(HOSTILE)
        for copy in range(30)
    ]
    refused = trace(id="kp:trace:refused", task_domain="\n\n<img src=x>", steps=[])
    broken = tmp_path / "archive" / "`![](x)|\n<script>.parquet"
    write_jsonl(tmp_path / "archive" / "a.jsonl", [*traces, refused])
    broken.write_bytes(b"PAR1 and no more")
    config = RescoreConfig(
        archive=(str(tmp_path / "archive"),),
        warehouse=tmp_path / "warehouse",
        embedder="hashing",
        max_reject_share=0.5,
    )
    rescore_archive(config)
    (tmp_path / "archive" / "b.jsonl").write_bytes(b"no more\n" * 999)
    with pytest.raises(ArchiveError):
        rescore_archive(config)
    text = report(tmp_path / "warehouse", "markdown")
    elements = rendered(text)
    assert set(elements.names) == ALLOWED | TABLE
    assert {name for name, _ in elements.attributes} <= {"style"}  # to which side a column goes
    assert elements.cells == [8] * (len(HOSTILE) + 2)
    assert set(HOSTILE.values()) <= set(elements.codes)
    assert any(r"\x60![](x)\x7c\n<script>.parquet" in code for code in elements.codes)
    assert "kp:trace" not in text
    assert all(printable(line) == line for line in text.split("\n"))


def test_markdown_has_the_numbers_of_the_domains_and_of_the_run() -> None:
    data = replace(QUIET, domains=rows(DOMAINS, ALL, ("law", 1200, 30, 0.21, 0.2, 0.05, 0.95)))
    bars, none = "▁" * 5 + "█" + "▁" * 14, "▁" * 20
    assert markdown(data) == (
        "# Scores of reasoning traces\n\n"
        "Run run-2 by `ana`, ended 2026-02-03 04:06 UTC.\n\n"
        f"- {EXTENT}\n- {ALL_ACCEPTED}\n\n"
        "| domain | traces | mean | median | worth sharing | 5% | 95% | scores 0 to 1 |\n"
        "| --- | --: | --: | --: | --: | --: | --: | --- |\n"
        f"| all domains | 1,300 | 0.413 | 0.500 | 10.0% | 0.100 | 0.900 | `{bars}` |\n"
        f"| `law` | 1,200 | 0.210 | 0.200 | 2.5% | 0.050 | 0.950 | `{none}` |\n\n"
        f"The run: files 1, rows 1,300, accepted 1,300, {', '.join(f'{name} 0' for name in NONE)}."
        "\n\n"
        "Seconds: plan 0.26, embed 1.00.\n"
    )


def test_markdown_without_a_run_has_no_table_and_marks_a_warning() -> None:
    assert markdown(EMPTY) == "# Scores of reasoning traces\n\n- No trace is scored yet.\n"
    failed = failing("run-1", "the disk | is `full`")
    assert markdown(replace(EMPTY, failed=failed)) == (
        "# Scores of reasoning traces\n\n"
        r"- **Warning:** The last run, run-1 `by ana`, failed: `the disk \x7c is \x60full\x60`."
        "\n- No trace is scored yet.\n"
    )


@given(st.text(min_size=1) | st.text("`|\\<>[]()!*_~&#: \n\t", min_size=1))
def test_any_name_is_one_code_element_in_a_paragraph_and_in_a_cell(text: str) -> None:
    name = shortened(text, 40)
    written = name.replace("`", r"\x60").replace("|", r"\x7c")
    if written.strip(" ") and written[0] == written[-1] == " ":
        written = written[1:-1]  # a code span gives away one space on either side
    paragraph = rendered(code(name))
    assert (paragraph.names, paragraph.codes) == (["p", "code"], [written])
    table = rendered(f"| {code('head')} | b |\n| --- | --- |\n| {code(name)} | {code(name)} |")
    assert table.codes == ["head", written, written]
    assert table.cells == [2, 2]
    assert set(table.names) == TABLE | {"code"}
