"""What is refused and what only waits: reported each night, and limited."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.model import Format, Refused, SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import KpBatchError
from kp_batch.imports.change import ArchiveChange
from kp_batch.imports.import_limits import ImportLimits
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported, as_text
from tests.support import ROOT
from tests.support.imports.importing import (
    RULES,
    imported,
    kp_trace,
    refusals,
    span,
    spans_format,
    write_json,
    write_lines,
)
from tests.support.processes.commands import invoke

NONE = ImportLimits(max_refused="0", max_unreadable="0")
SPANS = ROOT / "data" / "spans.jsonl"


def spans() -> Format:
    """The spans of `test_importing`, of which a trace is whole once its root is there."""
    form = spans_format()

    def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Any:
        if not any("root" in str(record.payload) for record in records):
            return Refused(["incomplete", "no_steps"], "no root yet", id=f"kp:trace:{trace}")
        result = form.draft(trace, records, rules)
        return replace(result, id=f"kp:trace:{trace}") if isinstance(result, TraceDraft) else result

    return replace(form, draft=draft)


def root(trace: str, second: int) -> dict[str, Any]:
    return {**span(trace, second), "kind": "root"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two whole traces, two that no rule can decide, a torn line, and a trace that waits."""
    folder = tmp_path / "source"
    write_lines(folder / "1.jsonl", [root("a", 1), root("b", 2), span("waits", 3)])
    write_lines(folder / "2.jsonl", [{**root("odd", 4), "at": 5}, {**root("odder", 4), "at": 5}])
    with (folder / "2.jsonl").open("a") as file:
        file.write('{"cut\n')
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def import_all(source: Path, archive: Path, limits: ImportLimits = ImportLimits()) -> Imported:  # noqa: B008
    return import_traces(spans(), [str(source)], archive, load_rules(None, RULES), limits)


def days(archive: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in archive.glob("*.parquet")}


def test_waiting_traces_are_counted_apart_from_refused_ones(source: Path, archive: Path) -> None:
    done = import_all(source, archive)
    assert done.refused == {"bad_created_at": 2, "malformed_json": 1}
    assert done.waiting == {"incomplete": 1, "no_steps": 1}
    assert [refusal["id"] for refusal in refusals(archive)] == [
        "kp:trace:odd",
        "kp:trace:odder",
        None,
    ]
    [waiting] = refusals(archive, "waiting")
    assert waiting == {
        "id": "kp:trace:waits",
        "file": f"{source}/1.jsonl",
        "line": None,
        "reasons": ["incomplete", "no_steps"],
        "message": "no root yet",
    }
    write_lines(source / "3.jsonl", [root("waits", 4)])
    assert import_all(source, archive).unresolved == {"refused": 3, "waiting": 0}
    assert refusals(archive, "waiting") == []


def test_lists_that_were_changed_or_lost_are_written_anew(source: Path, archive: Path) -> None:
    import_all(source, archive)
    texts = [(archive / f"_{kind}.jsonl").read_text() for kind in ("refused", "waiting")]
    (archive / "_refused.jsonl").write_text("{cut")
    (archive / "_waiting.jsonl").unlink()
    write_lines(source / "3.jsonl", [root("c", 4)])
    import_all(source, archive)
    assert [(archive / f"_{kind}.jsonl").read_text() for kind in ("refused", "waiting")] == texts


def test_refusals_of_an_import_that_was_killed_before_it_stored_anything_are_gone(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveChange, "store", killed)
        with pytest.raises(KeyboardInterrupt):
            import_all(source, archive)
    assert len(refusals(archive)) == 3
    write_lines(source / "2.jsonl", [{**root("odd", 4), "at": 5}])
    assert import_all(source, archive).unresolved == {"refused": 1, "waiting": 1}
    assert [refusal["id"] for refusal in refusals(archive)] == ["kp:trace:odd"]


def test_all_refusals_are_reported_each_night_in_one_line(source: Path, archive: Path) -> None:
    import_all(source, archive)
    for _ in range(2):
        done = import_all(source, archive)
        assert (done.files_read, done.unresolved) == (0, {"refused": 3, "waiting": 1})
        assert as_text(done, "x").splitlines()[-1] == (
            "  unresolved 3 refused, 1 waiting: see x/_refused.jsonl, x/_waiting.jsonl"
        )
    write_lines(source / "1.jsonl", [root("a", 1), root("waits", 3)])
    write_lines(source / "2.jsonl", [root("c", 4)])
    for _ in range(2):
        done = import_all(source, archive)
        assert done.unresolved == {"refused": 2, "waiting": 0}
        assert as_text(done, "x").splitlines()[-1] == (
            "  unresolved 2 refused: see x/_refused.jsonl"
        )


@pytest.mark.parametrize("limit", ["3", "60%", "100%", None])
def test_an_import_within_its_limit_changes_its_archive(
    source: Path, archive: Path, limit: str | None
) -> None:
    (source / "4.jsonl").touch()
    assert (
        import_all(
            source, archive, ImportLimits(max_refused=limit, max_unreadable=limit and "1")
        ).traces
        == 2
    )


@pytest.mark.parametrize("limit", ["0", "2", "59%"])
def test_an_import_that_refuses_more_than_its_limit_changes_nothing_and_says_how_to_allow_it(
    source: Path, archive: Path, limit: str
) -> None:
    first = source.rename(source.with_name("first"))
    write_lines(source / "0.jsonl", [root("before", 1), root("a", 9)])
    import_all(source, archive)
    before = days(archive)
    (source / "0.jsonl").rename(first / "0.jsonl")
    for _ in range(2):
        with pytest.raises(KpBatchError) as failed:
            import_all(first, archive, ImportLimits(max_refused=limit))
        assert str(failed.value).startswith("3 of ")
        assert (
            f"more than --max-refused {limit} allows (such as {first}/2.jsonl: it is not JSON"
            in str(failed.value)
        )
        assert str(failed.value).endswith(
            "; no trace is imported; _refused.jsonl in the archive lists all of them; to allow it "
            "this once: --max-refused 3"
        )
        assert days(archive) == before
        assert len(refusals(archive)) == 3
    import_all(first, archive, ImportLimits(max_refused="3"))
    assert len(imported(archive)) == 3
    assert import_all(first, archive, NONE).unresolved["refused"] == 3  # which is allowed by now


def test_a_file_that_cannot_be_read_fails_each_night_that_allows_none(
    source: Path, archive: Path
) -> None:
    limits = ImportLimits(max_unreadable="0")
    import_all(source, archive, limits)
    write_lines(source / "3.jsonl", [root("c", 4)])
    (source / "4.jsonl").touch()
    for _ in range(2):
        with pytest.raises(
            KpBatchError, match=r"^1 of 4 files is unreadable, more than --max-unre"
        ):
            import_all(source, archive, limits)
    assert len(imported(archive)) == 2
    for _ in range(2):
        assert import_all(
            source, archive, ImportLimits(max_refused="0", max_unreadable="25%")
        ).refused == {"unreadable_file": 1}
    assert len(imported(archive)) == 3


def test_what_waits_is_neither_refused_nor_unreadable(source: Path, archive: Path) -> None:
    (source / "2.jsonl").unlink()
    assert import_all(source, archive, NONE).waiting == {"incomplete": 1, "no_steps": 1}


def test_the_command_prints_warnings_and_progress_without_a_terminal_too(archive: Path) -> None:
    rules = ("--success", "score:correct:1", "--confidence", "score:correct:0:1", "--domain", "=x")
    twice = (
        "the score 'correct' decides both success and confidence, so it counts twice; name "
        "another score for one of them, unless you want that"
    )
    done = invoke("import", "otlp", SPANS, "-o", archive, *rules)
    assert done.stderr.splitlines() == [
        f"kp-batch: warning: {twice}",
        "kp-batch: reading: 1 file",
    ]
    assert invoke("import", "otlp", SPANS, "-o", archive, *rules).stderr.count("\n") == 1


def test_an_import_that_refuses_all_for_want_of_a_rule_names_its_option(
    archive: Path,
) -> None:
    rules = ("--success", "always", "--confidence", "0.8")
    arguments = ("import", "otlp", SPANS, "-o", archive, *rules)
    done = invoke(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "kp-batch: no trace is imported, because the source lacks task_domain; "
        "add --domain FIELD, or --domain =DOMAIN for all"
    )
    assert not (archive / "_refused.jsonl").exists()
    told = [
        line for line in invoke(*arguments, "--domain", "=x").stdout.splitlines() if "rule" in line
    ]
    assert told == [
        "  rule       success: always True",
        "  rule       confidence: always 0.8",
        "  rule       task_domain: otherwise x",
    ]


def test_a_registry_whose_only_new_unit_lacks_its_domain_fails_no_night(
    tmp_path: Path, archive: Path
) -> None:
    unit = kp_trace("a")
    write_json(tmp_path / "a.json", {**unit, "metadata": {**unit["metadata"], "task_domain": None}})
    done = invoke("import", "knowledgepulse", tmp_path / "a.json", "-o", archive)
    assert done.returncode == 0
    [refusal] = refusals(archive)
    assert refusal["message"]


def test_a_refusal_for_want_of_a_rule_among_others_says_so(source: Path, archive: Path) -> None:
    form = spans()

    def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Any:
        result = form.draft(trace, records, rules)
        is_named = isinstance(result, TraceDraft) and trace == "a"
        return replace(result, task_domain="x") if is_named else result

    rules = load_rules(None, {**RULES, "task_domain": None})
    done = import_traces(replace(form, draft=draft), [str(source)], archive, rules)
    assert done.traces == 1
    messages = {refusal["id"]: refusal["message"] for refusal in refusals(archive)}
    assert "no rule decides it: give --domain FIELD" in messages["kp:trace:b"]
    assert all(messages.values())


def test_the_command_takes_limits(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "cut.json").write_text("{")
    write_json(tmp_path / "source" / "a.json", kp_trace("a"))
    arguments = ("knowledgepulse", tmp_path / "source", "-o", archive)
    done = invoke("import", *arguments, "--max-refused", "0", "--max-unreadable", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(
        "kp-batch: 1 of 2 files is unreadable, more than --max-unreadable 0 allows (such as "
    )
    assert invoke("import", *arguments, "--max-unreadable", "1").returncode == 0
    for wrong_limit in ("few", ""):
        wrong = invoke("import", *arguments, "--max-refused", wrong_limit)
        assert wrong.returncode == 2
        assert "--max-refused: a limit must be a number" in wrong.stderr
