"""The status of a warehouse as metrics, in the text format of Prometheus."""

from datetime import datetime

from kp_batch.operations.status import WarehouseStatus
from kp_batch.warehouse.run_result import RunResult

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(status: WarehouseStatus, now: datetime) -> str:
    """Format a status for the textfile collector of Prometheus' node_exporter.

    A metric whose value is unknown is left out, such as the success of a run that is under way.

    Args:
        status: as read at `now`.
        now: the time, in UTC.
    """
    last, success = status.last_run, status.last_success
    ended = last if last and last.status != "running" else None
    counts = success.counts if success else None
    newest = None if status.trace_age_s is None else now.timestamp() - status.trace_age_s
    metrics: list[tuple[str, str, float | None]] = [
        ("last_success_timestamp_seconds", "End of the last successful run.", _end_of(success)),
        (
            "last_run_success",
            "Whether the last run succeeded: 1 or 0.",
            ended.is_good if ended else None,
        ),
        ("last_run_duration_seconds", "Duration of the last run.", _duration(ended)),
        ("accepted_traces", "Traces with a score.", counts.accepted if counts else None),
        ("rejected_rows", "Rows that cannot be scored.", counts.rejected if counts else None),
        ("newest_trace_timestamp_seconds", "Time of the newest trace.", newest),
    ]
    labels = f'{{warehouse="{status.warehouse.translate(_ESCAPES)}"}}'
    return "".join(
        f"# HELP kp_batch_{name} {meaning}\n"
        f"# TYPE kp_batch_{name} gauge\n"
        f"kp_batch_{name}{labels} {round(float(value), 3)}\n"
        for name, meaning, value in metrics
        if value is not None
    )


def _end_of(run: RunResult | None) -> float | None:
    return _seconds(run.finished_at) if run and run.finished_at else None


def _duration(run: RunResult | None) -> float | None:
    ended = _end_of(run)
    return ended - _seconds(run.started_at) if run and ended else None


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
