"""Reads scored traces again: only the archive contains their texts."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple, Protocol, TypeVar

import duckdb

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.reading import read_raw
from kp_batch.archive.sources import stat_file
from kp_batch.archive.validation import reasons
from kp_batch.duck import SQL, sql
from kp_batch.errors import Unread, is_of_machine
from kp_batch.scoring.facts import with_facts

BATCH_ROWS = 2_000
BATCH_CHARS = 16 << 20  # of JSON, unless one trace has more

Trace = dict[str, Any]


class TraceLocation(NamedTuple):
    """The location of a scored trace in the archive."""

    source_file: str  # the path of its file
    row: int  # row in the file, from 0; beyond all rows if it is no longer known
    trace_id: str
    content_hash: str  # hash of its content when it was scored; see `facts.content_hash`


class _HasLocation(Protocol):
    """A `TraceLocation`, or a row with further columns."""

    @property
    def source_file(self) -> str: ...
    @property
    def row(self) -> int: ...
    @property
    def trace_id(self) -> str: ...
    @property
    def content_hash(self) -> str: ...


P = TypeVar("P", bound=_HasLocation)


def find_locations(
    connection: duckdb.DuckDBPyConnection, wanted: str, files: str, facts: str
) -> list[TraceLocation]:
    """Find the locations of some traces in the archive, in the order of files and rows.

    Args:
        connection: runs the SQL.
        wanted: SQL for rows with trace_id, source_file and content_hash.
        files: SQL for the rows of the table `files`.
        facts: SQL for the rows of the table `facts`.
    """
    rows = connection.sql(locations_query(wanted, files, facts)).select(*TraceLocation._fields)
    return sorted(map(TraceLocation._make, rows.fetchall()))


def locations_query(wanted: str, files: str, facts: str) -> SQL:
    """Return the SQL of `find_locations`; its rows have all columns of `wanted`."""
    return sql(__name__, "locations.sql", wanted=wanted, files=files, facts=facts)


def reread(
    locations: Iterable[P], *, most_bytes: int | None = None
) -> Iterator[tuple[P, Trace | Unread]]:
    """Read scored traces again; see `reread_batches`."""
    return chain.from_iterable(reread_batches(locations, most_bytes=most_bytes))


def reread_batches(
    locations: Iterable[P], *, most_bytes: int | None = None
) -> Iterator[list[tuple[P, Trace | Unread]]]:
    """Read scored traces again, as JSON values with all their fields.

    Every file is opened once, and read only as far as needed. A trace is not read if its row has
    another id or content now.

    Args:
        locations: in the order of files, and of rows in each file.
        most_bytes: larger files are not read; None for no limit.

    Yields:
        Some locations at a time, in order, each with its trace, or why it is not read.
    """
    by_file = groupby(locations, key=lambda location: location.source_file)
    texts = chain.from_iterable(_texts(path, of_file, most_bytes) for path, of_file in by_file)
    for batch in _batches(texts):
        yield list(_as_scored(batch))


def _texts(
    path: str, locations: Iterator[P], most_bytes: int | None
) -> Iterator[tuple[P, str, Unread | None]]:
    """Yield the JSON of rows of one file that can be read again, or why a row cannot."""
    pending: deque[P] = deque()  # at most a batch of the file, however many locations there are

    def rows() -> Iterator[int]:
        for location in locations:
            pending.append(location)
            yield location.row

    unread: Unread = "changed"
    try:
        source = stat_file(path)
        if most_bytes is not None and source.size > most_bytes:
            unread = "large"
        else:
            for row, text in read_raw(source, rows()):
                while (location := pending.popleft()).row != row:
                    yield location, "", unread
                yield location, text, None
    except FileNotFoundError:
        unread = "gone"
    except Exception as error:  # file systems and damage raise errors of many kinds
        if is_of_machine(error):
            raise
        unread = "unreadable"
    for location in chain(pending, locations):
        yield location, "", unread


def _batches(
    texts: Iterator[tuple[P, str, Unread | None]],
) -> Iterator[list[tuple[P, str, Unread | None]]]:
    batch: list[tuple[P, str, Unread | None]] = []
    letters = 0
    for location, text, unread in texts:
        if batch and (len(batch) == BATCH_ROWS or letters + len(text) > BATCH_CHARS):
            yield batch
            batch = []
            letters = 0
        batch.append((location, text, unread))
        letters += len(text)
    if batch:
        yield batch


def _as_scored(
    batch: Sequence[tuple[P, str, Unread | None]],
) -> Iterator[tuple[P, Trace | Unread]]:
    """Yield the traces of a batch; one that differs from what was scored is "changed"."""
    traces = [json.loads(text) for _, text, unread in batch if not unread]
    # Checked on the JSON, which is what is shown and written, whatever the file's format: the
    # traces of an export must have the same content.
    facts = with_facts(rows_from_objects("", enumerate(traces)), reasons())
    current = zip(traces, facts.select("trace_id", "content_hash").iter_rows(), strict=True)
    for location, _, unread in batch:
        if unread:
            yield location, unread
        else:
            trace, ids = next(current)
            is_same = ids == (location.trace_id, location.content_hash)
            yield location, trace if is_same else "changed"
