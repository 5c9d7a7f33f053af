"""The files of an archive, from the names that a user gives it."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import fsspec

from kp_batch.archive.formats import BY_ENDING, Format, format_of
from kp_batch.errors import ArchiveError


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of an archive: an absolute path, or a URL."""

    path: str
    size: int  # bytes
    mtime_ns: int  # 0 if the file system does not tell

    @property
    def format(self) -> Format:
        """The name of its format, by its ending; Parquet if that is unknown."""
        return format_of(self.path)


def discover(archive: Iterable[str], warehouse: Path | None = None) -> list[SourceFile]:
    """The files of an archive, each once, in the order of their paths' UTF-8 bytes.

    Args:
        archive: files (of any ending), folders and globs (which give their *.parquet, *.pq,
            *.jsonl and *.ndjson files that are not hidden), or URLs of these that fsspec can open.
        warehouse: a folder whose files are left out, wherever it stands.

    Raises:
        ArchiveError: a name gives no file, or a file's name is not UTF-8.
    """
    files: dict[str, SourceFile] = {}
    for name in archive:
        try:
            filesystem, root = _location(name)
            found = [
                _described(filesystem, path)
                for path in _matching(filesystem, root)
                if warehouse is None or not Path(path).is_relative_to(warehouse.absolute())
            ]
        except (OSError, ValueError, ImportError) as error:
            raise ArchiveError(f"cannot look at {name!r}: {error}") from error
        if not found:
            raise ArchiveError(
                f"no Parquet or JSONL file at {name!r}; name a file, a folder, a glob or a URL"
            )
        files |= {file.path: file for file in found}
    return sorted(files.values(), key=lambda file: file.path.encode())


def open_file(path: str) -> Any:
    """Open a file for reading bytes.

    Raises:
        OSError: it cannot be opened.
    """
    if "://" not in path:
        return Path(path).open("rb")
    return cast("Any", fsspec.open(path, "rb")).open()


def content_digest(source: SourceFile) -> str:
    """The name of a file's content: its format, a hyphen, and the SHA-256 of its bytes in hex.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(source.path) as file:
        return f"{source.format.name}-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def described(path: str) -> SourceFile:
    """The file with its present size and time.

    Raises:
        OSError: the file is gone.
    """
    return _described(*_location(path))


def _location(name: str) -> tuple[Any, str]:
    """The file system that a name belongs to, and the path or pattern on it."""
    if "://" in name:
        return cast("tuple[Any, str]", fsspec.url_to_fs(name))
    if not name:
        raise ValueError("the name is empty")
    path = os.path.abspath(Path(name).expanduser())  # noqa: PTH100 (it takes x/.. out)
    return fsspec.filesystem("file"), path


def _matching(filesystem: Any, root: str) -> Iterator[str]:
    if filesystem.isfile(root):
        yield root
        return
    is_folder = filesystem.isdir(root)
    fixed = root if is_folder else re.split(r"[^/]*[*?\[]", root, maxsplit=1)[0]
    for match in [root] if is_folder else filesystem.glob(root):
        for path in filesystem.find(match):
            parts = path.removeprefix(fixed).split("/")
            hidden = any(part.startswith((".", "_")) for part in parts)
            if not hidden and Path(path).suffix.lower() in BY_ENDING and filesystem.isfile(path):
                yield path


def _described(filesystem: Any, path: str) -> SourceFile:
    info = filesystem.info(path)
    if info.get("mtime") is None:
        return SourceFile(filesystem.unstrip_protocol(path), int(info.get("size") or 0), 0)
    path.encode()  # a name that is not UTF-8 cannot stand in a table
    return SourceFile(path, info["size"], Path(path).stat().st_mtime_ns)
