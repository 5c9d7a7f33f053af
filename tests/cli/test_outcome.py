"""What `run --json` prints: one object, however the run ends."""

import json
import os
import signal
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kp_batch.cli.schema import schema_of
from tests.support.archives import trace, write_jsonl
from tests.support.commands import invoke, linux, reading, working
from tests.support.holding import HOLD, holding

pytestmark = pytest.mark.usefixtures("no_page")

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
    return ending, done.stderr.splitlines()[-1] if done.stderr else ""


def runs(folder: Path, to: str = "wh") -> list[tuple[str, str]]:
    listed = invoke("runs", "--warehouse", folder / to, "--format", "json")
    return [(row["run_id"], row["status"]) for row in json.loads(listed.stdout)]


@pytest.mark.telling
@pytest.mark.slow
def test_a_run_says_that_it_is_done_and_when(folder: Path) -> None:
    done, _ = ended(folder, "--max-reject-share", 1)
    assert (done["status"], done["reason"], done["counts"]["accepted"]) == ("done", None, 1)
    assert runs(folder) == [(done["run_id"], "done")]
    nothing, _ = ended(folder, "--max-reject-share", 1)
    assert (nothing["status"], nothing["run_id"], nothing["counts"]["accepted"]) == (
        "done",
        None,
        1,
    )


def test_a_run_beyond_a_limit_says_what_is_known_of_it(folder: Path) -> None:
    failed, error = ended(folder, status=1)
    assert error == f"kp-batch: {failed['reason']}"
    assert "--max-reject-share" in error
    assert (failed["status"], failed["counts"]["rejected"]) == ("failed", 1)
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
    preview, _ = ended(folder, *audits, "--preview", status=1)
    assert (preview["status"], preview["changes"]) == ("failed", True)
    assert preview["reason"].startswith("1 audit failed: always (1 row)")
    ended(folder, *audits, "--allow", "always")
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
    assert error == f"kp-batch: {failed['reason']}"
    assert (failed["counts"]["rejected"], failed["comparison"]) == (1, None)
    done, _ = ended(folder, "--preview", "--max-reject-share", 1)
    assert (done["status"], done["changes"]) == ("done", True)
    bad = folder / "archive" / "report.html"
    late, _ = ended(folder, "--preview", "--max-reject-share", 1, "-o", bad, status=1)
    assert "is in the archive" in late["reason"]


@pytest.mark.parametrize(
    ("options", "places", "status", "reason"),
    [
        ([], {"archive": "gone"}, 1, "no Parquet or JSONL file at"),
        ([], {"archive": "wh/archive"}, 1, "in the warehouse"),
        (["--profiles", "/gone.toml"], {}, 1, "the profiles file /gone.toml cannot be read"),
        (["--allow", "x"], {}, 1, "there is no audit 'x'"),
        (["--cache-size", 0], {}, 2, "--cache-size is at least 1, got 0"),
        (["--ttl", "soon"], {}, 2, "--ttl"),
        (["--ray", "127.0.0.1:1"], {}, 1, "Ray"),
    ],
)
def test_a_run_that_could_not_begin_says_why(
    folder: Path, options: Sequence[object], places: dict[str, str], status: int, reason: str
) -> None:
    failed, error = ended(folder, *options, **places, status=status)
    assert failed["reason"] in error
    assert reason in failed["reason"]
    assert (failed["status"], failed["run_id"], failed["counts"]) == ("failed", None, None)


@pytest.mark.telling
@pytest.mark.process
def test_a_run_says_that_another_one_writes(folder: Path) -> None:
    (folder / "wh").mkdir()
    with holding(HOLD, folder / "wh"):
        busy, error = ended(folder, status=1)
    assert error == f"kp-batch: {busy['reason']}"


@pytest.mark.telling
@linux
@pytest.mark.process
def test_a_run_that_is_ended_says_so(folder: Path) -> None:
    os.mkfifo(folder / "profiles")
    options = ("--warehouse", folder / "wh", "--profiles", folder / "profiles", "--json")
    with working("run", folder / "archive", *options) as process, reading(folder / "profiles"):
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    failed = json.loads(out)
    Draft202012Validator(schema_of("run")).validate(failed)
    assert (process.returncode, failed["reason"]) == (143, "ended by SIGTERM")
