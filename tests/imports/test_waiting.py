"""Traces whose root another system has: how long they wait, and what becomes of them then."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import KpBatchError
from kp_batch.imports import change
from kp_batch.imports.forgetting import forget
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.formats.agent_runs import LOOKED, LOOKS, ROOT, START, THERE, TRACE, Step, otlp
from tests.support.imports.drafting import always
from tests.support.imports.importing import imported, refusals

REMOTE = replace(ROOT, parent="f")
ID = f"kp:trace:{TRACE}"


class ImportsByClock:
    """Imports of a folder by a clock that only says what it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.archive = folder / "source", folder / "archive"
        self._time, self._names = datetime(2026, 8, 4, tzinfo=UTC), count()
        monkeypatch.setattr(change, "now", lambda: self._time)

    def after(self, hours: float, *steps: Step, root: str | None = "topmost") -> Imported:
        """Import so many hours after the last time, with new spans."""
        self._time += timedelta(hours=hours)
        if steps:
            otlp(self.source / f"{next(self._names)}", steps)
        rules = always(**({"root": root} if root else {}))
        return import_traces(FORMATS["otlp"], [str(self.source)], self.archive, rules)

    @property
    def steps(self) -> list[str]:
        """The contents of the trace's steps."""
        return [step["content"] for step in imported(self.archive)[ID]["steps"] if step["content"]]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportsByClock:
    return ImportsByClock(tmp_path, monkeypatch)


def test_the_topmost_span_is_the_root_once_nothing_came_for_a_day(nights: ImportsByClock) -> None:
    assert nights.after(0, REMOTE, LOOKS).waiting == {"incomplete": 1}
    (refusal,) = refusals(nights.archive, "waiting")
    assert "taken for it once nothing of the trace came for a day" in refusal["message"]
    assert nights.after(23, LOOKED).waiting == {"incomplete": 1}  # which begins the day anew
    assert nights.after(23).traces == 0
    done = nights.after(1)
    assert (done.traces, done.files_read, done.waiting) == (1, 0, {})
    assert done.unresolved == {"refused": 0, "waiting": 0}
    assert nights.steps == ["hm", "found"]
    before = contents(nights.archive)
    assert nights.after(100).files_changed == 0
    assert contents(nights.archive) == before


def test_a_span_that_comes_after_more_than_a_day_is_waited_for(nights: ImportsByClock) -> None:
    nights.after(0, REMOTE, LOOKS)
    assert nights.after(30, LOOKED).waiting == {"incomplete": 1}
    assert nights.after(24).traces == 1


def test_what_comes_later_is_taken_into_a_trace_that_is_there(nights: ImportsByClock) -> None:
    nights.after(0, REMOTE, LOOKS)
    nights.after(24)
    assert nights.after(1, LOOKED, THERE).waiting == {}
    assert nights.steps == ["hm", "found", "there"]
    nights.after(1, Step("agent", "f", "", 0, 60, name="gateway"))  # its root, after all
    assert imported(nights.archive)[ID]["native"]["root"].endswith("66")


def test_it_is_taken_at_once_where_the_rules_say_so(nights: ImportsByClock) -> None:
    assert nights.after(0, REMOTE, LOOKS, root="topmost_at_once").traces == 1
    assert nights.after(1, root=None).waiting == {"incomplete": 1}
    assert not imported(nights.archive)


def test_the_day_of_what_waits_already_begins_when_it_came(nights: ImportsByClock) -> None:
    nights.after(0, REMOTE, LOOKS, root=None)
    nights.after(20, replace(ROOT, id="x"), root=None)  # the trace has a root by that
    assert nights.after(0, root="topmost").traces == 1


def test_other_rules_do_not_begin_it_anew(nights: ImportsByClock) -> None:
    nights.after(0, REMOTE, LOOKS, root=None)
    assert nights.after(20).waiting == {"incomplete": 1}
    assert nights.after(4).traces == 1


def test_a_root_that_has_not_ended_is_waited_for_as_before(nights: ImportsByClock) -> None:
    nights.after(0, replace(REMOTE, end=-START.timestamp()), LOOKS)
    for _ in range(2):
        nights.after(30)
        assert len(refusals(nights.archive, "waiting")) == 1
        assert nights.after(0).waiting == {}  # as it is built no more
    nights.after(1, REMOTE)
    assert nights.after(24).traces == 1
    assert nights.steps == ["hm"]


def test_what_waits_can_be_forgotten(nights: ImportsByClock) -> None:
    nights.after(0, REMOTE, LOOKS)
    forget(nights.archive, ids=[ID])
    assert nights.after(30).traces == 0
    assert refusals(nights.archive, "waiting") == []


@pytest.mark.parametrize("dies", ["write_days", "save_done"])
def test_a_killed_import_takes_it_the_next_time(
    nights: ImportsByClock, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    nights.after(0, REMOTE, LOOKS)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(change, dies, killed)
        with pytest.raises(KeyboardInterrupt):
            nights.after(24)
    nights.after(0)
    assert nights.steps == ["hm"]
    assert nights.after(0).traces == 0


def test_formats_without_spans_refuse_the_rule(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(KpBatchError, match='codex has no spans: remove the rule root = "topmost"'):
        import_traces(
            FORMATS["codex"],
            [str(tmp_path)],
            tmp_path / "archive",
            load_rules(None, {"root": "topmost"}),
        )


def contents(archive: Path) -> dict[str, bytes]:
    return {str(x.relative_to(archive)): x.read_bytes() for x in archive.rglob("*") if x.is_file()}
