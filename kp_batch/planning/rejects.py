"""Lists the rows and files that are rejected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import polars as pl

from kp_batch.archive.ledger import Ledger, as_ledger
from kp_batch.archive.reading import read_raw
from kp_batch.archive.reject_messages import OUTSIDE, reject_message
from kp_batch.archive.source_file import SourceFile
from kp_batch.archive.sources import holds, is_outside
from kp_batch.archive.validation import MALFORMED_JSON, SUPERSEDED
from kp_batch.contracts import REJECTS
from kp_batch.errors import is_passing
from kp_batch.executor import cut
from kp_batch.ingest.contents import is_unchanged
from kp_batch.ingest.new_files import fetched
from kp_batch.ingest.staged_rows import RowGroups
from kp_batch.planning.changes import Detected
from kp_batch.planning.sizes import PART_ROWS
from kp_batch.run import Run
from kp_batch.sql import read_parquet, sql, statement


@dataclass(frozen=True)
class Rejected:
    """How much of the archive is rejected."""

    rows: int  # that cannot be scored
    superseded: int  # rows whose id stands again, with other content, later in the archive
    by_code: Mapping[str, int]  # rows and files with each reason, the most frequent first
    files: tuple[str, ...]  # those that are unreadable


def stage_rejects(run: Run, detected: Detected) -> bool:
    """Stage the rows and files of the archive that are rejected; see rejects.sql.

    Args:
        run: the run; it is named as the one that rejects what was not rejected before.
        detected: the archive beside what is published.

    Returns:
        Whether they differ from the published ones.
    """
    rejected = run.staging.folder / "rejected.parquet"
    detected.state.connection.execute("SET VARIABLE rejected = ?", [str(rejected)])
    detected.state.connection.execute(sql(__name__, "rejects.sql"))
    ledger = as_ledger(pl.read_parquet(run.staging.table("files"), glob=False))
    rejects = RowGroups(run.staging.table("rejects"), REJECTS, PART_ROWS)
    differ = False
    for rows in _in_parts(rejected):
        told = with_message(_with_raw(rows, ledger, run))
        differ |= told.get_column("run_id").null_count() > 0
        differ |= not told.get_column("raw").equals(rows.get_column("raw"))
        differ |= not told.get_column("message").equals(rows.get_column("known_message"))
        named = pl.col("run_id").fill_null(run.run_id)
        rejects.add(told.drop("known_message").with_columns(named))
    if not rejects.close():
        REJECTS.to_frame().write_parquet(run.staging.table("rejects"))
    before, now = (
        detected.state.ask(statement("SELECT count(*) FROM $rows", rows=rows)).item()
        for rows in ("published.rejects", read_parquet(rejected))
    )
    return differ or now != before


def count_rejects(rejects: Path) -> Rejected:
    """Count the rejected rows and files.

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
    return Rejected(rows - superseded, superseded, by_code, tuple(files))


def _in_parts(rejected: Path) -> Iterator[pl.DataFrame]:
    """Cut the rejected rows by their files, so that each file is read once."""
    rows = pl.scan_parquet(rejected, glob=False)
    files = rows.group_by("source_file").len().sort("source_file").collect(engine="streaming")
    first = 0
    for part in cut(files.iter_rows(), lambda file: file[1], PART_ROWS):
        length = sum(count for _, count in part)
        yield rows.slice(first, length).collect()
        first += length


def _with_raw(rejected: pl.DataFrame, ledger: Ledger, run: Run) -> pl.DataFrame:
    """Add the rows' JSON, read again unless it is known; the order stays.

    It is null where the file does not hold that content any more: it may have changed since the run
    looked at it, and a run that forgets has not looked. So it is for a line that is no JSON object
    of a file to which a link leads out of the archive: that may be of any file of the user, and the
    message says so.
    """
    raw, message = (rejected.get_column(name).to_list() for name in ("raw", "message"))
    is_trace = ~pl.col("reasons").list.contains(MALFORMED_JSON)
    unknown = pl.col("raw").is_null() & pl.col("row").is_not_null()
    lacking = rejected.with_row_index("at").filter(unknown)
    for (path, file_id), rows in lacking.group_by("source_file", "file_id", maintain_order=True):
        entry = ledger[cast("str", path)]
        if entry.status != "read":
            continue
        kept = rows
        if is_outside(run.config.archive, entry.source_file):
            kept = rows.filter(is_trace)
            for at, codes, row in rows.remove(is_trace).select("at", "reasons", "row").iter_rows():
                message[at] = reject_message(codes, row, None) + OUTSIDE
        source = fetched(entry.source, run.staging)
        again = _raw_again(source, cast("str", file_id), kept.get_column("row"))
        for at, row in kept.select("at", "row").iter_rows():
            raw[at] = again.get(row)
    return rejected.with_columns(
        pl.Series("raw", raw, dtype=pl.String), pl.Series("message", message, dtype=pl.String)
    )


def _raw_again(source: SourceFile, file_id: str, rows: pl.Series) -> dict[int, str]:
    """Read the JSON of some rows again, by their numbers; none if the content is another by now."""
    try:
        again = dict(read_raw(source, rows))
        return again if is_unchanged(source) or holds(source, file_id) else {}
    except OSError as error:
        if is_passing(error):
            raise
        return {}


def with_message(rejected: pl.DataFrame) -> pl.DataFrame:
    """Say why the rows are rejected that have no message: a function of their JSON and number.

    Args:
        rejected: the columns message, reasons, row and raw of `REJECTS`, and any others.
    """
    rows = rejected.select("message", "reasons", "row", "raw").iter_rows()
    told = [known or reject_message(codes, row, raw) for known, codes, row, raw in rows]
    return rejected.with_columns(message=pl.Series(told, dtype=pl.String))
