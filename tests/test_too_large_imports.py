"""Small files of other systems that would take gigabytes are refused by name, and no others are."""

from pathlib import Path

import pytest

from kp_batch import limits
from kp_batch.importers import langsmith_runs
from kp_batch.importers.catalogue import FORMATS
from kp_batch.importers.rules import load_rules
from kp_batch.operations.importing import import_traces
from tests.hostile_imports import FILES, GOOD
from tests.importing import imported, refusals

ANY = {"success": {"always": True}, "confidence": {"always": 0.8}}
RULES = load_rules(None, {**ANY, "task_domain": {"otherwise": "default"}})
NATIVE = load_rules(None, {})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make torture` has the limits themselves."""
    for name, value in {
        "LINE_BYTES": 1 << 18,
        "TEXT_BYTES": 1 << 16,
        "VALUES": 1 << 12,
        "REFUSED": 1 << 10,
        "TRACE_BYTES": 1 << 20,
        "MEMBER_BYTES": 8 << 20,
    }.items():
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(langsmith_runs, "_LITERAL", 1 << 10)


@pytest.mark.parametrize("name", FILES)
def test_what_is_too_large_is_refused_and_the_rest_imported(tmp_path: Path, name: str) -> None:
    form, write, reasons, traces = FILES[name]
    source = tmp_path / "source"
    source.mkdir()
    GOOD[form](source)
    write(source / name)
    archive = tmp_path / "archive"
    rules = NATIVE if form == "knowledgepulse" else RULES
    done = import_traces(FORMATS[form], [str(source)], archive, rules)
    assert done.traces == 1 + len(traces)
    assert [*done.refused] == reasons
    assert {each["file"] for each in refusals(archive)} <= {str(source / name)}
    assert {f"kp:trace:{each}" for each in traces} <= imported(archive).keys()
