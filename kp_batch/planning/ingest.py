"""Reads the archive's files whose content is not known yet, and stages their facts."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.file_faults import UNREADABLE_FILE, Fault, UnreadableError
from kp_batch.archive.ledger import Entry, Ledger
from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import SourceFile, content_digest, described
from kp_batch.archive.validation import reasons
from kp_batch.contracts import arrow_schema
from kp_batch.facts import FACTS_VERSION, id_hash, with_facts, with_text
from kp_batch.planning.state import State
from kp_batch.progress import progress, say
from kp_batch.run import Run
from kp_batch.staging import STAGED_ROWS
from kp_batch.text import printable

Known = dict[str, int | UnreadableError]  # by file_id: its rows, or why it cannot be read
_VERSION = f"-v{FACTS_VERSION}"
# A file that was written this shortly before it was looked at may be written again within the same
# tick of its clock: its time says nothing, and the next run looks at its content once more.
_SETTLED_NS = 2_000_000_000


def read_changed(sources: list[SourceFile], before: Ledger, state: State, run: Run) -> Ledger:
    """Read the files whose content is not known yet: writes `staging.rows`.

    Args:
        sources: the archive's files.
        before: the published ledger.
        state: what is published; rows of forgotten ids are passed over.
        run: the run.

    Returns:
        The ledger of these files.
    """
    looked_at = [each for each in sources if not _is_known(each, before)]
    forgotten = state.table("forgotten").get_column("id_hash")
    known: Known = {**state.rows_by_content()} if looked_at else {}
    now: Ledger = {}
    with (
        _StagedRows(run.staging.rows) as staged_rows,
        progress("reading", len(looked_at), "files") as shown,
    ):
        for source in sources:
            if _is_known(source, before):
                now[source.path] = replace(before[source.path], status="read")
                continue
            entry = _look(source, before, known, forgotten, staged_rows)
            settled = source.mtime_ns < int(run.started_at.timestamp() * 1e9) - _SETTLED_NS
            now[source.path] = entry if settled else replace(entry, mtime_ns=0)
            shown.add(1)
    return now


def _is_known(source: SourceFile, before: Ledger) -> bool:
    entry = before.get(source.path)
    return (
        entry is not None
        and entry.status != "unreadable"  # its cause, a permission say, may be gone
        and entry.source == source
        and source.mtime_ns != 0
        and entry.file_id is not None
        and entry.file_id.endswith(_VERSION)
    )


def _look(
    source: SourceFile,
    before: Ledger,
    known: Known,
    forgotten: pl.Series,
    staged_rows: "_StagedRows",
) -> Entry:
    """Read one file, unless its content is in `known`, which grows with it."""
    entry = Entry(source.path, "read", source.size, source.mtime_ns, None, 0)
    try:
        file_id = _identify(source)
        if file_id not in known:
            known[file_id] = _read(file_id, source, forgotten, staged_rows)
        found = known[file_id]
        if isinstance(found, UnreadableError):
            raise found
        return replace(entry, file_id=file_id, rows=found)
    except UnreadableError as error:
        say(f"warning: {printable(source.path)} is left out: {printable(str(error))}")
        last = before.get(source.path, entry)
        codes = sorted({fault.code for fault in error.faults})
        return replace(
            last,
            status="unreadable",
            size=source.size,
            mtime_ns=source.mtime_ns,
            reasons=codes,
            message=str(error),
        )


def _read(
    file_id: str, source: SourceFile, forgotten: pl.Series, staged_rows: "_StagedRows"
) -> int | UnreadableError:
    """Stage a file's rows. Returns their number, or the error that voids them."""
    try:
        rows = sum(staged_rows.add(file_id, batch, forgotten) for batch in read_rows(source))
        _check_unchanged(source)
    except UnreadableError as error:
        return error
    return rows


def _identify(source: SourceFile) -> str:
    try:
        return content_digest(source) + _VERSION
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise UnreadableError([Fault(UNREADABLE_FILE, reason)]) from error


def _check_unchanged(source: SourceFile) -> None:
    now = None
    with suppress(OSError):
        now = described(source.path)
    if now != source:
        message = "the file changed while it was read; the next run reads it again"
        raise UnreadableError([Fault(UNREADABLE_FILE, message)])


class _StagedRows:
    """The Parquet file of staged rows, a row group a batch."""

    def __init__(self, path: Path) -> None:
        self._schema = arrow_schema(STAGED_ROWS)
        self._writer = pq.ParquetWriter(path, self._schema, compression="lz4")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, file_id: str, rows: pl.DataFrame, forgotten: pl.Series) -> int:
        """Stage a batch of a file's rows; returns how many."""
        facts = with_facts(rows, reasons()).with_columns(file_id=pl.lit(file_id))
        frame = facts.select(list(STAGED_ROWS))
        if len(forgotten):
            frame = frame.filter(~id_hash().is_in(forgotten.implode()).fill_null(value=False))
        self._writer.write_table(frame.to_arrow().cast(self._schema))
        return len(frame)


def reread_texts(sources: Iterable[SourceFile]) -> Iterator[pl.DataFrame]:
    """Read the texts of some files again: frames of text_hash and text."""
    for source in sources:
        with suppress(UnreadableError):  # the replay says which vectors are missing then
            for batch in read_rows(source):
                yield with_text(batch)
