"""Whether means compare: over the time of the traces, and with the previous run's."""

from kp_batch.report.data import ReportData
from kp_batch.runs import record as run_record
from kp_batch.runs.reasons import Reason, setting_changes
from kp_batch.runs.record import profile_name


def incomparable(data: ReportData) -> list[Reason]:
    """What makes the last two runs' scores incomparable: other formulas, or another encoder."""
    return run_record.incomparable(data.before, data.run) if data.before and data.run else []


def settings_changed(data: ReportData) -> list[Reason]:
    """The settings that differ between the last two runs."""
    if not (data.before and data.run):
        return []
    return [*setting_changes(data.before.settings, data.run.settings)]


def no_trend(data: ReportData) -> str | None:
    """Why the scores moved since the previous run other than by their traces; None if they did not.

    The threshold moves no score, and neither do texts in the report, audits, weights that no score
    bears, nor the cache where there is no encoder, nor the precision where there is no model.
    """
    runs = [run for run in (data.before, data.run) if run]
    borne = {profile_name(each) for run in runs for each in run.fingerprints["profile_id"]}
    embedders = {run.settings["embedder"] for run in runs}
    idle = {"threshold", "text", "audit"}
    idle |= {"precision"} if embedders <= {"hashing", "none"} else set()
    idle |= {"cache_size", "ttl", "cache_by"} if embedders == {"none"} else set()
    moving = (
        each.of in borne if each.code == "weights" else each.code not in idle
        for each in settings_changed(data)
    )
    if incomparable(data) or any(moving):
        return "settings or formulas changed"
    return None
