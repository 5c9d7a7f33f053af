"""Tells which files of the archive are not as the last run saw them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only prints the changes does not wait for these
    import polars as pl

    from kp_batch.archive.ledger import Ledger


@dataclass(frozen=True)
class FileChanges:
    """The paths of files that are not as the last run saw them."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    back: tuple[str, ...]  # with the content that they had before they were gone or unreadable
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]  # now, whatever they were
    pruned: tuple[str, ...]  # gone or unreadable, now or before, whose content counts no more


def file_changes(found: "Ledger", before: "Ledger", *, prune: bool) -> FileChanges:
    """Tell which of the files that are there now, and of those before, have changed."""
    read = {path: each for path, each in found.items() if each.status == "read"}
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
        gone=tuple(path for path in was_there if path not in found),
        unreadable=tuple(path for path, each in found.items() if each.status == "unreadable"),
        pruned=tuple(path for path in counted if path not in read) if prune else (),
    )


def gone_content(found: "Ledger", before: "Ledger") -> tuple[str, ...]:
    """The files that went with their content: none that stands in a file that can be read now."""
    there = {each.file_id for each in found.values() if each.status == "read"}
    return tuple(
        path
        for path, each in before.items()
        if each.status != "gone" and path not in found
        if each.file_id is not None and each.file_id not in there
    )


def changed_entries(now: "pl.DataFrame", before: "pl.DataFrame") -> "pl.DataFrame":
    """Choose the ledger's entries whose status or content is not as the last run left it.

    Args:
        now: a frame of `FILES`, as this run leaves it.
        before: likewise, as this run found it.

    Returns:
        The entries of now, in the order of paths: those of unreadable files always, since each run
        looks at them anew, and with the status gone those that a run has pruned.
    """
    import polars as pl

    settled, there = (before.filter(pl.col("status") != each) for each in ("unreadable", "gone"))
    state = ["source_file", "status", "file_id"]
    differing = now.join(settled, on=state, how="anti")
    pruned = there.join(now, on="source_file", how="anti").with_columns(status=pl.lit("gone"))
    return pl.concat([differing, pruned]).sort("source_file")
