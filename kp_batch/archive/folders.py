"""The files of an archive: what is known of one, and those in the folders of this machine.

A folder that cannot be read, or must not be, is found as one file with a fault.
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from kp_batch.archive.formats import BY_ENDING, Format, format_of
from kp_batch.errors import ArchiveError, is_of_machine, is_passing

DELTA_LOG = "_delta_log"
IS_DELTA = (
    "it is a Delta table, whose files may hold rows that were deleted from it; "
    "export it to plain Parquet"
)
# A warehouse holds the first of these from the first moment of its first run on.
_WAREHOUSE_FILES = frozenset({"kp.lock", "kp.duckdb"})
IS_WAREHOUSE = "kp.lock or kp.duckdb stands in it: it is a warehouse of kp_batch, not an archive"
_ENDINGS = tuple(BY_ENDING)


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of an archive, or a folder of which nothing can be read."""

    path: str  # absolute, or a URL
    size: int  # bytes
    mtime_ns: int  # 0 if the file system has none
    etag: str = ""  # of an object in a bucket: it changes with the content
    fault: str = ""  # why it cannot be read, where its folder tells that already
    # Of an object in a bucket, where its bytes are kept once they were fetched; empty: nowhere.
    copy: str = field(default="", compare=False)

    @property
    def format(self) -> Format:
        """The name of its format, by its ending; Parquet if that is unknown."""
        return format_of(self.path)


def folders_above(path: str) -> Iterator[str]:
    """The folders that hold a file or a folder, the nearest first; of a URL likewise."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@dataclass(frozen=True)
class Glob:
    """A pattern below a folder, as fsspec reads it: `**` stands for any number of folders."""

    folder: str
    pattern: str

    @classmethod
    def of(cls, path: str) -> "Glob | None":
        """Cut a path before its first part with *, ? or [; None if it has no such part."""
        if not (found := re.search(r"[^/]*[*?\[]", path)):
            return None
        return cls(path[: found.start()].rstrip("/") or "/", path[found.start() :])

    def matches(self, below: tuple[str, ...]) -> bool:
        """Whether it matches a path, given by its parts below the folder.

        Raises:
            ValueError: a `**` is no whole part of the pattern.
        """
        return _compiled(self.pattern).match("/".join(below)) is not None

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


def list_files(root: str, own: str | None) -> Iterator[SourceFile]:
    """The files that a path gives; of a folder or a glob, those with a known ending.

    Args:
        root: the absolute path of a file or a folder, or a glob.
        own: a folder whose files are left out, its path without links.

    Raises:
        ArchiveError: the path is a warehouse, or in a Delta table.
        OSError: it cannot be looked at.
        ValueError: it is no path, or a file's name is not UTF-8.
    """
    for found in _found(root, own, every=False):
        found.path.encode()  # a name that is not UTF-8 cannot stand in a table
        yield found


def list_all_files(root: str, own: str) -> Iterator[SourceFile]:
    """As `list_files`, all files: those that are hidden, and with any name and ending, too."""
    return _found(root, own, every=True)


def _found(root: str, own: str | None, *, every: bool) -> Iterator[SourceFile]:
    for folder in Path(root).parents:
        if (folder / DELTA_LOG).is_dir():
            raise ArchiveError(f"cannot look into {str(folder)!r}: {IS_DELTA}")
    try:
        status = Path(root).stat()
    except (FileNotFoundError, NotADirectoryError):
        glob = Glob.of(root)
        if glob and Path(glob.folder).is_dir():
            yield from _named(glob, own, every=every)
        return
    if S_ISREG(status.st_mode):
        yield _source(root, status)
    elif S_ISDIR(status.st_mode):
        yield from _named(Glob(root, ""), own, every=every)


def stat_file(path: str) -> SourceFile:
    """The file with its present size and time.

    Raises:
        OSError: the file is gone.
    """
    return _source(path, Path(path).stat())


def fault_of(names: Collection[str]) -> str:
    """Why a folder that holds these names must not be read; empty if it may be."""
    if DELTA_LOG in names:
        return IS_DELTA
    return "" if _WAREHOUSE_FILES.isdisjoint(names) else IS_WAREHOUSE


def _named(glob: Glob, own: str | None, *, every: bool) -> Iterator[SourceFile]:
    """The files that a glob gives, or a folder: a glob with an empty pattern."""
    for found in _inside(glob, own, every=every):
        if found.path == glob.folder:
            raise ArchiveError(f"cannot look into {found.path!r}: {found.fault}")
        yield found


def _inside(glob: Glob, own: str | None, *, every: bool) -> Iterator[SourceFile]:
    """All files that the glob matches, or that stand at any depth in folders that it matches."""
    ahead: list[tuple[str, tuple[str, ...], bool]] = [(glob.folder, (), not glob.pattern)]
    while ahead:
        folder, below, matched = ahead.pop()
        if os.path.realpath(folder) == own:
            continue
        try:
            entries = _entries(folder)
        except OSError as error:
            yield _unreadable(folder, "the folder cannot be read: ", error)
            continue
        if fault := fault_of({entry.name for entry in entries}):
            yield _closed(folder, fault)
            continue
        for entry in entries:
            path = (*below, entry.name)
            if not every and entry.name.startswith((".", "_")):
                continue
            meant = matched or glob.matches(path)
            # A link to a folder counts only where the glob matches the link itself.
            if entry.is_dir(follow_symlinks=meant and not matched):
                if meant or glob.leads_to(path):
                    ahead.append((entry.path, path, meant))
            elif meant and (every or entry.name.lower().endswith(_ENDINGS)):
                yield from _file(entry)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _file(entry: os.DirEntry[str]) -> Iterator[SourceFile]:
    try:
        status = entry.stat()
    except FileNotFoundError:  # a link to nowhere, or it is gone by now
        return
    except OSError as error:
        yield _unreadable(entry.path, "", error)
        return
    if S_ISREG(status.st_mode):
        yield _source(entry.path, status)


def _source(path: str, status: os.stat_result) -> SourceFile:
    return SourceFile(path, status.st_size, status.st_mtime_ns)


def _unreadable(path: str, what: str, error: OSError) -> SourceFile:
    if is_passing(error) or is_of_machine(error):
        raise error
    return _closed(path, f"{what}{error.strerror}")


def _closed(path: str, fault: str) -> SourceFile:
    return SourceFile(path, 0, 0, fault=fault)
