"""The manifest: the published version of each table, from which runs and readers start."""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, cast

import duckdb

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.layout import TABLE_NAMES, Layout

FORMAT_VERSION = 14

LAST_REMEDY = "restore it from a copy, or run the archive into a new folder"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _are(values: Any, allowed: Callable[[str, Any], bool]) -> bool:
    """Whether a value is an object whose names and values are allowed."""
    return isinstance(values, dict) and all(
        allowed(name, value) for name, value in cast("dict[str, Any]", values).items()
    )


def _are_profiles(value: Any) -> bool:
    return _are(
        value,
        lambda _, tables: all(
            _are(table, lambda name, value: _is_text(value) if name == "from" else _is_share(value))
            for table in (tables if isinstance(tables, list) else [tables])
        ),
    )


def _are_audits(value: Any) -> bool:
    return _are(value, lambda _, audit: _are(audit, lambda _, text: _is_text(text)))


# Checks each setting's JSON value; a run reads the texts more closely.
_SETTINGS: Mapping[str, Callable[[Any], bool]] = {
    "embedder": _is_text,
    "precision": _is_text,
    "cache_size": lambda value: _is_count(value) and value > 0,
    "ttl": _is_text,
    "cache_by": _is_text,
    "profiles": _are_profiles,
    "threshold": _is_share,
    "text": _is_flag,
    "audits": _are_audits,
}


@dataclass(frozen=True)
class Manifest:
    """What is published."""

    settings: Mapping[str, Any]  # of the scores; empty before the first run
    tables: dict[str, int]  # the published version of each Delta table that exists
    failed: bool = False  # whether the last run failed: then the rejects are its own
    publication: str = ""  # the id of this publication; none before it is published

    @classmethod
    def read(
        cls, settings: Any, tables: Any, *, failed: Any = False, publication: Any = ""
    ) -> "Manifest":
        """Check the values of a file, which anybody may have written, and take them.

        Raises:
            ValueError: a name, a type or a value is not one that a run writes.
        """
        are_settings = _are(settings, lambda name, x: name in _SETTINGS and _SETTINGS[name](x))
        are_tables = _are(tables, lambda name, version: name in TABLE_NAMES and _is_count(version))
        if not (are_settings and are_tables):
            raise ValueError("settings or versions of tables that no run writes")
        if not (_is_flag(failed) and _is_text(publication)):
            raise ValueError("failed or publication as no run writes them")
        return cls(settings, tables, failed, publication)

    @property
    def threshold(self) -> float:
        """The score from which on a trace is worth sharing; 1 before the first run."""
        return self.settings.get("threshold", 1.0)

    def as_publication(self, unique: str) -> "Manifest":
        """The manifest with a publication id: a unique half, 32 hex digits, and a digest."""
        contents = [FORMAT_VERSION, unique, self.settings, self.tables, self.failed]
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
    try:
        return _parse(warehouse, content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WarehouseError(f"{layout.manifest} is damaged; {LAST_REMEDY}") from error


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


def shown_tables(catalog: duckdb.DuckDBPyConnection) -> dict[str, int]:
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
