"""An import by a newer importer equals a fresh one, for whatever was read once."""

import shutil
import sqlite3
import tarfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, Skipped
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import KpBatchError
from kp_batch.imports import change, forgetting, importing, turns
from kp_batch.imports.building import build_part
from kp_batch.imports.forgetting import forget
from kp_batch.imports.import_limits import ImportLimits
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.imports.importing import (
    RULES,
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
from tests.support.processes.commands import invoke

FILES = ("1.jsonl", "2.jsonl", "3.jsonl")


class Machine:
    """Imports by an older version, and by this one."""

    def __init__(self, folder: Path) -> None:
        self.source, self.archive, self._fresh = (folder / x for x in ("source", "old", "fresh"))
        self.form, self.older = spans_format(), older_spans()

    def write(self, name: str, *spans: dict[str, Any]) -> None:
        write_lines(self.source / name, list(spans))

    def before(self, *names: str) -> Imported:
        """Import as the older version does."""
        with older_importer():
            return self._import(self.older, names, self.archive)

    def now(self, *names: str, **limits: str) -> Imported:
        """Import as this version does."""
        return self._import(self.form, names, self.archive, **limits)

    def fresh(self, source: Path | None = None) -> dict[str, bytes]:
        """What this version makes of the sources, as they are or as they were."""
        shutil.rmtree(self._fresh, ignore_errors=True)
        self._import(self.form, [str(source or self.source)], self._fresh)
        return contents(self._fresh)

    def _import(self, form: Format, names: Sequence[str], archive: Path, **limits: str) -> Imported:
        sources = [str(self.source / name) for name in names] or [str(self.source)]
        rules = load_rules(None, RULES)
        return import_traces(form, sources, archive, rules, ImportLimits.checked(limits))


def contents(archive: Path) -> dict[str, bytes]:
    """The days, and the lists of what is refused and what waits."""
    files = [*archive.glob("*.parquet"), *archive.glob("_*.jsonl")]
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Three files: two of them have a trace in common, and one has what is refused."""
    machine = Machine(tmp_path)
    monkeypatch.setattr(forgetting, "FORMATS", {**FORMATS, "spans": machine.form})
    machine.write("1.jsonl", span("a", 1), span("b", 2))
    machine.write("2.jsonl", span("b", 3), span("c", 4))
    machine.write("3.jsonl", span("d", 5), {**span("odd", 6), "at": "never"})
    with (machine.source / "3.jsonl").open("a") as file:
        file.write("{cut\n")
    return machine


@pytest.mark.parametrize("nights", [[""], ["2.jsonl", "1.jsonl", "3.jsonl"]])
def test_all_is_built_anew_and_nothing_is_read_again(machine: Machine, nights: list[str]) -> None:
    fresh = machine.fresh()
    for name in nights:
        machine.before(name)
    assert contents(machine.archive) != fresh
    done = machine.now()
    assert (done.files_read, done.traces) == (0, 4)
    assert contents(machine.archive) == fresh
    again = machine.now()
    assert (again.files_read, again.traces, again.files_changed) == (0, 0, 0)


@pytest.mark.parametrize("gone", [*chain(*(combinations(FILES, x) for x in (1, 2)))])
def test_what_is_gone_is_built_of_what_was_read(machine: Machine, gone: Sequence[str]) -> None:
    machine.before()
    fresh = machine.fresh()
    for name in gone:
        (machine.source / name).unlink()
    assert machine.now().traces == 4
    assert contents(machine.archive) == fresh


def test_what_was_rotated_or_renamed_is_built_of_what_was_read(machine: Machine) -> None:
    machine.before()
    (machine.source / "1.jsonl").rename(machine.source / "1.old.jsonl")
    machine.write("1.jsonl", span("e", 7))
    machine.before()
    machine.write("1.jsonl", span("e", 8), span("a", 9))
    machine.write("3.jsonl", span("f", 10))
    assert machine.now().files_read == 2
    whole = machine.source.with_name("whole")
    write_lines(whole / "1.jsonl", [span("a", 1), span("b", 2), span("b", 3), span("c", 4)])
    rest = [span("d", 5), span("e", 7), span("e", 8), span("a", 9), span("f", 10)]
    write_lines(whole / "2.jsonl", rest)
    fresh = {name: x for name, x in machine.fresh(whole).items() if name.endswith(".parquet")}
    assert fresh.items() <= contents(machine.archive).items()
    assert len(refusals(machine.archive)) == 1  # of a trace, which no file has any more


def test_what_was_forgotten_does_not_come_back(machine: Machine) -> None:
    machine.write("4.jsonl", span("c", 4))  # as another has it, too
    machine.before()
    forget(machine.archive, files=[str(machine.source / "2.jsonl")])
    forget(machine.archive, ids=["kp:trace:a"])
    machine.now()
    assert said(machine.archive) == {"b": ["2"], "c": ["4"], "d": ["5"]}
    assert [x["id"] for x in refusals(machine.archive)] == ["kp:trace:odd", None]


def test_a_document_counts_as_it_was_read_last(machine: Machine) -> None:
    machine.form = replace(machine.form, source="document")
    machine.older = replace(machine.older, source="document")
    machine.before()
    machine.write("1.jsonl", span("e", 1), span("b", 9))
    machine.before()
    fresh = machine.fresh()
    (machine.source / "1.jsonl").unlink()
    machine.now()
    assert contents(machine.archive) == fresh


def test_what_a_registry_has_deleted_is_built_anew_and_stays(tmp_path: Path) -> None:
    source, archive, form = (
        tmp_path / "export.json",
        tmp_path / "archive",
        FORMATS["knowledgepulse"],
    )

    def older(*arguments: Any) -> Any:
        return replace(form.draft(*arguments), objective="older")

    def night(form: Format, *names: str) -> Imported:
        units = [kp_trace(name) for name in names]
        write_json(source, {"data": {"knowledge_units": units}})
        return import_traces(form, [str(source)], archive, load_rules(None, {}))

    with older_importer():
        night(replace(form, draft=older), "a", "b")
        night(replace(form, draft=older), "a")
    assert (night(form, "a").deleted, night(form, "c").deleted) == (1, 2)
    assert {row["task"]["objective"] for row in imported(archive).values()} == {
        "do a",
        "do b",
        "do c",
    }


def test_what_was_no_agents_may_be_one_by_now(machine: Machine) -> None:
    def older(trace: str, *arguments: Any) -> Any:
        return Skipped("no agent") if trace == "b" else machine.form.draft(trace, *arguments)

    machine.older = replace(machine.form, draft=older)
    assert machine.before().skipped == {"no agent": 1}
    assert "b" not in said(machine.archive)
    machine.now()
    assert contents(machine.archive) == machine.fresh()


@pytest.mark.parametrize("dies", ["write_days", "save_done"])
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("who", ["older", "newer", "both"])
def test_a_kill_leaves_what_the_next_import_ends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, dies: str, who: str, *, is_late: bool
) -> None:
    done = getattr(change, dies)

    def killed(*arguments: Any) -> None:
        if is_late:
            done(*arguments)
        raise KeyboardInterrupt

    def kill(night: Any) -> None:
        with monkeypatch.context() as context:
            context.setattr(change, dies, killed)
            with pytest.raises(KeyboardInterrupt):
                night()

    machine.before("1.jsonl")
    if who != "newer":
        kill(machine.before)
    if who != "older":
        kill(machine.now)
    fresh = machine.fresh()
    (machine.source / "2.jsonl").unlink()
    machine.before("1.jsonl")  # the older one may come back
    machine.now()
    assert contents(machine.archive) == fresh
    assert machine.now().files_changed == 0


@pytest.mark.process
@pytest.mark.telling
def test_several_processes_build_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.formats.kits import KITS

    kit = KITS["otlp"]
    kit.write(tmp_path / "source", [kit.make(f"{x:032x}", kit.at, 1.0) for x in range(1, 40)])
    old, fresh = tmp_path / "old", tmp_path / "fresh"
    with older_importer():
        kit.read(tmp_path / "source", old)
    for day in old.glob("*.parquet"):
        day.unlink()  # which an older version made in its own way
    monkeypatch.setattr(importing, "MAX_SERIAL_BYTES", 0)
    monkeypatch.setattr(importing, "PART_BYTES", 1_000)
    assert kit.read(tmp_path / "source", old).traces == 39
    kit.read(tmp_path / "source", fresh)
    assert contents(old) == contents(fresh)


def test_what_is_built_anew_is_built_in_parts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.before()
    monkeypatch.setattr(importing, "PART_BYTES", 100)
    with patch.object(turns, "build_part", wraps=build_part) as built:
        machine.now()
    assert built.call_count > 2
    with monkeypatch.context() as context:
        context.setattr(change, "write_days", None)
        with pytest.raises(TypeError):
            machine.before()
    with patch.object(turns, "build_part", wraps=build_part) as built:
        machine.before()  # ends what was begun
    assert built.call_count > 2
    monkeypatch.setattr(forgetting, "UNITS_PER_PART", 1)
    with patch.object(turns, "build_part", wraps=build_part) as built:
        forget(machine.archive, files=[str(machine.source)])
    assert built.call_count > 2
    assert imported(machine.archive) == {}


def test_what_was_refused_before_counts_again(machine: Machine) -> None:
    machine.before()
    with pytest.raises(KpBatchError, match=r"^1 of 5 traces is refused, more than --max-refused 0"):
        machine.now(max_refused="0")
    assert said(machine.archive)["a"] == ["11"]
    machine.now(max_refused="1")
    assert said(machine.archive)["a"] == ["1"]
    machine.now(max_refused="0")


def test_a_file_is_looked_into_again(machine: Machine) -> None:
    seen: list[str] = []

    def inputs(paths: Sequence[str], look: Any) -> Any:
        return (each for each in spans_format().inputs(paths, look) if look(each.path) is None)

    def probe(path: str, _: bytes) -> None:
        seen.append(path)

    machine.form = replace(machine.form, inputs=inputs, probe=probe)
    machine.older = replace(machine.older, inputs=inputs, probe=probe)
    machine.before()
    machine.now()
    assert len(seen) == 6
    machine.now()
    assert len(seen) == 6


def columns_of(archive: Path) -> dict[str, list[str]]:
    """The columns of the tables of an archive's store."""
    query = "SELECT m.name, group_concat(c.name) FROM sqlite_schema m, pragma_table_info(m.name) c"
    with closing(sqlite3.connect(archive / "_import" / "records.sqlite")) as store:
        return dict(store.execute(f"{query} WHERE m.type = 'table' GROUP BY 1"))


def test_the_store_of_an_earlier_version_is_upgraded(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).with_name("kept") / "store-1.tar.gz") as kept:
        kept.extractall(tmp_path, filter="data")
    archive, sources = tmp_path / "archive", tmp_path / "sources"
    before = imported(archive)
    write_json(sources / "d.json", kp_trace("d", 4))

    done = invoke("import", "auto", sources, "-o", archive)

    assert done.returncode == 0, done.stderr
    after = imported(archive)
    assert {*after} == {*before, "kp:trace:d"}  # c is forgotten
    for row in before.values():  # which is new since then
        row["steps"] = [{**step, "reasoning_chars": None} for step in row["steps"]]
    assert {name: after[name] for name in before} == before
    fresh = tmp_path / "fresh"
    invoke("import", "auto", sources, "-o", fresh)
    assert columns_of(archive) == columns_of(fresh)
