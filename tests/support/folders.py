"""What is in a folder."""

import hashlib
from pathlib import Path


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
