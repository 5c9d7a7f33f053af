"""The paths in a warehouse's folder, and which folders may hold a warehouse."""

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kp_batch.errors import ResourceError, WarehouseError
from kp_batch.files import refuse_link, refuse_links_below
from kp_batch.warehouse.bucket.location import make_folder_of, shown, url_of

# The keys of `schemas.TABLES`, repeated here so that questions do not import Polars.
TABLE_NAMES = (
    *("scores", "rejects", "profiles", "runs", "files", "distributions"),
    *("facts", "forgotten", "tombstones"),
)
# Characters that delta-rs 1.6.6 and DuckDB 2.0.0 read as part of a URL, not of a path.
_NOT_IN_PATHS = frozenset(r"%?[]\^|")
# If Prefect runs the steps, its new database takes 5 MB, and its log as much.
MIN_FREE_BYTES = 32 << 20


@dataclass(frozen=True)
class Layout:
    """The paths of all files and folders of a warehouse, below its own folder."""

    root: Path

    def table(self, name: str) -> Path:
        """The folder of a Delta table."""
        return self.root / name

    @property
    def all_vectors(self) -> Path:
        """The folder with a vector store for each encoder."""
        return self.root / "vectors"

    def vectors(self, encoder_id: str) -> Path:
        """The folder of an encoder's vector store."""
        return self.all_vectors / encoder_id

    @property
    def all_staging(self) -> Path:
        """The folder with the working folder of each run, and nothing else."""
        return self.root / "staging"

    def staging(self, run_id: str) -> Path:
        """The working folder of a run."""
        return self.all_staging / run_id

    @property
    def candidate(self) -> Path:
        """The folder of what a run would publish, or was refused, until the next run."""
        return self.root / "candidate"

    @property
    def kept_candidate(self) -> Path:
        """The manifest of a kept candidate; without it, the candidate's files are leftovers."""
        return Layout(self.candidate).manifest

    @property
    def catalog(self) -> Path:
        """The DuckDB file with a view of each table, and a copy of the manifest."""
        return self.root / "kp.duckdb"

    @property
    def manifest(self) -> Path:
        """The manifest of what is published."""
        return self.root / "manifest.json"

    @property
    def log(self) -> Path:
        """The folder of all manifests, including earlier ones, and of their lists."""
        return self.root / "log"

    def past_manifest(self, publication: str) -> Path:
        """The manifest of a publication, by the first 32 digits of its id."""
        return self.log / f"{publication}.json"

    def file_list(self, name: str) -> Path:
        """A list of data files; see `file_lists`."""
        return self.log / f"files/{name}.json"

    @property
    def report(self) -> Path:
        """The page about what is published."""
        return self.root / "report.html"

    @property
    def lock(self) -> Path:
        """The file that the writer locks."""
        return self.root / "kp.lock"

    @property
    def forgetting(self) -> Path:
        """The ids that `forget` removes, in JSON, while files may still contain their traces."""
        return self.root / "forgetting"

    @property
    def known_warnings(self) -> Path:
        """The digests of the recurring warnings of the last run."""
        return self.root / "known-warnings.json"

    @property
    def output(self) -> Path:
        """The output of libraries during the last command that wrote to the warehouse."""
        return self.root / "last-run.log"

    @property
    def last_run(self) -> Path:
        """The file that records how the last run ended."""
        return self.root / "last-run.json"

    @property
    def prefect(self) -> Path:
        """Prefect's own files, used if no server is configured."""
        return self.root / "prefect"


def make_folder(warehouse: Path) -> None:
    """Make the folder if it is missing, and check that a run fits onto its disk.

    It is called before any work: on a full disk, Prefect would try for minutes to make its
    database.

    Raises:
        WarehouseError: Delta tables cannot be written there.
        ResourceError: the disk is full.
    """
    check_folder(warehouse)
    make_folder_of(warehouse)
    free = shutil.disk_usage(warehouse).free
    if free < MIN_FREE_BYTES:
        raise ResourceError(
            f"the disk is full: {warehouse} has {free >> 20} MiB left, "
            f"and a run needs at least {MIN_FREE_BYTES >> 20}; free some space",
            code="disk_full",
        )


def check_folder(warehouse: Path) -> None:
    """Refuse a folder that Delta tables cannot be written to, before any work.

    Raises:
        WarehouseError: it is a URL, or its path has a character that delta-rs misreads.
    """
    path = str(warehouse.absolute())
    if scheme := re.match(r"[A-Za-z0-9+.-]+:/", str(warehouse)):  # the rest may contain a password
        raise WarehouseError(f"a warehouse at {scheme[0]} is not supported; name a local folder")
    wrong = sorted({sign for sign in path if sign in _NOT_IN_PATHS or not sign.isprintable()})
    if wrong:
        raise WarehouseError(
            f"Delta tables cannot be written below {path!r}: its path has "
            f"{' '.join(map(repr, wrong))}; choose another folder for the warehouse"
        )


def check_links(warehouse: Path) -> None:
    """Refuse a warehouse in which a link would lead a writer to files elsewhere.

    The warehouse's own folder may be a link. So may a file that is replaced as a whole, such as the
    report: then the link is replaced.

    Raises:
        WarehouseError: there is such a link.
    """
    layout = Layout(warehouse)
    for path in (layout.lock, layout.forgetting, layout.all_staging, layout.prefect):
        refuse_link(path)
    for folder in (
        *map(layout.table, TABLE_NAMES),
        *(layout.log, layout.all_vectors, layout.candidate),
    ):
        refuse_links_below(folder)


def remove_candidate(warehouse: Path) -> None:
    """Remove what a previous writer has kept or left; first its manifest, so that no half is read.

    Raises:
        OSError: some of it cannot be removed.
    """
    layout = Layout(warehouse)
    layout.kept_candidate.unlink(missing_ok=True)
    if layout.candidate.exists():
        shutil.rmtree(layout.candidate)


def check_apart(warehouse: Path, archive: Iterable[str]) -> None:
    """Refuse an archive inside the warehouse, whose files are never read as an archive.

    Raises:
        WarehouseError: one of its files, folders, globs and URLs is the warehouse, or inside it.
    """
    root, url = os.path.realpath(warehouse), url_of(warehouse)
    for name in archive:
        in_bucket = url and f"{name}/".startswith(f"{url}/")
        # Unlike pathlib's, these accept any name.
        path = os.path.expanduser(name.removeprefix("file://"))  # noqa: PTH111
        if in_bucket or Path(os.path.realpath(path)).is_relative_to(root):
            raise WarehouseError(
                f"the archive {name!r} is in the warehouse {shown(warehouse)!r}, whose files are "
                "never read; choose another folder for the warehouse"
            )
