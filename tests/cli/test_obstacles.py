"""What blocks a command is reported by name: permissions, full disks, mixed-up folders."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import polars as pl
import pytest

from kp_batch import cli
from kp_batch.archive.folders import IS_TABLE
from kp_batch.archive.sources import discover
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, KpBatchError, WarehouseError, explain_error
from kp_batch.pipeline.rescore import rescore_and_report, rescore_archive
from kp_batch.storage.store import store_at
from kp_batch.warehouse.manifest import FORMAT_VERSION
from tests.support.make.archives import trace, write_jsonl, write_parquet
from tests.support.make.kept import unpacked
from tests.support.processes.commands import invoke
from tests.support.processes.unprivileged import Invoke, asks, kp_batch, mode
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask_rows

ACCESS = "give this user access, or run as another"


def refusal(done: CompletedProcess[str]) -> str:
    """The one line that tells why a command failed."""
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1].removeprefix("kp-batch: ")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of two files, one of them in a folder, and what a run left."""
    folder = tmp_path_factory.mktemp("scored")
    write_jsonl(folder / "a" / "1.jsonl", [trace(id="1")])
    write_parquet(folder / "a" / "sub" / "2.parquet", [trace(id="2")])
    settings = RescoreConfig(
        archive=(str(folder / "a"),), warehouse=folder / "w", embedder="none", prune=False
    )
    rescore_archive(settings)
    keep(folder)
    return folder


@pytest.fixture
def archive(scored: Path) -> Path:
    restore(scored)
    return scored / "a"


@pytest.fixture
def warehouse(archive: Path) -> Path:
    return archive.with_name("w")


@pytest.mark.telling
@pytest.mark.process
@asks
def test_what_writes_names_what_it_may_not_write(
    archive: Path, warehouse: Path, anybody: Invoke
) -> None:
    with mode(warehouse / "kp.lock", 0o400):
        for done in (
            kp_batch("run", archive, "--embedder", "none", "--warehouse", warehouse),
            anybody("forget", "1", "--warehouse", warehouse),
            anybody("vacuum", "--warehouse", warehouse),
            anybody("catalog", "--warehouse", warehouse),
        ):
            message = refusal(done)
            path = warehouse / "kp.lock"
            assert message.startswith(f"cannot continue: Permission denied: '{path}'"), done.args
            assert message.endswith(ACCESS), done.args


@pytest.mark.process
@asks
def test_what_reads_needs_no_right_to_write(
    archive: Path, warehouse: Path, anybody: Invoke
) -> None:
    with mode(warehouse, 0o500), mode(warehouse / "kp.lock", 0o400):
        for words in (
            ["plan", archive, "--embedder", "none"],
            ["sql", "FROM scores"],
            ["runs"],
            ["report", "-o", "-"],
            ["verify"],
        ):
            done = anybody(*words, "--warehouse", warehouse)
            assert done.returncode == 0, (words, done.stderr)


@pytest.mark.process
@asks
@pytest.mark.parametrize("name", [".", "kp.lock"])
def test_migrate_needs_no_right_to_write_where_it_has_nothing_to_do(
    warehouse: Path, tmp_path: Path, name: str
) -> None:
    before = listing(warehouse)
    with mode(warehouse / name, 0o500):
        done = kp_batch("migrate", "--warehouse", warehouse)
    said = f"{warehouse} already has format {FORMAT_VERSION}; nothing to do\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert listing(warehouse) == before
    old = unpacked(19, 1, tmp_path)
    with mode(old, 0o500):
        done = kp_batch("migrate", "--warehouse", old)
    message = refusal(done)
    assert message.startswith(f"cannot continue: Permission denied: '{old}/")
    assert message.endswith(ACCESS)


@pytest.mark.process
@asks
@pytest.mark.parametrize("command", ["sql", "plan"])
@pytest.mark.parametrize("name", ["manifest.json", "scores", "."])
def test_what_may_not_be_read_of_a_warehouse_is_named(
    archive: Path, warehouse: Path, anybody: Invoke, command: str, name: str
) -> None:
    words = {"sql": ["sql", "FROM scores"], "plan": ["plan", archive, "--embedder", "none"]}
    with mode(warehouse / name, 0):
        message = refusal(anybody(*words[command], "--warehouse", warehouse))
    file = "scores" if name == "scores" else "manifest.json"
    assert message == f"cannot continue: Permission denied: '{warehouse / file}'; {ACCESS}"


@pytest.mark.process
@asks
def test_a_warehouse_that_cannot_be_made(tmp_path: Path, archive: Path) -> None:
    with mode(tmp_path, 0o500):
        done = kp_batch("run", archive, "--warehouse", tmp_path / "new", "--embedder", "none")
    assert refusal(done) == f"cannot continue: Permission denied: '{tmp_path / 'new'}'; {ACCESS}"


@pytest.mark.process
@asks
@pytest.mark.parametrize("below", ["", "/1.jsonl", "/*.jsonl", "/**/*.jsonl"])
def test_an_archive_that_may_not_be_read(
    tmp_path: Path, archive: Path, anybody: Invoke, below: str
) -> None:
    with mode(archive, 0):
        message = refusal(anybody("plan", f"{archive}{below}", "--warehouse", tmp_path / "w"))
    assert message.startswith(f"cannot {'read' if below else 'list'} '{archive}{below}': ")
    assert message.endswith("Permission denied")


@pytest.mark.process
@asks
@pytest.mark.parametrize("glob", ["", "/**/*.*"])
def test_a_folder_that_may_not_be_read_is_one_reject_and_its_files_are_not_gone(
    archive: Path, warehouse: Path, anybody: Invoke, glob: str
) -> None:
    settings = ["--warehouse", warehouse, "--embedder", "none"]
    denied = "the folder cannot be read: Permission denied"
    with mode(archive / "sub", 0):
        done = anybody("run", f"{archive}{glob}", *settings)
    assert done.returncode == 0, done.stderr
    assert f"warning: {archive}/sub is unreadable: {denied}\n" in done.stderr
    assert ask_rows(warehouse, "SELECT source_file, message FROM rejects") == [
        (f"{archive}/sub", denied)
    ]
    assert ask_rows(warehouse, "SELECT source_file, status, rows FROM files ORDER BY ALL") == [
        (f"{archive}/1.jsonl", "read", 1),
        (f"{archive}/sub", "unreadable", None),
        (f"{archive}/sub/2.parquet", "unreadable", 1),
    ]
    assert ask_rows(warehouse, "SELECT trace_id FROM scores ORDER BY ALL") == [("1",), ("2",)]
    assert anybody("run", f"{archive}{glob}", *settings).returncode == 0
    assert ask_rows(warehouse, "SELECT status, count(*) FROM files GROUP BY ALL") == [("read", 2)]
    assert ask_rows(warehouse, "FROM rejects") == []


@pytest.mark.process
@asks
def test_the_files_of_a_folder_that_may_not_be_read_can_be_pruned(
    archive: Path, warehouse: Path, anybody: Invoke
) -> None:
    settings = ["--warehouse", warehouse, "--embedder", "none", "--prune"]
    with mode(archive / "sub", 0):
        assert anybody("run", archive, *settings).returncode == 0
    assert ask_rows(warehouse, "SELECT trace_id FROM scores") == [("1",)]


LEFT = re.compile(r"[0-9,]+\.[0-9] [MG]B")
LACK, REMEDY = "it needs more than the N MB that are left now", "; free some space"


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("IO Error: Could not write file: No space left on device"),
        MemoryError("failed to offload data block; set by the 'max_temp_directory_size' setting"),
        RuntimeError("Generic error: write failed (os error 28)"),
        OSError("100000 requested and 0 written"),  # NumPy's, without a number
        OSError("Not enough free space to write 25165824 bytes after offset 128"),
    ],
    ids=str,
)
def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv("TMPDIR", "/dev/shm/none")  # that is no folder
    log = str(tmp_path / "log")
    told = LEFT.sub("N MB", str(explain_error(error, log)))
    assert told == f"the disk of {tmp_path} is full: {LACK}; what is published is intact{REMEDY}"
    wrapped = WarehouseError("w cannot be read")
    wrapped.__cause__ = error
    assert LEFT.sub("N MB", str(explain_error(wrapped, log))) == told
    other = KpBatchError("report.html cannot be written: No space left on device")
    other.__cause__ = error  # which is explained better than we could
    assert explain_error(other, log) is other


def test_other_words_do_not_mean_a_full_disk(tmp_path: Path) -> None:
    error = RuntimeError("3 columns were requested and none was found")
    assert "is full" not in str(explain_error(error, str(tmp_path / "log")))


def test_a_full_temporary_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    message = str(explain_error(OSError(28, "No space left on device")))
    assert LEFT.sub("N MB", message) == f"the disk of {tmp_path} is full: {LACK}{REMEDY}"


@pytest.mark.parametrize(
    ("files", "lack"),
    [((0, 0), "it needs more than the 1.2 GB"), ((9, 0), "it takes no more files (df -i)")],
    ids=["of a system that counts no files", "without files"],
)
def test_a_full_disk_is_reported_with_the_space_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[int, int], lack: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    usage, counted = (
        shutil.disk_usage(tmp_path),
        SimpleNamespace(f_files=files[0], f_favail=files[1]),
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_234_567_890))
    monkeypatch.setattr(os, "statvfs", lambda _: counted)
    error = OSError(28, "No space left on device")
    told = str(explain_error(error))
    assert f" is full: {lack}" in told
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)  # somebody frees some
    assert str(explain_error(error)) == told


@pytest.mark.parametrize(
    "name", ["{}", "{}/sub", "{}/*.jsonl", "file://{}", "{}/link/sub", "{}-outside/sub"]
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_archive_in_the_warehouse_is_refused_before_anything_is_made(
    archive: Path, command: str, name: str
) -> None:
    for link in (archive / "link", Path(f"{archive}-outside")):
        link.symlink_to(archive)
    before = sorted(path.name for path in archive.rglob("*"))
    inside = name.format(archive)
    assert refusal(invoke(command, inside, "--warehouse", archive)) == (
        f"the archive '{inside}' is in the warehouse '{archive}', whose files are never read; "
        "choose another folder for the warehouse"
    )
    assert sorted(path.name for path in archive.rglob("*")) == before


def test_the_flow_refuses_an_archive_in_the_warehouse(archive: Path) -> None:
    with pytest.raises(WarehouseError, match="is in the warehouse"):
        rescore_and_report(RescoreConfig(archive=(str(archive),), warehouse=archive))
    assert not (archive / "kp.lock").exists()


def test_another_warehouse_in_the_archive_is_left_out_and_reported_in_one_line(
    archive: Path, warehouse: Path, tmp_path: Path
) -> None:
    other = shutil.move(warehouse, archive / "w")
    done = invoke("plan", archive, "--warehouse", tmp_path / "new", "--embedder", "none")
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert warnings == [f"kp-batch: warning: {other} is skipped: it is a warehouse of kp_batch"]
    for _ in range(2):
        for glob in ("", "/*", "/**/*.parquet"):
            skipped: list[str] = []
            files = discover([f"{archive}{glob}"], None, skipped.append)
            names = ["2.parquet"] if "." in glob else ["1.jsonl", "2.parquet"]
            assert [Path(file.path).name for file in files] == names, glob
            assert skipped == [f"{other}"], glob
            discover([f"{archive}{glob}"], other, skipped.append)
            assert len(skipped) == 1, glob
        (other / "kp.duckdb").unlink(missing_ok=True)  # one of the two files tells


def test_a_warehouse_is_no_archive(warehouse: Path) -> None:
    for name in (f"{warehouse}", f"{warehouse}/*"):
        with pytest.raises(ArchiveError) as caught:
            discover([name])
        assert str(caught.value) == (
            f"cannot list '{warehouse}': it contains kp.lock or kp.duckdb: it is a warehouse of "
            "kp_batch, not an archive"
        )


@pytest.mark.telling
@pytest.mark.slow
def test_a_delta_table_in_the_archive_is_one_reject(archive: Path, tmp_path: Path) -> None:
    pl.DataFrame({"id": ["1"]}).write_delta(archive / "table")
    settings = RescoreConfig(archive=(str(archive),), warehouse=tmp_path / "w", embedder="none")
    assert rescore_archive(settings).counts.accepted == 2
    assert ask_rows(tmp_path / "w", "SELECT source_file, reasons, message FROM rejects") == [
        (f"{archive}/table", ["unreadable_file"], IS_TABLE)
    ]


@pytest.mark.parametrize("below", ["", "/*.parquet", "/part=1", "/part=1/*.parquet", "FILE"])
def test_a_delta_table_is_no_archive(tmp_path: Path, below: str) -> None:
    table = tmp_path / "table"
    pl.DataFrame({"id": ["1"], "part": [1]}).write_delta(
        table, delta_write_options={"partition_by": "part"}
    )
    [file] = map(str, table.rglob("*.parquet"))
    with pytest.raises(ArchiveError) as caught:
        discover([file if below == "FILE" else f"{table}{below}"])
    assert str(caught.value) == f"cannot list '{table}': {IS_TABLE}"


@pytest.mark.telling
@pytest.mark.process
def test_tables_and_warehouses_are_seen_in_buckets(bucket: str) -> None:
    names = ["a.jsonl", "t/_delta_log/0.json", "t/b.parquet"]
    names += ["w/facts/_delta_log/0.json", "w/facts/c.parquet", "w/kp.lock", "w/d.parquet"]
    for name in names:
        store_at(bucket).write(f"obstacles/{name}", b"x")
    skipped: list[str] = []
    files = discover([f"{bucket}/obstacles"], None, skipped.append)
    assert [(file.path, file.fault) for file in files] == [
        (f"{bucket}/obstacles/a.jsonl", ""),
        (f"{bucket}/obstacles/t", IS_TABLE),
    ]
    assert skipped == [f"{bucket}/obstacles/w"]
    for name in ("t", "w"):
        there = f"{bucket}/obstacles/{name}"
        with pytest.raises(ArchiveError, match=f"cannot list '{there}': .*it is a "):
            discover([there])
    store_at(bucket).write("_delta_log/0.json", b"x")
    for name in (bucket, f"{bucket}/", f"{bucket}/*.jsonl", f"{bucket}/**/*.jsonl"):
        with pytest.raises(ArchiveError, match=f"cannot list '{bucket}/': {IS_TABLE}"):
            discover([name])


@pytest.mark.slow
@pytest.mark.parametrize("counted", [0, 1, 2])
def test_the_first_unreadable_files_are_named_and_the_others_counted(
    tmp_path: Path, archive: Path, caplog: pytest.LogCaptureFixture, counted: int
) -> None:
    for number in range(5 + counted):
        (archive / f"empty-{number}.jsonl").touch()
    settings = RescoreConfig(archive=(str(archive),), warehouse=tmp_path / "w", embedder="none")
    rescore_archive(settings)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    lines = [line for line in warned if "unreadable" in line]
    empty = "is unreadable: the file is empty (0 bytes)"
    assert lines[:5] == [f"{archive}/empty-{number}.jsonl {empty}" for number in range(5)]
    look = f"kp-batch sql 'FROM rejects' --warehouse {tmp_path / 'w'}"
    are = "file is" if counted == 1 else "files are"
    more = f"{counted} more {are} unreadable; a run lists all of them: {look}"
    assert lines[5:] == ([more] if counted else [])


@pytest.mark.parametrize(
    ("name", "word"),
    [("~nosuch/x", "home"), ("a**b", "'**'")],
)
def test_a_name_that_cannot_be_looked_at(name: str, word: str) -> None:
    with pytest.raises(
        ArchiveError, match=re.escape(f"cannot read '{name}': ") + f".*{re.escape(word)}"
    ):
        discover([name])


_EXPORT = (
    "are not supported; name a folder, or one of s3://, gs://, az://, https://, http://; to "
    "import a registry's database, export it with psql: see docs/how-to/import.md\n"
)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("S3://me:s3cret@bucket/x", "URLs of S3:// are not supported"),
        ("postgresql://me:s3cret@host/x", f"URLs of postgresql:// {_EXPORT}"),
        ("Postgres://host/x?password=s3cret", f"URLs of Postgres:// {_EXPORT}"),
        ("s3://me:s3cret@[bucket]/x", "the URL of s3:// has credentials or a query"),
        ("s3://odd[bucket]/x", "the URL 's3://odd[bucket]/x' cannot be parsed: "),
    ],
)
def test_a_url_that_is_of_no_use_is_named_in_one_line_without_its_secret(
    tmp_path: Path, url: str, message: str
) -> None:
    for arguments in (
        ["run", url, "--warehouse", tmp_path / "warehouse"],
        ["run", tmp_path, "--warehouse", url],
        ["runs", "--warehouse", url],
        ["import", "otlp", url, "-o", tmp_path],
        ["import", "otlp", tmp_path, "-o", url],
    ):
        done = invoke(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"kp-batch: {message}"), done.stderr
        assert "s3cret" not in done.stderr


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_closed_terminal_ends_a_command_unless_nohup_began_it(
    monkeypatch: pytest.MonkeyPatch, before: signal.Handlers
) -> None:
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    monkeypatch.setattr(cli.kp_batch, "main", lambda **_: os.kill(os.getpid(), signal.SIGHUP))
    monkeypatch.setattr(sys, "argv", ["kp-batch", "runs"])
    signal.signal(signal.SIGHUP, before)
    try:
        with pytest.raises(SystemExit, match="0" if before == signal.SIG_IGN else "129"):
            cli.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_an_error_of_ours_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.kp_batch, "main", lambda **_: 1 // 0)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["kp-batch", "runs"])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    assert (
        capsys.readouterr().err
        == "kp-batch: unexpected ZeroDivisionError: integer division or modulo by zero\n"
    )


@pytest.mark.process
def test_polars_without_a_thread_is_reported_with_the_variable_to_set(
    tmp_path: Path, archive: Path
) -> None:
    command = [sys.executable, "-m", "kp_batch", "run", str(archive), "--embedder", "none"]
    own = {**os.environ, "POLARS_MAX_THREADS": "0", "KP_BATCH_WAREHOUSE": str(tmp_path / "w")}
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be set to 0; set POLARS_MAX_THREADS to 1 or more" in done.stderr
    assert "panicked" not in done.stderr
