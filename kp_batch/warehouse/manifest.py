"""The manifest: the files of each table, from which runs and readers start.

Each publication has one. The published one is `manifest.json`; earlier ones stay in the folder
`log` until a vacuum; a candidate is one that is not published. A manifest names lists of files, one
for each table and month, which manifests share; see `file_lists`.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from kp_batch.errors import IdentityError, WarehouseError
from kp_batch.json_values import SHARE, Bounds, are_all, is_flag, is_text
from kp_batch.text import one_line, printable
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.layout import TABLE_NAMES, Layout

if TYPE_CHECKING:  # not needed by a status
    import duckdb

FORMAT_VERSION = 20
EARLIEST = 17  # the first format that kp-batch migrate reads

# Bounds of the numbers in a file, which may come from anybody.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
LAST_REMEDY = "restore it from a copy, or run the archive into a new folder"

# The lists of files of each existing table, by month.
Tables = Mapping[str, Mapping[str, str]]

_NUMBER = Bounds(0, 2**63 - 1, is_whole=True)
_MONTH, _LIST = re.compile(r"\d{4}-\d\d"), re.compile("[0-9a-f]{32}")
_HALF = 32  # hex digits


@dataclass(frozen=True)
class Manifest:
    """What is published, or was."""

    settings: Mapping[str, Any]  # settings of the scores; empty before the first run
    tables: Tables
    failed: bool = False  # whether the last run failed; then the rejects are that run's
    publication: str = ""  # the id of this publication; none before it is published
    warehouse_id: str = ""  # since its first publication; see `project`
    number: int = 0  # of the publication; it always increases, whatever the clocks say
    kept_from: int = 0  # the first publication whose files are all kept; see `vacuum`
    before: str = ""  # the name of the previous manifest

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Manifest":
        """Check the values of a file, which may come from anybody, and return the manifest.

        Raises:
            LookupError: a value is missing.
            ValueError: a name, a type or a value is not one that a run writes.
        """
        manifest = cls(**{field.name: content[field.name] for field in fields(cls)})
        if not _are_settings(manifest.settings):
            raise ValueError("no run writes such settings")
        if not are_all(manifest.tables, lambda name, x: name in TABLE_NAMES and _are_lists(x)):
            raise ValueError("no run writes such tables")
        texts = (manifest.publication, manifest.warehouse_id, manifest.before)
        numbers = (manifest.number, manifest.kept_from)
        if not (is_flag(manifest.failed) and all(map(is_text, texts))):
            raise ValueError("no run writes such a value of failed, or such an id")
        if not all(map(_NUMBER.allows, numbers)):
            raise ValueError("no run writes such a number or kept_from")
        return manifest

    @property
    def threshold(self) -> float:
        """The score that traces must reach; 1 before the first run."""
        return self.settings.get("threshold", 1.0)

    @property
    def name(self) -> str:
        """The unique half of its publication id, which names its file in the log."""
        return self.publication[:_HALF]

    @property
    def lists(self) -> set[str]:
        """The names of all of its lists of files."""
        return {name for months in self.tables.values() for name in months.values()}

    def as_publication(self, unique: str) -> "Manifest":
        """Return the manifest with a publication id: a unique half, 32 hex digits, and a digest."""
        own = [self.settings, self.tables, self.failed, self.warehouse_id]
        contents = [FORMAT_VERSION, unique, *own, self.number, self.kept_from, self.before]
        canonical = json.dumps(contents, sort_keys=True, separators=(",", ":"))
        return replace(self, publication=unique + sha256(canonical.encode()).hexdigest()[:32])

    @property
    def is_intact(self) -> bool:
        """Whether the id has the digest of the contents."""
        is_name = _LIST.fullmatch(self.name) is not None
        return is_name and self == self.as_publication(self.name)

    def as_json(self) -> str:
        """Return the text of manifest.json."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}) + "\n"


def _are_settings(settings: Any) -> bool:
    """Check the numbers that become SQL. A run checks all settings when it takes them."""
    return (
        isinstance(settings, dict)
        and SHARE.allows(settings.get("threshold", 1))
        and _NUMBER.allows(settings.get("cache_size", 1))
    )


def _are_lists(months: Any) -> bool:
    return are_all(
        months, lambda month, x: bool(_MONTH.fullmatch(month) and is_text(x) and _LIST.fullmatch(x))
    )


def read_manifest(warehouse: Path) -> Manifest | None:
    """Read what is published.

    Returns:
        None if nothing is published.

    Raises:
        WarehouseError: manifest.json is lost or damaged, or has another format.
        PermissionError: the user may not read one of its tables.
    """
    manifest = _read(warehouse)
    # For DuckDB, a folder without permission is a missing one.
    for name in manifest.tables if manifest else ():
        with suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(Layout(warehouse).table(name)).close()
    return manifest


def _read(warehouse: Path) -> Manifest | None:
    layout = Layout(warehouse)
    try:
        content = layout.manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if layout.catalog.exists():  # runs never leave a catalog without a manifest
            message = f"{layout.manifest} is gone; {LAST_REMEDY}"
            raise WarehouseError(message, code="file_gone") from error
        return None
    return manifest_of(warehouse, content)


def manifest_of(warehouse: Path, content: bytes) -> Manifest:
    """Parse the content of manifest.json.

    Raises:
        WarehouseError: it is damaged, or has another format.
    """
    try:
        return _parse(warehouse, content)
    except DAMAGED as error:
        message = f"{Layout(warehouse).manifest} is damaged; {LAST_REMEDY}"
        raise WarehouseError(message, code="damaged") from error


def check_readable(warehouse: Path, file: Path) -> None:
    """Read a manifest before it is published, as all commands will.

    Raises:
        WarehouseError: the manifest cannot be read.
    """
    try:
        _parse(warehouse, file.read_bytes())
    except DAMAGED as error:
        raise WarehouseError(
            f"the new manifest of {shown(warehouse)} would be unreadable "
            f"({one_line(str(error))}), so nothing was published; change that setting, or report "
            "this as a bug in kp_batch"
        ) from error


def copy_catalog(warehouse: Path, folder: str) -> Path:
    """Copy the catalog into a folder, to be opened there.

    A client that opens the original for writing, which is DuckDB's default, locks out all others.

    Raises:
        OSError: the catalog is missing, or cannot be read.
    """
    catalog = Layout(warehouse).catalog
    return shutil.copyfile(catalog, Path(folder) / catalog.name)


def no_warehouse(place: str) -> WarehouseError:
    """Return the error about a place that has no warehouse."""
    return WarehouseError(f"{place} is not a warehouse; run an archive first", code="no_warehouse")


def require_manifest(warehouse: Path) -> Manifest:
    """Read what is published.

    Raises:
        WarehouseError: nothing is published, or the manifest is damaged or has another format.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        raise no_warehouse(shown(warehouse))
    return manifest


def read_there(warehouse: Path) -> Manifest | None:
    """Read what is published; for a warehouse in a bucket, from the bucket instead of the copy.

    Returns:
        None if nothing is published, or there is no such bucket.

    Raises:
        WarehouseError: manifest.json is lost or damaged, or has another format.
        OSError: the bucket cannot be read.
    """
    url = url_of(warehouse)
    if url is None:
        return read_manifest(warehouse)
    from kp_batch.storage.store import store_at  # not needed for a folder

    try:
        content, _ = store_at(url).read(Layout(warehouse).manifest.name)
    except FileNotFoundError:
        return None
    return manifest_of(warehouse, content)


def check_identity(warehouse: Path, warehouse_id: str | None) -> None:
    """Refuse a warehouse with another id than expected, or none at all; make nothing.

    Raises:
        IdentityError: it is another warehouse, or none is there.
        WarehouseError: what is there cannot be read.
        OSError: its bucket cannot be read.
    """
    if warehouse_id is not None:
        check_manifest(read_there(warehouse), warehouse, warehouse_id)


def check_manifest(manifest: Manifest | None, warehouse: Path, warehouse_id: str | None) -> None:
    """Refuse what is published unless the warehouse has the given id; None allows any.

    Raises:
        IdentityError: it is another warehouse, or nothing is published.
    """
    if warehouse_id is None:
        return
    named = f"warehouse {printable(warehouse_id)}"
    where = shown(warehouse.absolute())  # absolute, because it may be read elsewhere, as in a mail
    if manifest is None:
        remedy = "is that its bucket?" if url_of(warehouse) else "is its disk mounted?"
        raise IdentityError(
            f"{where} contains no warehouse, but the project names {named}; {remedy} To begin a "
            "new one, remove warehouse_id from the project's file",
        )
    if manifest.warehouse_id != warehouse_id:
        raise IdentityError(
            f"{where} contains warehouse {printable(manifest.warehouse_id)}, but the project names "
            f"{named}; mount or restore that one, or change warehouse_id in the project's file",
        )


def past_manifest(warehouse: Path, name: str) -> Manifest:
    """Read the manifest of an earlier or the current publication, by its name in the log.

    Raises:
        WarehouseError: the manifest is gone or damaged, or has another format.
    """
    path = Layout(warehouse).past_manifest(name)
    try:
        if not _LIST.fullmatch(name):  # a row of `runs` that kp_batch did not write
            raise ValueError("no name of a manifest")
        return _parse(warehouse, path.read_bytes())
    except (FileNotFoundError, *DAMAGED) as error:
        is_gone = isinstance(error, FileNotFoundError)
        how, code = ("gone", "file_gone") if is_gone else ("damaged", "damaged")
        raise WarehouseError(f"{path} is {how}; {LAST_REMEDY}", code=code) from error


def read_candidate(warehouse: Path) -> Manifest | None:
    """Read what a run has left unpublished; None if there is nothing.

    Raises:
        WarehouseError: it is damaged.
    """
    try:
        return _parse(warehouse, Layout(warehouse).kept_candidate.read_bytes())
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        raise damaged_candidate(warehouse) from error


def damaged_candidate(warehouse: Path) -> WarehouseError:
    """Return the error about a candidate that is damaged, or has lost files."""
    return WarehouseError(
        f"the candidate of {shown(warehouse)} is damaged: remove its folder candidate",
        code="damaged",
    )


def check_tables(manifest: Manifest, warehouse: Path) -> None:
    """Check that the folder of each table and the lists of its files exist; open none.

    Raises:
        WarehouseError: some are missing; it names them.
    """
    layout = Layout(warehouse)
    gone = [
        name
        for name, months in manifest.tables.items()
        if not all(layout.file_list(each).exists() for each in months.values())
        or (months and not layout.table(name).exists())
    ]
    if gone:
        tables = (
            f"the table {gone[0]} is" if len(gone) == 1 else f"the tables {', '.join(gone)} are"
        )
        raise WarehouseError(
            f"{tables} gone from {shown(warehouse)}; {LAST_REMEDY}", code="file_gone"
        )


def shown_manifest(warehouse: Path, catalog: "duckdb.DuckDBPyConnection") -> Manifest:
    """Return the manifest of what an open catalog of a warehouse shows.

    Raises:
        WarehouseError: the manifest is gone or damaged.
    """
    [(publication,)] = catalog.execute("SELECT publication FROM kp.manifest").fetchall()
    return past_manifest(warehouse, publication[:_HALF])


def _parse(warehouse: Path, content: bytes) -> Manifest:
    """Parse manifest.json; any error other than WarehouseError means that it is damaged."""
    read: Any = json.loads(content)
    _check_format(warehouse, read["format_version"])
    manifest = Manifest.read(read)
    if not manifest.is_intact:
        raise ValueError("the publication is not that of its contents")
    return manifest


def _check_format(warehouse: Path, version: int) -> None:
    """Refuse another format, and say how to go on."""
    if version == FORMAT_VERSION:
        return
    place = shown(warehouse)
    mismatch = (
        f"{place} has format {version}, and this version of kp_batch writes format {FORMAT_VERSION}"
    )
    if version > FORMAT_VERSION:
        remedy = "use a later version of kp_batch, or a new folder"
    elif version >= EARLIEST:
        remedy = f"upgrade it with: kp-batch migrate --warehouse {quote(place)}"
    else:
        new = quote(f"{place.rstrip('/')}-format-{FORMAT_VERSION}")
        remedy = (
            "it cannot be upgraded: start a new warehouse; first repeat each forget, with "
            f"kp-batch forget --unseen-too --warehouse {new}, then run the archive into {new}, "
            "which embeds all texts again"
        )
    raise WarehouseError(f"{mismatch}; {remedy}", code="other_format")
