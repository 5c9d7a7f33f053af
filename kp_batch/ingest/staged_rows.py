"""Writes the facts and the texts of rows, a row group at a time."""

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
_BUFFER_ROWS = 16_384  # whose facts are computed together: of fewer, building the queries counts
# The columns of facts worth a dictionary; pyarrow would begin one of each hash and throw it away.
_REPEATED = (
    *("file_id", "task_domain", "agent_id", "framework", "source_skill"),
    "reasons.list.element",
)
_POINTER_BYTES = 16
BUFFER_BYTES = 64 << 20  # a batch of large rows ends here


class _Buffer:
    """Collects frames until together they have enough rows, or bytes, to work on."""

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
        """Work on all rows, if there are any."""
        if self._frames:
            # As one chunk: every expression would make one of the columns that it takes.
            rows = pl.concat(self._frames, rechunk=True)
            self._frames = []
            self._rows = self._bytes = 0
            self._work(rows)

    def _work(self, rows: pl.DataFrame) -> None:
        raise NotImplementedError


def _size(rows: pl.DataFrame) -> int:
    """The bytes of rows, about: Polars counts the texts of lists, but not the pointers to them."""
    lists = (column for column in rows if column.dtype == pl.List)
    values = sum(int(column.list.len().sum() or 0) for column in lists)
    return int(rows.estimated_size()) + _POINTER_BYTES * values


class ParquetBatchWriter(_Buffer):
    """A Parquet file that is written a row group at a time; see `parquet_batches`.

    Attributes:
        files: the file, once the context has ended; none where there are no rows.
    """

    def __init__(self, path: Path, schema: pl.Schema, most: int, repeated: Sequence[str]) -> None:
        super().__init__(most)
        self._path, self._schema, self._repeated = path, schema, list(repeated)
        self.files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, with more columns perhaps."""
        super().add(rows.select(self._schema.names()))

    def _work(self, rows: pl.DataFrame) -> None:
        # Arrow's views of strings are what Polars has: any other type would have to be copied.
        table = rows.to_arrow(compat_level=CompatLevel.newest())
        if self._writer is None:
            import pyarrow.parquet as pq

            # Without the Arrow schema, which would hand the views to whoever reads the file.
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
        """End the file; returns whether there is one."""
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None


@contextmanager
def parquet_batches(
    path: Path, schema: pl.Schema, most: int, repeated: Sequence[str] = ()
) -> Generator[ParquetBatchWriter]:
    """Write a Parquet file, which is there once the context ends; none without rows.

    Args:
        path: where it goes.
        schema: of its rows.
        most: rows of a group; fewer where they are large.
        repeated: the columns, by their paths, whose values come again and again.
    """
    with atomic_write(path) as written:
        writer = ParquetBatchWriter(written, schema, most, repeated)
        try:
            yield writer
            writer.flush()
        except BaseException:
            with suppress(OSError):  # of a full disk, say: only the first error counts
                writer.close()
            raise
        has_rows = writer.close()
    writer.files += [path] if has_rows else []


class StagedRows(_Buffer):
    """Two files of some content: the facts of its rows, and the texts of the accepted ones.

    It takes frames of `ROWS` with the columns `file_id` and `raw`, and computes the facts of many
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
    """Stage the rows of some content, in files of this name; after an error there is neither."""
    with (
        parquet_batches(staging.facts(name), FACTS, _FACTS_ROWS, _REPEATED) as facts,
        parquet_batches(staging.texts(name), TEXTS, BATCH_ROWS) as texts,
    ):
        rows = StagedRows(facts, texts)
        yield rows
        rows.flush()


def texts_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The texts of rows, each once: a frame of `TEXTS`."""
    once = rows.select("text_hash", "text").unique("text_hash", keep="first", maintain_order=True)
    return once.with_columns(bytes=pl.col("text").str.len_bytes().cast(pl.Int64))
