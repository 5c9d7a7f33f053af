"""The files of an import's sources: which there are, what they are by now, and how to read them.

A database stands among them, as one file of which only what is new is read again.
"""

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kp_batch import limits
from kp_batch.archive import buckets, folders
from kp_batch.archive.folders import IS_WAREHOUSE, SourceFile
from kp_batch.archive.sources import absolute, open_file
from kp_batch.errors import ArchiveError, UnreadableError
from kp_batch.imports.formats.knowledgepulse import state_of
from kp_batch.imports.model import Format, Input, Rejected
from kp_batch.imports.state import KnownSource
from kp_batch.storage.store import bucket_and_path
from kp_batch.storage.urls import check_database, is_database, is_url, local_name
from kp_batch.text import encodable


class Sniffed:
    """What the files of a source tell, to choose among them; see `Format.sniff`.

    Args:
        form: the format.
        stamps: what the files are by now.
        known: what they were, and told, when they were looked into before.
    """

    def __init__(
        self, form: Format, stamps: Mapping[str, str], known: Mapping[str, KnownSource]
    ) -> None:
        self._form, self._stamps, self._known = form, stamps, known
        self.anew: dict[str, tuple[str, str]] = {}  # by path: what it is, and told, by now

    def at(self, path: str) -> Any:
        """What a file tells as it is by now.

        Raises:
            OSError: it cannot be read.
        """
        if path in self.anew:
            return json.loads(self.anew[path][1])
        stamp, before = self._stamps[path], self._known.get(path, KnownSource())
        if before.seen == stamp and before.sniffed is not None:
            return json.loads(before.sniffed)
        told = json.dumps(self._form.sniff(path, content_of(path)))
        self.anew[path] = stamp, told
        return json.loads(told)


_FAULT = '[["'  # as stamps of faults begin
_NO_NAME = Rejected(["unreadable_file"], "its name is no UTF-8: rename it")


@dataclass(frozen=True)
class Source:
    """What an import may read.

    Attributes:
        inputs: by their paths.
        stamps: what each of them is by now, with those beside it; likewise.
        sizes: how many bytes each of them has, without those beside it; likewise.
        sniffed: by which they were chosen.
    """

    inputs: Mapping[str, Input]
    stamps: Mapping[str, str]
    sizes: Mapping[str, int]
    sniffed: Sniffed


def source_of(form: Format, stamps: Mapping[str, str], sniffed: Sniffed) -> Source:
    """Choose among files; those whose names cannot be written are refused."""
    named = [path for path in stamps if path == encodable(path)]
    odd = [encodable(path) for path in stamps if path != encodable(path)]
    closed = (Input(path) for path in named if is_closed(path))
    chosen = (_if_read(each, stamps) for each in (*form.inputs(named, sniffed.at), *closed))
    inputs = [*chosen, *(Input(path, refused=_NO_NAME) for path in odd)]
    return Source(
        {each.path: each for each in inputs},
        {each.path: _with_beside(each, stamps) for each in inputs},
        {each.path: _size(stamps.get(each.path, "")) for each in inputs},
        sniffed,
    )


def is_closed(path: str) -> bool:
    """Whether a path is that of a folder which cannot be read, or must not be."""
    return path.endswith("/")


def _if_read(given: Input, stamps: Mapping[str, str]) -> Input:
    """An input; one whose stamp is a fault is refused."""
    stamp = stamps.get(given.path, "")
    return (
        replace(given, refused=Rejected(*json.loads(stamp))) if stamp.startswith(_FAULT) else given
    )


def _fault(message: str, code: str = "unreadable_file") -> str:
    """The stamp of what cannot be looked at: of a database, nobody knows what was read of it."""
    return json.dumps([[code], message])


def _with_beside(given: Input, stamps: Mapping[str, str]) -> str:
    if is_database(given.path):
        return stamps[given.path]
    # A file beside one that was named by itself is none of those of the sources.
    beside = [stamps.get(path) or "".join(_stamps(path).values()) for path in given.sidecars]
    return json.dumps([given.refused and given.refused.message, stamps.get(given.path), *beside])


def files_of(sources: Sequence[str], archive: str) -> dict[str, str]:
    """The files of the sources, in the order of their paths, each with what it is by now.

    A folder that cannot be read is one of them, and so is a Delta table; see `is_closed`.

    Args:
        sources: files and folders, or URLs of these and globs, and of databases.
        archive: a folder, or its URL, whose files are left out.

    Raises:
        ArchiveError: there is no such file or folder, or it is a Delta table or a warehouse.
        KpBatchError: the URL of a database holds a password.
        OSError: a source cannot be looked at.
    """
    found: dict[str, str] = {}
    own = archive.rstrip("/") if is_url(archive) else os.path.realpath(absolute(archive))
    for source in sources:
        files = _stamps(source, own)
        if not files:
            raise ArchiveError(f"there is no file at {source!r}; name files or folders of a source")
        found |= files
    return dict(sorted(found.items()))


def _stamps(source: str, own: str = "") -> dict[str, str]:
    """The stamps of a source's files, but for those of the archive itself; see `files_of`."""
    if is_database(source):
        return _database(source)
    looked = _objects(source, own) if is_url(source) else _files(absolute(local_name(source)), own)
    found = (each for each in looked if each.fault != IS_WAREHOUSE)
    return dict(_fault_of(each) if each.fault else (each.path, _stamp(each)) for each in found)


def _objects(url: str, own: str) -> Iterator[SourceFile]:
    return (file for file in buckets.list_all_files(url) if not file.path.startswith(f"{own}/"))


def _files(path: str, own: str) -> Iterator[SourceFile]:
    # Also one that is named itself, through whatever links.
    is_own = own and Path(os.path.realpath(path)).is_relative_to(own)
    return iter(()) if is_own else folders.list_all_files(path, own)


def _stamp(file: SourceFile) -> str:
    """By an ETag, which tells of a content, whenever it was written; else by the time."""
    return f"{file.size} {file.etag or file.mtime_ns}"


def _size(stamp: str) -> int:
    """The size of what has a stamp; 0 of databases, and of what cannot be looked at."""
    size, _, _ = stamp.partition(" ")
    return int(size) if size.isdecimal() else 0


def _fault_of(file: SourceFile) -> tuple[str, str]:
    is_folder = is_url(file.path) or os.path.isdir(file.path)  # noqa: PTH112 (of whatever denies it)
    return f"{file.path}/" if is_folder else file.path, _fault(file.fault)


def _database(url: str) -> dict[str, str]:
    check_database(url)
    try:
        until, state = state_of(url)
    except UnreadableError as error:
        return {url: _fault(str(error), error.faults[0].code)}
    return {url: json.dumps({"until": until, "state": state})}


def newer(given: Input, stamp: str) -> Input:
    """A file; of a database, what is new since it had a stamp."""
    told = json.loads(stamp or "null")
    return replace(given, cursor=told["until"]) if isinstance(told, dict) else given


def unread(given: Input) -> str:
    """The stamp of what has to be read again: of a database, from where `newer` begins."""
    return json.dumps({"until": given.cursor}) if given.cursor else ""


def content_of(path: str) -> bytes:
    """The content of a small file; of one that is too large, the beginning."""
    with open_file(path) as file:
        return file.read(limits.LINE_BYTES + 1)


@contextmanager
def local_path(path: str) -> Generator[Path]:
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
