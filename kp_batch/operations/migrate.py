"""Upgrade a warehouse of an earlier format to the current one, with all its runs.

Settings, vectors, forgotten ids and the runs that --as-of can read stay. Files with renamed columns
are written again, next to the old ones. Then a new manifest replaces the old one. Until that
moment, the old warehouse is intact, and a killed migration starts again and writes the same files.
After it, the next migration completes the rest: kp.duckdb, the Delta tables and last-run.json.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import polars as pl

from kp_batch.errors import BusyError, StorageError, WarehouseError
from kp_batch.html import Displayed
from kp_batch.rendering import Facts, Head, Part
from kp_batch.settings import Settings, field_of
from kp_batch.text import count_of
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import data_file, write_data_file
from kp_batch.warehouse.earlier_formats import CONVERTED, EarlierWarehouse, Published
from kp_batch.warehouse.earlier_last_run import convert_last_run
from kp_batch.warehouse.file_lists import DataFile
from kp_batch.warehouse.layout import Layout, check_links, remove_candidate
from kp_batch.warehouse.lock import may_write
from kp_batch.warehouse.manifest import FORMAT_VERSION, Manifest, check_manifest, require_manifest
from kp_batch.warehouse.publication import alone, publish, record_past, writing

# Returns the new data file of a table, given the table and the old path.
Moved = Callable[[str, str], DataFile]


@dataclass(frozen=True)
class MigrateResult(Displayed):
    """What a migration did, or would do."""

    warehouse: str
    from_format: int
    to_format: int
    runs: int = 0  # rows of `runs`
    readable: int = 0  # runs that --as-of can read
    files: int = 0  # data files to write again
    is_done: bool = True  # False: a dry run

    def _parts(self) -> Iterator[Part]:
        if self.from_format == self.to_format:
            yield Head(f"{self.warehouse} already has format {self.to_format}; nothing to do")
            return
        formats = f"from format {self.from_format} to {self.to_format}"
        verb = "migrated" if self.is_done else "to be migrated"
        yield Head(f"{verb}: {self.warehouse} {formats}")
        facts = [
            ("write", f"{count_of(self.files, 'file')} of tables"),
            ("keep", "settings, vectors, forgotten ids and the facts of all files"),
            ("runs", f"{self.runs:,}; --as-of can read the last {self.readable:,}"),
        ]
        yield Facts([*facts, ("next", "kp-batch plan shows the work of the next run")])


def migrate(
    warehouse: Path, warehouse_id: str | None = None, *, dry_run: bool = False
) -> MigrateResult:
    """Upgrade a warehouse to the current format; a repeated call only completes an interrupted one.

    One that has the current format may be read-only.

    Args:
        warehouse: the folder of the tables.
        warehouse_id: the id that it must have; None: any.
        dry_run: only report what would be done.

    Raises:
        WarehouseError: there is no warehouse, its format is older than 17 or newer than the current
            one, it is damaged, or a forget did not finish.
        BusyError: another process is writing.
        StorageError: a written file does not have the rows of the old one.
        OSError: a file cannot be read or written.
    """
    refresh(warehouse)
    check_links(warehouse)
    earlier = EarlierWarehouse.read(warehouse)  # before the lock, because that creates a file
    result = _result(warehouse, warehouse_id, earlier, is_done=False)
    if dry_run:
        return result
    if not earlier:
        if may_write(warehouse):  # else the next writer completes it
            with suppress(BusyError), writing(warehouse, wait=False):  # a writer completes it, too
                convert_last_run(warehouse)
        return result
    with alone(warehouse, wait=False):
        earlier = EarlierWarehouse.read(warehouse)
        result = _result(warehouse, warehouse_id, earlier, is_done=True)
        if earlier:
            remove_candidate(warehouse)
            _carry_out(earlier)
        convert_last_run(warehouse)
        return result


def _result(
    warehouse: Path, warehouse_id: str | None, earlier: EarlierWarehouse | None, *, is_done: bool
) -> MigrateResult:
    """Check that a warehouse can be migrated, and return what the migration does.

    Raises:
        IdentityError: it has another id.
        SettingError: some of its settings are wrong.
        WarehouseError: it cannot be migrated.
    """
    if earlier is None:
        check_manifest(require_manifest(warehouse), warehouse, warehouse_id)
        return MigrateResult(shown(warehouse), FORMAT_VERSION, FORMAT_VERSION)
    check_manifest(Manifest({}, {}, warehouse_id=earlier.warehouse_id), warehouse, warehouse_id)
    # No digest protects the manifests of earlier formats.
    said = "the settings in manifest.json are wrong: {}; restore it from a copy"
    Settings.checked(earlier.now.settings, field_of, said)
    if Layout(warehouse).forgetting.exists():
        raise WarehouseError(
            f"a kp-batch forget did not finish in {shown(warehouse)}; run it again with the "
            "version of kp_batch that began it, then migrate",
            code="unfinished_forget",
        )
    return MigrateResult(
        warehouse=shown(warehouse),
        from_format=earlier.version,
        to_format=FORMAT_VERSION,
        runs=len(earlier.runs),
        readable=len(earlier.readable),
        files=sum(len(_files_of(earlier, table)) for table in CONVERTED),
        is_done=is_done,
    )


def _files_of(earlier: EarlierWarehouse, table: str) -> frozenset[str]:
    """Return all files of a table that a readable state needs."""
    states = [earlier.now, *earlier.readable]
    return frozenset().union(*(state.files.get(table, ()) for state in states if state.files))


def _carry_out(earlier: EarlierWarehouse) -> None:
    root = earlier.root

    @cache
    def moved(table: str, path: str) -> DataFile:
        if table in CONVERTED:
            return _write_again(earlier, table, path)
        return data_file(Layout(root).table(table) / path)

    base = _write_history(earlier, moved)
    name = sha256(f"{FORMAT_VERSION}-{earlier.now.name}".encode()).hexdigest()[:32]
    candidate = _changed(Candidate(root, base, "migrate", name=name), earlier.now, moved)
    publish(candidate, earlier.now.settings, failed=earlier.now.failed, migrates=True)


def _write_again(earlier: EarlierWarehouse, table: str, path: str) -> DataFile:
    """Write a data file with the columns of the current format, and check it.

    Its name derives from the old one.
    """
    rows = earlier.converted(table, path)
    name = f"{Path(path).stem}-format-{FORMAT_VERSION}"
    file = write_data_file(earlier.root, table, rows, name)
    written = Layout(earlier.root).table(table) / file.path
    read = pl.read_parquet(written, glob=False, hive_partitioning=False)
    if not read.equals(rows.select(read.columns)):
        raise StorageError(
            f"{written} differs from what was written to it; nothing was migrated; check the disk, "
            "then migrate again"
        )
    return file


def _write_history(earlier: EarlierWarehouse, moved: Moved) -> Manifest:
    """Write the manifests of all readable runs, and return the last one."""
    kept_from = min((past.number for past in earlier.readable), default=earlier.now.number + 1)
    base = Manifest(
        {},
        {},
        warehouse_id=earlier.warehouse_id,
        number=earlier.now.number,
        kept_from=kept_from,
    )
    before = base
    for past in earlier.readable:
        candidate = Candidate(
            earlier.root, replace(before, number=past.number - 1), "migrate", name=past.name
        )
        candidate = _changed(candidate, past, moved)
        before = candidate.manifest(past.settings, failed=past.failed)
        record_past(candidate, before)
    return replace(before, number=earlier.now.number)


def _changed(candidate: Candidate, state: Published, moved: Moved) -> Candidate:
    """Give a candidate the tables of a state."""
    files = state.files or {}
    for table in {*candidate.tables, *files}:
        old = {file.path for file in candidate.snapshot({}).data_files(table)}
        new = {moved(table, path) for path in files.get(table, ())}
        added = [file for file in new if file.path not in old]
        removed = old - {file.path for file in new}
        candidate = candidate.change(table, added, removed)
    return candidate
