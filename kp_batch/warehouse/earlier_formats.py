"""Read what each run of a warehouse in format 17, 18 or 19 published.

Formats 17 and 18 listed the files of each table in its Delta log, and the versions of all tables in
`manifest.json`. Format 19 has the current manifests and lists of files. In all three, some columns,
settings and counts have other names. See `operations.migrate`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.errors import WarehouseError
from kp_batch.schemas import GROWING, PARTITIONED_BY, TABLES
from kp_batch.text import one_line
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.file_lists import read_list
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import DAMAGED, EARLIEST, FORMAT_VERSION

_LAST_IN_DELTA = 18  # the last format whose log is Delta's

# Old names -> new names.
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "scores": {"cache_size": "cached_vectors"},
    "distributions": {"worth_sharing": "at_threshold"},
}
SETTINGS = {"text": "trace_text"}
_CONFIG = {**SETTINGS, "allow": "allow_audit", "accept": "ignore_rollback"}
COUNTS = {"restated": "rescored"}
CONVERTED = (*_COLUMNS, "runs")  # tables whose files are written again

Files = Mapping[str, frozenset[str]]  # for each table, the paths below its folder


@dataclass(frozen=True)
class Published:
    """What was published at one time.

    Attributes:
        name: the name of its manifest in the log.
        number: the number of its publication.
        settings: the settings of its scores, by their new names.
        failed: whether the run failed.
        files: the files of each table; None: they were removed.
    """

    name: str
    number: int
    settings: Mapping[str, Any]
    failed: bool
    files: Files | None = None


@dataclass(frozen=True)
class EarlierWarehouse:
    """A warehouse in an earlier format.

    Attributes:
        root: its folder.
        version: the number of its format.
        warehouse_id: its id.
        now: what is published now.
        runs: what each run published, by run_id, in the order of publication. Tables that only
            grow are left out, because readers use their current files.
    """

    root: Path
    version: int
    warehouse_id: str
    now: Published
    runs: Mapping[str, Published]

    @classmethod
    def read(cls, root: Path) -> "EarlierWarehouse | None":
        """Read the warehouse in a folder.

        Returns:
            None if it is not in one of these formats.

        Raises:
            WarehouseError: its log is damaged or incomplete.
        """
        path = Layout(root).manifest
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_bytes())
            version = content["format_version"]
            if not EARLIEST <= version < FORMAT_VERSION:
                return None
            read = _in_delta if version <= _LAST_IN_DELTA else _in_manifests
            now, runs = read(root, content)
            return cls(root, version, content["warehouse_id"], now, runs)
        except (OSError, *DAMAGED, pl.exceptions.PolarsError) as error:
            raise WarehouseError(
                f"{shown(root)} cannot be migrated, because its log is damaged "
                f"({one_line(str(error))}); restore it from a copy",
                code="damaged",
            ) from error

    @cached_property  # because it looks for every file
    def readable(self) -> Sequence[Published]:
        """What the last runs published, back to the first run whose files all exist."""
        newest_first = reversed([*self.runs.values()])
        return [*takewhile(self._is_whole, newest_first)][::-1]

    def _is_whole(self, past: Published) -> bool:
        layout = Layout(self.root)
        return past.files is not None and all(
            (layout.table(table) / path).exists()
            for table, paths in past.files.items()
            for path in paths
        )

    def converted(self, table: str, path: str) -> pl.DataFrame:
        """Read a file, and return its rows as the current format has them.

        Raises:
            OSError: the file is gone.
        """
        file = Layout(self.root).table(table) / path
        rows = pl.read_parquet(file, glob=False, hive_partitioning=False)
        if table in PARTITIONED_BY:
            day = path.partition("/")[0].partition("=")[2]
            column = PARTITIONED_BY[table]
            rows = rows.with_columns(pl.lit(day).str.to_date().alias(column))
        if table == "runs":
            rows = pl.DataFrame([*map(self._run, rows.iter_rows(named=True))], TABLES["runs"])
        return rows.rename(_COLUMNS.get(table, {})).select(list(TABLES[table]))

    def _run(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        past = self.runs[row["run_id"]]
        published = {
            "publication": past.name,
            "number": past.number,
            "settings": past.settings,
        }
        changes = [
            {**change, "code": SETTINGS.get(change["code"], change["code"])}
            for change in json.loads(row["changes"])
        ]
        counts = json.loads(row["counts"])
        return {
            **row,
            "config": json.dumps(renamed(json.loads(row["config"]), _CONFIG)),
            "changes": json.dumps(changes),
            "counts": json.dumps(counts and renamed(counts, COUNTS)),
            "published": json.dumps(published),
        }


def _in_delta(root: Path, content: Mapping[str, Any]) -> tuple[Published, dict[str, Published]]:
    """Read the log of formats 17 and 18: the versions of Delta tables, each with its files."""
    versions = {name: [*_versions(Layout(root).table(name))] for name in content["tables"]}

    def published(name: str, number: int, stored: Mapping[str, Any]) -> Published:
        files = {table: versions[table][version] for table, version in stored["tables"].items()}
        settings = renamed(stored["settings"], SETTINGS)
        return Published(name, number, settings, stored["failed"], files)

    def of_run(run_id: str, number: int, stored: Mapping[str, Any]) -> Published:
        return published(
            _name_of(run_id), number, {**stored, "tables": _without_growing(stored["tables"])}
        )

    rows = _stored_by_runs(root, versions["runs"][-1] if "runs" in versions else ())
    # A row has the version of `runs` before it, so this orders the runs.
    rows.sort(key=lambda row: row[1]["tables"].get("runs", -1))
    runs = {row[0]: of_run(row[0], number, row[1]) for number, row in enumerate(rows, start=1)}
    return published(content["publication"][:32], len(runs), content), runs


def _versions(folder: Path) -> Iterator[frozenset[str]]:
    """Yield the files of each version of a Delta table, from version 0 on."""
    files = frozenset[str]()
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        files = files - removed | {action["add"]["path"] for action in actions if "add" in action}
        yield files


def _in_manifests(root: Path, content: Mapping[str, Any]) -> tuple[Published, dict[str, Published]]:
    """Read the log of format 19: manifests, which name lists of files."""

    def published(name: str, manifest: Mapping[str, Any], tables: Mapping[str, Any]) -> Published:
        files = {
            table: frozenset(file.path for each in lists.values() for file in read_list(root, each))
            for table, lists in tables.items()
        }
        settings = renamed(manifest["settings"], SETTINGS)
        return Published(name, manifest["number"], settings, manifest["failed"], files)

    def of_run(run_id: str, stored: Mapping[str, Any]) -> Published:
        name, number = _name_of(run_id), stored["number"]
        if number < content["kept_from"]:
            return Published(name, number, renamed(stored["settings"], SETTINGS), failed=False)
        path = Layout(root).past_manifest(stored["publication"])
        manifest = json.loads(path.read_bytes())
        return published(name, manifest, _without_growing(manifest["tables"]))

    now = published(content["publication"][:32], content, content["tables"])
    rows = _stored_by_runs(root, (now.files or {}).get("runs", ()))
    rows.sort(key=lambda row: row[1]["number"])
    return now, {run_id: of_run(run_id, stored) for run_id, stored in rows}


def _name_of(run_id: str) -> str:
    """Return the name of a run's new manifest.

    It is always the same, so a repeated migration writes the same files. It is not a name in the
    earlier log, which stays intact until the new one is published.
    """
    return sha256(run_id.encode()).hexdigest()[:32]


def _without_growing(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: files for name, files in tables.items() if name not in GROWING}


def _stored_by_runs(root: Path, files: Iterable[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the run_id of each run, and the column `published` of its row."""
    folder = Layout(root).table("runs")
    frames = [pl.read_parquet(folder / path, columns=["run_id", "published"]) for path in files]
    rows = (row for frame in frames for row in frame.iter_rows())
    return [(run_id, json.loads(published)) for run_id, published in rows]


def renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values with new names."""
    return {names.get(name, name): value for name, value in values.items()}
