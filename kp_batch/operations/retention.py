"""What of a warehouse stays, and what goes: for vacuum and forget."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import polars as pl

from kp_batch.duck import SQL, statement
from kp_batch.embedding.vector_store import VectorStore
from kp_batch.files import files_below
from kp_batch.runs.record import RunRecord
from kp_batch.runs.staging import Staging
from kp_batch.schemas import GROWING, TABLES, VIEWS
from kp_batch.warehouse.data_files import data_file, sink_data_file
from kp_batch.warehouse.delta import DeltaTables, changes_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.snapshot import PublishedSnapshot

RunIds = tuple[str, ...]
# Leaves the rows that stay, in their order, each with its JSON or without.
Keep = Callable[[pl.LazyFrame], pl.LazyFrame]

_NAMES = tuple(name for name in VIEWS if name not in GROWING)  # read as each run left them
_GONE = (False, False)


def sorted_runs(
    warehouse: Path, runs: Iterable[RunRecord], stays: Mapping[str, AbstractSet[Path]]
) -> tuple[RunIds, RunIds]:
    """Sort the runs that can be read by whether they will be.

    Args:
        warehouse: the folder of the tables.
        runs: all of them.
        stays: the files that stay, by the name of each table that loses any.

    Returns:
        Those that will be lost, and those that can be read further on, the first one first.
    """
    folders = {name: Layout(warehouse).table(name) for name in _NAMES}
    states = {name: _states(folder, stays.get(name)) for name, folder in folders.items()}
    lost: list[str] = []
    readable: list[str] = []
    for run in sorted(runs, key=lambda each: each.added_to, reverse=True):
        left = run.published["tables"]
        needed = [states[name].get(left[name], _GONE) for name in _NAMES if name in left]
        if all(is_there for is_there, _ in needed):
            (readable if all(will_be for _, will_be in needed) else lost).append(run.run_id)
    return tuple(reversed(lost)), tuple(reversed(readable))


def whole_versions(folder: Path) -> AbstractSet[int]:
    """The versions of a table all of whose files are there."""
    return {version for version, (is_there, _) in _states(folder, None).items() if is_there}


def _states(folder: Path, stays: AbstractSet[Path] | None) -> dict[int, tuple[bool, bool]]:
    """Whether all files of each version of a table are there, and whether they will be."""
    there = set(files_below(folder))
    missing: set[Path] = set()
    going: set[Path] = set()
    states: dict[int, tuple[bool, bool]] = {}
    for version, added, removed in changes_of(folder):
        missing = (missing - removed) | (added - there)
        going = (going - removed) | (added - (there if stays is None else stays))
        states[version] = not missing, not going
    return states


def restored_tables(snapshot: PublishedSnapshot) -> DeltaTables:
    """Restore every table to what is published."""
    tables = DeltaTables(snapshot.warehouse, snapshot.tables, "upkeep")
    for name in TABLES:
        tables.undo_unpublished(name)
    return tables


@dataclass(frozen=True)
class FactsRewrite:
    """The removal of facts and JSON: the files that hold any become one without, others stay."""

    keep: Keep  # of rows with the columns of `FACTS`
    files: tuple[Path, ...]  # those files; where they lose nothing there are none
    removed: int  # facts

    @classmethod
    def of(cls, snapshot: PublishedSnapshot, keep: Keep, *, at_least: int = 0) -> Self:
        """Find out which files those are.

        Args:
            snapshot: has the facts.
            keep: as above.
            at_least: files of fewer rows become part of that one file, too.
        """
        paths = snapshot.files("facts")
        if not paths:
            return cls(keep, (), 0)
        rows = pl.scan_parquet(paths, glob=False, include_file_paths="path")
        counts = {"rows": pl.len(), "raw": pl.col("raw").is_not_null().sum()}
        both = (each.group_by("path").agg(**counts) for each in (rows, keep(rows)))
        by_file = next(both).join(next(both), on="path", how="left", suffix="_kept")
        found = by_file.collect(engine="streaming").fill_null(0).sort("path")
        losing = (pl.col("rows_kept") < pl.col("rows")) | (pl.col("raw_kept") < pl.col("raw"))
        chosen = found.filter(losing | (pl.col("rows") < at_least))
        if len(chosen) < 2 and chosen.filter(losing).is_empty():
            return cls(keep, (), 0)
        removed = chosen.select((pl.col("rows") - pl.col("rows_kept")).sum()).item()
        return cls(keep, tuple(map(Path, chosen.get_column("path"))), int(removed))

    def carry_out(self, warehouse: Path, tables: DeltaTables) -> None:
        """Write that file; the tables get the new version."""
        if not self.files:
            return
        together = pl.scan_parquet(list(self.files), glob=False)
        name = f"facts-{uuid4().hex}"
        made = sink_data_file(warehouse, "facts", self.keep(together), name)
        rest = {*PublishedSnapshot(warehouse, tables.versions).files("facts")} - {*self.files}
        tables.replace_files("facts", [*map(data_file, sorted(rest)), made], None)


def keep_vectors(snapshot: PublishedSnapshot) -> int:
    """Keep only the vectors of texts that an accepted row of known content has.

    Returns:
        How many others were removed.
    """
    layout = Layout(snapshot.warehouse)
    folders = list(layout.all_vectors.glob("*"))
    if not folders:
        return 0
    accepted = _accepted(snapshot, statement(""))
    staging = Staging(layout.staging(f"upkeep-{uuid4().hex}"))
    staging.make()
    with staging.connect() as connection:
        return sum(VectorStore(each, connection).prune_to(accepted) for each in folders)


def count_other_vectors(
    snapshot: PublishedSnapshot, staging: Staging, folders: Iterable[Path], stays: SQL
) -> int:
    """Count the vectors that `keep_vectors` will remove.

    Args:
        snapshot: what is published.
        staging: what DuckDB cannot hold is spilled there.
        folders: of the encoders.
        stays: SQL, a join that leaves the rows of `facts` that stay.
    """
    accepted = _accepted(snapshot, stays)
    with staging.connect() as connection:
        return sum(VectorStore(each, connection).count_prunable(accepted) for each in folders)


def _accepted(snapshot: PublishedSnapshot, stays: SQL) -> SQL:
    return statement(
        "(FROM $facts AS facts $stays WHERE len(reasons) = 0)",
        facts=snapshot.relation("facts"),
        stays=stays,
    )
