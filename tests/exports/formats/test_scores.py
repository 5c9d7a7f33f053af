"""Scores in the forms of other systems: which traces have one there, and what stands in it."""

import csv
from collections import Counter
from collections.abc import Hashable, Mapping
from hashlib import sha1
from pathlib import Path
from uuid import NAMESPACE_URL, UUID

import click
import polars as pl
import pytest

from kp_batch.cli.export import export as export_command
from kp_batch.config import RescoreConfig
from kp_batch.conversion.formats import FORMATS as IMPORTS
from kp_batch.errors import KpBatchError
from kp_batch.exports.export import export_to
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats import FORMATS
from kp_batch.imports.importing import import_traces
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.formats import agent_runs, inspect
from tests.support.formats.kits import AT, KITS
from tests.support.imports.drafting import ALWAYS, always
from tests.support.imports.importing import imported, write_json
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.queries import ask_rows
from tests.support.read.sent_scores import ORIGIN, SYSTEMS, Double, Row, sent

pytestmark = pytest.mark.telling

UUID_1 = "b3d1f0c2-9a64-4a57-8c1e-2f6b7d5e4a31"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
OF_OTEL = {"langfuse", "phoenix", "otel"}
# What the column native of a trace has, and the systems that its score can be sent to.
NATIVE: Mapping[str, tuple[object, set[str]]] = {
    f"kp:trace:{TRACE}": ({"system": "otlp", "root": SPAN}, OF_OTEL),
    "kp:trace:" + "0" * 32: ({"system": "otlp", "root": SPAN}, {"langfuse", "phoenix"}),
    f"kp:trace:{TRACE.upper()}": ({"system": "otlp", "root": SPAN}, {"langfuse", "phoenix"}),
    "kp:trace:" + "1" * 32: ({"system": "otlp", "root": "0" * 16}, {"langfuse", "phoenix"}),
    "kp:trace:" + "2" * 32: ({"system": "otlp", "root": None}, {"langfuse"}),
    "kp:trace:" + "3" * 32: ({"system": "otlp", "root": f"{SPAN}\n"}, {"langfuse"}),
    "kp:trace:" + "4" * 32: ({"system": "phoenix", "root": SPAN}, {"phoenix", "otel"}),
    "kp:trace:" + "5" * 32: ({"system": "langfuse", "root": SPAN}, {"langfuse", "otel"}),
    "kp:trace:" + "6" * 32: ({"system": "mlflow", "root": SPAN}, {"otel"}),
    'kp:trace:any, "text"\nis, =é': ({"system": "langfuse", "root": "root"}, {"langfuse"}),
    f"kp:trace:{UUID_1}": ({"system": "langsmith", "root": UUID_1}, {"langsmith"}),
    f"kp:trace:{UUID_1.upper()}": ({"system": "langsmith", "root": UUID_1}, {"langsmith"}),
    "kp:trace:run": ({"system": "langsmith", "root": UUID_1}, set()),
    f"kp:trace:{UUID_1[:-1]}2": ({"system": "langsmith", "root": "root"}, set()),
    f"kp:trace:{UUID_1[:-1]}3": ({"system": "langsmith"}, set()),
    f"kp:trace:{UUID_1[:-1]}4": ({"system": "codex", "root": UUID_1}, set()),
    "kp:trace:s": ({"system": "inspect", "log": "l", "sample": "7", "epoch": 0}, {"inspect"}),
    "kp:trace:t": ({"system": "inspect", "log": "l", "sample": "7"}, set()),
    "kp:trace:u": ({"system": "inspect", "log": "l", "sample": "7", "epoch": True}, set()),
    "kp:trace:v": ({"system": "inspect", "log": None, "sample": "7", "epoch": 1}, set()),
    "kp:trace:w": ({"system": "inspect", "log": "l", "sample": 7, "epoch": 1}, set()),
    "kp:trace:own": (None, {"langfuse"}),
    "another": ("text", {"langfuse"}),
    "kp:trace:kp:trace:twice": ([1], {"langfuse"}),
}
LACKING = {
    "langsmith": "without the UUID of a run",
    "phoenix": "without the id of a root span",
    "inspect": "without log, sample and epoch",
    "otel": "without OpenTelemetry ids",
}
WEIGHTS = """
[profiles.code]
complexity = 0.1
novelty = 0.2
tool_diversity = 0.3
outcome_confidence = 0.4
"""


def write_archive(folder: Path) -> None:
    rows = [
        trace(
            id=name,
            created_at=f"2026-01-{3 + number:02}T08:00:00.123456Z",
            steps=[step(content="so " * (1 + 7 * number))] * (1 + number % 4),
            **({"native": native} if native else {}),
        )
        for number, (name, (native, _)) in enumerate(NATIVE.items())
    ]
    write_jsonl(folder / "a.jsonl", rows)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    folder = tmp_path_factory.mktemp("scores")
    write_archive(folder / "archive")
    run = config(folder, folder / "archive", threshold=0.99)
    assert rescore_archive(run).counts.accepted == len(NATIVE)
    return run


def expected_id(trace_id: str) -> str:
    """By RFC 9562, of the trace's id and the score's name as a URL."""
    digest = sha1(NAMESPACE_URL.bytes + f"{trace_id}#kp_batch.score".encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))


@pytest.mark.parametrize("form", SYSTEMS)
def test_each_trace_with_the_ids_of_a_system_has_a_score_that_it_can_read(
    scored: RescoreConfig, tmp_path: Path, form: str
) -> None:
    """All of them, and not only those at the threshold, which none reaches."""
    system = SYSTEMS[form]
    result, lines = sent(scored, form, tmp_path)
    columns = "trace_id, score, encoder_id, cache_id, profile_id, run_id, epoch_us(created_at)"
    rows = ask_rows(scored.warehouse, f"SELECT {columns} FROM scores ORDER BY created_at")
    rows = [row for row in rows if form in NATIVE[row[0]][1]]
    assert result.exported == len(rows) == len(lines) > 0
    for line, (name, score, *origin, time) in zip(lines, rows, strict=True):
        read = system.read(line)
        ids = (system.id(read), FORMATS[form].score_id and FORMATS[form].score_id(name))
        if form != "inspect":
            assert ids == (expected_id(name), expected_id(name))
        assert [system.origin(read)[x] for x in ORIGIN[1:]] == origin
        assert system.score(read) == (round(score, 4) if form == "langsmith" else score)
        assert read.get("time", time * 1_000) == time * 1_000
        day = f"2026-01-{3 + [*NATIVE].index(name):02}T08:00:00.123456Z"
        assert day == read.get("timestamp", read.get("created_at", day))


@pytest.mark.parametrize("form", SYSTEMS)
def test_the_ids_are_those_of_the_system(scored: RescoreConfig, tmp_path: Path, form: str) -> None:
    _, lines = sent(scored, form, tmp_path)
    read = [SYSTEMS[form].read(line) for line in lines]
    names = [name.removeprefix("kp:trace:") for name in NATIVE if form in NATIVE[name][1]]
    if form == "langfuse":
        assert [line["traceId"] for line in read] == names
    elif form == "langsmith":
        assert [line["trace_id"] for line in read] == names
        assert {line["run_id"] for line in read} == {UUID_1}
    elif form == "phoenix":
        assert {line["span_id"] for line in read} == {SPAN, "0" * 16}
    elif form == "otel":
        assert [line["trace"] for line in read] == names
        assert {(line["span"], line["event"]) for line in read} == {
            (SPAN, "gen_ai.evaluation.result")
        }
    else:
        assert [(x["log"], x["sample_id"], x["epoch"]) for x in read] == [("l", "7", 0)]


@pytest.mark.parametrize("form", SYSTEMS)
def test_traces_that_lack_ids_and_those_of_other_systems_are_counted(
    scored: RescoreConfig, tmp_path: Path, form: str
) -> None:
    result, _ = sent(scored, form, tmp_path)
    of = {"langfuse": ("langfuse", "otlp"), "phoenix": ("phoenix", "otlp")}.get(form, (form,))
    reasons = Counter[str]()
    for native, forms in NATIVE.values():
        system = native["system"] if isinstance(native, dict) else None
        if form not in forms:
            is_elsewhere = form != "otel" and system and system not in of
            reasons["from another system" if is_elsewhere else LACKING[form]] += 1
    assert result.not_written == reasons
    assert result.chosen == len(NATIVE) == result.exported + sum(reasons.values())


def test_what_is_uploaded_again_replaces_the_scores_that_changed(tmp_path: Path) -> None:
    write_archive(tmp_path / "archive")
    run = config(tmp_path, tmp_path / "archive")
    rescore_archive(run)
    doubles = {form: Double(system) for form, system in SYSTEMS.items()}

    def upload() -> dict[str, dict[Hashable, Row]]:
        for form, double in doubles.items():
            double.upload(sent(run, form, tmp_path)[1])
        return {form: dict(double.kept) for form, double in doubles.items()}

    first = upload()
    assert upload() == first
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(WEIGHTS, "utf-8")
    rescore_archive(config(tmp_path, tmp_path / "archive", profiles=profiles))
    second = upload()
    for form, kept in first.items():
        assert len(kept) == sum(form in forms for _, forms in NATIVE.values())
        assert second[form].keys() == kept.keys()
        assert all(second[form][key] != kept[key] for key in kept)


def test_a_table_has_the_scores_of_all_traces(scored: RescoreConfig, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    result = export_to(scored.warehouse, ExportOptions(format="csv"), path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert result.exported == len(rows) == len(NATIVE)
    query = "SELECT trace_id, score, run_id FROM scores ORDER BY created_at"
    assert ask_rows(scored.warehouse, query) == [
        (row["trace_id"], float(row["score"]), row["run_id"]) for row in rows
    ]
    for row, (name, (native, _)) in zip(rows, NATIVE.items(), strict=True):
        ids: Mapping[str, object] = native if isinstance(native, dict) else {}
        assert row["native_id"] == name.removeprefix("kp:trace:")
        assert (row["system"], row["root"]) == (ids.get("system", ""), ids.get("root") or "")
        assert len(row["scoring_id"]) == 16
    assert rows[0]["created_at"] == "2026-01-03T08:00:00.123456Z"


def source_of(folder: Path, form: str) -> tuple[str, Path]:
    """The format of an import, and a file with a trace that the export's system has."""
    if form == "inspect":
        return form, write_json(folder / "log.json", inspect.log(inspect.sample()))
    if form == "langsmith":
        kit = KITS[form]
        return form, kit.write(folder, [kit.make(UUID_1, AT, 1.0)])[0]
    system = {"otel": "otlp"}.get(form, form)
    agent_runs.SYSTEMS[system](folder / "spans", agent_runs.RUNS["a model, a tool, a model"][0])
    return system, next((folder / "spans").iterdir())


@pytest.mark.parametrize("form", SYSTEMS)
def test_scores_go_to_ids_of_the_file_that_was_imported(tmp_path: Path, form: str) -> None:
    name, source = source_of(tmp_path, form)
    import_traces(IMPORTS[name], [str(source)], tmp_path / "archive", ALWAYS)
    run = config(tmp_path, tmp_path / "archive")
    rescore_archive(run)
    result, [line] = sent(run, form, tmp_path)
    read = SYSTEMS[form].read(line)
    names = ("traceId", "run_id", "trace_id", "span_id", "trace", "span", "log", "sample_id")
    ids = [str(read[x]) for x in names if x in read]
    assert result.exported == 1
    assert ids
    is_table = source.suffix == ".parquet"
    content = pl.read_parquet(source).write_json() if is_table else source.read_text("utf-8")
    assert all(id_ in content for id_ in ids)


def test_events_of_scores_are_read_by_an_import_of_opentelemetry(tmp_path: Path) -> None:
    agent_runs.otlp(tmp_path / "spans", agent_runs.RUNS["a model, a tool, a model"][0])
    spans = str(tmp_path / "spans" / "spans.jsonl")
    import_traces(IMPORTS["otlp"], [spans], tmp_path / "archive", ALWAYS)
    run = config(tmp_path, tmp_path / "archive")
    rescore_archive(run)
    _, [line] = sent(run, "otel", tmp_path)
    score = SYSTEMS["otel"].read(line)["score"]
    rules = always(confidence={"score": "kp_batch.score", "min": 0, "max": 1})
    both = [spans, str(tmp_path / "otel.jsonl")]
    import_traces(IMPORTS["otlp"], both, tmp_path / "again", rules)
    [row] = imported(tmp_path / "again").values()
    assert row["outcome"]["confidence"] == score


def command(run: RescoreConfig, *words: object) -> None:
    arguments = map(str, ["--warehouse", run.warehouse, *words])
    export_command.main([*arguments], standalone_mode=False)


def test_a_format_has_its_own_files_and_the_first_is_on_stdout(
    scored: RescoreConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        click.BadParameter, match=r"^the file must end with .csv, or be - for stdout: got "
    ):
        command(scored, "--format", "csv", "-o", tmp_path / "a.jsonl")
    with pytest.raises(
        click.BadParameter, match=r"^the file must end with .jsonl, or be - for stdout: got "
    ):
        command(scored, "--format", "otel", "-o", tmp_path / "a.parquet")
    where = ("--where", "trace_id = 'kp:trace:own'")
    command(scored, "--format", "csv", "-o", "-", *where)
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("trace_id,system,native_id,")
    assert row.startswith("kp:trace:own,,own,,2026-01-")
    with pytest.raises(KpBatchError, match=r"1 trace without the UUID of a run"):
        command(scored, "--format", "langsmith", "-o", tmp_path / "a.jsonl", *where)
