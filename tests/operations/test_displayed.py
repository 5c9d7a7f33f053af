"""Results as a notebook shows them, and their rows as frames, of a warehouse with hostile texts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kp_batch.cli.options import json_line
from kp_batch.columns import Rows
from kp_batch.html import Displayed
from kp_batch.operations.compare import Comparison, TopChanges, compare
from kp_batch.operations.current_settings import CurrentSettings, settings, settings_text
from kp_batch.operations.explain import explain
from kp_batch.operations.fit import FitOptions, fit_weights
from kp_batch.operations.preview import plan, preview
from kp_batch.operations.redundancy import Redundancy, redundancy
from kp_batch.operations.rollback import RollbackResult, plan_rollback, rolled_back_text
from kp_batch.operations.score import (
    LineScores,
    Scored,
    ScoredLines,
    Unscored,
    score_lines,
    scored_text,
)
from kp_batch.operations.similar import (
    SimilarLines,
    SimilarTraces,
    similar_text,
    similar_to_lines,
    similar_to_trace,
)
from kp_batch.operations.status import WarehouseStatus, status_of, status_text
from kp_batch.operations.sweep import sweep
from kp_batch.operations.sweep_values import SweepValues
from kp_batch.operations.verify import Differences, Verification, verify
from kp_batch.operations.warehouse_cache import scoring
from kp_batch.pipeline.audit import audit
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.planning.explain_plan import DomainDays, PlanDescription
from kp_batch.report.run_summary import DomainScores, Summary
from kp_batch.text import printable, printable_lines
from kp_batch.warehouse.audits import AuditResults
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import record_scores, step, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.make.sample import write_sample
from tests.support.processes.browser import CHROMIUM, faint, launched, opened_in
from tests.support.read.html import Shown, Table, is_harmless
from tests.support.read.schemas import TypeAdapter

if TYPE_CHECKING:
    from kp_batch.operations.explanation import Explanation
    from kp_batch.operations.sweep_result import Sweep

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT} \"q\" 'q' & &amp; \x1b[31mred \u202egnp.exe \u200f\nnext"
DOMAIN = "<b>\u202e'd'"
NOW = datetime(2026, 2, 1, tzinfo=UTC)
AUDITS = f"""
[audits.none_at_all]
sql = "FROM scores WHERE score > 1"
[audits.hostile]
sql = "SELECT '{SCRIPT}' AS found FROM scores LIMIT 2"
severity = "warn"
"""

Results = Mapping[str, Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A result of each kind, by name."""
    folder = tmp_path_factory.mktemp("displayed")
    archive = folder / "archive"
    write_sample(archive, traces=150, days=3, seed=5)
    record_scores(archive, seed=5)
    write_jsonl(archive / "hostile.jsonl", [hostile(number) for number in range(5)])
    write_jsonl(archive / "rejected.jsonl", [trace(id="bad", confidence=2)])
    (folder / "audits.toml").write_text(AUDITS, "utf-8")
    own = {"audits": folder / "audits.toml", "max_reject_share": 1, "cache_size": 20}
    first = rescore_and_report(config(folder, archive, **own))
    write_jsonl(archive / "later.jsonl", [hostile(number) for number in range(5, 9)])
    again = config(folder, archive, max_reject_share=1, cache_size=12, note="again")
    second = rescore_and_report(again)
    warehouse = folder / "warehouse"
    other = config(folder, archive, cache_size=9, threshold=0.5, max_reject_share=1)
    new = trace(id=HOSTILE, task_domain=DOMAIN, objective=HOSTILE)
    file = write_jsonl(folder / "new.jsonl", [new, {**new, "task": HOSTILE}])
    with file.open("rb") as lines, scoring(warehouse, None, NOW, {}) as (versions, neighbours):
        scored = ScoredLines(score_lines(lines, versions, NOW, neighbours))
    with file.open("rb") as lines:
        similar = SimilarLines(similar_to_lines(warehouse, lines, NOW, 3))
    would_be = preview(other)
    return {
        "summary": second,
        "run": replace(second, warnings=(HOSTILE,)),
        "plan": plan(other, by_domain_and_day=True),
        "comparison": compare(warehouse, str(first.run_id), str(second.run_id)),
        "preview": would_be,
        "sweep": sweep(
            warehouse,
            SweepValues(cache_by=["none", "agent_id"], cache_size=[9], threshold=[0.5, 0.6]),
        ),
        "fit": fit_weights(warehouse, labels_of(warehouse), FitOptions(suggest=3)),
        "explanation": explain(warehouse, "odd 7"),
        "similar": similar_to_trace(warehouse, "odd 7", 5),
        "redundancy": redundancy(warehouse, 0.9),
        "settings": settings(warehouse),
        "status": status_of(warehouse, datetime.now(UTC)),
        "verification": verify(warehouse, traces=20, seed=1, embed=True),
        "audits": audit(warehouse),
        "rollback": plan_rollback(warehouse, str(first.run_id)),
        "vacuum": vacuum(warehouse, timedelta(days=3), NOW, dry_run=True),
        "scored": scored[0],
        "scored lines": scored,
        "similar lines": similar,
        "runs": len([*published(warehouse).runs()]),
    }


def hostile(number: int) -> dict[str, Any]:
    steps = [step("thought", HOSTILE), step("tool_call", f"do {number}", HOSTILE)]
    own = {"created_at": f"2026-01-08T0{number}:00:00Z", "agent_id": HOSTILE, "steps": steps}
    objective = f"{HOSTILE} {number % 7}"
    return trace(id=f"odd {number} {HOSTILE}", task_domain=DOMAIN, objective=objective, **own)


def labels_of(warehouse: Path) -> list[dict[str, Any]]:
    """Labels of most traces, and one with a hostile text."""
    rows = published(warehouse).scan("scores").select("trace_id", "outcome_confidence").collect()
    labels = [{"trace_id": trace, "label": value > 0.5} for trace, value in rows.rows()[:120]]
    return [*labels, {"trace_id": HOSTILE, "label": HOSTILE}]


def shown(results: Results, name: str) -> Shown:
    return Shown(results[name]._repr_html_())


SHOWN = (
    *(
        "summary",
        "run",
        "plan",
        "comparison",
        "preview",
        "sweep",
        "fit",
        "explanation",
        "similar",
        "redundancy",
    ),
    *("settings", "status", "verification", "audits", "rollback", "vacuum", "scored"),
    *("scored lines", "similar lines"),
)


@pytest.mark.telling
def test_no_text_of_a_trace_is_more_than_text(results: Results) -> None:
    """All that is shown is printable, and has no tag but those of a card."""
    for name in SHOWN:
        html = results[name]._repr_html_()
        assert is_harmless(html), name
        texts = Shown(html).texts
        assert [text for text in texts if printable_lines(text) != text] == []
    escaped = [name for name in SHOWN if SCRIPT in " ".join(shown(results, name).texts)]
    assert {"run", "preview", "explanation", "similar", "audits", "scored"} <= {*escaped}
    comparison: Comparison = results["comparison"]
    names = {"trace_id": HOSTILE, "task_domain": HOSTILE, "objective": HOSTILE}
    movers = TopChanges([{**comparison.movers[0], **names}])
    html = replace(comparison, movers=movers)._repr_html_()
    assert is_harmless(html)
    assert Shown(html).texts[-1].startswith(SCRIPT)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, str) for name in ("summary", "comparison", "preview", "sweep", "fit", "plan")),
        *((name, str) for name in ("redundancy", "verification", "audits")),
        ("rollback", rolled_back_text),
        ("similar", similar_text),
        ("scored", scored_text),
    ],
)
def test_a_notebook_shows_the_words_and_numbers_of_the_terminal(
    results: Results, name: str, text: Callable[[Any], str]
) -> None:
    result = results[name]
    assert " ".join(shown(results, name).words).startswith(" ".join(text(result).split()))
    assert text(result).strip()


def test_how_a_run_or_a_preview_ended_shows_its_result_or_why_there_is_none(
    results: Results,
) -> None:
    run: Summary = results["run"]
    assert " ".join(shown(results, "run").words).startswith(
        " ".join(str(results["summary"]).split())
    )
    assert shown(results, "run").texts[-2:] == ["warnings:", printable(HOSTILE)]
    failed = replace(run, status="refused", reason=HOSTILE, audits=results["audits"])
    card = Shown(failed._repr_html_())
    assert card.texts[0] == f"refused: {printable(HOSTILE)}"
    assert column(card.tables[0], "audit") == ["none_at_all", "hostile"]


def test_several_new_traces_are_a_table_and_a_frame_of_those_with_scores_and_of_the_others(
    results: Results,
) -> None:
    scored: ScoredLines = results["scored lines"]
    first, second = scored
    assert isinstance(first, Scored)
    assert isinstance(second, Unscored)
    card = shown(results, "scored lines")
    assert card.texts[0] == "1 of 2 traces scored"
    assert column(card.tables[0], "score") == [f"{first.score:.4f}", ""]
    assert column(card.tables[0], "similarity") == [f"{first.max_similarity:.4f}", ""]
    assert column(card.tables[0], "")[1][:40] == printable(second.message)[:40]
    frame = scored.to_polars()
    assert frame.columns == [*LineScores.names]
    assert frame.rows(named=True) == [
        {
            "line": 1,
            "trace_id": HOSTILE,
            "task_domain": DOMAIN,
            "reasons": [],
            **{term.dimension: term.value for term in first.breakdown.terms},
            "profile": first.breakdown.profile,
            "composite": first.breakdown.composite,
            "score": first.score,
            "max_similarity": first.max_similarity,
            "nearest_trace_id": first.neighbours[0]["trace_id"],
            "message": None,
        },
        {
            **dict.fromkeys(frame.columns),
            "line": 2,
            "trace_id": HOSTILE,
            "reasons": [*second.reasons],
            "message": second.message,
        },
    ]
    assert ScoredLines().to_polars().schema == frame.schema
    assert frame.schema["score"] == pl.Float64


def test_the_nearest_of_several_new_traces_are_one_frame(results: Results) -> None:
    similar: SimilarLines = results["similar lines"]
    first, second = similar
    assert isinstance(first, SimilarTraces)
    assert isinstance(second, Unscored)
    frame = similar.to_polars()
    assert frame.drop("line").equals(first.nearest.to_polars())
    assert frame["line"].to_list() == [1] * len(first.nearest)
    assert SimilarLines().to_polars().schema == frame.schema
    words = shown(results, "similar lines").words
    assert words == [*similar_text(first).split(), *similar_text(second).split()]
    many = Shown(SimilarLines([second] * 30)._repr_html_())
    assert many.texts[-1] == "20 more: see to_polars()"
    assert len(many.texts) == 11


def test_a_notebook_shows_the_words_of_status_and_settings(results: Results) -> None:
    status: WarehouseStatus = results["status"]
    looked = (
        datetime.fromisoformat(str(status.last_success.finished_at)) if status.last_success else NOW
    )
    text = status_text(status, looked + timedelta(seconds=status.age_s or 0)).split()
    assert shown(results, "status").words == [*printable(status.warehouse).split(), *text]
    current: CurrentSettings = results["settings"]
    [table] = shown(results, "settings").tables
    cells = [" ".join(row).split() for row in table.rows]
    assert cells == [line.split() for line in settings_text(current).splitlines()]
    assert table.head == ["setting", "value", "from", "set"]


def column(table: Table, heading: str) -> list[str]:
    return [row[table.head.index(heading)] for row in table.rows]


def test_the_summary_shows_the_distribution_of_each_domain(results: Results) -> None:
    summary: Summary = results["summary"]
    table = shown(results, "summary").tables[-1]
    scores = summary.scores
    assert column(table, "domain") == [printable(each["task_domain"]) for each in scores]
    assert column(table, "traces") == [f"{each['traces']:,}" for each in scores]
    assert column(table, "mean") == [f"{each['mean']:.3f}" for each in scores]
    assert column(table, "p95") == [f"{each['p95']:.3f}" for each in scores]
    many = [{**scores[0], "task_domain": f"d{n:04}", "traces": n + 1} for n in range(1_000)]
    cut = Shown(replace(summary, scores=DomainScores(many), domains=1_000)._repr_html_())
    assert column(cut.tables[-1], "domain") == [f"d{n:04}" for n in range(950, 1_000)]
    assert "950 more, with fewer traces: see the view distributions" in cut.texts


def test_the_plan_shows_the_work_by_domain_and_day_and_cuts_what_is_long(results: Results) -> None:
    described: PlanDescription = results["plan"]
    rows = described.by_domain_and_day or ()
    table = shown(results, "plan").tables[-1]
    assert column(table, "rescore") == [f"{row['rescore']:,}" for row in rows][:20]
    assert column(table, "day") == [row["day"] for row in rows][:20]
    html = replace(described, by_domain_and_day=DomainDays(rows[:1] * 3_000))._repr_html_()
    assert len(Shown(html).tables[-1].rows) == 20
    assert "2,980 more: see by_domain_and_day" in Shown(html).texts
    assert len(html) < 20_000


def test_the_comparison_shows_the_moves_of_each_domain_and_of_ten_traces(results: Results) -> None:
    comparison: Comparison = results["comparison"]
    tables = {tuple(table.head): table for table in shown(results, "comparison").tables}
    [moves] = [table for head, table in tables.items() if "rank corr" in head]
    assert column(moves, "rose") == [f"{each['rose']:,}" for each in comparison.domains]
    assert column(moves, "mean absolute") == [
        f"{each['mean_absolute_change']:.4f}" for each in comparison.domains
    ]
    assert moves.kinds == ["marked", *[""] * (len(comparison.domains) - 1)]
    [moved] = [table for head, table in tables.items() if head[0] == "trace"]
    rows, notes = moved.rows[::2], moved.rows[1::2]
    movers = comparison.movers[:10]
    assert [row[2:4] for row in rows] == [
        [f"{each['before_score']:.4f}", f"{each['after_score']:.4f}"] for each in movers
    ]
    assert [note[0][:20] for note in notes] == [
        " ".join(str(each["objective"]).split())[:20] for each in movers
    ]
    more = len(comparison.movers) - 10
    assert more > 0
    assert shown(results, "comparison").texts[-1] == (
        f"{more:,} more: see --json, or movers in Python"
    )


def test_the_sweep_marks_the_current_combination(results: Results) -> None:
    result: Sweep = results["sweep"]
    domains = shown(results, "sweep").tables
    overall = [row for row in result.variants if row["task_domain"] is None]
    assert column(domains[0], "score") == [f"{row['mean_score']:.4f}" for row in overall]
    assert column(domains[0], "at threshold") == [f"{row['at_threshold']:,}" for row in overall]
    assert column(domains[0], "now reach") == [f"{row['now_reach']:,}" for row in overall]
    assert column(domains[0], "recorded") == [f"{row['recorded_share']:.1%}" for row in overall]
    for table in domains:
        [current] = [kind for kind, row in zip(table.kinds, table.rows, strict=True) if row[-1]]
        assert current == "marked"
        assert table.kinds.count("marked") == 1


def test_the_explanation_shows_the_sum_its_bars_and_both_texts(results: Results) -> None:
    result: Explanation = results["explanation"]
    card = shown(results, "explanation")
    [total] = [table for table in card.tables if table.head[1:4] == ["value", "weight", "adds"]]
    terms = result.breakdown.terms
    assert [row[:4] for row in total.rows[: len(terms)]] == [
        [
            term.dimension.replace("_", " "),
            f"{term.value:.4f}",
            f"{term.weight:g}",
            f"{term.product:.4f}",
        ]
        for term in terms
    ]
    assert total.rows[-1][0] == "score"
    assert total.rows[-1][3] == f"{result.breakdown.score:.4f}"
    bars = [bar_of(attributes["style"]) for tag, attributes in card.tags if tag == "i"]
    ends = [0.0]
    for term, (begin, width) in zip(terms, bars, strict=False):
        assert begin == pytest.approx(ends[-1], abs=1e-3)
        assert width == pytest.approx(term.product, abs=1e-3)
        ends.append(begin + width)
    assert bars[-1] == pytest.approx((0.0, result.breakdown.score), abs=1e-3)
    text = "".join(card.texts)
    for neighbour in result.neighbours:
        for spans in (neighbour["own_text"] or (), neighbour["text"] or ()):
            assert "\n".join(printable(line) for line in joined(spans).split("\n")) in text
    assert sum(tag == "details" and "open" in own for tag, own in card.tags) == 1
    words = " ".join(card.words)
    assert f"the threshold {result.threshold}" in words
    assert " ".join(str(result).split())[:60] == words[:60]


def joined(spans: Iterable[Any]) -> str:
    return "".join(span.text for span in spans)


def bar_of(style: str | None) -> tuple[float, float]:
    begin, width = (part.split(":")[1].rstrip("%") for part in str(style).split(";"))
    return float(begin) / 100, float(width) / 100


def test_a_verification_marks_and_names_what_is_wrong(results: Results) -> None:
    result: Verification = results["verification"]
    [table] = shown(results, "verification").tables
    assert column(table, "column") == [each["column"] for each in result.differences]
    assert {*table.kinds} == {""}
    first, *others = result.differences
    differences = Differences([{**first, "max_difference": 0.5}, *others])
    wrong = replace(result, differences=differences, wrong="off")
    card = Shown(wrong._repr_html_())
    assert card.tables[0].kinds[0] == "marked"
    assert column(card.tables[0], "greatest difference")[0] == "0.5"


def test_a_preview_publishes_nothing_whatever_its_settings_say(results: Results) -> None:
    assert results["runs"] == 2
    current = {setting["name"]: setting["value"] for setting in results["settings"]}
    assert current["cache_size"] == 12


def test_the_results_of_audits_are_a_frame_with_their_states(results: Results) -> None:
    audits: AuditResults = results["audits"]
    frame = audits.to_polars()
    assert frame.drop("state").rows(named=True) == json.loads(json_line(audits))
    assert frame["state"].to_list() == ["passes", "warns"]
    assert AuditResults().to_polars().schema == frame.schema


TABLES: Sequence[Callable[[Results], Rows]] = (
    lambda results: results["summary"].scores,
    lambda results: results["plan"].by_domain_and_day,
    lambda results: results["comparison"].movers,
    lambda results: results["comparison"].domains,
    lambda results: results["verification"].differences,
    lambda results: results["explanation"].history,
    lambda results: results["sweep"].variants,
    lambda results: results["scored"].neighbours,
    lambda results: results["explanation"].neighbours,
    lambda results: results["similar"].nearest,
    lambda results: results["settings"],
)


def as_json(name: str, value: Any) -> Any:
    """A frame's value as JSON has it; what may be anything is the text of its JSON there."""
    value = value.to_list() if isinstance(value, pl.Series) else value
    if name == "value":
        return json.loads(value)
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("table_of", TABLES)
def test_a_table_is_the_same_as_a_frame_as_json_and_in_a_notebook(
    results: Results, table_of: Callable[[Results], Rows]
) -> None:
    table, kind = table_of(results), type(table_of(results))
    frame = table.to_polars()
    assert kind().to_polars().schema == frame.schema
    for name in table.names:
        values = [json.loads(json_line(row[name])) for row in table]
        assert [as_json(name, value) for value in frame[name]] == values
    assert TypeAdapter(kind).validate_json(json_line(table)) == table
    html = table._repr_html_()
    assert is_harmless(html)
    assert len(Shown(html).tables[0].rows) == min(len(table), 50) > 0


def test_some_types_of_frames(results: Results) -> None:
    moved = results["preview"].comparison.movers.to_polars().schema
    assert (moved["change"], moved["objective"]) == (pl.Float64, pl.String)
    assert results["similar"].nearest.to_polars().schema["created_at"] == pl.Datetime("us", "UTC")
    assert results["plan"].by_domain_and_day.to_polars().schema["day"] == pl.Date
    history = results["explanation"].history.to_polars().schema
    assert history["finished_at"] == pl.Datetime("us", "UTC")
    terms = results["explanation"].terms
    assert terms["product"].sum() == pytest.approx(results["explanation"].breakdown.composite)
    assert [*terms.schema.values()] == [pl.String, pl.Float64, pl.Float64, pl.Float64]


def test_what_operations_give_is_displayed(results: Results) -> None:
    kinds = (Redundancy, RollbackResult, Scored, PlanDescription, WarehouseStatus)
    assert all(issubclass(kind, Displayed) for kind in kinds)
    assert results["vacuum"]._repr_html_().count("<tr>") == len(fields(results["vacuum"]))


def test_ipython_keeps_the_text_of_the_terminal_with_the_html(results: Results) -> None:
    from IPython.core.formatters import DisplayFormatter

    for name in SHOWN:
        kept, _ = DisplayFormatter().format(results[name])
        assert kept == {"text/html": results[name]._repr_html_(), "text/plain": str(results[name])}
        assert printable_lines(str(results[name])) == str(results[name])


# What JupyterLab has for all tables of outputs.
PAGE = """<!doctype html><meta charset=utf-8><meta name=viewport content="width=device-width">
<style>:root {{color-scheme: light dark}} body {{background: Canvas; margin: 8px}}
.jp-RenderedHTMLCommon table {{border: none; font-size: 12px; table-layout: fixed;
  margin-left: auto; margin-right: auto; margin-bottom: 1em}}
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {{
  vertical-align: middle; padding: .5em; line-height: normal; white-space: normal; max-width: none}}
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td,
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th {{text-align: right}}
.jp-RenderedHTMLCommon tbody tr:nth-child(even) {{background: color-mix(in srgb, grey 8%, Canvas)}}
</style>
<body data-chosen=1><div class="jp-RenderedHTMLCommon">{}"""

# What is wider than what holds it, but for what scrolls by itself.
_WIDE = """() => [...document.body.querySelectorAll(".kp-batch, .kp-batch *")]
  .filter((each) => !each.closest(".wide") || each.matches(".wide"))
  .filter((each) => each.getBoundingClientRect().right > window.innerWidth + 0.5)
  .map((each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 80)}`)"""
_SCROLLED = """() => [...document.body.querySelectorAll(".kp-batch .wide")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent.slice(0, 80))"""


_ALIGNED = """() => Object.fromEntries(["left", "right"].map((side) => [side,
  [...document.querySelectorAll(".kp-batch th, .kp-batch td")]
    .filter((each) => getComputedStyle(each).textAlign === side)
    .every((each) => each.matches(".number") === (side === "right"))]))"""


@pytest.mark.process
@pytest.mark.telling
@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: see the end of this output")
def test_a_browser_shows_all_results_whole_on_narrow_and_wide_light_and_dark_paper(
    results: Results, tmp_path: Path
) -> None:
    page = tmp_path / "results.html"
    page.write_text(PAGE.format("<hr>".join(results[name]._repr_html_() for name in SHOWN)))
    with launched() as browser:
        for width, scheme in ((390, "dark"), (1300, "light")):
            with opened_in(browser, page, scheme, width) as (shown_page, messages):
                assert messages == []
                assert shown_page.evaluate(_WIDE) == []
                assert shown_page.evaluate("document.documentElement.scrollWidth") <= width
                assert faint(shown_page, 4.5) == set()
                assert shown_page.evaluate(_ALIGNED) == {"left": True, "right": True}
                scrolled = shown_page.evaluate(_SCROLLED)
                assert bool(scrolled) == (width == 390)
