"""List the rows and files that are rejected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kp_batch.archive.validation import SUPERSEDED, with_message
from kp_batch.duck import read_parquet, set_variables, sql, statement
from kp_batch.files import atomic_write
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.ingest.stage import content_of
from kp_batch.ingest.staged_rows import parquet_batches
from kp_batch.planning.changes import ChangeDetection
from kp_batch.planning.write_tasks import PART_BYTES, PART_ROWS
from kp_batch.runs.run import Run
from kp_batch.schemas import REJECTS
from kp_batch.text import printable

_INPUTS = pl.List(pl.Struct({"file_id": pl.String}))
_KEY = ("file_id", "row")


@dataclass(frozen=True)
class Rejected:
    """The numbers of rejected rows and files."""

    rows: int  # rows that cannot be scored
    superseded: int  # rows whose id comes later again with other content
    by_code: Mapping[str, int]  # rows and files with each reason, the most frequent first
    files: tuple[str, ...]  # the unreadable files


@dataclass(frozen=True)
class ReadAnew:
    """The rows of content that no successful run has read before."""

    rows: int = 0
    rejected: int = 0
    by_code: str = ""  # the codes with their counts, the most frequent first
    example: str = ""  # the first rejected row, in words


def stage_rejects(
    run: Run, scan: ArchiveScan, detected: ChangeDetection, *, messages_current: bool
) -> bool:
    """Stage the rejected rows and files of the archive; see rejects.sql.

    Args:
        run: the run; new rejects get its id.
        scan: the archive as it is now.
        detected: the archive compared with the published tables.
        messages_current: whether the published messages fit this version and the JSON in the facts.
            The JSON of a failed run is not in the facts, and vacuum may have dropped it.

    Returns:
        Whether they differ from the published ones.
    """
    snapshot, rejected = detected.snapshot, run.staging.folder / "rejected.parquet"
    set_variables(snapshot.connection, rejected=str(rejected), messages_current=messages_current)
    snapshot.connection.execute(sql(__name__, "rejects.sql"))
    is_new = False
    with parquet_batches(run.staging.table("rejects"), REJECTS, PART_ROWS) as rejects:
        for rows in _with_raw(pl.scan_parquet(rejected, glob=False), _raw(run, scan)):
            is_new |= rows.select(pl.col("run_id", "message").has_nulls()).row(0) != (False, False)
            rejects.add(with_message(rows.with_columns(pl.col("run_id").fill_null(run.run_id))))
    if not rejects.files:
        with atomic_write(run.staging.table("rejects")) as written:
            REJECTS.to_frame().write_parquet(written)
    before, now = (
        snapshot.ask(statement("SELECT count(*) FROM $rows", rows=rows)).item()
        for rows in ("published.rejects", read_parquet(rejected))
    )
    return is_new or now != before


def count_rejects(rejects: Path) -> Rejected:
    """Count the rejected rows and files in a file of `REJECTS`."""
    frame = pl.scan_parquet(rejects, glob=False)
    codes = frame.select(pl.col("reasons").list.explode()).group_by("reasons").len()
    by_code = dict(codes.sort("len", "reasons", descending=[True, False]).collect().iter_rows())
    superseded = by_code.get(SUPERSEDED, 0)
    is_row = pl.col("row").is_not_null()
    rows = frame.select(is_row.sum()).collect().item()
    files = frame.filter(~is_row).select("source_file").collect().get_column("source_file")
    return Rejected(rows - superseded, superseded, by_code, tuple(files))


def read_anew(run: Run, scan: ArchiveScan) -> ReadAnew:
    """Count the newly staged rows that count, and the rejected ones among them."""
    if not scan.facts:
        return ReadAnew()
    # A cut file that has lost traces is read, but its earlier content counts.
    files = pl.scan_parquet(run.staging.table("files"), glob=False)
    facts = pl.scan_parquet([*scan.facts], glob=False).select("file_id", "row", "reasons")
    facts = facts.join(files, on="file_id", how="semi").join(
        _read_before(run), left_on=content_of("file_id"), right_on="content", how="anti"
    )
    rejected = facts.filter(pl.col("reasons").list.len() > 0).collect(engine="streaming")
    codes = rejected.get_column("reasons").explode().value_counts(sort=True, name="rows")
    by_code = codes.sort("rows", "reasons", descending=[True, False]).iter_rows()
    rows = facts.select(pl.len()).collect().item()
    placed = rejected.lazy().join(files, on="file_id").sort("source_file", "row")
    examples = placed.select("source_file", "row").head(1).collect().iter_rows()
    return ReadAnew(
        rows,
        len(rejected),
        ", ".join(f"{code} {count:,}" for code, count in by_code),
        "".join(f"such as {printable(file)}, row {row:,}" for file, row in examples),
    )


def _read_before(run: Run) -> pl.LazyFrame:
    """Return the contents that successful runs have read, including rolled-back and pruned ones."""
    done = run.snapshot.scan("runs").filter(status="done")
    files = done.select(pl.col("inputs").str.json_decode(_INPUTS).list.explode()).unnest("inputs")
    return files.select(content=content_of("file_id")).drop_nulls().unique()


def _raw(run: Run, scan: ArchiveScan) -> pl.LazyFrame:
    """Return the JSON of rejected rows, of all content that was ever read."""
    facts = [run.snapshot.scan("facts")]
    if scan.facts:
        facts.append(pl.scan_parquet([*scan.facts], glob=False))
    raw = pl.concat(frame.select(*_KEY, "raw") for frame in facts)
    return raw.filter(pl.col("raw").is_not_null())


def _with_raw(rejected: pl.LazyFrame, raw: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Add the JSON to the rejected rows, in their order, at most a part at a time.

    DuckDB would hold the JSON of 2,048 rows at once, and each may have a megabyte.
    """
    sizes = raw.select(*_KEY, size=pl.col("raw").str.len_bytes() // (PART_BYTES // PART_ROWS))
    sized = rejected.select(_KEY).join(sizes, on=_KEY, how="left", maintain_order="left")
    part = pl.max_horizontal("size", 1).cum_sum() // PART_ROWS
    lengths = sized.group_by(part.alias("part"), maintain_order=True).len().collect()
    first = 0
    for length in lengths.get_column("len"):
        rows = rejected.slice(first, length).collect()
        file_ids, numbers = rows.get_column("file_id"), rows.get_column("row")
        near = pl.col("file_id").is_in(file_ids.unique().implode()) & pl.col("row").is_between(
            numbers.min(), numbers.max()
        )
        keys = rows.lazy().select(_KEY)
        matching = raw.filter(near).join(keys, on=_KEY, how="semi").collect(engine="streaming")
        yield rows.join(matching, on=_KEY, how="left", maintain_order="left")
        first += length
