"""The files of an import's sources: which there are, what they are by now, and how to read them."""

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.archive.sources import described, open_file
from kp_batch.errors import ArchiveError
from kp_batch.importers.format import Input
from kp_batch.storage.urls import is_url


def files_of(sources: Sequence[str], archive: Path | None = None) -> list[str]:
    """The files of the sources, but for those of the archive, in the order of their paths.

    Raises:
        ArchiveError: there is no such file or folder.
    """
    found: set[str] = set()
    own = _absolute(archive) if archive else None
    for source in sources:
        path = _absolute(Path(source))
        if is_url(source):
            found.add(source)
        elif path.is_dir():
            files = (each for each in path.rglob("*") if each.is_file())
            found |= {str(each) for each in files if own is None or own not in each.parents}
        elif path.exists():
            found.add(str(path))
        else:
            raise ArchiveError(f"there is no {source!r}; name files or folders of a source")
    return sorted(found)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (it takes x/.. out)


def stamp_of(given: Input) -> str:
    """What a file, and those beside it, are by now."""
    stamps: list[object] = [given.refused and given.refused.message]
    for path in (given.path, *given.beside):
        try:
            stamps.append(astuple(described(path)))
        except OSError as error:
            stamps.append(str(error))
    return json.dumps(stamps)


def content_of(path: str) -> bytes:
    """The content of a small file."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def here(path: str) -> Generator[Path]:
    """The path of a file on this machine: of an object, a copy that has its name."""
    if not is_url(path):
        yield Path(path)
        return
    with TemporaryDirectory(prefix="kp-import-") as folder:
        copy = Path(folder) / path.rpartition("/")[2]
        with open_file(path) as file, copy.open("wb") as written:
            shutil.copyfileobj(file, written)
        yield copy
