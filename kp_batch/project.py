"""Read kp_batch.toml, the one file of a project: its archive, its warehouse and all settings.

A setting that the file leaves out has its default, whatever the warehouse was scored with. Relative
paths start from the file's folder. The file's tables are the models in `settings`, which are
imported only when needed: this takes longer than most commands.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kp_batch.errors import SettingError
from kp_batch.faults import unknown_key
from kp_batch.files import read_toml
from kp_batch.scoring.profiles import extended_profiles
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import count_of, printable
from kp_batch.warehouse.audits import parse_audits
from kp_batch.warehouse.bucket.location import folder_of

if TYPE_CHECKING:
    from kp_batch.settings import ProjectTables

_TEXTS = ("warehouse", "warehouse_id")
_TABLES = ("settings", "run", "limits", "profiles", "audits", "imports")
_KEYS = ("archive", *_TEXTS, *_TABLES)
_PATHS = ("archive", "rules")  # of an import, in addition to its sources
_HEAD = re.compile(r"\s*\[+([^\]]+)\]")


@dataclass(frozen=True)
class ProjectFile:
    """A project's file, read once; its tables are checked when somebody asks for them."""

    file: Path
    warehouse: str | None  # its path or URL; None: the file names none
    warehouse_id: str | None  # the expected id; None: any, or a new warehouse
    _content: Mapping[str, Any] = field(repr=False)  # without faults before its tables
    _lines: Sequence[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The file's name for messages."""
        return printable(str(self.file))

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Return the values of a run, by the names of `RescoreConfig`.

        Raises:
            KpBatchError: its tables have faults; the message lists all of one kind.
        """
        tables = self._tables
        read: Mapping[str, Callable[[Any], Any]] = {
            "archive": self._archive,
            "warehouse": lambda _: self.warehouse,
            "profiles": lambda of_names: extended_profiles(of_names, self._table("profiles")),
            "audits": lambda of_names: parse_audits(of_names, self._table("audits")),
        }
        top = {key: of(self._content[key]) for key, of in read.items() if key in self._content}
        return tables.settings.given | tables.run.given | tables.limits.given | top

    @cached_property
    def imports(self) -> Sequence[Mapping[str, Any]]:
        """Return the values of each `ImportConfig`.

        Raises:
            SettingError: its tables have faults; the message lists all.
        """
        return [_import(self.file.parent, entry) for entry in self._tables.imports]

    @cached_property
    def _tables(self) -> "ProjectTables":
        from kp_batch.settings import ProjectTables

        tables, faults = ProjectTables.read(self._content, self.file.parent)
        _refuse(self.file, faults)
        return tables

    def _archive(self, archive: str | Sequence[str]) -> list[str]:
        several = [archive] if isinstance(archive, str) else archive
        return [_from(self.file.parent, each) for each in several]

    def _table(self, name: str) -> str:
        return f"[{name}] of the project file {self.name}"

    def is_of(self, warehouse: object) -> bool:
        """Whether a warehouse is the file's own, and no other one with its settings."""
        return self.warehouse is not None and _folder(str(warehouse)) == _folder(self.warehouse)

    def place(self, name: str, of: str | None = None) -> str:
        """Return a setting's place in the file for messages: its line, or its table if unknown.

        Args:
            name: a key of `RescoreConfig`.
            of: the name of the profile or audit.
        """
        from kp_batch.settings import TABLES

        tables = [table for table, model in TABLES.items() if name in model.model_fields]
        wanted = (*tables, name, *([of] if of else []))
        for number, path in self._paths():
            if path == wanted:
                return f"line {number}"
        return f"[{tables[0]}] {name}" if tables else f"[{'.'.join(wanted)}]"

    def _paths(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Return the line number of each key and table head, by its path.

        Keys that are written otherwise than by `init` have none.
        """
        table: Sequence[str] = ()
        for number, line in enumerate(self._lines, 1):
            head = _HEAD.match(line)
            dotted, is_value, _ = (head[1], "", "") if head else line.partition("=")
            path = tuple(each.strip(" \"'") for each in dotted.split("."))
            if head:
                table = path
                yield number, path
            elif is_value:
                yield number, (*table, *path)


def load_project(file: Path) -> ProjectFile:
    """Read a project's file, and check the keys before its tables.

    Raises:
        SettingError: the file is missing, unreadable or has such faults; the message lists all of
            them.
    """
    return project_of(file, *read_toml(file, "the project file", SettingError))


def project_of(file: Path, text: str, content: Mapping[str, Any]) -> ProjectFile:
    """Return the project of a text, which is the file's content or will be; see `load_project`."""
    if faults := [*_faults_of_head(content)]:
        from kp_batch.settings import ProjectTables

        _refuse(file, [*faults, *ProjectTables.read(content, file.parent)[1]])
    warehouse = content.get("warehouse")
    where = None if warehouse is None else _from(file.parent, warehouse)
    return ProjectFile(file, where, content.get("warehouse_id"), content, text.split("\n"))


def _folder(warehouse: str) -> Path:
    return Path(folder_of(warehouse)).resolve()


def _refuse(file: Path, faults: Sequence[str]) -> None:
    if faults:
        counted = count_of(len(faults), "fault")
        raise SettingError(
            f"the project file {printable(str(file))} has {counted}: {'; '.join(faults)}"
        )


def _faults_of_head(content: Mapping[str, Any]) -> Iterator[str]:
    """Return the faults before the tables, and those of their names."""
    yield from (unknown_key("", key, _KEYS) for key in content if key not in _KEYS)
    archive = content.get("archive", "a")
    if not _is_text(archive) and not (archive and _are_texts(archive)):
        yield f"archive must be a path or a list of paths, got {archive!r}"
    for key in _TEXTS:
        if not _is_text(content.get(key, "")):
            yield f"{key} must be a text, got {content[key]!r}"
    for key in ("archive", *_TEXTS):
        if content.get(key) in ("", [""]):
            yield f"{key} is empty; take it out, or give it a value"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_text, cast("list[Any]", values)))


def _import(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an import, with full paths; wrong paths stay, and are reported later."""
    values = dict(entry)
    for key in _PATHS:
        if _is_text(values.get(key)):
            values[key] = _from(folder, values[key])
    if _are_texts(values.get("sources")):
        values["sources"] = [_from(folder, source) for source in values["sources"]]
    return values


def _from(folder: Path, path: str) -> str:
    """Return a path that starts from a folder; a URL stays as it is.

    Links in it are not resolved.
    """
    return path if is_url(path) else str(folder / Path(local_name(path)).expanduser())
