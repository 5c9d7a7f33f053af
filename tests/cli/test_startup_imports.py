"""What a command imports, and what else its start costs: it may take longer than all its work."""

import subprocess
import sys
from pathlib import Path

import pytest

from kp_batch.pipeline.rescore import rescore_and_report
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config

pytestmark = pytest.mark.process

AGAIN = """
import sys
from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_and_report
summary = rescore_and_report(RescoreConfig(archive=[sys.argv[1]], warehouse=sys.argv[2]))
assert summary.run_id is None
"""
FIRST = """
import sys
from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_and_report
settings = {"archive": [sys.argv[1]], "warehouse": sys.argv[2], "embedder": "hashing"}
assert rescore_and_report(RescoreConfig(**settings)).counts.embedded == 1
"""
CHECKED = """
import sys
from kp_batch.cli import maintain, query, run
import click
from kp_batch.cli.options import config_of
with click.Context(click.Command("run")):
    config_of({"archive": sys.argv[1:2], "warehouse": sys.argv[2]})
"""
COMMANDS = """
import sys
from importlib import import_module
import kp_batch.cli
for name in kp_batch.cli._MODULES:
    import_module(f"kp_batch.cli.{name}")
"""
ASKED = """
import io, sys
from pathlib import Path
from kp_batch.cli import maintain, query, run
from kp_batch.warehouse.answer_formats import write_answer
from kp_batch.warehouse.reader import connect
with connect(Path(sys.argv[2])) as connection:
    write_answer(connection, "FROM scores", "csv", io.StringIO(), 80)
"""
WAITED = """
import os, sys, time
from contextlib import suppress
from kp_batch.cli import main
sys.argv[1:] = ["--version"]
with suppress(SystemExit):
    main()
import numpy
time.sleep(0.1)
others = max(len(os.sched_getaffinity(0)) - 1, 1)
print("waited", "long" if (time.process_time() - time.thread_time()) / others > 0.01 else "little")
"""
LISTED = """
import sys
from pathlib import Path
from kp_batch.operations.kept_runs import available_runs
assert available_runs(Path(sys.argv[2])).restorable
"""
WATCHED = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from kp_batch.cli import maintain, query, run
from kp_batch.operations.status import check_age, check_trace_age, status_of, status_text
now = datetime.now(UTC)
found = status_of(Path(sys.argv[2]), now)
assert status_text(found, now)
check_age(found, timedelta(hours=26))
check_trace_age(found, timedelta(days=9999))
"""
MODELS = {"torch", "sklearn", "sentence_transformers", "transformers", "huggingface_hub"}
PAGES = {"jinja2", "vl_convert"}
REMOTE = {"fsspec", "obstore", "asyncio", "prefect"}
FRAMES = {"polars", "pyarrow", "numpy", "deltalake"}


def imported(code: str, *args: Path) -> set[str]:
    """The modules that a new process has imported once it has carried out some code."""
    return set(printed(f"{code}\nprint(*sys.modules, sep='\\n')", *args).split())


def printed(code: str, *args: Path) -> str:
    """What a new process prints when it carries out some code."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An archive and its warehouse, whose vectors are a model's."""
    folder = tmp_path_factory.mktemp("scored")
    archive = folder / "archive"
    write_jsonl(archive / "a.jsonl", [trace(id="a"), trace(id="b")])
    settings = config(folder, archive, embedder="minilm")
    with pytest.MonkeyPatch.context() as patch:  # a file that was just written is read once more
        patch.setattr("kp_batch.ingest.scan.MTIME_MARGIN_NS", -(10**18))
        rescore_and_report(settings)
    return archive, settings.warehouse


@pytest.mark.telling
def test_a_run_over_jsonl_that_embeds_without_a_model_imports_none_and_no_reader_of_parquet(
    tmp_path: Path,
) -> None:
    archive = write_jsonl(tmp_path / "a.jsonl", [trace()])
    modules = imported(FIRST, archive, tmp_path / "warehouse")
    assert not modules & MODELS
    assert not modules & {"kp_batch.archive.file_formats.parquet", "pyarrow.compute"}


@pytest.mark.telling
@pytest.mark.model
def test_a_run_with_nothing_to_do_imports_no_model_no_report_no_writer_and_no_file_system(
    scored: tuple[Path, Path],
) -> None:
    modules = imported(AGAIN, *scored)
    assert "duckdb" in modules
    writers = {"pyarrow", "deltalake", "kp_batch.report.build", "kp_batch.operations.preview"}
    assert not modules & (MODELS | PAGES | REMOTE | {"tqdm"} | writers)


@pytest.mark.telling
def test_the_command_line_checks_settings_without_frames(tmp_path: Path) -> None:
    modules = imported(CHECKED, tmp_path / "archive", tmp_path / "warehouse")
    assert "pydantic" in modules
    assert not modules & (MODELS | PAGES | REMOTE | FRAMES | {"duckdb"})


@pytest.mark.telling
@pytest.mark.model
def test_a_question_is_answered_without_frames_and_settings(scored: tuple[Path, Path]) -> None:
    modules = imported(ASKED, *scored)
    assert not modules & (MODELS | PAGES | REMOTE | FRAMES | {"pydantic"})


@pytest.mark.telling
@pytest.mark.model
def test_the_runs_are_listed_without_settings_and_what_works_on_an_archive(
    scored: tuple[Path, Path],
) -> None:
    modules = imported(LISTED, *scored)
    works = {"kp_batch.ingest", "kp_batch.planning", "kp_batch.pipeline", "pydantic"}
    assert not modules & (MODELS | PAGES | REMOTE | works)


@pytest.mark.telling
@pytest.mark.model
def test_a_monitor_imports_neither_frames_nor_settings(scored: tuple[Path, Path]) -> None:
    modules = imported(WATCHED, *scored)
    assert "kp_batch.operations.status" in modules
    assert not modules & (MODELS | PAGES | REMOTE | FRAMES | {"pydantic"})


@pytest.mark.telling
def test_who_waits_for_a_long_command_has_imported_none_of_its_work() -> None:
    waiting = imported("import sys, kp_batch.cli")
    assert "kp_batch.cli.supervise" in waiting
    assert not waiting & (MODELS | PAGES | REMOTE | FRAMES | {"duckdb", "pydantic"})


@pytest.mark.telling
def test_the_commands_and_their_options_are_there_without_their_work() -> None:
    commands = imported(COMMANDS)
    assert "kp_batch.cli.export" in commands
    assert not commands & (MODELS | PAGES | REMOTE | FRAMES | {"duckdb", "pydantic"})


@pytest.mark.telling
def test_the_threads_of_numpy_take_no_time_to_wait() -> None:
    assert printed(WAITED).splitlines()[-1] == "waited little"
