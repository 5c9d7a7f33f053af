"""One file of an archive."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kp_batch.archive.formats import Format, format_of


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of an archive, or a folder of which nothing can be read."""

    path: str  # absolute, or a URL
    size: int  # bytes
    mtime_ns: int  # 0 if the file system does not tell
    etag: str = ""  # of an object in a bucket: it changes with the content
    fault: str = ""  # why it cannot be read, where its folder tells that already
    # Of an object in a bucket, where its bytes are kept once they were fetched; empty: nowhere.
    copy: str = field(default="", compare=False)

    @property
    def format(self) -> Format:
        """The name of its format, by its ending; Parquet if that is unknown."""
        return format_of(self.path)


def folders_above(path: str) -> Iterator[str]:
    """The folders that hold a file or a folder, the nearest first; of a URL likewise."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
