"""What a store tells of an object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, order=True)
class Object:
    """What a store tells of an object."""

    path: str  # below the store's URL; of the URL's own object, empty
    size: int  # bytes
    mtime_ns: int
    etag: str  # changes with the content; empty where the store tells none
    version: str = ""  # of a store that keeps older ones

    @classmethod
    def of(cls, found: Mapping[str, Any], path: str | None = None) -> Self:
        """What obstore tells, of an object whose path it may not know."""
        modified = round(found["last_modified"].timestamp() * 1e9)
        etag, version = bare(found["e_tag"]), found["version"] or ""
        return cls(found["path"] if path is None else path, found["size"], modified, etag, version)


def bare(etag: str | None) -> str:
    """An ETag without its quotes, which Azure's lists leave out and its other answers have."""
    return (etag or "").strip('"')
