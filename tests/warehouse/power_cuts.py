"""A model of a disk, which shows what a power cut would leave of a folder.

Of a file only the content is sure that was there when it was synced, and of a folder the names. The
rest may be lost. Renames and removals may be on the disk before their folder is synced, in any
order: a later one without an earlier one.
"""

import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from threading import Lock
from unittest.mock import patch

_FSYNC = os.fsync

Image = dict[Path, bytes]  # the files
Rename = tuple[int, str, int]  # the inode of a folder, a new name in it, and its file's inode


@dataclass
class Disk:
    """What is on the disk of a folder, and of the names in the folder around it."""

    root: Path
    syncs: int = 0
    contents: dict[int, bytes] = field(default_factory=dict[int, bytes])  # by inode
    names: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    renames: list[Rename] = field(default_factory=list[Rename])  # that are not synced yet
    fds: list[int] = field(default_factory=list[int])  # open: no inode is another's later

    def keep(self, path: Path | int) -> None:
        """Write a file's content, or a folder's names, onto the disk."""
        self.fds.append(os.open(path, os.O_RDONLY) if isinstance(path, Path) else os.dup(path))
        status = os.fstat(self.fds[-1])
        if stat.S_ISDIR(status.st_mode):
            folder = self.fds[-1]
            with os.scandir(folder) as entries:
                found = {each: each.inode() for each in entries}
            self.names[status.st_ino] = {each.name: inode for each, inode in found.items()}
            self.renames = [each for each in self.renames if each[0] != status.st_ino]
            for each, inode in found.items():
                if each.is_dir() and inode not in self.names:  # it may be removed later
                    self.fds.append(os.open(each.name, os.O_RDONLY, dir_fd=folder))
                    self.names[inode] = {}
        else:
            self.contents[status.st_ino] = Path(f"/proc/self/fd/{self.fds[-1]}").read_bytes()

    def keep_all(self) -> None:
        """Write all of the folder onto the disk."""
        for path in (self.root.parent, self.root, *self.root.rglob("*")):
            if path.is_dir() or path.is_file():
                self.keep(path)

    def after_power_cut(self, early: Sequence[Rename] = ()) -> Image:
        """What is left of the folder, if only these renames have reached the disk by chance."""
        before = {folder: dict(self.names.get(folder, {})) for folder, _, _ in early}
        for folder, name, inode in early:
            if folder in self.names:  # otherwise the folder itself is lost
                self.names[folder][name] = inode
        inode = self.names[self.root.parent.stat().st_ino].get(self.root.name)
        left = {} if inode is None else dict(self._below(self.root, inode))
        self.names |= {folder: names for folder, names in before.items() if folder in self.names}
        return left

    def after_rename(self, target: Path) -> list[Image]:
        """What may be left after a rename: it alone has reached the disk, or all that are new."""
        self.renames.append((target.parent.stat().st_ino, target.name, target.stat().st_ino))
        return [self.after_power_cut(self.renames[-1:]), self.after_power_cut(self.renames)]

    def _below(self, path: Path, inode: int) -> Generator[tuple[Path, bytes]]:
        for name, child in self.names.get(inode, {}).items():
            if child in self.names or (path / name).is_dir():
                yield from self._below(path / name, child)
            else:
                yield path / name, self.contents.get(child, b"")


def write_image(root: Path, image: Image) -> None:
    """Replace a folder by what a power cut left of it."""
    rmtree(root)
    for path, content in image.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextmanager
def disk_of(root: Path) -> Generator[Disk]:
    """Follow what the calls of this process bring onto the disk of a folder."""
    disk = Disk(root)
    disk.keep_all()
    lock = Lock()

    def fsync(descriptor: int) -> None:
        with lock:
            disk.syncs += 1
            disk.keep(descriptor)
        _FSYNC(descriptor)

    try:
        with patch.object(os, "fsync", fsync):
            yield disk
    finally:
        for descriptor in disk.fds:
            os.close(descriptor)
