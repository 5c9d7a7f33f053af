"""The files of a working copy, and what is known of the objects that they are copies of."""

import json
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from uuid import uuid4

from kp_batch.away import FETCHED_NS, NOTE, files_below, is_note, leave_away, note_of
from kp_batch.contracts import TABLES
from kp_batch.files import HALF_WRITTEN, atomic_write
from kp_batch.storage.objects import Object
from kp_batch.storage.store import Store
from kp_batch.warehouse.layout import Layout

LOG = "/_delta_log/"
LAST_CHECKPOINT = "_last_checkpoint"
_ROOT = Layout(Path())
_VECTORS = _ROOT.all_vectors.name
_ALONE = tuple(each.name for each in (_ROOT.manifest, _ROOT.report, _ROOT.forgetting))
_ENDINGS = (".parquet", ".json", ".npy", f"/{LAST_CHECKPOINT}")

_FETCHED_S = 3_600  # until then, a reader may be fetching a vector
Known = list[str | int]  # of an object: its ETag, and its file's size and time


@dataclass
class CopiedFiles:
    """What is known is kept in `bucket.json`; a path is relative, and the object's."""

    folder: Path
    copy_id: str = field(default_factory=lambda: uuid4().hex)
    known: dict[str, Known] = field(default_factory=dict[str, Known])  # by the paths
    was_published: bool = False  # whether the bucket ever had a manifest

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The files in a folder, as far as they are known."""
        files = cls(folder)
        with suppress(OSError, ValueError, TypeError):
            told = json.loads(files._state.read_text("utf-8"))
            files.copy_id, files.known, files.was_published = told
        return files

    @property
    def _state(self) -> Path:
        return self.folder / "bucket.json"

    @property
    def manifest(self) -> str:
        """The path of the manifest."""
        return _ROOT.manifest.name

    def keep(self) -> None:
        """Keep what is known."""
        with atomic_write(self._state) as written:
            state = [self.copy_id, self.known, self.was_published]
            written.write_text(json.dumps(state), "utf-8")

    def fetch(self, store: Store, found: Object) -> None:
        """Copy an object; of vectors, leave a note."""
        file = self.folder / found.path
        if _stays_away(found.path):
            leave_away(file)
            self.known[found.path] = [found.etag, found.size, FETCHED_NS]
            return
        # So that a vector is never taken for work of this machine.
        mtime_ns = FETCHED_NS if _is_of_vectors(found.path) else None
        store.download(found.path, file, mtime_ns)
        self.note(found.path, found.etag)

    def place(self, found: Object, content: bytes) -> None:
        """Write what an object was just read as."""
        with atomic_write(self.folder / found.path) as written:
            written.write_bytes(content)
        self.note(found.path, found.etag)

    def note(self, path: str, etag: str) -> None:
        """Note that a file is as the bucket has it."""
        status = (self.folder / path).stat()
        self.known[path] = [etag, status.st_size, status.st_mtime_ns]

    def has(self, found: Object) -> bool:
        """Whether a file, or a note, is the copy of an object as it is now."""
        known = self.known.get(found.path)
        same = known is not None and known[0] == found.etag
        return same and self.stands(found.path) and not self.is_new(found.path)

    def stands(self, path: str) -> bool:
        """Whether a file is there, or a note of it."""
        file = self.folder / path
        return file.exists() or note_of(file).exists()

    def gone(self, removed: Iterable[Path]) -> list[str]:
        """The objects of files, or notes, that were removed and did not come back."""
        own = (file for file in removed if file.is_relative_to(self.folder))  # threads tell theirs
        paths = {file.relative_to(self.folder).as_posix().removesuffix(NOTE) for file in own}
        return sorted(path for path in paths if path in self.known and not self.stands(path))

    def is_new(self, path: str) -> bool:
        """Whether a file is not as the bucket has it."""
        try:
            status = (self.folder / path).stat()
        except FileNotFoundError:  # it is away
            return False
        known = self.known.get(path)
        return known is None or known[1:] != [status.st_size, status.st_mtime_ns]

    def new(self) -> list[str]:
        """The files that are to be stored, but for the manifest."""
        paths = (path for path in self._here() if not is_note(self.folder / path))
        return [path for path in paths if path != self.manifest and self.is_new(path)]

    def leave_only(self, found: Collection[str], *, own_vectors: bool) -> None:
        """Remove the files that the bucket has not.

        Args:
            found: what the bucket has.
            own_vectors: whether those stay that this machine has made, and never stored.
        """
        here = {path.removesuffix(NOTE) for path in self._here()}
        for path in {*self.known, *here}.difference(found):
            if own_vectors and path not in self.known and self._is_made_here(path):
                continue
            for each in (self.folder / path, note_of(self.folder / path)):
                each.unlink(missing_ok=True)
            self.known.pop(path, None)
        self._clear()

    def _clear(self) -> None:
        """Remove what killed commands left here: it may hold what was forgotten meanwhile."""
        shutil.rmtree(Layout(self.folder).all_staging, ignore_errors=True)
        for top in (*TABLES, _VECTORS):
            for file in files_below(self.folder / top):
                with suppress(FileNotFoundError):
                    is_old = file.stat().st_mtime < time.time() - _FETCHED_S
                    if is_old and file.suffix == HALF_WRITTEN:
                        file.unlink()

    def _is_made_here(self, path: str) -> bool:
        file = self.folder / path
        with suppress(FileNotFoundError):
            return _is_of_vectors(path) and file.stat().st_mtime_ns != FETCHED_NS
        return False

    def _here(self) -> Iterator[str]:
        """The paths of the files, and the notes, that belong into the bucket."""
        for top in (*TABLES, _VECTORS):
            for file in files_below(self.folder / top):
                path = file.relative_to(self.folder).as_posix()
                if is_shared(path) or is_note(file):
                    yield path
        for name in _ALONE:
            if (self.folder / name).exists():
                yield name


def is_shared(path: str) -> bool:
    """Whether an object is a file of a warehouse; what else stands below its URL is left alone."""
    top, *below = path.split("/")
    in_folder = top in {*TABLES, _VECTORS} and path.endswith(_ENDINGS) and ".." not in below
    return path in _ALONE or in_folder


def _is_of_vectors(path: str) -> bool:
    return path.startswith(f"{_VECTORS}/")


def _stays_away(path: str) -> bool:
    return _is_of_vectors(path) and path.endswith(".vectors.npy")
