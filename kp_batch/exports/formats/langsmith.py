"""Feedback for LangSmith: each line is a body of `POST /api/v1/feedback`, without the project."""

from uuid import UUID

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row
from kp_batch.exports.formats.scores import ELSEWHERE, NAME, NativeIds, origin_of, score_id, time_of
from kp_batch.ingest.reread import Trace

_DIGITS = 4  # decimal places; LangSmith refuses more


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row | str:
    native = NativeIds.of(scored.trace_id, trace)
    if not native.is_of("langsmith"):
        return ELSEWHERE
    if not (_is_uuid(native.root) and _is_uuid(native.trace)):
        return "without the UUID of a run"
    return {
        "id": score_id(scored.trace_id),
        "run_id": native.root,
        "trace_id": native.trace,
        "key": NAME,
        "score": round(scored.score, _DIGITS),
        # An update can change the comment, but not the source.
        "comment": f"scoring_id {scored.scoring_id}, run {scored.run_id}",
        "created_at": time_of(scored),
        "feedback_source": {"type": "api", "metadata": origin_of(scored)},
    }


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES}, is_scores=True, score_id=score_id)
