"""The PostgreSQL database of a KnowledgePulse registry, read over Arrow within bounded memory."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from kp_batch.duck import literal, sql
from kp_batch.errors import KpBatchError, UnreadableError
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
            with _opened(url) as cursor:
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
        yield from zip(*(each.to_pylist() for each in batch.columns), strict=True)


def _next(arrived: Queue[_Arrived]) -> _Arrived:
    """What arrives next: asked for again and again, as no signal ends a long wait.

    The driver's own handler of it has the system begin such a wait anew.
    """
    while True:
        with suppress(Empty):
            return arrived.get(timeout=_HEARD_SECONDS)


@contextmanager
def _opened(url: str) -> Generator["Cursor"]:
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
