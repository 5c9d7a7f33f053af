"""Checks that not too much of the archive is refused."""

from kp_batch.run import Run
from kp_batch.run_record import RunCounts


def excess(run: Run, counts: RunCounts) -> str | None:
    """Say why a run with these counts must not publish any scores; None if it may."""
    fault = _rows(run, counts) or _files(run, counts)
    if fault is None:
        return None
    return f"{fault}; no scores are published; see: {run.look_at_rejects}"


def _rows(run: Run, counts: RunCounts) -> str | None:
    limit = run.config.max_reject_share
    codes = ", ".join(f"{code} {count}" for code, count in counts.rejected_by_code.items())
    if counts.accepted == 0:
        return (
            f"none of the archive's {counts.rows} rows in {counts.files} files can be scored "
            f"({codes or 'it is empty'})"
        )
    if counts.rejected > limit * counts.rows:
        return (
            f"{counts.rejected} of {counts.rows} rows are rejected, more than --max-reject-share "
            f"{limit} allows ({codes})"
        )
    return None


def _files(run: Run, counts: RunCounts) -> str | None:
    limit = run.config.max_unreadable
    if limit is None:
        return None
    most = int(limit.removesuffix("%")) * (counts.files if limit.endswith("%") else 100)
    if 100 * counts.unreadable <= most:
        return None
    return (
        f"{counts.unreadable} of {counts.files} files cannot be read, more than --max-unreadable "
        f"{limit} allows (such as {counts.unreadable_files[0]})"
    )
