"""A chart of the report in Altair: what the page draws, for a notebook."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert

from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.operations.chart import NAMES, chart
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.data import FRAMES, ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.panels import PANELS
from kp_batch.report.themes import NOTEBOOK
from kp_batch.warehouse.reader import connect
from tests.support.docs.pages import DOCS
from tests.support.make.archives import write_jsonl
from tests.support.make.hourly import said
from tests.support.make.runs import config
from tests.support.read.errors import fails_with
from tests.support.read.vega_lite import fault

pytestmark = [pytest.mark.slow, pytest.mark.telling]

PANEL_OF = {panel.name: panel for panel in PANELS}
OF_ALL = [*PANEL_OF][::2]  # the others are drawn of one domain
OWN = ("title", "description", "width", "data", "config", "$schema")  # a page has them elsewhere


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    """Two runs over 90 days of three domains, of which one has a long name."""
    folder = tmp_path_factory.mktemp("made")
    domains = ("code", "medical", "a domain " * 10)
    agents, tasks = ("x", "y"), ("fix the import", "sum the rows", "plan a trip", "read it", "go")
    traces = [
        said(
            24 * (number // 4),
            tasks[number % 5],
            id=f"t{number}",
            agent_id=agents[number % 2],
            framework=agents[number // 2 % 2],
            task_domain=domains[number % 3],
            success=number % 7 != 0,
            confidence=number % 10 / 10,
        )
        for number in range(360)
    ]
    settings = config(folder, folder / "archive")
    for last in (240, 360):
        write_jsonl(folder / "archive" / "a.jsonl", traces[:last])
        rescore_archive(settings)
    return settings


@pytest.fixture(scope="module")
def data(made: RescoreConfig) -> ReportData:
    with connect(made.warehouse) as connection:
        return gather(connection)


def spec_of(made: RescoreConfig, name: str, domain: str | None = None) -> dict[str, Any]:
    spec = json.loads(chart(made.warehouse, name, domain).to_json())
    return in_place(spec, spec.pop("datasets", {}))


def in_place(part: Any, datasets: dict[str, Any]) -> Any:
    """A part of a chart with its data where they are used; Altair lists them beside it."""
    if isinstance(part, list):
        return [in_place(each, datasets) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("name") in datasets:
        return {"values": datasets[part["name"]]}
    return {name: in_place(each, datasets) for name, each in part.items()}


@pytest.mark.parametrize("name", PANEL_OF)
def test_a_chart_is_that_of_the_page_and_can_be_drawn(
    made: RescoreConfig, data: ReportData, name: str
) -> None:
    scope = ALL if name in OF_ALL else "code"
    panel, domain = PANEL_OF[name], None if scope == ALL else scope
    rows = panel.rows(data, scope)
    spec = spec_of(made, name, domain)
    assert spec["data"]["values"] == rows.to_dicts()
    of_page = json.loads(json.dumps(panel.spec(data, scope, rows)))
    assert {key: part for key, part in spec.items() if key not in OWN} == {
        key: part for key, part in of_page.items() if key not in OWN
    }
    assert spec["title"]["text"] == panel.title
    caption = panel.caption(data, scope)
    assert spec["description"] == caption
    assert " ".join(spec["title"]["subtitle"]) in {caption, f"{scope} {caption}"}
    assert {key: spec["config"][key] for key in NOTEBOOK if key != "view"} == {
        key: value for key, value in NOTEBOOK.items() if key != "view"
    }
    assert fault(spec) == ""
    assert "<svg" in vl_convert.vegalite_to_svg(spec)


def test_only_what_a_chart_shows_is_asked_for(data: ReportData) -> None:
    assert {frame for panel in PANELS for frame in panel.frames} <= {*FRAMES}
    assert [panel.name for panel in PANELS if not panel.frames] == []
    assert data.over_time.height > 0


@pytest.mark.parametrize(
    ("unit", "starts"),
    [
        ("week", ["2026-01-05", "2026-01-12"]),
        ("quarter", ["2026-01-01", "2026-04-01"]),
        ("year", ["2026-01-01"]),
    ],
)
def test_scores_over_time_have_steps_of_the_unit_that_is_named(
    made: RescoreConfig, unit: str, starts: list[str]
) -> None:
    spec = spec_of(made, f"scores_by_{unit}", "code")
    rows = pl.DataFrame(spec["data"]["values"])
    assert rows["start"].to_list()[:2] == starts
    assert rows["traces"].sum() == 120
    with connect(made.warehouse) as connection:
        by_unit = connection.execute(
            "SELECT date_trunc($unit, created_at)::DATE::VARCHAR AS start, avg(score) AS mean "
            "FROM scores WHERE task_domain = 'code' GROUP BY ALL ORDER BY ALL",
            {"unit": unit},
        ).fetchall()
    means = dict(rows.filter(pl.col("traces") > 0).select("start", "mean").iter_rows())
    assert means == pytest.approx(dict(by_unit), abs=1e-6)
    if len(rows) <= 10:  # each step has its label
        length = 4 if unit == "year" else 7
        assert f">{starts[0][:length]}<" in vl_convert.vegalite_to_svg(spec)


def test_the_page_on_notebooks_names_every_chart() -> None:
    page = (DOCS / "how-to" / "notebook.md").read_text("utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_a_domain_may_be_named_as_it_is_or_as_the_page_names_it(
    made: RescoreConfig, data: ReportData
) -> None:
    [label] = [label for label, name in data.names.items() if label != name]
    by_name = spec_of(made, "score_histogram", data.names[label])
    assert by_name == spec_of(made, "score_histogram", label)
    assert by_name["title"]["subtitle"][0] == label


def test_what_is_unknown_is_named_with_what_there_is(made: RescoreConfig) -> None:
    similar = "no chart 'score_by_week', did you mean scores_by_week? There are scores_over_time, "
    with pytest.raises(KpBatchError, match=re.escape(similar)):
        chart(made.warehouse, "score_by_week")
    with pytest.raises(KpBatchError, match="no domain 'cod', did you mean code"):
        chart(made.warehouse, "score_histogram", "cod")
    with pytest.raises(KpBatchError, match=r"no chart 'x'\. There are"):
        chart(made.warehouse, "x")
    with fails_with(WarehouseError, "no_warehouse"):
        chart(made.warehouse / "none", "drift")


def test_too_many_steps_and_a_chart_of_nothing_are_refused(tmp_path: Path) -> None:
    times = ["1950-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    traces = [
        said(n, "go", id=f"{n}", created_at=time, agent_id=None) for n, time in enumerate(times)
    ]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    settings = config(tmp_path, tmp_path / "archive")
    rescore_archive(settings)
    with pytest.raises(
        KpBatchError, match=r"27,760 days, from .*, are too many to draw; choose a longer"
    ):
        chart(settings.warehouse, "scores_by_day")
    assert chart(settings.warehouse, "scores_by_year")
    with pytest.raises(KpBatchError, match="nothing to draw: no agent is recorded"):
        chart(settings.warehouse, "scores_by_agent")


def test_a_name_runs_no_script_where_a_chart_is_saved_as_a_page(tmp_path: Path) -> None:
    names = ("</script><script>alert(1)</script>", "<!--<script>", "</SCRIPT >")
    traces = [
        said(number, "fix it", id=f"t{number}", agent_id=names[number % 3], task_domain=names[0])
        for number in range(30)
    ]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    settings = config(tmp_path, tmp_path / "archive")
    rescore_archive(settings)
    drawn = chart(settings.warehouse, "scores_by_agent", names[0])
    drawn.save(tmp_path / "chart.html")
    page = (tmp_path / "chart.html").read_text("utf-8")
    for written in (page, drawn.properties(title="").to_html()):
        assert "alert(1)" in written
        assert "<!--" not in written.partition("<body>")[2]
        for tag in ("</script><script>", "</script >", "<!--<"):
            assert tag not in written.lower()
