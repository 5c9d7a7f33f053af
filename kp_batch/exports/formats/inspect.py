"""Scores for Inspect's logs: each line names a sample, and has a `ScoreEdit` for it.

A log is a file that only Inspect's own package should write. The edit has no time: Inspect adds it.
"""

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row
from kp_batch.exports.formats.scores import ELSEWHERE, NAME, NativeIds, native_id, origin_of
from kp_batch.ingest.reread import Trace


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row | str:
    native = NativeIds.of(scored.trace_id, trace)
    if not native.is_of("inspect"):
        return ELSEWHERE
    if not (native.log and native.sample) or native.epoch is None:
        return "without log, sample and epoch"
    return {
        "log": native.log,
        "sample_id": native.sample,
        "epoch": native.epoch,
        "score_name": NAME,
        "edit": {
            "value": scored.score,
            "metadata": origin_of(scored),
            "provenance": {"author": "kp_batch", "reason": f"scored by run {scored.run_id}"},
        },
    }


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES}, is_scores=True, score_id=native_id)
