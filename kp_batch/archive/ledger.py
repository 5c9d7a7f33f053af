"""The ledger: every file of the archive that was ever read, with its state; and its changes."""

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
    rows: int  # 0 without content
    reasons: list[str] = field(default_factory=list[str])
    message: str = ""
    version: str = ""
    path_keys: str = "{}"

    @property
    def source(self) -> SourceFile:
        """The file itself."""
        return SourceFile(self.source_file, self.size, self.mtime_ns, self.version)

    @property
    def has_fault(self) -> bool:
        """Whether the file, or its end, cannot be read."""
        return self.status == "unreadable" or bool(self.reasons)

    @property
    def content(self) -> tuple[str | None, ...]:
        """Its status, content, message and path's keys, without its size, time and version."""
        return self.status, self.file_id, self.message, self.path_keys


Ledger = dict[str, Entry]  # by path


def as_ledger(frame: pl.DataFrame) -> Ledger:
    """The ledger from a frame of `FILES`."""
    rows = frame.with_columns(pl.col("rows").fill_null(0)).iter_rows(named=True)
    return {row["source_file"]: Entry(**row) for row in rows}


def as_frame(ledger: Iterable[Entry]) -> pl.DataFrame:
    """The ledger as a frame of `FILES`, in the order of paths."""
    frame = pl.DataFrame([asdict(entry) for entry in ledger], schema=FILES).sort("source_file")
    has_content = pl.col("file_id").is_not_null()
    return frame.with_columns(rows=pl.when(has_content).then("rows"))


def with_gone(now: Ledger, before: Ledger, *, prune: bool) -> Ledger:
    """Add the files that are gone. Their last content counts on, unless `prune` removes it.

    The version of an unreadable file is not that of the content that counts: it is left out, so
    that the file is read when it is back. So is that of a cut one, whose fault is looked for again.
    """
    if prune:
        return {
            path: entry if entry.status == "read" else replace(entry, file_id=None, rows=0)
            for path, entry in now.items()
        }
    gone = {
        path: replace(
            entry,
            status="gone",
            reasons=[],
            message="",
            version="" if entry.has_fault else entry.version,
        )
        for path, entry in before.items()
        if path not in now and entry.file_id is not None
    }
    return now | gone


@dataclass(frozen=True)
class FileChanges:
    """The paths of files that changed since the last run."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    back: tuple[str, ...]  # with the content that they had before they were gone or unreadable
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]  # now, or cut, whatever they were before
    pruned: tuple[str, ...]  # gone or unreadable, now or before, whose content no longer counts


def file_changes(now: Ledger, before: Ledger, *, prune: bool) -> FileChanges:
    """Compare the ledger of the present files with that of the last run."""
    read = {path: entry.file_id for path, entry in now.items() if entry.status == "read"}
    known = [path for path in read if path in before]
    same = {path for path in known if read[path] == before[path].file_id}
    counted = (path for path, entry in before.items() if entry.file_id is not None)
    present = (path for path, entry in before.items() if entry.status != "gone")
    return FileChanges(
        new=tuple(path for path in read if path not in before),
        changed=tuple(path for path in known if path not in same),
        back=tuple(path for path in known if path in same and before[path].status != "read"),
        gone=tuple(path for path in present if path not in now),
        unreadable=tuple(path for path, entry in now.items() if entry.has_fault),
        pruned=tuple(path for path in counted if path not in read) if prune else (),
    )


def gone_content(now: Ledger, before: Ledger) -> tuple[str, ...]:
    """The files that are gone, and whose content no readable file has."""
    readable = {entry.file_id for entry in now.values() if entry.status == "read"}
    return tuple(
        path
        for path, entry in before.items()
        if entry.status != "gone" and path not in now
        if entry.file_id is not None and entry.file_id not in readable
    )


def changed_entries(
    now: pl.DataFrame, before: pl.DataFrame, *, left_out: str = "gone"
) -> pl.DataFrame:
    """Choose the ledger's entries whose status or content a run has changed.

    Args:
        now: a frame of `FILES`, after the run.
        before: likewise, before the run.
        left_out: the status of the files that only `before` has.

    Returns:
        The entries of now, in the order of paths: also all of unreadable files, since every run
        tries them again, and those that are left out.
    """
    settled = before.filter(pl.col("status") != "unreadable")
    present = before.filter(pl.col("status") != "gone")
    changed = now.join(settled, on=["source_file", "status", "file_id"], how="anti")
    others = present.join(now, on="source_file", how="anti")
    return pl.concat([changed, others.with_columns(status=pl.lit(left_out))]).sort("source_file")
