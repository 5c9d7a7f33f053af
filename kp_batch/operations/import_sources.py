"""The files of an import's sources: which there are, what they are by now, and how to read them."""

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.archive import buckets
from kp_batch.archive.sources import open_file
from kp_batch.errors import ArchiveError
from kp_batch.importers.format import Input
from kp_batch.storage.store import bucket_and_path
from kp_batch.storage.urls import is_url

Stamp = list[str | int]  # of a file: its size, and when it was written or its ETag


def files_of(sources: Sequence[str], archive: str) -> dict[str, Stamp]:
    """The files of the sources, in the order of their paths, and what each of them is by now.

    Args:
        sources: files and folders, or URLs of these and globs.
        archive: a folder, or its URL, whose files are left out.

    Raises:
        ArchiveError: there is no such file or folder.
        OSError: a bucket cannot be looked at.
    """
    found: dict[str, Stamp] = {}
    own = f"{archive.rstrip('/') if is_url(archive) else _absolute(archive)}/"
    for source in sources:
        files = _objects(source) if is_url(source) else _files(source)
        if not files:
            raise ArchiveError(f"there is no file at {source!r}; name files or folders of a source")
        found |= {path: stamp for path, stamp in files.items() if not path.startswith(own)}
    return dict(sorted(found.items()))


def _objects(url: str) -> dict[str, Stamp]:
    """By one listing; an ETag tells of a content, whenever it was written."""
    return {each.path: [each.size, each.etag or each.mtime_ns] for each in buckets.everything(url)}


def _files(name: str) -> dict[str, Stamp]:
    path = Path(_absolute(name))
    found = (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    return {str(each): _stamp(each) for each in found if each.exists()}


def _absolute(name: str) -> str:
    return os.path.abspath(Path(name).expanduser())  # noqa: PTH100 (it takes x/.. out)


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError as error:
        return [str(error)]
    return [status.st_size, status.st_mtime_ns]


def stamp_of(given: Input, files: Mapping[str, Stamp]) -> str:
    """What a file, and those beside it, are by now."""
    stamps = [files.get(path) for path in (given.path, *given.beside)]
    return json.dumps([given.refused and given.refused.message, *stamps])


def content_of(path: str) -> bytes:
    """The content of a small file."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def here(path: str) -> Generator[Path]:
    """The path of a file on this machine: of an object, a copy in folders of the same names."""
    if not is_url(path):
        yield Path(path)
        return
    with TemporaryDirectory(prefix="kp-import-") as folder:
        copy = Path(folder, *path.split("/")[2:])
        copy.parent.mkdir(parents=True)
        bucket, name = bucket_and_path(path)
        with copy.open("wb") as written:
            written.writelines(bucket.pieces(name))
        yield copy
