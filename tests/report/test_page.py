"""The report's page as it is on disk, and as a real browser shows it."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.report import gather_traces, report, write_report
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.data import ReportData, gather
from kp_batch.report.page import THEMES
from kp_batch.report.panels import PANELS
from kp_batch.sample import write_sample
from kp_batch.steps.step import ThreadExecutor
from kp_batch.text import bar_line, shortened
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.archives import record_scores, step, trace, write_jsonl
from tests.support.browser import CHROMIUM, Opening, charts, launched, marks, opened_in
from tests.support.publications import publish_tables

pytestmark = pytest.mark.process

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: see the end of this output")
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' || alert(1) || '",
    "{{7*7}}\x1b[31mred\x9b31m\u202e",
)
LIMIT = 3_000_000


def written(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


def age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds == 0:
        return "0 s"
    named = ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (math.inf, 86_400, "d"))
    text = next(f"{seconds / unit:.1f} {name}" for end, unit, name in named if seconds < end)
    return text if seconds >= 1 else "under 1 s"


def by_domain(data: ReportData) -> list[list[str]]:
    return [
        [
            *(row["domain"] or "all domains", str(row["traces"])),
            *(written(row[name]) for name in ("mean", "p50")),
            f"{row['worth_sharing'] / row['traces']:.1%}",
            *(written(row[name]) for name in ("p5", "p95")),
            bar_line(data.bins(row["domain"])),
        ]
        for row in data.domains.to_dicts()
    ]


def named(trace_id: str | None, texts: Mapping[str, Any]) -> str:
    """A trace as the tables name it."""
    parts = [texts[trace_id].objective, trace_id] if trace_id else [""]
    return " ".join(shortened(part, 80) for part in parts)


def ranked(data: ReportData, texts: Mapping[str, Any], which: str) -> list[list[str]]:
    return [
        [
            *(named(row["trace_id"], texts), written(row["score"]), row["domain"]),
            *(row["created_at"], named(row["nearest_trace_id"], texts)),
            *(written(row["max_similarity"]), age(row["nearest_age_s"])),
            *(written(row[name]) for name in DIMENSIONS),
        ]
        for row in data.traces.filter(which=which).to_dicts()
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over a sample, some refused rows, and all kinds of hostile text."""
    folder = tmp_path_factory.mktemp("page")
    write_sample(folder / "archive", traces=300, days=20, seed=3, dirty=0.03)
    record_scores(folder / "archive", seed=3)
    settings = {"warehouse": folder / "warehouse", "embedder": "hashing", "max_reject_share": 1}
    rescore_archive(RescoreConfig(archive=(str(folder / "archive"),), **settings))
    hostile = [
        trace(
            id=f"{text}{number}",
            task_domain=text,
            created_at=f"2026-01-{number + 5:02d}",
            objective=f"{text} {number}",
            steps=[step("tool_call", text, text), step(content=text)],
        )
        for text in HOSTILE
        for number in range(3)
    ]
    refused = [trace(id=text, task_domain=text, steps=[]) for text in HOSTILE]
    write_jsonl(folder / "archive" / "hostile.jsonl", hostile + refused)
    rescore_archive(RescoreConfig(archive=(str(folder / "archive"),), **settings))
    write_report(folder / "warehouse", mark="")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def path(warehouse: Path) -> Path:
    return warehouse / "report.html"


@pytest.fixture(scope="module")
def opened() -> Iterator[Opening]:
    with launched() as browser:
        yield partial(opened_in, browser)


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_page_holds_no_element_but_its_own(path: Path) -> None:
    elements = Elements(path.read_text("utf-8")).elements
    tags = [tag for tag, _ in elements]
    assert tags.count("script") == 3
    assert {"img", "iframe", "object", "link", "svg"}.isdisjoint(tags)
    attributes = {name for _, attrs in elements for name in attrs}
    assert not any(name.startswith("on") or name == "src" for name in attributes)
    links = {(tag, attrs["href"]) for tag, attrs in elements if "href" in attrs}
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len({*ids})
    assert links <= {("a", f"#{element_id}") for element_id in ids}
    assert charts(path).keys() == {panel.name for panel in PANELS}
    assert not any(sign in path.read_text("utf-8") for sign in "\x1b\x9b\u202e")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
@in_browser
def test_every_chart_is_drawn_without_a_word_of_complaint(
    path: Path, scheme: str, width: int, zone: str, opened: Opening
) -> None:
    with opened(path, scheme, width, zone) as (page, complaints):
        assert complaints == []
        for panel in PANELS:
            marks = page.locator(f"#{panel.name} svg .mark-group .role-mark path")
            assert marks.count() > 0, panel.name
            box = page.locator(f"#{panel.name} svg").first.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert 250 <= box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") == width
        theme = THEMES[scheme]["axis"]["labelColor"]
        label = page.locator("#histogram .role-axis-label text").first
        assert label.get_attribute("fill") == theme


def bars(page: Page, chart: str) -> dict[str, int]:
    """How many traces the bars of a chart stand for, by domain."""
    counts: dict[str, int] = {}
    for bar in marks(page, chart, "bar"):
        counts[bar["domain"]] = counts.get(bar["domain"], 0) + int(bar["traces"].replace(",", ""))
    return counts


def numbers(rows: list[dict[str, Any]], name: str) -> tuple[list[str], list[float]]:
    """The domains, and one number of each, in the order of these."""
    values = [(row["domain"], float(str(row[name]).replace("−", "-"))) for row in rows]  # noqa: RUF001 (Vega's minus)
    return [domain for domain, _ in sorted(values)], [number for _, number in sorted(values)]


@in_browser
def test_the_charts_and_tables_show_the_data(path: Path, warehouse: Path, opened: Opening) -> None:
    with connect(warehouse) as connection:
        data = gather(connection)
        texts = gather_traces(published(warehouse), connection, data, ThreadExecutor()).texts or {}
    tables = {
        "by-domain": by_domain(data),
        **{which: ranked(data, texts, which) for which in ("highest", "lowest")},
    }
    with opened(path) as (page, _):
        for chart, kind, title, column in (
            ("domains", "tick", "p50", "p50"),
            ("dimensions", "circle", "mean", "mean"),
            ("overrides", "bar", "effect on the mean score", "effect_on_mean"),
            ("drift", "bar", "shift of the mean score", "mean_shift"),
            ("rejects", "bar", "rows and files", "rejected"),
        ):
            shown = numbers(marks(page, chart, kind), title)
            of_domains = getattr(data, chart).drop_nulls("domain")
            wanted = numbers(of_domains.to_dicts(), column)
            assert shown[0] == wanted[0], chart
            assert shown[1] == pytest.approx(wanted[1]), chart
        for chart in ("histogram", "domains", "thresholds"):
            assert {"threshold": "0.75"} in marks(page, chart, "rule mark"), chart
        for label, wanted in tables.items():
            cells = page.locator(f"[aria-labelledby={label}] tbody tr").evaluate_all(
                "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
            )
            assert cells == wanted


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
@in_browser
def test_a_trace_in_a_table_leads_to_its_own_page_and_back(
    path: Path, warehouse: Path, scheme: str, width: int, opened: Opening
) -> None:
    with connect(warehouse) as connection:
        data = gather(connection)
        traces = gather_traces(published(warehouse), connection, data, ThreadExecutor())
    row = data.traces.filter(which="lowest", overall=True).row(0, named=True)
    one, texts = traces.details[row["trace_id"]], traces.texts or {}
    with opened(path, scheme, width) as (page, complaints):
        assert page.locator(".trace:visible").count() == 0
        page.locator("[aria-labelledby=lowest] tbody a").first.click()
        shown = page.locator(".trace:visible")
        assert shown.count() == 1
        text = " ".join(shown.inner_text().split())
        for wanted in (
            *(texts[row[name]].objective for name in ("trace_id", "nearest_trace_id")),
            f"similarity {written(row['max_similarity'])}, older by {age(row['nearest_age_s'])}; ",
            f"novelty {written(row['novelty'])}, the cache held {one.cache_size}",
            f"{one.source_file}, row {one.row} (from 0)",
            f"kp-batch explain {row['trace_id']}",
        ):
            assert wanted in text
        sums = shown.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        changes = [override for override in one.breakdown.overrides if override.applies]
        assert sums == [
            *(
                [
                    *(term.dimension.replace("_", " "), written(term.value)),
                    *(f"{term.weight:g}", written(term.product)),
                ]
                for term in one.breakdown.terms
            ),
            ["composite", "", "", written(one.breakdown.composite)],
            *(
                [change.name.replace("_", " "), "", "", f"{change.change:+.4f}"]
                for change in changes
            ),
            ["score", "", "", written(row["score"])],
        ]
        assert page.evaluate("document.documentElement.scrollWidth") == width
        shown.locator("a").click()
        assert page.locator(".trace:visible").count() == 0
        top = page.locator("h2:target").bounding_box()
        filters = page.locator("#chosen").bounding_box()
        assert top
        assert filters
        assert filters["y"] + filters["height"] <= top["y"] < 900
        assert complaints == []


@in_browser
def test_a_domain_that_is_chosen_filters_charts_and_tables(
    path: Path, warehouse: Path, opened: Opening
) -> None:
    with connect(warehouse) as connection:
        query = "SELECT task_domain, count(*) FROM scores GROUP BY ALL"
        counted = dict(connection.execute(query).fetchall())
    with opened(path) as (page, complaints):
        everywhere = bars(page, "histogram")
        assert sum(everywhere.values()) == sum(counted.values())
        page.get_by_label("code", exact=True).check()
        page.wait_for_selector("body[data-chosen=code]")
        assert bars(page, "histogram") == {"code": counted["code"]}
        for panel in PANELS:
            marks = page.locator(f"#{panel.name} svg [aria-label*='domain: ']")
            other = marks.locator("xpath=self::*[not(contains(@aria-label, 'domain: code'))]")
            assert other.count() == 0, panel.name
        for table in ("by-domain", "highest", "lowest"):
            rows = page.locator(f"[aria-labelledby={table}] tbody tr[data-domain]:visible")
            assert {row.get_attribute("data-domain") for row in rows.all()} == {"code"}
        page.get_by_label("all domains", exact=True).focus()
        page.keyboard.press("ArrowRight")  # the first domain
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("body[data-chosen='']")
        assert bars(page, "histogram") == everywhere
        assert page.locator("[aria-labelledby=highest] tbody tr:visible").count() == 10
        assert complaints == []


@in_browser
def test_hostile_domains_are_chosen_and_pointed_at_like_any_other(
    path: Path, opened: Opening
) -> None:
    with opened(path) as (page, complaints):
        for text in HOSTILE[:3]:
            page.locator("#chosen label").filter(has_text=text).click()
            page.wait_for_function("text => document.body.dataset.chosen === text", arg=text)
            assert bars(page, "histogram") == {text: 3}
            assert not page.locator("#drift").is_visible()  # it is new
            assert page.locator("#drift + .none").is_visible()
        bar = page.locator("#histogram svg [aria-roledescription=bar]").first
        bar.hover(force=True)
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert HOSTILE[2] in page.inner_text("#vg-tooltip-element")
        assert page.locator("#vg-tooltip-element :is(script, img, a)").count() == 0
        assert complaints == []


@in_browser
def test_domains_called_like_what_objects_have_are_drawn_like_any_other(
    tmp_path: Path, opened: Opening
) -> None:
    names = ["constructor", "__proto__", "toString", "hasOwnProperty", "all domains"]
    traces = [trace(id=f"{name}-{i}", task_domain=name) for name in names for i in range(2)]
    write_jsonl(tmp_path / "a.jsonl", traces)
    settings = {"warehouse": tmp_path / "warehouse", "embedder": "none"}
    rescore_archive(RescoreConfig(archive=(str(tmp_path / "a.jsonl"),), **settings))
    (tmp_path / "page.html").write_text(report(tmp_path / "warehouse", "html"), "utf-8")
    with opened(tmp_path / "page.html") as (page, complaints):
        assert bars(page, "histogram") == {f"{name}*": 2 for name in names}
        assert complaints == []


@pytest.mark.telling
@in_browser
def test_a_chart_that_fails_says_so_and_the_others_are_drawn(
    path: Path, tmp_path: Path, opened: Opening
) -> None:
    text = path.read_text("utf-8")
    broken = text.replace('"type": "tick"', '"type": "no mark"')
    assert broken != text
    (tmp_path / "page.html").write_text(broken, "utf-8")
    with opened(tmp_path / "page.html") as (page, complaints):
        assert page.inner_text("#domains") == "This chart could not be drawn."
        assert page.locator(".chart svg.marks").count() == len(PANELS) - 1
        assert complaints


@in_browser
def test_the_charts_follow_the_theme_and_keep_what_is_chosen(path: Path, opened: Opening) -> None:
    with opened(path) as (page, complaints):
        page.get_by_label("code", exact=True).check()
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("body[data-drawn=dark]")
        assert bars(page, "histogram").keys() == {"code"}
        label = page.locator("#histogram .role-axis-label text").first
        assert label.get_attribute("fill") == THEMES["dark"]["axis"]["labelColor"]
        assert complaints == []


@in_browser
@pytest.mark.parametrize("what", ["nothing", "failure"])
def test_a_warehouse_without_scores_has_a_page_that_says_so(
    tmp_path: Path, what: str, opened: Opening
) -> None:
    warehouse = tmp_path / "warehouse"
    if what == "nothing":
        warehouse.mkdir()
        publish_tables(warehouse, Manifest({}, {}))
    else:
        archive = tmp_path / "a.jsonl"
        write_jsonl(archive, [trace(steps=[])])
        with pytest.raises(ArchiveError, match="none of the archive's"):
            rescore_archive(RescoreConfig(archive=(str(archive),), warehouse=warehouse))
    (tmp_path / "page.html").write_text(report(warehouse, "html"), "utf-8")
    with opened(tmp_path / "page.html") as (page, complaints):
        text = page.inner_text("body")
        assert "No trace is scored yet." in text
        assert ("failed" in text) == (what == "failure")
        assert complaints == []


def test_a_chart_says_in_its_caption_what_it_leaves_out(tmp_path: Path) -> None:
    days = [*(f"2026-01-{number:02d}" for number in range(1, 10)), "1970-01-01"]
    write_jsonl(tmp_path / "a.jsonl", [trace(id=day, created_at=day) for day in days])
    settings = {"warehouse": tmp_path / "warehouse", "embedder": "none"}
    rescore_archive(RescoreConfig(archive=(str(tmp_path / "a.jsonl"),), **settings))
    text = report(tmp_path / "warehouse", "html")
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    noted = [
        caption for caption in captions if "Left out: 1 trace, of times that are warned" in caption
    ]
    assert len(noted) == 2
    assert "is dated ten years or more before nearly all others, on 1970-01-01." in text


def test_the_page_stays_small_however_many_domains_and_days_there_are(tmp_path: Path) -> None:
    traces = [
        trace(
            id=f"{number}-{'i' * 2000}",
            task_domain=f"{number % 50}-{'d' * 5000}",
            created_at=f"{1900 + number % 7 * 30}-01-01",
        )
        for number in range(700)
    ]
    write_jsonl(tmp_path / "a.jsonl", traces)
    settings = {"warehouse": tmp_path / "warehouse", "embedder": "none"}
    rescore_archive(RescoreConfig(archive=(str(tmp_path / "a.jsonl"),), **settings))
    assert len(report(tmp_path / "warehouse", "html").encode()) < LIMIT
