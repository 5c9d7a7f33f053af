"""Publishes: manifest.json names what is published, and kp.duckdb follows it.

A manifest is published at the moment when it takes the place of manifest.json, in the bucket if the
warehouse stands in one: see `bucket.mirror`. The catalog is built before that and swapped in right
after it; both bear the id of the publication. After the moment nothing undoes it. A writer that was
killed or failed in between leaves the older catalog, whole, with all files that it names, and
whoever takes the lock next completes the publication first.
"""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from kp_batch.errors import BusyError
from kp_batch.files import atomic_write, sync, sync_names
from kp_batch.warehouse.bucket.location import url_of
from kp_batch.warehouse.bucket.mirror import (
    bucket_session,
    is_in_doubt,
    publish_in_bucket,
    sync_lock,
)
from kp_batch.warehouse.catalog import build_for_others, build_published
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.manifest import Manifest, read_manifest, require_manifest
from kp_batch.warehouse.reader import is_current
from kp_batch.warehouse.snapshot import PublishedSnapshot, published

_ASK_S = 20.0  # while a writer on another machine is waited for
_BEGINNING: list[Callable[[], None]] = []


def when_writing(begin: Callable[[], None]) -> None:
    """Have something done each time that this process becomes the only writer of a warehouse."""
    _BEGINNING.append(begin)


@contextmanager
def writing(warehouse: Path, *, wait: bool) -> Generator[None]:
    """Be the only writer of the warehouse, and repair first what a killed one left.

    Args:
        warehouse: the folder of the tables; made if it is missing.
        wait: whether to wait for another writer to end.

    Raises:
        BusyError: another process is writing, and `wait` is false.
        WarehouseError: what is published cannot be read, or has another format.
    """
    with ExitStack() as held:
        if _entered(held, warehouse, wait=wait):
            _remove_staged(warehouse)
            held.callback(_remove_staged, warehouse)
            for begin in _BEGINNING:
                begin()
            _repair(warehouse)
        yield


def _entered(held: ExitStack, warehouse: Path, *, wait: bool) -> bool:
    """Hold the lock here, and the one of a bucket; gives whether this context did not already.

    Who waits for another writer of a bucket holds none meanwhile, so that readers here see what is
    published.
    """
    while True:
        with ExitStack() as tried:
            try:
                with sync_lock(warehouse):
                    waits_here = wait and not url_of(warehouse)
                    is_first = tried.enter_context(locked(warehouse, wait=waits_here))
                    if is_first:
                        tried.enter_context(bucket_session(warehouse))
            except BusyError:
                if not wait:
                    raise
            else:
                held.push(tried.pop_all())
                return is_first
        time.sleep(_ASK_S)


def publish(warehouse: Path, manifest: Manifest) -> None:
    """Publish what the manifest names, under an id of its own; only who holds the lock may.

    Files that only the manifest before named may be removed once this has returned.

    Raises:
        WarehouseError: a table of the manifest is gone.
    """
    _replace_manifest(warehouse, manifest.as_publication(uuid4().hex))
    with suppress(OSError):  # it is published; who writes next does this, and is told what fails
        _replace_catalog(Layout(warehouse))


def published_since(warehouse: Path, manifest: Manifest) -> bool:
    """Whether this writer has published since a manifest, or may have: a bucket did not answer.

    Raises:
        WarehouseError: what is published cannot be read.
    """
    return is_in_doubt(warehouse) or (read_manifest(warehouse) or Manifest({}, {})) != manifest


def _republish(warehouse: Path, manifest: Manifest) -> None:
    """Build the catalog of what is published."""
    _replace_manifest(warehouse, manifest)
    _replace_catalog(Layout(warehouse))


def _replace_manifest(warehouse: Path, manifest: Manifest) -> None:
    """Publish; the catalog stands beside the one that it will replace."""
    layout = Layout(warehouse)
    catalog, text = _beside(layout.catalog), _beside(layout.manifest)
    _remove_leftovers(layout)
    build_published(catalog, PublishedSnapshot(warehouse, manifest.tables, manifest))
    sync(catalog)
    text.write_text(manifest.as_json(), "utf-8")
    sync(text)
    publish_in_bucket(warehouse, manifest.as_json())
    text.replace(layout.manifest)  # the moment
    sync_names(warehouse)


def _replace_catalog(layout: Layout) -> None:
    # DuckDB opens no file beside the log of another: of somebody who wrote into the older one, say.
    _log(layout.catalog).unlink(missing_ok=True)
    _beside(layout.catalog).replace(layout.catalog)
    sync_names(layout.root)


def rebuild(warehouse: Path) -> Manifest:
    """Build the catalog anew for where the warehouse stands now.

    Raises:
        WarehouseError: nothing was ever published there, it has another format, or a run is
            writing.
    """
    require_manifest(warehouse)  # where no warehouse is, not even the lock's file is made
    with sync_lock(warehouse), locked(warehouse, wait=False):
        manifest = require_manifest(warehouse)
        _republish(warehouse, manifest)
    return manifest


def make_catalog(warehouse: Path, path: Path) -> None:
    """Make a catalog of what is published, in a file of its own.

    Raises:
        WarehouseError: nothing is published, or it cannot be read.
        OSError: the file cannot be written.
    """
    snapshot = published(warehouse)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as written:
        build_for_others(written, snapshot)


def _repair(warehouse: Path) -> None:
    """Remove what a killed writer left, and let the catalog follow the manifest."""
    manifest = read_manifest(warehouse)
    layout = Layout(warehouse)
    _remove_leftovers(layout)
    if manifest and not is_current(warehouse, manifest):
        _republish(warehouse, manifest)


def _remove_staged(warehouse: Path) -> None:
    """Remove the working folders of runs, of killed ones too: nobody else works there."""
    shutil.rmtree(Layout(warehouse).all_staging, ignore_errors=True)


def _remove_leftovers(layout: Layout) -> None:
    """Remove what a killed writer left, or somebody who wrote into the catalog."""
    catalog = _beside(layout.catalog)
    for path in (catalog, _log(catalog), _log(layout.catalog), _beside(layout.manifest)):
        path.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _log(catalog: Path) -> Path:
    """Where DuckDB writes ahead what goes into a catalog."""
    return catalog.with_name(f"{catalog.name}.wal")
