"""The files of an archive, from the names that a user gives it."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from kp_batch.archive import folders
from kp_batch.archive.folders import DELTA_LOG, IS_WAREHOUSE, fault_of
from kp_batch.archive.formats import BY_ENDING
from kp_batch.archive.globs import Glob
from kp_batch.archive.source_file import SourceFile, folders_above
from kp_batch.errors import ArchiveError, is_passing
from kp_batch.text import one_line


def discover(
    archive: Iterable[str],
    warehouse: Path | None = None,
    left_out: Callable[[str], None] = lambda _: None,
) -> list[SourceFile]:
    """The files of an archive, each once, in the order of their paths' UTF-8 bytes.

    Args:
        archive: files (of any ending), folders and globs (which give their *.parquet, *.pq,
            *.jsonl and *.ndjson files that are not hidden), or URLs of these that fsspec can open.
        warehouse: a folder whose files are left out, wherever it stands.
        left_out: takes the path of each other warehouse inside; its files are left out as well.

    Raises:
        ArchiveError: a name gives no file, cannot be looked at, is a warehouse or a Delta table, or
            a file's name is not UTF-8.
        Exception: the disk or the network failed; another try may succeed, see `is_passing`.
    """
    own = os.path.realpath(warehouse) if warehouse else None
    files: dict[str, SourceFile] = {}
    for name in archive:
        try:
            found = list(_found(name, own))
        except ArchiveError:
            raise
        except Exception as error:  # file systems raise errors of many kinds
            if is_passing(error):
                raise
            raise ArchiveError(f"cannot look at {name!r}: {_reason(error)}") from error
        if not found:
            raise ArchiveError(
                f"no Parquet or JSONL file at {name!r}; name a file, a folder, a glob or a URL"
            )
        files |= {file.path: file for file in found}
    for path in [path for path, file in files.items() if file.fault == IS_WAREHOUSE]:
        left_out(path)
        del files[path]
    return sorted(files.values(), key=lambda file: file.path.encode())


def open_file(path: str) -> Any:
    """Open a file for reading bytes.

    Raises:
        OSError: it cannot be opened.
    """
    if "://" not in path:
        return Path(path).open("rb")
    import fsspec

    return cast("Any", fsspec.open(path, "rb")).open()


def content_digest(source: SourceFile) -> str:
    """The name of a file's content: its format, a hyphen, and the SHA-256 of its bytes in hex.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(source.path) as file:
        return f"{source.format.name}-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def holds(source: SourceFile, file_id: str) -> bool:
    """Whether a file has the content that a file_id names, whatever version its facts have.

    Raises:
        OSError: it cannot be read.
    """
    return file_id.startswith(f"{content_digest(source)}-")


def described(path: str) -> SourceFile:
    """The file with its present size and time.

    Raises:
        OSError: the file is gone.
    """
    if "://" not in path:
        return folders.described(path)
    return _described(*_file_system(path))


def _found(name: str, own: str | None) -> Iterator[SourceFile]:
    """The files of one name."""
    if not name:
        raise ValueError("the name is empty")
    if "://" not in name:
        path = os.path.abspath(Path(name).expanduser())  # noqa: PTH100 (it takes x/.. out)
        return folders.look(path, own)
    filesystem, path = _file_system(name)
    return folders.look(path, own) if "file" in filesystem.protocol else _remote(filesystem, path)


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    import fsspec  # with all of asyncio, which no folder of this machine needs

    return cast("tuple[Any, str]", fsspec.url_to_fs(url))


def _remote(filesystem: Any, root: str) -> Iterator[SourceFile]:
    """As `folders.look`, as far as the list of all files tells."""
    if filesystem.isfile(root):
        yield _described(filesystem, root)
        return
    is_folder = filesystem.isdir(root)
    glob = None if is_folder else Glob.of(root)
    fixed = glob.folder if glob else root
    for match in [root] if is_folder else filesystem.glob(root):
        paths = filesystem.find(match)
        closed = _closed(paths)
        if root in closed:
            raise ArchiveError(f"cannot look into {root!r}: {closed[root]}")
        for folder, fault in closed.items():
            yield SourceFile(filesystem.unstrip_protocol(folder), 0, 0, fault)
        for path in paths:
            parts = path.removeprefix(fixed).split("/")
            hidden = any(part.startswith((".", "_")) for part in parts)
            inside = not closed.keys().isdisjoint(folders_above(path))
            known = Path(path).suffix.lower() in BY_ENDING
            if known and not hidden and not inside and filesystem.isfile(path):
                yield _described(filesystem, path)


def _closed(paths: Iterable[str]) -> dict[str, str]:
    """The outermost folders that must not be read, and why."""
    found: dict[str, str] = {}
    for path in paths:
        folder, has_log, _ = path.partition(f"/{DELTA_LOG}/")
        parent, _, name = path.rpartition("/")
        if fault := fault_of({DELTA_LOG}) if has_log else fault_of({name}):
            found.setdefault(folder if has_log else parent, fault)
    closed: dict[str, str] = {}
    for folder in sorted(found):
        if closed.keys().isdisjoint(folders_above(folder)):
            closed[folder] = found[folder]
    return closed


def _described(filesystem: Any, path: str) -> SourceFile:
    size = filesystem.info(path).get("size")
    return SourceFile(filesystem.unstrip_protocol(path), int(size or 0), 0)


def _reason(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(reason)
