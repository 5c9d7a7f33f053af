"""The files of an import's sources: which there are, what they are by now, and how to read them.

A database stands among them, as one file of which only what is new is read again.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.archive import buckets
from kp_batch.archive.sources import absolute, open_file
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.importers.draft import Refused, UnreadableError
from kp_batch.importers.format import Format, Input
from kp_batch.importers.knowledgepulse_postgres import state_of
from kp_batch.importers.looks import Looks
from kp_batch.storage.store import bucket_and_path
from kp_batch.storage.urls import check_database, is_database, is_url
from kp_batch.text import encodable

_NO_NAME = Refused(["unreadable_file"], "its name is no UTF-8: rename it")


@dataclass(frozen=True)
class Source:
    """What an import may read.

    Attributes:
        inputs: by their paths.
        stamps: what each of them is by now, with those beside it; likewise.
        looks: by which they were chosen.
    """

    inputs: Mapping[str, Input]
    stamps: Mapping[str, str]
    looks: Looks


def source_of(form: Format, stamps: Mapping[str, str], looks: Looks) -> Source:
    """Choose among files; those whose names cannot be written are refused."""
    named = [path for path in stamps if path == encodable(path)]
    odd = [encodable(path) for path in stamps if path != encodable(path)]
    chosen = (_if_asked(each, stamps) for each in form.inputs(named, looks.at))
    inputs = [*chosen, *(Input(path, refused=_NO_NAME) for path in odd)]
    return Source(
        {each.path: each for each in inputs},
        {each.path: _with_beside(each, stamps) for each in inputs},
        looks,
    )


def _if_asked(given: Input, stamps: Mapping[str, str]) -> Input:
    """An input; a database that could not be asked is refused: nobody knows what was read of it."""
    told = json.loads(stamps[given.path]) if is_database(given.path) else {}
    return replace(given, refused=Refused(*told)) if isinstance(told, list) else given


def _with_beside(given: Input, stamps: Mapping[str, str]) -> str:
    if is_database(given.path):
        return stamps[given.path]
    # A file beside one that was named by itself is none of those of the sources.
    beside = [stamps.get(path) or _stamp(Path(path)) for path in given.beside]
    return json.dumps([given.refused and given.refused.message, stamps.get(given.path), *beside])


def files_of(sources: Sequence[str], archive: str) -> dict[str, str]:
    """The files of the sources, in the order of their paths, each with what it is by now.

    Args:
        sources: files and folders, or URLs of these and globs, and of databases.
        archive: a folder, or its URL, whose files are left out.

    Raises:
        ArchiveError: there is no such file or folder.
        KpBatchError: the URL of a database holds a password.
        OSError: a bucket cannot be looked at.
    """
    found: dict[str, str] = {}
    own = f"{archive.rstrip('/') if is_url(archive) else absolute(archive)}/"
    for source in sources:
        files = _stamps(source)
        if not files:
            raise ArchiveError(f"there is no file at {source!r}; name files or folders of a source")
        found |= {path: stamp for path, stamp in files.items() if not path.startswith(own)}
    return dict(sorted(found.items()))


def _stamps(source: str) -> dict[str, str]:
    if is_database(source):
        return _database(source)
    return _objects(source) if is_url(source) else _files(source)


def _objects(url: str) -> dict[str, str]:
    """By one listing; an ETag tells of a content, whenever it was written."""
    found = buckets.everything(url)
    return {each.path: f"{each.size} {each.etag or each.mtime_ns}" for each in found}


def _files(name: str) -> dict[str, str]:
    path = Path(absolute(name))
    found = (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    return {str(each): _stamp(each) for each in found if each.exists()}


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return str(error)
    return f"{status.st_size} {status.st_mtime_ns}"


def _database(url: str) -> dict[str, str]:
    check_database(url)
    try:
        until, state = state_of(url)
    except UnreadableError as error:
        return {url: json.dumps([[error.code], str(error)])}
    return {url: json.dumps({"until": until, "state": state})}


def as_known(form: Format, path: str, stamp: str) -> Input | None:
    """A file that may be none of the sources, if it still is what it was when it was read."""
    try:
        files = _stamps(path)
        found = source_of(form, files, Looks(form, files, content_of))
    except (KpBatchError, OSError):
        return None
    return found.inputs.get(path) if found.stamps.get(path) == stamp else None


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
