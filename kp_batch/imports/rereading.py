"""What a newer importer reads again replaces what the same files told an older one.

Else its traces would have the records of both. A stream, though, may have been rotated, and what it
held before may be nowhere else: what it told stays, unless it still holds all of that. Of sessions
each file tells a turn from its beginning on, so that a turn that is read again, from whatever file,
replaces what was told of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kp_batch.imports.records import CONTENT


def moved_files(gone: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    """The files that are gone, and are among the new ones under other names.

    Args:
        gone: stamps of files by their paths: the size, and a time or a digest come first.
        new: likewise.
    """
    there = {tuple(stamp.split()[:2]) for stamp in new.values()}
    return {path for path, stamp in gone.items() if stamp and tuple(stamp.split()[:2]) in there}


def namesakes(gone: Collection[str], new: Collection[str], *, in_any_folder: bool) -> set[str]:
    """The files that are gone, and of which a new one has the name, packed or not."""

    def name(path: str) -> str:
        unpacked = path.removesuffix(".zst").removesuffix(".gz")
        return unpacked.rpartition("/")[2] if in_any_folder else unpacked

    names = set(map(name, new))
    return {path for path in gone if name(path) in names}


def whole_files(
    files: Mapping[str, bool], segments: Sequence[Path], now: Sequence[Path]
) -> set[str]:
    """Of streams that are read again, those that still hold all that they told before.

    So does one whose records always came one after another, if it is the same file now: where it
    was written to meanwhile, what it told still has to stand in its place.

    Args:
        files: by their paths, whether they were written to meanwhile.
        segments: of what they told before.
        now: runs of what is read again.
    """
    if not segments or not files:
        return set()
    before = pl.scan_parquet(list(segments), glob=False).filter(pl.col("file").is_in(list(files)))
    parts = before.group_by("file", "told").agg(begin=pl.min("position"), end=pl.max("position"))
    is_next = pl.col("begin") > pl.col("end").cum_max().shift().over("file")
    by_file = parts.sort("file", "told").group_by("file").agg(is_next.fill_null(value=True).all())
    added_to = set(by_file.filter("begin").collect()["file"])
    written = [file for file in added_to if files[file]]
    return added_to.difference(written) | _in_place(written, before, now)


def _in_place(files: Sequence[str], before: pl.LazyFrame, now: Sequence[Path]) -> set[str]:
    """Those of the files whose beginning is what it was.

    Where contents are as they were, they have to stand in their places; where a newer importer
    makes others of all of them, half of the places have to tell of the same traces.
    """
    if not files:
        return set()
    place, text = pl.coalesce("line", "position").alias("place"), pl.col("json").hash()
    rows, others = (
        each.filter(pl.col("file").is_in(files)).select("file", "trace", place, text=text)
        for each in (before, pl.scan_parquet(list(now), glob=False))
    )
    for name, keys in (
        ("is_there", ["file", "text"]),
        ("is_in_place", ["file", "text", "place"]),
        ("is_of_trace", ["file", "trace", "place"]),
    ):
        found = others.select(keys).unique().with_columns(pl.lit(value=True).alias(name))
        rows = rows.join(found, on=keys, how="left").with_columns(
            pl.col(name).fill_null(value=False)
        )
    by_file = rows.group_by("file").agg(
        pl.when(pl.col("is_there").any())
        .then(pl.col("is_in_place").any())
        .otherwise(pl.col("is_of_trace").mean() >= 1 / 2)
        .alias("is_whole")
    )
    return set(by_file.filter("is_whole").collect()["file"])


def read_again(files: Collection[str], segments: Sequence[Path], now: Sequence[Path]) -> set[str]:
    """Those of the files that told of a trace which is read again.

    Args:
        files: their paths.
        segments: of what they told before.
        now: runs of what is read again.
    """
    if not segments or not files:
        return set()
    before = pl.scan_parquet(list(segments), glob=False).filter(pl.col("file").is_in(list(files)))
    told = pl.scan_parquet(list(now), glob=False).select("trace")
    chosen = before.join(told, on="trace", how="semi").select(pl.col("file").unique())
    return set(chosen.collect().to_series())


@dataclass(frozen=True)
class Replaced:
    """The files of which former records are void, as an older importer has read them.

    Attributes:
        whole: all of theirs.
        by_trace: those of traces that are read again, from whatever file.
    """

    whole: Collection[str] = ()
    by_trace: Collection[str] = ()

    @property
    def files(self) -> list[str]:
        """All of them; none, if nothing is replaced."""
        return [*self.whole, *self.by_trace]

    def without(self, rows: pl.DataFrame, number: int, closed: pl.Series) -> pl.DataFrame:
        """Records of traces, without those that are void.

        The same contents of other files go, too, as they are copies. Where something stays of a
        trace, what is read again keeps its place among that: it does not become the newest.

        Args:
            rows: of `records.RECORDS`, all of a trace among them, with all digests.
            number: of this import.
            closed: traces that may lack what was read again; see `records.Segments`.
        """
        is_old = pl.col("file").is_not_null() & (pl.col("told") < number)
        is_new = pl.col("file").is_not_null() & (pl.col("told") == number)
        rows = rows.with_columns(is_again=is_new.any().over("trace"))
        is_whole = pl.col("is_again") | ~pl.col("trace").is_in(closed.implode())
        is_replaced = pl.col("file").is_in(list(self.whole)) & is_whole
        is_replaced |= pl.col("file").is_in(list(self.by_trace)) & pl.col("is_again")
        is_void = is_old & (is_old & is_replaced).any().over(CONTENT)
        rows = rows.with_columns(is_void=is_void)
        stays = (is_old & ~pl.col("is_void")).any().over("trace")
        before = pl.coalesce(
            pl.col("told").filter(is_old).min().over(CONTENT),
            pl.col("told").filter("is_void").max().over("trace", "file"),
            "told",
        )
        told = pl.when(stays & is_new).then(before).otherwise("told")
        return rows.with_columns(told=told).filter(~pl.col("is_void")).drop("is_void", "is_again")
