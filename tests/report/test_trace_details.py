"""What the report tells of single traces: how they are scored, and their texts from the archive."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import UNREAD, ArchiveError
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_and_report, rescore_archive
from kp_batch.report import build as report_texts
from kp_batch.report.build import gather_traces, leave_report, read_texts, report
from kp_batch.report.data import ReportData, gather
from kp_batch.report.trace_details import StepStart, Text, Traces
from kp_batch.schemas import STEP_TYPES
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import published
from tests.support.kill.removal import killed_in_removal
from tests.support.make.archives import step, trace, write_jsonl, write_parquet
from tests.support.make.publications import publish_tables
from tests.support.processes.buckets import fill
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

CANARY = "canary"


def run(folder: Path, archive: Path | str | None = None, **changes: Any) -> Path:
    """Rescore, and return the warehouse."""
    places = {"archive": (str(archive or folder / "archive"),), "warehouse": folder / "warehouse"}
    rescore_archive(RescoreConfig(**{**places, "embedder": "hashing", **changes}))
    return folder / "warehouse"


def gathered(warehouse: Path) -> tuple[ReportData, Traces]:
    with connect(warehouse) as connection:
        data = gather(connection)
        return data, gather_traces(published(warehouse), connection, data, ThreadExecutor())


def page(warehouse: Path) -> str:
    return Layout(warehouse).report.read_text("utf-8")


def trace_of(number: int, **changes: Any) -> dict[str, Any]:
    """One of some traces that differ in all that the page tells."""
    steps = [step("thought", f"think {index}") for index in range(number)]
    steps += [step("tool_call", f"call {number}", f"tool {number}"), step("observation")]
    return trace(
        id=f"t{number}",
        objective=f"objective {number}",
        created_at=f"2026-01-{number // 2 + 1:02d}T{number:02d}:00:00Z",
        task_domain=("code", "finance")[number % 2],
        confidence=number / 20,
        steps=steps,
        **changes,
    )


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Traces, str]:
    """Traces, tools and agents with odd names, as they are gathered and as the page shows them."""
    folder = tmp_path_factory.mktemp("odd")
    steps = [step("thought", "a"), step("tool_call", "b", ""), step("tool_call", "c", "editor")]
    rows = [trace(id=name) for name in ("-x", "it's", "new\nline", "long" * 100)]
    rows += [trace_of(1, agent_id="<b>"), trace_of(2, agent_id=None)]
    write_jsonl(folder / "archive" / "a.jsonl", [*rows, trace(id="tools", steps=steps)])
    warehouse = run(folder, cache_by="agent_id")
    return gathered(warehouse)[1], report(warehouse, "html")


@pytest.mark.telling
def test_a_tool_without_a_name_is_listed_as_one(odd: tuple[Traces, str]) -> None:
    traces, _ = odd
    assert traces.details["tools"].n_tools == 2
    text = traces.texts["tools"]
    assert text.tools == ('""', "editor")
    assert [step.tool for step in text.steps] == ["", '""', "editor"]


def test_the_page_names_the_commands_that_explain_traces(odd: tuple[Traces, str]) -> None:
    commands = re.findall(r"<code>kp-batch explain ([^<]*)</code>", unescape(odd[1]))
    assert sorted(commands) == ["'it'\"'\"'s'", "-- -x", "t1", "t2", "tools"]


def test_the_page_names_whose_cache_a_trace_met(odd: tuple[Traces, str]) -> None:
    assert odd[1].count("the cache of agent_id &lt;b&gt; contained 0 vectors") == 1
    assert odd[1].count("the cache of no agent_id contained 0 vectors") == 1


def test_each_trace_is_shown_with_its_sum_its_place_and_its_text(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace_of(number) for number in range(7)])
    rows = [trace_of(number) for number in range(7, 15)]
    write_parquet(tmp_path / "archive" / "b.parquet", rows, row_group_size=3)
    warehouse = run(tmp_path)
    data, traces = gathered(warehouse)
    shown = {row["trace_id"]: row for row in data.traces.to_dicts()}
    assert len(shown) == 15
    assert traces.details.keys() == traces.texts.keys() == shown.keys()
    for number in range(15):
        detail = traces.details[f"t{number}"]
        assert detail.breakdown.score == shown[f"t{number}"]["score"]
        assert detail.breakdown.profile == detail.task_domain == ("code", "finance")[number % 2]
        assert (detail.cached_vectors, detail.n_steps, detail.n_tools) == (number, number + 2, 1)
        name, first = ("a.jsonl", 0) if number < 7 else ("b.parquet", 7)
        assert detail.source_file == str(tmp_path / "archive" / name)
        assert detail.row == number - first
        call = StepStart("tool_call", f"tool {number}", f"call {number}")
        steps = [*(StepStart("thought", "", f"think {index}") for index in range(number)), call]
        types = {"thought": number, "tool_call": 1, "observation": 1}
        assert traces.texts[f"t{number}"] == Text(
            objective=f"objective {number}",
            types={name: count for name, count in types.items() if count},
            tools=(f"tool {number}",),
            steps=(*steps, StepStart("observation", "", ""))[:3],
        )
    manifest = require_manifest(warehouse)
    without_facts = {name: version for name, version in manifest.tables.items() if name != "facts"}
    publish_tables(warehouse, replace(manifest, tables=without_facts))
    assert {detail.row for detail in gathered(warehouse)[1].details.values()} == {None}


def test_no_text_is_long_and_each_is_printable(tmp_path: Path) -> None:
    steps = [
        step(
            STEP_TYPES[number % 4],
            f"{number}\n\x1b[31m " + "c" * 500,
            f"tool {number % 50}" + "n" * 99,
        )
        for number in range(5_000)
    ]
    objective = "\ud800 \x9b\u202e\n" + "x" * 1_000_000
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(objective=objective, steps=steps)])
    warehouse = run(tmp_path)
    _, traces = gathered(warehouse)
    [text] = (traces.texts or {}).values()
    assert isinstance(text, Text)
    assert text.types == dict.fromkeys(STEP_TYPES, 1250)
    assert (len(text.tools), len(text.steps)) == (10, 3)
    lengths = [
        len(text.objective),
        *map(len, text.tools),
        *(len(step.start) for step in text.steps),
    ]
    assert lengths == [300, *[60] * 10, *[120] * 3]
    assert text.objective.isprintable()
    assert text.steps[0].start.startswith(r"0 \x1b[31m ccc")
    assert r"\x9b\u202e xxx" in report(warehouse, "html")


def test_what_cannot_be_read_again_says_why(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    names = ("stays", "gone", "changed", "unreadable")
    for number, name in enumerate(names):
        write_jsonl(archive / f"{name}.jsonl", [trace(id=name, objective=f"{name} {number}")])
    warehouse = run(tmp_path)
    (archive / "gone.jsonl").unlink()
    write_jsonl(archive / "changed.jsonl", [trace(id="changed", objective="other words")])
    (archive / "unreadable.jsonl").unlink()
    (archive / "unreadable.jsonl").mkdir()
    texts = gathered(warehouse)[1].texts or {}
    assert {name: texts[name] for name in names[1:]} == {name: name for name in names[1:]}
    shown = report(warehouse, "html")
    assert "stays 0" in shown
    for name in names[1:]:
        assert f"<i>not shown: {UNREAD[name]}</i>" in shown


def test_large_files_are_left_out_and_those_of_the_first_traces_are_preferred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is read turns out to be gone."""
    files = {"first": (True, 60), "large": (True, 90), "small": (False, 30), "last": (False, 50)}
    rows = pl.DataFrame(
        [
            {"source_file": f"/nowhere/{name}", "row": 0, "trace_id": name, "content_hash": ""}
            | {"is_first": is_first, "size": size}
            for name, (is_first, size) in files.items()
        ]
    )
    monkeypatch.setattr(report_texts, "MAX_REREAD_BYTES", 100)
    monkeypatch.setattr(report_texts, "OPEN_COST_BYTES", 1)
    assert read_texts(rows, ThreadExecutor()) == {
        **dict.fromkeys(("first", "small"), "gone"),
        **dict.fromkeys(("large", "last"), "large"),
    }
    monkeypatch.setattr(report_texts, "OPEN_COST_BYTES", 40)
    assert set(read_texts(rows, ThreadExecutor()).values()) == {"gone", "large"}


def test_texts_come_from_a_bucket_as_well(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "here" / "a.parquet", [trace_of(1), trace_of(2)])
    fill(bucket, tmp_path / "here")
    warehouse = run(tmp_path, archive=bucket)
    texts = gathered(warehouse)[1].texts or {}
    assert [text.objective for text in texts.values()] == ["objective 1", "objective 2"]
    monkeypatch.setattr(report_texts, "FETCH_COST_BYTES", report_texts.MAX_REREAD_BYTES)
    assert set((gathered(warehouse)[1].texts or {}).values()) == {"large"}


class OneByOne(ThreadExecutor):
    """Reads a part when its texts are asked for."""

    parts = 0

    def map(self, step: Any, parts: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for part in parts:
            self.parts += 1
            yield step(part, *args, **kwargs)


def test_a_bucket_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:9", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "known")
    files = [f"s3://away/{number}.parquet" for number in range(3)]
    named = pl.DataFrame({"source_file": files, "trace_id": files})
    executor = OneByOne()
    texts = read_texts(
        named.with_columns(row=0, content_hash=pl.lit(""), is_first=pl.lit(value=True), size=1),
        executor,
    )
    assert texts == dict.fromkeys(files, "unreadable")
    assert executor.parts == 1


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canaries")
    steps = [step("thought", f"content {CANARY}"), step("tool_call", "x", f"tool {CANARY}")]
    rows = [
        trace(id=name, objective=f"objective {CANARY} {name}", steps=steps) for name in ("a1", "a2")
    ]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    run(folder)
    keep(folder)
    return folder


@pytest.fixture
def with_canaries(scored: Path) -> Path:
    """A folder with two scored traces, whose text must not go everywhere."""
    restore(scored)
    return scored


def test_texts_are_only_in_the_page(with_canaries: Path) -> None:
    warehouse = with_canaries / "warehouse"
    assert {*re.findall(rf"\w+ {CANARY}", report(warehouse, "html"))} == {
        f"{kind} {CANARY}" for kind in ("objective", "content", "tool")
    }
    assert CANARY not in report(warehouse, "markdown")


def test_without_texts_the_page_shows_ids_and_numbers(with_canaries: Path) -> None:
    """The setting rescores no trace, and holds until it is ended."""
    warehouse = with_canaries / "warehouse"
    usual = {"archive": (str(with_canaries / "archive"),), "warehouse": warehouse}
    counts = rescore_and_report(RescoreConfig(**usual, trace_text=False, report=True)).counts
    assert (counts.rescored, counts.replayed, counts.partitions) == (0, 0, 0)
    for shown in (page(warehouse), report(warehouse, "html")):
        assert CANARY not in shown
        assert "a1" in shown
        assert "<code>--no-trace-text</code>" in shown
    written = Layout(warehouse).report.stat().st_mtime_ns
    rescore_and_report(RescoreConfig(**usual, report=True))
    assert Layout(warehouse).report.stat().st_mtime_ns == written
    rescore_archive(RescoreConfig(**usual, embedder="hashing", trace_text=True))
    assert CANARY in report(warehouse, "html")


def test_a_run_that_was_to_leave_texts_out_and_failed_leaves_them_out(with_canaries: Path) -> None:
    warehouse = with_canaries / "warehouse"
    write_jsonl(with_canaries / "archive" / "b.jsonl", [trace(id="b", steps=[])])
    with pytest.raises(ArchiveError):
        run(with_canaries, trace_text=False, max_reject_share=0)
    shown = report(warehouse, "html")
    assert CANARY not in shown
    assert "<code>--no-trace-text</code>" in shown


def test_a_forgotten_trace_takes_its_text_along_even_where_forgetting_was_killed(
    tmp_path: Path,
) -> None:
    gone = trace_of(3) | {"id": "kp:trace:1", "task": {"objective": CANARY}}
    rows = [trace_of(1), gone, trace_of(3)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    warehouse = run(tmp_path)
    leave_report(warehouse, ThreadExecutor())
    [nearest] = set(gathered(warehouse)[0].traces.filter(trace_id="t3")["nearest_trace_id"])
    assert nearest == "kp:trace:1"
    written = Layout(warehouse).report.read_bytes()
    assert CANARY in page(warehouse)
    killed_in_removal(warehouse)
    Layout(warehouse).report.write_bytes(written)  # a real kill writes no page
    forget(warehouse, ["kp:trace:1"])
    assert "objective 3" in page(warehouse)
    assert CANARY not in page(warehouse)
