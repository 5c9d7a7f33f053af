"""How the report is written in markdown and as a page, which say the same."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report import markdown as module
from kp_batch.report.build import report
from kp_batch.report.data import ReportData, gather
from kp_batch.report.finding import Finding
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.markdown import markdown
from kp_batch.report.notices import notices
from kp_batch.report.numbers import numbers
from kp_batch.report.page import page
from kp_batch.report.trace_details import Traces
from kp_batch.text import code, printable, shortened
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.drawn_scores import opened
from tests.support.make.planted import build_catalog, plant
from tests.support.make.report_data import EMPTY, RUN, Gathered, failing, rows
from tests.support.make.sample import write_sample

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
ALLOWED = {"h1", "h2", "p", "ul", "ol", "li", "strong", "code"}
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}
NOTHING_ELSE = "## Notes on the data and the last run\n\n- No trace is scored yet.\n"


class Elements(HTMLParser):
    """What HTML holds: its elements, and the texts of its titles, code, items and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.titles: list[str] = []
        self.codes: list[str] = []
        self.items: list[str] = []
        self.cells: list[list[str]] = []
        self.open: list[tuple[str, list[str]]] = []  # texts that go on
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.cells.append([])
        kept = {"h2": self.titles, "li": self.items, "code": self.codes}.get(tag)
        if tag in ("th", "td"):
            kept = self.cells[-1]
        if kept is not None:
            kept.append("")
            self.open.append((tag, kept))

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1][0] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag, kept in reversed(self.open):
            kept[-1] += data
            if tag == "li":
                break  # of an item within an item, it is the inner one's


def rendered(text: str) -> Elements:
    """Markdown with tables, raw HTML and, where it is installed, whatever looks like a link."""
    if find_spec("linkify_it"):
        reader = MarkdownIt("gfm-like", {"html": True, "linkify": True})
    else:
        reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return Elements(reader.render(text))


@pytest.mark.telling
@pytest.mark.slow
def test_hostile_names_are_text_in_markdown_and_no_trace_is_named(tmp_path: Path) -> None:
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
    assert [len(row) for row in elements.cells] == [4] * 4 + [7] * (len(HOSTILE) + 2)
    assert set(HOSTILE.values()) <= set(elements.codes)
    assert any(r"\x60![](x)\x7c\n<script>.parquet" in code for code in elements.codes)
    assert "kp:trace" not in text
    assert all(printable(line) == line for line in text.split("\n"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportData, pl.DataFrame]:
    """The data of an archive in which there is much to find, and its scores."""
    scores, catalog = plant(1).rows, build_catalog(tmp_path_factory.mktemp("planted"))
    scores.write_parquet(catalog.with_name("scores.parquet"))
    with opened(catalog.parent) as connection:
        data = replace(gather(connection), run=RUN, failed=failing("run-3", "no space"))
    return data, scores


def expected_contents(data: ReportData) -> Any:
    """The numbers, findings and notices, which every form has."""
    names = [(scope, None if scope == ALL else scope) for scope in data.scopes]
    return {
        "scopes": [
            {
                "domain": name,
                "numbers": [vars(each) for each in numbers(data, scope)],
                "findings": [in_parts(each) for each in findings(data, scope)],
            }
            for scope, name in names
        ],
        "notices": [
            {"sentence": each.sentence, "is_warning": each.is_warning} for each in notices(data)
        ],
    }


def in_parts(found: Finding) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("sentence", "question", "numbers")}


def written(number: float, form: str) -> str:
    """A little is not written as nothing."""
    text = format(number, form)
    return "<0.1%" if number and text == "0.0%" else text


def in_words(number: Mapping[str, Any]) -> list[str]:
    """A number as cells."""
    form = {"traces": ",", "mean": ".3f", "at_threshold": ".1%"}[number["code"]]
    low, high = (written(number[end] or 0, form) for end in ("low", "high"))
    uncertainty = "" if number["low"] is None else f"{low} to {high}"
    return [number["label"], written(number["value"], form), uncertainty, number["about"]]


def sourced(found: Mapping[str, Any]) -> str:
    return f"{found['sentence']} {found['question']}"


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "most"), [(None, 2), (2, 3), (13, 3)])
def test_markdown_says_the_numbers_and_sentences(
    planted: tuple[ReportData, pl.DataFrame],
    drawn_report: Gathered,
    monkeypatch: pytest.MonkeyPatch,
    seed: int | None,
    most: int,
) -> None:
    monkeypatch.setattr(module, "OF_A_DOMAIN", most)
    data = planted[0] if seed is None else drawn_report(seed)[1]
    told, shown = expected_contents(data), rendered(markdown(data))
    of_all, *of_domains = told["scopes"]
    warnings = [notice["sentence"] for notice in told["notices"] if notice["is_warning"]]
    notes = [notice["sentence"] for notice in told["notices"] if not notice["is_warning"]]
    findings_told = [sourced(found) for found in of_all["findings"]]
    further = {
        scope["domain"]: further_of(scope["findings"], of_all["findings"])[:most]
        for scope in of_domains
    }
    assert shown.titles == [
        *(["Findings"] if findings_told else []),
        "Domains",
        "Notes on the data and the last run",
    ]
    assert shown.cells[1 : 1 + len(of_all["numbers"])] == [*map(in_words, of_all["numbers"])]
    first = [f"Warning: {text}" for text in warnings] + findings_told
    items = list(map(str.strip, shown.items))
    assert items[: len(first)] == first
    assert Counter(items[len(first) :]) == Counter(
        [f"{name}:" for name, found in further.items() if found]
        + [text for found in further.values() for text in found]
        + notes
    )
    assert items[len(items) - len(notes) :] == notes


def further_of(of_domain: Sequence[Mapping[str, Any]], of_all: Sequence[Mapping[str, Any]]) -> Any:
    """What a domain's findings tell that those of all domains do not."""
    sentences = [found["sentence"] for found in of_all]
    return [
        sourced(found)
        for found in of_domain
        if found["sentence"] not in sentences
        and not any(found["numbers"].items() <= each["numbers"].items() for each in of_all)
    ]


@pytest.mark.telling
@pytest.mark.slow
def test_the_page_says_what_markdown_says(tmp_path: Path) -> None:
    write_sample(tmp_path / "archive", traces=300, days=20, seed=3, dirty=0.03)
    archive, warehouse = (str(tmp_path / "archive"),), tmp_path / "warehouse"
    config = RescoreConfig(
        archive=archive, warehouse=warehouse, embedder="hashing", max_reject_share=1
    )
    rescore_archive(config)
    (tmp_path / "archive" / "broken.parquet").write_bytes(b"PAR1 and no more")
    rescore_archive(config)
    with connect(warehouse) as connection:
        told = expected_contents(gather(connection))
    text = report(warehouse, "html")
    head, main = text.split("<main>")
    *scopes, rest = re.split(r'<div data-scope="|<section class="notices">', main)[1:]
    assert [unescape(scope.partition('"')[0]) for scope in scopes] == [
        scope["domain"] or ALL for scope in told["scopes"]
    ]
    for part, scope in zip(scopes, told["scopes"], strict=True):
        shown = part.partition("</section>\n</div>")[0]
        assert in_elements("li", shown, "<code>") == [
            each["sentence"] for each in scope["findings"]
        ]
        names = [number["label"] for number in scope["numbers"]]
        assert in_elements("dt", shown) == names
    warnings = [each["sentence"] for each in told["notices"] if each["is_warning"]]
    assert len(warnings) > 0
    assert in_elements("p", head, start=' class="warning"') == [
        f"Warning: {sentence}" for sentence in warnings
    ]
    notes = [each["sentence"] for each in told["notices"] if not each["is_warning"]]
    assert in_elements("li", rest)[: len(notes)] == notes


@pytest.mark.slow
def test_the_page_claims_nothing_about_domains_that_share_a_label(
    drawn_report: Gathered,
) -> None:
    data = drawn_report(2)[1]
    assert data.others is not None
    text = page(replace(data, traces=data.traces.clear()), Traces({}, None))
    shown = text.split('<div data-scope="')[-1].partition("</section>\n</div>")[0]
    assert in_elements("p", shown) == ["No findings: this view combines several domains."]


def in_elements(name: str, html: str, until: str = "", start: str = "") -> list[str]:
    """The texts of the elements of a name, each up to a tag."""
    contents = re.findall(rf"<{name}{start}>(.*?)</{name}>", html, re.DOTALL)
    texts = (content.partition(until)[0] if until else content for content in contents)
    return [unescape(re.sub("<[^>]*>", "", text)) for text in texts]


@pytest.mark.slow
def test_markdown_has_a_table_of_the_domains(planted: tuple[ReportData, pl.DataFrame]) -> None:
    data, scores = planted
    head, *cells = rendered(markdown(data)).cells[4:]
    assert head == ["domain", "mean", "95% interval", "traces", "tasks", "at threshold", "success"]
    for row, name in zip(cells, [ALL, *data.labels], strict=True):
        own = scores if name == ALL else scores.filter(task_domain=name)
        [known] = data.of("domains", name).to_dicts()
        sharing = own.filter(pl.col("score") >= 0.75).height
        assert row == [
            name,
            f"{fmean(own['score']):.3f}",
            f"{known['low']:.3f} to {known['high']:.3f}",
            f"{own.height:,}",
            f"{own['objective_hash'].n_unique():,}",
            f"{sharing:,} ({written(sharing / own.height, '.1%')})",
            f"{fmean(own['success']):.1%}",
        ]


@pytest.mark.slow
def test_small_values_are_not_written_as_zero_nor_unknown_uncertainty_as_known(
    planted: tuple[ReportData, pl.DataFrame],
) -> None:
    data, _ = planted
    few = {"traces": 10_000, "at_threshold": 2, "share": 0.0002, "success": 0.9999}
    unknown = dict.fromkeys(("low", "high"), pl.lit(None, pl.Float64))
    domains = data.domains.with_columns(**{name: pl.lit(few[name]) for name in few}, **unknown)
    row = rendered(markdown(replace(data, domains=domains))).cells[5]
    assert row[2:4] == ["", "10,000"]
    assert row[5:] == ["2 (<0.1%)", ">99.9%"]


def test_markdown_of_nothing_has_no_table_and_marks_a_warning() -> None:
    assert markdown(EMPTY) == f"# Scores of reasoning traces\n\n{NOTHING_ELSE}"
    failed = failing("run-1", "the disk | is `full`")
    assert markdown(replace(EMPTY, failed=failed)) == (
        "# Scores of reasoning traces\n\n"
        r"- **Warning:** The last run, run-1 `by ana`, failed: `the disk \x7c is \x60full\x60`."
        f"\n\n{NOTHING_ELSE}"
    )


def test_markdown_names_the_run_and_what_it_did() -> None:
    run = replace(RUN, note="a | note")
    rejects = rows("rejects", ("no_steps", 1300))
    counts = ("embedded", "reused", "replayed", "rescored", "reweighted", "removed", "partitions")
    counts += ("duplicates", "superseded", "rejected", "unreadable", "rows_kept", "rows_of_earlier")
    counts += ("gone", "excluded", "cut")
    assert markdown(replace(EMPTY, run=run, rejects=rejects)) == (
        "# Scores of reasoning traces\n\n"
        "Run run-2 by `ana`, ended 2026-02-03 04:06 UTC. Its note: `a \\x7c note`.\n\n"
        f"{NOTHING_ELSE}"
        "- Rows without a score and unreadable files, by reason (FROM rejects_by_code): "
        "no_steps 1,300.\n\n"
        f"The run: files 1, rows 1,300, accepted 1,300, {' 0, '.join(counts)} 0.\n\n"
        "Seconds: plan 0.26, embed 1.00.\n"
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
    assert [len(row) for row in table.cells] == [2, 2]
    assert set(table.names) == TABLE | {"code"}
