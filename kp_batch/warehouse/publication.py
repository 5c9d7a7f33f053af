"""Publish a manifest; `pipeline.publish` prepares the manifest of a run.

A manifest is published at the moment when it replaces manifest.json, or the object in the bucket;
see `bucket.mirror`. The catalog kp.duckdb is built before that and replaced right after; both have
the id of the publication. From that moment on nothing undoes it. A writer that is killed or fails
in between leaves the older catalog intact, with all of its files, and the next writer first
completes the publication. All that the manifest names is on the disk before that moment, so a power
cut loses none of it.
"""

import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from polars.exceptions import PanicException

from kp_batch.errors import BusyError, StorageError
from kp_batch.files import atomic_write, sync_names, sync_new
from kp_batch.log import warn
from kp_batch.stopping import pause
from kp_batch.text import one_line
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.bucket.mirror import (
    allow_deletion,
    bucket_session,
    is_uncertain,
    publish_in_bucket,
    pull_again,
    sync_lock,
)
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.catalog import build_for_others, build_published
from kp_batch.warehouse.delta import export
from kp_batch.warehouse.file_lists import read_list
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.manifest import Manifest, check_readable, read_manifest, require_manifest
from kp_batch.warehouse.reader import is_current
from kp_batch.warehouse.snapshot import PublishedSnapshot, published

_RETRY_S = 20.0  # between attempts, while a writer on another machine works
_CALLBACKS: list[Callable[[], None]] = []


def when_writing(callback: Callable[[], None]) -> None:
    """Register a function to call each time this process becomes the only writer of a warehouse."""
    _CALLBACKS.append(callback)


@contextmanager
def writing(warehouse: Path, *, wait: float) -> Generator[None]:
    """Be the only writer of the warehouse; first repair it after a writer that was killed.

    The warehouse's folder is made if it is missing. `wait` is how many seconds to wait for another
    writer.

    Raises:
        BusyError: another process is writing, for longer than `wait`.
        WarehouseError: what is published cannot be read, or has another format.
    """
    with alone(warehouse, wait=wait) as is_first:
        if is_first:
            _repair(warehouse)
        yield


@contextmanager
def alone(warehouse: Path, *, wait: float) -> Generator[bool]:
    """Be the only writer of the warehouse, whatever its format is; see `writing`.

    Yields whether this is the first lock of this context.
    """
    with ExitStack() as locks:
        is_first = _acquire(locks, warehouse, wait=wait)
        if is_first:
            remove_working_files(warehouse)
            locks.callback(remove_working_files, warehouse)
            for callback in _CALLBACKS:
                callback()
        yield is_first


def _acquire(locks: ExitStack, warehouse: Path, *, wait: float) -> bool:
    """Acquire the folder's lock, and a bucket's; return False if this context has them already.

    While it waits for another writer of a bucket, it holds no lock, so that readers on this machine
    see what is published.
    """
    began = time.monotonic()
    while True:
        left = max(began + wait - time.monotonic(), 0)
        with ExitStack() as attempt:
            try:
                with sync_lock(warehouse):
                    at_once = 0 if url_of(warehouse) else left
                    is_first = attempt.enter_context(locked(warehouse, wait=at_once))
                    if is_first:
                        attempt.enter_context(bucket_session(warehouse, partial(export, warehouse)))
            except BusyError as error:
                if not wait:
                    raise
                if not url_of(warehouse) or not left:
                    waited = f"{time.monotonic() - began:,.0f} s"
                    raise BusyError(f"{error}; this command has waited for {waited}") from error
            else:
                locks.push(attempt.pop_all())
                return is_first
        pause(min(_RETRY_S, left))


def publish(
    candidate: Candidate,
    settings: Mapping[str, Any],
    *,
    failed: bool = False,
    kept_from: int = 0,
    migrates: bool = False,
) -> None:
    """Publish what a writer has written, under a new id; the caller holds the lock.

    Args:
        candidate: the tables.
        settings: the settings of the scores.
        failed: whether a run publishes that it failed.
        kept_from: the first publication whose files are kept from now on; 0: as before.
        migrates: whether it replaces what an earlier format published.

    Raises:
        OvertakenError: another writer of the bucket has published in the meantime.
        OSError: the manifest cannot be written; nothing was published.
    """
    warehouse, manifest = candidate.warehouse, candidate.manifest(settings, failed=failed)
    if kept_from:
        manifest = replace(manifest, kept_from=kept_from).as_publication(candidate.name)
    candidate.move_files()
    _replace_manifest(warehouse, manifest, None if migrates else read_manifest(warehouse))
    try:
        _replace_catalog(Layout(warehouse))
    except OSError as error:  # it is published
        warn(
            f"kp.duckdb of {shown(warehouse)} still shows an earlier publication "
            f"({one_line(str(error))}); kp-batch catalog makes it again"
        )
    _export(warehouse)


def _export(warehouse: Path) -> None:
    """Export what is published as Delta tables; if that fails, leave it to the next writer."""
    try:
        if not is_uncertain(warehouse):
            export(warehouse)
    except (Exception, PanicException) as error:  # noqa: BLE001 (it is published)
        warn(
            f"the Delta tables of {shown(warehouse)} still show an earlier publication "
            f"({one_line(str(error))}); the next command that writes updates them"
        )


def amend(candidate: Candidate) -> None:
    """Replace files in the past manifest that a candidate builds upon; it keeps its name.

    Raises:
        OSError: the manifest cannot be written.
    """
    before = candidate.base
    manifest = replace(before, tables=candidate.tables).as_publication(before.name)
    record_past(candidate, manifest)


def record_past(candidate: Candidate, manifest: Manifest) -> None:
    """Write a candidate's manifest into the log, as that of an earlier run.

    Its new files are on the disk before that: a kill leaves the log as it was, or with it.

    Raises:
        OSError: the manifest cannot be written.
    """
    layout = Layout(candidate.warehouse.resolve())
    candidate.move_files()
    known, files = _difference(layout, candidate.base, manifest)
    sync_new(files - known, known, layout.root)
    path = layout.past_manifest(manifest.name)
    with atomic_write(path, durable=True) as written:
        written.write_text(manifest.as_json(), "utf-8")
    sync_names(path.parent)


def may_remove(warehouse: Path, unneeded: Iterable[Path]) -> None:
    """Export what is published, and let this writer remove files, and unneeded vectors.

    Call it after publishing a manifest that names none of them: then Delta's readers do not use
    them either.

    Args:
        warehouse: the folder of the tables.
        unneeded: the files, listed before that manifest was published; see `unneeded`.

    Raises:
        StorageError: the Delta tables cannot be written, so that nothing is removed.
    """
    try:
        export(warehouse)
    except (Exception, PanicException) as error:
        raise StorageError(
            f"the Delta tables of {shown(warehouse)} cannot be written ({one_line(str(error))}), "
            "so nothing was removed; fix that, and run the same command again"
        ) from error
    allow_deletion(warehouse, unneeded)


def found(warehouse: Path) -> Manifest:
    """Publish an empty warehouse, so that it has an id; an existing one stays as it is.

    Raises:
        BusyError: another run is writing.
        WarehouseError: what is published cannot be read, or has another format.
    """
    with writing(warehouse, wait=False):
        if not read_manifest(warehouse):
            publish(Candidate(warehouse, Manifest({}, {}), "init"), {})
        return require_manifest(warehouse)


def published_since(warehouse: Path, manifest: Manifest) -> bool:
    """Whether this writer has published after a manifest, or may have, if a bucket did not answer.

    Raises:
        WarehouseError: what is published cannot be read.
    """
    return is_uncertain(warehouse) or (read_manifest(warehouse) or Manifest({}, {})) != manifest


def start_over(warehouse: Path) -> None:
    """Begin again from what a bucket has now, after another writer has published there.

    Nobody else writes to a folder during this.

    Raises:
        OSError: the bucket cannot be read.
    """
    if pull_again(warehouse):
        _repair(warehouse)


def _rebuild_catalog(warehouse: Path, manifest: Manifest) -> None:
    _replace_manifest(warehouse, manifest, manifest)
    _replace_catalog(Layout(warehouse))


def _replace_manifest(warehouse: Path, manifest: Manifest, before: Manifest | None) -> None:
    """Publish a manifest after another one, and build its catalog, which replaces none yet."""
    layout = Layout(warehouse)
    catalog, file = _replacement(layout.catalog), _replacement(layout.manifest)
    _remove_leftovers(layout)
    file.write_text(manifest.as_json(), "utf-8")
    check_readable(warehouse, file)
    in_log = layout.past_manifest(manifest.name)
    in_log.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(in_log) as written:
        written.write_text(manifest.as_json(), "utf-8")
    build_published(catalog, PublishedSnapshot(warehouse, manifest))
    _sync(Layout(warehouse.resolve()), manifest, before)
    publish_in_bucket(warehouse, manifest.as_json())
    file.replace(layout.manifest)  # the moment
    sync_names(warehouse)


def _sync(layout: Layout, manifest: Manifest, before: Manifest | None) -> None:
    """Wait until all that a manifest names is on the disk, so that a power cut loses none of it."""
    known, files = _difference(layout, before, manifest)
    replaced = map(_replacement, (layout.catalog, layout.manifest))
    new = {layout.past_manifest(manifest.name), *replaced, *files - known}
    sync_new(new, known if before else (), layout.root)


def _difference(
    layout: Layout, before: Manifest | None, now: Manifest
) -> tuple[set[Path], set[Path]]:
    """Return the lists that only one of two manifests names, and the files in these."""
    lists = before.lists if before else set[str]()
    known = _files(layout, before, lists - now.lists) if before else ()
    return {layout.manifest, *known}, {*_files(layout, now, now.lists - lists)}


def _files(layout: Layout, manifest: Manifest, lists: set[str]) -> Iterator[Path]:
    """Return some lists of a manifest, and their files; other lists may have lost files."""
    for name, months in manifest.tables.items():
        for each in lists.intersection(months.values()):
            yield layout.file_list(each)
            listed = read_list(layout.root, each)
            yield from (layout.table(name) / file.path for file in listed)


def _replace_catalog(layout: Layout) -> None:
    # DuckDB refuses a file with another file's log, such as that of a client of the older one.
    _wal(layout.catalog).unlink(missing_ok=True)
    _replacement(layout.catalog).replace(layout.catalog)
    sync_names(layout.root)


def rebuild(warehouse: Path) -> Manifest:
    """Build the catalog again, for the warehouse's current path.

    Raises:
        WarehouseError: nothing was ever published there, it has another format, or a run is
            writing.
    """
    require_manifest(warehouse)  # before the lock, so that its file is made in no other folder
    with sync_lock(warehouse), locked(warehouse, wait=False):
        manifest = require_manifest(warehouse)
        _rebuild_catalog(warehouse, manifest)
    return manifest


def make_catalog(warehouse: Path, path: Path) -> None:
    """Build a catalog of what is published, in any file.

    Raises:
        WarehouseError: nothing is published, or it cannot be read.
        OSError: the file cannot be written.
    """
    snapshot = published(warehouse)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as written:
        build_for_others(written, snapshot)


def _repair(warehouse: Path) -> None:
    """Remove leftovers, and complete the publication: its catalog, and its Delta tables."""
    manifest = read_manifest(warehouse)
    layout = Layout(warehouse)
    _remove_leftovers(layout)
    if manifest and not is_current(warehouse, manifest):
        _rebuild_catalog(warehouse, manifest)
    _export(warehouse)


def remove_working_files(warehouse: Path) -> None:
    """Remove what runs have left, including killed ones; no other run is at work."""
    layout = Layout(warehouse)
    shutil.rmtree(layout.all_staging, ignore_errors=True)
    if not layout.kept_candidate.exists():
        shutil.rmtree(layout.candidate, ignore_errors=True)


def _remove_leftovers(layout: Layout) -> None:
    """Remove files of a killed writer, or of a client that wrote into the catalog."""
    catalog = _replacement(layout.catalog)
    for path in (catalog, layout.catalog):
        _wal(path).unlink(missing_ok=True)
    for path in (catalog, _replacement(layout.manifest)):
        path.unlink(missing_ok=True)


def _replacement(path: Path) -> Path:
    """Return the new file that will replace another."""
    return path.with_name(f"{path.name}.new")


def _wal(catalog: Path) -> Path:
    """Return DuckDB's write-ahead log of a catalog."""
    return catalog.with_name(f"{catalog.name}.wal")
