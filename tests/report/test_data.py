"""What the report shows: of archives that chance makes, as an oracle states it, and by example."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import duckdb
import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.duck import SQL
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report import data as module
from kp_batch.report import scores
from kp_batch.report.data import FRAMES, ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.scores import Scores
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.drawn_scores import ENDED, Drawn, Row, draw, made, opened, row, write
from tests.support.make.odd_scores import make
from tests.support.make.planted import WEIGHTS, plant
from tests.support.make.publications import publish_nothing
from tests.support.make.report_data import Gathered
from tests.support.oracle.answers import ask_records, assert_same
from tests.support.oracle.reports import Archive, Report

SEVERAL = 9  # the seed of an archive of several domains, some of which share a label
EXAMPLES = int(os.environ.get("KP_ORACLE_EXAMPLES", "18"))
DAY = timedelta(days=1)
# How many traces each domain has; the last three have no label of their own, the ninth has one only
# since its name comes first.
DOMAINS = {
    "code": 40,
    "finance": 36,
    f"{'x' * 45}1": 32,
    f"{'x' * 45}2": 31,
    "<script>alert(1)</script>": 30,
    "a|b`c``d\\": 28,
    "two\nlines": 26,
    "\x1b[31mred\u202e": 24,
    "3 others": 12,
    "law": 12,
    "chess": 10,
    "poetry": 7,
}
LABELS = [
    "code",
    "finance",
    f"{'x' * 39}…",
    f"{'x' * 39}…*",
    "<script>alert(1)</script>",
    "a|b`c``d\\",
    r"two\nlines",
    r"\x1b[31mred\u202e",
    "3 others",
    "3 others*",
]
# Of these the SQL file has another name.
UNITS = {"agents", "frameworks"}
EMPTY_TOTALS = {
    "threshold": 0.75,
    "domains": 0,
    "first_day": None,
    "last_day": None,
}


@pytest.fixture
def several(drawn_report: Gathered) -> ReportData:
    return drawn_report(SEVERAL)[1]


def gathered(folder: Path, drawn: Drawn) -> ReportData:
    write(drawn, folder)
    with opened(folder) as connection:
        return gather(connection)


def of_warehouse(warehouse: Path) -> ReportData:
    with connect(warehouse) as connection:
        return gather(connection)


def of_domains(traces: dict[str, int], **changes: Any) -> list[Row]:
    """So many rows of each domain."""
    names = [name for name, number in traces.items() for _ in range(number)]
    return [row(number, task_domain=name, **changes) for number, name in enumerate(names)]


def on(moments: Iterable[str], **changes: Any) -> list[Row]:
    """A row of each of these days, or times."""
    times = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in moments]
    return [row(number, created_at=time, **changes) for number, time in enumerate(times)]


def test_every_frame_is_a_field_and_has_an_sql_file() -> None:
    queries = files("kp_batch.report").joinpath("sql").iterdir()
    named = {*FRAMES, "totals", "units"} - UNITS
    assert {query.name for query in queries} == {f"{name}.sql" for name in named}
    hints = get_type_hints(ReportData)
    assert [name for name, kind in hints.items() if kind is pl.DataFrame] == list(FRAMES)


@pytest.mark.telling
@pytest.mark.slow
def test_law_the_report_of_drawn_scores_is_as_its_oracle(drawn_report: Gathered) -> None:
    for seed in range(EXAMPLES):
        drawn, data = drawn_report(seed)
        Report(drawn.archive).assert_same(data)


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 7])
def test_law_so_it_is_where_the_scores_are_read_in_small_parts_and_groups_are_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(scores, "PART_ROWS", rows)
    monkeypatch.setattr(scores, "MAX_LOOKUP_CODES", 8 * rows)
    monkeypatch.setattr(Scores, "parts", lambda self, _=0: _PARTS(self))
    for drawn in (draw(3), draw(SEVERAL), made(alike_and_apart())):
        Report(drawn.archive).assert_same(gathered(folder, drawn))


_PARTS = Scores.parts


def alike_and_apart() -> list[Row]:
    """Traces of a task in several domains, of one with nearly all of a domain, and of one each.

    Some are alike in all that is measured, some in nothing; and some have no agent.
    """
    return [
        row(
            number,
            created_at=ENDED - 11 * DAY * (number % 9),
            task_domain=("code", "code", "law", "chess")[number % 4],
            task=f"task {number if number > 150 else number % 9 if number % 2 else 0}",
            agent_id=("a", "b", "b", None, "c")[number % 5],
            framework=("x", None)[number % 7 == 0],
            success=number % 3 > 0 or number % 4 == 2,
            confidence=0.7 if number % 4 else number / 400,
            complexity=0.2 if number % 4 else number / 400,
            novelty=0.5 if number % 4 else number % 11 / 10,
        )
        for number in range(200)
    ]


@pytest.mark.slow
def test_the_drawn_scores_have_every_case_of_the_report() -> None:
    reports = [Report(draw(seed).archive) for seed in range(18)]
    assert {report.spans[ALL].grain for report in reports} >= {"hour", "day", "quarter", "year"}
    assert {str(report.others).lstrip("0123456789 ") for report in reports} >= {"None", "others"}
    assert any("small ones" in str(report.others) for report in reports)
    for name in Report.NAMES:
        rows = [each for report in reports for each in getattr(report, name)()]
        assert rows, name
        unknown = {key for key in rows[0] if all(each[key] is None for each in rows)}
        assert not unknown, name


@pytest.mark.slow
def test_law_the_report_of_a_planted_archive_is_as_its_oracle(folder: Path) -> None:
    rows = plant(1).rows.filter(pl.col("objective_hash").hash() % 4 == 0)
    drawn = made([])
    profile = [{"profile_id": "planted", "name": "planted", **WEIGHTS, "valid_from": [None]}]
    write(Drawn({**drawn.tables, "profiles": profile}, drawn.archive), folder)
    rows.write_parquet(folder / "scores.parquet")
    with opened(folder) as connection:
        scores = ask_records(connection, "FROM scores")
        data = gather(connection)
    weighted = [{**each, "weights": (*WEIGHTS.values(),)} for each in scores]
    archive = Archive(weighted, ENDED, {"planted": [None]}, [{}, {}])
    Report(archive).assert_same(data)


@pytest.mark.slow
def test_the_numbers_of_a_scope_are_what_the_question_answers_of_its_domain(folder: Path) -> None:
    data = gathered(folder, draw(SEVERAL))
    assert data.others is not None
    with opened(folder) as connection:
        connection.execute("USE kp")
        for label, name in data.names.items():
            _assert_answers(connection, data, label, name)
        changes = ask_records(connection, f"FROM mean_changes('{data.period}')")
        _assert_among(data.changes, changes, {})


def _assert_answers(
    connection: duckdb.DuckDBPyConnection, data: ReportData, label: str, name: str
) -> None:
    def answer(question: str) -> list[dict[str, Any]]:
        return ask_records(connection, f"FROM {question} WHERE task_domain = ?", name)

    for frame, column in (("domains", None), ("agents", "agent_id"), ("frameworks", "framework")):
        keys = ["task_domain", *([column] if column else [])]
        measures = [*_MEASURES]
        means = _of_measures(answer(f"means_by({keys}, {measures})"), column, _MEASURES)
        _assert_among(data.of(frame, label), means, {})
    paired = {"shared_tasks": "tasks"}
    for unit, frame in (("agent_id", "agents"), ("framework", "frameworks")):
        found = answer(f"differences_from_others('{unit}', ['score', 'success'])")
        of_units = _of_measures(found, unit, {"score": "score", "success": "success_difference"})
        own = ("unit", "score_difference", "score_low", "score_high", "success_difference_low")
        rows = data.of(frame, label).drop_nulls("shared_tasks").select(*own, *paired)
        _assert_among(rows, of_units, paired | {"score_difference": "score_difference"})
    drivers = data.of("drivers", label).with_columns(pl.col("part").str.replace_all(" ", "_"))
    whole = drivers.select("part", "weight", "share_of_variance", "effect_on_mean")
    _assert_among(whole, answer("part_effects"), {"effect_on_mean": "mean_effect"})
    changes = answer(f"changes_by('task_domain', '{data.period}')")
    _assert_among(data.of("domain_changes", label), changes, {"p_value": "adjusted_p_value"})


# The columns of a frame that begin with the mean of a measure.
_MEASURES = {
    "score": "mean",
    "novelty": "novelty",
    "success": "success",
    "share_at_threshold": "share",
    "overconfidence": "overconfidence",
    "tools": "tools",
}


def _of_measures(
    answer: Sequence[dict[str, Any]], unit: str | None, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The answers about each unit as one row, as the frames have them."""
    found: dict[Any, dict[str, Any]] = {}
    for each in answer:
        key = each[unit] if unit else None
        own = found.setdefault(key, {"unit": key, "traces": each["traces"], "tasks": each["tasks"]})
        name = names[each["measure"]]
        ends = "" if name == "mean" else f"{name}_"
        own |= {name: each["mean"], f"{ends}low": each["low"], f"{ends}high": each["high"]}
        if "difference" in each:
            own[f"{each['measure']}_difference"] = each["difference"]
    return [*found.values()]


def _assert_among(
    frame: pl.DataFrame, answer: Sequence[dict[str, Any]], names: dict[str, str]
) -> None:
    """The rows of a frame are among those of an answer, by the columns that both have."""
    if frame.is_empty():
        return
    known = {ours: names.get(ours, ours) for ours in frame.columns}
    known = {ours: theirs for ours, theirs in known.items() if theirs in answer[0]}
    rows = frame.select(*known).to_dicts()
    keys = [key for key in ("unit", "part", "begins") if key in known]
    of_rows = {tuple(each[key] for key in keys) for each in rows}
    wanted = [{ours: each[theirs] for ours, theirs in known.items()} for each in answer]
    wanted = [each for each in wanted if tuple(each[key] for key in keys) in of_rows]
    assert len(known) > 3
    assert_same(rows, wanted)


def test_labels_are_printable_short_and_apart_and_the_smallest_domains_share_one(
    folder: Path,
) -> None:
    data = gathered(folder, made(of_domains(DOMAINS)))
    assert data.labels == LABELS
    assert data.others == LABELS[-1]
    assert data.scopes == [ALL, *LABELS]
    assert data.names == dict(zip(LABELS[:9], DOMAINS, strict=False))
    assert all(label.isprintable() and len(label) <= 41 for label in LABELS)
    assert data.domains["domain"].to_list() == [ALL, *LABELS]
    assert data.domains["traces"].to_list() == [288, 40, 36, 32, 31, 30, 28, 26, 24, 12, 29]
    for name in ("histogram", "over_time", "drivers", "agents", "success", "calibration"):
        assert set(getattr(data, name)["domain"]) == {ALL, *LABELS}, name
    assert set(data.traces["domain"]) == set(LABELS)
    assert set(data.domain_changes["domain"]) == set(LABELS[:9])
    assert data.totals["domains"] == 12


@pytest.mark.parametrize(
    ("traces", "labels"),
    [
        ([30] * 10, [f"d{number:02d}" for number in range(10)]),
        ([30] * 11, [*(f"d{number:02d}" for number in range(9)), "2 others"]),
        ([500, 5], ["d00", "d01"]),  # a single small one needs no label of others
        ([490, 5, 5], ["d00", "d01", "d02"]),  # a hundredth is not small
        ([500, 4, 4], ["d00", "2 small ones"]),
        ([7000, 30, 29, 29], ["d00", "d01", "2 small ones"]),
        ([3000] * 9 + [1, 1], [*(f"d{number:02d}" for number in range(9)), "2 small ones"]),
        ([3000] * 10 + [1, 1], [*(f"d{number:02d}" for number in range(9)), "3 others"]),
    ],
)
def test_domains_have_labels_of_their_own_but_where_they_are_small_or_many(
    traces: list[int], labels: list[str]
) -> None:
    names = {f"d{number:02d}": each for number, each in enumerate(traces)}
    assert labelled(names) == labels


def labelled(traces: dict[str, int]) -> list[str]:
    """The labels of domains, as so many traces have them."""
    with duckdb.connect() as connection:
        rows = pl.DataFrame({"task_domain": [*traces], "traces": [*traces.values()]})
        connection.register("of_domains", rows.to_arrow())
        connection.execute("CREATE TABLE by_domain AS FROM of_domains")
        labels, _ = module._label(connection)  # noqa: SLF001
        return labels


def test_domains_with_reserved_names_are_marked() -> None:
    names = ["all domains", "constructor", "__proto__"]
    assert labelled(dict.fromkeys(names, 1)) == [f"{name}*" for name in sorted(names)]


def test_rows_are_in_the_order_in_which_they_are_reported(several: ReportData) -> None:
    data = several
    assert data.domains["domain"].to_list() == data.scopes
    for name in ("histogram", "other_times", "success", "calibration"):
        frame = getattr(data, name)
        assert frame.equals(frame.sort(frame.columns)), name
    for name, keys in {
        "over_time": ("domain", "start"),
        "changes": ("begins",),
        "domain_changes": ("domain", "begins"),
        "drivers": ("domain", "is_override", "part"),
        "agents": ("domain", "place"),
        "frameworks": ("domain", "place"),
    }.items():
        frame = getattr(data, name).select(keys)
        assert frame.equals(frame.sort(keys)), name
    of_most = data.drift["traces"].to_list()
    assert of_most == sorted(of_most, reverse=True)
    for (which,), rows in data.traces.partition_by("which", as_dict=True).items():
        keys = rows.select("score", "created_at")  # of equal ones the latest first
        assert keys.equals(keys.sort(keys.columns, descending=[which == "highest", True])), which
        assert rows["overall"].to_list() == [True] * 10 + [False] * (len(rows) - 10)
    assert data.rejects["rejected"].to_list() == sorted(data.rejects["rejected"], reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seed 0", "seed 5", "overrides", "ties", "all the same"])
def test_traces_at_either_end_are_read_of_their_days_alone(folder: Path, name: str) -> None:
    archive = draw(int(name[-1])) if name.startswith("seed") else make(name)
    write(archive, folder)
    asked: list[date] = []

    def scores_of(days: Iterable[date]) -> SQL:
        asked.extend(days)
        listed = ", ".join(f"DATE '{day}'" for day in asked)
        return SQL(f"(FROM scores WHERE day_of(created_at) IN ({listed}))")

    with opened(folder) as connection:
        of_all, of_days = gather(connection), gather(connection, scores_of=scores_of)
    assert_same(of_days.traces.to_dicts(), of_all.traces.to_dicts())
    assert len(asked) == len({*asked}) <= 20 * len(of_all.labels)


@pytest.mark.slow
def test_a_connection_is_answered_the_same_again(folder: Path) -> None:
    write(draw(SEVERAL), folder)
    with opened(folder) as connection:
        first, second = gather(connection), gather(connection)
    assert first.labels == second.labels
    for name in FRAMES:
        assert_same(getattr(first, name).to_dicts(), getattr(second, name).to_dicts())


def test_all_but_the_traces_is_computed_from_what_was_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(draw(SEVERAL), folder)
    frame, names = module.ask_frame, list[str]()

    def without_scores(
        connection: duckdb.DuckDBPyConnection, name: str, **values: Any
    ) -> pl.DataFrame:
        (folder / "scores.parquet").unlink(missing_ok=True)
        names.append(name)
        return frame(connection, name, **values)

    monkeypatch.setattr(module, "ask_frame", without_scores)
    with opened(folder) as connection, pytest.raises(duckdb.IOException):
        gather(connection)
    assert sorted({*names, *UNITS}) == sorted({*FRAMES, "units"})
    assert names[-1] == "traces"


def test_a_step_is_over_once_the_run_ended_after_it(folder: Path) -> None:
    days = ["2026-01-05T23:59:59", *(f"2026-01-{day:02d}" for day in range(6, 32)), "2026-02-01"]
    data = gathered(folder, made(on(days)))
    steps = data.of("over_time", ALL)
    assert data.spans[ALL].grain == "day"
    assert steps["start"].dt.date().to_list() == [date(2026, 1, 5) + n * DAY for n in range(28)]
    assert steps["traces"].to_list() == [1] * 28
    assert steps["is_over"].to_list() == [True] * 27 + [False]  # the run ended at noon


def test_a_single_day_is_shown_by_the_hour(folder: Path) -> None:
    data = gathered(folder, made(on(["2026-01-05T23:59:59", "2026-01-05T08:30"])))
    steps = data.of("over_time", ALL)
    hours = dict(zip(steps["start"].dt.hour(), steps["traces"], strict=True))
    assert hours == {hour: int(hour in {8, 23}) for hour in range(24)}
    assert steps["is_over"].all()


def test_a_week_begins_on_monday_and_is_over_once_the_run_ended_after_it(folder: Path) -> None:
    data = gathered(folder, made(on(["2026-01-05", "2025-06-08", "2025-05-31", "2025-01-01"])))
    steps = data.of("over_time", ALL)
    assert data.spans[ALL].grain == "week"
    assert len(steps) == 54
    assert steps.filter(pl.col("traces") > 0)["start"].dt.date().to_list() == [
        date(2024, 12, 30),
        date(2025, 5, 26),
        date(2025, 6, 2),
        date(2026, 1, 5),
    ]
    assert steps["is_over"].to_list() == [True] * 54  # though none is of its last days


@pytest.mark.parametrize(
    ("days", "starts", "grain"),
    [
        (("0001-01-01", "0850-12-31"), (date(1, 1, 1), date(10, 1, 1), date(850, 1, 1)), "decade"),
        (
            ("0001-01-01", "2025-12-31"),
            (date(1, 1, 1), date(100, 1, 1), date(2000, 1, 1)),
            "century",
        ),
        (
            ("2027-01-01", "9999-12-31"),
            (date(2000, 1, 1), date(2100, 1, 1), date(9900, 1, 1)),
            "century",
        ),
    ],
)
def test_years_one_and_9999_make_steps_too(
    folder: Path, days: tuple[str, ...], starts: tuple[date, ...], grain: str
) -> None:
    data = gathered(folder, made(on(days)))
    steps = data.of("over_time", "code")
    assert data.spans[ALL].grain == grain
    found = [each.date() for each in steps["start"].to_list()]
    assert (found[0], found[1], found[-1]) == starts
    assert steps["end"].to_list()[:-1] == steps["start"].to_list()[1:]
    assert steps["traces"].to_list() == [1, *[0] * (len(steps) - 2), 1]
    assert data.totals["first_day"] == date.fromisoformat(days[0])


@pytest.mark.parametrize(
    ("days", "others"),
    [
        (["2024-10-03", "2026-03-02"], [("2024-10", 1), ("2026-03", 1)]),
        (["1999-10-03", "1999-01-03"], [("1999", 2)]),
    ],
)
def test_traces_outside_of_the_span_are_counted_by_month_or_by_year(
    folder: Path, days: list[str], others: list[tuple[str, int]]
) -> None:
    data = gathered(folder, made(on(["2026-01-05"] * 99 + days)))
    assert data.of("other_times", ALL).select("time", "traces").rows() == others
    assert data.of("over_time", ALL)["traces"].sum() == 99


USUAL = [f"2026-01-{number:02d}" for number in range(1, 19)]
KINDS: dict[str, tuple[list[str], list[tuple[Any, ...]]]] = {
    "nothing": ([*USUAL, "2016-01-02"], []),
    "ten years before": (
        [*USUAL, "2016-01-01", "1970-01-01"],
        [("before", 2, "1970-01-01", "2016-01-01")],
    ),
    "more than a tenth": ([*USUAL, "2016-01-01", "2016-01-01", "1970-01-01"], []),
    "before and future": (
        ["1990-01-01", *USUAL, "2026-02-02"],
        [("before", 1, "1990-01-01", "1990-01-01"), ("future", 1, "2026-02-02", "2026-02-02")],
    ),
    "after": (
        [each.replace("2026", "2001") for each in USUAL] + ["2026-02-01"],
        [("after", 1, "2026-02-01", "2026-02-01")],
    ),
}


@pytest.mark.parametrize("which", KINDS)
def test_times_far_from_nearly_all_others_are_called_implausible(folder: Path, which: str) -> None:
    days, wanted = KINDS[which]
    data = gathered(folder, made(on(days)))
    as_text = pl.col("first_day", "last_day").dt.strftime("%Y-%m-%d")
    assert data.implausible_dates.with_columns(as_text).rows() == wanted
    assert data.domains["traces"][0] == len(days)


def test_the_longest_gap_is_within_the_span(folder: Path) -> None:
    days = [*["2026-01-05"] * 50, *["2026-01-07"] * 50, *["2026-01-20"] * 50, "2020-01-01"]
    data = gathered(folder, made(on(days)))
    assert data.gap.rows() == [("2026-01-08", "2026-01-19", 12)]


def test_a_domain_that_entered_and_one_that_exited_are_reported(folder: Path) -> None:
    rows = [row(1), row(2, task_domain="new")]
    data = gathered(folder, made(rows, [row(1), row(3, task_domain="old")]))
    assert data.entered_and_exited.rows() == [("old", False), ("new", True)]
    assert data.drift["domain"].to_list() == [ALL, "code"]


def test_the_reasons_of_most_rejects_are_first(folder: Path) -> None:
    data = gathered(folder, made([row(1)], reasons=[["b"], ["a", "c"], ["c"]]))
    assert data.rejects.rows() == [("c", 2), ("a", 1), ("b", 1)]


def test_runs_of_different_encoders_tell_no_drift(folder: Path) -> None:
    data = gathered(folder, made([row(1)], [row(1)], encoders=("a", "b")))
    assert data.drift.is_empty()


@pytest.mark.slow
def test_nothing_is_reported_of_a_warehouse_without_tables(
    several: ReportData, tmp_path: Path
) -> None:
    publish_nothing(tmp_path)
    data = of_warehouse(tmp_path)
    assert (data.run, data.failed, data.labels, data.scopes) == (None, None, [], [])
    assert data.totals == EMPTY_TOTALS
    for name in FRAMES:
        frame = getattr(data, name)
        assert frame.columns == getattr(several, name).columns, name
        assert frame.is_empty() or name == "recorded", name


def settings(folder: Path, **changes: Any) -> RescoreConfig:
    usual = {"embedder": "hashing", "threshold": 0.6, "max_reject_share": 1}
    where = {"archive": (str(folder / "archive"),), "warehouse": folder / "warehouse"}
    return RescoreConfig(**where, **usual | changes)


@pytest.mark.slow
def test_where_the_only_run_failed_its_reason_and_its_rejects_are_reported(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(confidence=7.0), b"no more"])
    with pytest.raises(ArchiveError) as failed:
        rescore_archive(settings(tmp_path, threshold=0.75))
    data = of_warehouse(tmp_path / "warehouse")
    assert data.run is None
    assert data.failed is not None
    assert data.failed.status == "failed"
    assert data.failed.reason == str(failed.value)
    assert data.labels == []
    assert data.totals == EMPTY_TOTALS | {"threshold": None}  # no run has set one
    assert data.rejects.rows() == [("bad_confidence", 1), ("malformed_json", 1)]


@pytest.mark.slow
def test_a_failed_run_is_reported_until_one_succeeds_and_is_no_run_to_compare_with(
    tmp_path: Path,
) -> None:
    rows = [trace(id=f"kp:trace:{number}") for number in range(3)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows[:2])
    good = rescore_archive(settings(tmp_path))
    write_jsonl(tmp_path / "archive" / "b.jsonl", [b"no more"])
    with pytest.raises(ArchiveError):
        rescore_archive(settings(tmp_path, max_reject_share=0))
    data = of_warehouse(tmp_path / "warehouse")
    assert data.run is not None
    assert data.failed is not None
    assert data.run.run_id == good.run_id != data.failed.run_id
    assert data.failed.status == "failed"
    assert data.domains["traces"].to_list() == [2, 2]
    assert data.rejects.rows() == [("malformed_json", 1)]
    assert data.drift.is_empty()
    (tmp_path / "archive" / "b.jsonl").unlink()
    write_jsonl(tmp_path / "archive" / "c.jsonl", rows[2:])
    again = rescore_archive(settings(tmp_path))
    data = of_warehouse(tmp_path / "warehouse")
    assert data.failed is None
    assert data.run is not None
    assert data.run.run_id == again.run_id
    assert data.drift.select("domain", "traces_before", "traces").rows() == [
        (ALL, 2, 3),
        ("code", 2, 3),
    ]
