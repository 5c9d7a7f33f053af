"""Delta tables: a run writes them, and nobody sees a version until the manifest names it."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from uuid import uuid4

import polars as pl
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.commits import commit_files, files_at
from kp_batch.warehouse.data_files import DataFile, data_files, write_data_file
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.versions import open_table


class DeltaTables:
    """The tables of one warehouse, starting from the versions that its manifest names.

    What a killed run committed after these versions is undone before the next write: only what is
    published ever happened. Nothing is touched before the first write.

    Args:
        warehouse: the folder of the tables.
        published: the published version of each table.
        run_id: of the run that writes; Delta's log keeps it.
    """

    def __init__(self, warehouse: Path, published: Mapping[str, int], run_id: str) -> None:
        self._warehouse = warehouse
        self._run_id = run_id
        self.versions = dict(published)

    def overwrite(self, name: str, rows: pl.DataFrame) -> None:
        """Replace all rows of a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
            WarehouseError: another writer changed the table at the same time.
        """
        self.replace_files(name, [self._written(name, rows)], None)

    def append(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows to a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
            WarehouseError: another writer changed the table at the same time.
        """
        self.add_files(name, [self._written(name, rows)])

    def _written(self, name: str, rows: pl.DataFrame) -> DataFile:
        return write_data_file(self._warehouse, name, rows, f"{self._run_id}-{uuid4().hex}")

    def add_files(self, name: str, files: Sequence[DataFile]) -> None:
        """Add the rows of files, which are in the table's folder.

        Raises:
            FileNotFoundError: a file is gone.
            WarehouseError: another writer changed the table at the same time.
        """
        self._commit_files(name, files, replaced=set())

    def replace_files(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date] | None
    ) -> None:
        """Replace the rows of some partitions, or all rows if None, by those of files.

        Raises:
            FileNotFoundError: a file is gone.
            ValueError: a file is of another partition.
            WarehouseError: another writer changed the table at the same time.
        """
        replaced = None if partitions is None else set(partitions)
        for file in files:
            if replaced is not None and file.partition not in replaced:
                raise ValueError(f"{file.path} is of no partition of {name} that is replaced")
        self._commit_files(name, files, replaced)

    def _commit_files(
        self, name: str, files: Sequence[DataFile], replaced: set[date] | None
    ) -> None:
        if self.undo_unpublished(name):
            replaced = None
        folder = Layout(self._warehouse).table(name)
        with self._committing(name) as properties:
            commit_files(folder, name, files, replaced, properties)

    @contextmanager
    def _committing(self, name: str) -> Generator[CommitProperties]:
        """Give the properties of a commit, and note the version that it makes."""
        try:
            # Tried once: another writer's commit in between may never be published.
            yield CommitProperties({"run_id": self._run_id}, max_commit_retries=0)
        except CommitFailedError as error:
            raise WarehouseError(
                f"another writer changed the table {name} of {shown(self._warehouse)} at the same "
                "time; nothing was published; run again"
            ) from error
        self.versions[name] = DeltaTable(str(Layout(self._warehouse).table(name))).version()

    def undo_unpublished(self, name: str) -> bool:
        """Restore a table's published version.

        Returns:
            Whether none is published, though the table exists: then all of its rows have to go.
        """
        published = self.versions.get(name)
        table = open_table(self._warehouse, name)
        if table is not None and published is not None and table.version() > published:
            table.restore(published)
            self.versions[name] = table.version()
        return table is not None and published is None


def remove_unneeded(warehouse: Path, name: str, versions: Iterable[int]) -> int:
    """Remove what `unneeded_files` gives; returns how many files that were."""
    unneeded = unneeded_files(warehouse, name, versions)
    for path in unneeded:
        path.unlink()
    return len(unneeded)


def unneeded_files(warehouse: Path, name: str, versions: Iterable[int]) -> list[Path]:
    """The files of a table that none of these versions needs; see `data_files`.

    Raises:
        WarehouseError: a link is among them, or the table's log does not tell.
    """
    needed = files_at(Layout(warehouse).table(name), set(versions))
    return [path for path in data_files(warehouse, name) if path not in needed]
