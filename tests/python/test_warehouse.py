"""A warehouse in Python does what the commands do, by the same words."""

import inspect
import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kp_batch as kp
from kp_batch.cli import _MODULES
from kp_batch.cli import kp_batch as commands
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import (
    ArchiveError,
    AuditError,
    KpBatchError,
    SettingError,
    WarehouseError,
)
from kp_batch.report import build
from kp_batch.warehouse.questions import questions
from kp_batch.warehouse.run_result import RunResult
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

for module in _MODULES:
    __import__(f"kp_batch.cli.{module}")

# Of the command line alone: what is printed, and where it goes.
ABOUT_OUTPUT = {"json", "help", "quiet", "file", "fail_if_rows", "warehouse", "project", "from"}
# Commands without a method: they make a folder or a file for others.
NO_METHOD = {"catalog", "demo", "import", "import-forget", "import-formats", "init"}
# Methods that are an option of a command, or whose name Python has otherwise.
LIKE = {"preview": "run", "crossed": "compare", "fit_weights": "fit"}
# What Python has in place of an option: its negation, another kind of value, or another method.
OTHERWISE = {
    "run": {"preview", "output"},
    "preview": {"preview", "output", "report", "keep"},
    "sql": {"format"},
    "runs": {"format"},
    "compare": {"crossed", "output"},
    "crossed": {"crossed", "output"},
    "report": {"output"},
    "status": {"fail_if_failed", "prometheus"},
}
OF_PYTHON = {
    "score": {"file": "traces"},
    "fit_weights": {"from": "valid_from"},
    "sweep": {},
    "similar": {"n": "top"},
}
WEIGHTS = {"complexity": 1.0, "novelty": 0.0, "tool_diversity": 0.0, "outcome_confidence": 0.0}


def options_of(command: str, method: str) -> dict[str, Any]:
    """The options of a command by their names in Python, with their defaults."""
    context = click.Context(commands.commands[command])
    options: dict[str, Any] = {}
    for param in context.command.get_params(context):
        names = [each.lstrip("-").replace("-", "_") for each in param.opts]
        name, default = max(names, key=len), param.default
        default = default if isinstance(default, str | int | float) else None  # empty, or unset
        if name == "timeout":  # which no call in Python has
            continue
        if name.startswith("no_"):
            name, default = name.removeprefix("no_"), not default
        name = OF_PYTHON.get(method, {}).get(name, name)
        hidden = getattr(param, "hidden", False)
        if name not in ABOUT_OUTPUT | OTHERWISE.get(method, set()) and not hidden:
            options[name] = default
    return options


def parameters_of(method: str) -> dict[str, Any]:
    """The parameters of a method with their defaults."""
    parameters = dict(inspect.signature(getattr(kp.Warehouse, method)).parameters)
    parameters.pop("self")
    ways = parameters.items()  # a frame for SQL has no option
    return {name: way.default for name, way in ways if (method, name) != ("sql", "frames")}


METHODS = [name for name in dir(kp.Warehouse) if not name.startswith("_")]
OF_COMMANDS = [name for name in METHODS if LIKE.get(name, name) in commands.commands]
TABLES = ["scores", "rejects", "profiles", "files", "distributions"]


def test_each_command_has_a_method_and_each_method_is_a_command_or_reads_tables() -> None:
    assert {LIKE.get(name, name) for name in OF_COMMANDS} == commands.commands.keys() - NO_METHOD
    assert {*METHODS} - {*OF_COMMANDS} == {*TABLES, "ask", "chart", "questions", "vectors"}


@pytest.mark.parametrize("method", OF_COMMANDS)
def test_a_method_has_the_parameters_and_defaults_of_its_command(method: str) -> None:
    options, parameters = options_of(LIKE.get(method, method), method), parameters_of(method)

    assert {*parameters} == {*options}
    for name, default in parameters.items():
        if default is not inspect.Parameter.empty:
            wanted = options[name]
            wanted = {"0.95": 0.95, "none": None}.get(str(wanted), wanted)
            assert (default or None) == (wanted or None), name


NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


def made(folder: Path) -> kp.Warehouse:
    """A warehouse of four scored traces and one reject."""
    warehouse = kp.Warehouse(folder / "warehouse")
    archive = archive_in(folder)
    warehouse.run(
        archive, embedder="hashing", cache_by="agent_id", max_reject_share=1, note="first"
    )
    return warehouse


def archive_in(folder: Path) -> Path:
    texts = ["fix it", "fix it", "tell me", "a b c"]
    rows = [
        trace(
            id=f"kp:trace:{number}",
            created_at=f"2026-01-0{5 + number // 3}T08:0{number}:00Z",
            objective=text,
            **dict.fromkeys(("agent_id", "framework"), "y" if number % 2 else "it's"),
        )
        for number, text in enumerate(texts)
    ]
    return write_jsonl(folder / "archive" / "a.jsonl", [*rows, trace(success=None)])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return archive_in(tmp_path)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> kp.Warehouse:
    """For tests that only ask it."""
    return made(tmp_path_factory.mktemp("asked"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> kp.Warehouse:
    folder = tmp_path_factory.mktemp("changed") / "made"
    warehouse = made(folder)
    keep(folder)
    return warehouse


@pytest.fixture
def own(kept: kp.Warehouse) -> kp.Warehouse:
    """For tests that change it."""
    restore(Path(kept).parent)
    return kept


def as_json(result: Any) -> Any:
    return json.loads(json.dumps(result, default=asdict))


def printed(wh: kp.Warehouse, *words: object) -> Any:
    done = invoke(*words, "--json", "--warehouse", str(wh)[11:-2])
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.telling
def test_nothing_is_printed_and_what_a_run_warns_of_is_in_its_result(
    tmp_path: Path, archive: Path
) -> None:
    (archive.parent / "b.jsonl").write_text("no json")
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        run = kp.Warehouse(tmp_path / "w").run(archive.parent, embedder="none", max_reject_share=1)

    assert (out.getvalue(), err.getvalue()) == ("", "")
    assert run.status == "done"
    assert run.run_id
    assert run.counts
    assert (run.counts.accepted, run.counts.rejected) == (4, 1)
    assert [text for text in run.warnings if "b.jsonl" in text]


@pytest.mark.slow
def test_a_run_with_nothing_to_do_has_no_id(own: kp.Warehouse) -> None:
    run = own.run(max_reject_share=1)

    assert (run.status, run.run_id, run.warnings) == ("nothing_to_do", None, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_view_whose_times_are_in_utc(wh: kp.Warehouse, name: str) -> None:
    frame = getattr(wh, name)().collect()

    assert frame.equals(wh.sql(f"FROM {name}"))
    assert len(frame)
    times = [kind for kind in frame.schema.values() if isinstance(kind, pl.Datetime)]
    assert all(kind == pl.Datetime("us", "UTC") for kind in times)


@pytest.mark.slow
def test_a_table_reads_columns_rows_and_conditions_as_polars_does(wh: kp.Warehouse) -> None:
    lazy, eager = wh.scores(), wh.sql("FROM scores")
    asked = pl.col("score") >= eager["score"].median()

    assert lazy.select("score", "trace_id").collect().equals(eager.select("score", "trace_id"))
    assert lazy.head(3).filter(asked).collect().equals(eager.head(3).filter(asked))
    assert (
        lazy.filter(asked)
        .head(1)
        .select("novelty")
        .collect()
        .equals(eager.filter(asked).head(1).select("novelty"))
    )
    assert lazy.slice(1, 2).collect().equals(eager.slice(1, 2))
    assert lazy.tail(1).collect().equals(eager.tail(1))
    assert lazy.filter(pl.lit(value=False)).collect().equals(eager.clear())
    plan = lazy.filter(asked).select("trace_id").explain()
    assert "PROJECT 2/" in plan
    assert 'SELECTION: col("score")' in plan  # before rows are decoded
    by = lazy.group_by("task_domain").agg(pl.len(), pl.mean("score"))
    assert by.collect().equals(eager.group_by("task_domain").agg(pl.len(), pl.mean("score")))


@pytest.mark.slow
def test_a_table_filters_rows_before_or_after_its_own_conditions(own: kp.Warehouse) -> None:
    own.run(ttl="1h", threshold=0.5, max_reject_share=1)
    lazy, eager = own.scores(), own.sql("FROM scores")

    assert_frame_equal(lazy.collect(), eager, check_row_order=False)
    assert eager["cache_warming_up"].n_unique() == 2
    for name in ("cache_warming_up", "meets_threshold", "score"):
        last = lazy.filter(trace_id="kp:trace:3").select(name).collect()
        assert last.equals(eager.filter(trace_id="kp:trace:3").select(name))


@pytest.mark.slow
@pytest.mark.telling
def test_a_table_stays_as_it_was_when_it_was_asked_for(own: kp.Warehouse) -> None:
    before, was = own.scores(), own.scores().collect()
    first = own.runs()["run_id"][0]
    own.run(cache_size=1, max_reject_share=1)

    assert before.collect().equals(was)
    assert own.scores(first).collect().equals(was)
    assert own.scores("previous").collect().equals(was)
    assert not own.scores().collect().equals(was)
    assert own.sql("FROM scores", as_of="previous").equals(was)


@pytest.mark.slow
def test_a_table_that_was_removed_since_names_a_file(own: kp.Warehouse) -> None:
    before = own.scores()
    own.run(cache_size=1, max_reject_share=1)
    own.vacuum(keep=timedelta(0))

    for engine in ("in-memory", "streaming"):
        with pytest.raises(FileNotFoundError, match=r"scores/date=2026-01-05/"):
            before.collect(engine=engine)


@pytest.mark.slow
def test_a_table_is_of_its_warehouse_alone_though_another_one_takes_its_place(
    tmp_path: Path, own: kp.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(own)
    monkeypatch.chdir(folder.parent)
    before, was = kp.Warehouse("warehouse").scores(), own.scores().collect()
    monkeypatch.chdir(tmp_path)
    assert before.collect().equals(was)

    folder.rename(folder.with_name("old"))
    own.run(folder.with_name("archive"), embedder="none", max_reject_share=1)
    with pytest.raises(FileNotFoundError):
        before.collect()


@pytest.mark.slow
def test_a_view_that_is_empty_has_its_columns(tmp_path: Path, own: kp.Warehouse) -> None:
    good = write_jsonl(tmp_path / "b.jsonl", [trace()])
    own.run(good, prune=True, max_reject_share=1)

    assert own.rejects().collect().is_empty()
    assert own.rejects().collect_schema() == own.sql("FROM rejects").schema


@pytest.mark.slow
def test_each_question_that_takes_values_can_be_asked_by_their_names(wh: kp.Warehouse) -> None:
    values = {
        "keys": ["task_domain", "profile"],
        "unit": "agent_id",
        "period": "week",
        "measures": ["score", "overconfidence"],
        "condition": "success OR novelty > 0.2",
        "a": "it's",
        "b": "y",
        "run_a": "latest",
        "run_b": "latest",
        "tolerance": 1e-6,
        "similarity": 0.99,
        "bins": 5,
        "steps": 4,
        "what": "age",
        "hash": "text_hash",
        **{f"weight_of_{dimension}": 0.25 for dimension in DIMENSIONS},
    }
    for question in questions():
        call = question.call.partition("(")[2].removesuffix(")")
        arguments = re.findall(r"(\w+)(?= := |, |$)", re.sub(r":= \[.*?\]", ":= x", call))
        given = {name: values[name] for name in arguments if name in values}
        if given:
            assert wh.ask(question.name, **given).columns


@pytest.mark.slow
def test_a_question_without_values_is_its_view_or_one_value(wh: kp.Warehouse) -> None:
    assert wh.ask("rejects_by_code").equals(wh.sql("FROM rejects_by_code"))
    assert wh.ask("latest").equals(wh.sql("SELECT latest() AS latest"))


@pytest.mark.slow
def test_a_value_is_no_sql_but_a_condition(wh: kp.Warehouse) -> None:
    by_name = wh.ask("means_by", "profile")

    assert by_name.equals(wh.sql("FROM means_by('profile')"))
    both = wh.ask("means_by", ["task_domain", "profile"], ["score"], condition="novelty < 0.5")
    assert both.equals(
        wh.sql("FROM means_by(['task_domain', 'profile'], ['score'], novelty < 0.5)")
    )
    drift = wh.ask("drift", "latest", "latest")
    assert drift.equals(wh.sql("FROM drift(latest(), latest())"))
    quoted = wh.ask("differences_by", "agent_id", "it's", "y")
    assert quoted.equals(wh.sql("FROM differences_by('agent_id', 'it''s', 'y')"))
    with pytest.raises(KpBatchError, match=r"^no trace has y'\); DROP TABLE scores; --"):
        wh.ask("differences_by", "agent_id", "it's", "y'); DROP TABLE scores; --")
    with pytest.raises(KpBatchError, match="profile'\\) from"):
        wh.ask("means_by", "profile') FROM")


@pytest.mark.parametrize(
    ("question", "values", "message"),
    [
        ("mean_by", [], "there is no question 'mean_by', did you mean"),
        ("near_repeats", [], r"takes similarity, got 0 values; example: FROM near_repeats"),
        ("near_repeats", [0.9, 0.8], "takes similarity, got 2 values"),
        ("timestamp_ties", [1], "takes no values, got 1 value"),
        ("means_by", [], r"takes keys, measures := \[.*, condition := true, got 0 values"),
        ("means_by", ["nothing"], 'Column "nothing" was selected but was not found'),
        ("mean_changes", ["weak"], 'Column "weak" was selected but was not found'),
        ("drift", ["2031", "latest"], "there is no run '2031'"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(
    wh: kp.Warehouse, question: str, values: list[Any], message: str
) -> None:
    with pytest.raises(KpBatchError, match=message):
        wh.ask(question, *values)


@pytest.mark.slow
def test_values_that_are_named_have_no_order(wh: kp.Warehouse) -> None:
    named = wh.ask("differences_by", b="y", unit="agent_id", a="it's")

    assert named.equals(wh.ask("differences_by", "agent_id", "it's", "y"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("max(created_at) - min(created_at)", r"INTERVAL, .* select epoch\(…\), its seconds"),
        ("[INTERVAL 1 DAY]", r"v is of type INTERVAL\[\], which Polars lacks"),
        ("any_value(TIMETZ '08:00:00+02')", r"select …::VARCHAR, its text"),
        ("any_value('101'::BIT)", "v is of type BIT"),
    ],
)
def test_a_type_that_polars_lacks_is_refused(wh: kp.Warehouse, value: str, message: str) -> None:
    with pytest.raises(KpBatchError, match=message):
        wh.sql(f"SELECT {value} AS v FROM scores")


def test_a_frame_holds_one_answer(wh: kp.Warehouse) -> None:
    assert wh.sql("SET VARIABLE a = 2; SELECT getvariable('a') AS a")["a"].to_list() == [2]
    for query in ("", "SELECT 1; SELECT 2", "SET VARIABLE a = 2"):
        with pytest.raises(KpBatchError, match="a frame holds one result"):
            wh.sql(query)
    with pytest.raises(KpBatchError, match="give each its own"):
        wh.sql("SELECT 1 AS a, 2 AS a")
    with pytest.raises(KpBatchError, match="Parser Error"):
        wh.sql("SELECT FROM WHERE")


@pytest.mark.slow
@pytest.mark.telling
def test_results_are_what_the_commands_print(wh: kp.Warehouse) -> None:
    trace_id = "kp:trace:1"
    same: Mapping[str, Any] = {
        "explain": (wh.explain(trace_id), [trace_id]),
        "similar": (wh.similar(trace_id, top=2), [trace_id, "-n", 2]),
        "redundancy": (wh.redundancy(similarity=0.9), ["--similarity", 0.9]),
        "settings": (wh.settings(), []),
        "sweep": (
            wh.sweep(cache_size=[1, 2], cache_by=[None, "agent_id"], ttl=["1h"], threshold=[0.5]),
            ["--cache-size=1,2", "--cache-by=none,agent_id", "--ttl=1h", "--threshold=0.5"],
        ),
        "verify": (wh.verify(sample=2, seed=7), ["--sample", 2, "--seed", 7]),
        "vacuum": (wh.vacuum(keep="1h", dry_run=True), ["--keep", "1h", "--dry-run"]),
        "forget": (wh.forget(trace_id, dry_run=True), [trace_id, "--dry-run"]),
        "rollback": (wh.rollback("latest", dry_run=True), ["latest", "--dry-run"]),
        "compare": (wh.compare("latest", "latest"), ["latest", "latest"]),
        "plan": (wh.plan(threshold=0.5), ["--threshold", 0.5]),
    }
    for command, (result, words) in same.items():
        told = printed(wh, command, *words)
        times = ("started_at", "finished_at") if isinstance(result, RunResult) else ()
        for value in (told, given := as_json(result)):
            for name in times:
                value.pop(name)
        assert given == told, command


def test_a_sweep_takes_one_value_or_several(wh: kp.Warehouse) -> None:
    listed = wh.sweep(cache_size=[2], cache_by=["agent_id"], ttl=["1h"], threshold=[0.5])

    assert wh.sweep(cache_size=2, cache_by="agent_id", ttl="1h", threshold=0.5) == listed


def test_the_runs_are_those_of_the_command(wh: kp.Warehouse) -> None:
    told = printed(wh, "runs")

    runs = wh.runs()
    assert runs["run_id"].to_list() == [run["run_id"] for run in told]
    assert runs["note"].to_list() == ["first"]
    assert runs.schema["started_at"] == pl.Datetime("us", "UTC")


@pytest.mark.slow
def test_an_outcome_is_what_run_prints(own: kp.Warehouse) -> None:
    run = own.run(cache_size=1, max_reject_share=1)
    told = printed(own, "run", "--cache-size", 2, "--max-reject-share", 1, "--no-prefect")

    assert as_json(run).keys() == told.keys()
    assert run.scores[0]["traces"] == told["scores"][0]["traces"]
    assert as_json(run.counts) == told["counts"]


@pytest.mark.slow
@pytest.mark.telling
def test_a_preview_publishes_nothing(own: kp.Warehouse) -> None:
    was = own.scores().collect()
    preview = own.preview(profiles={"code": WEIGHTS}, max_reject_share=1)

    assert preview.status == "done"
    assert preview.changes
    assert preview.comparison
    assert preview.comparison.in_both == 4
    assert own.scores().collect().equals(was)
    candidate = own.scores("candidate").collect()
    assert own.compare("latest", "candidate") == preview.comparison
    assert candidate["score"].to_list() != was["score"].to_list()


@pytest.mark.slow
def test_new_traces_are_scored_as_if_each_came_next(tmp_path: Path, wh: kp.Warehouse) -> None:
    new = trace(id="new", objective="fix it", steps=[{"type": "thought", "content": "x"}])
    file = write_jsonl(tmp_path / "new.jsonl", [new])
    at = datetime(2026, 1, 6, 9, 0)  # noqa: DTZ001 (it is UTC)
    [scored] = wh.score(new, at=at)
    done = invoke(
        "score", file, "--at", "2026-01-06T09:00:00Z", "--json", "--warehouse", str(wh)[11:-2]
    )

    assert as_json(scored) == json.loads(done.stdout)
    assert as_json(wh.score([new], at=at.replace(tzinfo=UTC))[0]) == json.loads(done.stdout)
    [unscored] = wh.score({"id": "x"})
    assert "no_steps" in unscored.reasons  # type: ignore[union-attr]
    [near] = wh.similar(new, top=1)
    assert near.nearest  # type: ignore[union-attr]


def test_an_export_is_that_of_the_command(tmp_path: Path, wh: kp.Warehouse) -> None:
    exported = wh.export(
        tmp_path / "best.jsonl", min_score=0, since=date(2026, 1, 5), until="2026-01-05", top=2
    )
    words = ["--min-score", 0, "--since", "2026-01-05", "--until", "2026-01-05", "--top", 2]
    told = printed(wh, "export", "-o", tmp_path / "same.jsonl", *words)

    assert as_json(exported) == told
    assert (tmp_path / "best.jsonl").read_text() == (tmp_path / "same.jsonl").read_text()


@pytest.mark.slow
def test_audits_that_fail_raise_with_what_they_found(own: kp.Warehouse) -> None:
    own.run(audits={"none": {"sql": "FROM scores WHERE score < 0"}}, max_reject_share=1)
    assert [result.rows for result in own.audit()] == [0]

    with pytest.raises(AuditError) as refused:
        own.run(audits={"all": {"sql": "FROM scores"}}, max_reject_share=1)
    assert refused.value.results[0].rows == 4
    assert own.runs()["status"].to_list() == ["failed", "done", "done"]


@pytest.mark.slow
def test_a_rollback_and_what_is_forgotten_are_published(own: kp.Warehouse) -> None:
    was = own.scores().collect()
    own.run(cache_size=1, max_reject_share=1)
    back = own.rollback("previous", note="undo")
    assert back.run_id
    assert own.scores().collect().drop("run_id").equals(was.drop("run_id"))
    forgotten = own.forget("kp:trace:1", note="asked")
    assert forgotten.traces == 1
    assert own.vacuum(keep=timedelta(hours=1)).files >= 0
    assert own.runs()["note"].to_list()[:2] == ["asked", "undo"]
    assert own.scores().select(pl.len()).collect().item() == 3


def test_a_status_has_its_age(wh: kp.Warehouse) -> None:
    assert wh.status(max_age="1h").last_success
    assert wh.status().warehouse == str(wh)[11:-2]
    with pytest.raises(WarehouseError, match="the newest trace in"):
        wh.status(max_trace_age=timedelta(days=1))
    with pytest.raises(SettingError, match="max_age: a duration must be"):
        wh.status(max_age="soon")


def test_faults_of_values_have_their_names_in_python(tmp_path: Path, wh: kp.Warehouse) -> None:
    with pytest.raises(SettingError, match=r"^cache_size must be at least 1, got 0; ttl: a"):
        wh.run(cache_size=0, ttl="soon")
    unknown: Any = {"cache_bye": "agent_id"}
    with pytest.raises(SettingError, match="no key 'cache_bye', did you mean 'cache_by'"):
        wh.run(**unknown)
    with pytest.raises(SettingError, match=r"^cache_size must be at least 1, got 0$"):
        wh.sweep(cache_size=[10, 0])
    for empty in ([], ()):  # not the archive of the last run
        with pytest.raises(SettingError, match=r"^archive is an empty list; name a file"):
            wh.plan(empty)
    with pytest.raises(
        SettingError, match=r"^similarity: a similarity must be a number above 0, up to 1, got 1\.5"
    ):
        wh.redundancy(similarity=1.5)
    with pytest.raises(SettingError, match=r"^top: it must be a whole number from 1 on, got 0"):
        wh.similar("kp:trace:1", top=0)
    with pytest.raises(SettingError, match=r"^sample: it must be a whole number from 1 on, got 0"):
        wh.verify(sample=0)
    with pytest.raises(SettingError, match=r"^keep: '3m' may be minutes or months"):
        wh.vacuum(keep="3m")
    with pytest.raises(SettingError, match="min_score must be at most 1, got 2; top must"):
        wh.export(tmp_path / "a.jsonl", min_score=2, top=0)
    for name in ("since", "until"):
        with pytest.raises(
            SettingError, match=f"^{name}: it must be a day, such as .*, got 'soon'; for a time"
        ):
            wh.export(tmp_path / "a.jsonl", **{name: "soon"})
    with pytest.raises(SettingError, match=r"format 'pdf' is unknown; choose html or markdown$"):
        wh.report("pdf")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="since 2026-01-06 is after until 2026-01-05; change"):
        wh.export(tmp_path / "a.jsonl", since="2026-01-06", until="2026-01-05")
    with pytest.raises(
        KpBatchError, match=r"^the format traces has files that end with \.jsonl or"
    ):
        wh.export("a.csv")


def test_a_missing_warehouse_or_archive_is_reported(tmp_path: Path) -> None:
    none = kp.Warehouse(tmp_path / "none")
    for ask in (none.scores, none.runs, none.settings, none.redundancy, none.vacuum, none.report):
        with fails_with(WarehouseError, "no_warehouse"):
            ask()
    with fails_with(ArchiveError, "no_archive"):
        none.run(tmp_path / "nothing")
    with pytest.raises(WarehouseError, match="no archive is given"):
        none.run()


@pytest.mark.slow
@pytest.mark.usefixtures("archive")
def test_a_project_has_archive_settings_and_warehouse(tmp_path: Path) -> None:
    file = tmp_path / "kp_batch.toml"
    file.write_text(
        'archive = "archive"\nwarehouse = "own"\n[settings]\nembedder = "none"\ncache_size = 7\n'
        "[limits]\nmax_reject_share = 1.0\n"
    )
    project = kp.Project(file)
    assert project.run().status == "done"

    settings = {
        setting["name"]: (setting["value"], setting["source"]) for setting in project.settings()
    }
    assert settings["cache_size"] == (7, "project")
    assert settings["threshold"] == (0.75, "default")
    assert (tmp_path / "own" / "manifest.json").exists()
    assert project.plan(cache_size=8).reasons[0].code == "cache_size"
    file.write_text(file.read_text().replace("cache_size = 7", "cache_size = 1"))
    assert [reason.code for reason in project.plan().reasons] == ["cache_size"]
    file.write_text('archive = "archive"\n')
    with pytest.raises(SettingError, match="names no warehouse"):
        kp.Project(file)
    with pytest.raises(SettingError, match="cannot be read"):
        kp.Project(tmp_path / "other.toml")


def test_a_place_stays_where_it_was_named(
    tmp_path: Path, wh: kp.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(wh)
    monkeypatch.chdir(folder.parent)
    (tmp_path / "kp_batch.toml").write_text(f'warehouse = "{folder}"\n')
    project_file = Path(os.path.relpath(tmp_path / "kp_batch.toml"))
    places = [kp.Warehouse(folder.name), kp.Project(project_file)]
    monkeypatch.chdir(tmp_path)

    assert [each.status().warehouse for each in places] == [str(folder), str(folder)]


@pytest.mark.slow
def test_a_failed_page_is_a_warning_of_the_run(
    own: kp.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> str:
        raise OSError("no page")

    monkeypatch.setattr(build, "gather", fails)
    run = own.run(cache_size=3, max_reject_share=1, report=True)

    assert run.status == "done"
    assert [text for text in run.warnings if "the report was not written: no page" in text]


@pytest.mark.parametrize("method", ["run", "preview", "plan"])
@pytest.mark.parametrize("name", ["archive", "warehouse", "warehouse_id", "project", "preview"])
def test_no_setting_is_of_another_warehouse_archive_or_kind_of_run(
    tmp_path: Path, method: str, name: str
) -> None:
    with pytest.raises(SettingError, match=f"there is no key '{name}'"):
        getattr(kp.Warehouse(tmp_path / "w"), method)("traces.jsonl", **{name: "other"})

    assert not [*tmp_path.iterdir()]


def test_a_warehouse_may_be_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    for place in ("~/w", Path("~/w"), f"file://{tmp_path}/w"):
        assert Path(kp.Warehouse(place)) == tmp_path / "w"
    assert Path(kp.Warehouse("w")) == Path("w").absolute()


def test_a_warehouse_in_a_bucket_stays_in_it_whatever_region_is_set_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wh = kp.Warehouse("s3://bucket/warehouse")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    assert repr(wh) == "Warehouse('s3://bucket/warehouse')"


class Domain(Enum):
    CODE = "code"


@pytest.mark.slow
def test_new_traces_are_read_as_those_of_a_frame_are(wh: kp.Warehouse) -> None:
    def near(traces: Any) -> pl.DataFrame:
        return wh.similar(traces).to_polars().drop("age_s")  # it depends on when it is asked

    plain = trace(agent_id=None, confidence=0.9)
    odd = MappingProxyType(
        trace(agent_id=pd.NA, task_domain=Domain.CODE, confidence=Decimal("0.9"))
    )

    wanted, similar = wh.score(plain, at=NOON).to_polars(), near(plain)
    for same in (odd, [odd], pl.DataFrame([plain]), pd.DataFrame([plain]), pl.LazyFrame([plain])):
        assert wh.score(same, at=NOON).to_polars().equals(wanted)
        assert near(same).equals(similar)
    assert wanted["score"].null_count() == 0
    for none in ("traces.jsonl", None):
        with pytest.raises(SettingError, match="give a mapping, a list of them, or a frame"):
            wh.score(none)
