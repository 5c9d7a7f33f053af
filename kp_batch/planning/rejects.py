"""Lists the rows and files that are refused, and checks that they are not too many."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import cast

import polars as pl

from kp_batch.archive.ledger import as_ledger
from kp_batch.archive.reading import read_raw
from kp_batch.archive.validation import SUPERSEDED, message
from kp_batch.errors import ArchiveError
from kp_batch.planning.changes import Detected
from kp_batch.run import Run
from kp_batch.run_record import RunCounts
from kp_batch.sql import sql


@dataclass(frozen=True)
class Refused:
    """How much of the archive is refused."""

    rows: int  # that cannot be scored
    superseded: int  # rows whose id stands again, with other content, later in the archive
    by_code: Mapping[str, int]  # rows and files with each reason, the most frequent first
    files: tuple[str, ...]  # those that are unreadable


def stage_rejects(run: Run, detected: Detected) -> bool:
    """Stage the rows and files of the archive that are refused; see rejects.sql.

    Args:
        run: the run; it is named as the one that refuses what was not refused before.
        detected: the archive beside what is published.

    Returns:
        Whether they differ from the published ones.
    """
    state, target = detected.state, run.staging.table("rejects")
    refused = run.staging.folder / "refused.parquet"
    state.connection.execute("SET VARIABLE refused = ?", [str(refused)])
    state.connection.execute(sql(__name__, "rejects.sql"))
    messages = pl.coalesce("message", message(pl.col("reasons")))
    found = pl.read_parquet(refused, glob=False).with_columns(message=messages)
    rows = _with_raw(found, run.staging.table("files"))
    rows.with_columns(pl.col("run_id").fill_null(run.run_id)).write_parquet(target)
    before = state.ask("SELECT count(*) FROM published.rejects").item()
    return len(rows) != before or any(
        rows.get_column(name).null_count() != known
        for name, known in (("run_id", 0), ("raw", found.get_column("raw").null_count()))
    )


def count_rejects(rejects: Path) -> Refused:
    """Count the refused rows and files.

    Args:
        rejects: a file of `REJECTS`.
    """
    frame = pl.scan_parquet(rejects, glob=False)
    codes = frame.select(pl.col("reasons").list.explode()).group_by("reasons").len()
    by_code = dict(codes.sort("len", "reasons", descending=[True, False]).collect().iter_rows())
    superseded = by_code.get(SUPERSEDED, 0)
    is_row = pl.col("row").is_not_null()
    rows = frame.select(is_row.sum()).collect().item()
    files = frame.filter(~is_row).select("source_file").collect().get_column("source_file")
    return Refused(rows - superseded, superseded, by_code, tuple(files))


def check_reject_limit(run: Run, counts: RunCounts) -> None:
    """Refuse an archive of which too little can be scored.

    Raises:
        ArchiveError: too large a share of the rows is rejected, or none is acceptable.
    """
    limit = run.config.max_reject_share
    codes = ", ".join(f"{code} {count}" for code, count in counts.rejected_by_code.items())
    look = f"see: kp-batch sql 'FROM rejects' --warehouse {quote(str(run.config.warehouse))}"
    if counts.accepted == 0:
        raise ArchiveError(
            f"none of the archive's {counts.rows} rows in {counts.files} files can be scored "
            f"({codes or 'it is empty'}); no scores are published; {look}"
        )
    if counts.rejected > limit * counts.rows:
        raise ArchiveError(
            f"{counts.rejected} of {counts.rows} rows are rejected, more than --max-reject-share "
            f"{limit} allows ({codes}); no scores are published; {look}"
        )


def _with_raw(refused: pl.DataFrame, files: Path) -> pl.DataFrame:
    """Add the rows' JSON, read again unless it is known or the file is gone."""
    ledger = as_ledger(pl.read_parquet(files, glob=False))
    known = pl.col("raw").is_not_null() | pl.col("row").is_null()
    frames = [refused.filter(known)]
    for (path,), frame in refused.filter(~known).group_by("source_file", maintain_order=True):
        entry = ledger[cast("str", path)]
        rows = frame.get_column("row").to_list()
        raw = read_raw(entry.source, rows) if entry.status == "read" else [None] * len(rows)
        frames.append(frame.with_columns(raw=pl.Series(raw, dtype=pl.String)))
    return pl.concat(frames).sort("source_file", "row", nulls_last=True, maintain_order=True)
