"""A KnowledgePulse registry: its database, its export, or single traces."""

import shutil
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, cast

import polars as pl
import pyarrow as pa

from kp_batch import bounds
from kp_batch.archive.file_formats.json import reader
from kp_batch.bounds import MOST, TooLargeError, loads
from kp_batch.conversion.conversation.attributes import score_of
from kp_batch.conversion.conversation.messages import Json, as_object
from kp_batch.conversion.formats.json_files import read_json
from kp_batch.conversion.model import (
    Format,
    Input,
    Origin,
    Present,
    ReadItem,
    Rejected,
    Skipped,
    Sniff,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.conversion.rules import Rules
from kp_batch.duck import literal, sql, statement
from kp_batch.errors import KpBatchError, UnreadableError
from kp_batch.schemas import TRACE
from kp_batch.storage.urls import is_database
from kp_batch.text import one_line, time_of

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Cursor

# id, unit_json (None: it is not read again), updated_at, quarantine_status
Row = tuple[str, str | None, str | None, str | None]
_Arrived = pa.RecordBatch | BaseException | None  # None at the end
_WAIT_SECONDS = 0.2
_SECONDS = 10  # to wait for a server, unless the URL says otherwise
_BATCH_BYTES = 1 << 20  # the driver has the rows sent one after another, and holds no more of them
_REMEDIES = {
    "42P01": "name the database of a registry",  # there is no such table
    "42703": "name the database of a registry",  # there is no such column
    "42501": "let this user SELECT from knowledge_units",
}
_REMEDY = (
    "see that the server answers and lets this user in (a password stands in PGPASSWORD, ~/.pgpass "
    "or a service that PGSERVICE names), then import again"
)
_FILES = (".sqlite", ".sqlite3", ".db")
_LOG = "-wal"
_COLUMNS = "PRAGMA table_info(knowledge_units)"
# A view, or a table that is made up as it is read, may be endless: neither has a page.
_IS_STORED = "SELECT rootpage > 0 FROM sqlite_master WHERE name = 'knowledge_units'"
_STATUS = "quarantine_status"
_ORIGIN = ("agent_id", "model", "session", "version")
_OURS = "ReasoningTrace"
_READ_TRACE = reader(pl.Struct(dict(TRACE)))  # as an archive's
_NEVER = datetime.min.replace(tzinfo=UTC)


def state_of(url: str) -> tuple[str | None, str | None]:
    """The state of a database.

    Returns:
        Up to which time its units were updated, in UTC; and a text that is another one if any is
        new, gone, updated or reported on. None where there is no unit.

    Raises:
        KpBatchError: the driver is not installed.
        UnreadableError: it cannot be read now.
    """
    [(until, state)] = _query(url, sql(__name__, "knowledgepulse_state.sql"))
    return until, state


def rows_of(url: str, since: str | None) -> Iterator[Row]:
    """The units of a database, in no special order.

    Args:
        url: its own.
        since: the time that `state_of` gave when it was read before: of units that have not changed
            since then only the ids are read. None for all.

    Raises:
        KpBatchError: the driver is not installed.
        UnreadableError: it cannot be read, or no longer.
    """
    time = time_of(since)
    # In the text, since the driver does not stream what a query with parameters gives.
    since = time.isoformat() if time else "-infinity"
    query = sql(__name__, "knowledgepulse_units.sql", since=literal(since))
    yield from cast("Iterator[Row]", _query(url, query))


def _query(url: str, query: str) -> Iterator[tuple[str | None, ...]]:
    """The rows that a query gives, as texts.

    A thread of its own waits for the server: the driver lets no signal through meanwhile.
    """
    arrived: Queue[_Arrived] = Queue(1)

    def wait() -> None:
        try:
            with _connected(url) as cursor:
                cursor.execute(str(query))  # the driver takes no other kind of text
                for batch in cursor.fetch_record_batch():
                    arrived.put(batch)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 (it is raised where the rows are wanted)
            arrived.put(error)

    Thread(target=wait, daemon=True).start()
    while (batch := _next(arrived)) is not None:
        if isinstance(batch, BaseException):
            raise batch
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _next(arrived: Queue[_Arrived]) -> _Arrived:
    """The next item: asked for again and again, as no signal ends a long wait.

    The driver's own handler of it has the system begin such a wait anew.
    """
    while True:
        with suppress(Empty):
            return arrived.get(timeout=_WAIT_SECONDS)


@contextmanager
def _connected(url: str) -> Generator["Cursor"]:
    """Begin a transaction that can only read."""
    try:
        from adbc_driver_postgresql import StatementOptions, dbapi
    except ImportError as error:
        raise KpBatchError(
            "a PostgreSQL database needs its driver: pip install 'kp-batch[postgres]'"
        ) from error
    base, _, options = url.partition("?")
    options = "&".join(filter(None, [f"connect_timeout={_SECONDS}", options]))
    size = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
    try:
        with (
            dbapi.connect(f"{base}?{options}") as connection,
            connection.cursor(adbc_stmt_kwargs=size) as cursor,
        ):
            cursor.execute("SET TRANSACTION READ ONLY")
            yield cursor
    except (dbapi.Error, pa.ArrowException, OSError) as error:  # the others while rows arrive
        remedy = _REMEDIES.get(getattr(error, "sqlstate", None) or "", _REMEDY)
        raise UnreadableError(f"it cannot be read: {_message_of(error)}; {remedy}") from error


def _message_of(error: Exception) -> str:
    """The message of the server, or of the client that looked for it."""
    text = str(error)
    message = text.partition("ERROR:")[2].partition("\n")[0]
    return one_line(message or text.partition("Failed to connect:")[2] or text)


def inputs(paths: Sequence[str], sniff: Sniff) -> Iterator[Input]:
    """See `Format`."""
    yield from (Input(path) for path in paths if is_database(path))
    all_paths = set(paths)
    for file in by_ending(*_FILES, ".json")([x for x in paths if not is_database(x)], sniff):
        log = f"{file.path}{_LOG}"  # which alone may have all that is new
        yield Input(file.path, (log,) if log in all_paths or Path(log).exists() else ())


def rows(url: str, since: str | None) -> Iterator[ReadItem]:
    """See `Format`."""
    for name, text, updated, status in rows_of(url, since):
        yield Present(name) if text is None else _of_row(name, text, updated, status)


def records(path: Path, sidecars: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`; a database's sidecar is its -wal."""
    if path.name.lower().endswith(_FILES):
        yield from _of_file(path, *sidecars)
        return
    units = _exported(read_json(path))
    if units is None:
        raise UnreadableError("it holds neither a registry's export nor a trace")
    yield from map(_record, units)


def _of_file(path: Path, log: Path | None = None) -> Iterator[SourceRecord | Skipped]:
    """Read without making a file in the database's folder, which may be read-only."""
    try:
        with _opened(path, log or path.with_name(path.name + _LOG)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.LINE_BYTES)
            if database.execute(_IS_STORED).fetchone() == (0,):
                raise UnreadableError("its knowledge_units is a view, and not the registry's table")
            columns = {column[1] for column in database.execute(_COLUMNS)}
            query = statement(
                "SELECT id, unit_json, updated_at, $status FROM knowledge_units",
                status=_STATUS if _STATUS in columns else "null",  # older registries have none
            )
            for row in database.execute(query):
                yield _of_row(*row)
    except sqlite3.DataError as error:  # of a text that is longer than may be
        raise TooLargeError(f"it holds a unit that is too large to be read: {MOST}") from error
    except sqlite3.Error as error:
        raise UnreadableError(f"it is no registry that can be read: {error}") from error


@contextmanager
def _opened(path: Path, log: Path) -> Generator[sqlite3.Connection]:
    """Open read-only; a registry that writes meanwhile has its newest rows in the file's -wal.

    Without the -shm, as in a copy, SQLite would make one; and files of a bucket lie in a folder
    each.
    """
    shared = log.with_name(f"{path.name}-shm")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    with TemporaryDirectory(prefix="kp-import-") as folder:
        if log.exists() and not shared.exists():
            shutil.copy(log, folder)
            path = Path(shutil.copy(path, folder))
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as database:
            yield database


def _of_row(
    name: str, text: str, updated: str | None, status: str | None
) -> SourceRecord | Skipped:
    """A unit's record; of one that cannot be read, with the row's id, until it is read again."""
    try:
        item = _record(loads(text), str(updated), quarantined=status == "quarantined")
    except TooLargeError as error:
        item = Rejected([bounds.TOO_LARGE], str(error))
    except (ValueError, TypeError) as error:
        item = Rejected(["malformed_json"], f"unit_json is no JSON: {error}")
    if isinstance(item, Rejected):
        payload = {"refused": item.reasons, "message": item.message, "updated": str(updated)}
        return SourceRecord(str(name), payload)
    return item


def _exported(content: object) -> Sequence[object] | None:
    payload = as_object(content)
    inner = payload.get("data")
    units = (inner if isinstance(inner, dict) else payload).get("knowledge_units")
    if isinstance(units, list):
        return cast("list[object]", units)
    return [payload] if "@type" in payload or "metadata" in payload else None


def _record(
    unit: object, updated: str = "", *, quarantined: bool = False
) -> SourceRecord | Rejected | Skipped:
    if not isinstance(unit, dict):
        return Rejected(["malformed_json"], "a unit that is no JSON object")
    trace = cast("Json", unit)
    kind = str(trace.get("@type") or _OURS)
    if kind != _OURS:
        return Skipped(kind)
    name = trace.get("id")
    if not isinstance(name, str) or not name:
        return Rejected(["missing_id"], "a trace without an id")
    return SourceRecord(name, {"trace": trace, "updated": updated, "quarantined": quarantined})


def draft(trace: str, records: Sequence[SourceRecord], _: Rules) -> TraceDraft | Rejected:
    """See `Format`: of several units of one id, the one that was updated last counts."""
    payloads = (record.payload for record in reversed(records))
    last: Json = max(payloads, key=lambda payload: time_of(payload["updated"]) or _NEVER)
    if "refused" in last:
        return Rejected(last["refused"], last["message"], id=trace)
    unit = _READ_TRACE(last["trace"])
    metadata, task, outcome = (unit[name] or {} for name in ("metadata", "task", "outcome"))
    steps = unit["steps"] or []
    created = time_of(metadata.get("created_at"))  # when a live engine scored it: at its end
    return TraceDraft(
        id=trace,
        created_at=created,
        ended_at=created,
        objective=task.get("objective") or "",
        steps=steps if all(steps) else [],
        faults=["quarantined"] if last["quarantined"] else [],
        success=metadata.get("success"),
        confidence=score_of(outcome.get("confidence")),
        task_domain=metadata.get("task_domain"),
        origin=Origin(*(metadata.get(name) for name in _ORIGIN)),
        framework=metadata.get("framework"),
        source_skill=unit["source_skill"],
        quality_score=score_of(metadata.get("quality_score")),
        visibility=metadata.get("visibility"),
        privacy_level=metadata.get("privacy_level"),
        result_summary=outcome.get("result_summary"),
        system=task.get("system"),
        tools=task.get("tools"),
    )


FORMAT = Format(
    name="knowledgepulse",
    holds="everything, scores of the live engine included",
    inputs=inputs,
    records=records,
    draft=draft,
    decides=frozenset({"success", "confidence", "task_domain"}),
    prefix="",
    source="registry",
    rows=rows,
)
