"""Records of sources, kept in segments of the archive's state.

A row is a record that a file has. Its JSON is only in the row that had this content first; later
rows have its digest. A row without a file is the outcome of a trace: the day in which it was put.
Each import writes a segment, in the order of traces; segments are merged as they grow, so that an
import rewrites no more than some times the size of its new records.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import polars as pl

from kp_batch import bounds
from kp_batch.conversion.model import SourceRecord
from kp_batch.imports.sorted_runs import SortedRuns, merged, pieces
from kp_batch.text import encodable

RECORDS = pl.Schema(
    {
        "trace": pl.String,  # its native id
        "told": pl.Int64,  # the number of the import that read it
        "file": pl.String,  # null in the row of an outcome
        "position": pl.Int64,  # among the records of the file
        "line": pl.Int64,  # of the file, where it has lines
        "json": pl.String,  # null where an earlier row has the same content
        "digest": pl.Binary,  # of the JSON; null where the row has that
        "day": pl.String,  # where the trace was put; null if in none
    }
)
FORGOTTEN = pl.Schema(
    {
        "trace": pl.String,
        "digest": pl.Binary,  # null: all of the trace
        "importer": pl.Int64,  # the version that read it; null: 6 or before, or all of the trace
    }
)
_PRESENT = pl.Schema({"trace": pl.String, "file": pl.String})
ORDER = ("trace", "told", "file", "position")  # the order in which contents were first read
CONTENT = ("trace", "digest")
UNLIKE = ("json",)
LENGTH = pl.col("json").str.len_bytes().fill_null(0)
SIZE = LENGTH + 32


def content_of(record: SourceRecord) -> bytes:
    """The JSON of a record; of one that is nested too deep, as of one that is too large."""
    try:
        return bounds.dump(record.payload)
    except RecursionError:
        return b"null"


class NewRecords:
    """The records that an import reads.

    Args:
        folder: for what does not fit into memory.
        number: of the import.

    Attributes:
        records: rows of `RECORDS`.
        present: the traces that registries still have, without records.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.records = SortedRuns(folder / "records", RECORDS, ORDER, SIZE, unlike=UNLIKE)
        self.present = SortedRuns(folder / "present", _PRESENT, ["trace"], pl.lit(100))
        self._void: set[str] = set()

    def add(self, record: SourceRecord, file: str, position: int) -> None:
        """Take a record."""
        content = content_of(record)
        trace, digest = encodable(record.trace), _digest(content)
        row = (trace, self.number, file, position, record.line, content.decode(), digest, None)
        self.records.add(row, len(content))

    def touch(self, traces: pl.Series) -> None:
        """Have traces built that have no new record."""
        for trace in traces:
            self.records.add((trace, self.number, *(None,) * 6), len(trace))

    def void(self, file: str) -> None:
        """Drop the records of a file that turned out to be damaged."""
        self._void.add(file)

    def pieces(self) -> Iterator[Iterator[pl.DataFrame]]:
        """The rows, in runs."""
        is_valid = ~pl.col("file").is_in(list(self._void)).fill_null(value=False)
        for run in self.records.runs():
            yield (piece.filter(is_valid) for piece in pieces(run))

    def bytes(self) -> int:
        """Their size on the disk."""
        return sum(run.stat().st_size for run in self.records.runs())


def with_digests(rows: pl.DataFrame) -> pl.DataFrame:
    """With the digest of each content."""
    lacking = pl.when(pl.col("digest").is_null()).then("json").cast(pl.Binary)
    digests = lacking.map_elements(_digest, pl.Binary, skip_nulls=True)
    return rows.with_columns(digest=pl.coalesce("digest", digests))


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def traces_of(segments: Sequence[Path], which: pl.Expr | None = None) -> pl.Series:
    """The traces that segments have rows of, each once; only of the rows that are chosen."""
    return _values_of("trace", segments, which)


def files_of(segments: Sequence[Path]) -> pl.Series:
    """The files that segments have records of, each once."""
    return _values_of("file", segments, pl.col("file").is_not_null())


def _values_of(column: str, segments: Sequence[Path], which: pl.Expr | None) -> pl.Series:
    if not segments:
        return pl.Series(dtype=pl.String)
    rows = pl.scan_parquet(list(segments), glob=False)
    chosen = rows if which is None else rows.filter(which)
    return chosen.select(column).unique().collect().to_series().sort()


def count_missing(before: Sequence[Path], now: Sequence[Path], files: Collection[str]) -> int:
    """How many traces files had before, and do not have now.

    Args:
        before: segments.
        now: Parquet files with the columns `trace` and `file`.
        files: the paths of the files.
    """
    if not before:
        return 0
    old, new = (
        pl.scan_parquet(list(paths), glob=False, missing_columns="insert")
        .filter(pl.col("file").is_in(list(files)))
        .select("trace", "file")
        .unique()
        for paths in (before, now)
    )
    return int(old.join(new, on=["trace", "file"], how="anti").select(pl.len()).collect().item())


def is_in(files: Sequence[str]) -> pl.Expr:
    """Whether a row is of one of these files, or of a file in one of these folders."""
    names = [file.rstrip("/") for file in files]
    return pl.any_horizontal(
        pl.col("file").is_in(names), *(pl.col("file").str.starts_with(f"{x}/") for x in names)
    )


def contents_only_in(files: Sequence[str], segments: Sequence[Path]) -> pl.DataFrame:
    """The contents, by trace and digest, that no others than these files, or folders, have."""
    contents = [pl.DataFrame(schema={name: FORGOTTEN[name] for name in CONTENT})]
    for rows in merged([pieces(path) for path in segments], ORDER):
        records = with_digests(rows).filter(pl.col("file").is_not_null())
        by_content = records.group_by(CONTENT, maintain_order=True).agg(alone=is_in(files).all())
        contents.append(by_content.filter("alone").select(CONTENT))
    return pl.concat(contents)
