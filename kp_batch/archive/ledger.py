"""The ledger: every file of the archive that was ever read, its state, and changes of state.

Ledgers are frames of `FILES`; there may be a hundred thousand files.
"""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from kp_batch.archive.folders import folders_above

_NO_REASONS = pl.lit([], pl.List(pl.String))
_AWAY = ("gone", "excluded")


def is_there() -> pl.Expr:
    """Whether a file is in the archive, and not excluded."""
    return ~pl.col("status").is_in(_AWAY)


def has_fault() -> pl.Expr:
    """Whether a file, or its end, cannot be read."""
    return (pl.col("status") == "unreadable") | (pl.col("reasons").list.len() > 0)


def in_unreadable_folders(
    now: pl.DataFrame, before: pl.DataFrame, folders: Collection[str]
) -> pl.DataFrame:
    """Return the known files of folders that cannot be read now: they are not gone."""
    if not folders:
        return before.clear()

    def nearest(path: str) -> str | None:
        return next((above for above in folders_above(path) if above in folders), None)

    known = before.filter(pl.col("file_id").is_not_null(), pl.col("status") != "gone")
    others = known.join(now, on="source_file", how="anti", maintain_order="left")
    folder = pl.Series(map(nearest, others.get_column("source_file")), dtype=pl.String)
    return others.filter(folder.is_not_null()).with_columns(
        status=pl.lit("unreadable"), reasons=_NO_REASONS, message="it is in " + folder.drop_nulls()
    )


def with_away(
    now: pl.DataFrame, before: pl.DataFrame, excluded: Collection[str] = (), *, prune: bool
) -> pl.DataFrame:
    """Add the known files that are gone or excluded.

    Their last content still counts, unless `prune` removes it.

    An unreadable file has no version, because its version does not belong to the content that
    counts. So the file is read again when it is back. A cut file has no version either, so its
    fault is checked again.
    """
    if prune:
        is_read = pl.col("status") == "read"
        return now.with_columns(
            file_id=pl.when(is_read).then("file_id"),
            rows=pl.when(is_read).then("rows"),
        )
    known = before.filter(pl.col("file_id").is_not_null())
    is_excluded = pl.col("source_file").is_in([*excluded])
    away = known.join(now, on="source_file", how="anti").with_columns(
        status=pl.when(is_excluded).then(pl.lit("excluded")).otherwise(pl.lit("gone")),
        reasons=_NO_REASONS,
        message=pl.lit(""),
        version=pl.when(has_fault()).then(pl.lit("")).otherwise("version"),
    )
    return pl.concat([now, away])


@dataclass(frozen=True)
class FileChanges:
    """The paths of files that changed since the last run."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    back: tuple[str, ...]  # with the content that they had before they could not be read
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]  # or cut now, whatever they were before
    pruned: tuple[str, ...]  # not read, now or before; their content no longer counts
    excluded: tuple[str, ...] = ()  # files and folders excluded now, whatever they were before


def file_changes(
    now: pl.DataFrame, before: pl.DataFrame, excluded: Collection[str] = (), *, prune: bool
) -> FileChanges:
    """Compare the ledger of the current files with that of the last run.

    Args:
        now: ledger of the current files.
        before: ledger of the last run.
        excluded: files and folders that are left out, including those in `before`.
        prune: whether the content of files that are not read no longer counts.
    """
    read = now.filter(status="read")
    last = before.select("source_file", last_id="file_id", last_status="status")
    known = read.join(last, on="source_file", maintain_order="left")
    is_same = pl.col("file_id").eq_missing(pl.col("last_id"))
    counted = before.filter(pl.col("file_id").is_not_null())
    return FileChanges(
        new=_paths(read, but=before),
        changed=_paths(known.remove(is_same)),
        back=_paths(known.filter(is_same, pl.col("last_status") != "read")),
        gone=_paths(without(before, excluded).filter(pl.col("status") != "gone"), but=now),
        unreadable=_paths(now.filter(has_fault())),
        pruned=_paths(counted, but=read) if prune else (),
        excluded=tuple(sorted(excluded)),
    )


def without(files: pl.DataFrame, excluded: Collection[str]) -> pl.DataFrame:
    """Return a ledger without the excluded files."""
    return files.filter(~pl.col("source_file").is_in([*excluded])) if excluded else files


def gone_content(now: pl.DataFrame, before: pl.DataFrame) -> tuple[str, ...]:
    """Return the files that are gone, if no readable file has their content."""
    known = before.filter(pl.col("file_id").is_not_null(), pl.col("status") != "gone")
    readable = now.filter(status="read")
    lost = known.join(readable, on="file_id", how="anti", maintain_order="left")
    return _paths(lost, but=now)


def new_faults(now: pl.DataFrame, before: pl.DataFrame) -> tuple[str, ...]:
    """Return the files with a fault that had none before, or are new."""
    return _paths(now.filter(has_fault()), but=before.filter(has_fault()))


def _paths(files: pl.DataFrame, but: pl.DataFrame | None = None) -> tuple[str, ...]:
    if but is not None:
        files = files.join(but, on="source_file", how="anti", maintain_order="left")
    return tuple(files.get_column("source_file"))


def is_same_ledger(now: pl.DataFrame, before: pl.DataFrame) -> bool:
    """Whether two ledgers have equal files, contents, faults and keys; times do not count."""
    columns = ["source_file", "status", "file_id", "message", "path_keys"]
    return now.select(columns).sort(columns[0]).equals(before.select(columns).sort(columns[0]))


def has_other_versions(now: pl.DataFrame, before: pl.DataFrame) -> bool:
    """Whether a file was compared again, which remembering its version would save.

    A file without a version before does not count: that alone is not worth a publication.
    """
    had = before.filter(pl.col("version") != "").select("source_file", last="version")
    both = now.filter(pl.col("version") != "").join(had, on="source_file")
    return not both.filter(pl.col("version") != pl.col("last")).is_empty()


def changed_entries(
    now: pl.DataFrame, before: pl.DataFrame, *, left_out: str = "gone"
) -> pl.DataFrame:
    """Return the ledger's entries whose status or content a run has changed.

    Args:
        now: a frame of `FILES`, after the run.
        before: a frame of `FILES`, before the run.
        left_out: status of the files that only `before` has.

    Returns:
        Entries of `now`, in the order of paths, including all unreadable files, since every run
        tries them again; and the files that are left out.
    """
    readable = before.filter(pl.col("status") != "unreadable")
    present = before.filter(is_there())
    changed = now.join(readable, on=["source_file", "status", "file_id"], how="anti")
    others = present.join(now, on="source_file", how="anti")
    return pl.concat([changed, others.with_columns(status=pl.lit(left_out))]).sort("source_file")
