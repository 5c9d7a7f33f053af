"""Reads kp_batch.toml, the one file of a project: its archive, its warehouse and all settings.

What it leaves out has its default, whatever the warehouse was scored with: a line taken out is a
setting taken back. Relative paths start from the file's folder.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from kp_batch.errors import SettingError
from kp_batch.faults import Place, unknown_key
from kp_batch.files import read_toml
from kp_batch.scoring.profiles import extended_profiles
from kp_batch.settings import EMBEDDERS, SETTINGS
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import count_of, printable
from kp_batch.warehouse.audits import parse_audits
from kp_batch.warehouse.bucket.location import folder_of

_OWN_TABLES = ("profiles", "audits")  # settings that are tables themselves
# The keys of each table but for those of profiles, audits and imports, whose names are the user's.
TABLES: Mapping[str, Sequence[str]] = {
    "settings": [name for name in SETTINGS if name not in _OWN_TABLES],
    "run": ("exclude", "prune", "ray", "wait"),
    "limits": (
        *("max_reject_share", "max_new_rejects", "max_removed"),
        *("max_unreadable", "max_gone", "timeout"),
    ),
}
_TEXTS = ("warehouse", "warehouse_id")
_DURATIONS = {"ttl", "timeout"}
_KEYS = ("archive", *_TEXTS, *TABLES, *_OWN_TABLES, "imports")
_PATHS = ("archive", "rules")  # of an import, besides its sources
_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*"
_HEAD = re.compile(rf"\s*\[\[?{_DOTTED}\]\]?\s*(?:#.*)?$")
_VALUE = re.compile(rf"{_DOTTED}=(.*)")


@dataclass(frozen=True)
class Project:
    """A project's file, which is read once: what its tables say is checked by who asks for it."""

    file: Path
    warehouse: str | None  # its path or URL; None: it names none
    warehouse_id: str | None  # that it expects; None: whichever is there, or a new one
    _content: Mapping[str, Any] = field(repr=False)  # without a fault before its tables
    _lines: Sequence[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The file, for messages."""
        return printable(str(self.file))

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """What it has of a run, by the names of `RescoreConfig`, whose bounds they may exceed.

        Raises:
            SettingError: its tables have faults; the message lists all of one kind.
        """
        _refuse(self.file, _faults_of_tables(self._content))
        tables = (self._content.get(table, {}) for table in TABLES)
        values = {key: value for table in tables for key, value in table.items()}
        values |= {key: value for key, value in self._content.items() if key in _READ}
        return {
            key: _READ[key](value, self.file) if key in _READ else value
            for key, value in values.items()
        }

    @cached_property
    def imports(self) -> Sequence[Mapping[str, Any]]:
        """The values of each `ImportConfig`.

        Raises:
            SettingError: its tables have faults; the message lists all.
        """
        _refuse(self.file, _faults_of_tables(self._content))
        return [_import(self.file.parent, entry) for entry in self._content.get("imports", ())]

    def is_of(self, warehouse: object) -> bool:
        """Whether a warehouse is that of the file, and no other one with its settings."""
        return self.warehouse is not None and _folder(str(warehouse)) == _folder(self.warehouse)

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
        table = next((table for table, keys in TABLES.items() if name in keys), "")
        wanted = (name, of) if name in _OWN_TABLES else (table, name)
        word = re.compile(rf"(?<![\w-]){re.escape(str(wanted[1]))}(?![\w-])")
        for number, path, value in self._paths():
            is_inline = path == wanted[: len(path)] and word.search(value)
            if path[: len(wanted)] == wanted or is_inline:
                return number
        return None

    def _paths(self) -> Iterator[tuple[int, Sequence[str], str]]:
        """The number of each line with a key or the head of a table, its path, and a key's value.

        It reads line by line: a text of several lines may look like some.
        """
        table: Sequence[str] = ()
        for number, line in enumerate(self._lines, 1):
            if head := _HEAD.match(line):
                table = _parts(head[1])
                yield number, table, ""
            elif key := _VALUE.match(line):
                yield number, (*table, *_parts(key[1])), key[2]


def load_project(file: Path) -> Project:
    """Read a project's file, and check what stands before its tables.

    Raises:
        SettingError: it is missing, unreadable or has faults there; the message lists all of them.
    """
    return project_of(file, *read_toml(file, "the project file", SettingError))


def project_of(file: Path, text: str, content: Mapping[str, Any]) -> Project:
    """The project of a text, which is that of the file, or will be; see `load_project`."""
    if faults := [*_faults_of_head(content)]:
        _refuse(file, [*faults, *_faults_of_tables(content)])
    warehouse = content.get("warehouse")
    where = None if warehouse is None else _from(file.parent, warehouse)
    return Project(file, where, content.get("warehouse_id"), content, text.split("\n"))


def _parts(dotted: str) -> tuple[str, ...]:
    """The names of a key with dots between them."""
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _folder(warehouse: str) -> Path:
    return Path(folder_of(warehouse)).resolve()


def _refuse(file: Path, faults: Iterable[str]) -> None:
    if told := [*faults]:
        counted = count_of(len(told), "fault")
        raise SettingError(
            f"the project file {printable(str(file))} has {counted}: {'; '.join(told)}"
        )


def _table_of(file: Path, name: str) -> str:
    return f"[{name}] of the project file {printable(str(file))}"


def _faults_of_head(content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong before the tables, and with their names."""
    yield from (unknown_key("", key, _KEYS) for key in content if key not in _KEYS)
    archive = content.get("archive", "a")
    if not _is_text(archive) and not (archive and _are(archive, _is_text)):
        yield f"archive is a path or a list of paths, got {archive!r}"
    for key in _TEXTS:
        if not _is_text(content.get(key, "")):
            yield f"{key} is a text, got {content[key]!r}"
    yield from _empty({name: content[name] for name in ("archive", *_TEXTS) if name in content})


def _faults_of_tables(content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the form of the tables; their values are checked later."""
    for table, keys in TABLES.items():
        value = content.get(table, {})
        if not _is_table(value):
            yield f"{table} is a table, got {value!r}"
            continue
        yield from (unknown_key(f"[{table}]", key, keys) for key in value if key not in keys)
        yield from _empty(value)
        for key in (key for key in value if key in _DURATIONS and not _is_text(value[key])):
            yield f"{key} is a text such as '90m', got {value[key]!r}"
    imports = content.get("imports", [])
    if not _are(imports, _is_table):
        yield f"imports are tables, each [[imports]], got {imports!r}"


def _empty(values: Mapping[str, Any]) -> Iterator[str]:
    empty = (key for key, value in values.items() if value in ("", [""]))
    return (f"{key} is empty; take it out, or give it a value" for key in empty)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _are(values: Any, allowed: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(allowed, cast("list[Any]", values)))


def _archive(archive: str | Sequence[str], file: Path) -> list[str]:
    several = [archive] if isinstance(archive, str) else archive
    return [_from(file.parent, each) for each in several]


def _embedder(embedder: Any, file: Path) -> Any:
    """A model's folder in full, since it names scores; a wrong one stays, and is told later."""
    if not isinstance(embedder, str) or embedder in EMBEDDERS:
        return embedder
    is_folder = (file.parent / embedder).is_dir()
    return str(file.parent.resolve() / embedder) if is_folder else embedder


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


# What the values of some keys stand for in the file; all others are taken as they are.
_READ: Mapping[str, Callable[[Any, Path], Any]] = {
    "archive": _archive,
    "warehouse": lambda warehouse, file: _from(file.parent, warehouse),
    "embedder": _embedder,
    "profiles": lambda profiles, file: extended_profiles(profiles, _table_of(file, "profiles")),
    "audits": lambda audits, file: parse_audits(audits, _table_of(file, "audits")),
}
