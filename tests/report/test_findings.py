"""Every finding is true, worth its place, and comes from a question that has its numbers."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from kp_batch.report import findings as module
from kp_batch.report import parts as parts_module
from kp_batch.report.data import ReportData, gather
from kp_batch.report.finding import Finding, Untrusted, clearly, of_scores, percent, query
from kp_batch.report.findings import findings
from kp_batch.report.kinds.composition import driver, override
from kp_batch.report.kinds.novelty import near_repeats, warming_up
from kp_batch.report.kinds.outcomes import confidence, success
from kp_batch.report.kinds.trends import domain_moved, mean_change
from kp_batch.report.kinds.units import paired, ranking
from kp_batch.report.labels import ALL
from kp_batch.report.parts import with_parts
from tests.bench.findings import chance_counts, planted_counts
from tests.support.make.drawn_scores import draw, opened, write
from tests.support.make.odd_scores import ODD, ODD_NAMES, make
from tests.support.make.planted import build_catalog
from tests.support.make.report_data import EMPTY, QUIET, under
from tests.support.oracle.answers import ask_records, is_near
from tests.support.oracle.findings import KINDS, assert_findings, chosen, expected_findings
from tests.support.oracle.reports import Report
from tests.support.oracle.sentences import assert_answered


def gathered(folder: Path) -> ReportData:
    with opened(folder) as connection:
        return with_parts(connection, gather(connection))


@pytest.fixture(scope="module")
def data_of(folder: Path) -> Callable[[str], ReportData]:
    """The data of an archive by its name, gathered once."""

    @cache
    def data_of(name: str) -> ReportData:
        write(ARCHIVES[name](), folder)
        return gathered(folder)

    return data_of


def all_of(data: ReportData) -> list[Finding]:
    return [*chain(*(findings(data, scope) for scope in data.scopes))]


ARCHIVES: dict[str, Callable[[], Any]] = {name: lambda name=name: make(name) for name in ODD}
ARCHIVES |= {f"seed {seed}": lambda seed=seed: draw(seed) for seed in range(6)}
# Odd ones that between them have every finding, and what its sentence may add.
TELLING = (
    *("as planted", "one trace", "ties", "odd agents", "ranked by tools"),
    *("dated weights", "all moved", "simple ones succeed", "overrides"),
)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.torture] if name in {*ODD} - {*TELLING} else [])
        for name in ARCHIVES
    ],
)
def test_every_finding_is_one_that_plain_loops_make_and_its_question_answers(
    folder: Path, data_of: Callable[[str], ReportData], name: str
) -> None:
    archive, data = ARCHIVES[name](), data_of(name)
    write(archive, folder)
    report = Report(archive.archive)
    for scope in data.scopes:
        assert_findings(findings(data, scope), expected_findings(report, scope))
    with opened(folder) as connection:
        for finding in all_of(data):
            assert_answered(connection, finding)


@pytest.mark.telling
@pytest.mark.slow
def test_pages_of_planted_archives_say_what_is_planted_and_of_others_nothing(
    tmp_path: Path,
) -> None:
    """Of five archives; `make torture` draws a hundred."""
    catalog = build_catalog(tmp_path)
    told_of = (*planted_counts(catalog, 5), *chance_counts(catalog, 5))
    assert [str(each) for each in told_of if not each.is_kept] == []


@pytest.mark.slow
def test_the_odd_archives_have_findings_of_every_code(
    data_of: Callable[[str], ReportData],
) -> None:
    codes = {finding.code for name in TELLING for finding in all_of(data_of(name))}
    assert codes == {code for kind in KINDS for code in kind}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["as planted", "ties", "dated weights", "odd domains", "seed 0"])
def test_parts_and_cache_shares_of_the_last_changes_are_those_of_the_question(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last(data: ReportData, scope: str) -> list[Any]:
        of_last = data.changes_of(scope).filter(begins=data.changes["begins"].max())
        return of_last.drop_nulls("change").to_dicts()

    monkeypatch.setattr(parts_module, "clear_changes", last)
    monkeypatch.setattr(parts_module, "is_by_novelty", lambda _: True)
    archive = draw(0) if name == "seed 0" else make(name)
    rows = archive.tables["scores"]
    if name == "ties":  # in one cache, of which not all is read
        rows = [row for row in rows if row["cache_group"] == "fills"]
    write(replace(archive, tables={**archive.tables, "scores": rows}), folder)
    with opened(folder) as connection:
        data = with_parts(connection, gather(connection))
        measures = "['score', 'cache_share_of_domain']"
        found = ask_records(
            connection, f"FROM changes_by('task_domain', '{data.period}', {measures})"
        )
    wanted = {(row["task_domain"], row["begins"], row["measure"]): row for row in found}
    changes = {key: own for key, own in data.parts.items() if key[0] in data.names and len(key) < 3}
    assert changes
    for (label, begins), own in changes.items():
        of_score, of_share = (
            wanted[data.names[str(label)], begins, measure]
            for measure in ("score", "cache_share_of_domain")
        )
        assert is_near(sum(of_score["parts"].values()), of_score["change"])
        shares = {"cache_share": of_share["mean"], "cache_share_before": of_share["mean_before"]}
        for part, value in {**of_score["parts"], **shares}.items():
            assert is_near(own[part], value), (label, begins, part)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["as planted", "odd agents", "all moved", "overrides", "two-sided"]
)
def test_nothing_is_said_of_twenty_traces(folder: Path, name: str) -> None:
    archive = make(name)
    last = sorted(archive.tables["scores"], key=itemgetter("created_at"))[-20:]
    write(replace(archive, tables={**archive.tables, "scores": last}), folder)
    assert all_of(gathered(folder)) == []


@pytest.mark.slow
def test_a_change_across_other_weights_says_how_much_of_it_is_theirs(folder: Path) -> None:
    write(make("dated weights"), folder)
    [moved] = domain_moved(gathered(folder), "code")
    assert f"{moved.numbers['from_weights']:+.3f} from other weights" in moved.sentence
    assert moved.numbers["from_weights"] < -0.01


@pytest.mark.process
@pytest.mark.slow
def test_a_shell_leaves_every_question_as_it_is(folder: Path) -> None:
    write(make("odd agents"), folder)
    questions = [finding.question for finding in all_of(gathered(folder))]
    script = "printf '%s\\n' " + " ".join(f'"{question}"' for question in questions)
    bash = shutil.which("bash") or "bash"
    printed = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == questions


def test_only_a_name_that_a_command_line_can_hold_is_in_a_question() -> None:
    plain = {name: query("FROM t", unit=name) for name in ("code", "gpt-4/react", "a b", "é@1.5")}
    assert plain == {name: f"FROM t WHERE unit = '{name}'" for name in plain}
    odd = [name for name in ODD_NAMES if not name.replace("-", "").isalnum() or len(name) > 40]
    for name in (*odd, "a'b", 'a"b', "a$b", "a`b", "a\\b", "a!b", "", "a ", " a", "a\n"):
        assert query("FROM t", unit=name) == "FROM t", name
    data = replace(QUIET, names={"own": 'a"b'})
    assert of_scores(data, "own", "n") == "SELECT task_domain, n FROM scores GROUP BY ALL"


@pytest.mark.parametrize("degrees", [4, 9, 30, 1e9])
@pytest.mark.parametrize("among", [1, 4, 16, 60])
def test_of_many_that_are_compared_one_has_to_be_as_far_off_as_bonferroni_asks(
    among: int, degrees: float
) -> None:
    from scipy import stats

    far = stats.t.ppf(1 - 0.025 / among, degrees) / stats.t.ppf(0.975, degrees)
    assert clearly(among, degrees + 1) == pytest.approx(far, rel=0.06)


def test_shares_tell_some_from_none_and_most_from_all() -> None:
    shares = {
        0: "0%",
        1: "100%",
        0.5: "50%",
        0.004: "0.4%",
        0.9996: "99.96%",
        0.00004: "under 0.01%",
    }
    shares |= {0.99999: "over 99.99%", 0.0051: "1%", 0.995: "99.5%"}
    assert {share: percent(share) for share in shares} == shares


def test_of_an_archive_without_traces_nothing_is_said() -> None:
    assert findings(EMPTY, ALL) == []


def test_of_domains_that_share_a_label_nothing_is_said() -> None:
    data = replace(QUIET, labels=["code", "2 others"])
    assert data.others == "2 others"
    assert findings(data, "2 others") == []


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_is_shown_before_a_second_of_any_the_heaviest_first(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, kinds, heaviest = Random(seed), [], dict[str, float]()
    for kind in KINDS:
        found = [
            Finding(code, (f"{code} {number}.",), "", {}, chance.randint(1, 99), chance.random())
            for code in kind
            for number in range(chance.randrange(4))
        ]
        for each in found:
            heaviest[each.code] = max(each.weight, heaviest.get(each.code, 0))
        kinds.append((lambda _, __, found=found: found,))
    monkeypatch.setattr(module, "KINDS", tuple(kinds))
    told_of = findings(QUIET, ALL)
    assert [each.code for each in told_of] == chosen(heaviest)
    assert [each.weight for each in told_of] == [heaviest[each.code] for each in told_of]
    assert len(told_of) <= 5


CHANGE = {
    "domain": ALL,
    "traces": 100,
    "tasks": 50,
    "mean": 0.5,
    "tasks_before": 50,
    "change": 0.1,
    "low": 0.08,
    "high": 0.12,
    "mix": 0.06,
    "within": 0.04,
    "p_value": 0.001,
    "entered": 0.0,
    "exited": 0.0,
    "warming_up": 0.0,
    "warming_up_before": 0.0,
    "is_over": True,
}


def changed(*rows: dict[str, Any], **more: Any) -> ReportData:
    """Data of two domains whose mean changed on days of January, the last of which is the 30th."""
    begins = [date(2026, 1, 31 - len(rows) + place) for place in range(len(rows))]
    frame = [{**CHANGE, "begins": at, **row} for at, row in zip(begins, rows, strict=True)]
    own = [{**row, "domain": "code", "moved": True} for row in frame]
    of_domains = {"labels": ["code", "law"], "names": {"code": "code", "law": "law"}}
    frames = {"changes": pl.DataFrame(frame), "domain_changes": pl.DataFrame(own)}
    return replace(QUIET, **of_domains, **frames, **more)


def test_a_change_of_the_mean_is_stated_with_its_parts_the_largest_first() -> None:
    [found] = mean_change(changed({}), ALL)
    assert found.sentence == (
        "On 2026-01-30 the mean score was 0.500, up 0.100 (0.080 to 0.120) from the previous "
        "four days: +0.060 from the mix of domains, +0.040 from changes within domains."
    )
    assert (found.traces, found.effect) == (100, 0.1)
    assert found.question == "FROM mean_changes('day') WHERE begins = '2026-01-30'"


PARTS = {"novelty": -0.036, "complexity": -0.012, "tool_diversity": 0.003, "success": None}
PARTS |= {"outcome_confidence": -0.004, "weights": 0.0004}


def test_a_change_of_a_domain_is_stated_with_its_parts_which_add_up() -> None:
    row = {"change": -0.0486, "low": -0.06, "high": -0.04}
    data = replace(changed(row), parts={("code", date(2026, 1, 30)): PARTS})
    [moved] = domain_moved(data, "code")
    assert moved.sentence == (
        "On 2026-01-30 code scored 0.500, down 0.049 (0.040 to 0.060) from its previous four days: "
        "-0.036 from novelty, -0.012 from complexity, -0.004 from outcome confidence, +0.003 from "
        "the rest."
    )
    named = {name: value for name, value in moved.numbers.items() if name.startswith("from_")}
    assert sum(named.values()) == pytest.approx(-0.0486)
    assert "cache_share_of_domain" not in moved.question


@pytest.mark.parametrize(
    ("share", "before", "novelty", "can"),
    [
        (0.58, 0.09, -0.036, "lower"),
        (0.09, 0.58, 0.036, "raise"),
        (0.58, 0.09, 0.036, None),  # it is for another reason
        (0.18, 0.09, -0.036, None),
        (None, 0.09, -0.036, None),
    ],
)
def test_a_change_of_novelty_is_stated_with_that_of_its_cache(
    share: float | None, before: float, novelty: float, can: str | None
) -> None:
    parts = {"novelty": novelty, "cache_share": share, "cache_share_before": before}
    data = replace(changed({}), parts={("code", date(2026, 1, 30)): parts})
    [moved] = domain_moved(data, "code")
    side = "up" if can == "lower" else "down"
    shares = "of its cache"
    if can:
        shares = f"made up {share:.0%} of its cache, {side} from {before:.0%}"
    assert (shares in moved.sentence) == (can is not None)
    assert (f"can {can} novelty" in moved.sentence) == (can is not None)
    assert ("'cache_share_of_domain'" in moved.question) == (can is not None)


def test_a_domain_that_moved_against_the_mean_has_at_least_its_weight() -> None:
    data = changed({})
    [along] = domain_moved(data, ALL)
    against = data.domain_changes.with_columns(change=-0.2, traces=pl.lit(40))
    data = replace(data, domain_changes=against)
    [moved], [mean] = domain_moved(data, ALL), mean_change(data, ALL)
    assert (along.traces, along.effect) == (moved.traces, moved.effect) == (100, 0.1)
    assert moved.weight == mean.weight
    [alone] = domain_moved(data, "code")
    assert (alone.traces, alone.effect) == (40, 0.2)
    more = data.domain_changes.with_columns(traces=pl.lit(60))
    [heavier] = domain_moved(replace(data, domain_changes=more), ALL)
    assert (heavier.traces, heavier.effect) == (60, 0.2)


def test_a_difference_is_stated_with_its_parts() -> None:
    parts = {"low_diversity_penalty": -0.04, "outcome_confidence": -0.01}
    data = replace(with_units({}), parts={("code", "agents", "ann"): parts})
    [found] = paired(data, "code")
    assert (
        "0.050 below the others (0.040 to 0.060): -0.040 from low diversity penalties, "
        "-0.010 from outcome confidence. It succeeds"
    ) in found.sentence


def test_the_effect_of_entered_and_exited_domains_is_stated() -> None:
    [found] = mean_change(changed({"entered": -0.02, "exited": 0.03}), ALL)
    assert "-0.020 from domains that entered" in found.sentence
    assert "+0.030 from domains that exited" in found.sentence


SILENT = {
    "as chance has it": {"p_value": 0.06},
    "of 4 days, one in 20 would": {"p_value": 0.0126},
    "too small": {"change": 0.004, "low": 0.0035, "high": 0.0045},
    "of few traces": {"traces": 29},
    "not over": {"is_over": False},
    "warming_up": {"warming_up": 0.11},
    "warming up before": {"warming_up_before": 0.11},
    "of few tasks": {"low": None, "high": None},
    "without a domain before": {"mix": None, "within": None, "entered": None, "exited": None},
}


@pytest.mark.parametrize("why", SILENT)
def test_no_finding_states_a_change_that_is(why: str) -> None:
    assert not [*mean_change(changed(SILENT[why]), ALL)]
    assert [*mean_change(changed({}), ALL)]


def test_findings_state_changes_of_the_last_four_periods_only() -> None:
    still = {"change": 0.0, "low": -0.02, "high": 0.02, "p_value": 1.0}
    long_ago = changed({"p_value": 0.001}, *[still] * 4)
    assert not [*mean_change(long_ago, ALL)]
    assert not [*domain_moved(long_ago, "code")]
    recent = changed({"p_value": 0.001}, *[still] * 3)
    assert [*mean_change(recent, ALL)]
    assert [*domain_moved(recent, "code")]


def test_a_single_domain_that_moved_has_no_finding_about_the_mean() -> None:
    data = changed({"p_value": 0.001})
    one = replace(data, labels=["code"], names={"code": "code"})
    assert not [*mean_change(one, ALL)]
    [moved] = domain_moved(one, ALL)
    assert "all traces" not in moved.sentence


def test_four_periods_together_are_not_likely_to_tell_a_change_by_chance() -> None:
    for tell, scope in ((domain_moved, "code"), (mean_change, ALL)):
        assert [*tell(changed({"p_value": 0.0125}), scope)]
        assert not [*tell(changed({"p_value": 0.0126}), scope)]


def test_the_mean_is_compared_only_if_caches_were_not_warming_up() -> None:
    data = changed({"p_value": 0.001})
    [moved] = domain_moved(data, ALL)
    assert "previous four days. The mean of all traces changed by +0.100: " in moved.sentence
    within = data.changes.with_columns(low=pl.lit(-0.01))
    [moved] = domain_moved(replace(data, changes=within), ALL)
    assert "The mean of all traces shows no clear change (+0.100): " in moved.sentence
    assert moved.numbers["change_of_all"] == 0.1
    filled = data.changes.with_columns(warming_up=pl.lit(0.5))
    [moved] = domain_moved(replace(data, changes=filled), ALL)
    assert moved.sentence.endswith("previous four days.")
    assert "JOIN" not in moved.question


def of_shares(**shares: float) -> ReportData:
    """Data of 100 traces whose scores have such parts, of which single thoughts are an override."""
    rows = [
        {
            "domain": domain,
            "part": part.replace("_", " "),
            "is_override": part == "single_thought",
            "weight": None if part == "single_thought" else 0.25,
            "share_of_variance": share,
            "traces": 20 if part == "single_thought" else None,
            "mean_effect": -0.2 if part == "single_thought" else None,
            "total_effect": -4.0 if part == "single_thought" else None,
        }
        for part, share in shares.items()
        for domain in (ALL, "code")
    ]
    sizes = [(domain, 100, 0.1) for domain in (ALL, "code")]
    domains = pl.DataFrame(sizes, ["domain", "traces", "deviation"], orient="row")
    return replace(QUIET, drivers=pl.DataFrame(rows), domains=domains)


def test_the_parts_that_drive_a_score_are_stated() -> None:
    [found] = driver(of_shares(complexity=0.6, novelty=0.3, tool_diversity=0.1), "code")
    assert found.sentence == (
        "In code, complexity (weight 0.25) accounts for 60% of the variance of the scores, and "
        "novelty (weight 0.25) for 30%."
    )
    assert (found.traces, found.effect) == (100, pytest.approx(0.06))


def test_parts_that_make_more_than_all_are_evened_out_by_others() -> None:
    [found] = driver(of_shares(single_thought=0.8, novelty=0.5, complexity=-0.3), "code")
    assert found.sentence == (
        "In code, single thought accounts for 80% of the variance of the scores, and novelty "
        "(weight 0.25) for 50%; other parts offset some of it."
    )
    [found] = driver(of_shares(single_thought=1.2, complexity=-0.2), "code")
    assert found.effect == 0.1  # as much as the scores vary


@pytest.mark.parametrize(
    ("name", "profiles", "shown"),
    [
        ("code", {"code": {}}, "mean weight"),
        ("default", {"code": {}}, "weight"),
        ("default", {"law": {}}, "mean weight"),
    ],
)
def test_a_weight_that_changed_with_time_is_stated_as_a_mean(
    name: str, profiles: dict[str, Any], shown: str
) -> None:
    changed_at = datetime(2026, 1, 27, tzinfo=UTC)
    weights = pl.DataFrame([(name, changed_at)], QUIET.weights.schema, orient="row")
    data = replace(of_shares(complexity=0.6), weights=weights, run=under(profiles=profiles))
    [found] = driver(data, "code")
    assert found.sentence.startswith(f"In code, complexity ({shown} 0.25) accounts for 60% of ")


def test_no_part_drives_a_score_that_hardly_varies_or_where_each_makes_little() -> None:
    assert not [*driver(of_shares(complexity=0.29, novelty=0.28), "code")]
    data = of_shares(complexity=0.6)
    still = data.domains.with_columns(deviation=pl.lit(1e-17))  # of the order of a sum
    assert not [*driver(replace(data, domains=still), "code")]


@pytest.mark.parametrize(
    ("effect", "traces", "shown"),
    [
        (
            -0.2,
            40,
            "lowers 40 scores (40%) by 0.200 on average, and the mean of all scores by 0.08.",
        ),
        (
            0.2,
            40,
            "raises 40 scores (40%) by 0.200 on average, and the mean of all scores by 0.08.",
        ),
        (
            0.498,
            40,
            "raises 40 scores (40%) by 0.498 on average, and the mean of all scores by 0.2.",
        ),
        (0.004, 40, None),
        (
            -0.2,
            30,
            "lowers 30 scores (30%) by 0.200 on average, and the mean of all scores by 0.06.",
        ),
        (-0.2, 29, None),
    ],
)
def test_the_effect_of_an_override_is_stated_for_enough_traces(
    effect: float, traces: int, shown: str | None
) -> None:
    data = of_shares(single_thought=0.8, novelty=0.2)
    is_told = pl.col("is_override")
    drivers = data.drivers.with_columns(
        traces=pl.when(is_told).then(traces),
        mean_effect=pl.when(is_told).then(effect),
        total_effect=pl.when(is_told).then(traces * effect),
    )
    found = [each.sentence for each in override(replace(data, drivers=drivers), ALL)]
    assert found == ([f"The override “single thought” {shown}"] if shown else [])


UNIT = {
    "domain": "code",
    "unit": "ann",
    "traces": 90,
    "tasks": 60,
    "effective_tasks": 60.0,
    "shared_traces": 50,
    "shared_tasks": 40,
    "score_difference": -0.05,
    "score_low": -0.06,
    "score_high": -0.04,
    "success_difference": 0.2,
    "success_difference_low": 0.1,
    "success_difference_high": 0.3,
    "confidence": 0.5,
    "success": 0.8,
    "overconfidence": -0.3,
    "overconfidence_low": -0.35,
    "overconfidence_high": -0.25,
}


def with_units(*rows: dict[str, Any]) -> ReportData:
    frame = pl.DataFrame([{**UNIT, **row} for row in rows])
    parts = of_shares(outcome_confidence=0.5)
    return replace(parts, agents=frame, frameworks=frame.clear())


def test_values_that_differ_from_the_others_on_the_same_tasks_are_stated() -> None:
    [found] = paired(with_units({}), "code")
    assert found.sentence == (
        "In code, on 40 shared tasks, ann scores 0.050 below the others (0.040 to 0.060). It "
        "succeeds more often, by 0.20 (0.10 to 0.30)."
    )
    assert (found.traces, found.effect) == (50, 0.05)
    assert found.parts[3] == "ann"
    assert isinstance(found.parts[3], Untrusted)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-0.1, 0.1, "It succeeds about as often (-0.10 to +0.10)"),
        (-0.3, 0.1, "It is not clear whether it succeeds more often (-0.30 to +0.10)"),
        (-0.3, -0.1, "It succeeds less often, by 0.20 (0.10 to 0.30)"),
    ],
)
def test_success_is_stated_as_far_as_it_is_known(low: float, high: float, shown: str) -> None:
    ends = {"success_difference_low": low, "success_difference_high": high}
    [found] = paired(with_units({**ends, "success_difference": (low + high) / 2 or 0.2}), "code")
    assert found.sentence.endswith(f" {shown}.")


def test_the_more_are_compared_the_larger_a_stated_difference_has_to_be() -> None:
    off = {"score_difference": 0.05, "score_low": 0.015, "score_high": 0.085}
    over = {"overconfidence": 0.3, "overconfidence_low": 0.1, "overconfidence_high": 0.5}
    alike = {"score_difference": 0.0, "score_low": -0.02, "score_high": 0.02}
    alike |= {"overconfidence": 0.0, "overconfidence_low": -0.1, "overconfidence_high": 0.1}
    few, many = ([off | over, *[alike] * others] for others in (1, 30))
    for tell in (paired, confidence):
        assert [*tell(with_units(*few), "code")]
        assert not [*tell(with_units(*many), "code")]


@pytest.mark.parametrize(
    "row",
    [
        {"shared_tasks": 9},
        {"shared_traces": 29},
        {"score_difference": -0.004, "score_low": -0.0042, "score_high": -0.0038},
        {"score_low": None, "score_high": None, "shared_tasks": None},
    ],
)
def test_no_difference_is_stated_for_few_tasks_or_if_it_is_tiny(
    row: dict[str, Any],
) -> None:
    assert not [*paired(with_units(row), "code")]


def test_where_few_of_many_tasks_make_most_of_the_traces_these_few_count() -> None:
    over = {"overconfidence": 0.3, "overconfidence_low": 0.15, "overconfidence_high": 0.45}
    alike = {"overconfidence": 0.0, "overconfidence_low": -0.1, "overconfidence_high": 0.1}
    even, few = ({"tasks": 206, "effective_tasks": tasks} for tasks in (206.0, 7.0))
    others = [alike | even] * 19
    assert [*confidence(with_units(over | even, *others), "code")]
    assert not [*confidence(with_units(over | few, *others), "code")]
    bins = {0.3: (0.75, 0.65, 0.82), 0.5: (0.46, 0.37, 0.56)}
    bins |= dict.fromkeys(MORE, (0.6, 0.2, 0.9))
    assert [*success(with_bins(bins, **even), "code")]
    assert not [*success(with_bins(bins, **few), "code")]


def test_overconfident_and_underconfident_values_are_stated() -> None:
    [under_] = confidence(with_units({}), "code")
    assert under_.sentence == (
        "In code, ann states a confidence of 0.50 on average, but 80% of its 90 traces succeed: it "
        "is underconfident by 0.30 (0.25 to 0.35)."
    )
    assert (under_.traces, under_.effect) == (90, pytest.approx(0.3 * 0.25))
    slight = {"overconfidence": 0.04, "overconfidence_low": 0.039, "overconfidence_high": 0.041}
    assert not [*confidence(with_units(slight), "code")]


@pytest.mark.parametrize(
    ("rates", "traces", "is_told"),
    [
        ([0.0, 1.0, 1.0], 10, False),
        ([0.0, 1.0, 1.0], 9, True),  # which chance may do
        ([1.0, 0.0], 20, True),
        ([1.0, 1.0], 20, True),
        ([0.0, 0.5, 1.0], 10, True),
        ([], 0, True),
    ],
)
def test_a_confidence_that_was_made_of_the_outcome_is_no_overconfidence(
    rates: list[float],
    traces: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    low = [place / 10 for place in range(len(rates))]
    bins = {"domain": ["code"] * len(rates), "low": low, "success": rates}
    frame = pl.DataFrame({**bins, "traces": [traces] * len(rates)}, QUIET.calibration.schema)
    assert len([*confidence(replace(with_units({}), calibration=frame), "code")]) == is_told


BINS = {0.2: (0.6, 0.5, 0.7), 0.3: (0.8, 0.7, 0.9), 0.5: (0.3, 0.2, 0.4), 0.6: (0.9, 0.8, 1.0)}


MORE = (0.0, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8)


def with_bins(bins: Mapping[float, tuple[float | None, ...]], **more: Any) -> ReportData:
    """Data of traces of these scores, and of the share that succeeds, with its interval."""
    names = ("success", "success_low", "success_high")
    rows = [
        {"domain": "code", "low": low, "high": low + 0.1, "traces": 40, "tasks": 40}
        | {"effective_tasks": 40.0}
        | {"mean": low + 0.06}
        | dict(zip(names, share, strict=True))
        | more
        for low, share in bins.items()
    ]
    return replace(of_shares(outcome_confidence=0.5), success=pl.DataFrame(rows))


def test_higher_scores_that_succeed_less_often_are_stated_for_those_furthest_apart() -> None:
    [found] = success(with_bins(BINS), "code")
    assert found.sentence == (
        "In code, 80% (70% to 90%) of the traces that score 0.3 to 0.4 succeed, but only 30% (20% "
        "to 40%) of those that score 0.5 to 0.6, although a failure lowers the score."
    )
    assert (found.traces, found.effect) == (40, pytest.approx(0.2))
    data = with_bins(BINS)
    without = replace(data, drivers=data.drivers.with_columns(weight=pl.lit(0.0)))
    [found] = success(without, "code")
    assert found.sentence.endswith("only 30% (20% to 40%) of those that score 0.5 to 0.6.")


def test_higher_scores_that_succeed_more_often_or_by_chance_are_not_stated() -> None:
    rising = {low: BINS[low] for low in (0.2, 0.3, 0.6)}
    assert not [*success(with_bins(rising), "code")]
    assert not [*success(with_bins({0.3: (0.5, 0.4, 0.6), 0.5: (0.4, 0.3, 0.5)}), "code")]
    assert not [*success(with_bins(BINS, traces=29), "code")]
    many = {
        0.3: (0.68, 0.57, 0.76),
        0.5: (0.46, 0.37, 0.56),
        **dict.fromkeys(MORE, (0.6, 0.2, 0.9)),
    }
    assert not [*success(with_bins(many), "code")]
    assert [*success(with_bins({low: many[low] for low in (0.3, 0.5)}), "code")]
    assert not [*success(with_bins(dict.fromkeys(BINS, (0.5, None, None))), "code")]


UP = [1, 2, 3, 4, 5, 6, 7, 8]
NEARLY_UP = [2, 1, 4, 3, 6, 5, 8, 7]  # with UP: 0.90
ROUGHLY_UP = [4, 1, 2, 7, 3, 6, 5, 8]  # 0.67
MIXED = [4, 8, 2, 6, 3, 7, 1, 5]  # -0.19


def with_ranks(tools: list[int], succeed: list[int], labels: int = 1) -> ReportData:
    """Data of eight agents of each domain, the later the higher they score."""
    names = {f"d{number}": f"d{number}" for number in range(labels)}
    rows = [
        {"domain": label, "traces": 10, "mean": place / 10, "tools": used, "success": often / 10}
        for label in names
        for place, (used, often) in enumerate(zip(tools, succeed, strict=True))
    ]
    return replace(QUIET, labels=[*names], names=names, agents=pl.DataFrame(rows))


@pytest.mark.parametrize(
    ("tools", "succeed", "labels", "says"),
    [
        (
            UP,
            MIXED,
            1,
            "rank correlation 1.00 over 8 agents), but hardly succeed more often (-0.19",
        ),
        (UP, UP[::-1], 1, "rank correlation 1.00 over 8 agents), but succeed less often (-1.00"),
        (
            NEARLY_UP,
            MIXED,
            1,
            "rank correlation 0.90 over 8 agents), but hardly succeed more often",
        ),
        (ROUGHLY_UP, MIXED, 1, None),  # which chance explains
        (NEARLY_UP, MIXED, 60, None),  # so it does where as many domains are looked at
        (UP, ROUGHLY_UP, 1, None),  # who succeed more often
        (UP, [5] * 8, 1, None),  # all the same
        ([5] * 8, MIXED, 1, None),
        (UP[:7], MIXED[:7], 1, None),  # too few
    ],
)
def test_a_high_rank_that_goes_with_tools_and_not_with_success_is_stated(
    tools: list[int], succeed: list[int], labels: int, says: str | None
) -> None:
    found = [each.sentence for each in ranking(with_ranks(tools, succeed, labels), ALL)]
    assert len(found) == (says is not None)
    assert not says or says in found[0]


def with_novelty(**more: Any) -> ReportData:
    data = of_shares(novelty=0.5)
    own = {"cache_warming_up": 40, "novelty": 0.5, "novelty_warming_up": 0.9, "novelty_after": 0.4}
    own |= {"near_repeats": 0.05, **more}
    return replace(
        data, domains=data.domains.with_columns(**{k: pl.lit(v) for k, v in own.items()})
    )


def test_the_effect_of_caches_that_were_warming_up_is_stated() -> None:
    [found] = warming_up(with_novelty(), ALL)
    assert found.sentence == (
        "40 traces (40%) were made while their cache was warming up and had few traces to compare "
        "with. Their mean novelty is 0.900; that of the other traces is 0.400."
    )
    assert (found.traces, found.effect) == (40, pytest.approx(0.5 * 0.25))
    [found] = warming_up(with_novelty(novelty_after=None), ALL)
    assert found.sentence.startswith("All traces were made while their cache was warming up, so ")
    assert found.weight == 0


@pytest.mark.parametrize("more", [{"cache_warming_up": 29}, {"novelty_warming_up": 0.404}])
def test_nothing_is_said_of_few_that_came_so_or_that_were_no_more_novel(
    more: dict[str, Any],
) -> None:
    assert not [*warming_up(with_novelty(**more), ALL)]


@pytest.mark.parametrize("scope", [ALL, "code"])
def test_repeats_are_stated_if_they_are_many(scope: str) -> None:
    [found] = near_repeats(with_novelty(near_repeats=0.1), scope)
    assert found.sentence.startswith("10% of the traces nearly repeat another one in their cache (")
    assert not [*near_repeats(with_novelty(near_repeats=0.09), scope)]
