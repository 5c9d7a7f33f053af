"""SHA-256 of files, kept in the user's cache folder: an unchanged file is hashed once.

Several warehouses share a model, and an encoder knows none of them, so the digests are kept in
`$XDG_CACHE_HOME/kp-batch/model-digests.json`, by default below `~/.cache`. Losing that file costs
time, nothing else. Where several processes write it at once, the last one wins.
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

# A file that was written this recently may be written again within the same tick of its clock, so
# its digest is not kept.
_SETTLED_NS = 2_000_000_000


def sha256_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file, in hex, under the same names.

    A file whose path, size and times are those of a kept digest is not read.

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
    """Identify a file by its size, times and path, and tell whether its digest may be kept.

    The time of the last status change counts too: an archive can unpack another file to the same
    path with the same size and modification time.
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
    """Read the kept digests by identity; a missing or damaged file holds none."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        content = json.loads(_location().read_text("utf-8"))
        if isinstance(content, dict):
            kept = cast("dict[str, object]", content)
            return {key: value for key, value in kept.items() if isinstance(value, str)}
    return {}


def _write(kept: dict[str, str]) -> None:
    """Replace the file as a whole; if that fails, the next call hashes again."""
    with suppress(OSError, RuntimeError):
        path = _location()
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as part:
            json.dump(kept, part, indent=0)
        Path(part.name).replace(path)
