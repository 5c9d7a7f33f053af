"""A newer importer: what it reads again, and what it makes of what it cannot read any more."""

import gzip
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kp_batch.imports.state import ImportState

from kp_batch.conversion.model import Format, SourceRecord, by_ending
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import KpBatchError
from kp_batch.imports import importing
from kp_batch.imports.days import DailyPartitions
from kp_batch.imports.import_limits import ImportLimits
from kp_batch.imports.importing import forget, import_traces
from kp_batch.imports.summary import Imported, as_text
from tests.support.importing import (
    RULES,
    import_all,
    imported,
    kp_trace,
    older_importer,
    older_spans,
    refusals,
    said,
    span,
    spans_format,
    write_json,
    write_lines,
)


class Machine:
    """Imports by an older version, and by this one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.archive = folder / "source", folder / "archive"
        self._folder, self._patch = folder, monkeypatch
        self.form, self.older = spans_format(), older_spans
        self.rules: dict[str, Any] = {}

    def write(self, name: str, *spans: dict[str, Any]) -> None:
        write_lines(self.source / name, list(spans))

    def before(self, *names: str) -> Imported:
        """Import as the older version does."""
        sessions = self.form.sessions and self.older
        form = replace(self.form, records=self.older, sessions=sessions)
        with older_importer():
            return self._import(form, names)

    def forget_before(self, *names: str) -> None:
        """Forget what the older version has read of files."""
        with self._patch.context() as patch:
            patch.setattr(importing, "FORMATS", {"spans": self.form})
            forget(self.archive, files=[str(self.source / name) for name in names])

    def now(self, *names: str, limits: ImportLimits = ImportLimits()) -> Imported:  # noqa: B008
        """Import as this version does."""
        return self._import(self.form, names, limits)

    def fresh(self) -> dict[str, bytes]:
        """What this version makes of the sources."""
        archive = self._folder / "fresh"
        import_traces(self.form, [str(self.source)], archive, self._loaded)
        return contents(archive)

    @property
    def _loaded(self) -> Rules:
        return load_rules(None, {**RULES, **self.rules})

    def _import(
        self,
        form: Format,
        names: Sequence[str],
        limits: ImportLimits = ImportLimits(),  # noqa: B008
    ) -> Imported:
        sources = [str(self.source / name) for name in names] or [str(self.source)]
        return import_traces(form, sources, self.archive, self._loaded, limits)


def contents(archive: Path) -> dict[str, bytes]:
    """The days, and the lists of what is refused and what waits."""
    files = [*archive.glob("*.parquet"), *archive.glob("_*.jsonl")]
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Three files: two of them tell of the same trace, and one has what is refused."""
    machine = Machine(tmp_path, monkeypatch)
    machine.write("1.jsonl", span("a", 1), span("b", 2))
    machine.write("2.jsonl", span("b", 3), span("c", 4))
    machine.write("3.jsonl", span("d", 5), {**span("odd", 6), "at": "never"})
    return machine


@pytest.mark.parametrize("nights", [[""], ["2.jsonl", "1.jsonl", "3.jsonl"]])
def test_what_is_there_is_read_again_and_makes_what_a_new_import_makes(
    machine: Machine, nights: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in nights:
        machine.before(name)
    assert said(machine.archive)["a"] == ["11"]
    done = machine.now()
    assert (done.files_read, done.files_again, done.traces, done.kept) == (3, 3, 4, 0)
    assert contents(machine.archive) == machine.fresh()
    assert "earlier version" not in caplog.text
    assert "kept" not in as_text(done, "x")
    again = machine.now()
    assert (again.files_read, again.traces, again.files_changed) == (0, 0, 0)


def test_what_is_gone_is_made_of_what_was_read_and_told(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.before()
    for name in ("1.jsonl", "2.jsonl"):
        (machine.source / name).unlink()
    done = machine.now()
    assert (done.files_read, done.traces, done.kept) == (1, 4, 3)
    assert said(machine.archive) == {"a": ["11"], "old-b": ["22", "33"], "c": ["44"], "d": ["5"]}
    assert "  kept       3 traces as an earlier version has read them" in as_text(done, "x")
    assert caplog.messages[-1] == (
        "3 traces are made of what an earlier version of kp-batch has read: not all of their "
        f"sources could be read again, such as {machine.source}/1.jsonl; if you have them "
        "elsewhere, import them again"
    )
    assert machine.now().kept == 0


def test_files_are_told_by_why_they_are_read(machine: Machine) -> None:
    machine.before()
    machine.write("4.jsonl", span("e", 7))
    machine.write("3.jsonl", span("d", 8))
    first, *_ = as_text(machine.now(), "x").splitlines()
    assert first == (
        "5 traces from 4 of 4 files: 2 new or changed, 2 that an earlier version has read"
    )
    machine.write("4.jsonl", span("e", 9))
    first, *_ = as_text(machine.now(), "x").splitlines()
    assert first == "1 trace from 1 of 4 files that are new or changed"


@pytest.mark.parametrize("order", [*permutations(("1.jsonl", "2.jsonl", "3.jsonl"))])
def test_what_comes_back_later_is_read_then(machine: Machine, order: Sequence[str]) -> None:
    machine.before()
    for name in order:
        machine.now(name)
    assert contents(machine.archive) == machine.fresh()


@pytest.mark.parametrize("name", ["0.jsonl", "4.jsonl"])
def test_a_file_that_was_renamed_replaces_what_it_told(machine: Machine, name: str) -> None:
    machine.before()
    (machine.source / "1.jsonl").rename(machine.source / name)
    assert machine.now().kept == 0
    assert contents(machine.archive) == machine.fresh()


def test_a_file_that_was_added_to_replaces_what_it_told(machine: Machine) -> None:
    machine.before()
    machine.write("1.jsonl", span("a", 1), span("b", 2), span("e", 7))
    machine.before()
    machine.write("1.jsonl", span("a", 1), span("b", 2), span("e", 7), span("e", 8))
    assert machine.now().kept == 0
    assert contents(machine.archive) == machine.fresh()


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_a_rotated_file_held_before_stays(machine: Machine, *, is_seen: bool) -> None:
    machine.before()
    machine.write("1.jsonl", *(span("e", second) for second in range(10, 20)))
    if is_seen:
        machine.before()
    assert machine.now().kept >= 1
    told = said(machine.archive)
    assert told["a"] == ["11"]
    assert set(told["e"]) >= {str(second) for second in range(10, 20)}


def test_what_a_rotated_file_held_before_stays_where_a_trace_goes_on(machine: Machine) -> None:
    machine.before()
    rest = [span("e", second) for second in range(10, 20)]
    machine.write("1.jsonl", *rest, span("a", 20))
    assert machine.now().kept == 2
    told = said(machine.archive)
    assert (told["a"], told["old-b"]) == (["11", "20"], ["22"])


def test_a_long_trace_keeps_what_a_rotated_file_held_before(machine: Machine) -> None:
    """Where its records are as they were, their places show that the file was cut."""
    machine.older = spans_format().records
    spans = [span("a", second) for second in range(20)]
    machine.write("1.jsonl", *spans[:10])
    machine.before()
    machine.write("1.jsonl", *spans[3:])
    assert machine.now().kept == 1
    assert said(machine.archive)["a"] == [f"{second}" for second in range(20)]


def test_what_was_rotated_into_another_file_is_read_there(machine: Machine) -> None:
    machine.before()
    (machine.source / "1.jsonl").rename(machine.source / "1.old.jsonl")
    machine.write("1.jsonl", span("e", 9))
    machine.before()
    machine.now()
    told = said(machine.archive)
    assert (told["a"], told["b"]) == (["1"], ["2", "3"])


@pytest.fixture
def sessions(machine: Machine) -> Machine:
    """Likewise, where each file tells a trace from its beginning on."""
    reader = spans_format().records
    machine.form = replace(machine.form, sessions=reader)
    machine.write("1.jsonl", span("a", 1), span("x", 2), span("x", 3))
    machine.before()
    return machine


@pytest.mark.parametrize("is_known", [True, False])
def test_sessions_that_another_file_has_by_now_are_read_there(
    sessions: Machine, *, is_known: bool
) -> None:
    whole = (sessions.source / "1.jsonl").read_bytes()
    (sessions.source / "9.jsonl").write_bytes(b"\n" + whole)
    if is_known:
        sessions.before()
    (sessions.source / "1.jsonl").unlink()
    assert sessions.now().kept == 0
    assert contents(sessions.archive) == sessions.fresh()


def test_sessions_that_another_file_has_later_are_read_then(sessions: Machine) -> None:
    whole = (sessions.source / "1.jsonl").read_bytes()
    (sessions.source / "1.jsonl").unlink()
    assert sessions.now().kept == 2
    (sessions.source / "9.jsonl").write_bytes(b"\n" + whole)
    sessions.now()
    assert contents(sessions.archive) == sessions.fresh()


def test_of_sessions_that_were_rotated_what_is_there_is_read_again(sessions: Machine) -> None:
    sessions.write("1.jsonl", span("x", 2), span("x", 3), span("e", 9))
    assert sessions.now().kept == 1
    told = said(sessions.archive)
    assert (told["a"], told["x"], told["e"]) == (["11"], ["2", "3"], ["9"])


def test_what_a_session_told_in_another_file_stays(sessions: Machine) -> None:
    sessions.rules = {"trace": "session"}
    shutil.rmtree(sessions.archive)
    sessions.write("2.jsonl", span("x", 4))
    sessions.before()
    (sessions.source / "1.jsonl").unlink()
    assert sessions.now().kept == 2
    assert said(sessions.archive)["x"] == ["22", "33", "4"]


def test_a_session_that_was_copied_elsewhere_replaces_what_it_told(sessions: Machine) -> None:
    sessions.rules = {"trace": "session"}
    shutil.rmtree(sessions.archive)
    sessions.before()
    plain = sessions.source / "1.jsonl"
    (sessions.source / "new").mkdir()
    (sessions.source / "new/1.jsonl").write_bytes(plain.read_bytes() + b"\n")
    plain.unlink()
    assert sessions.now().kept == 0
    assert contents(sessions.archive) == sessions.fresh()


@pytest.mark.parametrize("trace", ["turn", "session"])
def test_a_session_of_the_same_name_replaces_nothing_of_another_one(
    sessions: Machine, trace: str
) -> None:
    sessions.rules = {"trace": trace}
    shutil.rmtree(sessions.archive)
    sessions.before()
    (sessions.source / "1.jsonl").unlink()
    (sessions.source / "new").mkdir()
    forked = [span("a", 1)] if trace == "turn" else []
    sessions.write("new/1.jsonl", *forked, span("y", 1))
    assert sessions.now().kept == 2 - len(forked)
    assert said(sessions.archive)["x"] == ["22", "33"]


def test_a_file_that_was_packed_replaces_what_it_told(machine: Machine) -> None:
    machine.form = replace(machine.form, inputs=by_ending(".jsonl", ".gz"))
    machine.before()
    plain = machine.source / "1.jsonl"
    Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert machine.now().kept == 0
    assert contents(machine.archive) == machine.fresh()


def test_what_was_read_again_does_not_become_the_newest(machine: Machine) -> None:
    def draft(trace: str, records: Sequence[SourceRecord], rules: Any) -> Any:
        return spans_format().draft(trace, records[-1:], rules)

    machine.form = replace(machine.form, draft=draft)
    machine.write("0.jsonl", {**span("a", 1), "say": "new"})
    machine.before("1.jsonl")
    machine.before("0.jsonl")
    (machine.source / "0.jsonl").unlink()
    machine.now()
    assert said(machine.archive)["a"] == ["newnew"]


@pytest.mark.parametrize("dies", ["upsert", "save"])
@pytest.mark.parametrize("before", [True, False])
def test_a_kill_leaves_what_the_next_import_ends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, dies: str, *, before: bool
) -> None:
    machine.before()
    where = {"upsert": DailyPartitions, "save": ImportState}[dies]
    done = getattr(where, dies)

    def killed(*arguments: Any) -> None:
        if not before:
            done(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, dies, killed)
        with pytest.raises(KeyboardInterrupt):
            machine.now()
    machine.now()
    assert contents(machine.archive) == machine.fresh()


@pytest.mark.parametrize("kills", [1, 2])
def test_the_import_after_a_kill_tells_what_was_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kills: int
) -> None:
    machine.before()
    for name in ("1.jsonl", "2.jsonl"):
        (machine.source / name).unlink()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DailyPartitions, "upsert", killed)
        for _ in range(kills):
            with pytest.raises(KeyboardInterrupt):
                machine.now()
    caplog.clear()
    assert machine.now().kept == 3
    assert caplog.messages[-1].startswith("3 traces are made of what an earlier version")
    assert machine.now().kept == 0


def test_what_cannot_be_read_now_is_read_again_once_it_can(machine: Machine) -> None:
    machine.before()
    whole = (machine.source / "1.jsonl").read_bytes()
    (machine.source / "1.jsonl").write_bytes(b"")
    assert machine.now().kept == 2
    assert said(machine.archive)["a"] == ["11"]
    (machine.source / "1.jsonl").write_bytes(whole)
    machine.now()
    assert contents(machine.archive) == machine.fresh()


def test_a_document_and_its_changes_are_replaced(machine: Machine) -> None:
    machine.form = replace(machine.form, source="document")
    machine.before()
    machine.write("1.jsonl", span("e", 1), span("b", 9))
    machine.before()
    machine.write("1.jsonl", span("f", 1), span("b", 8))
    assert machine.now().kept == 0
    assert contents(machine.archive) == machine.fresh()
    machine.write("1.jsonl", span("a", 1))
    machine.now()
    assert said(machine.archive) == {"a": ["1"], "b": ["3"], "c": ["4"], "d": ["5"]}


def test_what_a_registry_has_deleted_is_kept_and_told(
    tmp_path: Path,
) -> None:
    source, archive = tmp_path / "export.json", tmp_path / "archive"
    write_json(source, {"data": {"knowledge_units": [kp_trace(name) for name in "ab"]}})
    with older_importer():
        import_all(source, archive)
    write_json(source, {"data": {"knowledge_units": [kp_trace("a")]}})
    done = import_all(source, archive)
    assert (done.files_read, done.deleted, done.kept) == (1, 1, 1)
    assert len(imported(archive)) == 2


@pytest.mark.parametrize("is_of_six", [False, True])
def test_what_was_forgotten_does_not_come_back(machine: Machine, *, is_of_six: bool) -> None:
    machine.write("2.jsonl", span("a", 3), span("c", 4), span("c", 7))
    machine.write("4.jsonl", span("c", 4))  # as the other has it, too
    machine.before()
    machine.forget_before("2.jsonl")
    assert said(machine.archive) == {"a": ["11"], "old-b": ["22"], "c": ["44"], "d": ["55"]}
    if is_of_six:  # which did not tell what had read it
        (forgotten,) = machine.archive.glob("_import/*-forgotten.parquet")
        pl.read_parquet(forgotten).drop("importer").write_parquet(forgotten)
    rest = {"a": ["1"], "b": ["2"], "c": ["4"], "d": ["5"]}
    machine.now()
    assert said(machine.archive) == rest
    machine.write("2.jsonl", span("a", 3), span("c", 7), span("c", 8), span("e", 9))
    machine.write("5.jsonl", span("a", 3), span("c", 7))
    machine.now()
    assert said(machine.archive) == {**rest, "e": ["9"]}
    segments = [pl.read_parquet(x) for x in machine.archive.glob("_import/*-records.parquet")]
    assert not [x for each in segments for x in each["json"].drop_nulls() if '"say":"7"' in x]


def test_what_others_told_stays_where_their_file_was_renamed(machine: Machine) -> None:
    machine.write("2.jsonl", span("c", 4), span("c", 7))
    machine.write("4.jsonl", span("c", 4))
    machine.before()
    machine.forget_before("2.jsonl")
    (machine.source / "4.jsonl").rename(machine.source / "5.jsonl")
    machine.now()
    assert said(machine.archive)["c"] == ["44"]  # as it was read, since nobody knows what 7 is now


def test_what_was_refused_before_counts_again(machine: Machine) -> None:
    machine.before()
    with pytest.raises(KpBatchError, match=r"^1 of 5 traces is refused, more than --max-refused 0"):
        machine.now(limits=ImportLimits(max_refused="0"))
    assert said(machine.archive)["a"] == ["11"]
    machine.now(limits=ImportLimits(max_refused="1"))
    assert len(refusals(machine.archive)) == 1
    machine.now(limits=ImportLimits(max_refused="0"))


def test_a_file_is_looked_into_again(machine: Machine) -> None:
    seen: list[str] = []

    def inputs(paths: Sequence[str], look: Any) -> Any:
        return (each for each in spans_format().inputs(paths, look) if look(each.path) is None)

    def sniff(path: str, _: bytes) -> None:
        seen.append(path)

    machine.form = replace(machine.form, inputs=inputs, sniff=sniff)
    machine.before()
    machine.now()
    assert len(seen) == 6
    machine.now()
    assert len(seen) == 6
