"""Tells which files of the archive are not as the last run saw them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only prints the changes does not wait for it
    from kp_batch.archive.ledger import Ledger


@dataclass(frozen=True)
class FileChanges:
    """The paths of files that are not as the last run saw them."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]  # now, whatever they were


def file_changes(found: "Ledger", before: "Ledger") -> FileChanges:
    """Tell which of the files that are there now, and of those before, have changed."""
    read = {path: each for path, each in found.items() if each.status == "read"}
    known = {path: each for path, each in read.items() if path in before}
    was_there = (path for path, each in before.items() if each.status != "gone")
    return FileChanges(
        new=tuple(path for path in read if path not in before),
        changed=tuple(path for path, each in known.items() if each.file_id != before[path].file_id),
        gone=tuple(path for path in was_there if path not in found),
        unreadable=tuple(path for path, each in found.items() if each.status == "unreadable"),
    )
