"""A store in memory whose requests wait for their turn, and may go wrong."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import chain, repeat
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

from kp_batch.storage.store import ConflictError, Object, Store

FAULTS = ("refused", "lost", "again")
KILLS = ("killed before", "killed after")
_PAGE = 4  # objects of one request that lists


class FaultError(OSError):
    """What a store's bad day looks like."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "no answer")


class KilledError(BaseException):
    """What ends a process at once: nothing that it asks for afterwards is done."""


@dataclass(frozen=True, eq=False)
class MemoryStore(Store):
    """The objects of a bucket, as one who asks sees them; an ETag is of the content, as S3's.

    Args:
        url: of the bucket.
        contents: of the objects, by their paths.
        turn: called before each request; returns what becomes of it: it is refused, its answer is
            lost, its answer is lost and it is tried again, its writer is killed before or after it,
            or nothing special.
    """

    contents: dict[str, bytes]
    turn: Callable[[], str | None]

    def _asked(self, answer: Callable[[], Any]) -> Any:
        fault = self.turn()
        if fault == "refused":
            raise FaultError
        if fault == "killed before":
            raise KilledError
        result = answer()
        if fault == "killed after":
            raise KilledError
        if fault == "lost":
            raise FaultError
        return self._asked(answer) if fault == "again" else result

    def _object(self, path: str) -> Object:
        content = self.contents[path]
        return Object(path, len(content), 0, md5(content, usedforsecurity=False).hexdigest())

    def objects(self, below: str = "") -> Iterator[Object]:
        assert not below
        last = ""
        while page := self._asked(lambda: [x for x in sorted(self.contents) if x > last][:_PAGE]):  # noqa: B023
            yield from [self._object(path) for path in page if path in self.contents]
            last = page[-1]

    def head(self, path: str = "") -> Object | None:
        return self._asked(lambda: self._object(path) if path in self.contents else None)

    def read(self, path: str) -> tuple[bytes, Object]:
        def answer() -> tuple[bytes, Object]:
            if path not in self.contents:
                raise FileNotFoundError(path)
            return self.contents[path], self._object(path)

        return self._asked(answer)

    def pieces(self, path: str = "") -> Iterator[bytes]:
        yield self.read(path)[0]

    def put_once(self, path: str, content: bytes | Path, condition: Any) -> str:
        def answer() -> str:
            there = self._object(path).etag if path in self.contents else None
            if condition == "create" and there is not None:
                raise ConflictError(path)
            if isinstance(condition, dict) and condition["e_tag"].strip('"') != there:
                raise ConflictError(path)
            self.contents[path] = content.read_bytes() if isinstance(content, Path) else content
            return self._object(path).etag

        return self._asked(answer)

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            self._asked(lambda: [self.contents.pop(path, None) for path in paths])


class Turns:
    """Lets one of several threads at a time go on, up to its next request.

    Args:
        order: of which one goes on in turn; one that has ended is passed over.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._gates: list[Semaphore] = []
        self._rests = Semaphore(0)

    def take(self, number: int) -> None:
        """Wait for the turn of a thread, which it calls itself."""
        self._rests.release()
        self._gates[number].acquire()

    def run(self, *works: Callable[[], object]) -> None:
        """Do some work in a thread each, until all have ended."""
        alive, errors = set(range(len(works))), list[BaseException]()
        self._gates = [Semaphore(0) for _ in works]

        def go(number: int) -> None:
            self._gates[number].acquire()
            try:
                works[number]()
            except BaseException as error:  # noqa: BLE001 (raised below)
                errors.append(error)
            finally:
                alive.remove(number)
                self._rests.release()

        threads = [Thread(target=go, args=(number,)) for number in alive]
        for thread in threads:
            thread.start()
        for number in chain(self._order, *(repeat(each, 10_000) for each in range(len(works)))):
            if number in alive:
                self._gates[number].release()
                self._rests.acquire()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error
