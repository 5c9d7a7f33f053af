"""A candidate: the manifest that a writer builds step by step, hidden until it is published.

Its data files and new lists are in a folder of its own, which no reader of the tables, no export
and no bucket sees until `publication.publish` publishes them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl

from kp_batch.files import atomic_write
from kp_batch.warehouse.data_files import write_data_file
from kp_batch.warehouse.file_lists import DataFile, month_of, read_list, write_list
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, Tables
from kp_batch.warehouse.snapshot import PublishedSnapshot

_ID = 16  # hex digits in a warehouse's id


def _this_month() -> str:
    return month_of(datetime.now(UTC).date())


@dataclass(frozen=True)
class Candidate:
    """The tables of a warehouse as a writer changes them.

    Attributes:
        warehouse: the folder of the tables.
        base: the published manifest that it builds upon.
        writer: the id of the run, which is part of file names.
        changed: the lists of each table that it has changed; other tables stay as they are.
        name: the name of the manifest to publish.
        month: the month that lists files of tables without partitions.
    """

    warehouse: Path
    base: Manifest
    writer: str
    changed: Tables = field(default_factory=dict[str, Mapping[str, str]])
    name: str = field(default_factory=lambda: uuid4().hex)
    month: str = field(default_factory=_this_month)

    @property
    def folder(self) -> Path:
        """The folder of its data files and lists, laid out like the warehouse."""
        return Layout(self.warehouse).candidate

    @property
    def number(self) -> int:
        """The number of its publication."""
        return self.base.number + 1

    @property
    def tables(self) -> Tables:
        """The lists of each table."""
        return {**self.base.tables, **self.changed}

    def append(self, name: str, rows: pl.DataFrame) -> "Candidate":
        """Add rows to a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
        """
        return self.change(name, [self._write(name, rows)])

    def overwrite(self, name: str, rows: pl.DataFrame) -> "Candidate":
        """Replace all rows of a table without partitions.

        Raises:
            TypeError: the rows have another schema than the table.
        """
        return self.replace_all(name, [self._write(name, rows)])

    def _write(self, name: str, rows: pl.DataFrame) -> DataFile:
        return write_data_file(self.folder, name, rows, f"{self.writer}-{uuid4().hex}")

    def replace_all(self, name: str, files: Iterable[DataFile]) -> "Candidate":
        """Replace all rows of a table by files."""
        return self._with(name, files, self.tables.get(name, ()), lambda _: False)

    def replace_partitions(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date]
    ) -> "Candidate":
        """Replace the rows of some partitions by files.

        Raises:
            ValueError: a file belongs to another partition.
        """
        replaced = set(partitions)
        for file in files:
            if file.partition not in replaced:
                raise ValueError(f"{file.path} is of no partition of {name} that is replaced")
        months = map(month_of, replaced)
        return self._with(name, files, months, lambda file: file.partition not in replaced)

    def change(
        self, name: str, added: Iterable[DataFile], removed: Iterable[str] = ()
    ) -> "Candidate":
        """Add files to a table, and remove others by their paths below its folder."""
        gone = frozenset(removed)
        months = self.tables.get(name, ()) if gone else ()
        return self._with(name, added, months, lambda file: file.path not in gone)

    def as_in(self, name: str, manifest: Manifest) -> "Candidate":
        """Give a table the files that it has in another manifest."""
        return replace(self, changed={**self.changed, name: manifest.tables.get(name, {})})

    def _with(
        self,
        name: str,
        added: Iterable[DataFile],
        months: Iterable[str],
        stays: Callable[[DataFile], bool],
    ) -> "Candidate":
        """Add files to a table; in the given months, keep only some files."""
        lists, new = dict(self.tables.get(name, {})), self._by_month(added)
        for month in {*lists.keys() & {*months}, *new}:
            listed = lists.pop(month, "")
            own = read_list(self.warehouse, listed) if listed else ()
            files = [*filter(stays, own), *new.get(month, ())]
            if files == [*own]:
                lists[month] = listed
            elif files:
                lists[month] = write_list(self.warehouse, self.name, files)
        return replace(self, changed={**self.changed, name: dict(sorted(lists.items()))})

    def _by_month(self, files: Iterable[DataFile]) -> Mapping[str, Sequence[DataFile]]:
        months: dict[str, list[DataFile]] = {}
        for file in files:
            month = month_of(file.partition) if file.partition else self.month
            months.setdefault(month, []).append(file)
        return months

    def manifest(self, settings: Mapping[str, Any], *, failed: bool = False) -> Manifest:
        """The manifest to publish, with the settings of its scores."""
        return Manifest(
            settings,
            self.tables,
            failed=failed,
            warehouse_id=self.base.warehouse_id or uuid4().hex[:_ID],
            number=self.number,
            kept_from=self.base.kept_from,
            before=self.base.name,
        ).as_publication(self.name)

    def snapshot(self, settings: Mapping[str, Any], *, failed: bool = False) -> PublishedSnapshot:
        """The tables as they would be published, with the settings of their scores."""
        manifest = self.manifest(settings, failed=failed)
        return PublishedSnapshot(self.warehouse, manifest, is_candidate=bool(self.changed))

    def keep(self, settings: Mapping[str, Any]) -> None:
        """Keep it for queries until the next run, with the settings of its scores."""
        with atomic_write(Layout(self.warehouse).kept_candidate) as written:
            written.write_text(self.manifest(settings).as_json(), "utf-8")

    def move_files(self) -> None:
        """Move its files and lists into the warehouse's folders; may be repeated."""
        own, target = Layout(self.folder), Layout(self.warehouse)
        published = self.base.lists
        for name, months in self.changed.items():
            for each in {*months.values()} - published:
                for file in read_list(self.warehouse, each):
                    _move(own.table(name) / file.path, target.table(name) / file.path)
                _move(own.file_list(each), target.file_list(each))


def _move(path: Path, target: Path) -> None:
    if path.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
