"""The manifest: the published version of each table, from which runs and readers start."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from kp_batch.errors import IdentityError, WarehouseError
from kp_batch.json_values import Number, are_all, is_flag, is_text
from kp_batch.text import one_line, printable
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.kept_settings import wrong_setting
from kp_batch.warehouse.layout import TABLE_NAMES, Layout

if TYPE_CHECKING:  # a status does without
    import duckdb

FORMAT_VERSION = 18

# Of a file that anybody may have written, as it is read.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
LAST_REMEDY = "restore it from a copy, or run the archive into a new folder"

_VERSION = Number(0, 2**63 - 1, is_whole=True)


@dataclass(frozen=True)
class Manifest:
    """What is published."""

    settings: Mapping[str, Any]  # of the scores; empty before the first run
    tables: dict[str, int]  # the published version of each Delta table that exists
    failed: bool = False  # whether the last run failed: then the rejects are its own
    publication: str = ""  # the id of this publication; none before it is published
    warehouse_id: str = ""  # of its first publication on; see `project`

    @classmethod
    def read(
        cls,
        settings: Any,
        tables: Any,
        *,
        failed: Any = False,
        publication: Any = "",
        warehouse_id: Any = "",
    ) -> "Manifest":
        """Check the values of a file, which anybody may have written, and take them.

        Raises:
            ValueError: a name, a type or a value is not one that a run writes.
        """
        if wrong := wrong_setting(settings):
            raise ValueError(f"{wrong}, as no run has it")
        if not are_all(tables, lambda name, x: name in TABLE_NAMES and _VERSION.allows(x)):
            raise ValueError("versions of tables that no run writes")
        if not (is_flag(failed) and is_text(publication) and is_text(warehouse_id)):
            raise ValueError("failed, publication or warehouse_id as no run writes them")
        return cls(settings, tables, failed, publication, warehouse_id)

    @property
    def threshold(self) -> float:
        """The score from which on a trace is worth sharing; 1 before the first run."""
        return self.settings.get("threshold", 1.0)

    def as_publication(self, unique: str) -> "Manifest":
        """The manifest with a publication id: a unique half, 32 hex digits, and a digest."""
        own = [self.settings, self.tables, self.failed, self.warehouse_id]
        contents = [FORMAT_VERSION, unique, *own]
        canonical = json.dumps(contents, sort_keys=True, separators=(",", ":"))
        return replace(self, publication=unique + sha256(canonical.encode()).hexdigest()[:32])

    @property
    def is_intact(self) -> bool:
        """Whether the id has the digest of the contents."""
        unique = self.publication[:32]
        is_id = re.fullmatch("[0-9a-f]{32}", unique) is not None
        return is_id and self == self.as_publication(unique)

    def as_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}) + "\n"


def read_manifest(warehouse: Path) -> Manifest | None:
    """Read what is published.

    Returns:
        None if nothing is published.

    Raises:
        WarehouseError: manifest.json is lost or damaged, or has another format.
        PermissionError: the user may not read one of its tables.
    """
    manifest = _read(warehouse)
    # To DuckDB, a folder without permission looks like a missing one.
    for name in manifest.tables if manifest else ():
        with suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(Layout(warehouse).table(name) / "_delta_log").close()
    return manifest


def _read(warehouse: Path) -> Manifest | None:
    layout = Layout(warehouse)
    try:
        content = layout.manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if layout.catalog.exists():  # no run leaves a catalog without a manifest
            raise WarehouseError(f"{layout.manifest} is gone; {LAST_REMEDY}") from error
        return None
    return manifest_of(warehouse, content)


def manifest_of(warehouse: Path, content: bytes) -> Manifest:
    """Read what manifest.json says.

    Raises:
        WarehouseError: it is damaged, or has another format.
    """
    try:
        return _parse(warehouse, content)
    except DAMAGED as error:
        raise WarehouseError(f"{Layout(warehouse).manifest} is damaged; {LAST_REMEDY}") from error


def check_readable(warehouse: Path, file: Path) -> None:
    """Read a manifest before it is published, as all commands will.

    Raises:
        WarehouseError: it cannot be read.
    """
    try:
        _parse(warehouse, file.read_bytes())
    except DAMAGED as error:
        raise WarehouseError(
            f"nothing was published, since nobody could read it: the manifest of "
            f"{shown(warehouse)} would have {one_line(str(error))}; what is published is whole; "
            "change that setting, or report this as a fault of kp_batch"
        ) from error


def copy_catalog(warehouse: Path, folder: str) -> Path:
    """Copy the catalog into a folder, to be opened there.

    A client that opens the file itself for writing, DuckDB's default, locks out all others.

    Raises:
        OSError: it is missing, or cannot be read.
    """
    catalog = Layout(warehouse).catalog
    return shutil.copyfile(catalog, Path(folder) / catalog.name)


def require_manifest(warehouse: Path) -> Manifest:
    """Read what is published.

    Raises:
        WarehouseError: nothing is published, or the manifest is damaged or has another format.
    """
    manifest = read_manifest(warehouse)
    if manifest is None:
        raise WarehouseError(f"{shown(warehouse)} is no warehouse; run an archive first")
    return manifest


def read_there(warehouse: Path) -> Manifest | None:
    """Read what is published: of a warehouse in a bucket there, and not what its copy has.

    Returns:
        None if nothing is published, or there is no such bucket.

    Raises:
        WarehouseError: manifest.json is lost or damaged, or has another format.
        OSError: the bucket cannot be read.
    """
    url = url_of(warehouse)
    if url is None:
        return read_manifest(warehouse)
    from kp_batch.storage.store import store_at  # a command on a folder does without

    try:
        content, _ = store_at(url).read(Layout(warehouse).manifest.name)
    except FileNotFoundError:
        return None
    return manifest_of(warehouse, content)


def check_identity(warehouse: Path, warehouse_id: str | None) -> None:
    """Refuse another warehouse than the one of an id, and a place without any; makes nothing.

    Raises:
        IdentityError: it is another one, or none is there.
        WarehouseError: what is there cannot be read.
        OSError: its bucket cannot be read.
    """
    if warehouse_id is not None:
        check_manifest(read_there(warehouse), warehouse, warehouse_id)


def check_manifest(manifest: Manifest | None, warehouse: Path, warehouse_id: str | None) -> None:
    """Refuse what is published in a warehouse unless it is of an id; None is any.

    Raises:
        IdentityError: it is another one, or nothing is published.
    """
    if warehouse_id is None:
        return
    where = shown(warehouse.absolute())  # for who reads it elsewhere, as in a mail
    named = f"warehouse {printable(warehouse_id)}, which the project names"
    if manifest is None:
        remedy = "is that its bucket?" if url_of(warehouse) else "is its disk mounted?"
        raise IdentityError(
            f"{named}, is not in {where}: nothing is there, and nothing was made; {remedy} To "
            "begin another one, take warehouse_id out of the project's file",
        )
    if manifest.warehouse_id != warehouse_id:
        raise IdentityError(
            f"{where} is warehouse {printable(manifest.warehouse_id)}, and not {named}; put that "
            "one there, or change warehouse_id in the project's file",
        )


def check_tables(manifest: Manifest, warehouse: Path) -> None:
    """Look whether the published version of each table is in its log, and open none.

    Raises:
        WarehouseError: of some it is not; it names them.
    """
    gone = [name for name, version in manifest.tables.items() if not _has(warehouse, name, version)]
    if gone:
        tables = (
            f"the table {gone[0]} is" if len(gone) == 1 else f"the tables {', '.join(gone)} are"
        )
        raise WarehouseError(f"{tables} gone from {shown(warehouse)}; {LAST_REMEDY}")


def _has(warehouse: Path, name: str, version: int) -> bool:
    log = Layout(warehouse).table(name) / "_delta_log"
    kinds = ("json", "checkpoint.parquet")
    return any((log / f"{version:020d}.{kind}").exists() for kind in kinds)


def shown_tables(catalog: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    """The versions of the tables that an open catalog shows.

    Raises:
        WarehouseError: they are not as a run writes them.
    """
    [row] = catalog.execute("SELECT settings, tables FROM kp.manifest").fetchall()
    try:
        return Manifest.read(*map(json.loads, row)).tables
    except (ValueError, TypeError, RecursionError) as error:
        raise WarehouseError("the catalog is damaged: remove kp.duckdb") from error


def _parse(warehouse: Path, content: bytes) -> Manifest:
    """Parse manifest.json; any error other than WarehouseError means that it is damaged."""
    fields: Any = json.loads(content)
    _check_format(warehouse, fields["format_version"])
    manifest = Manifest.read(
        fields["settings"],
        fields["tables"],
        failed=fields["failed"],
        publication=fields["publication"],
        warehouse_id=fields["warehouse_id"],
    )
    if not manifest.is_intact:
        raise ValueError("the publication is not that of its contents")
    return manifest


def _check_format(warehouse: Path, version: int) -> None:
    """Refuse another format, and say how to keep the vectors of an older one."""
    if version == FORMAT_VERSION:
        return
    mismatch = (
        f"{shown(warehouse)} has format {version}, and this version of kp_batch writes format "
        f"{FORMAT_VERSION}"
    )
    if version > FORMAT_VERSION:
        raise WarehouseError(f"{mismatch}; use a later version of kp_batch, or a new folder")
    layout, url = Layout(warehouse), url_of(warehouse)
    new = f"{url or warehouse.absolute()}-format-{FORMAT_VERSION}"
    steps = [f"run the archive into a new folder, such as {quote(new)}"]
    if layout.all_vectors.exists():
        vectors = quote(str(layout.all_vectors.absolute()))
        commands = f": mkdir {quote(new)} && mv {vectors} {quote(new)}"
        if url:
            commands = f" copy {url}/vectors to {new}/vectors, in the bucket"
        steps.append(f"to keep its vectors, first{commands}")
    if layout.table("forgotten").exists():
        steps.append("afterwards forget again what was forgotten, with kp-batch forget")
    raise WarehouseError(f"{mismatch}; {'; '.join(steps)}")
