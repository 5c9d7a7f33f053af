"""What the report says about runs, the archive and its limits."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from kp_batch.report.data import ReportData, gather
from kp_batch.report.finding import Untrusted
from kp_batch.report.labels import ALL
from kp_batch.report.notices import Notice, notices
from kp_batch.warehouse.audits import AuditResult
from tests.support.make import drawn_scores
from tests.support.make.drawn_scores import Drawn, made, opened, write
from tests.support.make.report_data import (
    EMPTY,
    FINGERPRINTS,
    FORMULAS,
    QUIET,
    RUN,
    SETTINGS,
    TOTALS,
    Gathered,
    counting,
    failing,
    of_domains,
    rows,
    under,
)
from tests.support.oracle.notices import (
    ALL_ACCEPTED,
    FAR_OFF,
    NEAR,
    OURS,
    PLACEHOLDER,
    REFUSED,
    expected_notices,
)
from tests.support.oracle.reports import Report

NONE_SCORED = "No trace is scored yet."


def noticed(data: ReportData = QUIET, **changes: Any) -> list[Notice]:
    """The notices, without that all is accepted."""
    told = notices(replace(data, **changes))
    return [notice for notice in told if notice.sentence != ALL_ACCEPTED]


def sentences(data: ReportData = QUIET, **changes: Any) -> list[str]:
    return [notice.sentence for notice in noticed(data, **changes)]


def warned(told: Iterable[Notice]) -> list[str]:
    return [notice.sentence for notice in told if notice.is_warning]


def test_where_there_is_nothing_to_notice_that_alone_is_said() -> None:
    assert notices(QUIET) == [Notice("none_rejected", (ALL_ACCEPTED,))]


def test_without_a_trace_that_is_said() -> None:
    assert notices(EMPTY) == [Notice("no_traces", (NONE_SCORED,))]
    rejects = rows("rejects", ("no_steps", 9))
    assert sentences(EMPTY, run=RUN, rejects=rejects) == [
        NONE_SCORED,
        f"{REFUSED}no_steps 9.",
    ]


def test_a_failure_comes_first_as_a_warning_with_its_reason() -> None:
    failed = replace(failing("run-3", "no\nspace \x1b[31mleft"), note="*try* it")
    [first, *others] = notices(replace(QUIET, failed=failed))
    assert first.code == "failed_run"
    assert first.is_warning
    assert first.sentence == (
        r"The last run, run-3 by ana: *try* it, failed: no\nspace \x1b[31mleft. "
        "The scores are those of the last successful run."
    )
    assert [part for part in first.parts if isinstance(part, Untrusted)] == [
        "by ana: *try* it",
        r"no\nspace \x1b[31mleft",
    ]
    assert others == notices(QUIET)


def test_a_failure_before_any_run_succeeded_speaks_of_no_scores() -> None:
    assert sentences(EMPTY, failed=failing("run-1", None)) == [
        "The last run, run-1 by ana, failed: no reason was noted.",
        NONE_SCORED,
    ]


def test_results_of_the_audits_of_the_last_run_are_reported() -> None:
    passes = AuditResult("a", "error", 0, allowed=False)
    allowed = AuditResult("b", "error", 1, allowed=True)
    fails = AuditResult("c", "error", 1200, allowed=False)
    warns = AuditResult("_d_", "warn", 2, allowed=False)
    done = replace(RUN, audits=(passes, allowed))
    [notice] = noticed(run=done)
    assert notice.sentence == "Audits of the last run: 1 of 2 pass, b allowed (1 row)."
    assert not notice.is_warning
    failed = replace(failing("run-3", "x"), audits=(passes, warns, fails))
    [_, notice] = noticed(run=done, failed=failed)
    assert notice.sentence == (
        "Audits of the last run: 1 of 3 pass, _d_ warns (2 rows), c fails (1,200 rows)."
    )
    assert notice.is_warning
    assert [part for part in notice.parts if isinstance(part, Untrusted)] == ["_d_", "c"]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ((0, 1, None, None), [f"1 trace is {PLACEHOLDER}"]),
        (
            (7, 1200, -0.001, 0.0099),
            [f"1,200 traces are {PLACEHOLDER}", OURS.format("7 traces", "0.0099", NEAR)],
        ),
        ((7, 0, 0.0, 0.00009), [OURS.format("7 traces", "less than 0.0001", NEAR)]),
        ((1, 0, 0.0, 0.0101), [OURS.format("1 trace", "0.0101", FAR_OFF)]),
    ],
)
def test_recorded_scores_are_compared_and_a_large_difference_is_a_warning(
    row: tuple[Any, ...], wanted: list[str]
) -> None:
    told = noticed(recorded=rows("recorded", row))
    assert [notice.sentence for notice in told] == wanted
    assert len(warned(told)) == (row[3] == 0.0101)


def test_drift_is_reported_and_a_large_one_is_a_warning() -> None:
    chance = 9 * (1 / 200 + 1 / 300)
    drift = rows(
        "drift",
        (ALL, 1100, 1000, -0.01234, 0.02, 0.5),
        ("code", 200, 300, 0.0, 0.0, chance + 0.251),
        ("law", 200, 300, 0.0, 0.0, chance + 0.249),
        ("before", 199, 300, 0.0, 0.0, None),
        ("now", 300, 199, 0.0, 0.0, None),
        ("art", 200, 300, 0.0, 0.0, chance + 0.101),
        ("chess", 200, 300, 0.0, 0.0, chance + 0.099),
    )
    domains = of_domains(code=300, law=300, before=300, now=199, art=300, chess=300)
    told = noticed(drift=drift, **domains)
    shifted = (
        "Of the 4 domains with 200 traces or more in both runs, these shifted: "
        "code greatly (population stability index 0.33), "
        "law moderately (population stability index 0.32), "
        "art moderately (population stability index 0.18)."
    )
    assert [notice.sentence for notice in told] == [
        shifted,
        "Since the previous run: -100 traces; mean score -0.0123, median +0.0200.",
    ]
    assert warned(told) == [shifted]


@pytest.mark.parametrize(
    ("code", "index_of_code", "which"),
    [
        (200, 0.0, "2 largest domains"),
        (200, None, "only largest domain"),
        (199, None, "only domain"),
    ],
)
def test_where_the_others_may_have_enough_traces_the_largest_domains_are_spoken_of(
    code: int, index_of_code: float | None, which: str
) -> None:
    shifts = ("law", 200, 200, 0.0, 0.0, 0.9), ("code", 200, code, 0.0, 0.0, index_of_code)
    drift = rows("drift", (ALL, 999, 999, 0.0, 0.0, 0.0), *shifts)
    domains = of_domains(law=200, code=code) | {"labels": ["law", "code", "7 others"]}
    [first, *_] = sentences(drift=drift, **domains, totals=TOTALS | {"domains": 9})
    index = "law greatly (population stability index 0.90)"
    wanted = f"Of the {which} with 200 traces or more in both runs, these shifted: {index}."
    assert first == wanted


SHIFTED = rows("drift", (ALL, 900, 900, 0.1, 0.1, 1.0), ("code", 900, 900, 0.1, 0.1, 1.0))
FAR = "Domains whose scores shifted: code greatly (population stability index 1.00)."
SINCE = "Since the previous run: the same number of traces; mean score +0.1000, median +0.1000"
NO_TREND = f"{SINCE}, but this is not a trend, because settings or formulas changed."


def test_runs_that_do_not_compare_are_a_warning_and_their_drift_is_none() -> None:
    before = replace(
        RUN,
        versions=FORMULAS | {"replay": 0},
        fingerprints=FINGERPRINTS | {"encoder_id": {"hashing-1": 9}},
    )
    told = noticed(before=before, drift=SHIFTED)
    assert warned(told) == [
        (
            "The scores of the last two runs are not comparable, because this changed: formula of "
            "replay 0 → 1; encoder hashing-1 → minilm-1."
        )
    ]
    assert {FAR, NO_TREND} <= {notice.sentence for notice in told}


def test_settings_that_changed_are_named_and_their_drift_is_no_warning() -> None:
    changes = {"cache_size": 20, "ttl": "1d", "threshold": 0.5}
    told = noticed(before=under(**changes), drift=SHIFTED)
    assert [notice.sentence for notice in told] == [
        NO_TREND,
        FAR,
        (
            "Settings changed since the previous run: cache size 20 → 1000; ttl 1d → none; "
            "threshold 0.5 → 0.75."
        ),
    ]
    assert warned(told) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"threshold": 0.5, "trace_text": False, "audits": {"a": {"sql": "x"}}},  # move no score
        {"profiles": SETTINGS["profiles"] | {"misspelt": {"novelty": 1}}},  # which no score bears
    ],
)
def test_scores_that_shift_under_the_same_settings_are_a_warning(changes: Any) -> None:
    told = noticed(before=under(**changes), drift=SHIFTED)
    assert warned(told) == [FAR]
    assert f"{SINCE}." in [notice.sentence for notice in told]


@pytest.mark.parametrize("changes", [{"cache_size": 9}, {"profiles": {"code": {"novelty": 1}}}])
def test_each_setting_that_moves_scores_makes_a_shift_no_trend(changes: Any) -> None:
    told = noticed(before=under(**changes), drift=SHIFTED)
    assert warned(told) == []
    assert {FAR, NO_TREND} <= {notice.sentence for notice in told}


def test_a_cache_moves_no_score_where_there_is_no_encoder() -> None:
    run = replace(RUN, published={"settings": {**SETTINGS, "embedder": "none"}})
    before = under(embedder="none", cache_size=9)
    assert f"{SINCE}." in sentences(run=run, before=before, drift=SHIFTED)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ((100, 101, 0.0, -1e-15), "+1 trace; mean score the same, median the same."),
        ((1100, 99, -0.00004, 0.00011), "-1,001 traces; mean score changed by less than 0.0001, "),
        ((100, 99, 0.0, 0.0), "-1 trace; "),
    ],
)
def test_a_small_value_is_written_as_small_and_zero_as_zero(
    row: tuple[int, int, float, float], wanted: str
) -> None:
    [told] = sentences(drift=rows("drift", (ALL, *row, 0.0)))
    assert told.startswith(f"Since the previous run: {wanted}")


def test_dates_of_weights_are_reported() -> None:
    noon = datetime(2026, 1, 9, 12, tzinfo=UTC)
    dates = [
        ("a*b", noon),
        *((f"d{day}", datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 7)),
    ]
    [notice] = noticed(weights=rows("weights", *dates))
    assert notice.sentence == (
        "Weights changed at these times, so scores before and after are not comparable: a*b "
        "from 2026-01-09T12:00:00+00:00, d1 from 2026-01-01, d2 from 2026-01-02, d3 from "
        "2026-01-03, d4 from 2026-01-04, and 2 more."
    )
    assert not any("*" in part for part in notice.parts if not isinstance(part, Untrusted))


def test_times_that_can_hardly_be_are_warnings() -> None:
    before = ("before", 1, date(1970, 1, 1), date(1970, 1, 1))
    after = ("after", 1200, date(2025, 1, 1), date(2025, 2, 1))
    future = ("future", 2, date(2031, 1, 1), date(2031, 1, 1))
    told = noticed(implausible_dates=rows("implausible_dates", before, after))
    assert warned(told) == [notice.sentence for notice in told]
    assert warned(told) == [
        "1 trace is dated at least ten years before nearly all other traces, on 1970-01-01.",
        (
            "1,200 traces are dated at least ten years after nearly all other traces, from "
            "2025-01-01 to 2025-02-01."
        ),
    ]
    told = noticed(implausible_dates=rows("implausible_dates", before, future))
    assert warned(told) == [
        "2 traces are dated in the future, on 2031-01-01: the last run ended on 2026-02-03.",
        (
            "1 trace is dated at least ten years before nearly all traces with past dates, on "
            "1970-01-01."
        ),
    ]


def test_domains_that_entered_or_exited_since_the_previous_run_are_named() -> None:
    turnover = rows(
        "entered_and_exited", ("gone\x1b", False), *((f"d{number}", True) for number in range(7))
    )
    assert [(notice.code, notice.sentence) for notice in noticed(entered_and_exited=turnover)] == [
        ("new_domains", "New domains since the previous run: d0, d1, d2, d3, d4 and 2 more."),
        ("gone_domains", r"Domains that disappeared since the previous run: gone\x1b."),
    ]


def test_of_many_that_shifted_the_three_that_did_most_are_named() -> None:
    drift = rows(
        "drift",
        (ALL, 1800, 2900, 0.0, 0.0, 0.0),
        *((f"d{number}", 200, 200, 0.0, 0.0, number / 10) for number in range(9)),
    )
    shifted = ", ".join(
        f"d{number} greatly (population stability index 0.{number}0)" for number in (8, 7, 6)
    )
    [first, *_] = sentences(drift=drift, **of_domains(**{f"d{number}": 200 for number in range(9)}))
    assert first == f"Domains whose scores shifted: {shifted}, and 4 more."


def test_refusals_are_reported_by_reason() -> None:
    rejects = rows("rejects", ("no_steps", 1234), ("missing_id", 3))
    wanted = f"{REFUSED}no_steps 1,234, missing_id 3."
    assert [notice.sentence for notice in notices(replace(QUIET, rejects=rejects))] == [wanted]


def test_unreadable_files_are_a_warning_that_names_the_first() -> None:
    run = counting(unreadable_files=["a\n.parquet", "b.parquet"])
    [notice] = notices(replace(QUIET, run=run))
    assert notice.is_warning
    assert notice.parts == ("2 files are unreadable, such as ", r"a\n.parquet", ".")
    assert isinstance(notice.parts[1], Untrusted)
    run = counting(unreadable_files=["a"])
    assert sentences(run=run) == ["1 file is unreadable: a."]


def test_the_longest_gap_is_reported_if_it_is_a_week_or_longer() -> None:
    assert sentences(gap=rows("gap", ("2026-01-02", "2026-01-07", 6))) == []
    assert sentences(gap=rows("gap", ("2026-01-02", "2026-01-08", 7))) == [
        (
            "Between 2026-01-01 and 2026-02-01, the longest time without traces is 7 days, from "
            "2026-01-02 to 2026-01-08."
        )
    ]


def test_the_domains_without_a_label_of_their_own_are_counted() -> None:
    domains = of_domains(law=900, code=800) | {"labels": ["law", "code", "1,198 small ones"]}
    [notice] = noticed(**domains, totals=TOTALS | {"domains": 1200})
    assert isinstance(notice.parts[1], Untrusted)
    assert notice.sentence == (
        "The 1,198 smallest of 1,200 domains are shown together, as 1,198 small ones "
        "(FROM means_by('task_domain') lists each)."
    )


def test_all_that_comes_from_the_archive_is_marked_as_untrusted() -> None:
    label, other = "**label**", "__other__"
    told = noticed(
        failed=failing("run-3", label),
        run=counting(unreadable_files=[label]),
        drift=rows("drift", (ALL, 9, 9, 0.0, 0.0, 0.0), (label, 999, 999, 0.1, 0.1, 0.3)),
        entered_and_exited=rows("entered_and_exited", (label, True), (other, False)),
        weights=rows("weights", (other, RUN.started_at)),
        **of_domains(**{label: 999, other: 99}),
    )
    assert sum(label in notice.sentence for notice in told) == 4
    parts = [part for notice in told for part in notice.parts]
    assert {part for part in parts if isinstance(part, Untrusted)} == {label, other, "by ana"}
    assert not any(
        sign in part for part in parts if not isinstance(part, Untrusted) for sign in ("**", "__")
    )


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_what_is_noticed_of_a_drawn_archive_is_true(drawn_report: Gathered, seed: int) -> None:
    drawn, data = drawn_report(seed)
    told = notices(data)
    wanted = [*expected_notices(Report(drawn.archive))]
    found = [notice for notice in told if notice.code not in ("incomparable", "shifted")]
    assert sorted((notice.code, notice.sentence) for notice in found) == sorted(wanted)
    assert any(notice.code == "incomparable" for notice in told) == (not _compare(drawn))


def _compare(drawn: Drawn) -> bool:
    before, last = (json.loads(run["fingerprints"]) for run in drawn.tables["runs"])
    return before["encoder_id"].keys() == last["encoder_id"].keys()


def sentences_of(folder: Path, drawn: Drawn) -> list[str]:
    write(drawn, folder)
    with opened(folder) as connection:
        return [notice.sentence for notice in notices(gather(connection))]


@pytest.mark.slow
def test_of_one_trace_and_of_none_nothing_false_is_said(folder: Path) -> None:
    one = drawn_scores.row(1, recorded_score=None)
    assert sentences_of(folder, made([one], [one])) == [
        "Since the previous run: the same number of traces; mean score the same, median the same.",
        ALL_ACCEPTED,
    ]
    assert sentences_of(folder, made([one])) == [
        f"New domains since the previous run: {one['task_domain']}.",
        ALL_ACCEPTED,
    ]
    assert sentences_of(folder, made([], [one], reasons=[["no_steps"]])) == [
        NONE_SCORED,
        f"Domains that disappeared since the previous run: {one['task_domain']}.",
        f"{REFUSED}no_steps 1.",
    ]
    assert sentences_of(folder, made([])) == [NONE_SCORED, ALL_ACCEPTED]
