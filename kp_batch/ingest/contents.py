"""Reads parts of the archive: names the content of files, and stages the facts and texts of rows.

Each function takes a part and writes files named by it, so that it may be called again, elsewhere.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.reading import BATCH_ROWS, read_rows, read_rows_with_raw
from kp_batch.archive.sources import content_digest, described, is_outside
from kp_batch.errors import is_of_machine, is_passing
from kp_batch.facts import FACTS_VERSION, id_hash, with_text
from kp_batch.file_faults import UnreadableError
from kp_batch.ingest.each_file import Unreadable, read_each
from kp_batch.ingest.hashes import Hashes, forgotten_hashes, stand_in
from kp_batch.ingest.staged_rows import StagedRows, parquet_batches, staged_rows, texts_of
from kp_batch.staging import TEXTS, Staging
from kp_batch.steps.step import step

VERSION = f"-v{FACTS_VERSION}"  # the end of every file_id


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
    """Name the content of some files: the file_id of each, or why it has none; see `read_each`."""
    return read_each("identify", {source: source for source in part}, _file_id)


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

    See `read_each`.

    Args:
        part: at least one content.
        archive: see `discover`; names on this machine in full.
        forgotten: the files of the table of that name, whose ids are passed over.
        staging: the run's files.
    """
    with staged_rows(staging, f"part-{part[0].file_id}") as together:
        contents = _Contents(archive, forgotten_hashes(forgotten), staging, together)
        rows = read_each("stage", {each: each.sources[-1] for each in part}, contents.stage)
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
                if not is_passing(error) and is_unchanged(source):  # the content is at fault
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
            return all(is_outside(self.archive, each.path) for each in content.sources)

        for batch in read_rows_with_raw(source, is_outside_alone):
            rows = batch.with_columns(file_id=pl.lit(content.file_id))
            if len(self.forgotten):
                ids = rows.select(id_hash().fill_null("")).to_series()
                rows = rows.filter(~stand_in(self.forgotten, ids))
            yield rows


def is_unchanged(source: SourceFile) -> bool:
    """Whether a file is as it was seen, by its size, time and ETag.

    Raises:
        OSError: the disk or the network failed; see `is_passing`.
    """
    try:
        return described(source.path) == source
    except OSError as error:
        if is_passing(error) or is_of_machine(error):
            raise
        return False


def _check_unchanged(source: SourceFile) -> None:
    if not is_unchanged(source):
        message = "the file changed while it was read; the next run reads it again"
        raise UnreadableError(message)


@step("read again")
def stage_texts(part: Sequence[SourceFile], wanted: Path, staging: Staging) -> list[Path]:
    """Read files again for the texts of some of their rows; returns the staged file, if any.

    Args:
        part: at least one file. Of one that cannot be read now, the replay says what is missing.
        wanted: the texts' hashes, see `Staging.unread`.
        staging: the run's files.
    """
    hashes = np.load(wanted, mmap_mode="r")
    name = f"again-{hashlib.sha256(part[0].path.encode()).hexdigest()}"
    with parquet_batches(staging.texts(name), TEXTS, BATCH_ROWS) as texts:

        def add_texts(source: SourceFile) -> None:
            for batch in read_rows(source):
                found = texts_of(with_text(batch))
                texts.add(found.filter(stand_in(hashes, found.get_column("text_hash"))))

        read_each("read texts again", {source: source for source in part}, add_texts)
    return texts.files
