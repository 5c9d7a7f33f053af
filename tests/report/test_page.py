"""The report's page as it is on disk, and as a real browser shows it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.build import gather_traces, report, write_report
from kp_batch.report.data import ReportData, gather
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.notices import notices
from kp_batch.report.numbers import KeyFigure, numbers
from kp_batch.report.panels import PANELS
from kp_batch.report.themes import THEMES
from kp_batch.report.trace_details import Traces
from kp_batch.steps.step import ThreadExecutor
from kp_batch.text import shortened
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import record_scores, step, trace, write_jsonl
from tests.support.make.publications import publish_nothing
from tests.support.make.sample import write_sample
from tests.support.processes.browser import (
    CHROMIUM,
    Opening,
    charts,
    choose,
    cut_off,
    faint,
    launched,
    marks,
    opened_in,
    wait_for,
)
from tests.support.read.errors import fails_with

pytestmark = pytest.mark.process

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: see the end of this output")
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' || alert(1) || '",
    "{{7*7}}\x1b[31mred\x9b31m\u202e",
)
LIMIT = 1_500_000
OTHERS = "4 small ones"  # the hostile domains


@dataclass(frozen=True)
class Written:
    """A page, and what it was made from."""

    path: Path
    data: ReportData
    traces: Traces


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


def named(trace_id: str, texts: Mapping[str, Any]) -> str:
    """A trace as the tables name it."""
    return f"{shortened(texts[trace_id].objective, 80)} {shortened(trace_id, 80)}"


def nearest(row: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    if row["nearest_trace_id"] is None:
        return "none"
    return f"{named(row['nearest_trace_id'], texts)} similarity {written(row['max_similarity'])}"


def ranked(of: Written, which: str, scope: str) -> list[list[str]]:
    texts = of.traces.texts or {}
    rows = of.data.traces.filter(which=which)
    shown = rows.filter("overall") if scope == ALL else rows.filter(domain=scope)
    return [
        [
            *(named(row["trace_id"], texts), written(row["score"]), row["domain"]),
            *(row["created_at"], nearest(row, texts)),
            *(written(row[name]) for name in DIMENSIONS),
        ]
        for row in shown.to_dicts()
    ]


def figure(number: KeyFigure) -> list[str]:
    """A number as the page shows it, but for its line."""
    value, *ends = (
        "" if each is None else format(each, number.form)
        for each in (number.value, number.low, number.high)
    )
    interval = [f"95% interval {' to '.join(ends)}"] if all(ends) else []
    about = [number.about] if number.about else []
    return [number.label, "0" if value == "0.0%" and not number.value else value, *interval, *about]


def folded(text: str) -> str:
    return " ".join(text.split())


def seen(found: Locator) -> list[str]:
    """The texts of elements, of those that are shown."""
    return [folded(each.text_content() or "") for each in found.all() if each.is_visible()]


def cells(page: Page, table: str) -> list[list[str]]:
    """The rows of a table that are shown."""
    rows = page.locator(f"{table} tbody tr:visible").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [[folded(cell) for cell in row] for row in rows]


def assert_shown(page: Page, of: Written, scope: str) -> None:
    """That the page shows the numbers, the findings and the traces of a scope, and of no other."""
    figures = page.locator(".numbers > div:visible").evaluate_all(
        "all => all.map(each => [...each.children].map(part => part.textContent))"
    )
    assert figures == [figure(number) for number in numbers(of.data, scope)]
    told = findings(of.data, scope)
    items = page.locator(".findings:visible li")
    sentences = [folded(each.text_content() or "") for each in items.all()]
    asked = seen(page.locator(".findings li code"))
    assert asked == [f'kp-batch sql "{folded(finding.question)}"' for finding in told]
    assert sentences == [
        f"{folded(finding.sentence)}{question}"
        for finding, question in zip(told, asked, strict=True)
    ]
    for which in ("highest", "lowest"):
        assert cells(page, f"[aria-labelledby={which}]") == ranked(of, which, scope)


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
            agent_id=text,
            framework=text,
            created_at=f"2026-01-{number + 5:02d}",
            objective=f"{text} {number}",
            steps=[step("tool_call", text, text), step(content=text)],
        )
        for text in HOSTILE
        for number in range(2)
    ]
    refused = [trace(id=text, task_domain=text, steps=[]) for text in HOSTILE]
    write_jsonl(folder / "archive" / "hostile.jsonl", hostile + refused)
    note = f"note {HOSTILE[0]}"
    rescore_archive(RescoreConfig(archive=(str(folder / "archive"),), note=note, **settings))
    write_report(folder / "warehouse", mark="")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def shown(warehouse: Path) -> Written:
    with connect(warehouse) as connection:
        data = gather(connection)
        traces = gather_traces(published(warehouse), connection, data, ThreadExecutor())
    return Written(warehouse / "report.html", data, traces)


@pytest.fixture(scope="module")
def path(shown: Written) -> Path:
    return shown.path


@pytest.fixture(scope="module")
def opened() -> Iterator[Opening]:
    with launched() as browser:
        yield partial(opened_in, browser)


def page_of(folder: Path, traces: list[dict[str, Any]]) -> Path:
    """The page about an archive of these traces."""
    write_jsonl(folder / "a.jsonl", traces)
    settings = {"warehouse": folder / "warehouse", "embedder": "none"}
    rescore_archive(RescoreConfig(archive=(str(folder / "a.jsonl"),), **settings))
    (folder / "page.html").write_text(report(folder / "warehouse", "html"), "utf-8")
    return folder / "page.html"


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
    assert {"img", "iframe", "object", "link"}.isdisjoint(tags)
    attributes = {name for _, attrs in elements for name in attrs}
    assert not any(name.startswith("on") or name == "src" for name in attributes)
    links = {(tag, attrs["href"]) for tag, attrs in elements if "href" in attrs}
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len({*ids})
    assert links <= {("a", f"#{element_id}") for element_id in ids}
    labels = {attrs["aria-labelledby"] for _, attrs in elements if "aria-labelledby" in attrs}
    assert labels <= {*ids}
    assert charts(path).keys() == {panel.name for panel in PANELS}
    assert not any(sign in path.read_text("utf-8") for sign in "\x1b\x9b\u202e")
    assert path.stat().st_size < LIMIT


@pytest.mark.parametrize(
    ("scheme", "width", "zone"), [("light", 1400, "UTC"), ("dark", 390, "Pacific/Kiritimati")]
)
@in_browser
def test_every_chart_is_drawn_without_a_word_of_complaint(
    path: Path, scheme: str, width: int, zone: str, opened: Opening
) -> None:
    with opened(path, scheme, width, zone) as (page, complaints):
        assert complaints == []
        for panel in PANELS:
            drawn = page.locator(f"#{panel.name} svg .mark-group .role-mark path")
            assert drawn.count() > 0, panel.name
            box = page.locator(f"#{panel.name} svg").first.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert 250 <= box["x"] + box["width"] <= width
        theme = THEMES[scheme]["axis"]["labelColor"]
        label = page.locator("#score_histogram .role-axis-label text").first
        assert label.get_attribute("fill") == theme


def traces_of(page: Page) -> int:
    """How many traces the bars of the histogram stand for."""
    return sum(int(bar["traces"].replace(",", "")) for bar in marks(page, "score_histogram", "bar"))


def scale(page: Page, chart: str) -> list[str]:
    """The labels of a chart's axes."""
    return page.locator(f"#{chart} .role-axis-label text").all_text_contents()


@pytest.mark.telling
@in_browser
def test_all_is_that_of_the_chosen_domain(shown: Written, opened: Opening) -> None:
    data = shown.data
    with opened(shown.path) as (page, complaints):
        for summary in page.locator("details > summary").all():
            summary.click()
        scales = set()
        for scope in (ALL, "code", OTHERS, ALL):
            if scope != page.evaluate("document.body.dataset.chosen"):
                choose(page, scope)
            assert_shown(page, shown, scope)
            assert traces_of(page) == data.of("domains", scope)["traces"].item()
            scales.add(tuple(scale(page, "traces_over_time")))
            for panel in PANELS:
                rows = panel.rows(data, scope)
                section = page.locator(f"section:has(> figure #{panel.name})")
                assert section.is_visible() == (not rows.is_empty()), (panel.name, scope)
                if rows.is_empty():
                    continue
                caption = section.locator("figcaption").text_content()
                assert caption == panel.caption(data, scope)
                title = [panel.title] if scope == ALL else [panel.title, scope]
                assert folded(section.locator("h2").inner_text()) == " ".join(title)
                if panel.columns:
                    table = panel.table(data, scope)
                    selector = f"section:has(> figure #{panel.name}) details"
                    heads = page.locator(f"{selector} thead th").all_text_contents()
                    assert heads == table.columns
                    wanted = [[folded(cell) for cell in row] for row in table.rows()]
                    assert cells(page, selector) == wanted
        assert len(scales) == 3
        assert complaints == []


def test_each_chart_has_a_table() -> None:
    assert [panel.name for panel in PANELS if not panel.columns] == []


@in_browser
def test_the_keyboard_alone_reaches_and_changes_everything(shown: Written, opened: Opening) -> None:
    with opened(shown.path) as (page, complaints):
        reached = []
        for _ in range(200):
            page.keyboard.press("Tab")
            focused = page.evaluate("document.activeElement.outerHTML.slice(0, 60)")
            if focused.startswith("<body"):
                break
            reached.append(focused)
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", focused
        assert reached[0].startswith("<input")
        kinds = [each.split(" ", 1)[0].strip("<>").split(">")[0] for each in reached]
        assert kinds.count("input") == 1  # arrows lead to the others
        assert kinds.count("summary") == page.locator("summary").count()
        assert kinds.count("a") == page.locator("main a:visible").count()
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        wait_for(page, shown.data.labels[0])
        assert_shown(page, shown, shown.data.labels[0])
        assert page.inner_text("#said") == f"Shown: {shown.data.labels[0]}"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("details[open] tbody tr")
        page.locator("[aria-labelledby=highest] a:visible").first.focus()
        page.keyboard.press("Enter")
        assert page.locator(".trace:visible").count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent").startswith("Back to the")
        assert complaints == []


@in_browser
def test_the_policy_lets_nothing_else_run_nor_be_fetched(path: Path, opened: Opening) -> None:
    with opened(path) as (page, complaints):
        page.evaluate("""() => {
            const script = document.createElement("script");
            script.textContent = "document.body.dataset.ran = 'yes'";
            document.body.append(script);
            const image = document.createElement("img");
            image.src = "http://127.0.0.1:9/seen";
            document.body.append(image);
            return fetch("http://127.0.0.1:9/seen").catch(() => {});
        }""")
        assert page.locator("body[data-ran]").count() == 0
        refused = [each for each in complaints if "Content Security Policy directive" in each]
        assert len(refused) == 3


@in_browser
def test_however_fast_somebody_chooses_the_last_choice_is_drawn(
    shown: Written, opened: Opening
) -> None:
    with opened(shown.path) as (page, complaints):
        page.locator("#chosen input").first.focus()
        for _ in shown.data.labels:
            page.keyboard.press("ArrowRight")
        wait_for(page, OTHERS)
        assert traces_of(page) == shown.data.of("domains", OTHERS)["traces"].item()
        assert complaints == []


@in_browser
def test_without_scripts_all_domains_are_shown(shown: Written, opened: Opening) -> None:
    with opened(shown.path, "light", 1400, "") as (page, complaints):
        assert_shown(page, shown, ALL)
        assert not page.locator("#chosen").is_visible()
        assert not page.locator(".panels").is_visible()
        assert "Enable JavaScript" in page.inner_text("main")
        page.locator("[aria-labelledby=lowest] tbody a:visible").first.click()
        assert page.locator(".trace:visible").count() == 1
        assert complaints == []


@pytest.mark.parametrize("width", [1200, 800, 390])
@in_browser
def test_nothing_is_cut_off_nor_scrolls_sideways(
    shown: Written, width: int, opened: Opening
) -> None:
    with opened(shown.path, "light", width) as (page, _):
        for summary in page.locator("details > summary").all():
            summary.click()
        assert cut_off(page) == []
        are_cards = page.locator(".traces thead").first.is_hidden()
        assert are_cards == (width <= 800)
        choose(page, OTHERS)
        assert cut_off(page) == []
        page.locator("[aria-labelledby=highest] tbody a:visible").first.click()
        assert cut_off(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@in_browser
def test_every_text_can_be_read_on_its_paper(path: Path, scheme: str, opened: Opening) -> None:
    with opened(path, scheme) as (page, _):
        page.locator("details > summary").first.click()
        page.locator("[aria-labelledby=highest] tbody a:visible").first.click()
        assert faint(page, 4.5) == set()


@in_browser
def test_a_print_has_what_is_shown_and_no_controls(path: Path, opened: Opening) -> None:
    with opened(path, "light", 700) as (page, _):
        choose(page, "code")
        page.emulate_media(media="print")
        assert not page.locator("#chosen").is_visible()
        assert page.locator("summary:visible").count() == 0
        assert "code" in page.inner_text(".panels h2")
        assert cut_off(page) == []
        turned = "getComputedStyle(document.querySelector('.chart')).filter"
        assert page.evaluate(turned) == "none"
        page.evaluate("document.body.dataset.drawn = 'dark'")  # as where the system is dark
        assert page.evaluate(turned).startswith("invert")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
@in_browser
def test_a_trace_in_a_table_leads_to_its_own_page_and_back(
    shown: Written, scheme: str, width: int, opened: Opening
) -> None:
    row = shown.data.traces.filter(which="lowest", overall=True).row(0, named=True)
    one, texts = shown.traces.details[row["trace_id"]], shown.traces.texts or {}
    with opened(shown.path, scheme, width) as (page, complaints):
        assert page.locator(".trace:visible").count() == 0
        page.locator("[aria-labelledby=lowest] tbody a").first.click()
        card = page.locator(".trace:visible")
        assert card.count() == 1
        text = folded(card.inner_text())
        for wanted in (
            *(texts[row[name]].objective for name in ("trace_id", "nearest_trace_id")),
            f"similarity {written(row['max_similarity'])}, older by {age(row['nearest_age_s'])}; ",
            f"novelty {written(row['novelty'])}, the cache contained {one.cached_vectors} vectors",
            f"{one.source_file}, row {one.row} (from 0)",
            f"kp-batch explain {row['trace_id']}",
        ):
            assert wanted in text
        sums = cells(page, ".trace:target")
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
        card.locator("a").click()
        assert page.locator(".trace:visible").count() == 0
        top = page.locator("h2:target").bounding_box()
        assert top
        filters = page.locator("#chosen").bounding_box()
        assert filters
        assert filters["y"] + filters["height"] <= top["y"] < 900
        assert complaints == []


@in_browser
def test_the_page_begins_with_warnings_and_ends_with_runs_and_limits(
    shown: Written, opened: Opening
) -> None:
    told = notices(shown.data)
    with opened(shown.path) as (page, _):
        warnings = seen(page.locator("header .warning"))
        assert warnings == [f"Warning: {each.sentence}" for each in told if each.is_warning]
        wanted = [folded(each.sentence) for each in told if not each.is_warning]
        assert seen(page.locator(".notices li")) == wanted
        assert f"Its note: note {HOSTILE[0]}" in page.inner_text("header")


@in_browser
def test_hostile_domains_are_chosen_and_pointed_at_like_any_other(
    tmp_path: Path, opened: Opening
) -> None:
    names = [*HOSTILE[:3], "constructor", "__proto__", "toString", "hasOwnProperty", ALL]
    traces = [
        trace(id=f"{name}-{number}", task_domain=name, confidence=number / 2)
        for name in names
        for number in range(2)
    ]
    path = page_of(tmp_path, traces)
    with opened(path) as (page, complaints):
        for label in (*HOSTILE[:3], *(f"{name}*" for name in names[3:])):
            choose(page, label)
            assert traces_of(page) == 2
            domains = page.locator("[aria-labelledby=highest] td:nth-child(3):visible")
            assert {*domains.all_text_contents()} == {label}
        page.locator("#scores_by_domain svg [aria-roledescription=bar]").nth(1).hover(force=True)
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert page.locator("#vg-tooltip-element :is(script, img, a)").count() == 0
        assert any(text in page.inner_text("#vg-tooltip-element") for text in HOSTILE[:3])
        assert complaints == []


@in_browser
def test_a_single_domain_leaves_no_choice(tmp_path: Path, opened: Opening) -> None:
    path = page_of(tmp_path, [trace(id=str(number)) for number in range(3)])
    with opened(path) as (page, complaints):
        assert page.locator("#chosen").count() == 0
        assert page.locator(".numbers").count() == 1
        assert traces_of(page) == 3
        assert page.locator("[aria-labelledby=highest] tbody tr:visible").count() == 3
        empty = [panel for panel in PANELS if page.locator(f"#{panel.name}").count() == 0]
        assert "drift" in [panel.name for panel in empty]
        parts = "; ".join(f"{panel.title} ({panel.empty})" for panel in empty)
        assert seen(page.locator(".notices > p")) == [f"Not shown: {parts}."]
        assert complaints == []


@pytest.mark.telling
@in_browser
def test_a_chart_that_fails_says_so_and_the_others_are_drawn(
    path: Path, tmp_path: Path, opened: Opening
) -> None:
    text = path.read_text("utf-8")
    broken = text.replace('"type":"bar","binSpacing"', '"type":"no mark","binSpacing"')
    assert broken != text
    (tmp_path / "page.html").write_text(broken, "utf-8")
    with opened(tmp_path / "page.html") as (page, complaints):
        assert page.inner_text("#score_histogram") == "This chart could not be drawn."
        assert page.locator(".chart svg.marks").count() == len(PANELS) - 1
        assert complaints


@in_browser
def test_the_charts_follow_the_theme_and_keep_what_is_chosen(
    shown: Written, opened: Opening
) -> None:
    with opened(shown.path) as (page, complaints):
        choose(page, "code")
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("body[data-drawn=dark]")
        assert traces_of(page) == shown.data.of("domains", "code")["traces"].item()
        label = page.locator("#score_histogram .role-axis-label text").first
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
        publish_nothing(warehouse)
    else:
        archive = tmp_path / "a.jsonl"
        write_jsonl(archive, [trace(steps=[])])
        with fails_with(ArchiveError, "nothing_to_score"):
            rescore_archive(RescoreConfig(archive=(str(archive),), warehouse=warehouse))
    (tmp_path / "page.html").write_text(report(warehouse, "html"), "utf-8")
    with opened(tmp_path / "page.html") as (page, complaints):
        text = page.inner_text("body")
        assert "No trace is scored yet." in text
        assert ("failed" in text) == (what == "failure")
        assert complaints == []


def test_the_page_stays_small_however_many_domains_and_days_there_are(tmp_path: Path) -> None:
    traces = [
        trace(
            id=f"{number}-{'i' * 2000}",
            task_domain=f"{number % 50}-{'d' * 5000}",
            agent_id=f"{number % 50}-{'a' * 5000}",
            objective=f"{number}-{'o' * 5000}",
            created_at=f"{1900 + number % 7 * 30}-01-01",
        )
        for number in range(700)
    ]
    assert page_of(tmp_path, traces).stat().st_size < LIMIT
