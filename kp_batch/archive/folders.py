"""The files of an archive, and a list of those in local folders.

A folder that cannot be read, or must not be, is listed as one file with a fault.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from kp_batch.archive.formats import BY_ENDING, FORMATS, Format
from kp_batch.errors import ArchiveError, is_of_machine, is_passing
from kp_batch.files import NO_FILE

# Formats of tables: a folder in that of the table, and how the name of a file there ends.
_TABLES = (
    ("a Delta", "_delta_log", ""),
    ("a Hudi", ".hoodie", ""),
    ("an Iceberg", "metadata", (".metadata.json", ".metadata.json.gz")),
)
TABLE_FOLDERS = tuple(inner for _, inner, _ in _TABLES)
# A warehouse has the first of these from the beginning of its first run.
_WAREHOUSE_FILES = frozenset({"kp.lock", "kp.duckdb"})
IS_WAREHOUSE = "kp.lock or kp.duckdb stands in it: it is a warehouse of kp_batch, not an archive"
EXCLUDED = "its user excludes it"
_NO_NAME = "its name is no UTF-8: rename it"
_NOWHERE = "it is a link that leads nowhere"
_ENDINGS = tuple(BY_ENDING)


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of an archive, or a folder with a fault."""

    path: str  # absolute, or a URL
    size: int  # bytes
    mtime_ns: int  # 0 if the file system has none
    # What changes with the content, and no tool sets: an object's ETag, or a file's ctime, which
    # changes with its owner or links as well. Empty: there is none.
    version: str = ""
    fault: str = ""  # why it cannot be read, if that is known from its folder
    # The path of a bucket object's local copy, which is made when it is read; empty: none is kept.
    copy: str = field(default="", compare=False)

    @property
    def with_text_name(self) -> "SourceFile":
        """The same; where its path is no UTF-8, which no table can hold, a fault with its bytes."""
        shown = text_path(self.path)
        return self if shown == self.path else SourceFile(shown, 0, 0, fault=self.fault or _NO_NAME)

    @property
    def format(self) -> Format:
        """Its format, by its ending; Parquet if that is unknown."""
        return BY_ENDING.get(Path(self.path).suffix.lower(), FORMATS[0])

    @property
    def has_known_ending(self) -> bool:
        """Whether its ending is that of a format."""
        return self.path.lower().endswith(_ENDINGS)


def text_path(path: str) -> str:
    """A path as tables and messages have it: with its bytes, where it is no UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


def excludes_nothing(_: str) -> bool:
    """No path is excluded."""
    return False


def folders_above(path: str) -> Iterator[str]:
    """The folders above a path or a URL, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@dataclass(frozen=True)
class Glob:
    """A pattern below a folder, as fsspec reads it: `**` stands for any number of folders.

    An empty pattern stands for all that is below the folder.
    """

    folder: str
    pattern: str = ""

    @classmethod
    def of(cls, path: str) -> "Glob":
        """Cut a path before its first part with *, ? or [; if it has none, it is the folder."""
        if not (match := re.search(r"[^/]*[*?\[]", path)):
            return cls(path)
        return cls(path[: match.start()].rstrip("/") or "/", path[match.start() :])

    def matches(self, below: tuple[str, ...]) -> bool:
        """Whether it matches a path, given by its parts below the folder.

        Raises:
            ValueError: a part of the pattern has `**` and more.
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


def list_files(
    root: str,
    own: str | None,
    *,
    every: bool = False,
    is_excluded: Callable[[str], bool] = excludes_nothing,
) -> Iterator[SourceFile]:
    """List the files of a path; of a folder or a glob, those with a known ending.

    Args:
        root: the absolute path of a file or a folder, or a glob.
        own: a folder whose files are left out, its path without links.
        every: whether hidden files count as well, and any endings.
        is_excluded: whether a folder is listed with the fault `EXCLUDED`, and not looked into.

    Raises:
        ArchiveError: the path is a warehouse, or in a table of a format such as Delta.
        OSError: it cannot be listed.
        ValueError: it is no path.
    """
    for folder in Path(root).parents:
        if fault := _table_fault(folder):
            raise ArchiveError(f"cannot look into {str(folder)!r}: {fault}")
    try:
        status = Path(root).stat()
    except (FileNotFoundError, NotADirectoryError):
        glob = Glob.of(root)
        if Path(glob.folder).is_dir():
            yield from _glob_files(glob, own, every, is_excluded)
        return
    if S_ISREG(status.st_mode):
        yield _source(root, status)
    elif S_ISDIR(status.st_mode):
        yield from _glob_files(Glob(root), own, every, is_excluded)


def is_table(kind: str) -> str:
    """The fault of a table's folder."""
    return (
        f"it is {kind} table, whose files may hold rows that were deleted from it; "
        "export it to plain Parquet"
    )


def table_fault(inner: str, name: str) -> str:
    """The fault of a folder with a file of that name in its folder `inner`; empty if it has none.

    Args:
        inner: one of `TABLE_FOLDERS`.
        name: of the file.
    """
    kinds = (kind for kind, folder, ending in _TABLES if folder == inner and name.endswith(ending))
    return next(map(is_table, kinds), "")


def stat_file(path: str) -> SourceFile:
    """The file with its present size, time and version.

    Raises:
        OSError: the file is gone.
    """
    return _source(path, Path(path).stat())


def fault_by(path: str) -> tuple[str, str]:
    """The folder that must not be read, by a file in it or below it, and why; else no reason."""
    for inner in TABLE_FOLDERS:
        folder, is_inside, name = f"/{path}".rpartition(f"/{inner}/")  # also that of a bucket
        if is_inside and (fault := table_fault(inner, name)):
            return folder.removeprefix("/"), fault
    folder, _, name = path.rpartition("/")
    return folder, IS_WAREHOUSE if name in _WAREHOUSE_FILES else ""


def _glob_files(
    glob: Glob,
    own: str | None,
    every: bool,  # noqa: FBT001 (as `list_files` has it)
    is_excluded: Callable[[str], bool],
) -> Iterator[SourceFile]:
    for file in _walk(glob, own, every, is_excluded):
        if file.path == glob.folder:
            raise ArchiveError(f"cannot look into {file.path!r}: {file.fault}")
        yield file


def _walk(
    glob: Glob,
    own: str | None,
    every: bool,  # noqa: FBT001 (as `list_files` has it)
    is_excluded: Callable[[str], bool],
) -> Iterator[SourceFile]:
    """All files that the glob matches, or that are at any depth in folders that it matches."""
    pending: list[tuple[str, tuple[str, ...], bool]] = [(glob.folder, (), not glob.pattern)]
    while pending:
        folder, below, in_match = pending.pop()
        if os.path.realpath(folder) == own:
            continue
        if below and is_excluded(text_path(folder)):
            yield SourceFile(folder, 0, 0, fault=EXCLUDED)
            continue
        entries = _look_into(folder)
        if isinstance(entries, SourceFile):
            yield entries
            continue
        for entry in entries:
            path = (*below, entry.name)
            if not every and entry.name.startswith((".", "_")):
                continue
            is_match = in_match or glob.matches(path)
            # A link to a folder is followed only if the glob matches the link itself.
            follows = is_match and not in_match
            if _is_folder(entry, follows=follows):
                if is_match or glob.leads_to(path):
                    pending.append((entry.path, path, is_match))
            elif is_match and (
                every or entry.name.lower().endswith(_ENDINGS) or (follows and _is_lost(entry))
            ):
                yield from _file(entry)


def _look_into(folder: str) -> list[os.DirEntry[str]] | SourceFile:
    """What is in a folder, or the folder with its fault."""
    try:
        entries = _entries(folder)
    except OSError as error:
        return _unreadable(folder, "the folder cannot be read: ", error)
    fault = _fault_of(Path(folder), {entry.name for entry in entries})
    return SourceFile(folder, 0, 0, fault=fault) if fault else entries


def _fault_of(folder: Path, names: Collection[str]) -> str:
    """Why a folder with these names must not be read; empty if it may be read."""
    if not _WAREHOUSE_FILES.isdisjoint(names):
        return IS_WAREHOUSE
    return _table_fault(folder, [inner for inner in TABLE_FOLDERS if inner in names])


def _table_fault(folder: Path, among: Iterable[str] = TABLE_FOLDERS) -> str:
    faults = (table_fault(inner, name) for inner in among for name in _names_in(folder / inner))
    return next(filter(None, faults), "")


def _names_in(folder: Path) -> list[str]:
    """The names in a folder, if it is one; if it is closed, a name without an ending."""
    try:
        return [entry.name for entry in _entries(folder)]
    except PermissionError:
        return [""] if os.path.isdir(folder) else []  # noqa: PTH112 (even without access)
    except OSError:
        return []


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _is_folder(entry: os.DirEntry[str], *, follows: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follows)
    except OSError:  # of a link, such as one that leads to itself
        return False


def _is_lost(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that cannot be followed now: it may have led to a folder."""
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 (raises nothing)


def _file(entry: os.DirEntry[str]) -> Iterator[SourceFile]:
    try:
        status = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():  # else the file is gone by now
            yield SourceFile(entry.path, 0, 0, fault=f"{_NOWHERE}: to {_target(entry.path)}")
        return
    except OSError as error:
        yield _unreadable(entry.path, "", error)
        return
    if S_ISREG(status.st_mode):
        yield _source(entry.path, status)
    elif not S_ISDIR(status.st_mode) and entry.name.lower().endswith(_ENDINGS):
        yield SourceFile(entry.path, 0, 0, fault=NO_FILE)


def _target(link: str) -> str:
    try:
        return text_path(os.readlink(link))  # noqa: PTH115 (as a path it may be no text)
    except OSError:  # somebody has just removed it
        return "what is gone"


def _source(path: str, status: os.stat_result) -> SourceFile:
    return SourceFile(path, status.st_size, status.st_mtime_ns, _version(status))


def _version(status: os.stat_result) -> str:
    return str(status.st_ctime_ns or "")


def _unreadable(path: str, prefix: str, error: OSError) -> SourceFile:
    if is_passing(error) or is_of_machine(error):
        raise error
    return SourceFile(path, 0, 0, fault=f"{prefix}{error.strerror}")
