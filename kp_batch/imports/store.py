"""What an archive knows of its imports: `_import/records.sqlite`, see `store.sql`.

An import commits twice: its records, before any day is changed, and its number in `_import/done`,
after the days are written. After a kill between the two, the next import builds the same traces
again.
"""

import errno
import json
import sqlite3
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Self

from kp_batch.archive.folders import Glob
from kp_batch.bounds import dump, parse
from kp_batch.errors import WRITTEN_FOLDERS, BusyError, KpBatchError
from kp_batch.imports.blocks import FAULTS, Record, pack, unpack
from kp_batch.imports.destination import OWN, Archive
from kp_batch.storage.store import store_at
from kp_batch.storage.urls import is_url
from kp_batch.text import one_line

STORE, DONE = f"{OWN}/records.sqlite", f"{OWN}/done"
_BEFORE = f"{OWN}/state.json"  # of archives from before the store
STORE_VERSION = 2  # of the tables, and of the blocks in them
_UPGRADES = {  # by the version that each changes
    1: (
        "ALTER TABLE state RENAME COLUMN closed TO unreadable_folders",
        "ALTER TABLE files RENAME COLUMN sniffed TO probed",
        "PRAGMA user_version = 2",
    )
}
LOCK_TIMEOUT_S = 60.0  # to wait for the transaction of another process
_ANEW = "import the sources into a new folder, and remove this one"
_SCHEMA = files(__package__ or "").joinpath("store.sql")


@dataclass(frozen=True)
class State:
    """The only row of the table `state`."""

    format: str = ""  # '' before the first import
    importer: int = 0
    rules: str = "{}"
    number: int = 0
    unreadable_folders: int = 0

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata for the files of days."""
        return {f"kp_batch.{x}": str(getattr(self, x)) for x in ("format", "importer", "rules")}


@dataclass(frozen=True)
class KnownSource:
    """A source's file, as it was when it was read.

    Attributes:
        id: id in the store.
        stamp: its stamp with those of its sidecars; '' to read it again; None if it was only
            probed.
        seen: its stamp when it was probed.
        probed: the result of probing, as JSON; see `Format.probe`.
    """

    id: int
    stamp: str | None = None
    seen: str | None = None
    probed: str | None = None


class Unit(NamedTuple):
    """A row of the table of units."""

    name: str
    blocks: Sequence[int] = ()
    files: Sequence[int] = ()
    bytes: int = 0  # of the records' contents
    number: int = 0
    day: str | None = None
    state: str | None = None
    since: str | None = None
    links: Sequence[str] = ()

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> "Unit":
        """Make a unit from the values of a row."""
        name, blocks, files, *others, links = row
        lists = parse(blocks), parse(files)
        return cls._make((name, *lists, *others, parse(links) if links else ()))

    def row(self) -> tuple[Any, ...]:
        """Return the values of its row."""
        name, blocks, files, *others, links = self
        lists = (dump([*ids]).decode() for ids in (blocks, files))
        return name, *lists, *others, dump([*links]).decode() if links else None


class RecordStore:
    """A store; several processes may read it, and one may write.

    Args:
        path: path of its file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = _connected(path, "rw")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def values(self, query: str, *arguments: Any) -> list[Any]:
        """Return the first column of a query's result."""
        return [value for (value, *_) in self.connection.execute(query, arguments)]

    @property
    def state(self) -> State:
        """The state; that of an empty store before the first import."""
        row = self.connection.execute("SELECT * FROM state").fetchone()
        return State(*row) if row else State()

    def known_sources(self) -> dict[str, KnownSource]:
        """Return the files that were read or probed, by path."""
        rows = self.connection.execute("SELECT path, id, stamp, seen, probed FROM files")
        return {path: KnownSource(*values) for path, *values in rows}

    def units(self, names: Iterable[str]) -> dict[str, Unit]:
        """Return the existing units among these names."""
        query = "SELECT * FROM units WHERE name IN (SELECT value FROM json_each(?))"
        rows = self.connection.execute(query, [json.dumps([*names])])
        return {unit.name: unit for unit in map(Unit.of, rows)}

    def units_of_files(self, ids: Collection[int]) -> Iterator[Unit]:
        """Yield the units that have records from any of these files."""
        if ids:
            for unit in map(Unit.of, self.connection.execute("SELECT * FROM units")):
                if not set(ids).isdisjoint(unit.files):
                    yield unit

    def built_by(self, number: int) -> list[str]:
        """Return the units that the import of this number was the last to build."""
        return self.values("SELECT name FROM units WHERE number = ?", number)

    def waiting(self, until: str) -> list[str]:
        """Return the units that wait, and have had no new record since then."""
        query = "SELECT name FROM units WHERE state = 'waiting' AND since <= ?"
        return self.values(query, until)

    def expired(self, until: str) -> list[str]:
        """Return the units that are not an agent's, and have had no new record since then."""
        return self.values("SELECT name FROM units WHERE state = 'skipped' AND since < ?", until)

    def records(self, units: Iterable[Unit]) -> Iterator[Record]:
        """Yield the records of units, in any order."""
        blocks: dict[int, set[str]] = {}
        for unit in units:
            for block in unit.blocks:
                blocks.setdefault(block, set()).add(unit.name)
        for block, names in sorted(blocks.items()):
            yield from (record for record in self.block(block) if record.unit in names)

    def block(self, number: int) -> Sequence[Record]:
        """Return the records of a block.

        Raises:
            sqlite3.DatabaseError: it is missing, or damaged.
        """
        try:
            [content] = self.values("SELECT records FROM blocks WHERE id = ?", number)
            return [*unpack(content)]
        except FAULTS as error:
            raise sqlite3.DatabaseError(f"block {number} cannot be read: {error}") from error

    def forgotten(self, names: Iterable[str]) -> set[tuple[str, bytes | None]]:
        """Return what is forgotten of units: digests, or None if everything is forgotten."""
        query = "SELECT * FROM forgotten WHERE unit IN (SELECT value FROM json_each(?))"
        return {*self.connection.execute(query, [json.dumps([*names])])}

    @cached_property
    def has_forgotten_ids(self) -> bool:
        """Whether any unit is forgotten as a whole."""
        query = "SELECT EXISTS (SELECT 1 FROM forgotten WHERE digest IS NULL)"
        return bool(self.values(query)[0])

    def leaving(self) -> list[tuple[str, str, bool]]:
        """Return days, units to take out of them, and whether these are in another day."""
        query = """
            SELECT leaving.day, unit, coalesce(units.day, leaving.day) <> leaving.day
            FROM leaving LEFT JOIN units ON name = unit
        """
        return [(day, unit, bool(moves)) for day, unit, moves in self.connection.execute(query)]

    def unresolved(self) -> dict[str, int]:
        """Return how many things are refused, and how many wait."""
        query = (
            "SELECT count(*) FILTER (WHERE NOT waits), count(*) FILTER (WHERE waits) FROM refusals"
        )
        refused, waiting = self.connection.execute(query).fetchone()
        return {"refused": refused, "waiting": waiting}

    def without_dead(self, blocks: Iterable[int]) -> None:
        """Rewrite blocks without the records of units that left them; call it in a transaction."""
        for number in sorted({*blocks}):
            records = self.block(number)
            units = self.units({record.unit for record in records})
            live = {name for name, unit in units.items() if number in unit.blocks}
            if kept := [record for record in records if record.unit in live]:
                if len(kept) < len(records):
                    change = "UPDATE blocks SET records = ? WHERE id = ?"
                    self.connection.execute(change, [pack(kept), number])
            else:
                self.connection.execute("DELETE FROM blocks WHERE id = ?", [number])

    def save_state(self, state: State) -> None:
        """Replace the state; call it in a transaction."""
        self.connection.execute("DELETE FROM state")
        self.connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?)", astuple(state))

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Store everything done within the context, or nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=LOCK_TIMEOUT_S, isolation_level=None, uri=True)
    connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is nowhere in the file
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def create_store(archive: Archive) -> None:
    """Create the store of an archive if there is none."""
    path = archive.folder / STORE
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN_FOLDERS.add(path.parent)
    with reading_store(archive.name), closing(_connected(path, "rwc")) as connection:
        if not _version(connection):
            schema = _SCHEMA.read_text("utf-8")
            connection.executescript(
                f"BEGIN; {schema}; PRAGMA user_version = {STORE_VERSION}; COMMIT"
            )


def _upgrade(store: RecordStore) -> int:
    """Bring a store of an earlier version to the current one, at once; return its version."""
    with store.transaction():
        while (version := _version(store.connection)) in _UPGRADES:  # another process may have
            for change in _UPGRADES[version]:
                store.connection.execute(change)
        return version


def _version(connection: sqlite3.Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


@contextmanager
def opened_store(archive: Archive) -> Generator[RecordStore | None]:
    """Open the store of an archive; None if nothing was imported into it.

    Raises:
        KpBatchError: it is damaged, has another version, or is missing though there are days.
        OSError: the disk is full, or cannot be read or written.
    """
    path = archive.local_path(STORE)
    if not path.exists():
        _check_nothing_is_there(archive)
        yield None
        return
    with reading_store(archive.name), RecordStore(path) as store:
        version = _version(store.connection)
        if not version:  # an import was killed while it made the store
            _check_nothing_is_there(archive)
            yield None
            return
        if version in _UPGRADES:
            version = _upgrade(store)
        if version != STORE_VERSION:
            raise KpBatchError(
                f"{archive.name}/{STORE} is of another version ({version}); install the version "
                f"of kp-batch that made it, or {_ANEW}"
            )
        if not store.state.format and archive.has_days():
            raise _lost(archive)
        yield store


def _check_nothing_is_there(archive: Archive) -> None:
    if archive.local_path(_BEFORE).exists():
        raise KpBatchError(
            f"an earlier version of kp-batch made {archive.name}, and only runs can read it; "
            "import its sources into a new folder with kp-batch import FORMAT SOURCES -o FOLDER, "
            "and forget there again what was forgotten here"
        )
    if archive.has_days():
        raise _lost(archive)


def _lost(archive: Archive) -> KpBatchError:
    return KpBatchError(
        f"{archive.name} has lost {STORE}, which has the records of its traces; {_ANEW}"
    )


@contextmanager
def reading_store(archive: str) -> Generator[None]:
    """Translate errors of SQLite and of blocks into an import's own words."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise _explained(archive, error) from error


def _explained(archive: str, error: sqlite3.Error) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, "No space left on device", f"{archive}/{STORE}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(f"another process is writing to {archive}; try again when it has ended")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return PermissionError(errno.EACCES, str(error), f"{archive}/{STORE}")
    if code == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, str(error), f"{archive}/{STORE}")
    return _damaged(archive, error)


def _damaged(archive: str, error: Exception) -> KpBatchError:
    return KpBatchError(f"{archive}/{STORE} is damaged: {one_line(str(error))}; {_ANEW}")


def is_done(archive: Archive, number: int) -> bool:
    """Whether the days of the import of this number were written."""
    path = archive.local_path(DONE)
    return number == 0 or (path.exists() and path.read_bytes() == _done(number))


def save_done(archive: Archive, number: int) -> None:
    """Note that the days of the import of this number were written."""
    with archive.writing(DONE) as path:
        path.write_bytes(_done(number))


def _done(number: int) -> bytes:
    return b"%d\n" % number


def has_records_of(archive: str, ids: Collection[str]) -> bool | None:
    """Whether an archive has records of any of these traces; False if none was imported.

    None if that is unknown: the archive is missing, unreadable, or in a bucket, whose records are
    not fetched.

    Args:
        archive: its folder, or a file or a glob in it; or a URL.
        ids: ids of the traces.
    """
    try:
        if is_url(archive):
            is_imported = any(each.path == STORE for each in store_at(archive).objects(OWN))
            return None if is_imported else False
        path = Path(Glob.of(archive).folder)
        if not path.exists():
            return None
        folder = next((each for each in (path, path.parent) if (each / STORE).is_file()), None)
        return folder is not None and _has_units(Archive(str(folder), folder), ids)
    except (KpBatchError, OSError):
        return None


def _has_units(archive: Archive, ids: Collection[str]) -> bool:
    names = {name for id_ in ids for name in (id_, id_.removeprefix("kp:trace:"))}
    with opened_store(archive) as store:
        return bool(store and store.units(names))
