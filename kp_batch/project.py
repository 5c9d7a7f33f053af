"""Reads kp_batch.toml, the one file of a project: its archive, its warehouse and all settings.

What it leaves out has its default, whatever the warehouse was scored with: a line taken out is a
setting taken back. Relative paths start from the file's folder.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kp_batch.errors import SettingError
from kp_batch.faults import Place, unknown_key
from kp_batch.runs.audits import parse_audits
from kp_batch.scoring.profiles import extended_profiles
from kp_batch.settings import EMBEDDERS, SETTINGS
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import count_of, printable
from kp_batch.warehouse.bucket.location import folder_of

_OWN_TABLES = ("profiles", "audits")  # settings that are tables themselves
# The keys of each table but for those of profiles, audits and imports, whose names are the user's.
TABLES: Mapping[str, Sequence[str]] = {
    "settings": [name for name in SETTINGS if name not in _OWN_TABLES],
    "run": (
        *("exclude", "prune", "restore_vectors", "workers", "ray"),
        *("wait", "wait_at_most"),
    ),
    "limits": (
        *("max_reject_share", "max_new_rejects", "max_removed"),
        *("max_unreadable", "max_gone", "timeout"),
    ),
}
_TEXTS = ("warehouse", "warehouse_id")
_DURATIONS = {"ttl", "timeout", "wait_at_most"}
_KEYS = ("archive", *_TEXTS, *TABLES, *_OWN_TABLES, "imports")
_PATHS = ("archive", "rules")  # of an import, besides its sources


@dataclass(frozen=True)
class Project:
    """What a project's file says."""

    file: Path
    values: Mapping[str, Any]  # by the names of `RescoreConfig`, those that it has
    warehouse_id: str | None  # that it expects; None: whichever is there, or a new one
    imports: Sequence[Mapping[str, Any]] = ()  # the values of each `ImportConfig`
    _lines: Sequence[str] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The file, for messages."""
        return printable(str(self.file))

    def is_of(self, warehouse: object) -> bool:
        """Whether a warehouse is that of the file, and no other one with its settings."""
        own = self.values.get("warehouse")
        return own is not None and _folder(str(warehouse)) == _folder(own)

    def place(self, place: Place) -> str:
        """A value in the file, for messages: `[limits] max_gone`."""
        name, *rest = map(str, place or [""])
        if name in _OWN_TABLES:
            return f"[{'.'.join((name, *rest))}]"
        tables = [f"[{table}] " for table, keys in TABLES.items() if name in keys]
        return "".join((*tables, name))

    def line_of(self, name: str, of: str | None = None) -> int | None:
        """The number of the line that has a setting, or begins its table; None if none does.

        Args:
            name: a key of `RescoreConfig`.
            of: which of the profiles, or audits.
        """
        table = ""
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
                table = header[1].replace('"', "").replace("'", "")
                if name in _OWN_TABLES and table == f"{name}.{of}":
                    return number
            elif name in TABLES.get(table, ()) and re.match(rf"\s*{name}\s*=", line):
                return number
        return None


def load_project(file: Path) -> Project:
    """Read a project's file, but for the bounds of its values: these are `RescoreConfig`'s.

    Raises:
        SettingError: it is missing, unreadable or has faults; the message lists all of them.
        ProfileError: its profiles have faults.
    """
    try:
        text = file.read_text("utf-8")
        content = tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(
            f"the project file {printable(str(file))} cannot be read: {printable(str(reason))}"
        ) from error
    if faults := [*_faults(content)]:
        counted = count_of(len(faults), "fault")
        raise SettingError(
            f"the project file {printable(str(file))} has {counted}: {'; '.join(faults)}"
        )
    folder = file.parent
    values = {key: value for table in TABLES for key, value in content.get(table, {}).items()}
    if "archive" in content:
        archive = content["archive"]
        values["archive"] = [
            _from(folder, entry) for entry in ([archive] if isinstance(archive, str) else archive)
        ]
    if "warehouse" in content:
        values["warehouse"] = _from(folder, content["warehouse"])
    embedder = values.get("embedder")
    is_path = isinstance(embedder, str) and embedder not in EMBEDDERS
    if is_path and (folder / str(embedder)).is_dir():
        values["embedder"] = str(folder.resolve() / str(embedder))  # it names scores
    if "profiles" in content:
        values["profiles"] = extended_profiles(content["profiles"], str(file))
    if "audits" in content:
        values["audits"] = parse_audits(content["audits"], str(file))
    imports = [_import(folder, entry) for entry in content.get("imports", ())]
    return Project(file, values, content.get("warehouse_id"), imports, text.split("\n"))


def _folder(warehouse: str) -> Path:
    return Path(folder_of(warehouse)).resolve()


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the form of a file; the values of its tables are checked later."""
    yield from (unknown_key("", key, _KEYS) for key in content if key not in _KEYS)
    archive = content.get("archive", "a")
    if not _is_text(archive) and not (archive and _are(archive, _is_text)):
        yield f"archive is a path or a list of paths, got {archive!r}"
    for key in _TEXTS:
        if not _is_text(content.get(key, "")):
            yield f"{key} is a text, got {content[key]!r}"
    for table, keys in TABLES.items():
        value = content.get(table, {})
        if not isinstance(value, dict):
            yield f"{table} is a table, got {value!r}"
            continue
        names = cast("dict[str, Any]", value)
        yield from (unknown_key(f"[{table}]", key, keys) for key in names if key not in keys)
    flat = {name: content[name] for name in ("archive", *_TEXTS) if name in content}
    for table in filter(_is_table, (flat, *(content.get(table, {}) for table in TABLES))):
        empty = [key for key, value in table.items() if value in ("", [""])]
        yield from (f"{key} is empty; take it out, or give it a value" for key in empty)
        for key in _DURATIONS & table.keys():
            if not _is_text(table[key]):
                yield f"{key} is a text such as '90m', got {table[key]!r}"
    imports = content.get("imports", [])
    if not _are(imports, _is_table):
        yield f"imports are tables, each [[imports]], got {imports!r}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _are(values: Any, allowed: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(allowed, cast("list[Any]", values)))


def _import(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an import, its paths in full; a wrong one stays, and is told later."""
    values = dict(entry)
    for key in _PATHS:
        if _is_text(values.get(key)):
            values[key] = _from(folder, values[key])
    if _are(values.get("sources"), _is_text):
        values["sources"] = [_from(folder, source) for source in values["sources"]]
    return values


def _from(folder: Path, path: str) -> str:
    """A path that starts from a folder; a URL stays as it is.

    Nothing of it is resolved: a link in it leads where the system says.
    """
    return path if is_url(path) else str(folder / Path(local_name(path)).expanduser())
