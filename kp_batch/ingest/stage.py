"""Reads parts of the archive: names the content of files, and stages facts and texts of rows.

Each function takes a part and writes files named by it, so that it may be called again, elsewhere.
A file that cannot be read keeps no other from being read.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.reading import BATCH_ROWS, read_rows, read_rows_with_raw
from kp_batch.archive.sources import content_digest, is_outside, stat_file
from kp_batch.embedding.vector_store import HASH, Hashes
from kp_batch.errors import StorageError, UnreadableError, is_of_machine, is_passing
from kp_batch.facts import FACTS_VERSION, id_hash, with_text
from kp_batch.ingest.staged_rows import StagedRows, parquet_batches, staged_rows, texts_of
from kp_batch.runs.staging import TEXTS, Staging
from kp_batch.steps.step import retried, step

VERSION = f"-v{FACTS_VERSION}"  # the end of every file_id

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Unreadable:
    """Why content cannot be read."""

    reasons: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, error: UnreadableError) -> "Unreadable":
        """The faults that the error holds."""
        return cls(tuple(sorted({fault.code for fault in error.faults})), str(error))


@dataclass(frozen=True)
class Content:
    """Content that is not known yet, and the files that have it."""

    file_id: str
    sources: tuple[SourceFile, ...]


@dataclass(frozen=True)
class StagedPart:
    """What came of some contents: files, and of each content its rows or why it has none."""

    rows: tuple[int | Unreadable, ...]
    facts: tuple[Path, ...]
    texts: tuple[Path, ...]


@step("identify")
def identify(part: Sequence[SourceFile]) -> list[str | Unreadable]:
    """Name the content of some files: the file_id of each, or why it has none."""
    return read_with_retries("identify", {source: source for source in part}, _file_id)


def _file_id(source: SourceFile) -> str:
    if source.fault:
        raise UnreadableError(source.fault)
    try:
        return content_digest(source) + VERSION
    except OSError as error:
        if is_of_machine(error):
            raise
        reason = error.strerror or str(error)
        raise UnreadableError(reason) from error


@step("stage")
def stage_contents(
    part: Sequence[Content], archive: Sequence[str], forgotten: Sequence[Path], staging: Staging
) -> StagedPart:
    """Stage the rows of some contents: those of small ones together, of a large one by itself.

    See `read_with_retries`.

    Args:
        part: at least one content.
        archive: see `discover`; names on this machine in full.
        forgotten: the files of the table of that name, whose ids are passed over.
        staging: the run's files.
    """
    with staged_rows(staging, f"part-{part[0].file_id}") as together:
        contents = _Contents(archive, _forgotten_hashes(forgotten), staging, together)
        rows = read_with_retries("stage", {each: each.sources[-1] for each in part}, contents.stage)
    staged = [together, *contents.alone]
    return StagedPart(
        tuple(rows),
        tuple(path for each in staged for path in each.facts.files),
        tuple(path for each in staged for path in each.texts.files),
    )


@dataclass(frozen=True)
class _Contents:
    """Stages contents, one after the other.

    Attributes:
        archive: as for `stage_contents`.
        forgotten: the hashes of the ids that are passed over.
        staging: the run's files.
        together: takes the rows of small contents.
        alone: the staged files of the large ones.
    """

    archive: Sequence[str]
    forgotten: Hashes
    staging: Staging
    together: StagedRows
    alone: list[StagedRows] = field(default_factory=list[StagedRows])

    def stage(self, content: Content) -> int:
        """Stage a content from the first of its files that is still there; returns its rows."""
        for source in content.sources[:-1]:
            try:
                return self._stage(content, source)
            except UnreadableError as error:
                if not is_passing(error) and _is_unchanged(source):  # the content is at fault
                    raise
        return self._stage(content, content.sources[-1])

    def _stage(self, content: Content, source: SourceFile) -> int:
        """Stage the rows of one file.

        Rows are void if an error comes after them. So content of one batch joins the others only
        when it is read to its end, and larger content has files of its own.
        """
        batches = self._rows(content, source)
        first = list(islice(batches, 2))
        if len(first) < 2:
            _check_unchanged(source)
            for batch in first:
                self.together.add(batch)
            return sum(map(len, first))
        rows = 0
        with staged_rows(self.staging, content.file_id) as alone:
            for batch in chain(first, batches):
                alone.add(batch)
                rows += len(batch)
            _check_unchanged(source)
        self.alone.append(alone)
        return rows

    def _rows(self, content: Content, source: SourceFile) -> Iterator[pl.DataFrame]:
        """The rows that are not forgotten, with the column `file_id`."""

        def is_outside_alone() -> bool:
            return all(is_outside(self.archive, source.path) for source in content.sources)

        for batch in read_rows_with_raw(source, is_outside_alone):
            rows = batch.with_columns(file_id=pl.lit(content.file_id))
            if len(self.forgotten):
                ids = rows.select(id_hash().fill_null("")).to_series()
                rows = rows.filter(~_contained_in(self.forgotten, ids))
            yield rows


def _is_unchanged(source: SourceFile) -> bool:
    """Whether a file is as it was seen, by its size, time and ETag.

    Raises:
        OSError: the disk or the network failed; see `is_passing`.
    """
    try:
        return stat_file(source.path) == source
    except OSError as error:
        if is_passing(error) or is_of_machine(error):
            raise
        return False


def _check_unchanged(source: SourceFile) -> None:
    if not _is_unchanged(source):
        message = "the file changed while it was read; the next run reads it again"
        raise UnreadableError(message)


@step("read again")
def stage_texts(part: Sequence[SourceFile], wanted: Path, staging: Staging) -> list[Path]:
    """Read files again for the texts of some of their rows; returns the staged file, if any.

    Args:
        part: at least one file. Of one that cannot be read now, the replay says what is missing.
        wanted: the texts' hashes, see `Staging.texts_to_reread`.
        staging: the run's files.
    """
    hashes = np.load(wanted, mmap_mode="r")
    name = f"again-{hashlib.sha256(part[0].path.encode()).hexdigest()}"
    with parquet_batches(staging.texts(name), TEXTS, BATCH_ROWS) as texts:

        def add_texts(source: SourceFile) -> None:
            for batch in read_rows(source):
                staged = texts_of(with_text(batch))
                texts.add(staged.filter(_contained_in(hashes, staged.get_column("text_hash"))))

        read_with_retries("read texts again", {source: source for source in part}, add_texts)
    return texts.files


def read_with_retries(
    name: str, files: Mapping[T, SourceFile], read: Callable[[T], R]
) -> list[R | Unreadable]:
    """Read each of some things; those whose failure may pass are `retried` together.

    Args:
        name: of the step.
        files: what to read, each with its file.
        read: raises an UnreadableError, from the system's error if there is one. Its other errors
            are raised.

    Returns:
        For each in their order, what was read or why it cannot be.

    Raises:
        StorageError: a file failed each time and cannot even be looked at: its disk or its server
            is away. One that can be is at fault itself, and unreadable.
    """
    results: dict[T, R | Unreadable] = {}
    passing: dict[T, UnreadableError] = {}

    def read_remaining() -> None:
        for file in files:
            if file in results and file not in passing:
                continue
            passing.pop(file, None)
            try:
                results[file] = read(file)
            except UnreadableError as error:
                results[file] = Unreadable.of(error)
                if is_passing(error):
                    passing[file] = error
        for each, error in passing.items():
            raise OSError(f"{files[each].path}: {error}") from error

    try:
        retried(name, read_remaining)
    except StorageError:
        if any(_is_unreachable(files[each]) for each in passing):
            raise
    return [results[file] for file in files]


def _is_unreachable(source: SourceFile) -> bool:
    try:
        stat_file(source.path)
    except OSError as error:
        return is_passing(error)
    return False


def _forgotten_hashes(forgotten: Sequence[Path]) -> Hashes:
    """The hashes of the forgotten ids, ascending."""
    if not forgotten:
        return np.empty(0, dtype=HASH)
    hashes = pl.read_parquet(list(forgotten), glob=False).get_column("id_hash").sort()
    return np.array(hashes.to_list(), dtype=HASH)


def _contained_in(ascending: Hashes, hashes: pl.Series) -> pl.Series:
    """Which hashes are among others, which are ascending, and at least one."""
    # A search, since a join would look at all of these for every batch.
    sought = np.array(hashes.to_list(), dtype=HASH)
    place = np.minimum(np.searchsorted(ascending, sought), len(ascending) - 1)
    return pl.Series(ascending[place] == sought)
