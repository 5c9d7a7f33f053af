"""Find the files that no kept manifest names, for a vacuum and a forget.

A writer first lists them, then publishes which publications are kept, and then removes what it has
listed. So it removes nothing that was written in the meantime.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from kp_batch.files import files_below
from kp_batch.schemas import GROWING, TABLES
from kp_batch.warehouse.data_files import data_files
from kp_batch.warehouse.file_lists import read_list
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, past_manifest, read_candidate
from kp_batch.warehouse.run_record import RunRecord
from kp_batch.warehouse.snapshot import PublishedSnapshot

_IN_LOG = re.compile(r"[0-9a-f]{32}\.json(?:\.[0-9a-f]{32}\.part)?")  # or a killed writer's


@dataclass(frozen=True)
class Unneeded:
    """Files of a warehouse that no kept manifest names."""

    data: tuple[Path, ...]  # of tables
    log: tuple[Path, ...]  # manifests and lists

    @classmethod
    def of(cls, snapshot: PublishedSnapshot, kept: Sequence[Manifest]) -> Self:
        """List the files.

        Args:
            snapshot: the published tables, which are kept.
            kept: other manifests; see `kept_manifests`.

        Raises:
            WarehouseError: a list is gone, or one of the files is a link.
        """
        layout = Layout(snapshot.warehouse)
        lists = {name: set(months.values()) for name, months in snapshot.manifest.tables.items()}
        for manifest in kept:
            for name, months in manifest.tables.items():
                lists.setdefault(name, set()).update(months.values())
        data = [path for name in TABLES for path in _unneeded(snapshot, name, lists.get(name, ()))]
        manifests = {snapshot.manifest.name, *(manifest.name for manifest in kept)}
        needed = {each.name for name in lists for each in map(layout.file_list, lists[name])}
        needed |= {layout.past_manifest(name).name for name in manifests}
        ours = (path for path in files_below(layout.log) if _IN_LOG.fullmatch(path.name))
        log = [path for path in ours if path.name not in needed]
        return cls(tuple(data), tuple(log))

    @property
    def files(self) -> tuple[Path, ...]:
        """All of the files."""
        return (*self.data, *self.log)

    def remove(self) -> None:
        """Remove the files.

        Raises:
            OSError: one cannot be removed.
        """
        for path in self.files:
            path.unlink(missing_ok=True)


def _unneeded(snapshot: PublishedSnapshot, name: str, lists: Iterable[str]) -> list[Path]:
    folder, warehouse = Layout(snapshot.warehouse).table(name), snapshot.warehouse
    needed = {folder / file.path for each in lists for file in read_list(warehouse, each)}
    return [path for path in data_files(warehouse, name) if path not in needed]


def kept_manifests(
    snapshot: PublishedSnapshot, runs: Iterable[RunRecord], kept_from: int
) -> list[Manifest]:
    """Return the kept manifests: those of later runs, and that of a candidate.

    Those of runs lack the tables that only grow, because their readers take what is published.

    Raises:
        WarehouseError: a manifest is gone or damaged.
    """
    warehouse = snapshot.warehouse
    kept = [*map(_without_growing, manifests_of_runs(snapshot, runs, kept_from))]
    candidate = read_candidate(warehouse)
    if candidate and candidate.before:
        kept += [candidate, past_manifest(warehouse, candidate.before)]
    return kept


def manifests_of_runs(
    snapshot: PublishedSnapshot, runs: Iterable[RunRecord], kept_from: int
) -> list[Manifest]:
    """Return the manifests that runs have published since a publication.

    Raises:
        WarehouseError: a manifest is gone or damaged.
    """
    names = (run.published["publication"] for run in runs if run.number >= kept_from)
    return [past_manifest(snapshot.warehouse, name) for name in names]


def _without_growing(manifest: Manifest) -> Manifest:
    tables = {name: lists for name, lists in manifest.tables.items() if name not in GROWING}
    return replace(manifest, tables=tables)
