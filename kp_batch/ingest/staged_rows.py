"""Writes the facts and the texts of rows, one row group at a time."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
from polars import CompatLevel

from kp_batch.archive.reading import BATCH_ROWS
from kp_batch.archive.validation import reasons
from kp_batch.files import atomic_write
from kp_batch.schemas import FACTS
from kp_batch.scoring.facts import with_facts
from kp_batch.warehouse.staging import TEXTS, Staging

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_FACTS_ROWS = 65_536  # a row group of facts: some 16 MB
_BUFFER_ROWS = 16_384  # whose facts are computed together: with fewer, building queries costs more
# The columns of facts worth a dictionary; pyarrow would begin one for each hash and throw it away.
_REPEATED = (
    *("file_id", "task_domain", "agent_id", "framework", "source_skill"),
    "reasons.list.element",
)
_POINTER_BYTES = 16
BUFFER_BYTES = 64 << 20  # a batch of large rows ends here


class _Buffer:
    """Collects frames until they have enough rows, or bytes, to work on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._frames: list[pl.DataFrame] = []
        self._rows = self._bytes = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Add a frame."""
        if len(rows):
            self._frames.append(rows)
            self._rows += len(rows)
            self._bytes += _size(rows)
        if self._rows >= self._most or self._bytes >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Work on all collected rows, if there are any."""
        if self._frames:
            # As one chunk: otherwise every expression would make one of the columns that it takes.
            rows = pl.concat(self._frames, rechunk=True)
            self._frames = []
            self._rows = self._bytes = 0
            self._work(rows)

    def _work(self, rows: pl.DataFrame) -> None:
        raise NotImplementedError


def _size(rows: pl.DataFrame) -> int:
    """Return the approximate bytes of rows; Polars counts lists' texts, but not their pointers."""
    lists = (column for column in rows if column.dtype == pl.List)
    values = sum(int(column.list.len().sum() or 0) for column in lists)
    return int(rows.estimated_size()) + _POINTER_BYTES * values


class ParquetBatchWriter(_Buffer):
    """A Parquet file that is written a row group at a time; see `parquet_batches`.

    Attributes:
        files: the file, once the context has ended; empty if there were no rows.
    """

    def __init__(self, path: Path, schema: pl.Schema, most: int, repeated: Sequence[str]) -> None:
        super().__init__(most)
        self._path, self._schema, self._repeated = path, schema, list(repeated)
        self.files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, which may have further columns."""
        super().add(rows.select(self._schema.names()))

    def _work(self, rows: pl.DataFrame) -> None:
        # Polars stores strings as Arrow's views; any other type would be a copy.
        table = rows.to_arrow(compat_level=CompatLevel.newest())
        if self._writer is None:
            import pyarrow.parquet as pq

            # Without the Arrow schema: it would give views to every reader of the file.
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                compression="zstd",
                use_dictionary=cast("Any", self._repeated),  # its stubs take a bool alone
                store_schema=False,
            )
        fitting = len(rows) * BUFFER_BYTES // max(_size(rows), 1)
        group = max(min(self._most, fitting), 1)
        self._writer.write_table(table, row_group_size=group)

    def close(self) -> bool:
        """Close the file; return whether there is one."""
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None


@contextmanager
def parquet_batches(
    path: Path, schema: pl.Schema, most: int, repeated: Sequence[str] = ()
) -> Generator[ParquetBatchWriter]:
    """Write a Parquet file, which exists once the context ends; without rows there is none.

    Args:
        path: path of the file.
        schema: schema of its rows.
        most: maximal rows of a group; a group of large rows has fewer.
        repeated: columns, by their paths, whose values repeat.
    """
    with atomic_write(path) as written:
        writer = ParquetBatchWriter(written, schema, most, repeated)
        try:
            yield writer
            writer.flush()
        except BaseException:
            with suppress(OSError):  # of a full disk, for example: only the first error counts
                writer.close()
            raise
        has_rows = writer.close()
    writer.files += [path] if has_rows else []


class StagedRows(_Buffer):
    """Two files for some content: the facts of its rows, and the texts of accepted rows.

    It takes frames of `ROWS` with the columns `file_id` and `raw`. It computes the facts of many
    small files at once, which is faster.
    """

    def __init__(self, facts: ParquetBatchWriter, texts: ParquetBatchWriter) -> None:
        super().__init__(_BUFFER_ROWS)
        self.facts, self.texts = facts, texts

    def _work(self, rows: pl.DataFrame) -> None:
        rows = with_facts(rows, reasons())
        self.facts.add(rows)
        self.texts.add(texts_of(rows.filter(pl.col("reasons").list.len() == 0)))


@contextmanager
def staged_rows(staging: Staging, name: str) -> Generator[StagedRows]:
    """Stage the rows of some content, in files of this name; after an error, neither exists."""
    with (
        parquet_batches(staging.facts(name), FACTS, _FACTS_ROWS, _REPEATED) as facts,
        parquet_batches(staging.texts(name), TEXTS, BATCH_ROWS) as texts,
    ):
        rows = StagedRows(facts, texts)
        yield rows
        rows.flush()


def texts_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the texts of rows, each once: a frame of `TEXTS`."""
    once = rows.select("text_hash", "text").unique("text_hash", keep="first", maintain_order=True)
    return once.with_columns(bytes=pl.col("text").str.len_bytes().cast(pl.Int64))
