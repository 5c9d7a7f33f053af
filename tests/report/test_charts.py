"""Each chart draws what the data say, and nothing else: its rows, its marks and its table."""

import json
import re
import tempfile
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

from kp_batch.report.chart_tables import TIME, ChartColumn, columns_of, written
from kp_batch.report.data import ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.panel import Panel, panel_values
from kp_batch.report.panels import PANELS
from tests.support.make import drawn_scores, planted
from tests.support.make.report_data import RUN, under
from tests.support.read.charts import Mark, Scene, drawn, off_line, scene
from tests.support.read.vega_lite import fault

Row = Mapping[str, Any]
PANEL_OF = {panel.name: panel for panel in PANELS}
# Some that chance drew: of few traces and many, one domain and many, seconds to centuries.
SEEDS = {"one trace": 4, "one domain": 14, "hours": 2, "days": 12, "years": 11}
ARCHIVES = ("planted", *SEEDS)
OF_MEANS = ("domains", "agents")
SURE, FAINT = 1, 0.35
THICK, NEAR = 2, 0.5  # pixels
laid_out = pytest.mark.slow  # the first chart that Vega lays out takes a third of a second


@cache
def archive(name: str) -> ReportData:
    """The data of an archive."""
    with tempfile.TemporaryDirectory() as folder:
        planted.build_catalog(Path(folder))
        if name in SEEDS:
            drawn_scores.write(drawn_scores.draw(SEEDS[name]), Path(folder))
        else:
            planted.plant(1).rows.write_parquet(Path(folder) / "scores.parquet")
        with drawn_scores.opened(Path(folder)) as connection:
            return replace(gather(connection), run=RUN, before=RUN)  # scores do move since


@dataclass(frozen=True, eq=False)
class Drawing:
    """A panel in a scope of an archive."""

    panel: Panel
    data: ReportData
    scope: str

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self.panel.rows(self.data, self.scope).to_dicts()

    @cached_property
    def chart(self) -> Scene:
        return scene(drawn(self.panel, self.data, self.scope))


@cache
def drawings(name: str) -> list[Drawing]:
    """All that a panel shows of all archives, in a few of the scopes."""
    found = [
        Drawing(PANEL_OF[name], data, scope)
        for data in map(archive, ARCHIVES)
        for scope in dict.fromkeys([*data.scopes[:3:2], data.scopes[-1]])
    ]
    return [drawing for drawing in found if drawing.rows]


def all_drawings() -> Iterator[Drawing]:
    yield from (drawing for name in PANEL_OF for drawing in drawings(name))


# What a chart draws, by plain loops over the frames


def of(frame: pl.DataFrame, scope: str) -> list[Row]:
    return [row for row in frame.to_dicts() if row["domain"] == scope]


def over_time(data: ReportData, scope: str) -> list[Row]:
    rows = of(data.over_time, scope)
    few = min(30, median([row["traces"] for row in rows if row["traces"]] or [0]) / 2)
    return [
        {
            **row,
            "warming_up": 2 * row["cache_warming_up"] > row["traces"],
            "is_few": row["traces"] < few,
        }
        for row in rows
    ]


def next_period(begins: date, period: str) -> date:
    if period in {"day", "week"}:
        return begins + timedelta(days={"day": 1, "week": 7}[period])
    months = begins.year * 12 + begins.month - 1 + {"month": 1, "quarter": 3, "year": 12}[period]
    year, month = divmod(months, 12)
    return date(year, month + 1, min(begins.day, monthrange(year, month + 1)[1]))


def verdict(row: Row) -> str:
    if not row["is_over"] or row["traces"] < 30 or row["low"] is None:
        return "not comparable"
    if row["warming_up"] > 0.1 or row["warming_up_before"] > 0.1:
        return "not comparable"
    has_moved = row["moved"] if "moved" in row else not row["low"] <= 0 <= row["high"]
    return "more than chance" if has_moved else "within chance"


def changes(data: ReportData, scope: str) -> list[Row]:
    rows = of(data.changes if scope == ALL else data.domain_changes, scope)
    if all(row["change"] is None for row in rows):
        return []
    return [
        {**row, "ends": next_period(row["begins"], data.period), "verdict": verdict(row)}
        for row in rows
    ]


def domains(data: ReportData, scope: str) -> list[Row]:
    rows = [row for row in data.domains.to_dicts() if row["domain"] != ALL or len(data.labels) > 1]
    return [{**row, "is_chosen": scope in {ALL, row["domain"]}} for row in rows]


def drivers(data: ReportData, scope: str) -> list[Row]:
    rows = [
        {**row, "kind": "override" if row["is_override"] else "dimension"}
        for row in of(data.drivers, scope)
        if row["share_of_variance"] is not None
        if not row["is_override"] or row["traces"] is not None
    ]
    return sorted(rows, key=lambda row: -row["share_of_variance"])


def units(name: str) -> Callable[[ReportData, str], list[Row]]:
    def rows(data: ReportData, scope: str) -> list[Row]:
        return [row for row in of(getattr(data, name), scope) if row["place"] <= 12]

    return rows


def paired(data: ReportData, scope: str) -> list[Row]:
    return [
        {**row, "kind": name[:-1]}
        for name in ("agents", "frameworks")
        for row in units(name)(data, scope)
        if row["shared_tasks"] and row["shared_tasks"] >= 5
    ]


def frame(name: str) -> Callable[[ReportData, str], list[Row]]:
    return lambda data, scope: of(getattr(data, name), scope)


def drift(data: ReportData, scope: str) -> list[Row]:
    return [*data.drift.to_dicts()] if scope == ALL else of(data.drift, scope)


EXPECTED: Mapping[str, Callable[[ReportData, str], list[Row]]] = {
    "scores_over_time": over_time,
    "traces_over_time": over_time,
    "mean_changes": changes,
    "scores_by_domain": domains,
    "score_histogram": frame("histogram"),
    "dimension_effects": drivers,
    "success_by_score": frame("success"),
    "confidence_bins": frame("calibration"),
    "scores_by_agent": units("agents"),
    "scores_by_framework": units("frameworks"),
    "differences_from_others": paired,
    "drift": drift,
}


def as_drawn(value: Any, *, has_hours: bool) -> Any:
    """A value of a frame as the page gets it."""
    if isinstance(value, float):
        return pytest.approx(value, rel=0, abs=5.1e-5)
    if isinstance(value, datetime) and has_hours:
        return value.strftime("%Y-%m-%dT%H:%MZ")
    return value.isoformat()[:10] if isinstance(value, date) else value


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_chart_draws_the_rows_of_its_scope(name: str) -> None:
    panel, number = PANEL_OF[name], 0
    for data in map(archive, ARCHIVES):
        for scope in data.scopes:
            rows, expected = panel.rows(data, scope), EXPECTED[name](data, scope)
            hours = {
                column: any(
                    isinstance(row[column], datetime) and row[column].hour for row in expected
                )
                for column in rows.columns
            }
            assert rows.to_dicts() == [
                {column: as_drawn(row[column], has_hours=hours[column]) for column in rows.columns}
                for row in expected
            ]
            number += rows.height
    assert number


def test_each_chart_has_an_oracle() -> None:
    assert [*EXPECTED] == [*PANEL_OF]


@pytest.mark.telling
@pytest.mark.slow
def test_all_charts_are_valid_and_get_strict_json_of_few_bytes() -> None:
    for data in map(archive, ARCHIVES):
        values = panel_values(PANELS, data, data.scopes)
        assert len(json.dumps(values, allow_nan=False)) < 350_000
        for spec in values["specs"]:
            assert fault({**spec, "data": {"name": "rows", "values": []}}) == ""
            assert values["specs"].count(spec) == 1


@pytest.mark.telling
@laid_out
def test_no_scale_cuts_off_a_mark() -> None:
    for drawing in all_drawings():
        chart = drawing.chart
        assert chart.marks
        outside = [
            mark
            for mark in chart.marks
            for axis, size in ((mark.x, chart.width), (mark.y, chart.height))
            if not -THICK <= min(axis) <= max(axis) <= size + THICK
        ]
        assert (drawing.panel.name, drawing.scope, outside) == (
            drawing.panel.name,
            drawing.scope,
            [],
        )


@laid_out
def test_an_interval_beyond_0_and_1_is_seen_whole() -> None:
    data = archive("planted")
    wide = {"low": pl.lit(-0.2), "high": pl.lit(1.1)}
    wider = replace(data, **{name: getattr(data, name).with_columns(**wide) for name in OF_MEANS})
    for name in ("scores_by_domain", "scores_by_agent"):
        chart = Drawing(PANEL_OF[name], wider, ALL).chart
        places = [place for mark in chart.of("rule") for place in mark.x if "at" not in mark.label]
        assert (round(min(places)), round(max(places))) == (0, chart.width)


# The marks of these rows

SCORE, NOVELTY, SUCCESS = ({"measure": name} for name in ("mean score", "mean novelty", "success"))
OF_DIFFERENCE = ("success_difference", "success_difference_low", "success_difference_high")
OF_UNITS = [
    ("symbol", SCORE, "x", ["mean"]),
    ("rule", SCORE, "x", ["low", "high"]),
    ("symbol", SUCCESS, "x", ["success"]),
    ("rule", SUCCESS, "x", ["success_low", "success_high"]),
    ("symbol", {"measure": "stated confidence"}, "x", ["confidence"]),
]
# Of each chart the kinds of its marks, what tells them from others, and the columns that place
# them; a mark from one to another has two.
PLACED: Mapping[str, Sequence[tuple[str, Mapping[str, str], str, Sequence[str]]]] = {
    "scores_over_time": [
        ("symbol", SCORE, "y", ["mean"]),
        ("rect", SCORE, "y", ["low", "high"]),
        ("symbol", NOVELTY, "y", ["novelty"]),
        ("rect", NOVELTY, "y", ["novelty_low", "novelty_high"]),
    ],
    "traces_over_time": [("rect", {}, "y", ["traces", "0"])],
    "mean_changes": [("rule", {}, "y", ["low", "high"])],
    "scores_by_domain": [
        ("rect", {}, "x", ["p5", "p95"]),
        ("rule", {}, "x", ["low", "high"]),
        ("symbol", {}, "x", ["mean"]),
    ],
    "score_histogram": [("rect", {}, "y", ["traces", "0"])],
    "dimension_effects": [("rect", {}, "x", ["share_of_variance", "0"])],
    "success_by_score": [
        ("rule", {}, "y", ["success_low", "success_high"]),
        ("symbol", {}, "y", ["success"]),
        ("symbol", {}, "x", ["mean"]),
    ],
    "confidence_bins": [
        ("rule", {}, "y", ["success_low", "success_high"]),
        ("symbol", {}, "y", ["success"]),
        ("symbol", {}, "x", ["confidence"]),
    ],
    "scores_by_agent": OF_UNITS,
    "scores_by_framework": OF_UNITS,
    "differences_from_others": [
        ("symbol", SCORE, "x", ["score_difference"]),
        ("rule", SCORE, "x", ["score_low", "score_high"]),
        ("symbol", SUCCESS, "x", OF_DIFFERENCE[:1]),
        ("rule", SUCCESS, "x", OF_DIFFERENCE[1:]),
    ],
    "drift": [("rect", {}, "x", ["mean_shift", "0"])],
}


def of_rows(
    chart: Scene, kind: str, label: Mapping[str, str], axis: str, columns: Sequence[str]
) -> list[Mark]:
    """The marks that stand for rows: no line across the chart, no field for a pointer."""
    return [
        mark
        for mark in chart.of(kind, **label)
        if mark.opacity and "at" not in mark.label and len(getattr(mark, axis)) == len(columns)
    ]


@pytest.mark.telling
@laid_out
@pytest.mark.parametrize("name", PLACED)
def test_each_mark_is_where_its_row_is(name: str) -> None:
    number = 0
    for drawing in drawings(name):
        values: dict[str, list[float]] = {"x": [], "y": []}
        places: dict[str, list[float]] = {"x": [], "y": []}
        for kind, label, axis, columns in PLACED[name]:
            known = [row for row in drawing.rows if row[columns[0]] is not None]
            marks = of_rows(drawing.chart, kind, label, axis, columns)
            assert len(marks) == len(known), (kind, label)
            for row, mark in zip(known, marks, strict=True):
                ends = sorted(row.get(column, 0) for column in columns)
                values[axis] += ends if axis == "x" else reversed(ends)
                places[axis] += sorted(getattr(mark, axis))
            number += len(marks)
        for axis in "xy":
            assert off_line(values[axis], places[axis]) < NEAR
    assert number


@laid_out
def test_what_is_not_known_well_is_faint() -> None:
    seen = set()
    for drawing in drawings("scores_over_time"):
        for measure, low in ((SCORE, "low"), (NOVELTY, "novelty_low")):
            value = "mean" if measure is SCORE else "novelty"
            there = [row for row in drawing.rows if row[value] is not None]
            dots = drawing.chart.of("symbol", **measure)
            is_sure = [
                row[low] is not None and row["is_over"] and not row["is_few"] for row in there
            ]
            opacity = [SURE if each else FAINT for each in is_sure]
            seen.add("few" if any(row["is_few"] for row in there) else "usual")
            assert [dot.opacity for dot in dots] == opacity
            through = [dot.y for dot, sure in zip(dots, is_sure, strict=True) if sure]
            assert [point.y for point in drawing.chart.of("line", **measure)] == through
            seen |= {*opacity}
    assert seen == {SURE, FAINT, "few", "usual"}


@laid_out
def test_steps_in_which_the_cache_was_warming_up_are_shaded_and_named_once() -> None:
    seen = set()
    for drawing in drawings("scores_over_time"):
        warming_up = [row for row in drawing.rows if row["warming_up"]]
        shaded = [
            mark
            for mark in drawing.chart.of("rect")
            if mark.opacity == 0.1 and "measure" not in mark.label
        ]
        assert len(shaded) == len(warming_up)
        names = [mark.text for mark in drawing.chart.of("text")]
        assert names == (["cache warming up"] if warming_up else [])
        seen.add(bool(warming_up))
    assert seen == {True, False}


@laid_out
def test_without_novelty_the_chart_shows_only_the_score() -> None:
    data = archive("planted")
    unknown = pl.lit(None, pl.Float64)
    names = ("novelty", "novelty_low", "novelty_high")
    steps = data.over_time.with_columns(**dict.fromkeys(names, unknown))
    chart = Drawing(PANEL_OF["scores_over_time"], replace(data, over_time=steps), ALL).chart
    assert chart.of("symbol", **SCORE)
    told = {mark.label.get("measure") for mark in chart.marks}
    assert "mean novelty" not in told


@laid_out
def test_a_step_that_is_not_over_is_faint() -> None:
    for drawing in drawings("traces_over_time"):
        expected = [SURE if row["is_over"] else FAINT for row in drawing.rows]
        assert [mark.opacity for mark in drawing.chart.of("rect")] == expected


@laid_out
def test_the_parts_of_a_change_add_up_above_and_below_zero() -> None:
    names = ("mix", "within", "entered", "exited")
    number = 0
    for drawing in drawings("mean_changes"):
        known = [row for row in drawing.rows if row.get("mix") is not None]
        marks = [mark for mark in drawing.chart.of("rect") if mark.label.get("part") in names]
        assert [mark.label["part"] for mark in marks] == [*names] * len(known)
        ends: list[float] = []
        for row in known:
            above, below = (sum(max(0, sign * row[name]) for name in names) for sign in (1, -1))
            ends += [above, -below]
        own = [marks[place : place + 4] for place in range(0, len(marks), 4)]
        places = [end(y for mark in bars for y in mark.y) for bars in own for end in (min, max)]
        assert off_line(ends, places) < NEAR
        number += len(known)
    assert number


@laid_out
def test_a_change_of_more_than_chance_is_filled_and_one_that_does_not_compare_faint() -> None:
    seen: set[str] = set()
    for drawing in drawings("mean_changes"):
        known = [row for row in drawing.rows if row["change"] is not None]
        rings = [mark for mark in drawing.chart.of("symbol") if mark.fill == "transparent"]
        discs = [mark for mark in drawing.chart.of("symbol") if mark.fill != "transparent"]
        expected = [FAINT if row["verdict"] == "not comparable" else SURE for row in known]
        assert [mark.opacity for mark in rings] == expected
        filled = [row["verdict"] == "more than chance" for row in known]
        assert [ring.y for ring, is_filled in zip(rings, filled, strict=True) if is_filled] == [
            disc.y for disc in discs
        ]
        seen |= {row["verdict"] for row in known}
    assert seen == {"more than chance", "within chance", "not comparable"}


@laid_out
def test_the_chosen_domain_is_opaque_and_the_others_are_faint() -> None:
    for drawing in drawings("scores_by_domain"):
        for kind in ("rect", "symbol"):
            there = {mark.label["domain"]: mark.opacity for mark in drawing.chart.of(kind)}
            for label, opacity in there.items():
                assert opacity == (SURE if drawing.scope in {ALL, label} else FAINT)


NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(?:\.([0-9]+))?")


def is_same(told: str, text: str) -> bool:
    """Whether two texts are the same; of what is in the middle, JavaScript takes the larger."""
    told = told.replace("\N{MINUS SIGN}", "-")
    if NUMBER.sub("#", told) != NUMBER.sub("#", text):
        return False
    pairs = zip(NUMBER.finditer(told), NUMBER.finditer(text), strict=True)
    return all(
        one[0] == other[0] or (other[1] and float(one[0]) == last_digit(other))
        for one, other in pairs
    )


def last_digit(number: re.Match[str]) -> Any:
    return pytest.approx(float(number[0]), rel=0, abs=1.01 * 10 ** -len(number[1]))


@laid_out
def test_the_label_of_a_mark_has_the_values_of_the_table() -> None:
    number = 0
    for drawing in all_drawings():
        panel, data, scope = drawing.panel, drawing.data, drawing.scope
        known = columns_of(panel.rows(data, scope), panel.columns)
        titles = [column.title for column in known]
        lines = panel.table(data, scope).select(titles).rows()
        for mark in scene(drawn(panel, data, scope), as_read=True).marks:
            told = [*mark.label.values()]
            if told and mark.label.get("traces") != "0":  # of a step without traces
                assert [*mark.label] == titles
                assert any(all(map(is_same, told, line)) for line in lines), told
                number += 1
    assert number


# Words


def caption(name: str, data: ReportData, scope: str = ALL) -> str:
    return PANEL_OF[name].caption(data, scope)


@pytest.mark.slow
def test_of_many_agents_those_with_most_traces_are_shown_by_names_that_fit() -> None:
    data = archive("planted")
    names = ["x" * 50 + "1", "x" * 50 + "2", "__proto__", "\x1b[31mred", *map(str, range(9))]
    units = data.of("agents", "medical").head(1).select(pl.exclude("unit", "place"))
    many = units.join(pl.DataFrame({"unit": names, "place": [*range(1, 14)]}), how="cross")
    many = many.select(data.agents.columns)
    drawing = Drawing(PANEL_OF["scores_by_agent"], replace(data, agents=many), "medical")
    shown = ["x" * 39 + "…", "x" * 39 + "…*", "__proto__*", r"\x1b[31mred", *map(str, range(8))]
    assert [row["unit"] for row in drawing.rows] == shown
    assert "Not shown: 1 with fewer traces." in caption("scores_by_agent", drawing.data, "medical")


@pytest.mark.slow
def test_a_framework_and_an_agent_of_its_name_are_separate() -> None:
    data = archive("planted")
    drawing = Drawing(
        PANEL_OF["differences_from_others"], replace(data, frameworks=data.agents), "medical"
    )
    agents = [
        row["unit"] for row in Drawing(PANEL_OF["differences_from_others"], data, "medical").rows
    ]
    kinds = ("agent", "framework")
    assert agents
    assert [row["unit"] for row in drawing.rows] == [
        f"{a} ({kind})" for kind in kinds for a in agents
    ]


@pytest.mark.slow
def test_a_caption_says_what_must_be_known_in_its_scope() -> None:
    data, years, one = map(archive, ("planted", "years", "one trace"))
    outside = pl.DataFrame({"domain": ALL, "time": ["2024", "2025"], "traces": [1, 1008]})
    for number, told in (
        (1, "1 trace outside this time, from 2024."),
        (2, "1,009 traces outside this time, from 2024 to 2025."),
    ):
        others = replace(data, other_times=outside.head(number))
        assert f"table also lists {told}" in caption("scores_over_time", others)
    assert "table also lists" not in caption("scores_over_time", data)
    assert "A period is a week. Bars: the parts of the change, which add up to it." in caption(
        "mean_changes", data
    )
    assert "A period is a year." in caption("mean_changes", years)
    assert "Bars: " not in caption("mean_changes", data, "code")
    assert "(by Holm)" in caption("mean_changes", data, "code")
    assert "(by Holm)" not in caption("mean_changes", data)
    assert "All traces state a confidence of about" in caption("confidence_bins", one)
    assert "All traces state a confidence of about" not in caption("confidence_bins", data)
    told = "For a fair comparison see “On the same tasks”, or ask differences_by."
    assert told in caption("scores_by_agent", data)
    assert told not in caption("scores_by_agent", one)
    alone = replace(data, frameworks=data.agents.with_columns(shared_tasks=None))
    assert "On the same tasks" not in caption("scores_by_framework", alone)
    assert "This is not a trend, because settings or formulas changed." in caption(
        "drift", replace(data, before=under(cache_size=7))
    )
    assert "no trend" not in caption("drift", data)


@pytest.mark.slow
def test_novelty_that_was_not_measured_is_not_drawn() -> None:
    data = archive("planted")
    without = replace(data, run=under(embedder="none"))
    for each, is_shown in ((data, True), (without, False)):
        drawing = Drawing(PANEL_OF["scores_over_time"], each, ALL)
        assert any(row["novelty"] is not None for row in drawing.rows) == is_shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("now", "before", "told"),
    [
        (
            {"code": 30, "ops": 70},
            {"code": 24, "ops": 76},
            "code had 30%|in the previous four weeks, 24%",
        ),
        ({"code": 30, "ops": 70}, {"code": 26, "ops": 74}, None),
        (
            {"code": 30, "ops": 40, "rest": 30},
            {"ops": 50, "rest": 50},
            "code had 30%|in the previous four weeks, 0%",
        ),
        (
            {"ops": 10, "rest": 90},
            {"code": 40, "rest": 60},
            "code had 0%|in the previous four weeks, 40%",
        ),
    ],
)
def test_the_caption_names_the_share_that_moved_most_in_the_last_period(
    now: dict[str, int], before: dict[str, int], told: str | None
) -> None:
    data = archive("planted")
    last = data.comparable(ALL).tail(1)
    begins = last["begins"][0]
    totals = {"traces": sum(now.values()), "traces_before": sum(before.values())}
    counts = [
        {"domain": name, "begins": at, "traces": number}
        for counted, ats in (
            (now, [begins]),
            (before, [begins - timedelta(days=14), begins - timedelta(days=28)]),
        )
        for name, number in counted.items()
        for at in ats
        if name != "rest"
    ]
    halved = pl.col("traces") // pl.when(pl.col("begins") < begins).then(2).otherwise(1)
    earlier = {"domain": "code", "begins": begins - timedelta(days=35), "traces": 1000}
    own = pl.concat([pl.DataFrame(counts).with_columns(traces=halved), pl.DataFrame([earlier])])
    rows = data.domain_changes.head(1).drop(own.columns).join(own, how="cross")
    moved = replace(
        data,
        changes=last.with_columns(**{name: pl.lit(count) for name, count in totals.items()}),
        domain_changes=rows,
    )
    told_of = caption("mean_changes", moved)
    week = f"In the week starting {begins}, "
    assert (week in told_of) == bool(told)
    assert all(part in told_of for part in (told or "").split("|"))
    assert week not in caption("mean_changes", moved, "code")


@pytest.mark.slow
def test_the_table_over_time_has_what_the_chart_leaves_out() -> None:
    seen: set[str] = set()
    for data in map(archive, ("years", "planted")):
        rows = PANEL_OF["scores_over_time"].table(data, ALL).rows(named=True)
        outside = [row for row in rows if row["note"] == "not in the chart"]
        expected = data.of("other_times", ALL).rows(named=True)
        assert [(row["from"], row["traces"]) for row in outside] == [
            (row["time"], f"{row['traces']:,}") for row in expected
        ]
        steps = data.of("over_time", ALL).filter(pl.col("traces") > 0)
        assert len(rows) == len(outside) + len(steps)
        seen |= {row["note"] for row in rows}
    assert {"not in the chart", "cache warming up", ""} <= seen


# Tables


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (None, ".3f", ""),
        ("code", "", "code"),
        (1234, ",", "1,234"),
        (-0.0, "+.3f", "+0.000"),
        (0.0, ".1%", "0.0%"),
        (0.0004, ".1%", "<0.1%"),
        (0.0006, ".1%", "0.1%"),
        (0.9996, ".1%", ">99.9%"),
        (1.0, ".1%", "100.0%"),
        (date(2026, 1, 5), TIME, "2026-01-05"),
        (datetime(2026, 1, 5, tzinfo=UTC), TIME, "2026-01-05"),
        (datetime(2026, 1, 5, 7, tzinfo=UTC), TIME, "2026-01-05 07:00"),
    ],
)
def test_a_value_is_written_for_readers(value: Any, form: str, text: str) -> None:
    assert written(value, form) == text


def test_a_cell_has_its_interval_if_it_is_known() -> None:
    mean = ChartColumn("mean score", "mean", ".2f", "low", "high")
    assert mean.cell({"mean": 0.5, "low": 0.25, "high": 1.0}) == "0.50 (0.25 to 1.00)"
    assert mean.cell({"mean": 0.5, "low": None, "high": None}) == "0.50"
    assert mean.cell({"mean": None, "low": None, "high": None}) == ""


def test_a_page_gets_charts_that_differ_once_and_the_rows_of_each_scope() -> None:
    panel = Panel(
        "sums",
        "Sums",
        "What is summed.",
        lambda data, scope: pl.DataFrame({"sum": data[scope], "more": 1}),
        lambda shown: {"mark": "bar", "height": shown.rows.height},
        ("sum",),
        (ChartColumn("sum", "sum", ".1f"),),
        notes=lambda _data, scope: [f"Of {scope}."],
    )
    bare = Panel("bare", "Bare", "", lambda *_: pl.DataFrame({"one": []}), lambda _: {})
    data: dict[str, list[float]] = {
        "a": [1 / 3, float("nan")],
        "b": [2.0, 3.0],
        "c": [4.0],
        "d": [],
    }
    values = panel_values([panel, bare], data, [*data])
    assert [spec["height"] for spec in values["specs"]] == [2, 1]
    assert values["panels"]["bare"] == {}
    assert [*values["panels"]["sums"]] == ["a", "b", "c"]
    assert values["panels"]["sums"]["a"] == {
        "spec": 0,
        "caption": "What is summed. Of a.",
        "columns": ["sum"],
        "rows": [[0.333333], [None]],
        "table": {"columns": ["sum"], "rows": [["0.3"], [""]]},
    }
