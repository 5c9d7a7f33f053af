"""Long commands in a process of their own: how they end, what they report, and what is left."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import pytest

from kp_batch.cli import run
from kp_batch.config import RescoreConfig
from kp_batch.errors import ResourceError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.last_run import LastRuns
from tests.support.formats.atif import short
from tests.support.imports.importing import write_json
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import (
    blocked_file,
    check_signal,
    children,
    command,
    is_running,
    linux,
    until,
    working,
)
from tests.support.processes.holder import HOLD, holding

pytestmark = pytest.mark.process


# --- some work in place of a command ---

HEAD = """
import json, os, signal, subprocess, sys, tempfile, time
from pathlib import Path
from kp_batch.cli.supervise import end_after, logged, send, supervised
from kp_batch.files import temporary_sibling
from kp_batch.log import echo
def kill(number):
    os.kill(os.getpid(), number)
def work():
    {work}
    return 0
def answer(ended):
    if sys.argv[1:] == ["--json"]:
        print(json.dumps([ended.status, ended.code, ended.reason, ended.warehouse]))
sys.exit(supervised(work, note="; whole", answer=answer))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of commands."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@contextmanager
def started(work: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    script = HEAD.format(work=work.strip().replace("\n", "\n    "))
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def done(work: str, *arguments: object, stdin: str = "") -> tuple[int, str, str]:
    with started(work, *arguments) as process:
        out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


KILLED = (
    "kp-batch: {}the worker process was killed by SIGKILL, probably because memory ran out; "
    "what is published is intact{}\n"
)
ITSELF = "kp-batch: the worker process ended by itself, with status {}: it printed nothing\n"


LATE = "the run took longer than --timeout 1s, and was stopped"


@pytest.mark.parametrize(
    ("work", "status", "message"),
    [
        ("end_after(SECOND); time.sleep(600)", 1, f"kp-batch: {LATE}\n"),
        (  # whatever signals it takes, and whatever it has started
            "end_after(SECOND); signal.pthread_sigmask(0, range(1, 32)); os.system('sleep 600')",
            1,
            f"kp-batch: {LATE}\n",
        ),
        (
            "end_after(SECOND); send(printed=True); time.sleep(600)",
            0,
            f"kp-batch: warning: {LATE}; the report may be an older one\n",
        ),
        ("end_after(SECOND); end_after(None); time.sleep(2)", 0, ""),
        ("end_after(SECOND); return 3", 3, ""),
        ("end_after(SECOND * 9_999_999_999_999)", 0, ""),
    ],
)
def test_what_is_not_over_in_time_is_ended_whatever_it_does(
    temporary: Path, work: str, status: int, message: str
) -> None:
    began = time.monotonic()
    setup = "from datetime import timedelta; SECOND = timedelta(seconds=1)"
    returned = done(f"{setup}; {work}")
    assert returned == (status, "", message)
    assert time.monotonic() - began < 20
    assert [*temporary.iterdir()] == []


@pytest.mark.telling
@pytest.mark.parametrize(
    ("work", "status", "message"),
    [
        ("return 3", 3, ""),
        ("os._exit(4)", 4, ITSELF.format(4)),
        ("os._exit(0)", 1, ITSELF.format(0)),
        ("kill(9)", 137, KILLED.format("", "")),
        ("kill(4)", 132, "kp-batch: the worker process ended by SIGILL: it printed nothing\n"),
        (
            "os.write(2, b'one\\ntwo\\n'); kill(15)",
            143,
            "kp-batch: the worker process ended by SIGTERM: two\n",
        ),
        (
            "send(printed=True); kill(9)",
            0,
            KILLED.format("warning: ", "").replace("\n", "; the report may be an older one\n"),
        ),
        (
            "send(printed=True); os._exit(1)",
            0,
            ITSELF.format(1)
            .replace("kp-batch: ", "kp-batch: warning: ")
            .replace("\n", "; the report may be an older one\n"),
        ),
    ],
)
def test_how_a_child_ended_is_reported(
    temporary: Path, work: str, status: int, message: str
) -> None:
    assert done(work) == (status, "", message)
    assert [*temporary.iterdir()] == []


@pytest.mark.telling
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_result_was_printed_is_a_warning(number: signal.Signals) -> None:
    work = f"echo('done'); send(printed=True); os.kill(os.getppid(), {number}); time.sleep(600)"
    warning = f"kp-batch: warning: ended by {number.name}; the report may be an older one\n"
    assert done(work) == (0, "done\n", warning)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("work", "status", "how", "reason"),
    [
        ("kill(9)", 137, "failed killed", KILLED.format("", "").removeprefix("kp-batch: ")),
        ("os._exit(4)", 4, "failed crash", ITSELF.format(4).removeprefix("kp-batch: ")),
        ("os.kill(os.getppid(), 15); time.sleep(9)", 143, "stopped signal", "ended by SIGTERM\n"),
        ("send(printed=True); kill(9)", 0, "", ""),
        ("send(answered=True); kill(9)", 137, "", ""),
        ("return 1", 1, "", ""),
    ],
)
def test_the_object_that_a_killed_child_owes_is_printed_with_the_reason(
    work: str, status: int, how: str, reason: str
) -> None:
    returned, out, _ = done(f"send(warehouse='/wh'); {work}", "--json")
    assert returned == status
    assert len(out.splitlines()) == bool(how)
    for ending in map(json.loads, out.splitlines()):
        assert ending == [*how.split(), reason.rstrip(), "/wh"]


def test_the_child_has_the_streams_of_the_command_and_libraries_have_not(tmp_path: Path) -> None:
    work = """
echo(sys.stdin.read().upper())
echo("told", err=True)
print("library"); print("library", file=sys.stderr)
os.write(1, b"library"); os.write(2, b"library"); subprocess.run(["echo", "library"])
"""
    assert done(work, stdin="é") == (0, "É\n", "told\n")
    out = tmp_path / "out"
    with out.open("w") as file:
        command = [sys.executable, "-c", HEAD.format(work=work.replace("\n", "\n    "))]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, check=True)
    assert out.read_text() == "\n"


@pytest.mark.telling
def test_the_child_fits_the_terminal_of_the_command() -> None:
    work = "import shutil; echo(str(shutil.get_terminal_size().columns), err=True)"
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (20, 57))
    command = [sys.executable, "-c", HEAD.format(work=work)]
    sizes = {"COLUMNS", "LINES"}  # readline sets them behind Python's back
    environment = {name: value for name, value in os.environ.items() if name not in sizes}
    done = subprocess.run(command, env=environment, stdout=end, stderr=subprocess.PIPE, check=False)
    os.close(end)
    os.close(terminal)
    assert (done.returncode, done.stderr) == (0, b"57\n")


def test_a_run_that_is_published_is_done_though_nobody_reads_its_result(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    words = ["run", tmp_path / "a.jsonl", "--warehouse", tmp_path / "w", "--embedder", "none"]
    stderr: list[str] = []
    for options in (["--json"], ["--threshold", "0.5", "--report"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            command([*words, *options]),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(write)
        assert done.returncode == 0, done.stderr
        stderr.append(done.stderr)
    assert stderr[-1].endswith(f"the report is in {tmp_path}/w/report.html\n")


@pytest.mark.telling
def test_a_command_has_its_help_where_python_drops_documentation() -> None:
    environment = os.environ | {"PYTHONOPTIMIZE": "2"}
    words = command(["run", "--help"])
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert "Rescore ARCHIVE" in done.stdout


def test_letters_that_the_encoding_of_an_output_lacks_become_others(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(task_domain="é▂…", objective="a\u2028b")])
    where = ["--warehouse", str(tmp_path / "w")]

    def ask(encoding: str, *words: str) -> str:
        done = subprocess.run(
            command([*words, *where]),
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(encoding)

    summary = ask("latin-1", "run", str(tmp_path / "a.jsonl"), "--embedder", "none")
    assert re.search(r"\n  é:~  +[.@]{10}  ", summary)
    assert "é:~" in ask("latin-1", "sql", "SELECT task_domain FROM scores")
    assert "\\u00e9:~" in ask("ascii", "sql", "SELECT task_domain FROM scores")
    data = ask("ascii", "sql", "--json", "SELECT task_domain FROM scores")
    assert json.loads(data) == [{"task_domain": "é▂…"}]


@pytest.mark.telling
def test_a_link_to_stdout_leads_to_that_of_the_command(tmp_path: Path) -> None:
    link = tmp_path / "out.jsonl"
    link.symlink_to("/dev/stdout")
    work = """
from kp_batch.cli.export import output_file
with output_file(sys.argv[1]) as file:
    file.write_text("traces")
"""
    assert done(work, link) == (0, "traces", "")
    assert link.is_symlink()


@pytest.mark.telling
def test_a_failure_that_nobody_foresaw_is_a_line() -> None:
    assert done("1 // 0") == (
        1,
        "",
        "kp-batch: unexpected ZeroDivisionError: integer division or modulo by zero\n",
    )


@linux
@pytest.mark.parametrize(
    ("stdout", "fault"),
    [
        ("/dev/full", "stdout cannot be written: No space left on device"),
        ("&-", "stdout is closed; name a file with -o"),
    ],
)
def test_a_stdout_that_takes_nothing_is_reported(stdout: str, fault: str) -> None:
    work = """
from kp_batch.cli.export import output_file
with output_file("-") as file:
    file.write_text("traces")
"""
    script = HEAD.format(work=work.replace("\n", "\n    "))
    command = ["sh", "-c", f'exec "$@" >{stdout}', "sh", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"kp-batch: {fault}\n")


@pytest.mark.telling
def test_no_result_is_reported_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("kp_batch.cli.run.send", lambda **facts: calls.extend(facts))
    archive = write_jsonl(tmp_path / "a.jsonl", [trace()])
    words = [str(archive), "--warehouse", str(tmp_path / "wh"), "--embedder", "none"]
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("sys.stdout", TextIOWrapper(full, write_through=True))
        with pytest.raises(ResourceError, match="stdout cannot be written: No space left on"):
            run.run.main(words, standalone_mode=False)
    assert "printed" not in calls


LEAVING = """
folder, log = map(Path, sys.argv[1:])
from kp_batch.warehouse.staging import Staging
from kp_batch.warehouse.publication import writing
begun = temporary_sibling(folder / "a"); begun.write_text("half")
Staging(folder / "staging" / "a-run").make()
open(tempfile.mkdtemp() + "/left", "w")
subprocess.Popen(["sleep", "600"])
with logged(log):
    echo("ready")
    {}
"""


@pytest.mark.telling
@linux
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_all_and_leaves_nothing(tmp_path: Path, temporary: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with started(LEAVING.format("time.sleep(600)"), folder, tmp_path / "log") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "ready\n"
        group = children(process.pid)
        assert len(group) == 2
        assert len([*folder.iterdir()]) == 2
        process.send_signal(signal.Signals[name])
        assert process.wait(20) == 128 + signal.Signals[name]
        until(lambda: not any(map(is_running, group)), 20)
        assert process.stderr.read() == f"kp-batch: ended by {name}; whole\n"
    assert [*folder.rglob("*"), *temporary.iterdir()] == [folder / "staging"]
    assert sorted(tmp_path.iterdir()) == [folder, temporary]


@pytest.mark.telling
@linux
@pytest.mark.parametrize("victim", ["parent", "child"])
def test_nothing_is_left_by_who_is_killed(tmp_path: Path, temporary: Path, victim: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with started(LEAVING.format("time.sleep(600)"), folder, tmp_path / "log") as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        child, other = children(process.pid)
        os.kill(process.pid if victim == "parent" else child, signal.SIGKILL)
        process.wait(20)
        until(lambda: not any(map(is_running, (child, other))), 20)
    assert [*folder.rglob("*"), *temporary.iterdir()] == [folder / "staging"]
    assert sorted(tmp_path.iterdir()) == [folder, temporary]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_ignored_where_who_began_the_command_ignores_it(number: int) -> None:
    """As `cmd &` in a script has it of an interrupt, and nohup of a terminal that is closed."""
    work = f"os.kill(os.getppid(), {number}); kill({number}); time.sleep(0.1); echo('on')"
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert done(work) == (0, "on\n", "")
    finally:
        signal.signal(number, before)


# --- the log of a warehouse ---

WRITING = """
from kp_batch.warehouse.publication import writing
log = Path(sys.argv[1])
os.write(1, b"early\\n")
with logged(log):
    os.write(2, b"late\\n")
    {}
"""
IN_PLACE = "writing(log.parent, wait=False).__enter__()"


def test_the_log_begins_with_what_was_printed_before_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert done(WRITING.format(IN_PLACE), log) == (0, "", "")
    assert log.read_text() == "early\nlate\n"


def test_a_command_that_does_not_write_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of another")
    assert done(WRITING.format("pass"), log) == (0, "", "")
    assert log.read_text() == "of another"
    assert [*tmp_path.iterdir()] == [log]


@pytest.mark.telling
def test_who_is_killed_while_it_writes_has_its_log_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = done(WRITING.format(IN_PLACE + "; kill(9)"), log)
    assert result == (137, "", KILLED.format("", f"; details are in {log}"))
    assert log.read_text() == "early\nlate\n"
    result = done(WRITING.format("kill(11)"), log)
    assert result == (139, "", "kp-batch: the worker process ended by SIGSEGV: late\n")
    assert not [*tmp_path.glob("*.part")]


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_fault_of_ours_goes_into_the_log_unless_another_command_writes(
    tmp_path: Path, *, is_busy: bool
) -> None:
    log = tmp_path / "log"
    work = """
log = Path(sys.argv[1])
try:
    with logged(log):
        1 // 0
except Exception as error:
    echo(str(error))
"""
    with ExitStack() as other:
        if is_busy:
            other.enter_context(holding(HOLD, tmp_path))
        _, out, _ = done(work, log)
    details = "" if is_busy else f"; details are in {log}"
    fault = "unexpected ZeroDivisionError: integer division or modulo by zero"
    assert out == f"{fault}{details}\n"
    assert log.exists() != is_busy
    assert is_busy or log.read_text().endswith(
        "ZeroDivisionError: integer division or modulo by zero\n"
    )
    assert not [*tmp_path.glob("*.part")]


def test_a_full_disk_of_the_log_hides_no_error(tmp_path: Path) -> None:
    work = "os.dup2(os.open('/dev/full', os.O_WRONLY), 2); 1 // 0"
    status, _, stderr = done(WRITING.format(work), tmp_path / "log")
    assert status == 1
    assert "ZeroDivisionError" in stderr


# --- the commands themselves ---


@dataclass(frozen=True)
class Blocked:
    """An archive of a file that is blocked, so that each further reader waits for it."""

    file: Path
    warehouse: Path
    output: Path

    def commands(self) -> dict[str, list[object]]:
        own = ["--warehouse", self.warehouse]
        return {
            "export": ["export", *own, "--min-score", 0, "-o", self.output / "a.jsonl"],
            "score": ["score", self.file],
            "forget": ["forget", "--from", self.file, *own],
        }


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Blocked:
    folder = tmp_path_factory.mktemp("blocked")
    archive, warehouse, output = (folder / name for name in ("archive", "wh", "output"))
    path = write_jsonl(archive / "a.jsonl", [trace()])
    rescore_archive(RescoreConfig(archive=(str(archive),), warehouse=warehouse, embedder="none"))
    output.mkdir()
    return Blocked(path, warehouse, output)


@linux
def test_a_signal_ends_a_verification_within_two_seconds(blocked: Blocked, temporary: Path) -> None:
    with (
        blocked_file(blocked.file) as until_read,
        working("verify", "--warehouse", blocked.warehouse) as process,
    ):
        until_read()
        check_signal(process, signal.SIGINT, 130)
    assert [*temporary.iterdir()] == []


@linux
@pytest.mark.parametrize("name", ["export", "score", "forget"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_says_so_and_leaves_nothing(
    blocked: Blocked, temporary: Path, name: str, number: signal.Signals
) -> None:
    with blocked_file(blocked.file) as until_read, working(*blocked.commands()[name]) as process:
        until_read()
        assert process.stderr
        [child] = children(process.pid)
        os.kill(child if number == signal.SIGKILL else process.pid, number)
        assert process.wait(20) == 128 + number
        *_, last = process.stderr.read().splitlines()
    whole = "; what is published is intact; kp-batch runs shows which run published it"
    assert f"{last}\n" == (
        KILLED.format("", "")
        if number == signal.SIGKILL
        else f"kp-batch: ended by SIGTERM{whole if name == 'forget' else ''}\n"
    )
    leftovers = [path for path in blocked.output.rglob("*") if path.is_file()]
    assert [*temporary.iterdir(), *blocked.warehouse.glob("*.part"), *leftovers] == []


@pytest.mark.telling
def test_a_timeout_ends_a_run_whose_settings_are_never_read_and_leaves_its_mark(
    tmp_path: Path,
) -> None:
    file, place = write_jsonl(tmp_path / "a.jsonl", [trace()]), tmp_path / "wh"
    rescore_archive(RescoreConfig(archive=(str(file),), warehouse=place, embedder="none"))
    reading, writing = os.pipe()  # to which nobody writes
    words = ["run", file, "--warehouse", place, "--timeout", "8s", "--profiles"]
    done = subprocess.run(
        command([*words, f"/dev/fd/{reading}", "--json"]),
        capture_output=True,
        text=True,
        check=False,
        pass_fds=[reading, writing],
    )
    os.close(reading)
    os.close(writing)
    ending, mark = json.loads(done.stdout), LastRuns.read(place).last_run
    assert done.returncode == 1
    assert done.stderr == "kp-batch: the run took longer than --timeout 8s, and was stopped\n"
    assert mark
    for ended in (ending, vars(mark)):
        assert (ended["status"], ended["code"]) == ("failed", "timeout")


RULES = ("--success", "always", "--confidence", "0.5", "--domain", "=code")
IMPORTING = """
from kp_batch import cli
from kp_batch.imports import destination
def wait(written, path):
    echo("ready")
    time.sleep(600)
destination._is_same = wait
return cli.run_command()
"""


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_ended_leaves_no_file_half_written(
    tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    path, output = write_json(tmp_path / "a.json", short()), tmp_path / "archive"
    with started(IMPORTING, "import", "atif", path, "-o", output, *RULES) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        assert len([*output.rglob("*.part")]) == 1
        [child] = children(process.pid)
        os.kill(child if number == signal.SIGKILL else process.pid, number)
        assert process.wait(20) == 128 + number
    assert [*temporary.iterdir(), *output.rglob("*.part")] == []


SMALL = """
mount -t tmpfs -o size=$1 none full && shift
"$@" > out 2> err
echo $?; tail -n 1 err; find full -name '*.part' -o -name 'kp-*'
"""


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two runs left, and a session to be imported."""
    folder = tmp_path_factory.mktemp("scored")
    write_json(folder / "session.json", short(notes="x" * 100_000))
    traces = [trace(id=f"a{n}", task={"objective": f"{n} " * 1_000}) for n in range(9)]
    archive = write_jsonl(folder / "a.jsonl", traces)
    config = RescoreConfig(archive=(str(archive),), warehouse=folder / "wh", embedder="none")
    rescore_archive(config)
    rescore_archive(config.model_copy(update={"threshold": 0.3}))
    (folder / "full").mkdir()
    return folder


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0,
    reason="may not mount a disk",
)
@pytest.mark.parametrize(
    ("full", "size", "command"),
    [
        ("scratch", "24k", "forget a0 --dry-run"),
        ("scratch", "8k", "import atif session.json -o archive"),
        ("output", "8k", "export -o full/traces.jsonl"),
    ],
)
def test_a_full_disk_is_reported_in_one_line_and_nothing_is_left(
    scored: Path, monkeypatch: pytest.MonkeyPatch, full: str, size: str, command: str
) -> None:
    monkeypatch.chdir(scored)
    if full == "scratch":
        monkeypatch.setenv("TMPDIR", str(scored / "full"))
    words = [*command.split(), *(RULES if command.startswith("import") else ["--warehouse", "wh"])]
    launcher = ["unshare", "-rm", "sh", "-c", SMALL, "sh", size, sys.executable, "-m", "kp_batch"]
    done = subprocess.run([*launcher, *words], capture_output=True, text=True, check=True)
    status, line, *leftovers = done.stdout.splitlines()
    assert (status, leftovers) == ("1", [])
    where = f"{scored}/full" if full == "scratch" else "full"
    lack = r"it needs more than the 0\.\d MB that are left now"
    assert re.fullmatch(f"kp-batch: the disk of {where} is full: {lack}; free some space", line)
