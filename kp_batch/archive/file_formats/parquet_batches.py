"""The rows of a Parquet file in batches of bounded size."""

from collections.abc import Callable, Iterator
from io import BytesIO
from os import SEEK_END
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch import bounds
from kp_batch.archive.file_formats.json import BATCH_BYTES
from kp_batch.errors import Fault, UnreadableError
from kp_batch.stopping import raise_if_unwanted

_READ_AHEAD = 1 << 20  # bytes per column; without a limit, pyarrow reads whole row groups ahead
_ROWS = 128  # to decode before they are measured: a row may take far more than earlier ones
_MAGIC = b"PAR1"
_END_BYTES = 8  # at the end of a file: the size of its footer, and a magic word
_ARROW_SCHEMA = b"\x18\x0cARROW:schema\x18"  # in a footer: the name of a text, which follows


class ParquetRows:
    """The rows of a Parquet file.

    Attributes:
        schema: schema of all columns.
        number: number of rows, as the file states it.

    Raises:
        UnreadableError: according to its footer, the file unpacks to too much, or has too many
            columns.
    """

    def __init__(self, file: IO[bytes]) -> None:
        size = file.seek(0, SEEK_END)
        self._most = max(bounds.UNPACKED_BYTES, bounds.RATIO * size)
        self._parquet = pq.ParquetFile(
            file,
            metadata=_plain_metadata(file, size),
            pre_buffer=False,
            buffer_size=_READ_AHEAD,
            coerce_int96_timestamp_unit="us",  # in nanoseconds the year 9999 becomes 1816
        )
        metadata = self._parquet.metadata
        if metadata.num_columns > bounds.COLUMNS:
            raise _too_large(f"has more than {bounds.COLUMNS:,} columns")
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        self._check_unpacked(sum(group.total_byte_size for group in groups))
        self.schema = self._parquet.schema_arrow
        self.number: int = metadata.num_rows

    def batches(
        self, most: int, is_wanted: Callable[[str], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in batches of at most `BATCH_BYTES`, unless a single row takes more.

        Args:
            most: maximal rows of a batch.
            is_wanted: whether to read a leaf column, by its dotted physical path; None for all.

        Raises:
            UnreadableError: the file unpacks to too much.
        """
        parts, size, rows = list[pa.RecordBatch](), 0, 0
        for part in self._parts(most, is_wanted):
            if parts and size + part.nbytes > BATCH_BYTES:
                yield pa.concat_batches(parts)
                parts, size, rows = list[pa.RecordBatch](), 0, 0
            parts.append(part)
            size, rows = size + part.nbytes, rows + len(part)
            if rows >= most:  # not with the next part: it may be damaged
                yield pa.concat_batches(parts)
                parts, size, rows = list[pa.RecordBatch](), 0, 0
        if parts:
            yield pa.concat_batches(parts)

    def _parts(
        self, most: int, is_wanted: Callable[[str], bool] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield small batches of rows."""
        unpacked = 0
        # Without threads, since the parts of an archive are read in threads.
        for batch in self._parquet.iter_batches(
            batch_size=min(most, _ROWS), columns=self._leaves(is_wanted), use_threads=False
        ):
            raise_if_unwanted()
            unpacked += batch.nbytes
            self._check_unpacked(unpacked)  # may exceed what the footer states
            # Without the writer's metadata: some of its bytes make Polars panic.
            yield from _halved(batch.replace_schema_metadata())

    def _leaves(self, is_wanted: Callable[[str], bool] | None) -> list[str]:
        """Return the physical columns to read."""
        schema = self._parquet.schema
        leaves = (schema.column(index) for index in range(len(schema)))
        # pyarrow 26 reads too few values of a null column in a list of structs; without the column,
        # all values are null.
        return [
            leaf.path
            for leaf in leaves
            if (is_wanted is None or is_wanted(leaf.path))
            and not ("." in leaf.path and str(leaf.logical_type) == "Null")
        ]

    def _check_unpacked(self, size: int) -> None:
        if size > self._most:
            raise _too_large(f"unpacks to more than {self._most >> 20:,} MiB")


def release_memory() -> None:
    """Release the memory that Arrow keeps in this thread for later reads."""
    pa.default_memory_pool().release_unused()


def _plain_metadata(file: IO[bytes], size: int) -> pq.FileMetaData | None:
    """Return the footer without the writer's Arrow types; None if it has none.

    These types change no value, only its form in memory: a dictionary with keys of any type, a
    view, an extension. Hardly two of them are supported in the same places, and some crash the
    process. Parquet's own types are few.
    """
    file.seek(max(size - _END_BYTES, 0))
    length = int.from_bytes(file.read(_END_BYTES)[:4], "little")
    file.seek(max(size - _END_BYTES - length, 0))
    footer = file.read()
    if _ARROW_SCHEMA not in footer:
        return None
    renamed = footer.replace(_ARROW_SCHEMA, _ARROW_SCHEMA.upper())  # which nobody reads
    return pq.read_metadata(BytesIO(_MAGIC + renamed))


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until each part takes at most `BATCH_BYTES`, or is one row."""
    if batch.nbytes <= BATCH_BYTES or len(batch) == 1:
        yield batch
        return
    middle = len(batch) // 2
    yield from _halved(batch.slice(0, middle))
    yield from _halved(batch.slice(middle))


def _too_large(what: str) -> UnreadableError:
    return UnreadableError(Fault(bounds.TOO_LARGE, f"the file {what}"))
