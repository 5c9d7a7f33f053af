"""A KnowledgePulse registry: its database, its export, or single traces."""

import shutil
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa

from kp_batch import limits
from kp_batch.archive.formats.json import reader
from kp_batch.duck import literal, sql, statement
from kp_batch.errors import KpBatchError, UnreadableError
from kp_batch.imports.conversation.attributes import score_of
from kp_batch.imports.formats.json_files import read_json
from kp_batch.imports.model import (
    Format,
    Input,
    Origin,
    Present,
    Rejected,
    Skipped,
    Sniff,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.imports.rules import Rules
from kp_batch.limits import MOST, TooLargeError, loads
from kp_batch.schemas import TRACE
from kp_batch.storage.urls import is_database
from kp_batch.text import one_line, time_of

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Cursor

# id, unit_json (None: it is not read again), updated_at, quarantine_status
Row = tuple[str, str | None, str | None, str | None]
_Arrived = pa.RecordBatch | BaseException | None  # None at the end
_HEARD_SECONDS = 0.2
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
    """What a database is by now.

    Returns:
        Up to which time its units were updated, in UTC; and a text that is another one if any is
        new, gone, updated or reported on. None where there is no unit.

    Raises:
        KpBatchError: the driver is not installed.
        UnreadableError: it cannot be read now.
    """
    [(until, state)] = _asked(url, sql(__name__, "knowledgepulse_state.sql"))
    return until, state


def rows_of(url: str, since: str | None) -> Iterator[Row]:
    """The units of a database, in no special order.

    Args:
        url: its own.
        since: the time that `state_of` told when it was read before: then of units that are no
            other ones by now only the ids are read. None for all.

    Raises:
        KpBatchError: the driver is not installed.
        UnreadableError: it cannot be read, or no longer.
    """
    time = time_of(since)
    # In the text, since the driver does not stream what a query with parameters gives.
    since = time.isoformat() if time else "-infinity"
    yield from cast(
        "Iterator[Row]",
        _asked(url, sql(__name__, "knowledgepulse_units.sql", since=literal(since))),
    )


def _asked(url: str, query: str) -> Iterator[tuple[str | None, ...]]:
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
    """What arrives next: asked for again and again, as no signal ends a long wait.

    The driver's own handler of it has the system begin such a wait anew.
    """
    while True:
        with suppress(Empty):
            return arrived.get(timeout=_HEARD_SECONDS)


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
        raise UnreadableError(f"it cannot be read: {_said(error)}; {remedy}") from error


def _said(error: Exception) -> str:
    """What the server, or the client that looked for it, said."""
    text = str(error)
    said = text.partition("ERROR:")[2].partition("\n")[0]
    return one_line(said or text.partition("Failed to connect:")[2] or text)


def inputs(paths: Sequence[str], sniff: Sniff) -> Iterator[Input]:
    """See `Format`."""
    yield from (Input(path) for path in paths if is_database(path))
    named = set(paths)
    for found in by_ending(*_FILES, ".json")([x for x in paths if not is_database(x)], sniff):
        log = f"{found.path}{_LOG}"  # all that is new may stand there alone
        yield Input(found.path, (log,) if log in named or Path(log).exists() else ())


def rows(url: str, since: str | None) -> Iterator[SourceRecord | Skipped | Present]:
    """See `Format`."""
    for name, text, updated, status in rows_of(url, since):
        yield Present(name) if text is None else _of_row(name, text, updated, status)


def units(path: Path, beside: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`; beside a database is its -wal."""
    if path.name.lower().endswith(_FILES):
        yield from _of_file(path, *beside)
        return
    content = read_json(path)
    found = _exported(content)
    if found is None:
        raise UnreadableError("it holds neither a registry's export nor a trace")
    for each in found:
        yield _unit(each)


def _of_file(path: Path, log: Path | None = None) -> Iterator[SourceRecord | Skipped]:
    """Read without leaving a file beside the database, where none may be written, too."""
    try:
        with _opened(path, log or path.with_name(path.name + _LOG)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.LINE_BYTES)
            if database.execute(_IS_STORED).fetchone() == (0,):
                raise UnreadableError("its knowledge_units is a view, and not the registry's table")
            columns = {each[1] for each in database.execute(_COLUMNS)}
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

    Where only that stands beside the file, as in a copy, SQLite would make another file; and of
    objects, each has a folder of its own.
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
    """Of what cannot be read, a unit with the row's own id: it counts until that is read again."""
    try:
        found = _unit(loads(text), str(updated), quarantined=status == "quarantined")
    except TooLargeError as error:
        found = Rejected([limits.TOO_LARGE], str(error))
    except (ValueError, TypeError) as error:
        found = Rejected(["malformed_json"], f"unit_json is no JSON: {error}")
    if isinstance(found, Rejected):
        told = {"refused": found.reasons, "message": found.message, "updated": str(updated)}
        return SourceRecord(str(name), told)
    return found


def _exported(content: object) -> Sequence[object] | None:
    if not isinstance(content, dict):
        return None
    payload = cast("Mapping[str, Any]", content)
    inner = payload.get("data")
    listed = (inner if isinstance(inner, dict) else payload).get("knowledge_units")
    if isinstance(listed, list):
        return cast("list[object]", listed)
    return [payload] if "@type" in payload or "metadata" in payload else None


def _unit(
    found: object, updated: str = "", *, quarantined: bool = False
) -> SourceRecord | Rejected | Skipped:
    if not isinstance(found, dict):
        return Rejected(["malformed_json"], "a unit that is no JSON object")
    trace = cast("Mapping[str, Any]", found)
    kind = str(trace.get("@type") or _OURS)
    if kind != _OURS:
        return Skipped(kind)
    name = trace.get("id")
    if not isinstance(name, str) or not name:
        return Rejected(["missing_id"], "a trace without an id")
    return SourceRecord(name, {"trace": trace, "updated": updated, "quarantined": quarantined})


def draft(trace: str, found: Sequence[SourceRecord], _: Rules) -> TraceDraft | Rejected | Skipped:
    """See `Format`: of several units of one id, the one that was updated last counts."""
    told_last_first = [cast("Mapping[str, Any]", each.payload) for each in reversed(found)]
    last = max(told_last_first, key=lambda each: time_of(each["updated"]) or _NEVER)
    if "refused" in last:
        reasons, message = cast("list[str]", last["refused"]), cast("str", last["message"])
        return Rejected(reasons, message, id=trace)
    told = _READ_TRACE(last["trace"])
    metadata, task, outcome = (told[name] or {} for name in ("metadata", "task", "outcome"))
    steps = told["steps"] or []
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
        source_skill=told["source_skill"],
        quality_score=score_of(metadata.get("quality_score")),
        visibility=metadata.get("visibility"),
        privacy_level=metadata.get("privacy_level"),
        result_summary=outcome.get("result_summary"),
    )


FORMAT = Format(
    name="knowledgepulse",
    holds="everything, scores of the live engine included",
    inputs=inputs,
    units=units,
    draft=draft,
    decides=frozenset({"success", "confidence", "task_domain"}),
    prefix="",
    source="registry",
    rows=rows,
)
