"""Reads parts of the archive: names the content of files, and stages the facts and texts of rows.

Each function takes a part and writes files named by it, so that it may be called again, elsewhere.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.archive.file_faults import UNREADABLE_FILE, Fault, UnreadableError
from kp_batch.archive.reading import BATCH_ROWS, read_rows
from kp_batch.archive.source_file import SourceFile
from kp_batch.archive.sources import content_digest, described
from kp_batch.errors import is_of_machine, is_passing
from kp_batch.facts import FACTS_VERSION, id_hash, with_text
from kp_batch.ingest.each_file import Unreadable, read_each
from kp_batch.ingest.hashes import Hashes, forgotten_hashes, stand_in
from kp_batch.ingest.staged_rows import RowGroups, StagedRows, texts_of
from kp_batch.staging import TEXTS, Staging

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


def identify(part: Sequence[SourceFile]) -> list[str | Unreadable]:
    """Name the content of some files: the file_id of each, or why it has none; see `read_each`."""
    return read_each("identify", {source: source for source in part}, _file_id)


def _file_id(source: SourceFile) -> str:
    if source.fault:
        raise UnreadableError([Fault(UNREADABLE_FILE, source.fault)])
    try:
        return content_digest(source) + VERSION
    except OSError as error:
        if is_of_machine(error):
            raise
        reason = error.strerror or str(error)
        raise UnreadableError([Fault(UNREADABLE_FILE, reason)]) from error


def stage_contents(
    part: Sequence[Content], forgotten: Sequence[Path], staging: Staging
) -> StagedPart:
    """Stage the rows of some contents: those of small ones together, of a large one by itself.

    See `read_each`.

    Args:
        part: at least one content.
        forgotten: the files of the table of that name, whose ids are passed over.
        staging: the run's files.
    """
    hashes = forgotten_hashes(forgotten)
    together = StagedRows(staging, f"part-{part[0].file_id}")
    staged: list[StagedRows] = [together]

    def stage(content: Content) -> int:
        count, alone = _stage_any(content, hashes, together, staging)
        staged.extend([alone] if alone else [])
        return count

    with together:
        rows = read_each("stage", {each: each.sources[-1] for each in part}, stage)
    return StagedPart(
        tuple(rows),
        tuple(path for each in staged for path in each.facts),
        tuple(path for each in staged for path in each.texts),
    )


def _stage_any(
    content: Content, forgotten: Hashes, together: StagedRows, staging: Staging
) -> tuple[int, StagedRows | None]:
    """Stage a content from the first of its files that is still there; see `_stage`."""
    for source in content.sources[:-1]:
        try:
            return _stage(content.file_id, source, forgotten, together, staging)
        except UnreadableError as error:
            if not is_passing(error) and is_unchanged(source):  # the content is at fault
                raise
    return _stage(content.file_id, content.sources[-1], forgotten, together, staging)


def _stage(
    file_id: str, source: SourceFile, forgotten: Hashes, together: StagedRows, staging: Staging
) -> tuple[int, StagedRows | None]:
    """Stage the rows of one file; returns their number, and the staged files it has for itself.

    Rows are void if an error comes after them. So content of one batch joins the others only when
    it is read to its end, and larger content has files of its own.
    """
    batches = _rows(file_id, source, forgotten)
    first = list(islice(batches, 2))
    if len(first) < 2:
        _check_unchanged(source)
        for batch in first:
            together.add(batch)
        return sum(map(len, first)), None
    rows = 0
    with StagedRows(staging, file_id) as alone:
        for batch in chain(first, batches):
            alone.add(batch)
            rows += len(batch)
        _check_unchanged(source)
    return rows, alone


def _rows(file_id: str, source: SourceFile, forgotten: Hashes) -> Iterator[pl.DataFrame]:
    """The rows that are not forgotten, with the column `file_id`."""
    for batch in read_rows(source):
        rows = batch.with_columns(file_id=pl.lit(file_id))
        if len(forgotten):
            ids = rows.select(id_hash().fill_null("")).to_series()
            rows = rows.filter(~stand_in(forgotten, ids))
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
        raise UnreadableError([Fault(UNREADABLE_FILE, message)])


def stage_texts(part: Sequence[SourceFile], wanted: Path, staging: Staging) -> list[Path]:
    """Read files again for the texts of some of their rows; returns the staged file, if any.

    Args:
        part: at least one file. Of one that cannot be read now, the replay says what is missing.
        wanted: the texts' hashes, see `Staging.unread`.
        staging: the run's files.
    """
    hashes = np.load(wanted, mmap_mode="r")
    name = f"again-{hashlib.sha256(part[0].path.encode()).hexdigest()}"
    texts = RowGroups(staging.texts(name), TEXTS, BATCH_ROWS)

    def add_texts(source: SourceFile) -> None:
        for batch in read_rows(source):
            found = texts_of(with_text(batch))
            texts.add(found.filter(stand_in(hashes, found.get_column("text_hash"))))

    read_each("read texts again", {source: source for source in part}, add_texts)
    return texts.close()
