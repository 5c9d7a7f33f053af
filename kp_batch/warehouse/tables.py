"""The Delta tables: written by a run, not seen by anyone until the catalog names their version."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from kp_batch.contracts import PARTITIONED_BY, TABLES
from kp_batch.errors import WarehouseError

# What is published may be as old as the last successful run: the log keeps it.
_CONFIGURATION: Mapping[str, str | None] = {"delta.logRetentionDuration": "interval 36500 days"}
Mode = Literal["append", "overwrite"]


class DeltaTables:
    """The tables of one warehouse, starting from the versions that its catalog names.

    What a killed run committed after them is undone before the next write: only what is published
    ever happened.
    """

    def __init__(self, warehouse: Path, published: dict[str, int]) -> None:
        """Nothing is touched before the first write."""
        self._warehouse = warehouse
        self.versions = dict(published)

    def overwrite(self, name: str, frame: pl.LazyFrame, run_id: str) -> None:
        """Replace a table's rows; `frame` has the table's schema, in the order of its rows."""
        self._write(name, frame, run_id, "overwrite")

    def append(self, name: str, frame: pl.LazyFrame, run_id: str) -> None:
        """Add rows to a table."""
        self._write(name, frame, run_id, "append")

    def _write(self, name: str, frame: pl.LazyFrame, run_id: str, mode: Mode) -> None:
        _check(name, frame)
        path = self._warehouse / name
        if self._undo_unpublished(name):
            mode = "overwrite"
        write_deltalake(
            str(path),
            _reader(frame, PARTITIONED_BY.get(name)),
            mode=mode,
            partition_by=PARTITIONED_BY.get(name),
            configuration=_CONFIGURATION,
            commit_properties=CommitProperties(custom_metadata={"run_id": run_id}),
        )
        self.versions[name] = DeltaTable(str(path)).version()

    def _undo_unpublished(self, name: str) -> bool:
        """Restore the published version; true where there is none and all rows have to go."""
        published = self.versions.get(name)
        table = open_table(self._warehouse, name)
        if table is not None and published is not None and table.version() > published:
            table.restore(published)
        return table is not None and published is None


def open_table(warehouse: Path, name: str, version: int | None = None) -> DeltaTable | None:
    """A table at a version, or at its newest; None where there is no such table."""
    try:
        return DeltaTable(str(warehouse / name), version=version)
    except TableNotFoundError:
        return None


def files_of(warehouse: Path, name: str, version: int) -> list[Path]:
    """The Parquet files of a table's version, in the order of their paths.

    Raises:
        WarehouseError: the table or that version is gone.
    """
    table = open_table(warehouse, name, version)
    if table is None:
        raise WarehouseError(f"the table {name} is gone from {warehouse}; run the archive again")
    actions = pl.DataFrame(table.get_add_actions(flatten=True))
    return sorted(warehouse / name / unquote(path) for path in actions.get_column("path"))


def _reader(frame: pl.LazyFrame, partition: str | None) -> pa.RecordBatchReader:
    """The frame as a stream; of a partitioned table a batch holds a whole partition.

    delta-rs writes the batches of a stream in any order, so the rows of a file keep theirs only
    where one batch holds them all. The frame has its partitions one after the other.
    """
    schema = frame.collect_schema().to_frame().to_arrow().schema
    return pa.RecordBatchReader.from_batches(schema, _batches(frame, partition, schema))


def _batches(
    frame: pl.LazyFrame, partition: str | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    held: list[pl.DataFrame] = []
    for chunk in frame.collect_batches(maintain_order=True):
        for part in chunk.partition_by(partition, maintain_order=True) if partition else [chunk]:
            if held and not (partition and _same(held[0], part, partition)):
                yield _batch(held, schema)
                held = []
            held.append(part)
    if held:
        yield _batch(held, schema)


def _same(left: pl.DataFrame, right: pl.DataFrame, partition: str) -> bool:
    return left.item(0, partition) == right.item(0, partition)


def _batch(frames: list[pl.DataFrame], schema: pa.Schema) -> pa.RecordBatch:
    table = pl.concat(frames).to_arrow().cast(schema)
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in table.columns], schema=schema
    )


def _check(name: str, frame: pl.LazyFrame) -> None:
    got, expected = frame.collect_schema(), TABLES[name]
    if got != expected:
        raise TypeError(f"the table {name} has the schema {expected}, got {got}")
