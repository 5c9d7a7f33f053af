"""An archive that an import changes: a folder here, or a copy here of one in a bucket.

Of a copy, files are away until they are needed.
"""

import fnmatch
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from filecmp import cmp
from pathlib import Path

from kp_batch.files import atomic_write
from kp_batch.storage.store import run_parallel

_DAY = "????-??-??.parquet"


def _stand_here(_: object) -> None:
    """Do nothing: the files of a folder stand where they belong."""


@dataclass(frozen=True)
class Archive:
    """The files of an archive, by their names below it.

    Attributes:
        name: as its user names it.
        folder: on this machine.
        away: the names of files that are not there yet.
        bring: takes the name of such a file, and writes it there.
        store: takes the names of files that were changed or removed here, and returns once they
            are so in the archive: each whole or not at all, in no special order.
    """

    name: str
    folder: Path
    away: set[str] = field(default_factory=set[str])
    bring: Callable[[str], None] = _stand_here
    store: Callable[[Sequence[str]], None] = _stand_here

    def days(self) -> set[str]:
        """The days that have a file."""
        here = (each.name for each in self.folder.glob(_DAY))
        return {Path(each).stem for each in (*here, *fnmatch.filter(self.away, _DAY))}

    def here(self, name: str) -> Path:
        """The path of a file on this machine, where it may be missing.

        Raises:
            OSError: it cannot be fetched.
        """
        if name in self.away:
            self.bring(name)
            self.away.remove(name)
        return self.folder / name

    def fetch(self, names: Iterable[str]) -> None:
        """Have files here that are needed one after another.

        Raises:
            OSError: one cannot be fetched.
        """
        run_parallel(self.here, names)

    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Give the name to write a file under; it takes its place and is stored if it differs."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=True) as written:
            yield written
            if is_same := _is_same(written, path):
                written.unlink()
        if not is_same:
            self.store([name])

    def put(self, name: str, write: Callable[[Path], int]) -> bool:
        """Write a file in the place of what stands here; see `here` and `store`.

        Args:
            name: of the file.
            write: takes the name to write it under, and returns how many rows it has: without any,
                what stands here is removed.

        Returns:
            Whether it is another file than before.
        """
        path = self.folder / name
        with atomic_write(path, durable=True) as written:
            if not write(written):
                written.unlink()
                was_there = path.exists()
                path.unlink(missing_ok=True)
                return was_there
            if is_same := _is_same(written, path):
                written.unlink()
        return not is_same


def _is_same(written: Path, path: Path) -> bool:
    return path.exists() and cmp(written, path, shallow=False)
