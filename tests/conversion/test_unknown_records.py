"""A record of a kind that no reader knows, in the files of real systems: it alone is counted."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import GOLDEN
from tests.support.imports.drafting import Conversion, drafted

_IDS = {"traceId": "f" * 32, "spanId": "e" * 16, "parentSpanId": "", "name": "x"}
_TIMES = {"startTimeUnixNano": "1785747600100000000", "endTimeUnixNano": "1785747600200000000"}
_OPERATION = {"key": "gen_ai.operation.name", "value": {"stringValue": "x_new"}}
_SPAN = {**_IDS, **_TIMES, "attributes": [_OPERATION]}
_MLFLOW = {
    "trace_id": "f" * 32,
    "span_id": "e" * 16,
    "parent_span_id": "",
    "name": "x",
    "start_time_unix_nano": 1785747600100000000,
    "end_time_unix_nano": 1785747600200000000,
    "attributes": {"mlflow.spanType": '"X_NEW"'},
    "events": [],
}
_LINE = "line of an unknown kind: x_new"
# By format: the record, how it is counted, and how often in the files that we keep.
RECORDS: Mapping[str, tuple[dict[str, Any], str, int]] = {
    "claude-code": ({"type": "x_new", "uuid": "x", "sessionId": "s"}, _LINE, 13),
    "codex": ({"timestamp": "2026-08-03T09:00:00Z", "type": "x_new", "payload": {}}, _LINE, 14),
    "pi": ({"type": "x_new", "id": "x", "parentId": None}, _LINE, 3),
    "mlflow": ({"spans": [_MLFLOW]}, "no span of an agent", 1),
    "otlp": ({"resourceSpans": [{"scopeSpans": [{"spans": [_SPAN]}]}]}, "unknown_dialect", 1),
}


def counts(conversion: Conversion) -> Counter[str]:
    """What is skipped, by its kind, and what is refused, by its reasons."""
    reasons = [reason for each in conversion.reasons for reason in each]
    return Counter([*conversion.skipped, *reasons])


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_an_unknown_kind_is_counted_and_costs_nothing_else(
    tmp_path: Path, name: str
) -> None:
    record, counted_as, times = RECORDS[name]
    source = tmp_path / name
    shutil.copytree(GOLDEN / "imports" / name, source)
    before = drafted(name, source)
    assert before.drafts

    for path in source.rglob("*.jsonl"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(record) + "\n")

    after = drafted(name, source)
    assert after.drafts == before.drafts
    assert counts(after) - counts(before) == {counted_as: times}
    assert not counts(before) - counts(after)
