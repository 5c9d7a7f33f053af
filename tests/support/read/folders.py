"""What is in a folder."""

import hashlib
import shutil
from pathlib import Path


def keep(folder: Path) -> None:
    """Keep a folder that takes long to make as it is now, for `restore`."""
    shutil.copytree(folder, f"{folder}-as-it-was")


def restore(folder: Path) -> None:
    """The folder as it was kept, at the same path: tables and ledgers name files by it."""
    shutil.rmtree(folder)
    shutil.copytree(f"{folder}-as-it-was", folder)


def listing(warehouse: Path) -> dict[str, str]:
    """Every file below the folder, with the digest of its content."""
    return {
        str(path.relative_to(warehouse)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in warehouse.rglob("*")
        if path.is_file()
    }


def contents(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Size, time and bytes of everything in a folder."""
    entries: dict[str, tuple[int, int, bytes | None]] = {}
    for path in [folder, *folder.rglob("*")]:
        stat = path.stat()
        content = path.read_bytes() if path.is_file() else None
        entries[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns, content)
    return entries
