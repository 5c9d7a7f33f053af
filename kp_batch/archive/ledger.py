"""The ledger: every file of the archive that was ever read, with its state."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import polars as pl

from kp_batch.archive.source_file import SourceFile
from kp_batch.contracts import FILES


@dataclass(frozen=True)
class Entry:
    """One row of the ledger: see `contracts.FILES`."""

    source_file: str
    status: str
    size: int
    mtime_ns: int
    file_id: str | None
    rows: int
    reasons: list[str] = field(default_factory=list[str])
    message: str = ""
    etag: str = ""
    path_keys: str = "{}"

    @property
    def source(self) -> SourceFile:
        """The file itself."""
        return SourceFile(self.source_file, self.size, self.mtime_ns, self.etag)

    @property
    def content(self) -> tuple[str | None, ...]:
        """Its status, content, message and path's keys, without its size and time."""
        return self.status, self.file_id, self.message, self.path_keys


Ledger = dict[str, Entry]  # by path


def as_ledger(frame: pl.DataFrame) -> Ledger:
    """The ledger from a frame of `FILES`."""
    return {row["source_file"]: Entry(**row) for row in frame.iter_rows(named=True)}


def as_frame(ledger: Iterable[Entry]) -> pl.DataFrame:
    """The ledger as a frame of `FILES`, in the order of paths."""
    return pl.DataFrame([asdict(each) for each in ledger], schema=FILES).sort("source_file")


def with_gone(now: Ledger, before: Ledger, *, prune: bool) -> Ledger:
    """Add the files that are gone. What they held last stays, unless `prune` removes it.

    The size and time of one that was unreadable are not those of what it held: when it is back, its
    content is looked at.
    """
    if prune:
        return {path: each for path, each in now.items() if each.status == "read"} | {
            path: replace(each, file_id=None, rows=0)
            for path, each in now.items()
            if each.status == "unreadable"
        }
    gone = {
        path: replace(
            each,
            status="gone",
            mtime_ns=0 if each.status == "unreadable" else each.mtime_ns,
            reasons=[],
            message="",
            etag="" if each.status == "unreadable" else each.etag,
        )
        for path, each in before.items()
        if path not in now and each.file_id is not None
    }
    return now | gone
