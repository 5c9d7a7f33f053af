"""What the user calls the archive, as a list of files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kp_batch.errors import ArchiveError

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of an archive: an absolute path, or a URL."""

    path: str
    size: int  # bytes
    mtime_ns: int  # 0 where the file system does not tell

    @property
    def format(self) -> str:
        """Parquet or jsonl; a file without a known ending is taken for Parquet."""
        return _FORMATS.get(Path(self.path).suffix.lower(), "parquet")


def discover(archive: Iterable[str]) -> list[SourceFile]:
    """The files of an archive, each once, in the order of their paths' UTF-8 bytes.

    Args:
        archive: files (of any ending), folders and globs (of them *.parquet, *.pq, *.jsonl and
            *.ndjson, without what is hidden), or URLs of what fsspec can open.

    Raises:
        ArchiveError: one of them names nothing.
    """
    files: dict[str, SourceFile] = {}
    for name in archive:
        found = list(_remote(name) if "://" in name else _local(name))
        if not found:
            raise ArchiveError(
                f"no Parquet or JSONL file at {name}; name a file, a folder, a glob or a URL"
            )
        files |= {file.path: file for file in found}
    return sorted(files.values(), key=lambda file: file.path.encode())


def open_file(path: str) -> Any:
    """The file, opened for reading bytes.

    Raises:
        OSError: it cannot be opened.
    """
    if "://" not in path:
        return Path(path).open("rb")
    import fsspec

    return cast("Any", fsspec.open(path, "rb")).open()


def _local(name: str) -> Iterator[SourceFile]:
    path = Path(name).expanduser().absolute()
    if path.is_dir():
        yield from (_described(file) for file in _below(path))
    elif path.exists():
        yield _described(path)
    else:
        yield from _globbed(name)


def _globbed(pattern: str) -> Iterator[SourceFile]:
    from glob import glob

    for match in glob(pattern, recursive=True):  # noqa: PTH207 (Path.glob refuses absolute ones)
        path = Path(match).absolute()
        if path.is_dir():
            yield from (_described(file) for file in _below(path))
        elif path.suffix.lower() in _FORMATS:
            yield _described(path)


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.suffix.lower() in _FORMATS and not hidden and path.is_file():
            yield path


def _described(path: Path) -> SourceFile:
    status = path.stat()
    return SourceFile(str(path), status.st_size, status.st_mtime_ns)


def _remote(url: str) -> Iterator[SourceFile]:
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(url)
        if any(sign in root for sign in "*?["):
            found = filesystem.glob(root)
        else:
            found = filesystem.find(root) if filesystem.isdir(root) else [root]
        for path in found:
            if found == [root] or Path(path).suffix.lower() in _FORMATS:
                size = filesystem.info(path).get("size") or 0
                yield SourceFile(filesystem.unstrip_protocol(path), int(size), 0)
    except (OSError, ValueError, ImportError) as error:
        raise ArchiveError(f"cannot look at {url}: {error}") from error
