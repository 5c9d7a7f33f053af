"""Files to rows, a batch at a time: memory is bounded by a batch, whatever the file's size."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager

import polars as pl
from polars.exceptions import PanicException

from kp_batch import limits
from kp_batch.archive.folders import SourceFile
from kp_batch.archive.formats.json import BATCH_BYTES, MALFORMED_JSON, Batch, truncated
from kp_batch.archive.sources import open_file
from kp_batch.archive.validation import any_rejected, reasons
from kp_batch.errors import UnreadableError, is_of_machine

# Rows a batch: long traces hold some 50 kB of text, so that a batch stays below 200 MB.
BATCH_ROWS = 4_096


def read_rows(source: SourceFile) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, in their order.

    Raises:
        UnreadableError: the file is damaged, is of another format, or lacks a required column.
            Frames that came before the error are void. Where the disk or the network failed, it
            is raised from that error, and another try may succeed; see `is_passing`.
    """
    for batch in _batches(source):
        yield batch.rows


def read_rows_with_raw(
    source: SourceFile, is_private: Callable[[], bool]
) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, with the column `raw`.

    `raw` is the JSON of a row that is rejected, as `read_raw` gives it, of a longer one the
    beginning. It is null of accepted rows, and of those after the first ones where a file would
    have too much of it; see `limits`.

    Args:
        source: the file.
        is_private: whether of lines that are no JSON objects none is kept.

    Raises:
        UnreadableError: see `read_rows`.
    """
    left = max(limits.ALL_RAW_BYTES, limits.RATIO * source.size)

    def raw(batch: Batch, rejected: list[int]) -> Iterator[tuple[int, str]]:
        nonlocal left
        for row, text in zip(rejected, batch.as_json(rejected), strict=True):
            shown = truncated(text)
            left -= len(shown)
            if left < 0:
                return
            yield row, shown

    with _unreadable_if_damaged():
        for batch in _batches(source):
            rejected = _rejected(batch.rows, is_private) if left >= 0 else []
            yield from _with_raw(batch.rows, raw(batch, rejected))


def _rejected(rows: pl.DataFrame, is_private: Callable[[], bool]) -> list[int]:
    """The numbers of the rejected rows, without those that are private."""
    if not any_rejected(rows):
        return []
    codes = pl.col("reasons").list
    rejected = rows.select("row", reasons=reasons()).filter(codes.len() > 0)
    is_no_object = codes.contains(MALFORMED_JSON) | codes.contains(limits.TOO_LARGE)
    objects = rejected.remove(is_no_object)
    if len(objects) < len(rejected) and is_private():
        rejected = objects
    return rejected.get_column("row").to_list()


def _with_raw(rows: pl.DataFrame, raw: Iterable[tuple[int, str]]) -> Iterator[pl.DataFrame]:
    """Add the column `raw`, in frames whose JSON takes no more than a batch and one row."""
    some: list[tuple[int, str]] = []
    size = 0
    for row, text in raw:
        some.append((row, text))
        size += len(text)
        if size >= BATCH_BYTES:
            yield _joined(rows.filter(pl.col("row") <= row), some)
            rows, some, size = rows.filter(pl.col("row") > row), [], 0
    if len(rows):
        yield _joined(rows, some)


def _joined(rows: pl.DataFrame, raw: list[tuple[int, str]]) -> pl.DataFrame:
    if not raw:
        return rows.with_columns(raw=pl.lit(None, pl.String))
    texts = pl.DataFrame(raw, schema={"row": pl.Int64, "raw": pl.String}, orient="row")
    return rows.join(texts, on="row", how="left", maintain_order="left")


def read_raw(source: SourceFile, rows: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Read some rows again, as JSON. What JSON does not have, such as NaN, stands as text.

    Args:
        source: a file that was read before.
        rows: row numbers, ascending, which are taken as they are needed.

    Yields:
        The rows with their numbers: JSON texts; a JSONL line that is no JSON object, or is too
        large, as a JSON string.

    Raises:
        OSError: the file cannot be opened, or the disk or the network failed.
        Exception: the file is damaged.
    """
    with open_file(source.path, source.copy) as file:
        yield from source.format.read_raw(file, rows, BATCH_ROWS)


def _batches(source: SourceFile) -> Iterator[Batch]:
    if source.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    with _unreadable_if_damaged(), open_file(source.path, source.copy) as file:
        yield from source.format.read_batches(source.path, file, BATCH_ROWS)


@contextmanager
def _unreadable_if_damaged() -> Generator[None]:
    try:
        yield
    except UnreadableError:
        raise
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_of_machine(error):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableError(reason) from error
