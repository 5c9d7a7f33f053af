"""The files of an import's sources: which there are, what they are by now, and how to read them.

A database stands among them, as one file of which only what is new is read again.
"""

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.archive.sources import described, open_file
from kp_batch.errors import ArchiveError
from kp_batch.importers.draft import UnreadableError
from kp_batch.importers.format import Input
from kp_batch.importers.knowledgepulse_postgres import state_of
from kp_batch.storage.urls import check_database, is_database, is_url


def files_of(sources: Sequence[str], archive: Path | None = None) -> list[str]:
    """The files of the sources, but for those of the archive, in the order of their paths.

    Raises:
        ArchiveError: there is no such file or folder.
        KpBatchError: the URL of a database holds a password.
    """
    found: set[str] = set()
    own = _absolute(archive) if archive else None
    for source in sources:
        path = _absolute(Path(source))
        if is_database(source):
            check_database(source)
            found.add(source)
        elif is_url(source):
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
    if is_database(given.path):
        return _stamp_of_database(given.path)
    stamps: list[object] = [given.refused and given.refused.message]
    for path in (given.path, *given.beside):
        try:
            stamps.append(astuple(described(path)))
        except OSError as error:
            stamps.append(str(error))
    return json.dumps(stamps)


def _stamp_of_database(url: str) -> str:
    try:
        until, state = state_of(url)
    except UnreadableError as error:
        return json.dumps([str(error)])
    return json.dumps({"until": until, "state": state})


def newer(given: Input, stamp: str) -> Input:
    """A file; of a database, what is new since it had a stamp."""
    told = json.loads(stamp or "null")
    return replace(given, since=told["until"]) if isinstance(told, dict) else given


def unread(given: Input) -> str:
    """The stamp of what has to be read again: of a database, from where `newer` begins."""
    return json.dumps({"until": given.since}) if given.since else ""


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
