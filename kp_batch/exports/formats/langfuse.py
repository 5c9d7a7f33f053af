"""Scores for Langfuse: each line is an item of the list that `POST /api/public/scores` takes.

Langfuse replaces a score only if id, name and day agree, so the time is that of the trace. A trace
that OpenTelemetry sent to Langfuse has the same id there.
"""

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row
from kp_batch.exports.formats.scores import ELSEWHERE, NAME, NativeIds, origin_of, score_id, time_of
from kp_batch.ingest.reread import Trace


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row | str:
    native = NativeIds.of(scored.trace_id, trace)
    if not native.is_of("langfuse", "otlp"):
        return ELSEWHERE
    return {
        "id": score_id(scored.trace_id),
        "traceId": native.trace,
        "name": NAME,
        "value": scored.score,
        "dataType": "NUMERIC",
        "timestamp": time_of(scored),
        "metadata": origin_of(scored),
    }


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES}, is_scores=True, score_id=score_id)
