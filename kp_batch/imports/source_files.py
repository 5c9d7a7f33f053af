"""The files of an import's sources, their stamps, and how to read them.

The stamp of a file changes with its content.
"""

import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kp_batch import bounds
from kp_batch.archive import buckets, folders
from kp_batch.archive.folders import IS_WAREHOUSE, SourceFile
from kp_batch.archive.sources import absolute, open_file
from kp_batch.conversion import model
from kp_batch.conversion.model import Format, Input, Refused
from kp_batch.errors import ArchiveError
from kp_batch.imports.store import KnownSource
from kp_batch.storage.store import bucket_and_path
from kp_batch.storage.urls import is_url, local_name
from kp_batch.text import encodable


class Probed:
    """Probes the files of a source; known results are reused while the stamp is the same."""

    def __init__(
        self, form: Format, stamps: Mapping[str, str], known: Mapping[str, KnownSource]
    ) -> None:
        self._form, self._stamps, self._known = form, stamps, known
        self.new: dict[str, tuple[str, str]] = {}  # the stamp and the JSON, by path

    def at(self, path: str) -> Any:
        """Probe a file, or return the known result; see `Format.probe`.

        Raises:
            OSError: the file cannot be read.
        """
        stamp, known = self._stamps[path], self._known.get(path, KnownSource(0))
        seen, probed = self.new.get(path, (known.seen, known.probed))
        if seen != stamp or probed is None:
            probed = json.dumps(self._form.probe(path, content_of(path)))
            self.new[path] = stamp, probed
        return json.loads(probed)


_FAULT = '[["'  # the begin of a fault's stamp
_NO_NAME = Refused(["unreadable_file"], "its name is not UTF-8: rename it")


@dataclass(frozen=True)
class Source:
    """The files that an import may read.

    Attributes:
        inputs: inputs by path.
        stamps: stamp of each input with its sidecars, by path.
        sizes: size of each input without its sidecars, in bytes, by path.
        probed: what they were chosen by.
    """

    inputs: Mapping[str, Input]
    stamps: Mapping[str, str]
    sizes: Mapping[str, int]
    probed: Probed


def source_of(form: Format, stamps: Mapping[str, str], probed: Probed) -> Source:
    """Choose among files; a file whose name cannot be encoded is refused."""
    paths = [path for path in stamps if path == encodable(path)]
    unreadable = (Input(path) for path in paths if is_unreadable_folder(path))
    chosen = (*form.inputs(paths, probed.at), *unreadable)
    inputs = {file.path: _refused_if_faulty(file, stamps) for file in chosen}
    odd = (encodable(path) for path in stamps if path != encodable(path))
    inputs |= {path: Input(path, refused=_NO_NAME) for path in odd}
    return Source(
        inputs,
        {path: _input_stamp(file, stamps) for path, file in inputs.items()},
        {path: size_of(stamps.get(path, "")) for path in inputs},
        probed,
    )


def is_unreadable_folder(path: str) -> bool:
    """Whether a path is of a folder that cannot be read, or must not be."""
    return path.endswith("/")


def _refused_if_faulty(file: Input, stamps: Mapping[str, str]) -> Input:
    """Return the input, refused if its stamp is a fault."""
    stamp = stamps.get(file.path, "")
    is_faulty = stamp.startswith(_FAULT)
    return replace(file, refused=Refused(*json.loads(stamp))) if is_faulty else file


def _fault(message: str) -> str:
    """Return the stamp of a file or folder that cannot be read."""
    return json.dumps([["unreadable_file"], message])


def _input_stamp(file: Input, stamps: Mapping[str, str]) -> str:
    # If a file was named by itself, its sidecar is not among the sources' files.
    sidecars = [stamps.get(path) or "".join(_stamps(path).values()) for path in file.sidecars]
    return json.dumps([file.refused and file.refused.message, stamps.get(file.path), *sidecars])


def files_of(sources: Sequence[str], archive: str) -> dict[str, str]:
    """Return the stamps of the sources' files, in the order of their paths.

    They include folders that cannot be read, and tables; see `is_unreadable_folder`.

    Args:
        sources: files, folders and globs, or URLs of these.
        archive: a folder or a URL, whose files are left out.

    Raises:
        ArchiveError: there is no such file or folder, it cannot be searched, or it is a table or a
            warehouse.
        KpBatchError: a URL contains a secret, or cannot be parsed.
        OSError: a source cannot be read.
    """
    stamps: dict[str, str] = {}
    own = archive.rstrip("/") if is_url(archive) else os.path.realpath(absolute(archive))
    for source in sources:
        try:
            files = _stamps(source, own)
        except ValueError as error:  # it is not a pattern
            raise ArchiveError(
                f"cannot read {source!r}: {error}; name files or folders of a source"
            ) from error
        if not files:
            raise ArchiveError(f"there is no file at {source!r}; name files or folders of a source")
        stamps |= files
    return dict(sorted(stamps.items()))


def _stamps(source: str, own: str = "") -> dict[str, str]:
    """Return the stamps of a source's files, without the archive's own files; see `files_of`."""
    files = _files(source, own)
    return dict(_path_and_stamp(file) for file in files if file.fault != IS_WAREHOUSE)


def _files(source: str, own: str) -> Iterable[SourceFile]:
    if is_url(source):
        files = buckets.list_files(source, every=True)
        return (file for file in files if not file.path.startswith(f"{own}/"))
    if not source:
        raise ValueError("the name is empty")
    path = absolute(local_name(source))
    # A source may be in the archive itself, by links.
    is_own = own and Path(os.path.realpath(path)).is_relative_to(own)
    return () if is_own else folders.list_files(path, own, every=True)


def _path_and_stamp(file: SourceFile) -> tuple[str, str]:
    if not file.fault:
        # An ETag depends on the content alone, not on the time of writing.
        version = file.version if is_url(file.path) else f"{file.mtime_ns} {file.version}"
        return file.path, f"{file.size} {version or file.mtime_ns}"
    is_folder = is_url(file.path) or os.path.isdir(file.path)  # noqa: PTH112 (even without access)
    return f"{file.path}/" if is_folder else file.path, _fault(file.fault)


def size_of(stamp: str) -> int:
    """Return the size in a file's stamp; 0 if the file cannot be read."""
    size, _, _ = stamp.partition(" ")
    return int(size) if size.isdecimal() else 0


def content_of(path: str) -> bytes:
    """Return the content of a small file, or the beginning of a file that is too large."""
    with open_file(path) as file:
        return file.read(bounds.LINE_BYTES + 1)


def head_of(path: str, stamp: str) -> bytes:
    """Return the first 64 kB of a file with this stamp, which show its format."""
    size = min(size_of(stamp), model.HEAD_BYTES)
    if size and is_url(path):
        bucket, name = bucket_and_path(path)
        return bucket.beginning(name, size)
    with open_file(path) as file:
        return file.read(size)


@contextmanager
def local_path(path: str) -> Generator[Path]:
    """Yield the path of a file on this machine; an object is copied, with its folders' names."""
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
