"""A model of a disk, which tells what a power cut would leave of a folder.

Of a file only the content is sure that was there when it was synced, and of a folder the names. The
rest may be lost; what was renamed or removed may be so already on the disk.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from threading import Lock
from unittest.mock import patch

_FSYNC = os.fsync

Image = dict[Path, bytes]  # the files


@dataclass
class Disk:
    """What is on the disk of a folder, and of the names in the folder around it."""

    root: Path
    syncs: int = 0
    contents: dict[int, bytes] = field(default_factory=dict[int, bytes])  # by inode
    names: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
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

    def after_power_cut(self) -> Image:
        """What is left of the folder, if nothing else has reached the disk by chance."""
        inode = self.names[self.root.parent.stat().st_ino].get(self.root.name)
        return {} if inode is None else dict(self._below(self.root, inode))

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
