"""Traces with their scores: an archive that can be scored again."""

from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row, parquet_of
from kp_batch.ingest.reread import Trace
from kp_batch.schemas import EXPORTED

# The origin of a score, in the order of its JSON.
_ORIGIN = ("run_id", "encoder_id", "cache_id", "cache_group", "profile_id", "source_file")


def _row(scored: ChosenTrace, trace: Trace, _: ExportOptions) -> Row:
    """Return the trace with its score and origin: a struct of `schemas.EXPORTED`."""
    trace["metadata"] |= {
        "quality_score": scored.score,
        "quality_score_from": {name: getattr(scored, name) for name in _ORIGIN},
    }
    return trace


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES, ".parquet": parquet_of(EXPORTED)})
