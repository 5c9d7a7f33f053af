"""What `run --json` prints: one object, however the run ends."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kp_batch.cli import supervise
from kp_batch.errors import BusyError, EncoderError, StorageError, WarehouseError
from kp_batch.operations.preview import Preview
from kp_batch.warehouse.run_record import RunCounts
from kp_batch.warehouse.run_result import RunResult
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import blocked_file, invoke, linux, working
from tests.support.processes.holder import HOLD, holding
from tests.support.read.schemas import schema_of

MAIN = "from kp_batch.cli import main; main()"
COUNTS = RunCounts(
    **{name: 0 for name, kind in RunCounts.__annotations__.items() if kind is int},
    rejected_by_code={},
    unreadable_files=[],
)
ALWAYS = "[audits.always]\nsql = 'SELECT count(*) AS n FROM scores'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive of one trace and one faulty row, and a file of audits that fail."""
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="a"), trace(id="", steps=[])])
    (tmp_path / "audits.toml").write_text(ALWAYS)
    return tmp_path


def ended(
    folder: Path, *options: object, archive: str = "archive", to: str = "wh", status: int = 0
) -> tuple[dict[str, Any], str]:
    """The object that a run prints, which is of its schema, and the last line on stderr."""
    places = [folder / archive, "--warehouse", folder / to, "--embedder", "none", "--no-prefect"]
    done = invoke("run", *places, "--json", *options)
    assert done.returncode == status, done.stderr
    [line] = done.stdout.splitlines()
    ending = json.loads(line)
    name = "preview" if "--preview" in options else "run"
    Draft202012Validator(schema_of(name)).validate(ending)
    began, finished = (datetime.fromisoformat(ending[at]) for at in ("started_at", "finished_at"))
    assert began <= finished
    assert began.tzinfo
    assert ending["warehouse"] == str(folder / to)
    assert ending["version"] == version("kp-batch")
    return ending, done.stderr.splitlines()[-1] if done.stderr else ""


def how(ending: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """How a run ended, the code, and the reason as stderr has it."""
    reason = ending["reason"]
    return ending["status"], ending["code"], reason and f"kp-batch: {reason}"


def runs(folder: Path, to: str = "wh") -> list[tuple[str, str]]:
    listed = invoke("runs", "--warehouse", folder / to, "--json")
    return [(row["run_id"], row["status"]) for row in json.loads(listed.stdout)]


@pytest.mark.telling
@pytest.mark.slow
def test_a_run_says_that_it_is_done_and_when(folder: Path) -> None:
    done, _ = ended(folder, "--max-reject-share", 1)
    assert how(done) == ("done", None, None)
    assert done["counts"]["accepted"] == 1
    assert runs(folder) == [(done["run_id"], "done")]
    nothing, _ = ended(folder, "--max-reject-share", 1)
    assert how(nothing) == ("nothing_to_do", None, None)
    assert (nothing["run_id"], nothing["counts"]["accepted"]) == (None, 1)


def test_a_run_beyond_a_limit_says_what_is_known_of_it(folder: Path) -> None:
    failed, error = ended(folder, status=1)
    assert error == f"kp-batch: {failed['reason']}"
    assert "--max-reject-share" in error
    assert how(failed) == ("refused", "max_reject_share", error)
    assert failed["counts"]["rejected"] == 1
    assert runs(folder) == [(failed["run_id"], "failed")]
    assert failed["seconds"].keys() >= {"read", "plan", "start"}
    assert (failed["scores"], failed["audits"]) == ([], [])


@pytest.mark.telling
@pytest.mark.slow
def test_a_run_whose_audits_fail_has_their_results(folder: Path) -> None:
    audits = ("--max-reject-share", 1, "--audits", folder / "audits.toml")
    failed, error = ended(folder, *audits, status=1)
    assert error == f"kp-batch: {failed['reason']}"
    assert [(each["rows"], each["first"]) for each in failed["audits"]] == [(1, ['{"n":1}'])]
    assert runs(folder) == [(failed["run_id"], "failed")]
    assert how(failed) == ("refused", "audit", error)
    preview, error = ended(folder, *audits, "--preview", status=1)
    assert (how(preview), preview["changes"]) == (("refused", "audit", error), True)
    assert preview["reason"].startswith("1 audit failed: always (1 row)")
    ended(folder, *audits, "--allow-audit", "always")
    nothing, _ = ended(folder, "--max-reject-share", 1, status=1)  # which leaves no row in `runs`
    assert (nothing["run_id"], nothing["counts"]["accepted"], len(nothing["audits"])) == (
        None,
        1,
        1,
    )


@pytest.mark.telling
@pytest.mark.slow
def test_a_preview_prints_one_object_if_it_fails_as_well(folder: Path) -> None:
    failed, error = ended(folder, "--preview", status=1)
    assert how(failed) == ("refused", "max_reject_share", error)
    assert (failed["counts"]["rejected"], failed["comparison"]) == (1, None)
    done, _ = ended(folder, "--preview", "--max-reject-share", 1)
    assert (done["status"], done["changes"]) == ("done", True)
    ended(folder, "--max-reject-share", 1)
    nothing, _ = ended(folder, "--preview", "--max-reject-share", 1)
    assert (nothing["status"], nothing["changes"]) == ("nothing_to_do", False)
    bad = folder / "archive" / "report.html"
    late, _ = ended(folder, "--preview", "--max-reject-share", 1, "-o", bad, status=1)
    assert "is in the archive" in late["reason"]


@pytest.mark.parametrize("options", [[], ["--json"], ["--quiet"]], ids=str)
@pytest.mark.parametrize("fails", [False, True], ids=["whole", "full"])
def test_a_preview_is_printed_once_its_report_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], *, fails: bool
) -> None:
    """Else a kill meanwhile would be a mere warning."""
    calls: list[str] = []

    def preview(_config: object, _executor: object, on_result: Callable[[Preview], None]) -> None:
        on_result(Preview.here("nothing_to_do", warehouse="wh", counts=COUNTS))
        calls.append("written")
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device", "report.html")

    monkeypatch.setattr("kp_batch.operations.preview.preview", preview)

    def send(**facts: Any) -> None:
        supervise.send(**facts)
        calls.extend({*facts} & {"printed"})

    for module in ("run", "outcome"):
        monkeypatch.setattr(f"kp_batch.cli.{module}.send", send)
    words = ["--warehouse", folder / "wh", "--no-prefect", "--preview", "-o", folder / "r.html"]
    done = invoke("run", folder / "archive", *words, *options)
    assert done.returncode == fails
    assert calls == (["written"] if fails else ["written", "printed"])
    assert len(done.stdout.splitlines()) == ("--quiet" not in options)
    assert done.stderr.count(" is full") == fails
    if "--json" in options:
        assert json.loads(done.stdout)["code"] == ("disk_full" if fails else None)
        assert json.loads(done.stdout)["counts"]


@pytest.mark.parametrize(
    ("options", "places", "how_it_ended", "reason"),
    [
        ([], {"archive": "gone"}, "1 could_not_begin no_archive", "no Parquet or JSONL file at"),
        ([], {"archive": "wh/archive"}, "1 could_not_begin warehouse", "in the warehouse"),
        (["--profiles", "/no.toml"], {}, "1 refused weights", "the profiles file /no.toml cannot"),
        (["--audits", "/no.toml"], {}, "1 refused audits", "the audits file /no.toml cannot"),
        (["--allow-audit", "x"], {}, "1 refused settings", "there is no audit 'x'"),
        (["--cache-size", 0], {}, "2 refused settings", "--cache-size must be at least 1, got 0"),
        (["--ttl", "soon"], {}, "2 refused settings", "--ttl"),
        (["--ray", "127.0.0.1:1"], {}, "1 could_not_begin ray", "Ray"),
    ],
)
def test_a_run_that_could_not_begin_says_why(
    folder: Path,
    options: Sequence[object],
    places: dict[str, str],
    how_it_ended: str,
    reason: str,
) -> None:
    status = int(how_it_ended[0])
    failed, error = ended(folder, *options, **places, status=status)
    assert failed["reason"] in error
    assert reason in failed["reason"]
    assert f"{status} {failed['status']} {failed['code']}" == how_it_ended
    assert (failed["run_id"], failed["counts"]) == (None, None)


@pytest.mark.parametrize(
    "words",
    [["a", "--json"], ["a", "--json", "--preview", "--maximum=1"]],
    ids=str,
)
def test_a_command_that_cannot_be_read_owes_its_object_as_well(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KP_BATCH_WAREHOUSE", raising=False)
    refused = invoke("run", *words)
    ending = json.loads(refused.stdout)
    Draft202012Validator(schema_of("preview" if "--preview" in words else "run")).validate(ending)
    assert refused.returncode == 2
    assert (ending["status"], ending["code"], ending["warehouse"]) == ("refused", "settings", None)
    assert ending["reason"] in refused.stderr
    assert invoke("run", *words[:1], "--", "--json").stdout == ""


@pytest.mark.parametrize(
    ("error", "begun", "expected"),
    [
        (OSError(28, "No space left on device"), False, "failed disk_full"),
        (OSError(13, "Permission denied"), False, "could_not_begin no_access"),
        (OSError(13, "Permission denied"), True, "failed no_access"),
        (WarehouseError("damaged"), False, "could_not_begin warehouse"),
        (StorageError("it failed 4 times"), False, "failed storage"),
        (BusyError("another run"), False, "could_not_begin busy"),
        (EncoderError("no model"), False, "could_not_begin encoder"),
        (ZeroDivisionError("division"), False, "failed crash"),
        (MemoryError(), True, "failed memory"),
        (KeyboardInterrupt(), True, "stopped signal"),
    ],
)
def test_what_ends_a_run_has_a_status_and_a_code(
    error: BaseException, *, begun: bool, expected: str
) -> None:
    ending = RunResult.here("running").failed(error, begun=begun)
    assert f"{ending.status} {ending.code}" == expected
    assert not ending.is_good


@pytest.mark.telling
@pytest.mark.process
def test_a_run_says_that_another_one_writes(folder: Path) -> None:
    (folder / "wh").mkdir()
    with holding(HOLD, folder / "wh"):
        busy, error = ended(folder, "--wait", "1s", status=1)
    assert how(busy) == ("could_not_begin", "busy", error)
    assert "this command has waited for 1 s" in error


@pytest.mark.telling
@linux
@pytest.mark.process
def test_a_run_that_is_ended_says_so(folder: Path) -> None:
    (folder / "profiles").touch()
    options = ("--warehouse", folder / "wh", "--profiles", folder / "profiles", "--json")
    with (
        blocked_file(folder / "profiles") as until_read,
        working("run", folder / "archive", *options) as process,
    ):
        until_read()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    failed = json.loads(out)
    Draft202012Validator(schema_of("run")).validate(failed)
    assert process.returncode == 143
    assert how(failed) == ("stopped", "signal", "kp-batch: ended by SIGTERM")


@pytest.mark.telling
@pytest.mark.process
def test_the_supervisor_prints_what_a_command_owes_that_it_cannot_start(folder: Path) -> None:
    environment = os.environ | {"TMPDIR": str(folder / "gone"), "TMP": "", "TEMP": ""}
    code = f"import sys, tempfile; tempfile.tempdir = {str(folder / 'gone')!r}; {MAIN}"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "a", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = json.loads(done.stdout)
    Draft202012Validator(schema_of("run")).validate(failed)
    assert (done.returncode, failed["status"]) == (1, "could_not_begin")
    assert done.stderr == f"kp-batch: {failed['reason']}\n"
