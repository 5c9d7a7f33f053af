"""Annotations of root spans for Phoenix: each line is an item of `POST /v1/span_annotations`.

Phoenix replaces an annotation if span, name and identifier agree.
"""

import re

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row
from kp_batch.exports.formats.scores import ELSEWHERE, NAME, NativeIds, origin_of, score_id
from kp_batch.ingest.reread import Trace

_SPAN = re.compile("[0-9a-f]{16}")


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row | str:
    native = NativeIds.of(scored.trace_id, trace)
    if not native.is_of("phoenix", "otlp"):
        return ELSEWHERE
    if not _SPAN.fullmatch(native.root):
        return "without the id of a root span"
    return {
        "span_id": native.root,
        "name": NAME,
        "annotator_kind": "CODE",
        "result": {"score": scored.score},
        "metadata": origin_of(scored),
        "identifier": score_id(scored.trace_id),
    }


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES}, is_scores=True, score_id=score_id)
