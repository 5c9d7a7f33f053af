"""Files to rows, a batch at a time: memory is bounded by a batch, whatever the file's size."""

from collections.abc import Iterable, Iterator

import polars as pl
from polars.exceptions import PanicException

from kp_batch.archive.file_faults import UNREADABLE_FILE, Fault, UnreadableError
from kp_batch.archive.formats.json_values import begun
from kp_batch.archive.source_file import SourceFile
from kp_batch.archive.sources import open_file
from kp_batch.errors import is_of_machine

# Rows a batch: long traces hold some 50 kB of text, so that a batch stays below 200 MB.
BATCH_ROWS = 4_096


def read_rows(source: SourceFile) -> Iterator[pl.DataFrame]:
    """The file's rows as frames of `ROWS`, unchecked, in their order.

    Raises:
        UnreadableError: the file is damaged, is of another format, or lacks a required column.
            Frames that came before the error are void. Where the disk or the network failed, it
            is raised from that error, and another try may succeed; see `is_passing`.
    """
    if source.size == 0:
        raise UnreadableError([Fault(UNREADABLE_FILE, "the file is empty (0 bytes)")])
    try:
        with open_file(source.path, source.copy) as file:
            yield from source.format.read_rows(source.path, file, BATCH_ROWS)
    except UnreadableError:
        raise
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_of_machine(error):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableError([Fault(UNREADABLE_FILE, reason)]) from error


def read_raw(
    source: SourceFile, rows: Iterable[int], *, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """Read some rows again, as JSON. What JSON does not have, such as NaN, stands as text.

    Args:
        source: a file that was read before.
        rows: row numbers, ascending, which are taken as they are needed.
        whole: raise an error where a column is damaged, rather than leave the column or the row
            out; and give all of a row, rather than at most `RAW_BYTES` of it.

    Yields:
        The rows that can be read again, with their numbers: JSON texts; a JSONL line that is no
        JSON object as a JSON string, and so the beginning of a row that is too large.

    Raises:
        OSError: the file cannot be opened, or the disk or the network failed.
        Exception: the file is damaged, and rows are to be whole.
    """
    with open_file(source.path, source.copy) as file:
        for row, text in source.format.read_raw(file, rows, BATCH_ROWS, whole=whole):
            yield row, text if whole else begun(text)
