"""What a writer changes of the tables: a value, until it is published.

Its data files lie in a folder of their own, which no reader of the tables, no commit and no bucket
sees. A snapshot shows it laid over what is published; `publication.publish` publishes it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.files import atomic_write
from kp_batch.json_values import Number, is_text
from kp_batch.schemas import TABLES
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.data_files import DataFile, write_data_file
from kp_batch.warehouse.delta import (
    TableChange,
    commit,
    entries,
    logged_file,
    next_version,
    restore_all,
)
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import DAMAGED, Manifest

_ROWS = Number(0, 2**63 - 1, is_whole=True)  # of a file


@dataclass(frozen=True)
class Candidate:
    """What a writer changes of the tables of a warehouse.

    Attributes:
        warehouse: the folder of the tables.
        tables: the version of each table that it builds upon, and that is published.
        writer: the id of the run; it is put into the names of files, and into Delta's log.
        changes: by table; others stay as they are.
    """

    warehouse: Path
    tables: Mapping[str, int]
    writer: str
    changes: Mapping[str, TableChange] = field(default_factory=dict[str, TableChange])

    @property
    def folder(self) -> Path:
        """Where its data files are, as in the warehouse."""
        return Layout(self.warehouse).candidate

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

    def replace_all(self, name: str, files: Sequence[DataFile]) -> "Candidate":
        """Replace all rows of a table by files."""
        return self.change(name, files, self.entries(name)["path"])

    def replace_partitions(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date]
    ) -> "Candidate":
        """Replace the rows of some partitions by files.

        Raises:
            ValueError: a file is of another partition.
        """
        replaced = set(partitions)
        for file in files:
            if file.partition not in replaced:
                raise ValueError(f"{file.path} is of no partition of {name} that is replaced")
        before = self.entries(name).filter(pl.col("partition").is_in(replaced))
        return self.change(name, files, before["path"])

    def change(
        self, name: str, added: Sequence[DataFile], removed: Iterable[str] = ()
    ) -> "Candidate":
        """Add files to a table, and remove others by their paths below its folder."""
        before, gone = self.changes.get(name, TableChange()), frozenset(removed)
        own = {file.path for file in before.added}
        change = TableChange(
            added=(*(file for file in before.added if file.path not in gone), *added),
            removed=before.removed | (gone - own),
        )
        return replace(self, changes={**self.changes, name: change})

    def to_version(self, name: str, version: int) -> "Candidate":
        """Give a table the files of another version of it."""
        now, then = self.entries(name), entries(self.warehouse, name, version)
        added = then.join(now, on="path", how="anti", maintain_order="left")
        removed = now.join(then, on="path", how="anti", maintain_order="left")
        if added.is_empty() and removed.is_empty():
            return self
        files = [DataFile(**row) for row in added.iter_rows(named=True)]
        return self.change(name, files, removed["path"])

    def entries(self, name: str) -> pl.DataFrame:
        """The files of a table as they would be: rows of `delta.ENTRIES`."""
        before = entries(self.warehouse, name, self.tables.get(name))
        change = self.changes.get(name)
        if change is None:
            return before
        added = pl.DataFrame([vars(file) for file in change.added], schema=before.schema)
        return pl.concat([before.filter(~pl.col("path").is_in(change.removed)), added])

    def files(self, name: str) -> list[Path]:
        """The Parquet files of a table as they would be, sorted by their names."""
        roots = (root.resolve() for root in (self.folder, self.warehouse))
        own, published = (Layout(root).table(name) for root in roots)
        added = {file.path for file in self.changes.get(name, TableChange()).added}
        # Those that it adds are moved when they are published.
        paths = (
            own / path if path in added and (own / path).exists() else logged_file(published, path)
            for path in self.entries(name)["path"]
        )
        return sorted(paths, key=lambda path: path.parts[-2:])  # by partition, then by name

    def move_files(self) -> None:
        """Move its files into the folders of the tables; done again, they stay there."""
        for name, change in self.changes.items():
            for file in change.added:
                own = Layout(self.folder).table(name) / file.path
                target = Layout(self.warehouse).table(name) / file.path
                if own.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    own.replace(target)

    def keep(self, settings: Mapping[str, Any]) -> None:
        """Have it asked, until the next run clears it, by the settings of its scores."""
        content = {"settings": settings, **asdict(self), "warehouse": None}
        with atomic_write(Layout(self.warehouse).kept_candidate) as written:
            written.write_text(json.dumps(content, default=_as_json), "utf-8")

    @classmethod
    def kept(cls, warehouse: Path) -> "tuple[Candidate, Mapping[str, Any]] | None":
        """The one that is kept, with the settings of its scores; None if there is none.

        Raises:
            WarehouseError: it is damaged, or files of it are gone.
        """
        try:
            content = Layout(warehouse).kept_candidate.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return cls._parse(warehouse, json.loads(content))
        except (*DAMAGED, FileNotFoundError) as error:
            raise WarehouseError(
                f"the candidate of {shown(warehouse)} is damaged: remove its folder candidate"
            ) from error

    @classmethod
    def _parse(cls, warehouse: Path, content: Any) -> "tuple[Candidate, Mapping[str, Any]]":
        """Check what a file holds, which anybody may have written, and take it."""
        base = Manifest.read(content["settings"], content["tables"])
        changes = {name: _change_of(each) for name, each in content["changes"].items()}
        if not (is_text(content["writer"]) and changes.keys() <= TABLES.keys()):
            raise ValueError("a writer or a table that no run writes")
        candidate = cls(warehouse, base.tables, content["writer"], changes)
        for name, change in changes.items():
            folder = Layout(candidate.folder).table(name)
            if any((folder / file.path).stat().st_size != file.size for file in change.added):
                raise ValueError("a file of another size")
        return candidate, base.settings

    def restored(self) -> "Candidate":
        """The same upon the newest version of each table, which has the rows of the published one.

        Where it has not, as an earlier try has committed the changes, say, it is restored.
        """
        return replace(self, tables=restore_all(self.warehouse, self.tables))

    @property
    def next_versions(self) -> dict[str, int]:
        """The version of each table once this is committed, if nobody commits before."""
        return dict(self.tables) | {
            name: next_version(self.warehouse, name, self.tables.get(name)) for name in self.changes
        }

    def commit(self, versions: Mapping[str, int]) -> None:
        """Commit the changes, whose files are moved: from then on, the newest versions have them.

        Raises:
            WarehouseError: another writer changed a table meanwhile.
        """
        for name, change in self.changes.items():
            commit(self.warehouse, name, change, self.writer, versions[name])


def _as_json(value: object) -> object:
    return sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else str(value)


def _change_of(content: Mapping[str, Any]) -> TableChange:
    removed = frozenset(content["removed"])
    if not all(map(is_text, removed)):
        raise ValueError("paths that no run writes")
    return TableChange(tuple(map(_file_of, content["added"])), removed)


def _file_of(content: Mapping[str, Any]) -> DataFile:
    path, rows, size, day = (content[name] for name in ("path", "rows", "size", "partition"))
    if not re.fullmatch(r"([\w=-]+/)?[\w-]+\.parquet", path) or not _ROWS.allows(rows):
        raise ValueError("a file that no run writes")
    return DataFile(path, rows, size, None if day is None else date.fromisoformat(day))
