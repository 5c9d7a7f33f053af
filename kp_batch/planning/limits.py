"""Checks that not too much of the archive is rejected."""

from kp_batch.run import Run
from kp_batch.run_record import RunCounts
from kp_batch.text import are, number


def excess(run: Run, counts: RunCounts) -> str | None:
    """Say why a run with these counts must not publish any scores; None if it may."""
    fault = _rows(run, counts) or _files(run, counts)
    if fault is None:
        return None
    return f"{fault}; no scores are published; see: {run.look_at_rejects}"


def _rows(run: Run, counts: RunCounts) -> str | None:
    limit = run.config.max_reject_share
    codes = ", ".join(f"{code} {count:,}" for code, count in counts.rejected_by_code.items())
    if counts.accepted == 0:
        return (
            f"none of the archive's {number(counts.rows, 'row')} in {number(counts.files, 'file')} "
            f"can be scored ({codes or 'it is empty'})"
        )
    if counts.rejected > limit * counts.rows:
        rejected = _of(counts.rejected, counts.rows, "row")
        return f"{rejected} rejected, more than --max-reject-share {limit} allows ({codes})"
    return None


def _files(run: Run, counts: RunCounts) -> str | None:
    limit = run.config.max_unreadable
    if limit is None:
        return None
    most = int(limit.removesuffix("%")) * (counts.files if limit.endswith("%") else 100)
    if 100 * counts.unreadable <= most:
        return None
    return (
        f"{_of(counts.unreadable, counts.files, 'file')} unreadable, more than --max-unreadable "
        f"{limit} allows (such as {counts.unreadable_files[0]})"
    )


def _of(part: int, whole: int, what: str) -> str:
    return f"{part:,} of {number(whole, what)} {are(part)}"
