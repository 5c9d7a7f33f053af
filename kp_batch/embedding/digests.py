"""SHA-256 of files, kept in the user's cache folder: an unchanged file is hashed once.

A model has no warehouse, and several warehouses share its files, so the digests stand beside the
user's other caches: `$XDG_CACHE_HOME/kp-batch/model-digests.json`, by default below `~/.cache`.
Losing the file costs time, nothing else; of processes that write at once, the last one wins.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import cast

# A file that changed this shortly ago may change again within the same tick of its clock, so its
# digest is not kept.
_SETTLED_NS = 2_000_000_000


def sha256_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file in hex, by the same names.

    A file is read only where its path, size or times differ from when its digest was kept.

    Raises:
        OSError: a file cannot be read.
    """
    kept = _read()
    found: dict[str, str] = {}
    fresh: dict[str, str] = {}
    for name, path in paths.items():
        identity, settled = _identify(path)
        found[name] = kept.get(identity) or _sha256(path)
        if settled and identity not in kept:
            fresh[identity] = found[name]
    if fresh:
        _write(kept | fresh)
    return found


def _identify(path: Path) -> tuple[str, bool]:
    """Text that is another one after any change of the file, and whether its clock has moved on.

    The status time is part of it, since another file may be unpacked to the same place with the
    same size and modification time.
    """
    status = path.stat()
    settled = status.st_mtime_ns < time.time_ns() - _SETTLED_NS
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_size} {times} {path.resolve()}", settled


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _location() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return folder.expanduser() / "kp-batch" / "model-digests.json"


def _read() -> dict[str, str]:
    """The kept digests by identity; none where the file is missing or damaged."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        content = json.loads(_location().read_text("utf-8"))
        if isinstance(content, dict):
            kept = cast("dict[str, object]", content)
            return {key: value for key, value in kept.items() if isinstance(value, str)}
    return {}


def _write(kept: dict[str, str]) -> None:
    """Replace the file as a whole; where that is impossible, the next call hashes again."""
    with suppress(OSError, RuntimeError):
        path = _location()
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as part:
            json.dump(kept, part, indent=0)
        Path(part.name).replace(path)
