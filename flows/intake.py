"""The first steps of a run: the archive's files to its traces in replay order, and its rejects."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow.parquet as pq

from flows.stage import Stage
from kp_batch.archive.raw import read_raw
from kp_batch.archive.reading import UnreadableError, read_rows
from kp_batch.archive.sources import SourceFile
from kp_batch.archive.validation import message, reasons
from kp_batch.contracts import FACTS, REJECTS
from kp_batch.facts import facts, hashes
from kp_batch.progress import printable, progress, say

_UNREADABLE = {name: REJECTS[name] for name in ("source_file", "reasons", "message")}


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read, and why."""

    source_file: str
    reasons: list[str]
    message: str


@dataclass(frozen=True)
class Reading:
    """What reading the archive came to; rows are those of the readable files."""

    rows: int
    rejected: int  # of them, not counting superseded ones
    unreadable: list[Unreadable]


def read_archive(sources: list[SourceFile], stage: Stage) -> Reading:
    """Read and check every row, and take its facts: writes `stage.rows`."""
    unreadable: list[Unreadable] = []
    counted = [(0, 0)]  # rows and rejected rows, a readable file each

    def frames() -> Iterator[pl.DataFrame]:
        with progress("reading", len(sources), "files") as shown:
            for source in sources:
                rows = rejected = 0
                try:
                    for batch in read_rows(source):
                        frame = _facts(batch)
                        rows += len(frame)
                        rejected += frame.select((pl.col("reasons").list.len() > 0).sum()).item()
                        yield frame
                    counted.append((rows, rejected))
                except UnreadableError as error:
                    codes = sorted({fault.code for fault in error.faults})
                    unreadable.append(Unreadable(source.path, codes, str(error)))
                    say(f"warning: {printable(source.path)} is left out: {printable(str(error))}")
                shown.add(1)

    _write(stage.rows, FACTS, frames())
    rows, rejected = (sum(column) for column in zip(*counted, strict=True))
    return Reading(rows, rejected, unreadable)


def arrange(unreadable: list[Unreadable], stage: Stage) -> int:
    """Settle which rows count, in replay order: writes `stage.timeline` and `stage.superseded`.

    Returns:
        The number of accepted traces.
    """
    variables = {
        "rows": str(stage.rows),
        "timeline": str(stage.timeline),
        "superseded": str(stage.superseded),
        "unreadable": [file.source_file for file in unreadable],
    }
    # DuckDB sorts what is larger than its memory by spilling it.
    spill: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": "2GB",
        "temp_directory": str(stage.folder / "spill"),
    }
    with duckdb.connect(config=spill) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, value in variables.items():
            connection.execute(f"SET VARIABLE {name} = ?", [value])
        connection.execute(files("flows").joinpath("arrange.sql").read_text("utf-8"))
    return pq.read_metadata(stage.timeline).num_rows


def collect_rejects(
    sources: list[SourceFile], unreadable: list[Unreadable], run_id: str, stage: Stage
) -> dict[str, int]:
    """Write down what is refused and why, rows as they stand: writes `stage.rejects`.

    Returns:
        For each code, how many rows or files bear it.
    """
    whole_files = _rejects(
        pl.DataFrame([asdict(each) for each in unreadable], schema=_UNREADABLE), run_id
    )
    rows = _rejected_rows(whole_files.get_column("source_file"), stage)
    by_path = {source.path: source for source in sources}
    with_raw = (_rejects(frame, run_id) for frame in _with_raw(rows, by_path))
    _write(stage.rejects, REJECTS, chain([whole_files], with_raw))
    codes = pl.scan_parquet(stage.rejects, glob=False).select(pl.col("reasons").list.explode())
    counts = codes.group_by("reasons").len().sort("len", descending=True).collect()
    return dict(counts.iter_rows())


def _facts(rows: pl.DataFrame) -> pl.DataFrame:
    with_facts = rows.lazy().with_columns(*facts(), reasons=reasons()).with_columns(hashes())
    return with_facts.select(list(FACTS)).collect(engine="streaming")


def _rejects(frame: pl.DataFrame, run_id: str) -> pl.DataFrame:
    """The frame as one of `REJECTS`: what it lacks is null."""
    whole = pl.concat([REJECTS.to_frame(), frame], how="diagonal")
    return whole.with_columns(run_id=pl.lit(run_id))


def _rejected_rows(unreadable: pl.Series, stage: Stage) -> pl.DataFrame:
    """The rows that cannot be scored and those that were superseded, in archive order."""
    place = ["source_file", "row", "trace_id", "reasons"]
    refused = (
        pl.scan_parquet(stage.rows, glob=False)
        .filter(
            pl.col("reasons").list.len() > 0, ~pl.col("source_file").is_in(unreadable.implode())
        )
        .select(*place, message=message(pl.col("reasons")))
    )
    by = pl.format(
        "the same id stands with other content in {}, row {}, later in the archive",
        "last_file",
        "last_row",
    )
    superseded = (
        pl.scan_parquet(stage.superseded, glob=False)
        .with_columns(reasons=pl.lit(["superseded"]))
        .select(*place, message=by)
    )
    return pl.concat([refused, superseded]).sort("source_file", "row").collect()


def _with_raw(rows: pl.DataFrame, sources: dict[str, SourceFile]) -> Iterator[pl.DataFrame]:
    """The same rows, a file at a time, with the column `raw` read again from the archive."""
    for (path,), frame in rows.group_by("source_file", maintain_order=True):
        raw = read_raw(sources[cast("str", path)], frame.get_column("row").to_list())
        yield frame.with_columns(raw=pl.Series(raw, dtype=pl.String))


def _write(path: Path, schema: pl.Schema, frames: Iterable[pl.DataFrame]) -> None:
    """A Parquet file of that schema, a row group a frame."""
    arrow = cast("Any", schema.to_frame().to_arrow()).schema
    with pq.ParquetWriter(path, arrow, compression="lz4") as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow().cast(arrow))
