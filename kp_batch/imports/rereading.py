"""What a newer importer reads again replaces what the same files told an older one.

Else its traces would have the records of both. A stream, though, may have been rotated, and what it
held before may be nowhere else: what it told stays, unless it still holds all of that.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

_CONTENT = ("trace", "digest")


def moved_files(gone: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    """The files that are gone, and are among the new ones under other names.

    Args:
        gone: stamps of files by their paths: the size, and a time or a digest come first.
        new: likewise.
    """
    there = {tuple(stamp.split()[:2]) for stamp in new.values()}
    return {path for path, stamp in gone.items() if stamp and tuple(stamp.split()[:2]) in there}


def whole_files(
    files: Mapping[str, bool], segments: Sequence[Path], now: Sequence[Path]
) -> set[str]:
    """Of streams that are read again, those that still hold all that they told before.

    So does one whose records always came one after another, if it is the same file now: where it
    was written to meanwhile, it still has to tell of the trace that it began with.

    Args:
        files: by their paths, whether they were written to meanwhile.
        segments: of what they told before.
        now: runs of what is read again.
    """
    if not segments or not files:
        return set()
    is_chosen = pl.col("file").is_in(list(files))
    before = pl.scan_parquet(list(segments), glob=False).filter(is_chosen)
    parts = before.group_by("file", "told").agg(
        begin=pl.min("position"),
        end=pl.max("position"),
        trace=pl.col("trace").sort_by("position").first(),
    )
    parts = parts.sort("file", "told")
    is_next = pl.col("begin") > pl.col("end").cum_max().shift().over("file")
    by_file = parts.group_by("file", maintain_order=True).agg(
        is_added_to=is_next.fill_null(value=True).all(), trace=pl.first("trace")
    )
    told = pl.scan_parquet(list(now), glob=False).select("file", "trace").unique()
    told = told.with_columns(is_begun=pl.lit(value=True))
    rows = by_file.filter("is_added_to").join(told, on=["file", "trace"], how="left").collect()
    return {
        file
        for file, is_begun in rows.select("file", "is_begun").iter_rows()
        if is_begun or not files[file]
    }


def without_replaced(rows: pl.DataFrame, files: Collection[str], number: int) -> pl.DataFrame:
    """Records of traces, without what files told before this import, which has read them again.

    The same contents of other files go, too, as they are copies. Where something stays of a trace,
    what is read again keeps its place among that: it does not become the newest.

    Args:
        rows: of `records.RECORDS`, all of a trace among them, with all digests.
        files: those that are replaced.
        number: of this import.
    """
    is_old = pl.col("file").is_not_null() & (pl.col("told") < number)
    is_new = pl.col("file").is_not_null() & (pl.col("told") == number)
    is_replaced = is_old & pl.col("file").is_in(list(files))
    rows = rows.with_columns(is_void=is_old & is_replaced.any().over(_CONTENT))
    stays = (is_old & ~pl.col("is_void")).any().over("trace")
    before = pl.coalesce(
        pl.col("told").filter(is_old).min().over(_CONTENT),
        pl.col("told").filter("is_void").max().over("trace", "file"),
        "told",
    )
    told = pl.when(stays & is_new).then(before).otherwise("told")
    return rows.with_columns(told=told).filter(~pl.col("is_void")).drop("is_void")
