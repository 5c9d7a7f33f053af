"""A law of nights for imports: what was read first, in which order, is all that counts.

The same records, in the same order of first readings, divided into any files and nights, with
files renamed, copied, removed, moved, cut and fixed, imports killed in between, and newer ones
installed: equal traces, those of one import of one file in which the records stand in that order.
"""

import json
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, SourceRecord, TraceDraft, by_ending
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.imports import importing
from kp_batch.imports.importing import import_traces
from kp_batch.imports.store import RecordStore
from kp_batch.imports.summary import Imported
from kp_batch.text import time_of
from tests.support.formats.langfuse import observation, root
from tests.support.formats.shuffled_spans import SPANS, span_lines
from tests.support.imports.digests import GOLDEN
from tests.support.imports.importing import imported, units_of_lines

pytestmark = pytest.mark.slow

NAMES = [f"{letter}.jsonl" for letter in "abcdef"]
RULES = {
    "success": {"always": True},
    "confidence": {"always": 0.5},
    "task_domain": {"otherwise": "default"},
}
LINES = st.lists(st.integers(0, 999), min_size=1, max_size=8)


@dataclass
class File:
    """What a file holds: its lines, of which the last may be cut."""

    lines: list[str]
    is_cut: bool = False

    @property
    def complete_lines(self) -> list[str]:
        return self.lines[:-1] if self.is_cut else self.lines

    @property
    def text(self) -> str:
        whole = "".join(f"{line}\n" for line in self.complete_lines)
        return whole + self.lines[-1][: len(self.lines[-1]) // 2] if self.is_cut else whole


class Killed(BaseException):
    """What ends an import at once."""


@contextmanager
def killing(moment: int, *, before: bool) -> Generator[None]:
    """Let an import die before or after it puts a file in place, or commits, for the n-th time."""
    put, transaction, moments = Path.replace, RecordStore.transaction, count(1)

    def dying(path: Path, target: Any) -> Path:
        is_last = next(moments) == moment
        if before and is_last:
            raise Killed
        done = put(path, target)
        if is_last:
            raise Killed
        return done

    @contextmanager
    def committing(store: RecordStore) -> Generator[None]:
        is_last = next(moments) == moment
        with transaction(store):
            yield
            if before and is_last:
                raise Killed
        if is_last:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        patch.setattr(RecordStore, "transaction", committing)
        yield


class NightlyImports(RuleBasedStateMachine):
    """A source that changes, and the orders in which its records may have been read first.

    After a kill there are two such orders: its import may have kept what it read, or not.
    """

    form: Format
    pool: Sequence[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(prefix="kp-nights-"))
        self.source, self.archive = self.folder / "source", self.folder / "archive"
        self.source.mkdir()
        self.files: dict[str, File] = {}
        self.orders: list[list[str]] = [[]]
        self.confidence, self.moves, self.importer = 0.5, 0, importing.IMPORTER

    def teardown(self) -> None:
        try:
            if self.files:
                self.whole_night()
        finally:
            shutil.rmtree(self.folder)

    @rule(name=st.sampled_from(NAMES), chosen=LINES)
    def add_lines(self, name: str, chosen: list[int]) -> None:
        lines = [self.pool[index % len(self.pool)] for index in chosen]
        old = self.files.get(name, File([]))
        self._write(name, File([*old.lines, *lines]))

    @precondition(lambda self: self.files)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def rename(self, data: st.DataObject, name: str) -> None:
        old = self._any(data)
        if name not in self.files:
            (self.source / old).rename(self.source / name)
            self.files[name] = self.files.pop(old)

    @precondition(lambda self: self.files)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def copy(self, data: st.DataObject, name: str) -> None:
        self._write(name, replace(self.files[self._any(data)]))

    @precondition(lambda self: len(self.files) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = self._any(data)
        (self.source / name).unlink()
        del self.files[name]

    @precondition(lambda self: self.files)
    @rule(data=st.data(), is_cut=st.booleans())
    def cut_or_mend(self, data: st.DataObject, *, is_cut: bool) -> None:
        name = self._any(data)
        if len(self.files[name].lines) > 1:
            self._write(name, replace(self.files[name], is_cut=is_cut))

    @rule()
    def move_the_source(self) -> None:
        self.moves += 1
        self.source = self.source.rename(self.folder / f"moved-{self.moves}")

    @rule(confidence=st.sampled_from([0.5, 0.9]))
    def change_rules(self, confidence: float) -> None:
        self.confidence = confidence

    @rule()
    def install_a_newer_importer(self) -> None:
        self.importer += 1

    @precondition(lambda self: self.files)
    @rule()
    def whole_night(self) -> None:
        self._import(self.source, self.archive)
        self.orders = self._after()
        before = self._archived()
        assert self._import(self.source, self.archive).files_read == 0
        assert self._archived() == before
        assert imported(self.archive) in [self._reference(order) for order in self.orders]

    @precondition(lambda self: self.files and len(self.orders) < 4)
    @rule(moment=st.integers(1, 8), before=st.booleans())
    def killed_night(self, moment: int, *, before: bool) -> None:
        try:
            with killing(moment, before=before):
                self._import(self.source, self.archive)
        except Killed:
            added = [order for order in self._after() if order not in self.orders]
            self.orders = [*self.orders, *added]
        else:
            self.orders = self._after()

    def _any(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.files)))

    def _write(self, name: str, file: File) -> None:
        self.files[name] = file
        (self.source / name).write_text(file.text, "utf-8")

    def _after(self) -> list[list[str]]:
        """The orders once the files of now are read."""
        now = [line for name in sorted(self.files) for line in self.files[name].complete_lines]
        return [list(dict.fromkeys([*order, *now])) for order in self.orders]

    def _reference(self, order: list[str]) -> dict[str, dict[str, Any]]:
        folder = Path(mkdtemp(dir=self.folder))
        (folder / "source").mkdir()
        (folder / "source" / "all.jsonl").write_text(File(order).text, "utf-8")
        self._import(folder / "source", folder / "archive")
        return imported(folder / "archive")

    def _import(self, source: Path, archive: Path) -> Imported:
        rules = {**RULES, "confidence": {"always": self.confidence}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing, "IMPORTER", self.importer)
            return import_traces(self.form, [str(source)], archive, load_rules(None, rules))

    def _archived(self) -> dict[Path, tuple[int, bytes]]:
        files = [path for path in self.archive.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def _versioned_spans() -> Format:
    """Lines of spans, of which the greatest version counts, else the last."""

    def draft(trace: str, records: Sequence[SourceRecord], _: Rules) -> TraceDraft:
        spans: dict[str, dict[str, Any]] = {}
        for record in records:
            span = cast("dict[str, Any]", record.payload)
            old = spans.get(span["key"], span)
            if span.get("version", 0) >= old.get("version", 0):
                spans[span["key"]] = span
        ordered = [spans[key] for key in sorted(spans)]
        steps = [{**STEP, "step_id": at, "content": span["say"]} for at, span in enumerate(ordered)]
        return TraceDraft(f"kp:trace:{trace}", time_of(ordered[0]["at"]), "go", steps)

    return Format("spans", "nothing", by_ending(".jsonl"), units_of_lines, draft)


STEP = {**dict.fromkeys(("tool", "input", "output_summary", "latency_ms")), "type": "thought"}


def _versioned_lines() -> list[str]:
    versions: list[dict[str, int]] = [{}, {"version": 1}, {"version": 2}]
    return [
        json.dumps({"trace": f"t{trace}", "key": key, "at": at, "say": say, **version})
        for trace in range(3)
        for key, at in (("a", "2026-03-01T00:00:00Z"), ("b", "2026-03-02T00:00:00Z"))
        for version in versions
        for say in ("yes", "no")
    ]


def _otlp_lines() -> list[str]:
    """Spans of two traces, each written in two ways."""
    lines = [line.strip() for line in span_lines(range(2 * SPANS), minutes=2000)]
    return [*lines, *(line.replace("row ", "line ") for line in lines)]


def _langfuse_lines() -> list[str]:
    """Roots and observations, changed later or at the same time."""
    makers: list[Callable[..., dict[str, Any]]] = [root, partial(observation, "look", 1)]
    return [
        json.dumps(make(trace_id=f"t{trace}", output=f"{output} {hour}", updated_at=at))
        for trace in range(3)
        for make in makers
        for hour in (10, 11)
        for output in ("yes", "no")
        for at in (f"2026-08-03 {hour}:00:00.000000",)
    ]


@pytest.mark.parametrize("trace", ["turn", "session"])
@pytest.mark.parametrize("name", ["claude-code", "codex", "pi"])
def test_sessions_read_line_by_line_come_to_what_they_do_at_once(
    tmp_path: Path, name: str, trace: str
) -> None:
    """An agent is at work while its sessions are read."""
    rules = load_rules(None, {**RULES, "trace": trace})
    paths = [*(GOLDEN / "imports" / name).rglob("*.jsonl")]
    source = tmp_path / "source"
    source.mkdir()
    for number in (*range(1, 12), 99):
        for path in paths:
            lines = path.read_text("utf-8").splitlines(keepends=True)
            (source / path.name).write_text("".join(lines[:number]), "utf-8")
        import_traces(FORMATS[name], [str(source)], tmp_path / "nights", rules)
    import_traces(FORMATS[name], [str(source)], tmp_path / "once", rules)
    assert imported(tmp_path / "nights") == imported(tmp_path / "once")


class VersionedNights(NightlyImports):
    form, pool = _versioned_spans(), _versioned_lines()


class OtlpNights(NightlyImports):
    form, pool = FORMATS["otlp"], _otlp_lines()


class LangfuseNights(NightlyImports):
    form, pool = FORMATS["langfuse"], _langfuse_lines()


TestVersionedNights = VersionedNights.TestCase
TestOtlpNights = OtlpNights.TestCase
TestLangfuseNights = LangfuseNights.TestCase
for case in (TestVersionedNights, TestOtlpNights, TestLangfuseNights):
    case.settings = settings(
        max_examples=8,
        stateful_step_count=15,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
