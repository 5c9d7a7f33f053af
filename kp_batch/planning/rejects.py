"""How much of the archive is refused, and how much may be."""

from shlex import quote

import polars as pl

from kp_batch.archive.validation import SUPERSEDED
from kp_batch.errors import ArchiveError
from kp_batch.run import Run


def count_rejects(run: Run) -> None:
    """Add to the run's counts what of the archive's rows and files is refused."""
    rejects = pl.scan_parquet(run.stage.rejects, glob=False)
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


def check_rejects(run: Run) -> None:
    """Go no further with too little of the archive.

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
