"""SHA-256 of files, kept in the user's cache folder: an unchanged file is hashed once.

Several warehouses share a model, and an encoder knows none of them: see `files`.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from kp_batch.files import read_cache, write_cache

_KEPT = "model-digests.json"
# A file that was written this recently may be written again within the same tick of its clock, so
# its digest is not kept.
_SETTLED_NS = 2_000_000_000


def sha256_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file, in hex, under the same names.

    A file whose path, size and times are those of a kept digest is not read.

    Raises:
        OSError: a file cannot be read.
    """
    known = _read()
    found: dict[str, str] = {}
    fresh: dict[str, str] = {}
    for name, path in paths.items():
        identity, settled = _identify(path)
        found[name] = known.get(identity) or _sha256(path)
        if settled and identity not in known:
            fresh[identity] = found[name]
    if fresh:
        write_cache(_KEPT, json.dumps(known | fresh, indent=0))
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


def _read() -> dict[str, str]:
    """Read the kept digests by identity; a missing or damaged file holds none."""
    with suppress(ValueError, RecursionError):  # of nesting without end
        content = json.loads(read_cache(_KEPT) or "{}")
        if isinstance(content, dict):
            digests = cast("dict[str, object]", content)
            return {key: value for key, value in digests.items() if isinstance(value, str)}
    return {}
