"""The ledger: every file of the archive that was ever read, with its state; and what changed."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.schemas import FILES


@dataclass(frozen=True)
class Entry:
    """One row of the ledger: see `schemas.FILES`."""

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


@dataclass(frozen=True)
class FileChanges:
    """The paths of files that are not as the last run saw them."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    back: tuple[str, ...]  # with the content that they had before they were gone or unreadable
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]  # now, whatever they were
    pruned: tuple[str, ...]  # gone or unreadable, now or before, whose content counts no more


def file_changes(now: Ledger, before: Ledger, *, prune: bool) -> FileChanges:
    """Tell which of the files that are there now, and of those before, have changed."""
    read = {path: each for path, each in now.items() if each.status == "read"}
    known = {path: each for path, each in read.items() if path in before}
    counted = (path for path, each in before.items() if each.file_id is not None)
    was_there = (path for path, each in before.items() if each.status != "gone")
    return FileChanges(
        new=tuple(path for path in read if path not in before),
        changed=tuple(path for path, each in known.items() if each.file_id != before[path].file_id),
        back=tuple(
            path
            for path, each in known.items()
            if before[path].status != "read" and each.file_id == before[path].file_id
        ),
        gone=tuple(path for path in was_there if path not in now),
        unreadable=tuple(path for path, each in now.items() if each.status == "unreadable"),
        pruned=tuple(path for path in counted if path not in read) if prune else (),
    )


def gone_content(now: Ledger, before: Ledger) -> tuple[str, ...]:
    """The files that went with their content: none that stands in a file that can be read now."""
    there = {each.file_id for each in now.values() if each.status == "read"}
    return tuple(
        path
        for path, each in before.items()
        if each.status != "gone" and path not in now
        if each.file_id is not None and each.file_id not in there
    )


def changed_entries(now: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Choose the ledger's entries whose status or content is not as the last run left it.

    Args:
        now: a frame of `FILES`, as this run leaves it.
        before: likewise, as this run found it.

    Returns:
        The entries of now, in the order of paths: those of unreadable files always, since each run
        looks at them anew, and with the status gone those that a run has pruned.
    """
    settled, there = (before.filter(pl.col("status") != each) for each in ("unreadable", "gone"))
    state = ["source_file", "status", "file_id"]
    differing = now.join(settled, on=state, how="anti")
    pruned = there.join(now, on="source_file", how="anti").with_columns(status=pl.lit("gone"))
    return pl.concat([differing, pruned]).sort("source_file")
