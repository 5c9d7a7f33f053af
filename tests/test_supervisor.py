"""The child process: started from any folder, and what is told when it dies or never starts."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from kp_batch.cli.commands import COMMANDS, PLAN, VACUUM
from kp_batch.cli.supervisor import child_result, start_ahead

from kp_batch.archive.file_changes import FileChanges
from kp_batch.cli import run, supervisor
from kp_batch.errors import KpBatchError
from kp_batch.operations.results import (
    Comparison,
    Difference,
    DomainMoves,
    Mover,
    Removed,
    Verification,
)
from kp_batch.pipeline.summary import DomainScores, Summary
from kp_batch.planning.explain_plan import DomainDay, PlanDescription
from kp_batch.reasons import Reason
from kp_batch.run_record import RunCounts
from tests.archives import trace, write_jsonl
from tests.holding import holding
from tests.test_lock import HOLD


@pytest.fixture
def checkout() -> Path:
    return Path(sys.executable).with_name("kp-batch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, whose modules are called as ours and as those of the libraries."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "__init__.py").touch()
    for name in ("kp_batch.py", "prefect.py", "polars.py"):
        (tmp_path / name).write_text(f"raise ImportError('{name} of the user')")
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    return tmp_path


def outside(command: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = ["--warehouse", "wh", "--embedder", "hashing", *options]
    environment = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(command), "run", "a.jsonl", *settings],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("way", ["checkout", "installed"])
def test_a_run_works_in_a_folder_that_holds_modules_of_the_same_names(
    folder: Path, way: str, request: pytest.FixtureRequest
) -> None:
    done = outside(request.getfixturevalue(way), folder)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 trace restated" in done.stdout
    assert (folder / "wh" / "report.html").exists()


@pytest.mark.prefect
def test_a_flow_runs_out_of_a_wheel_in_such_a_folder(folder: Path, installed: Path) -> None:
    done = outside(installed, folder, "--prefect")
    assert done.returncode == 0, done.stderr + (folder / "wh" / "last-run.log").read_text()
    assert "1 of 1 trace restated" in done.stdout


def with_child(monkeypatch: pytest.MonkeyPatch, script: str) -> list[subprocess.Popen[bytes]]:
    """Start a script in place of the child; `answer` writes where the child's answer goes."""
    popen, children = subprocess.Popen, []
    head = "import os, sys, time; answer = lambda text: os.write(int(sys.argv[2]), text.encode()); "

    def started(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        children.append(popen([sys.executable, "-c", head + script, *command[3:]], **how))
        return children[-1]

    monkeypatch.setattr(supervisor.subprocess, "Popen", started)
    return children


STARTED = r"answer('\n'); "
TOLD = r"""answer('\n{"files": 1, "facts": 2, "raw_rows": 3, "vectors": 4}\n'); """
REMOVED = Removed(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "import kp_batch.no_such_module",
            (
                "the working process could not start (status 1): "
                "ModuleNotFoundError: No module named 'kp_batch.no_such_module'"
            ),
        ),
        (
            "os.kill(os.getpid(), 4)",
            "the working process could not start (SIGILL): it said nothing",
        ),
        (
            STARTED + "os.kill(os.getpid(), 9)",
            (
                "the working process was killed by SIGKILL, "
                "as the system does where memory runs out; what is published is whole"
            ),
        ),
        (
            STARTED + "raise SystemExit('no more')",
            "the working process ended before it could answer (status 1): no more",
        ),
        (
            STARTED + "answer('{\"error'); print('cut')",
            "the working process ended before it could answer (status 0): cut",
        ),
        (
            "os._exit(3)",
            "the working process could not start (status 3): it said nothing",
        ),
    ],
    ids=["no module", "no such instruction", "killed", "ended", "cut", "silent"],
)
@pytest.mark.parametrize("with_log", [False, True])
def test_how_a_child_ended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str, *, with_log: bool
) -> None:
    with_child(monkeypatch, script)
    log = tmp_path / "log" if with_log else None
    with pytest.raises(KpBatchError) as failure, child_result(PLAN, log):
        pass
    assert str(failure.value) == message + (f"; details are in {log}" if log else "")


ODD = DomainMoves(
    task_domain="é",
    traces=10**30,
    first_mean=0.0,
    second_mean=-0.0,
    mean_absolute_change=1e-300,
    first_quantiles=(0.1, 0.1 + 0.2, 1 / 3, 2 / 3, 1.0),
    second_quantiles=(-1e-7, 5e-324, 2.0**-52, 1.7976931348623157e308, 1e16),
    stability_index=float("nan"),
    rank_correlation=None,
    rose=0,
    fell=-1,
    stayed=2,
    now_reach=3,
    now_reach_by_threshold=4,
    no_longer_reach=5,
    no_longer_reach_by_threshold=6,
    from_facts=float("inf"),
    from_novelty=-float("inf"),
    from_weights=0.0,
    from_overrides=0.0,
    single_thoughts=0,
)
COMPARISON = Comparison(
    first="20260101T000000Z-abcdef",
    second='zwölf "\\\n\u2028\0\U0001f600',
    changes=(Reason("weights", "weights of é", None, {"novelty": 0.1 + 0.2}, of="é"),),
    first_threshold=0.1 + 0.2,
    second_threshold=1 / 3,
    in_both=2,
    only_in_first=1,
    only_in_second=0,
    domains=(ODD, replace(ODD, task_domain=None, rank_correlation=1.0)),
    movers=(
        Mover("a", "any", 0.1, 1.0, 0.9, None, 0.9, 0.0, 0.0, 0.0, "\x1b é", None),
        Mover("b", "any", 0.1, 1.0, 0.9, "first", 0.9, 0.0, 0.0, 0.0, None, "gone"),
    ),
)
PLANNED = PlanDescription(
    reasons=[Reason("weights", "é\n", None, {"novelty": 0.1}, "\0"), Reason("ttl", "", "none", 1)],
    files=FileChanges((), ("é\n",), (), (), ("a", "b"), ()),
    rows_of_earlier=2,
    rows_rejected=1,
    rejected_by_code={"no_steps": 1},
    excess=None,
    unused_profiles={"\0": "é", "b": None},
    cache_by="agent_id+host",
    caches=3,
    traces_without_value=1,
    texts_to_embed=1,
    traces_to_replay=10**30,
    traces_to_restate=0,
    traces_to_reweight=0,
    traces_to_remove=0,
    domains=2,
    largest_domains={"\0": 2},
    by_domain_and_day=[DomainDay("\0", "2026-01-31", 1, 2, 3)],
    partitions=["2026-01-31"],
    future_partitions=[],
    pending=["files", "forgotten"],
    estimated_seconds=None,
)
SUMMARY = Summary(
    run_id=None,
    warehouse="é",
    counts=RunCounts(*range(14), {"no_steps": 1}, ["a.jsonl"]),
    seconds={"start": 0.1, "embed": 1e16},
    domains=2,
    scores=[DomainScores("é", 3, 1, 0.5, [0.1, 0.2, 0.3, 0.4, 0.5], [1] * 10)],
)
VERIFICATION = Verification(
    seed=7,
    missing=0,
    sampled=2,
    checked=1,
    differences=(
        Difference("score", 0.25, 0.0, "zwölf"),
        Difference("vector", float("inf"), 1e-5, None),
    ),
    wrong="score of zwölf is off by 0.25",
)


def child_that(command: str, work: str) -> str:
    """A script: the true child, whose command of that name does this work (an expression)."""
    return (
        "from dataclasses import replace; from kp_batch.cli import child; "
        "from kp_batch.errors import *; from kp_batch.operations.results import *; "
        "from kp_batch.archive.file_changes import *; "
        "from kp_batch.planning.explain_plan import *; "
        "from kp_batch.pipeline.summary import *; from kp_batch.reasons import *; "
        "nan, inf = float('nan'), float('inf'); "
        f"work = lambda tell, *args, **kwargs: {work}; "
        f"child.COMMANDS[{command!r}] = replace(child.COMMANDS[{command!r}], function=work); "
        "child.main()"
    )


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("compare", COMPARISON),
        ("verify", VERIFICATION),
        ("vacuum", REMOVED),
        ("plan", PLANNED),
        ("run", SUMMARY),
    ],
)
def test_a_result_comes_through_the_pipe_unchanged(
    monkeypatch: pytest.MonkeyPatch, command: str, result: object
) -> None:
    with_child(monkeypatch, child_that(command, f"tell({result!r})"))
    with child_result(COMMANDS[command], None) as told:
        assert repr(told) == repr(result)  # NaN is not equal to itself


def test_arguments_come_through_the_pipe_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = {"é": None, "share": 0.1}, "\0\n\udcff"
    same = f"(args, kwargs) == (({config!r},), {{'keep_seconds': {folder!r}}})"
    with_child(monkeypatch, child_that("vacuum", f"tell(Removed(int({same}), 0, 0, 0))"))
    with child_result(VACUUM, None, config, keep_seconds=folder) as told:
        assert told == Removed(1, 0, 0, 0)


def test_an_error_comes_through_the_pipe_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    message = 'no "é"\n\udcff'  # of a file whose name is no UTF-8
    raising = f"(_ for _ in ()).throw(KpBatchError({message!r}))"
    with_child(monkeypatch, child_that("vacuum", raising))
    with pytest.raises(KpBatchError) as failure, child_result(VACUUM, None):
        pass
    assert str(failure.value) == message


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ('{"files": 1, "facts": 2, "raw_rows": 3}', "vectors: Field required"),
        (
            '{"files": 1, "facts": 2, "raw_rows": 3, "vectors": 4, "more": 5}',
            "more: Unexpected keyword argument",
        ),
        (
            '{"files": "1", "facts": 2, "raw_rows": 3, "vectors": 4}',
            "files: Input should be a valid integer",
        ),
        ("[1, 2, 3, 4]", "all of it: Input should be an object"),
        ("removed", "all of it: Invalid JSON: expected value at line 1 column 1"),
    ],
    ids=["less", "more", "text", "list", "no JSON"],
)
def test_an_answer_of_another_form_is_one_line(
    monkeypatch: pytest.MonkeyPatch, told: str, fault: str
) -> None:
    with_child(monkeypatch, rf"answer('\n{told}\n'); time.sleep(20)")
    with pytest.raises(KpBatchError) as failure, child_result(VACUUM, None):
        pass
    assert str(failure.value) == (
        f"the working process answered vacuum in another form than expected ({fault}); "
        "was kp-batch replaced meanwhile? Try again"
    )


def test_a_child_started_ahead_is_the_one_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    children = with_child(monkeypatch, f"open({str(begun)!r}, 'a').write('x'); {TOLD}")
    with click.Context(run.run) as context:
        start_ahead(context)
        with child_result(VACUUM, None) as result:
            assert result == REMOVED
        with child_result(VACUUM, None) as result:  # a second question has a child of its own
            assert result == REMOVED
    assert [each.returncode for each in children] == [0, 0]
    assert begun.read_text() == "xx"


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        (["--help"], []),
        (["a", "--warehouse", "w", "--ttl", "soon"], [-signal.SIGKILL]),
        (["a", "--no-such-option"], [-signal.SIGKILL]),
    ],
)
def test_a_child_is_started_while_settings_are_checked(
    monkeypatch: pytest.MonkeyPatch, words: list[str], ended: list[int]
) -> None:
    children = with_child(monkeypatch, "time.sleep(20)")
    run.run.make_context("run", list(words), resilient_parsing=True)  # as a shell completes
    assert children == []
    with suppress(click.exceptions.Exit, click.UsageError):
        run.run.main(words, standalone_mode=False)
    assert [each.returncode for each in children] == ended


class Signal(BaseException):
    """As the command line's, when the user ends it."""


def test_a_signal_ends_the_child_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with_child(monkeypatch, TOLD + "time.sleep(600)")
    with suppress(Signal), child_result(VACUUM, None) as result:
        assert result == REMOVED
        raise Signal  # and nobody waits ten minutes


def test_what_a_killed_child_leaves_in_its_temporary_folder_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    leaving = "import tempfile; open(tempfile.mkdtemp() + '/left', 'w'); "
    with_child(monkeypatch, leaving + TOLD + "time.sleep(600)")
    with suppress(Signal), child_result(VACUUM, None):
        assert len([*tmp_path.rglob("left")]) == 1
        raise Signal
    assert [*tmp_path.iterdir()] == []


def test_the_log_begins_with_what_was_printed_before_it_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    entering = f"writing(Path({str(tmp_path)!r}), wait=False).__enter__()"
    telling = f"(print('late', flush=True), {entering}, tell({REMOVED!r}))"
    imports = "from pathlib import Path; from kp_batch.warehouse.publication import writing; "
    early = imports + "print('early', flush=True); "
    with_child(monkeypatch, early + child_that("vacuum", telling))
    with child_result(VACUUM, log) as told:
        assert told == REMOVED
    assert log.read_text() == "early\nlate\n"


def test_a_child_that_writes_to_no_warehouse_leaves_its_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text("of another")
    with_child(monkeypatch, child_that("vacuum", f"(print('late'), tell({REMOVED!r}))"))
    with child_result(VACUUM, log) as told:
        assert told == REMOVED
    assert log.read_text() == "of another"
    assert [*tmp_path.iterdir()] == [log]


@pytest.mark.parametrize("is_busy", [False, True])
def test_what_a_child_said_that_could_not_begin_is_kept_unless_another_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_busy: bool
) -> None:
    log = tmp_path / "log"
    with ExitStack() as other:
        if is_busy:
            other.enter_context(holding(HOLD, tmp_path))
        with_child(monkeypatch, "print('early'); raise SystemExit('late')")
        with pytest.raises(KpBatchError) as failure, child_result(VACUUM, log):
            pass
    assert str(failure.value).endswith(": late" if is_busy else f": late; details are in {log}")
    assert not [*tmp_path.glob("*.part")]
    assert log.exists() != is_busy
    assert is_busy or log.read_text() == "early\nlate\n"


@pytest.mark.parametrize("error", [None, BrokenPipeError])
def test_a_child_ends_its_work_after_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    late = tmp_path / "late"
    with_child(monkeypatch, TOLD + f"time.sleep(1); open({str(late)!r}, 'w')")
    with suppress(BrokenPipeError), child_result(VACUUM, None):
        assert not late.exists()
        if error:
            raise error
    assert late.exists()


def test_a_child_that_dies_after_its_result_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_child(monkeypatch, TOLD + "os.kill(os.getpid(), 9)")
    with child_result(VACUUM, None) as result:
        assert result == REMOVED
    said = capsys.readouterr().err
    assert said.startswith("kp-batch: warning: the working process was killed by SIGKILL")
    assert said.endswith("; the report may be an older one\n")
