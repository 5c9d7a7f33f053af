"""Take forgotten traces out of what earlier runs have published, which stays readable.

Each file with one of them in any column is written again. The rows of the trace are dropped; where
another row names it as the nearest one, that becomes null. The manifests of these runs then name
the new files; see `publication.amend`.

The scores of these runs stay as they were, though some were replayed with the trace in their cache.
A run that continues from them after a rollback must replay what came after it. So the trace leaves
a tombstone for its score: its time and its cache group, and nothing else.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import polars as pl

from kp_batch.schemas import FILES, TABLES, TOMBSTONES
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import sink_data_file, write_data_file
from kp_batch.warehouse.file_lists import DataFile, read_list
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot

# The columns with ids of traces: the row's own, then others.
_COLUMNS = {
    name: columns
    for name, schema in TABLES.items()
    if (columns := [column for column in schema if column.endswith("trace_id")])
}
_GONE = pl.Schema({"file_id": pl.String, "gone": pl.Int64})


@dataclass(frozen=True)
class _New:
    """What replaces a file."""

    files: tuple[DataFile, ...]  # empty: no rows are left
    tombstones: tuple[DataFile, ...] = ()
    # For facts: how many rows of each content are gone.
    gone: pl.DataFrame = field(default_factory=_GONE.to_frame)


class WithoutTraces:
    """Write files without some traces, each once, however many manifests name it.

    Args:
        published: the published tables, already without the traces.
        ids: the ids of the traces.
    """

    def __init__(self, published: PublishedSnapshot, ids: pl.Series) -> None:
        self._root, self._ids, self._writer = published.warehouse, ids.implode(), uuid4().hex
        # By table and path; None: the file has none of the traces.
        self._known: dict[tuple[str, str], _New | None] = {
            (name, file.path): None for name in _COLUMNS for file in published.data_files(name)
        }

    def candidate(self, manifest: Manifest) -> Candidate:
        """Write the files of a manifest without the traces; unchanged if it has none of them."""
        candidate = Candidate(self._root, manifest, "upkeep", name=self._writer)
        gone = _GONE.to_frame()
        for name in _COLUMNS:
            new = self._rewritten(candidate, name)
            candidate = _replaced(candidate, name, new)
            tombstones = [file for each in new.values() for file in each.tombstones]
            if tombstones:
                candidate = candidate.change("tombstones", tombstones)
            gone = pl.concat([gone, *(each.gone for each in new.values())])
        if gone.is_empty():
            return candidate
        return _replaced(candidate, "files", self._recounted(candidate, gone))

    def _rewritten(self, candidate: Candidate, name: str) -> Mapping[str, _New]:
        """Return what replaces the files of a table that have the traces, by their paths."""
        files = {file.path: file for file in _listed(candidate, name)}
        unknown = [path for path in files if (name, path) not in self._known]
        self._known.update(((name, path), None) for path in unknown)
        for path in self._holding(name, unknown):
            self._known[name, path] = self._rewrite(candidate, name, files[path])
        return {path: new for path in files if (new := self._known[name, path])}

    def _holding(self, name: str, paths: Iterable[str]) -> list[str]:
        """Return which files of a table have the traces."""
        by_path = {str(self._folder(name) / path): path for path in paths}
        if not by_path:
            return []
        rows = pl.scan_parquet(
            [*by_path], glob=False, hive_partitioning=False, include_file_paths="path"
        )
        holding = rows.filter(pl.any_horizontal(map(self._is_one, _COLUMNS[name])))
        found = holding.select(pl.col("path").unique(maintain_order=True))
        return [by_path[path] for path in found.collect(engine="streaming").get_column("path")]

    def _rewrite(self, candidate: Candidate, name: str, file: DataFile) -> _New:
        own, *others = _COLUMNS[name]
        path, new_name = self._folder(name) / file.path, _new_name(file)
        rows = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        gone = rows.filter(self._is_one(own))
        nulls = (pl.when(~self._is_one(other)).then(other).alias(other) for other in others)
        stay = rows.filter(~self._is_one(own)).with_columns(*nulls)
        if name == "scores":
            return _scores(candidate, file, stay.collect(), gone.collect())
        new = sink_data_file(candidate.folder, name, stay, new_name)
        if name != "facts":
            return _New((new,))
        counts = gone.group_by("file_id").agg(gone=pl.len()).cast(_GONE)
        return _New((new,), gone=counts.collect())

    def _recounted(self, candidate: Candidate, gone: pl.DataFrame) -> Mapping[str, _New]:
        """Return what replaces the ledger, with the remaining rows of each content."""
        counts = gone.lazy().group_by("file_id").agg(pl.col("gone").sum())
        for file in _listed(candidate, "files"):
            if ("files", file.path) not in self._known:
                rows = pl.scan_parquet(self._folder("files") / file.path, glob=False)
                rows = rows.join(counts, on="file_id", how="left", maintain_order="left")
                left = rows.with_columns(pl.col("rows") - pl.col("gone").fill_null(0))
                ledger = left.select(list(FILES))
                new = sink_data_file(candidate.folder, "files", ledger, _new_name(file))
                self._known["files", file.path] = _New((new,))
        paths = (file.path for file in _listed(candidate, "files"))
        return {path: new for path in paths if (new := self._known["files", path])}

    def _is_one(self, column: str) -> pl.Expr:
        return pl.col(column).is_in(self._ids).fill_null(value=False)

    def _folder(self, name: str) -> Path:
        return Layout(self._root).table(name)


def _listed(candidate: Candidate, name: str) -> list[DataFile]:
    lists = candidate.tables.get(name, {}).values()
    return [file for each in lists for file in read_list(candidate.warehouse, each)]


def _replaced(candidate: Candidate, name: str, new: Mapping[str, _New]) -> Candidate:
    files = [file for each in new.values() for file in each.files]
    return candidate.change(name, files, new) if new else candidate


def _scores(candidate: Candidate, file: DataFile, stay: pl.DataFrame, gone: pl.DataFrame) -> _New:
    """Return the remaining scores of a day, and the tombstones of the others."""
    name = _new_name(file)

    def written(table: str, rows: pl.DataFrame, name: str) -> tuple[DataFile, ...]:
        if rows.is_empty():
            return ()
        return (write_data_file(candidate.folder, table, rows, name),)

    dated = stay.select(pl.lit(file.partition).alias("date"), pl.all())
    return _New(
        files=written("scores", dated, name),
        tombstones=written("tombstones", gone.select(list(TOMBSTONES)), f"{file.partition}-{name}"),
    )


def _new_name(file: DataFile) -> str:
    """Return a name for the replacement of a file; it sorts alike among those of its day."""
    return f"{re.sub('-[0-9a-f]{32}$', '', Path(file.path).stem)}-{uuid4().hex}"
