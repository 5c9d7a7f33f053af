"""Makes the n-th call to the disk, or to a bucket, fail: once, or every call from then on.

Python reports most calls to an audit hook, which may raise. What it does not report is patched:
syncs, writes, and libraries that write files themselves. Only calls below one folder are counted.
"""

import builtins
import errno
import io
import os
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from threading import Lock, local
from typing import Any, Self, cast

import deltalake
import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import transaction
from deltalake.exceptions import DeltaError

from kp_batch.storage.store import Store
from kp_batch.warehouse import file_lists

# What Python reports, with the places of the paths among the arguments.
_REPORTED = {
    "open": (0,),
    "os.listdir": (0,),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.scandir": (0,),
}
_FILLS = {"os.mkdir", "write", "polars", "pyarrow", "duckdb", "delta"}  # these need space
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LOST = {"put_once", "delete"}  # requests whose answer may be lost after they were carried out


@dataclass
class Calls:
    """The calls below a folder, one of which fails.

    Attributes:
        root: the folder.
        fails_at: the number of the call that fails, from 1; 0: none.
        for_good: whether all later calls fail, too.
        made: the calls so far: what was called, and the path.
    """

    root: Path
    fails_at: int = 0
    for_good: bool = False
    made: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _lock: Lock = field(default_factory=Lock)

    @property
    def failed(self) -> tuple[str, str] | None:
        """The first call that failed; None if there were fewer calls."""
        return self.made[self.fails_at - 1] if 0 < self.fails_at <= len(self.made) else None

    def fails(self, what: str, path: str) -> bool:
        """Count a call, and return whether it fails."""
        with self._lock:
            self.made.append((what, path))
            number = len(self.made)
        return number == self.fails_at or (self.for_good and 0 < self.fails_at < number)

    def is_below(self, path: object) -> bool:
        """Whether a path is below the folder; relative paths are not."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.fsdecode(path).startswith(f"{self.root}/")

    def call(self, what: str, path: object, error: Callable[[str, str], Exception]) -> None:
        """Count a call if it is below the folder.

        Raises:
            Exception: it fails.
        """
        if self.is_below(path):
            name = os.fsdecode(cast("str", path))
            if self.fails(what, name):
                raise error(what, name)


_ACTIVE: list[Calls] = []  # at most one
_OWN = local()  # of the thread whose call fails right now: what it leaves is no call


def _counting() -> Calls | None:
    return _ACTIVE[0] if _ACTIVE and not hasattr(_OWN, "fails") else None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _REPORTED or not (calls := _counting()):
        return
    for place in _REPORTED[event]:
        if calls.is_below(arguments[place]):
            what = "open to write" if event == "open" and arguments[2] & _WRITING else event
            calls.call(what, arguments[place], _os_error)
            return


_HOOKED: list[bool] = []  # a hook cannot be removed, so it is added once


def _os_error(what: str, path: str) -> OSError:
    number = errno.ENOSPC if what in _FILLS else errno.EIO
    return OSError(number, os.strerror(number), path)


class _File(FileIO):
    """A file whose writes may fail in the middle."""

    def write(self, data: Any) -> int:
        calls = _counting()
        if calls and calls.fails("write", str(self.name)):
            super().write(memoryview(data).cast("B")[: len(data) // 2])
            raise _os_error("write", str(self.name))
        return super().write(data)


def _opening(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Open files below the folder so that their writes are counted."""

    def opened(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, *more: Any
    ) -> Any:
        calls = _counting()
        is_counted = calls and calls.is_below(file) and mode.strip("tb") in {"w", "a", "x"}
        if not is_counted or buffering == 0:
            return plain(file, mode, buffering, encoding, *more)
        buffered = BufferedWriter(_File(os.fspath(file), mode.strip("tb")))
        return buffered if "b" in mode else TextIOWrapper(buffered, encoding, *more[:2])

    return opened


def _before(
    what: str, plain: Callable[..., Any], path_of: Callable[..., Any]
) -> Callable[..., Any]:
    """Count a library's call that writes a file, and leave half a file if it fails."""

    def called(*args: Any, **options: Any) -> Any:
        path, calls = path_of(*args, **options), _counting()
        if calls and calls.is_below(path) and calls.fails(what, str(path)):
            _leave_half(Path(path))
            raise _error_of(what, str(path))
        return plain(*args, **options)

    return called


def _leave_half(path: Path) -> None:
    if path.parent.is_dir() and not path.is_dir():
        _OWN.fails = True
        path.write_bytes(b"PAR1 half a file")
        del _OWN.fails


def _error_of(what: str, path: str) -> Exception:
    full = os.strerror(errno.ENOSPC)
    if what == "duckdb":
        return duckdb.IOException(f'IO Error: Could not write file "{path}": {full}')
    if what == "delta":
        return DeltaError(f"Generic LocalFileSystem error: Unable to write {path}: {full}")
    return OSError(f"{full} (os error 28): {path}")


class _Connection:
    """A connection of DuckDB whose COPY may fail."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __enter__(self) -> Self:
        self._own.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._own.__exit__(*error)

    def cursor(self) -> "_Connection":
        return _Connection(self._own.cursor())

    def execute(self, query: Any, *values: Any) -> Any:
        calls = _counting()
        if calls and "COPY" in str(query):
            path = f"{calls.root}/copied"
            if calls.fails("duckdb", path):
                raise _error_of("duckdb", path)
        return self._own.execute(query, *values)


class _Sqlite(sqlite3.Connection):
    """A connection of SQLite whose changes may fail."""

    def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
        self._count(query)
        return super().execute(query, *values)

    def executemany(self, query: str, *values: Any) -> sqlite3.Cursor:
        self._count(query)
        return super().executemany(query, *values)

    def executescript(self, query: str) -> sqlite3.Cursor:
        self._count(query)
        return super().executescript(query)

    def _count(self, query: str) -> None:
        is_change = not query.lstrip().startswith(("SELECT", "PRAGMA", "ROLLBACK"))
        calls = _counting()
        if calls and is_change and calls.fails("sqlite", query.split(maxsplit=1)[0]):
            raise sqlite3.OperationalError("disk I/O error")


def _fsync(plain: Callable[[int], None]) -> Callable[[int], None]:
    def synced(descriptor: int) -> None:
        if calls := _counting():
            calls.call("fsync", Path(f"/proc/self/fd/{descriptor}").readlink(), _os_error)
        plain(descriptor)

    return synced


def _connect(plain: Callable[..., Any]) -> Callable[..., Any]:
    def connected(database: Any = ":memory:", *args: Any, **options: Any) -> Any:
        if calls := _counting():
            calls.call("duckdb", database, _error_of)
        return _Connection(plain(database, *args, **options))

    return connected


def _connect_sqlite(plain: Callable[..., Any]) -> Callable[..., Any]:
    def connected(database: Any, *args: Any, **options: Any) -> Any:
        return plain(database, *args, factory=_Sqlite, **options)

    return connected


@contextmanager
def failing_calls(root: Path, fails_at: int = 0, *, for_good: bool = False) -> Generator[Calls]:
    """Count the calls to the disk below a folder, and let one fail."""
    if not _HOOKED:
        _HOOKED.append(True)
        sys.addaudithook(_hook)
    file_lists._read.cache_clear()  # noqa: SLF001 (as in a new process, all lists are read)
    file_lists._published.cache_clear()  # noqa: SLF001
    calls = Calls(root, fails_at, for_good)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _fsync(os.fsync))
        patch.setattr(io, "open", _opening(io.open))
        patch.setattr(builtins, "open", _opening(builtins.open))
        patch.setattr(duckdb, "connect", _connect(duckdb.connect))
        patch.setattr(sqlite3, "connect", _connect_sqlite(sqlite3.connect))
        for owner, name, what, path_of in _LIBRARIES:
            patch.setattr(owner, name, _before(what, getattr(owner, name), path_of))
        _ACTIVE.append(calls)
        try:
            yield calls
        finally:
            _ACTIVE.clear()


_LIBRARIES: tuple[tuple[Any, str, str, Callable[..., Any]], ...] = (
    (pl.LazyFrame, "sink_parquet", "polars", lambda _, path, *__, **___: path),
    (pq.ParquetWriter, "__init__", "pyarrow", lambda _, path, *__, **___: path),
    (pq.ParquetWriter, "write_table", "pyarrow", lambda writer, *_, **__: writer.where),
    (transaction, "create_table_with_add_actions", "delta", lambda path, *_, **__: path),
    (
        deltalake.DeltaTable,
        "create_write_transaction",
        "delta",
        lambda table, *_, **__: table.table_uri.removeprefix("file://"),
    ),
)


@contextmanager
def failing_requests(
    fails_at: int = 0, *, for_good: bool = False, is_lost: bool = False
) -> Generator[Calls]:
    """Count the requests to buckets, and let one fail.

    Args:
        fails_at: the number of the request; see `Calls`.
        for_good: whether all later requests fail, too.
        is_lost: whether changes are carried out, and only their answers are lost.
    """
    calls = Calls(Path("/"), fails_at, for_good)

    def request(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def requested(store: Store, path: Any = "", *args: Any, **options: Any) -> Any:
            if calls.fails(name, f"{store.url}/{path}"):
                if is_lost and name in _LOST:
                    plain(store, path, *args, **options)
                raise OSError(errno.EIO, "no answer", f"{store.url}/{path}")
            return plain(store, path, *args, **options)

        return requested

    def listing(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def requested(store: Store, path: str = "") -> Iterator[Any]:
            yield from request(name, plain)(store, path)

        return requested

    with pytest.MonkeyPatch.context() as patch:
        for name in ("beginning", "delete", "head", "put_once", "read"):
            patch.setattr(Store, name, request(name, getattr(Store, name)))
        for name in ("objects", "pieces"):
            patch.setattr(Store, name, listing(name, getattr(Store, name)))
        yield calls
