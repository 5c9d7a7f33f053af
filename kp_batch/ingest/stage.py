"""Reads parts of the archive: identifies the content of files, stages facts and texts of rows.

Each function takes a part and writes files named after it, so it can be called again, on any
machine. An unreadable file does not prevent the others from being read.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.reading import BATCH_ROWS, read_rows, read_rows_with_raw
from kp_batch.archive.sources import content_digest, has_content, is_outside, stat_file
from kp_batch.embedding.chunks import HASH, Hashes
from kp_batch.errors import StorageError, UnreadableError, is_of_machine, is_passing
from kp_batch.ingest.staged_rows import StagedRows, parquet_batches, staged_rows, texts_of
from kp_batch.scoring.facts import FACTS_VERSION, id_hash, with_text
from kp_batch.steps.step import retried, step
from kp_batch.stopping import raise_if_unwanted
from kp_batch.warehouse.staging import TEXTS, Staging

VERSION = f"-v{FACTS_VERSION}"  # the end of every file_id


def content_of(column: str) -> pl.Expr:
    """Return a file_id without the version at its end."""
    return pl.col(column).str.replace("-v[0-9]+$", "")


R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Unreadable:
    """Why content cannot be read."""

    reasons: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class NewContent:
    """Content that is not known yet, and the files that contain it."""

    file_id: str
    sources: tuple[SourceFile, ...]


@dataclass(frozen=True)
class StagedPart:
    """The staged files of some contents, and the number of rows or the fault of each."""

    rows: tuple[int | Unreadable, ...]
    facts: tuple[Path, ...]
    texts: tuple[Path, ...]


@step("identify")
def identify(part: Sequence[SourceFile], /) -> list[str | Unreadable]:
    """Identify the content of some files: return the file_id of each, or why it has none."""
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
    part: Sequence[NewContent],
    /,
    archive: Sequence[str],
    forgotten: Sequence[Path],
    staging: Staging,
    reject_text: bool,  # noqa: FBT001 (the executor passes it)
) -> StagedPart:
    """Stage the rows of some contents: small ones together, a large one by itself.

    See `read_with_retries` for errors.

    Args:
        part: at least one content.
        archive: see `discover`; local names must be absolute.
        forgotten: files of the table `forgotten`, whose ids are left out.
        staging: the run's files.
        reject_text: whether rejected rows keep their JSON.
    """
    with staged_rows(staging, f"part-{part[0].file_id}") as together:
        contents = _Contents(archive, _forgotten_hashes(forgotten), staging, together, reject_text)
        files = {content: content.sources[-1] for content in part}
        counts = read_with_retries("stage", files, contents.stage)
    staged = [together, *contents.alone]
    return StagedPart(
        tuple(counts),
        tuple(path for rows in staged for path in rows.facts.files),
        tuple(path for rows in staged for path in rows.texts.files),
    )


@dataclass(frozen=True)
class _Contents:
    """Stages contents, one after the other; see `stage_contents`."""

    archive: Sequence[str]
    forgotten: Hashes  # hashes of ids to leave out
    staging: Staging
    together: StagedRows  # rows of small contents
    reject_text: bool  # whether rejected rows keep their JSON
    alone: list[StagedRows] = field(default_factory=list[StagedRows])  # one per large content

    def stage(self, content: NewContent) -> int:
        """Stage a content from the first of its files that is still there; return its rows."""
        for source in content.sources[:-1]:
            try:
                return self._stage(content, source)
            except UnreadableError as error:
                is_at_fault = not is_passing(error) and _is_unchanged(source, content.file_id)
                if is_at_fault:  # the fault is in the content
                    raise
        return self._stage(content, content.sources[-1])

    def _stage(self, content: NewContent, source: SourceFile) -> int:
        """Stage the rows of one file; none of them count if an error follows.

        So content of one batch joins the others only after it is read to its end, and larger
        content has its own files.
        """
        batches = self._rows(content, source)
        first = list(islice(batches, 2))
        if len(first) < 2:
            _check_unchanged(source, content.file_id)
            for batch in first:
                self.together.add(batch)
            return sum(map(len, first))
        rows = 0
        with staged_rows(self.staging, content.file_id) as alone:
            for batch in chain(first, batches):
                alone.add(batch)
                rows += len(batch)
            _check_unchanged(source, content.file_id)
        self.alone.append(alone)
        return rows

    def _rows(self, content: NewContent, source: SourceFile) -> Iterator[pl.DataFrame]:
        """Yield the rows that are not forgotten, with the column `file_id`."""

        def is_outside_alone() -> bool:
            return all(is_outside(self.archive, source.path) for source in content.sources)

        batches = (
            read_rows_with_raw(source, is_outside_alone)
            if self.reject_text
            else (rows.with_columns(raw=pl.lit(None, pl.String)) for rows in read_rows(source))
        )
        for batch in batches:
            rows = batch.with_columns(file_id=pl.lit(content.file_id))
            if len(self.forgotten):
                ids = rows.select(id_hash().fill_null("")).to_series()
                rows = rows.filter(~_contained_in(self.forgotten, ids))
            yield rows


def _is_unchanged(source: SourceFile, file_id: str) -> bool:
    """Whether a file's size, time and version are unchanged; if its version differs, its content.

    The version can change alone: a backup that links to a file changes it.

    Raises:
        OSError: the disk or the network failed; see `is_passing`.
    """
    try:
        now = stat_file(source.path)
        is_same = now == replace(source, version=now.version)
        return is_same and (now.version == source.version or has_content(source, file_id))
    except OSError as error:
        if is_passing(error) or is_of_machine(error):
            raise
        return False


def _check_unchanged(source: SourceFile, file_id: str) -> None:
    if not _is_unchanged(source, file_id):
        message = "the file changed while it was read; the next run reads it again"
        raise UnreadableError(message)


@step("read again")
def stage_texts(part: Sequence[SourceFile], /, wanted: Path, staging: Staging) -> list[Path]:
    """Read files again for the texts of some rows; return the staged file, if any.

    Args:
        part: at least one file. If one cannot be read now, the replay reports what is missing.
        wanted: hashes of the texts; see `Staging.texts_to_reread`.
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
    """Read some inputs; those that fail for a reason that may pass are `retried` together.

    Args:
        name: name of the step.
        files: inputs, each with its file.
        read: raises an UnreadableError, from the system's error if there is one. Its other errors
            are raised.

    Returns:
        The result of each input, in order, or why it cannot be read.

    Raises:
        StorageError: a file failed each time and cannot be reached: its disk or server is down. If
            it can be reached, the file itself is at fault, and counts as unreadable.
    """
    results: dict[T, R | Unreadable] = {}
    passing: dict[T, UnreadableError] = {}

    def read_remaining() -> None:
        for key in files:
            raise_if_unwanted()
            if key in results and key not in passing:
                continue
            passing.pop(key, None)
            try:
                results[key] = read(key)
            except UnreadableError as error:
                codes = {fault.code for fault in error.faults}
                results[key] = Unreadable(tuple(sorted(codes)), str(error))
                if is_passing(error):
                    passing[key] = error
        for key, error in passing.items():
            raise OSError(f"{files[key].path}: {error}") from error

    try:
        retried(name, read_remaining)
    except StorageError:
        if any(_is_unreachable(files[key]) for key in passing):
            raise
    return [results[key] for key in files]


def _is_unreachable(source: SourceFile) -> bool:
    try:
        stat_file(source.path)
    except OSError as error:
        return is_passing(error)
    return False


def _forgotten_hashes(forgotten: Sequence[Path]) -> Hashes:
    """Return the hashes of the forgotten ids, ascending."""
    if not forgotten:
        return np.empty(0, dtype=HASH)
    hashes = pl.read_parquet(list(forgotten), glob=False).get_column("id_hash").sort()
    return np.array(hashes.to_list(), dtype=HASH)


def _contained_in(ascending: Hashes, hashes: pl.Series) -> pl.Series:
    """Return which hashes are among others, which must be ascending and not empty."""
    # A binary search, since a join would read all of these for every batch.
    wanted = np.array(hashes.to_list(), dtype=HASH)
    position = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return pl.Series(ascending[position] == wanted)
