"""Lists the files of an archive in folders: local ones, and those of buckets.

A folder that cannot be read, or must not be, is listed as one file with a fault.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from kp_batch.archive.file_formats import BY_ENDING, FORMATS, FileFormat
from kp_batch.errors import ArchiveError, is_of_machine, is_passing
from kp_batch.files import NO_FILE

# The folders in tables of Delta, Hudi and Iceberg, and the endings of names in them.
MARKS_OF_TABLES: Mapping[str, str | tuple[str, ...]] = {
    "_delta_log": "",
    ".hoodie": "",
    "metadata": (".metadata.json", ".metadata.json.gz"),
}
IS_TABLE = (
    "it is a Delta, Hudi or Iceberg table, whose files may contain deleted rows; "
    "export it to plain Parquet"
)
# A warehouse has the first of these as soon as its first run begins.
_WAREHOUSE_FILES = frozenset({"kp.lock", "kp.duckdb"})
IS_WAREHOUSE = "it contains kp.lock or kp.duckdb: it is a warehouse of kp_batch, not an archive"
EXCLUDED = "its user excludes it"
_NO_NAME = "its name is not UTF-8: rename it"
_NOWHERE = "it is a link that leads nowhere"
_ENDINGS = tuple(BY_ENDING)


@dataclass(frozen=True, order=True)
class SourceFile:
    """A file of an archive, or a folder with a fault."""

    path: str  # absolute, or a URL
    size: int  # bytes
    mtime_ns: int  # 0 if the file system has none
    # Changes with the content, and no tool sets it: an object's ETag, or a file's ctime, which also
    # changes with the file's owner or links. Empty if there is none.
    version: str = ""
    fault: str = ""  # why it cannot be read, if known from its folder
    # The path of a bucket object's local copy, made when it is read; empty to keep none.
    copy: str = field(default="", compare=False)

    @property
    def with_text_name(self) -> "SourceFile":
        """Return it; with a fault if the path is not UTF-8, because no table can contain it."""
        shown = text_path(self.path)
        return self if shown == self.path else SourceFile(shown, 0, 0, fault=self.fault or _NO_NAME)

    @property
    def format(self) -> FileFormat:
        """The format, by the ending; Parquet if the ending is unknown."""
        return BY_ENDING.get(Path(self.path).suffix.lower(), FORMATS[0])

    @property
    def has_known_ending(self) -> bool:
        """Whether the ending is that of a format."""
        return self.path.lower().endswith(_ENDINGS)


def text_path(path: str) -> str:
    """Return a path for tables and messages; bytes that are not UTF-8 are escaped."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


def excludes_nothing(_: str) -> bool:
    """Exclude no path."""
    return False


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path or a URL, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@dataclass(frozen=True)
class Glob:
    """A pattern below a folder, as fsspec reads it: `**` matches any number of folders.

    An empty pattern matches everything below the folder.
    """

    folder: str
    pattern: str = ""

    @classmethod
    def of(cls, path: str) -> "Glob":
        """Split a path before its first part with *, ? or [; without one, it is all folder."""
        if not (match := re.search(r"[^/]*[*?\[]", path)):
            return cls(path)
        return cls(path[: match.start()].rstrip("/") or "/", path[match.start() :])

    def matches(self, below: tuple[str, ...]) -> bool:
        """Whether it matches a path, given by its parts below the folder.

        Raises:
            ValueError: a part of the pattern contains more than `**`.
        """
        return _compiled(self.pattern).match("/".join(below)) is not None

    def covers(self, below: tuple[str, ...]) -> bool:
        """Whether it matches a path, or a folder above it."""
        ends = range(1, len(below) + 1)
        return not self.pattern or any(self.matches(below[:end]) for end in ends)

    def leads_to(self, below: tuple[str, ...]) -> bool:
        """Whether it can match a path below this one."""
        for part, name in zip(self.pattern.split("/"), below, strict=False):
            if part == "**":
                return True
            if not _compiled(part).match(name):
                return False
        return True


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    from fsspec.utils import glob_translate

    return re.compile(glob_translate(pattern))


class FolderEntry(Protocol):
    """What is in a folder: a file, another folder, or something else."""

    @property
    def name(self) -> str:
        """Name in its folder."""
        ...

    @property
    def path(self) -> str:
        """Absolute path or URL."""
        ...

    def is_folder(self, *, follows: bool) -> bool:
        """Whether it is a folder; if it `follows` links, also a link to one."""
        ...

    def is_lost(self) -> bool:
        """Whether it is a link that cannot be followed now: it may have led to a folder."""
        ...

    def source(self) -> SourceFile | None:
        """Return the file, with its fault if any; None if it is not a file."""
        ...


def list_files(
    root: str,
    own: str | None,
    *,
    every: bool = False,
    is_excluded: Callable[[str], bool] = excludes_nothing,
) -> Iterator[SourceFile]:
    """List the files of a path; in a folder or a glob, only those with a known ending.

    Args:
        root: the absolute path of a file or a folder, or a glob.
        own: a folder whose files are left out; its path without links.
        every: whether to include hidden files and files with other endings.
        is_excluded: whether to list a folder with the fault `EXCLUDED`, without its contents.

    Raises:
        ArchiveError: the path is a warehouse, or in a table.
        OSError: the path cannot be listed.
        ValueError: it is not a path.
    """
    for folder in Path(root).parents:
        if _is_table(str(folder), MARKS_OF_TABLES, list_entries):
            raise in_table(str(folder))
    try:
        status = Path(root).stat()
    except (FileNotFoundError, NotADirectoryError):
        glob = Glob.of(root)
        if not Path(glob.folder).is_dir():
            return
    else:
        if S_ISREG(status.st_mode):
            yield _source(root, status)
        if not S_ISDIR(status.st_mode):
            return
        glob = Glob(root)

    def list_folder(folder: str) -> Sequence[FolderEntry]:
        return () if os.path.realpath(folder) == own else list_entries(folder)

    yield from walk(glob, list_folder, every=every, is_excluded=is_excluded)


def in_table(folder: str) -> ArchiveError:
    """Return the error for a folder that is a table, above what would be listed."""
    return _cannot_look(folder, IS_TABLE)


def walk(
    glob: Glob,
    list_folder: Callable[[str], Sequence[FolderEntry]],
    *,
    every: bool = False,
    is_excluded: Callable[[str], bool] = excludes_nothing,
) -> Iterator[SourceFile]:
    """Yield all files that the glob matches, or that are anywhere in folders that it matches.

    Args:
        glob: a glob below a folder.
        list_folder: returns what is in a folder; may raise an OSError.
        every: see `list_files`.
        is_excluded: see `list_files`.

    Raises:
        ArchiveError: the glob's folder cannot be read, or must not be.
    """
    pending: list[tuple[str, tuple[str, ...], bool]] = [(glob.folder, (), not glob.pattern)]
    while pending:
        folder, below, in_match = pending.pop()
        if below and is_excluded(text_path(folder)):
            yield SourceFile(folder, 0, 0, fault=EXCLUDED)
            continue
        entries = _listed(folder, list_folder)
        if isinstance(entries, SourceFile):
            if not below:
                raise _cannot_look(folder, entries.fault)
            yield entries
            continue
        for entry in entries:
            path = (*below, entry.name)
            if not every and entry.name.startswith((".", "_")):
                continue
            is_match = in_match or glob.matches(path)
            # A link to a folder is followed only if the glob matches the link itself.
            follows = is_match and not in_match
            if entry.is_folder(follows=follows):
                if is_match or glob.leads_to(path):
                    pending.append((entry.path, path, is_match))
            elif (
                is_match
                and (
                    every or entry.name.lower().endswith(_ENDINGS) or (follows and entry.is_lost())
                )
                and (source := entry.source())
            ):
                yield source


def _listed(
    folder: str, list_folder: Callable[[str], Sequence[FolderEntry]]
) -> Sequence[FolderEntry] | SourceFile:
    """Return what is in a folder, or the folder with its fault."""
    try:
        entries = list_folder(folder)
    except OSError as error:
        return _unreadable(folder, "the folder cannot be read: ", error)
    names = {entry.name for entry in entries}
    if not _WAREHOUSE_FILES.isdisjoint(names):
        return SourceFile(folder, 0, 0, fault=IS_WAREHOUSE)
    is_table = _is_table(folder, names & MARKS_OF_TABLES.keys(), list_folder)
    return SourceFile(folder, 0, 0, fault=IS_TABLE) if is_table else entries


def _is_table(
    folder: str, marks: Iterable[str], list_folder: Callable[[str], Sequence[FolderEntry]]
) -> bool:
    for mark in marks:
        path = f"{folder.rstrip('/')}/{mark}"
        try:
            names = [entry.name for entry in list_folder(path)]
        except PermissionError:  # an unreadable folder is judged by its own name
            names = [""] if os.path.isdir(path) else []  # noqa: PTH112 (even without access)
        except (OSError, KeyError):  # a file of that name
            names = list[str]()
        if any(name.endswith(MARKS_OF_TABLES[mark]) for name in names):
            return True
    return False


def stat_file(path: str) -> SourceFile:
    """Return the file with its current size, time and version.

    Raises:
        OSError: the file is gone.
    """
    return _source(path, Path(path).stat())


def list_entries(folder: str) -> list[FolderEntry]:
    """Return what is in a folder."""
    with os.scandir(folder) as entries:
        return [_Local(entry) for entry in entries]


@dataclass(frozen=True)
class _Local:
    """An entry of a local folder."""

    entry: os.DirEntry[str]

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def path(self) -> str:
        return self.entry.path

    def is_folder(self, *, follows: bool) -> bool:
        try:
            return self.entry.is_dir(follow_symlinks=follows)
        except OSError:  # of a link, for example one to itself
            return False

    def is_lost(self) -> bool:
        return self.entry.is_symlink() and not os.path.exists(self.path)  # noqa: PTH110 (raises nothing)

    def source(self) -> SourceFile | None:
        try:
            status = self.entry.stat()
        except FileNotFoundError:
            if self.entry.is_symlink():  # otherwise the file is gone by now
                fault = f"{_NOWHERE}: to {_target(self.path)}"
                return SourceFile(self.path, 0, 0, fault=fault)
            return None
        except OSError as error:
            return _unreadable(self.path, "", error)
        if S_ISREG(status.st_mode):
            return _source(self.path, status)
        is_odd = not S_ISDIR(status.st_mode) and self.name.lower().endswith(_ENDINGS)
        return SourceFile(self.path, 0, 0, fault=NO_FILE) if is_odd else None


def _target(link: str) -> str:
    try:
        return text_path(os.readlink(link))  # noqa: PTH115 (as a path it may be no text)
    except OSError:  # it was just removed
        return "what is gone"


def _source(path: str, status: os.stat_result) -> SourceFile:
    return SourceFile(path, status.st_size, status.st_mtime_ns, version_of(status))


def version_of(status: os.stat_result) -> str:
    """Return what changes with a file besides its size and modification time: its ctime."""
    return str(status.st_ctime_ns or "")


def _unreadable(path: str, prefix: str, error: OSError) -> SourceFile:
    if is_passing(error) or is_of_machine(error):
        raise error
    return SourceFile(path, 0, 0, fault=f"{prefix}{error.strerror}")


def _cannot_look(folder: str, fault: str) -> ArchiveError:
    return ArchiveError(f"cannot list {folder!r}: {fault}")
