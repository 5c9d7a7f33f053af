"""Traces out of a warehouse, with their scores, read again from real files."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import click
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kp_batch as kp
from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import reasons
from kp_batch.cli import export as exporting
from kp_batch.cli import kp_batch as group
from kp_batch.config import RescoreConfig
from kp_batch.embedding.chunks import write_chunk
from kp_batch.errors import KpBatchError, SettingError
from kp_batch.exports import export as exports
from kp_batch.exports.export import ExportResult, export
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats import writer_of
from kp_batch.exports.output import check_output
from kp_batch.exports.ranking import select_distinct
from kp_batch.ingest import reread
from kp_batch.novelty import nearest, resemblance
from kp_batch.novelty.nearest import BAND
from kp_batch.novelty.resemblance import Distinct
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.schemas import EXPORTED, TRACE
from kp_batch.scoring.facts import with_facts
from kp_batch.vectors import Float32s, cosines, normalised
from kp_batch.warehouse.layout import Layout
from tests.support.damage.parquet_files import damage_page
from tests.support.make.archives import SCHEMA, retyped, step, trace, write_jsonl, write_parquet
from tests.support.make.odd_rows import BOTH, JSON_ALONE, PARQUET_ALONE
from tests.support.make.runs import config, scores
from tests.support.make.sample import write_sample
from tests.support.oracle.exports import distinct_ones
from tests.support.processes.buckets import Machine
from tests.support.processes.commands import blocked_file, check_signal, linux, working
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask

pytestmark = pytest.mark.slow

ENDINGS = ("jsonl", "parquet")
FROM = ("run_id", "encoder_id", "cache_id", "cache_group", "profile_id", "source_file")


def exported(warehouse: Path, output: Path, **choice: Any) -> ExportResult:
    conditions = ExportOptions(**{"min_score": 0.0, "include_private": True, **choice})
    return export(warehouse, conditions, output, ending=output.suffix)


def command(*words: object) -> None:
    group.main(["export", *map(str, words)], standalone_mode=False)


def write_imported(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """As an import writes them: with all columns."""
    path.parent.mkdir(exist_ok=True)
    pl.DataFrame(rows, {name: TRACE[name] for name in rows[0]}).write_parquet(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def ids(path: Path) -> list[str]:
    rows = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else lines(path)
    return [row["id"] for row in rows]


def scored(folder: Path, *archive: Path, **changes: Any) -> RescoreConfig:
    run_config = config(folder, *archive, max_reject_share=1, **changes)
    rescore_archive(run_config)
    return run_config


def numbered(number: int, words: str, **more: Any) -> dict[str, Any]:
    at = f"2026-01-{5 + number:02}T08:00:00Z"
    return trace(id=f"t{number}", created_at=at, steps=[step("thought", words)] * 2, **more)


def with_metadata(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**row, "metadata": {**row["metadata"], **more}}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder / "archive", traces=118, days=9)
    skilled = (trace(id=str(skill), source_skill=skill) for skill in ("review", None))
    write_jsonl(folder / "archive" / "skills.jsonl", skilled)
    return scored(folder, folder / "archive", threshold=0.6, cache_by="agent_id")


def test_an_export_of_all_is_scored_as_its_archive_and_keeps_the_skills(
    sample: RescoreConfig, tmp_path: Path
) -> None:
    path = tmp_path / "all.parquet"
    assert exported(sample.warehouse, path) == ExportResult(120, 120, 0, 0, {}, ())
    run_config = scored(tmp_path, path, threshold=0.6, cache_by="agent_id")
    again = scores(run_config)
    theirs = ("source_file", "recorded_score")
    assert again.drop(theirs).equals(scores(sample).drop(theirs))
    assert again["recorded_score"].equals(again["score"].alias("recorded_score"))
    columns = "sum(traces), max(mean_absolute_difference)"
    differences = ask(run_config.warehouse, f"SELECT {columns} FROM recorded_score_differences")
    assert differences.rows() == [(sum(again["score"] != 0), 0.0)]
    order = scores(sample).sort("created_at", "trace_id").get_column("trace_id")
    assert ids(path) == order.to_list()
    skills = dict(again.select("trace_id", "source_skill").iter_rows())
    assert (skills["review"], skills["None"]) == ("review", None)
    where = "source_skill = 'review'"
    assert exported(run_config.warehouse, tmp_path / "a.jsonl", where=where).chosen == 1


@pytest.mark.telling
def test_an_export_changes_nothing_in_the_warehouse(sample: RescoreConfig, tmp_path: Path) -> None:
    before = listing(sample.warehouse)
    exported(sample.warehouse, tmp_path / "a.jsonl", distinct=0.9)
    assert listing(sample.warehouse) == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_trace_has_its_score_and_where_that_is_from(
    sample: RescoreConfig, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    exported(sample.warehouse, path)
    rows = pq.read_table(path).to_pylist() if ending == "parquet" else lines(path)
    with duckdb.connect(str(sample.warehouse / "kp.duckdb"), read_only=True) as connection:
        query = (
            f"SELECT trace_id, score, {', '.join(FROM)} FROM scores ORDER BY created_at, trace_id"
        )
        expected = connection.execute(query).fetchall()
    metadata = [(row["id"], row["metadata"]) for row in rows]
    assert expected == [
        (name, has["quality_score"], *(has["quality_score_from"][column] for column in FROM))
        for name, has in metadata
    ]


def test_a_condition_may_ask_all_scores(sample: RescoreConfig, tmp_path: Path) -> None:
    where = "n_tools > (SELECT avg(n_tools) FROM scores)"
    exported(sample.warehouse, tmp_path / "a.jsonl", where=where, domain=("code",))
    n_tools, all_scores = pl.col("n_tools"), scores(sample).sort("created_at", "trace_id")
    wanted = all_scores.filter(n_tools > n_tools.mean(), task_domain="code")["trace_id"]
    assert ids(tmp_path / "a.jsonl") == wanted.to_list() != []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nonsense > 1", "nonsense"),
        ("score > 'much'", "much"),
        ("", "SELECT"),
        ("true; DROP VIEW scores", "does not work on the view scores"),
        ("true) OR (true", "does not work on the view scores"),
        ("success LIMIT 3", r"write one condition, .*; --top N takes the best"),
        ("trace_id IN (SELECT content FROM read_text('/etc/hostname'))", "file system"),
    ],
)
def test_a_wrong_condition_is_reported_in_one_line(
    sample: RescoreConfig, tmp_path: Path, where: str, message: str
) -> None:
    with pytest.raises(KpBatchError, match=message) as caught:
        exported(sample.warehouse, tmp_path / "a.jsonl", where=where)
    assert "\n" not in str(caught.value)


@pytest.mark.telling
@pytest.mark.parametrize("ending", ENDINGS)
def test_where_nothing_matches_the_file_is_there_and_empty(
    sample: RescoreConfig, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"a.{ending}"
    reach = scores(sample).filter(pl.col("score") >= 0.6).height
    command("--warehouse", sample.warehouse, "-o", path, "--domain", "none", "--distinct", 1)
    assert capsys.readouterr().out == (
        f"0 of 0 chosen traces written to {path}\n"
        "  chosen by  score >= 0.6, the threshold of the warehouse; "
        f"leaves out {120 - reach}\n"
        f"  chosen by  domain none; leaves out {reach}\n"
    )
    assert ids(path) == []
    if ending == "parquet":
        assert pq.read_schema(path).names == EXPORTED.names()


def place(folder: Path, name: str, *rows: dict[str, Any]) -> Path:
    """Write rows whose ids begin with the name of their folder in the archive."""
    path = folder / "archive" / name
    named = [{**row, "id": f"{path.parent.name}-{row['id']}"} for row in rows]
    return write_jsonl(path, named)


def of(name: str) -> str:
    """The condition for all traces of a folder in the archive."""
    return f"source_file LIKE '%/{name}/%'"


UNSHARED = [
    {name: value}
    for name in ("visibility", "privacy_level")
    for value in ["Private", " private", ["private"], {"is": "private"}, "public", "", True, "Org"]
]
ORIGINAL = with_metadata(
    trace(
        steps=[step("thought", {"a": ["é", None]}, step_id=3, mood=1), step(input={"b": 1.5})],
        extra=[1, {"x": None}],
    ),
    validated_by="me",
)
CHANGED = [numbered(2, "c"), numbered(3, "d"), numbered(4, "e")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("various") / "made"
    place(folder, "left/a.jsonl", with_metadata(numbered(0, "a"), visibility="private"))
    place(folder, "left/b.jsonl", numbered(1, "b"))
    words = ("!", "!", "one two", "two one", "!")
    place(folder, "copies/a.jsonl", *(numbered(n, text) for n, text in enumerate(words)))
    write_jsonl(folder / "archive" / "lines" / "a.jsonl", [ORIGINAL])
    last = numbered(1, "second")
    place(folder, "again/a.jsonl", numbered(1, "first"), last, {**last, "extra": 1})
    place(folder, "again/b.jsonl", numbered(2, "older"))
    place(folder, "again/c.jsonl", numbered(2, "newer"))
    place(folder, "files/stays.jsonl", numbered(0, "a"), numbered(1, "b"))
    place(folder, "files/changed.jsonl", *CHANGED)
    place(folder, "files/shorter.jsonl", numbered(5, "f"), numbered(6, "g"))
    place(folder, "files/gone.jsonl", numbered(7, "h"))
    write_parquet(
        folder / "archive" / "files" / "unread.parquet",
        [with_metadata(numbered(8, "i"), visibility="private")],
        retyped(SCHEMA, "metadata/visibility", pa.string()),
    )
    fields = [
        {"visibility": "private"},
        {"privacy_level": "private"},
        {"visibility": "org", "privacy_level": "federated"},
    ]
    shared = {"visibility": "network", "privacy_level": "aggregated"}
    others = [*UNSHARED, shared, {"visibility": "org"}, {"privacy_level": None}]
    for name, marks in (("private", fields), ("odd", others)):
        rows = (with_metadata(numbered(n, "a"), **own) for n, own in enumerate(marks))
        place(folder, f"{name}/a.jsonl", *rows)
    fixed = [
        numbered(n, "fix the parser", task_domain="medical", confidence=confidence)
        for n, confidence in ((1, 0.1), (2, 1.0), (3, 0.9), (4, 0.9))
    ]
    fixed[0]["metadata"]["success"] = False
    fixed[1]["metadata"]["visibility"] = "private"
    contract = numbered(0, "sum up a contract", objective="Read it")
    place(folder, "similar/a.jsonl", contract, *fixed)
    scored(folder, folder / "archive")
    keep(folder)
    return folder


@pytest.fixture
def various(made: Path) -> Path:
    """Traces in folders of an archive: those of a test, as a run left them."""
    restore(made)
    return made


def chosen(various: Path, name: str, output: Path, **choice: Any) -> ExportResult:
    """What an export of the traces of a folder tells, but for the conditions."""
    result = exported(various / "warehouse", output, where=of(name), **choice)
    return replace(result, conditions={})


@pytest.mark.telling
def test_an_export_of_which_nothing_is_left_fails_and_replaces_nothing(
    various: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(various / "archive" / "left")
    others = ask(various / "warehouse", "SELECT count(*) - 2 FROM scores").item()
    output = tmp_path / "best.jsonl"
    output.write_text("as it was")
    arguments = ("--warehouse", various / "warehouse", "--min-score", 0, "--where", of("left"))
    with pytest.raises(KpBatchError, match=r"^none of 2 chosen traces could be exported"):
        command(*arguments, "-o", output)
    assert output.read_text() == "as it was"
    assert capsys.readouterr().out.startswith(
        f"0 of 2 chosen traces written to {output}\n"
        f"  chosen by  {of('left')}; leaves out {others}\n"
        "  gone       2 "
    )


def test_copies_are_recognised_by_their_texts_and_other_traces_by_vectors(
    various: Path, tmp_path: Path
) -> None:
    warehouse = scored(tmp_path, various / "archive" / "copies", embedder="none").warehouse
    exported(warehouse, tmp_path / "a.jsonl", distinct=1.0)
    assert ids(tmp_path / "a.jsonl") == ["copies-t0", "copies-t2", "copies-t3"]
    where = "trace_id = 'copies-t2'"
    with pytest.raises(KpBatchError, match=r"scored 1 chosen trace; leave"):
        exported(warehouse, tmp_path / "a.jsonl", where=where, distinct=0.9)
    assert chosen(various, "copies", tmp_path / "a.jsonl", distinct=1.0).dropped_similar == 2
    assert chosen(various, "copies", tmp_path / "b.jsonl", distinct=0.5).dropped_similar == 4


@pytest.mark.telling
def test_the_command_takes_every_option(
    sample: RescoreConfig, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = ("--min-score", 0.3, "--since", "2026-01-06", "--until", "2026-01-12")
    more = ("--domain", "code", "--domain", "legal", "--where", "n_tools > 0", "--distinct", 0.9)
    more = (*more, "--success", "--per", "objective=1", "--per", "task_domain=4")
    arguments = ("--warehouse", sample.warehouse, *options, *more, "--include-private")
    command(*arguments, "-o", tmp_path / "a.jsonl", "--json")
    answer = json.loads(capfdbinary.readouterr().out)
    expected = exported(
        sample.warehouse,
        tmp_path / "b.jsonl",
        min_score=0.3,
        since="2026-01-06",
        until="2026-01-12",
        domain=("code", "legal"),
        success=True,
        where="n_tools > 0",
        distinct=0.9,
        per={"objective": 1, "task_domain": 4},
        include_private=True,
    )
    assert answer == asdict(expected) | {"not_found_files": []}
    assert (expected.private, expected.not_found, expected.dropped_by_top) == (0, {}, 0)
    assert [*expected.conditions] == [
        "score >= 0.3",
        "domain code or legal",
        "since 2026-01-06",
        "until 2026-01-12",
        "success",
        "n_tools > 0",
    ]
    assert 0 not in {expected.dropped_similar, expected.dropped_by_per, expected.exported}
    command(*arguments, "-o", "-")
    shown = capfdbinary.readouterr()
    assert shown.out == (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert b" written to stdout" in shown.err


WRONG = ["task_domain", "score=1", "task_domain=0", "task_domain=x", 5, [1]]


@pytest.mark.parametrize("per", WRONG)
def test_per_is_a_column_and_a_number(per: Any) -> None:
    message = "must be a column and a number, such as task_domain=125"
    with pytest.raises(SettingError, match=message):
        ExportOptions.checked({"per": per})


@pytest.mark.telling
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "a.csv"], "end with .jsonl or .parquet"),
        (["-o", "-", "--json"], "both write to stdout"),
        (["-o", "a.jsonl", "--distinct", "0"], "--distinct must be more than 0, got "),
        (["-o", "a.jsonl", "--distinct", "1.5"], "--distinct must be at most 1, got "),
        (["-o", "a.jsonl", "--min-score", "nan"], "--min-score must be a finite number, got "),
        (
            ["-o", "a.jsonl", "--since", "soon"],
            "--since: it must be a day, such as 2026-01-31, got 'soon'",
        ),
        (
            ["-o", "a.jsonl", "--since", "2026-01-08", "--until", "2026-01-07"],
            "since 2026-01-08 is after until 2026-01-07",
        ),
        ([], "--output"),
    ],
)
def test_wrong_usage_is_reported(sample: RescoreConfig, words: Sequence[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        command("--warehouse", sample.warehouse, *words)
    assert message in caught.value.format_message()


@pytest.mark.telling
@linux
def test_a_pipe_or_a_device_is_written_into_and_stays(
    sample: RescoreConfig, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    device = tmp_path / "device.jsonl"
    device.symlink_to("/dev/null")
    arguments = ("--warehouse", sample.warehouse, "--min-score", 0, "--include-private", "-o")
    descriptor = os.open(pipe, os.O_RDWR)  # so that a read ends where nothing was written
    with ThreadPoolExecutor() as threads, pipe.open("rb") as reader:
        read = threads.submit(lambda: [reader.readline() for _ in range(120)])
        command(*arguments, pipe)
        os.write(descriptor, b"\n" * 120)
        assert all(json.loads(line) for line in read.result())
    os.close(descriptor)
    assert pipe.is_fifo()
    command(*arguments, device)
    assert Path("/dev/null").is_char_device()
    assert {path.name for path in tmp_path.iterdir()} == {"pipe.jsonl", "device.jsonl"}


@pytest.mark.telling
def test_a_file_is_whole_or_as_it_was(sample: RescoreConfig, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("as it was")
    arguments = ("--warehouse", sample.warehouse, "-o")
    with pytest.raises(KpBatchError, match=r"none/a.jsonl cannot be written: No such file"):
        command(*arguments, tmp_path / "none" / "a.jsonl")
    folder = tmp_path / "b.jsonl"
    folder.mkdir()
    with pytest.raises(KpBatchError, match=r"b\.jsonl cannot be written: it is a folder; name"):
        command(*arguments, folder, "--where", "nonsense")
    folder.rmdir()
    with pytest.raises(KpBatchError, match="nonsense"):
        command(*arguments, path, "--where", "nonsense")
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]
    command(*arguments, path)
    assert lines(path)
    assert list(tmp_path.iterdir()) == [path]


def test_python_says_what_the_command_says_before_any_work(
    sample: RescoreConfig, tmp_path: Path
) -> None:
    (tmp_path / "b.jsonl").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    wh = kp.Warehouse(sample.warehouse)
    long = "x" * 300
    for output in ("none/a.jsonl", "b.jsonl", "file/a.jsonl", f"{long}.jsonl", "loop.jsonl"):
        path, said = tmp_path / output, list[str]()
        with pytest.raises(KpBatchError) as error:
            command("--warehouse", sample.warehouse, "--where", "nonsense", "-o", path)
        said.append(str(error.value))
        for target, deleted in ((path, None), (tmp_path / "c.jsonl", path)):
            with pytest.raises(KpBatchError) as error:
                wh.export(target, where="nonsense", ids=["x"], deleted=deleted)
            said.append(str(error.value))
        assert said == [said[0]] * 3
        assert said[0].startswith(f"{path} cannot be written: ")
        assert said[0].endswith("; name a file in an existing folder")
    assert {each.name for each in tmp_path.iterdir()} == {"b.jsonl", "file", "loop.jsonl"}
    with pytest.raises(KpBatchError, match="cannot be written: embedded null byte; name"):
        wh.export("a\0.jsonl")


@pytest.mark.process
@linux
def test_a_signal_ends_an_export_within_two_seconds_and_leaves_nothing(
    various: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, temporary = tmp_path / "output", tmp_path / "temporary"
    output.mkdir()
    temporary.mkdir()
    path = various / "archive" / "lines" / "a.jsonl"
    where = ("--min-score", 0, "--where", of("lines"))
    arguments = ("--warehouse", various / "warehouse", *where)
    monkeypatch.setenv("TMPDIR", str(temporary))
    with (
        blocked_file(path) as until_read,
        working("export", *arguments, "-o", output / "a.jsonl") as process,
    ):
        until_read()
        assert process.stderr
        assert process.stderr.readline() == "kp-batch: reading again: 1 trace\n"
        assert len(list(output.iterdir())) == 1
        check_signal(process, signal.SIGTERM, 143)
    assert not [*output.iterdir(), *temporary.iterdir()]


def hashes(path: Path) -> dict[str, str]:
    """The content of each accepted row."""
    rows = pl.concat([*read_rows(discover([str(path)])[0])])
    accepted = with_facts(rows, reasons()).filter(pl.col("reasons").list.len() == 0)
    return dict(accepted.select("trace_id", "content_hash").iter_rows())


def test_rows_of_every_shape_come_out_with_the_same_content(tmp_path: Path) -> None:
    odd = [row for row in (*BOTH, *JSON_ALONE) if isinstance(row, dict)]
    named = [{**row, "id": f"odd-{number}"} for number, row in enumerate(odd)]
    archive = tmp_path / "archive"
    files = [write_jsonl(archive / "a.jsonl", named)]
    both = [{**row, "id": f"both-{number}"} for number, row in enumerate(BOTH)]
    files.append(write_parquet(archive / "b.parquet", both))
    for number, (path, (kind, value)) in enumerate(PARQUET_ALONE.items()):
        row = trace(**{"id": f"alone-{number}", path.rpartition("/")[2]: value})
        schema = retyped(SCHEMA, path, kind)
        files.append(write_parquet(archive / f"c{number}.parquet", [row], schema))
    at = pa.array([1_767_600_000_000_000_999], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    finer = retyped(SCHEMA, "metadata/created_at", at.type)
    files.append(write_parquet(archive / "c.parquet", [trace(id="c", created_at=at[0])], finer))
    binary = retyped(SCHEMA, "task/objective", pa.binary())
    files.append(write_parquet(archive / "d.parquet", [trace(objective="é".encode())], binary))
    decimal = retyped(SCHEMA, "outcome/confidence", pa.decimal128(38, 18))
    exact = trace(id="e", confidence=Decimal("0.123456789012345678"))
    files.append(write_parquet(archive / "e.parquet", [exact], decimal))
    views = retyped(SCHEMA, "task/objective", pa.string_view())
    files.append(write_parquet(archive / "f.parquet", [trace(id="f")], views))
    surrogates = json.dumps(trace(id="h")).encode().replace(b"Fix", b"\xed\xa0\x80")
    lists = f"{'[' * 700}{']' * 700}".encode()
    deep = json.dumps(trace(id="g", extra="lists")).encode().replace(b'"lists"', lists)
    files.append(write_jsonl(archive / "g.jsonl", [surrogates, deep, trace(id="i")]))
    warehouse = scored(tmp_path, archive, embedder="none").warehouse
    wanted = {name: content for path in files for name, content in hashes(path).items()}
    for ending in ENDINGS:
        result = exported(warehouse, tmp_path / f"all.{ending}")
        assert result.exported == result.chosen == len(wanted) > 80
        assert hashes(tmp_path / f"all.{ending}") == wanted


@pytest.mark.telling
def test_lines_keep_all_that_their_file_has_and_columns_what_a_trace_has(
    various: Path, tmp_path: Path
) -> None:
    chosen(various, "lines", tmp_path / "a.jsonl")
    chosen(various, "lines", tmp_path / "a.parquet")
    [line], [row] = lines(tmp_path / "a.jsonl"), pq.read_table(tmp_path / "a.parquet").to_pylist()
    added = {name: line["metadata"].pop(name) for name in ("quality_score", "quality_score_from")}
    assert line == ORIGINAL
    path = various / "archive" / "lines" / "a.jsonl"
    assert added["quality_score_from"]["source_file"] == str(path)
    assert pl.read_parquet(tmp_path / "a.parquet").schema == EXPORTED
    assert row["steps"][0]["content"] == '{"a": ["é", null]}'
    assert row["steps"][1]["input"] == '{"b": 1.5}'
    assert row["steps"][0]["step_id"] == 3
    assert row["metadata"]["quality_score"] == added["quality_score"]


@pytest.mark.telling
@pytest.mark.parametrize("form", [write_jsonl, write_imported])
def test_an_archive_that_gains_what_messages_need_is_not_scored_again_and_exports_it(
    tmp_path: Path, form: Callable[[Path, Sequence[dict[str, Any]]], object]
) -> None:
    rows = [trace(id=f"kp:{name}", steps=[step("thought", "so")]) for name in "ab"]
    path = tmp_path / "archive" / ("a.jsonl" if form is write_jsonl else "a.parquet")
    form(path, rows)
    run = config(tmp_path, path.parent)
    rescore_archive(run)
    for row in rows:
        row["task"] |= {"system": "be good", "tools": "[]"}
        own = {"role": "assistant", "call_id": "c1", "reasoning_chars": 1}
        row["steps"][0] |= own
    form(path, rows)
    counts = rescore_archive(run).counts
    assert (counts.accepted, counts.rescored) == (2, 0)
    exported(run.warehouse, tmp_path / "out.parquet")
    for row in pl.read_parquet(tmp_path / "out.parquet").to_dicts():
        assert (row["task"]["system"], row["task"]["tools"]) == ("be good", "[]")
        assert {name: row["steps"][0][name] for name in own} == own


def test_of_rows_with_one_id_the_one_that_counts_is_exported(various: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert chosen(various, "again", path) == ExportResult(2, 2, 0, 0, {}, ())
    contents = [line["steps"][0]["content"] for line in lines(path)]
    assert contents == ["second", "newer"]
    assert lines(path)[0]["extra"] == 1


@pytest.mark.telling
def test_what_is_not_there_any_more_is_left_out_and_named(various: Path, tmp_path: Path) -> None:
    other = numbered(3, "other")
    changed = place(various, "files/changed.jsonl", CHANGED[0], other, *CHANGED[1:])
    shorter = place(various, "files/shorter.jsonl", numbered(5, "f", agent_id="other"))
    gone, unread = (
        various / "archive" / "files" / name for name in ("gone.jsonl", "unread.parquet")
    )
    gone.unlink()
    damage_page(unread, 0, "metadata.visibility")  # which no run reads
    result = chosen(various, "files", tmp_path / "a.jsonl")
    assert ids(tmp_path / "a.jsonl") == [f"files-t{number}" for number in (0, 1, 2, 5)]
    files = {str(file) for file in (changed, shorter, gone, unread)}
    assert result.not_found == {"changed": 3, "gone": 1, "unreadable": 1}
    assert (result.chosen, result.exported, set(result.not_found_files)) == (9, 4, files)


@pytest.mark.telling
def test_private_traces_are_left_out_unless_asked_for(various: Path, tmp_path: Path) -> None:
    assert chosen(various, "private", tmp_path / "a.jsonl", include_private=False).private == 2
    assert ids(tmp_path / "a.jsonl") == ["private-t2"]
    assert chosen(various, "private", tmp_path / "b.parquet").private == 0
    rows = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert [row["metadata"]["visibility"] for row in rows] == ["private", None, "org"]


@pytest.mark.telling
def test_what_is_not_marked_as_shared_is_private(various: Path, tmp_path: Path) -> None:
    assert chosen(various, "odd", tmp_path / "a.jsonl", include_private=False).private == len(
        UNSHARED
    )
    assert ids(tmp_path / "a.jsonl") == ["odd-t16", "odd-t17", "odd-t18"]


def test_an_export_during_which_traces_are_forgotten_fails_and_they_stay_away(
    various: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their file has them still."""
    warehouse, (form, writer) = various / "warehouse", writer_of("traces", ".jsonl")

    def forget_and_write(batches: Iterable[pa.RecordBatch], file: IO[bytes]) -> None:
        forget(warehouse, ["files-t0"])
        writer.write(batches, file)

    late = replace(writer, write=forget_and_write)
    monkeypatch.setattr(exports, "writer_of", lambda *_: (form, late))
    where = "source_file LIKE '%/stays.jsonl'"
    with pytest.raises(KpBatchError, match="forgotten during the export; export again"):
        exported(warehouse, tmp_path / "a.jsonl", where=where)
    monkeypatch.undo()
    exported(warehouse, tmp_path / "b.jsonl", where=where)
    assert b"files-t0" in (various / "archive" / "files" / "stays.jsonl").read_bytes()
    assert ids(tmp_path / "b.jsonl") == ["files-t1"]


def test_an_export_stays_out_of_its_archive_and_its_warehouse(tmp_path: Path) -> None:
    archive, linked = tmp_path / "archive", tmp_path / "linked"
    path = write_jsonl(archive / "a.jsonl", [numbered(0, "a")])
    elsewhere = write_jsonl(tmp_path / "elsewhere" / "b.jsonl", [numbered(1, "b")])
    (archive / "b.jsonl").symlink_to(elsewhere)
    write_jsonl(archive / "d" / "d.jsonl", [numbered(3, "d")])
    earlier = write_jsonl(tmp_path / "earlier" / "c.jsonl", [numbered(2, "c")])
    warehouse = tmp_path / "warehouse"
    linked.symlink_to(archive)
    (tmp_path / "tables").symlink_to(warehouse)
    (tmp_path / "elsewhere" / "d").symlink_to(archive / "d")

    def refused(name: str, where: str) -> None:
        with pytest.raises(KpBatchError, match=where) as caught:
            check_output(warehouse, tmp_path / name)
        assert str(caught.value).endswith("; choose another folder")

    inside = ("archive/a.jsonl", "archive/new.jsonl", "linked/b.jsonl", "linked/d/new.jsonl")
    for names in (
        [archive, earlier],
        [tmp_path / "earlier" / "*", archive / "*.jsonl", archive / "d*"],
    ):
        scored(tmp_path, *names)
        for name in inside:
            refused(name, "in the archive")
    scored(tmp_path, path)
    refused("earlier/c.jsonl", "a file of the archive")
    for name in ("warehouse/a.jsonl", "tables/scores/a.parquet"):
        refused(name, "in the warehouse")
    before = listing(archive)
    with pytest.raises(KpBatchError, match=r"a\.jsonl is in the archive"):
        command("--warehouse", warehouse, "-o", tmp_path / "elsewhere" / "d" / ".." / "a.jsonl")
    assert listing(archive) == before
    command("--warehouse", warehouse, "--min-score", 0, "-o", archive / "new.jsonl")
    assert "t0" in ids(archive / "new.jsonl")


def test_of_similar_traces_the_best_public_one_stays(various: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with_copies = chosen(various, "similar", path, distinct=1.0, include_private=False)
    assert with_copies == ExportResult(5, 2, 1, 2, {}, ())
    assert ids(path) == ["similar-t0", "similar-t3"]
    chosen(various, "similar", path, distinct=1.0)
    assert ids(path) == ["similar-t0", "similar-t2"]


@pytest.mark.telling
def test_vectors_of_different_encoders_are_never_compared(tmp_path: Path) -> None:
    rows = [("a", "one", 0.9), ("b", "one", 0.8), ("c", "two", 0.7), ("d", "two", 0.6)]
    read = pl.DataFrame(rows, schema=["trace_id", "encoder_id", "score"], orient="row")
    text_hash = pl.col("trace_id").repeat_by(64).list.join("")
    read = read.with_columns(text_hash=text_hash, created_at=0)
    for encoder in ("one", "two"):
        folder = Layout(tmp_path).vectors(encoder)
        write_chunk(folder, read.get_column("text_hash"), np.ones((4, 1), dtype=np.float32))
    with duckdb.connect() as connection:
        connection.register("read", read.head(3).to_arrow())
        select_distinct(tmp_path, connection, tmp_path / "places.parquet", 0.5)
        assert connection.execute("FROM distinct_ids ORDER BY ALL").fetchall() == [("a",), ("c",)]


@settings(max_examples=15)
@given(st.data())
def test_law_the_distinct_ones_are_those_of_a_plain_search(data: st.DataObject) -> None:
    """Where texts repeat and scores are equal, too, and with zero vectors."""
    drawn = st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 2), st.integers(0, 1))
    names = ("text_hash", "score", "created_at", "encoder_id")
    rows = [
        {"trace_id": f"t{n}", **dict(zip(names, values, strict=True))}
        for n, values in enumerate(data.draw(st.lists(drawn, min_size=1, max_size=25)))
    ]
    for row in rows:
        row |= {"text_hash": f"{row['text_hash']:064}", "encoder_id": f"e{row['encoder_id']}"}
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    hashes = [f"{n:064}" for n in range(8)]
    vectors: dict[tuple[str, str], Float32s] = {}
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        for encoder in ("e0", "e1"):
            made = normalised(rng.standard_normal((8, 3)) * [[0], *[[1]] * 7])
            write_chunk(Layout(Path(folder)).vectors(encoder), pl.Series(hashes), made)
            vectors |= {(encoder, text): vector for text, vector in zip(hashes, made, strict=True)}
        bound = data.draw(st.sampled_from([0.05, 0.5, 0.9, 0.99999, 1.0]))
        connection.register("read", pl.DataFrame(rows).to_arrow())
        select_distinct(Path(folder), connection, Path(folder) / "places.parquet", bound)
        selected = connection.execute("FROM distinct_ids ORDER BY ALL").fetchall()
    for row in rows:
        row["vector"] = vectors[row["encoder_id"], row["text_hash"]]
    of_encoders = ([row for row in rows if row["encoder_id"] == name] for name in ("e0", "e1"))
    expected = [row for own in of_encoders for row in distinct_ones(own, bound)]
    assert selected == sorted((row["trace_id"],) for row in expected)


def naive(vectors: Float32s, bound: float) -> Iterator[bool]:
    taken: list[Float32s] = []
    for vector in vectors:
        kept = np.array(taken, dtype=np.float32).reshape(-1, len(vector))
        similar = cosines(np.broadcast_to(vector, kept.shape), kept) >= bound
        equal = (kept == vector).all(axis=1) & vector.any()
        is_taken = not (similar | equal).any()
        yield is_taken
        if is_taken:
            taken.append(vector)


@pytest.mark.telling
@settings(max_examples=150)
@given(st.data())
def test_law_what_is_taken_is_what_a_plain_search_takes(data: st.DataObject) -> None:
    """At the bound itself, too, and whatever the blocks."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    count, kinds = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 6))
    centres = rng.standard_normal((kinds, 24))
    spread = data.draw(st.sampled_from([0.0, 1e-7, 1e-4, 0.3]))
    noise = spread * rng.standard_normal((count, 24))
    vectors = normalised(centres[rng.integers(kinds, size=count)] + noise)
    vectors[rng.random(count) < 0.1] = 0
    left, right = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    exact = float(cosines(vectors[left : left + 1], vectors[right : right + 1])[0])
    band = float(BAND)
    beside = [np.nextafter(exact, 2), np.nextafter(exact, 0), exact + band, exact - band]
    nearby = [exact, *beside, 0.9, 1.0]
    bound = float(np.clip(data.draw(st.sampled_from(nearby)), 1e-3, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resemblance, "BLOCK_ROWS", data.draw(st.integers(1, 50)))
        patch.setattr(resemblance, "TILE_ROWS", data.draw(st.integers(1, 9)))
        patch.setattr(nearest, "BLOCK_COLUMNS", data.draw(st.integers(1, 9)))
        patch.setattr(nearest, "BATCH_PAIRS", data.draw(st.integers(1, 9)))
        chosen, cut = Distinct(bound), data.draw(st.integers(0, count))
        taken = [*chosen.take(vectors[:cut]), *chosen.take(vectors[cut:])]
    assert taken == list(naive(vectors, bound))


@pytest.mark.telling
def test_what_reaches_the_bound_is_alike_and_so_is_a_copy() -> None:
    rng = np.random.default_rng(5)
    pairs = [normalised(rng.standard_normal((2, 24))) for _ in range(20)]
    for pair in pairs:
        exact = abs(float(cosines(pair[:1], pair[1:])[0]))
        pair[1] *= np.sign(pair[0] @ pair[1])
        assert Distinct(exact).take(pair).tolist() == [True, False]
        assert Distinct(float(np.nextafter(exact, 2))).take(pair).tolist() == [True, True]
        assert Distinct(1.0).take(pair[[0, 0]]).tolist() == [True, False]
    assert Distinct(1.0).take(np.zeros((2, 24), dtype=np.float32)).tolist() == [True, True]


@pytest.mark.telling
def test_at_the_edge_of_the_band_no_pair_is_passed_over() -> None:
    first = np.array([1, 0], dtype=np.float32)
    for bound in np.linspace(0.1, 0.9, 99, dtype=np.float32):
        for cosine in (bound + BAND, np.nextafter(bound + BAND, np.float32(1))):
            second = np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)
            assert Distinct(float(bound)).take(np.stack([first, second])).tolist() == [True, False]


@pytest.mark.parametrize("ending", ENDINGS)
def test_batches_change_nothing(
    sample: RescoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    exported(sample.warehouse, tmp_path / f"a.{ending}")
    monkeypatch.setattr(reread, "BATCH_ROWS", 7)
    monkeypatch.setattr(reread, "BATCH_CHARS", 5_000)
    monkeypatch.setattr("kp_batch.archive.reading.BATCH_ROWS", 4)
    exported(sample.warehouse, tmp_path / f"b.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


@pytest.mark.process
def test_a_warehouse_in_a_bucket_is_exported_from_another_machine(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(
        tmp_path / "archive" / "a.jsonl", [numbered(0, "a"), numbered(1, "a"), numbered(2, "z")]
    )
    warehouse = f"{bucket}/warehouse"
    Machine(tmp_path / "one", warehouse).run(tmp_path / "archive")
    with Machine(tmp_path / "two", warehouse).here():
        arguments = ("--warehouse", warehouse, "--min-score", 0, "--distinct", 1)
        command(*arguments, "-o", tmp_path / "a.jsonl")
    assert capsys.readouterr().out.splitlines()[1] == "  similar    1 trace"
    assert len(ids(tmp_path / "a.jsonl")) == 2


@pytest.mark.telling
def test_a_terminal_obeys_nothing_in_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnTerminal(StringIO):
        def isatty(self) -> bool:
            return True

    out = OnTerminal()
    monkeypatch.setattr("sys.stdout", out)
    with exporting.output_file("-") as file:
        file.write_text('{"a": "\x9b31m\x7f"}\n', "utf-8")
    assert out.getvalue() == '{"a": "\\x9b31m\\x7f"}\n'
