"""What a run with --quiet tells: once, and again when it changes; nothing while all stays."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kp_batch.log import info, show_on_stderr, show_only_new_warnings
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.runs.run import effective_config
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.processes.commands import restored_log
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

OPTIONS = {"embedder": "none", "max_reject_share": 1, "max_removed": "100%"}
WEIGHTS = {"complexity": 0.1, "novelty": 0.2, "tool_diversity": 0.3, "outcome_confidence": 0.4}
LAST = {"last": {"sql": "SELECT max(trace_id) AS last FROM scores", "severity": "warn"}}

NO_ROW = {"none": {"sql": "SELECT 1 WHERE false"}}


def write(folder: Path, name: str, *ids: str, **changes: Any) -> None:
    write_jsonl(folder / "archive" / f"{name}.jsonl", [trace(id=each, **changes) for each in ids])


def leave_warehouse(folder: Path, name: str) -> None:
    other = folder / "archive" / name
    other.mkdir()
    (other / "kp.lock").touch()


def profile(*names: str) -> dict[str, Any]:
    return {"default": WEIGHTS, **dict.fromkeys(names, WEIGHTS)}


def damage(folder: Path, content: bytes) -> None:
    (folder / "archive" / "c.parquet").write_bytes(content)


def leave_six_empty(folder: Path) -> None:
    for number in range(6):
        (folder / "archive" / f"{number}.parquet").write_bytes(b"")


def cut(folder: Path, *ids: str) -> None:
    whole = b"".join(json.dumps(trace(id=each)).encode() + b"\n" for each in ids)
    (folder / "archive" / "c.jsonl").write_bytes(whole + b'{"id": ')


def mark(folder: Path, *, is_left: bool) -> None:
    marker = folder / "warehouse" / "forgetting"
    marker.touch() if is_left else marker.unlink()


@dataclass(frozen=True)
class Night:
    """What happens before a night, its options, and what each line of stderr has."""

    happens: Callable[[Path], object] = lambda _: None
    warnings: tuple[str, ...] = ()
    changes: Any = None


AGAIN = Night()
PRUNE: dict[str, Any] = {"prune": True}
NO_X: dict[str, Any] = {"exclude": ("x*", "b.jsonl")}
# After a night over a.jsonl with the traces a1 to a4, and b.jsonl with b1 and b2.
NIGHTS: dict[str, list[Night]] = {
    "nothing": [AGAIN, Night(lambda folder: write(folder, "new", "n1")), AGAIN],
    "a file that is unreadable": [
        Night(lambda folder: damage(folder, b""), ("c.parquet is unreadable: the file is empty",)),
        AGAIN,
        Night(lambda folder: damage(folder, b"PAR1, no more"), ("c.parquet is unreadable: ",)),
        AGAIN,
        Night(
            leave_six_empty,
            (
                *(f"/{number}.parquet is unreadable" for number in range(5)),
                "2 more files are unreadable; ",
            ),
        ),
        AGAIN,
    ],
    "a file that is cut": [
        Night(lambda folder: cut(folder, "c1"), ("c.jsonl is cut: it ends within a line",)),
        AGAIN,
    ],
    "another warehouse in the archive": [
        Night(lambda folder: leave_warehouse(folder, "wh"), ("archive/wh is skipped: it is a w",)),
        AGAIN,
        Night(lambda folder: write(folder, "new", "n1")),
        Night(lambda folder: leave_warehouse(folder, "x"), ("archive/x is skipped: it is a w",)),
        AGAIN,
        Night(lambda folder: (folder / "archive" / "x" / "kp.lock").unlink()),
        Night(lambda folder: (folder / "archive" / "x" / "kp.lock").touch(), ("x is skipped",)),
        AGAIN,
        Night(
            lambda folder: (folder / "warehouse" / "known-warnings.json").write_text('{"a": [1]}'),
            ("wh is skipped", "x is skipped"),
        ),
        AGAIN,
    ],
    "a glob that excludes nothing": [
        Night(warnings=("--exclude 'x*' matches no file: a glob matches whole",), changes=NO_X),
        Night(changes=NO_X),
        Night(lambda folder: write(folder, "x", "x1"), changes=NO_X),
        Night(
            lambda folder: (folder / "archive" / "x.jsonl").unlink(),
            ("--exclude 'x*' matches no file",),
            NO_X,
        ),
        Night(changes=NO_X),
        # What was read and is gone is excluded all the same.
        Night(lambda folder: (folder / "archive" / "b.jsonl").unlink(), changes=NO_X),
        Night(
            warnings=("--exclude 'no*.jsonl' matches no file",),
            changes={"exclude": ("x*", "no*.jsonl")},
        ),
    ],
    "a forget that was not finished": [
        Night(lambda folder: mark(folder, is_left=True), ("a kp-batch forget did not finish",)),
        AGAIN,
        Night(lambda folder: mark(folder, is_left=False)),
        Night(lambda folder: mark(folder, is_left=True), ("a kp-batch forget did not finish",)),
        AGAIN,
    ],
    "an audit that warns": [
        Night(
            warnings=("settings changed: audit last new", 'audit last found 1 row: {"last":"b2"}'),
            changes={"audits": LAST},
        ),
        AGAIN,
        Night(
            lambda folder: write(folder, "new", "n1"), ('audit last found 1 row: {"last":"n1"}',)
        ),
        AGAIN,
    ],
    "traces of the future": [
        Night(
            lambda folder: write(folder, "new", "n1", created_at="2999-01-01T00:00:00Z"),
            ("traces are dated in the future: 1 partition: 2999-01-01",),
        ),
        AGAIN,
        Night(
            lambda folder: write(folder, "newer", "n2", created_at="2999-01-02T00:00:00Z"),
            ("traces are dated in the future: ",),
        ),
        AGAIN,
    ],
    "half of the archive lost": [
        Night(
            lambda folder: (folder / "archive" / "a.jsonl").unlink(),
            ("lost at least half of its rows",),
        ),
        AGAIN,
        Night(
            lambda folder: write(folder, "b", "b1"),
            ("it has 1 now, and had 2; ", "1 published trace is removed, "),
        ),
    ],
    "new weights of no trace": [
        Night(
            warnings=("; weights of law: new", "no trace has the domain law"),
            changes={"profiles": profile("law")},
        ),
        AGAIN,
        Night(
            warnings=(
                "settings changed: weights of art: new",
                "no trace has the domain art",
                "no trace has the domain law",
            ),
            changes={"profiles": profile("law", "art")},
        ),
        AGAIN,
    ],
    "settings that change, and are taken back": [
        Night(
            warnings=("settings changed: cache size 1000 to 7; threshold 0.75 to 0.5; audit no",),
            changes={"cache_size": 7, "threshold": 0.5, "audits": NO_ROW},
        ),
        AGAIN,
        Night(
            lambda folder: (folder / "archive" / "b.jsonl").unlink(),
            warnings=("settings changed: cache size 7 to 1000; audit none gone",),
            changes={"cache_size": 1000, "audits": {}},
        ),
        AGAIN,
    ],
    "a file replaced by another's content": [
        Night(
            lambda folder: write(folder, "b", "x1", "x2"),
            (
                (
                    "2 published traces are removed, because no file of the archive contains "
                    "them any more (such as b1 of /"
                ),
            ),
        ),
        AGAIN,
        Night(lambda folder: write(folder, "b", "x1"), ("1 published trace is removed, because",)),
        AGAIN,
    ],
    "a row that is rejected now": [
        Night(
            lambda folder: write(folder, "b", "b1", "b2", steps=[]), ("2 published traces are r",)
        ),
        AGAIN,
    ],
    "files that are pruned": [
        Night(
            lambda folder: (folder / "archive" / "b.jsonl").unlink(),
            ("2 published traces are removed because of --prune (such as b",),
            PRUNE,
        ),
        Night(changes=PRUNE),
        AGAIN,
        # Of both kinds in one night.
        Night(lambda folder: write(folder, "c", "c1"), changes=PRUNE),
        Night(
            lambda folder: (
                write(folder, "a", "a1", "a2", "a3"),
                (folder / "archive" / "c.jsonl").unlink(),
            ),
            (
                "1 published trace is removed, because",
                "1 published trace is removed because of --prune",
            ),
            PRUNE,
        ),
        Night(changes=PRUNE),
    ],
    "a file that is gone without --prune": [
        Night(lambda folder: (folder / "archive" / "b.jsonl").unlink()),
        AGAIN,
    ],
    "a trace with other content in a later file, which takes its place": [
        Night(lambda folder: write(folder, "c", "b1", objective="Another", confidence=0.1)),
        AGAIN,
    ],
    "a file renamed, and one copied": [
        Night(lambda folder: (folder / "archive" / "b.jsonl").rename(folder / "archive/r.jsonl")),
        AGAIN,
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quiet") / "made"
    write(folder, "a", "a1", "a2", "a3", "a4")
    write(folder, "b", "b1", "b2")
    rescore_archive(config(folder, folder / "archive", **OPTIONS))
    keep(folder)
    return folder


def night(folder: Path, capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    """What a run with --quiet writes to stderr."""
    with restored_log():
        show_on_stderr()
        show_only_new_warnings()
        settings = config(folder, folder / "archive", **OPTIONS, **changes)
        rescore_archive(effective_config(settings))
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("trouble", NIGHTS)
def test_each_warning_is_shown_once_and_again_when_it_changes(
    made: Path, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    restore(made)
    for number, each in enumerate(NIGHTS[trouble]):
        each.happens(made)
        lines = night(made, capsys, **(each.changes or {}))
        assert len(lines) == len(each.warnings), (number, lines)
        for line, wanted in zip(lines, each.warnings, strict=True):
            assert wanted in line, number


def test_the_brief_message_is_shown_if_the_long_one_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with restored_log():
        show_on_stderr()
        for words in ("at length", "no more"):
            info(words)
            info("in brief", in_brief=True)
            show_only_new_warnings()
    assert capsys.readouterr().err == "kp-batch: at length\nkp-batch: in brief\n"
