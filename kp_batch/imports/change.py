"""Changes an archive: what an import has built goes into the store, then into the days."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kp_batch.conversion.model import Format, Refused, Skipped
from kp_batch.imports.building import Built
from kp_batch.imports.days import Piece, write_days
from kp_batch.imports.destination import Archive
from kp_batch.imports.refusals import NAMES, RefusalCounts, row_of, write_list
from kp_batch.imports.store import STORE, KnownSource, RecordStore, State, Unit, save_done
from kp_batch.imports.traces import ImportCounts

MAX_WAIT = timedelta(days=1)  # for which a unit waits for its root, at "topmost"
_TABLES = """
    PRAGMA new.journal_mode = OFF;
    PRAGMA new.synchronous = OFF;
    CREATE TABLE new.blocks AS SELECT * FROM main.blocks LIMIT 0;
    CREATE TABLE new.units AS SELECT * FROM main.units LIMIT 0;
    CREATE TABLE new.leaving AS SELECT * FROM main.leaving LIMIT 0;
    CREATE TABLE new.refusals AS SELECT * FROM main.refusals LIMIT 0;
    CREATE TABLE new.pieces (day TEXT, key TEXT, rows BLOB);
    CREATE TABLE new.gone (name TEXT);
    CREATE TABLE new.built (id TEXT PRIMARY KEY, day TEXT) WITHOUT ROWID;
    CREATE INDEX new.built_by_day ON built (day);
    CREATE INDEX new.pieces_by_key ON pieces (day, key);
"""

_NOT_LEAVING = """
    DELETE FROM main.leaving
    WHERE EXISTS (SELECT 1 FROM main.units WHERE name = unit AND units.day = leaving.day)
"""


def now() -> datetime:
    """Return the time, for imports."""
    return datetime.now(UTC)


def before(time: timedelta) -> str:
    """Return the time a duration ago, in the store's form."""
    return (now() - time).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Forgotten:
    """The counts of what was forgotten."""

    traces: int  # removed, or rebuilt from fewer records
    records: int  # of sources, kept out from now on
    files_changed: int  # of the archive


@dataclass
class Taken:
    """What an import has counted so far; see `Built`."""

    traces: int = 0
    seen_again: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    counts: ImportCounts = field(default_factory=ImportCounts)
    refusals: RefusalCounts = field(default_factory=RefusalCounts)


class ArchiveChange:
    """One change of an archive, which must be locked.

    Built parts wait in a separate file, so the store stays unchanged until all are there.

    Args:
        archive: the archive to change.
        store: its store.
        form: format of its sources.
        paths: paths of files, by id.
        scratch: path of the separate file.
    """

    def __init__(
        self,
        archive: Archive,
        store: RecordStore,
        form: Format,
        paths: Mapping[int, str],
        scratch: Path,
    ) -> None:
        self._archive, self._store, self._form, self._paths = archive, store, form, paths
        self._files_read: Collection[str] = ()
        self._forgotten_files: Sequence[str] = ()
        self._run = store.connection.execute
        self._run("ATTACH DATABASE ? AS new", [str(scratch)])
        store.connection.executescript(_TABLES)
        [last] = store.values("SELECT coalesce(max(id), 0) FROM main.blocks")
        self._next_block = last + 1
        self._left, self._forgotten = set[int](), list[tuple[str, bytes | None]]()
        self.taken = Taken()

    def take(self, built: Built) -> None:
        """Add a built part."""
        taken, many = self.taken, self._store.connection.executemany
        ids = [*range(self._next_block, self._next_block + len(built.blocks))]
        self._next_block += len(ids)
        units = [
            unit._replace(blocks=(*unit.blocks, *(ids[place] for place in places)))
            for unit, places in built.units
        ]
        self._run("BEGIN")
        many("INSERT INTO new.blocks VALUES (?, ?)", zip(ids, built.blocks, strict=True))
        many("INSERT INTO new.units VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(Unit.row, units))
        many("INSERT INTO new.gone VALUES (?)", ((name,) for name in built.gone))
        many("INSERT INTO new.leaving VALUES (?, ?)", built.leaving)
        many("INSERT INTO new.pieces VALUES (?, ?, ?)", built.pieces)
        many("INSERT OR REPLACE INTO new.built VALUES (?, ?)", built.days.items())
        self._run("COMMIT")
        self._left |= built.left
        for file, owner, refused in built.refused:
            self.refuse(refused, self._paths.get(file, ""), owner=owner)
        self._forgotten += built.forgotten
        taken.traces += built.traces
        taken.seen_again += built.seen_again
        taken.skipped += built.skipped
        taken.counts.add(built.counts)

    def refuse(
        self, refused: Refused, file: str, *, owner: str | None = None, is_file: bool = False
    ) -> None:
        """Add a refusal: of a file that cannot be read, of a part of a file, or of an owner."""
        self.taken.refusals.count(refused, file, is_file=is_file)
        row = row_of(refused, file, owner)
        self._run("INSERT INTO new.refusals VALUES (?, ?, ?, ?)", row)

    def drop(self, item: Refused | Skipped, file: str) -> None:
        """Add an item of a file that is not a record."""
        if isinstance(item, Refused):
            self.refuse(item, file)
        else:
            self.taken.skipped[item.kind] += 1

    def list_refusals(self, read: Collection[str], forgotten: Sequence[str] = ()) -> dict[str, int]:
        """Write the lists of refusals as they will be once this change is stored.

        Args:
            read: files that were read; their former refusals no longer count.
            forgotten: files, and folders of files, whose refusals are all removed.

        Returns:
            The number of refusals of each kind of `NAMES`.
        """
        self._files_read, self._forgotten_files = read, forgotten
        self._run("BEGIN IMMEDIATE")
        try:
            self._store_refusals()
            for kind in NAMES:
                query = "SELECT text FROM main.refusals WHERE waits = ? ORDER BY text"
                texts = self._run(query, [kind == "waiting"])
                write_list(self._archive, kind, (text for (text,) in texts))
            return self._store.unresolved()
        finally:
            self._run("ROLLBACK")

    def _store_refusals(self) -> None:
        many = self._store.connection.executemany
        self._run("DELETE FROM main.refusals WHERE owner IN (SELECT id FROM new.built)")
        # A folder that could not be read is read every time; its path ends with a slash.
        self._run("DELETE FROM main.refusals WHERE owner IS NULL AND file LIKE '%/'")
        own = "DELETE FROM main.refusals WHERE owner IS NULL AND file = ?"
        many(own, ((path,) for path in self._files_read))
        within = own + " OR owner IS NULL AND substr(file, 1, length(?2)) = ?2"
        many(within, ((path.rstrip("/"), f"{path.rstrip('/')}/") for path in self._forgotten_files))
        self._run("INSERT OR IGNORE INTO main.refusals SELECT * FROM new.refusals")

    def store(
        self,
        state: State,
        sources: Mapping[str, KnownSource],
        *,
        expired: str,
        is_done: bool,
        forgotten: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Store the records, then the days, then that it is done; return how many days changed.

        Args:
            state: new state of the store.
            sources: new and changed sources.
            expired: a time. Units that are not an agent's are removed if their last record is
                older.
            is_done: whether the previous import is complete.
            forgotten: what is kept out from now on.
        """
        with self._store.transaction():
            self._store_units(expired, is_done=is_done)
            self._store_refusals()
            many = self._store.connection.executemany
            rows = ((x.id, path, x.stamp, x.seen, x.probed) for path, x in sources.items())
            many("INSERT OR REPLACE INTO main.files VALUES (?, ?, ?, ?, ?)", rows)
            many("INSERT INTO main.forgotten VALUES (?, ?)", [*forgotten, *self._forgotten])
            self._store.save_state(state)
        self._archive.store([STORE])
        changed = write_days(self._archive, self, state.metadata)
        save_done(self._archive, state.number)
        return changed

    def _store_units(self, expired: str, *, is_done: bool) -> None:
        if is_done:
            self._run("DELETE FROM main.leaving")
        self._run("INSERT INTO main.blocks SELECT * FROM new.blocks")
        self._run("INSERT OR REPLACE INTO main.units SELECT * FROM new.units")
        self._run("DELETE FROM main.units WHERE name IN (SELECT name FROM new.gone)")
        for unit in [*self._store.units(self._store.expired(expired)).values()]:
            self._left |= {*unit.blocks}
            self._run("DELETE FROM main.units WHERE name = ?", [unit.name])
        self._run("INSERT OR IGNORE INTO main.leaving SELECT * FROM new.leaving")
        self._run(_NOT_LEAVING)
        self._store.without_dead(self._left)

    def count_expired(self, until: str) -> int:
        """Count the units to remove: not an agent's, and without a new record since this time."""
        names = self._store.expired(until)
        stay = "SELECT name FROM new.units WHERE state IS NOT 'skipped' OR since >= ?"
        return len({*names}.difference(self._store.values(stay, until)))

    def days(self) -> list[str]:
        """See `DayChanges`."""
        return self._store.values("SELECT DISTINCT day FROM new.pieces")

    def ids(self, day: str) -> list[str]:
        """See `DayChanges`."""
        return self._store.values("SELECT id FROM new.built WHERE day = ?", day)

    def pieces(self, day: str) -> Iterator[Piece]:
        """See `DayChanges`."""
        query = "SELECT day, key, rows FROM new.pieces WHERE day = ? ORDER BY key"
        return map(Piece._make, self._run(query, [day]))

    def leaving(self) -> list[tuple[str, str, bool]]:
        """See `DayChanges`."""
        return [(day, self._form.id_of(name), moves) for day, name, moves in self._store.leaving()]
