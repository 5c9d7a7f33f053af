"""Writes the facts and the texts of rows that are read, a row group at a time."""

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.reading import BATCH_ROWS
from kp_batch.archive.validation import reasons
from kp_batch.contracts import FACTS, arrow_schema
from kp_batch.facts import with_facts
from kp_batch.staging import TEXTS, Staging, beside

_FACTS_ROWS = 65_536  # a row group of facts: some 16 MB; a batch of texts may have 200


class RowGroups:
    """A Parquet file, written a row group at a time, there once it is whole; none without rows.

    Args:
        path: where it goes.
        schema: of its rows.
        most: rows that are held before they are written.
    """

    def __init__(self, path: Path, schema: pl.Schema, most: int) -> None:
        self._path, self._schema, self._most = path, schema, most
        self._beside = beside(path)
        self._held: list[pl.DataFrame] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, with more columns perhaps."""
        if len(rows):
            self._held.append(rows.select(self._schema.names()))
        if sum(map(len, self._held)) >= self._most:
            self._write()

    def close(self) -> list[Path]:
        """Write what is held; returns the file, if there is one."""
        self._write()
        if self._writer is None:
            return []
        self._writer.close()
        self._beside.replace(self._path)
        return [self._path]

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # of a full disk, say: the error that counts was before
            if self._writer is not None:
                self._writer.close()
        self._beside.unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._held:
            return
        schema = arrow_schema(self._schema)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._beside, schema, compression="zstd")
        self._writer.write_table(pl.concat(self._held).to_arrow().cast(schema))
        self._held = []


class StagedRows:
    """Two files of some content: the facts of its rows, and the texts of those that are accepted.

    An error that comes up in its context removes both.

    Args:
        staging: the run's files.
        name: of the two.

    Attributes:
        facts: the files of facts, once the context has ended: one, or none where there are no rows.
        texts: likewise of texts.
    """

    def __init__(self, staging: Staging, name: str) -> None:
        self.facts: list[Path] = []
        self.texts: list[Path] = []
        self._facts = RowGroups(staging.facts(name), FACTS, _FACTS_ROWS)
        self._texts = RowGroups(staging.texts(name), TEXTS, BATCH_ROWS)
        self._held: list[pl.DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._facts.discard()
            self._texts.discard()
            return
        self._take_facts()
        self.facts, self.texts = self._facts.close(), self._texts.close()

    def add(self, rows: pl.DataFrame) -> None:
        """Add a batch: a frame of `ROWS` with the column `file_id`."""
        self._held.append(rows)
        if sum(map(len, self._held)) >= BATCH_ROWS:
            self._take_facts()

    def _take_facts(self) -> None:
        """Compute the facts of what is held: of many small files at once, which is faster."""
        if not self._held:
            return
        rows = with_facts(pl.concat(self._held), reasons())
        self._held = []
        self._facts.add(rows)
        accepted = rows.filter(pl.col("reasons").list.len() == 0)
        self._texts.add(texts_of(accepted))


def texts_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The texts of rows, each once: a frame of `TEXTS`."""
    once = rows.select("text_hash", "text").unique("text_hash", keep="first", maintain_order=True)
    return once.with_columns(bytes=pl.col("text").str.len_bytes().cast(pl.Int64))
