"""Where an export may be written: outside the archive and the warehouse."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from kp_batch.archive.sources import covers
from kp_batch.errors import KpBatchError
from kp_batch.exports.export_options import ExportOptions
from kp_batch.files import writing_to_named
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.snapshot import published


def output_names(options: ExportOptions, output: str) -> list[str]:
    """Return the names of the files that an export writes: one or two, then that of `deleted`.

    Raises:
        KpBatchError: `deleted` is one of the others, or stdout.
    """
    path = Path(output)
    parts = [output]
    if options.split:
        parts = [str(path.with_suffix(f".{part}{path.suffix}")) for part in ("train", "test")]
    if options.deleted is None:
        return parts
    if str(options.deleted) == "-" or _resolved(str(options.deleted)) in map(_resolved, parts):
        raise KpBatchError(
            f"--deleted {printable(str(options.deleted))} is also the output; name another file"
        )
    return [*parts, str(options.deleted)]


def _resolved(name: str) -> Path:
    path = Path(name)
    with writing_to_named(path):
        return path.resolve()


def check_output(warehouse: Path, output: Path) -> None:
    """Raise an error if a file is in the archive or the warehouse.

    The archive is that of the last run, and all files in the ledger.

    Args:
        warehouse: the folder of the tables.
        output: the absolute path of the file; if it is a link, its target is replaced.

    Raises:
        KpBatchError: it is.
        WarehouseError: there is no warehouse.
    """
    with writing_to_named(output):
        paths = [output.parent.resolve() / output.name, output.resolve()]
    if is_in_warehouse(paths, warehouse):
        raise _inside(output, f"in the warehouse {shown(warehouse)!r}")
    snapshot = published(warehouse)
    last = last_done(snapshot.runs())
    if name := archive_with(paths, last.config["archive"] if last else ()):
        raise _inside(output, f"in the archive {name!r}, which the next run reads")
    files = snapshot.scan("files").select("source_file")
    is_output = pl.col("source_file").is_in([str(path) for path in (output, *paths)])
    if not files.filter(is_output).collect().is_empty():
        raise _inside(output, "a file of the archive")


def _inside(output: Path, where: str) -> KpBatchError:
    return KpBatchError(f"{printable(str(output))} is {where}; choose another folder")


def is_in_warehouse(paths: Sequence[Path], warehouse: Path) -> bool:
    """Whether a file with these paths would be in the folder of a warehouse."""
    folders = (warehouse.absolute(), warehouse.resolve())
    return any(path.is_relative_to(folder) for path in paths for folder in folders)


def archive_with(paths: Sequence[Path], archive: Iterable[str]) -> str | None:
    """Return the first name of an archive that would contain a file with these paths, or None."""
    return next((name for name in archive if any(covers(name, path) for path in paths)), None)
