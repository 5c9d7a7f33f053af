"""Reads files into rows, one batch at a time: memory is bounded by a batch, not by the file."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress

import polars as pl
from polars.exceptions import PanicException

from kp_batch import bounds
from kp_batch.archive.file_formats import ENDINGS
from kp_batch.archive.file_formats.json import BATCH_BYTES, MALFORMED_JSON, Batch, truncated
from kp_batch.archive.folders import SourceFile
from kp_batch.archive.sources import open_file
from kp_batch.archive.validation import any_rejected, reasons
from kp_batch.errors import UnreadableError, is_of_machine
from kp_batch.magic_bytes import BINARY, PARQUET, STARTS, FileKind, kind_of

# Rows of a batch: long traces have some 50 kB of text, so a batch stays below 200 MB.
BATCH_ROWS = 4_096


def read_rows(source: SourceFile) -> Iterator[pl.DataFrame]:
    """Yield the file's rows as frames of `ROWS`, unchecked, in order.

    Raises:
        UnreadableError: the file is damaged, has another format, or lacks a required column.
            Frames before the error are void. If the disk or the network failed, its cause is
            that error, and a retry may succeed; see `is_passing`.
    """
    return (batch.rows for batch in _batches(source))


def read_rows_with_raw(
    source: SourceFile, is_private: Callable[[], bool]
) -> Iterator[pl.DataFrame]:
    """Yield the file's rows as frames of `ROWS`, unchecked, with the column `raw`.

    `raw` is the JSON of a rejected row, as `read_raw` reads it, or its beginning if it is long. It
    is null for accepted rows, and after a file has reached its limit of `raw`; see `limits`.

    Args:
        source: the file.
        is_private: whether lines that are not JSON objects must not be stored.

    Raises:
        UnreadableError: see `read_rows`.
    """
    bytes_left = max(bounds.ALL_RAW_BYTES, bounds.RATIO * source.size)

    def raw(batch: Batch, rejected: list[int]) -> Iterator[tuple[int, str]]:
        nonlocal bytes_left
        for row, text in zip(rejected, batch.as_json(rejected), strict=True):
            beginning = truncated(text)
            bytes_left -= len(beginning)
            if bytes_left < 0:
                return
            yield row, beginning

    with _unreadable_if_damaged(source):
        for batch in _batches(source):
            rejected = _rejected_rows(batch.rows, is_private) if bytes_left >= 0 else []
            yield from _with_raw(batch.rows, raw(batch, rejected))


def _rejected_rows(rows: pl.DataFrame, is_private: Callable[[], bool]) -> list[int]:
    """Return the numbers of the rejected rows, without private ones."""
    if not any_rejected(rows):
        return []
    codes = pl.col("reasons").list
    rejected = rows.select("row", reasons=reasons()).filter(codes.len() > 0)
    is_no_object = codes.contains(MALFORMED_JSON) | codes.contains(bounds.TOO_LARGE)
    objects = rejected.remove(is_no_object)
    if len(objects) < len(rejected) and is_private():
        rejected = objects
    return rejected.get_column("row").to_list()


def _with_raw(rows: pl.DataFrame, raw: Iterable[tuple[int, str]]) -> Iterator[pl.DataFrame]:
    """Yield rows with the column `raw`; the JSON of a frame is at most a batch and one row."""
    texts: list[tuple[int, str]] = []
    size = 0
    for row, text in raw:
        texts.append((row, text))
        size += len(text)
        if size >= BATCH_BYTES:
            yield _join(rows.filter(pl.col("row") <= row), texts)
            rows = rows.filter(pl.col("row") > row)
            texts, size = list[tuple[int, str]](), 0
    if len(rows):
        yield _join(rows, texts)


def _join(rows: pl.DataFrame, raw: list[tuple[int, str]]) -> pl.DataFrame:
    if not raw:
        return rows.with_columns(raw=pl.lit(None, pl.String))
    texts = pl.DataFrame(raw, schema={"row": pl.Int64, "raw": pl.String}, orient="row")
    return rows.join(texts, on="row", how="left", maintain_order="left")


def read_raw(source: SourceFile, rows: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Read some rows again, as JSON; values that JSON lacks, such as NaN, become text.

    Args:
        source: a file that was read before.
        rows: row numbers, ascending; the iterator is advanced only as needed.

    Yields:
        Row numbers and JSON texts. A JSONL line that is too large, or not a JSON object, is a JSON
        string.

    Raises:
        OSError: the file cannot be opened, or the disk or the network failed.
        Exception: the file is damaged.
    """
    with open_file(source.path, source.copy) as file:
        yield from source.format.read_raw(file, rows, BATCH_ROWS)


def _batches(source: SourceFile) -> Iterator[Batch]:
    if source.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    with _unreadable_if_damaged(source), open_file(source.path, source.copy) as file:
        yield from source.format.read_batches(source.path, file, BATCH_ROWS)


@contextmanager
def _unreadable_if_damaged(source: SourceFile) -> Generator[None]:
    try:
        yield
    except UnreadableError:
        raise
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_of_machine(error):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if (kind := _other_kind(source)) is not None:
            reason = kind.instead_of("Parquet")
        elif not source.has_known_ending:
            reason = (
                f"{reason.rstrip('.')}; it was read as Parquet, because it ends with none of "
                f"{ENDINGS}"
            )
        raise UnreadableError(reason) from error


def _other_kind(source: SourceFile) -> FileKind | None:
    """Return what a file read as Parquet really is; None if it may be damaged Parquet."""
    if source.format.name != "parquet":
        return None
    with suppress(Exception), open_file(source.path, source.copy) as file:
        kind = kind_of(file.read(STARTS))
        return None if kind in (PARQUET, BINARY) else kind
    return None
