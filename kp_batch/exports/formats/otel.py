"""Events `gen_ai.evaluation.result` of root spans: each line is a request for OTLP logs, in JSON.

OpenTelemetry's conventions have no attributes yet for the origin of a score, so we use our own.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row
from kp_batch.exports.formats.scores import NAME, NativeIds, origin_of, score_id
from kp_batch.ingest.reread import Trace

_IDS = re.compile("(?!0{32})[0-9a-f]{32} (?!0{16})[0-9a-f]{16}")  # of a trace and a span
_US = 1_000  # nanoseconds
_TIMES = range(1 << 64)  # nanoseconds since 1970 that OTLP can express
_RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "kp_batch"}}]}
_SCOPE = {"name": "kp_batch"}


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row | str:
    native = NativeIds.of(scored.trace_id, trace)
    if not _IDS.fullmatch(f"{native.trace} {native.root}"):
        return "without OpenTelemetry ids"
    time = scored.created_at * _US
    record = {
        "timeUnixNano": str(time if time in _TIMES else 0),
        "eventName": "gen_ai.evaluation.result",
        "traceId": native.trace,
        "spanId": native.root,
        "attributes": [
            {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": scored.score}},
            {"key": "log.record.uid", "value": {"stringValue": score_id(scored.trace_id)}},
            *_origin(tuple(origin_of(scored).items())),
        ],
    }
    scope = {"scope": _SCOPE, "logRecords": [record]}
    return {"resourceLogs": [{"resource": _RESOURCE, "scopeLogs": [scope]}]}


@lru_cache
def _origin(texts: tuple[tuple[str, str], ...]) -> Sequence[Row]:
    """Return the attributes with the origin of a score; many records share them."""
    named = {"gen_ai.evaluation.name": NAME, **{f"kp_batch.{name}": text for name, text in texts}}
    return [{"key": name, "value": {"stringValue": text}} for name, text in named.items()]


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES}, is_scores=True, score_id=score_id)
