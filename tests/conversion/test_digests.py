"""What a format comes to changes with `IMPORTER`, so that archives are made anew."""

import json

import pytest

from kp_batch.imports.importing import IMPORTER
from tests.support.imports.digests import DIGESTS, digests, main

AGAIN = "run python -m tests.support.imports.digests"


def test_fixtures_come_to_other_traces_only_by_another_importer() -> None:
    golden = json.loads(DIGESTS.read_text("utf-8"))
    now = digests()
    new = ", ".join(now.keys() - golden["traces"].keys())
    assert not new, f"new: {new}; {AGAIN}"
    changed = [name for name in now if now[name] != golden["traces"][name]]
    assert not changed, f"raise IMPORTER unless it was, then {AGAIN}"
    assert golden == {"importer": IMPORTER, "traces": now}, AGAIN


def test_they_are_not_noted_where_it_was_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DIGESTS.read_bytes()
    monkeypatch.setattr("tests.support.imports.digests.digests", lambda: {"otlp": "another"})
    with pytest.raises(SystemExit, match=r"raise IMPORTER first: .* from otlp"):
        main()
    assert DIGESTS.read_bytes() == before
