"""Publications without a run, and all that is read of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from kp_batch.schemas import PROFILES, VIEWS
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import DataFile
from kp_batch.warehouse.delta import restore_all
from kp_batch.warehouse.manifest import Manifest, read_manifest
from kp_batch.warehouse.publication import publish


def profile(name: str) -> pl.DataFrame:
    row = [name, name, 0.25, 0.25, 0.25, 0.25, [None]]
    return pl.DataFrame([row], schema=PROFILES, orient="row")


class CommittedTables:
    """Commits each change of tables at once, as what is published or a writer leaves that dies.

    Attributes:
        versions: of the tables, as the next change begins from.
    """

    def __init__(self, warehouse: Path, published: Mapping[str, int], writer: str) -> None:
        self._warehouse, self._writer, self.versions = warehouse, writer, dict(published)

    def overwrite(self, name: str, rows: pl.DataFrame) -> None:
        self.commit(self.candidate.overwrite(name, rows))

    def append(self, name: str, rows: pl.DataFrame) -> None:
        self.commit(self.candidate.append(name, rows))

    def add_files(self, name: str, files: Sequence[DataFile]) -> None:
        self.commit(self.candidate.change(name, files))

    def replace_files(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date] | None
    ) -> None:
        if partitions is None:
            self.commit(self.candidate.replace_all(name, files))
        else:
            self.commit(self.candidate.replace_partitions(name, files, partitions))

    @property
    def candidate(self) -> Candidate:
        """No change yet."""
        return Candidate(self._warehouse, self.versions, self._writer)

    def commit(self, candidate: Candidate) -> None:
        """Commit changes of `candidate`."""
        tables = restore_all(self._warehouse, self.versions)
        candidate = replace(candidate, tables=tables)
        candidate.move_files()
        versions = candidate.next_versions
        candidate.commit(versions)
        self.versions = versions


def publish_tables(warehouse: Path, manifest: Manifest) -> None:
    """Publish versions that are committed."""
    candidate = Candidate(warehouse, manifest.tables, "a-run")
    publish(candidate, manifest.settings, failed=manifest.failed)


def publish_profile(warehouse: Path, name: str) -> None:
    published = read_manifest(warehouse) or Manifest({"threshold": 0.75}, {})
    candidate = Candidate(warehouse, published.tables, "a-run")
    publish(candidate.overwrite("profiles", profile(name)), {"threshold": 0.75})


Tables = dict[str, list[tuple[Any, ...]]]


def tables(connection: duckdb.DuckDBPyConnection) -> Tables:
    """All rows of all views."""
    return {name: connection.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in VIEWS}
