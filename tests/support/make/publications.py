"""Publications without a run, and all that is read of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from kp_batch.schemas import PROFILES, VIEWS
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.manifest import Manifest, read_manifest, require_manifest
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.snapshot import PublishedSnapshot


def profile(name: str) -> pl.DataFrame:
    row = [name, name, 0.25, 0.25, 0.25, 0.25, [None]]
    return pl.DataFrame([row], schema=PROFILES, orient="row")


SETTINGS = {"threshold": 0.75}
NOTHING = Manifest({}, {})


class Draft:
    """Changes of tables, one after the other: a candidate, until it is published.

    Attributes:
        candidate: as it is by now.
    """

    def __init__(self, warehouse: Path, writer: str = "a-run") -> None:
        self.warehouse = warehouse
        self.candidate = Candidate(warehouse, read_manifest(warehouse) or NOTHING, writer)

    def overwrite(self, name: str, rows: pl.DataFrame) -> None:
        self.candidate = self.candidate.overwrite(name, rows)

    def append(self, name: str, rows: pl.DataFrame) -> None:
        self.candidate = self.candidate.append(name, rows)

    def add_files(self, name: str, files: Sequence[DataFile]) -> None:
        self.candidate = self.candidate.change(name, files)

    def replace_files(
        self, name: str, files: Sequence[DataFile], partitions: Iterable[date] | None
    ) -> None:
        if partitions is None:
            self.candidate = self.candidate.replace_all(name, files)
        else:
            self.candidate = self.candidate.replace_partitions(name, files, partitions)

    @property
    def snapshot(self) -> PublishedSnapshot:
        return self.candidate.snapshot(SETTINGS)

    def publish(self) -> Manifest:
        publish(self.candidate, SETTINGS)
        return require_manifest(self.warehouse)


def files_of(warehouse: Path, name: str, manifest: Manifest | None = None) -> list[Path]:
    """The files of a table, by default as it is published."""
    return PublishedSnapshot(warehouse, manifest or require_manifest(warehouse)).files(name)


def publish_tables(warehouse: Path, manifest: Manifest) -> None:
    """Publish the tables of another manifest, and its settings, upon what is published."""
    base = replace(read_manifest(warehouse) or NOTHING, tables={})
    candidate = Candidate(warehouse, base, "a-run", manifest.tables)
    publish(candidate, manifest.settings, failed=manifest.failed)


def publish_nothing(warehouse: Path, **settings: Any) -> None:
    """Publish a warehouse without tables."""
    publish(Candidate(warehouse, NOTHING, "a-run"), SETTINGS | settings)


def publish_profile(warehouse: Path, name: str) -> None:
    draft = Draft(warehouse)
    draft.overwrite("profiles", profile(name))
    draft.publish()


Tables = dict[str, list[tuple[Any, ...]]]


def tables(connection: duckdb.DuckDBPyConnection) -> Tables:
    """All rows of all views."""
    return {name: connection.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in VIEWS}
