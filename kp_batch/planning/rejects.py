"""Lists the rows and files that are refused, and checks that they are not too many."""

from shlex import quote
from typing import cast

import polars as pl

from kp_batch.archive.ledger import Ledger
from kp_batch.archive.reading import read_raw
from kp_batch.archive.validation import SUPERSEDED, message
from kp_batch.errors import ArchiveError
from kp_batch.planning.changes import Detected
from kp_batch.planning.state import sql
from kp_batch.run import Run


def stage_rejects(detected: Detected, ledger: Ledger, run_id: str) -> bool:
    """Stage the rows and files of the archive that are refused: `staging.rejects`.

    Args:
        detected: the archive beside what is published.
        ledger: the archive's files.
        run_id: of the run that refuses what was not refused before.

    Returns:
        Whether they differ from the published ones.
    """
    state = detected.state
    refused = state.staging.folder / "refused.parquet"
    state.connection.execute("SET VARIABLE refused = ?", [str(refused)])
    state.connection.execute(sql("rejects.sql"))
    messages = pl.coalesce("message", message(pl.col("reasons")))
    found = pl.read_parquet(refused, glob=False).with_columns(message=messages)
    rows = _with_raw(found, ledger)
    rows.with_columns(pl.col("run_id").fill_null(run_id)).write_parquet(state.staging.rejects)
    before = state.ask("SELECT count(*) FROM published.rejects").item()
    return len(rows) != before or any(
        rows.get_column(name).null_count() != known
        for name, known in (("run_id", 0), ("raw", found.get_column("raw").null_count()))
    )


def count_rejects(run: Run) -> None:
    """Add the numbers of refused rows and files to the run's counts."""
    rejects = pl.scan_parquet(run.staging.rejects, glob=False)
    codes = rejects.select(pl.col("reasons").list.explode()).group_by("reasons").len()
    by_code = dict(codes.sort("len", "reasons", descending=[True, False]).collect().iter_rows())
    superseded = by_code.get(SUPERSEDED, 0)
    is_row = pl.col("row").is_not_null()
    refused = rejects.select(is_row.sum()).collect().item() - superseded
    whole = rejects.filter(~is_row).select("source_file").collect().get_column("source_file")
    counts = run.counts
    counts |= {
        "duplicates": counts["rows"] - counts["accepted"] - superseded - refused,
        "superseded": superseded,
        "rejected": refused,
        "rejected_by_code": by_code,
        "unreadable_files": whole.to_list(),
    }


def check_reject_limit(run: Run) -> None:
    """Refuse an archive of which too little can be scored.

    Raises:
        ArchiveError: too large a share of the rows is rejected, or none is acceptable.
    """
    counts, limit = run.counts, run.config.max_reject_share
    rows, rejected = counts["rows"], counts["rejected"]
    codes = ", ".join(f"{code} {count}" for code, count in counts["rejected_by_code"].items())
    look = f"see: kp-batch sql 'FROM rejects' --warehouse {quote(str(run.config.warehouse))}"
    if counts["accepted"] == 0:
        raise ArchiveError(
            f"none of the archive's {rows} rows in {counts['files']} files can be scored "
            f"({codes or 'it is empty'}); no scores are published; {look}"
        )
    if rejected > limit * rows:
        raise ArchiveError(
            f"{rejected} of {rows} rows are rejected, more than --max-reject-share {limit} allows "
            f"({codes}); no scores are published; {look}"
        )


def _with_raw(refused: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """Add the rows' JSON, read again unless it is known or the file is gone."""
    known = pl.col("raw").is_not_null() | pl.col("row").is_null()
    frames = [refused.filter(known)]
    for (path,), frame in refused.filter(~known).group_by("source_file", maintain_order=True):
        entry = ledger[cast("str", path)]
        rows = frame.get_column("row").to_list()
        raw = read_raw(entry.source, rows) if entry.status == "read" else [None] * len(rows)
        frames.append(frame.with_columns(raw=pl.Series(raw, dtype=pl.String)))
    return pl.concat(frames).sort("source_file", "row", nulls_last=True, maintain_order=True)
