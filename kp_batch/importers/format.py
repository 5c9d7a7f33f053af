"""What a format is: how its files become units, and the units of a trace its draft."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kp_batch.importers.draft import Draft, PassedOver, Refused, Unit
from kp_batch.importers.rules import Rules
from kp_batch.storage.urls import is_database

Read = Callable[[str], bytes]  # the content of a small file
Look = Callable[[str], Any]  # what a file tells; see `Format.tells`
Here = Callable[[str], AbstractContextManager[Path]]  # a file's path on this machine


@dataclass(frozen=True)
class Input:
    """A file to read, and those that say more about it; or a database.

    Attributes:
        path: a file's path, or its URL.
        beside: likewise, of further files that are read with it.
        refused: why it is not read, as other files tell; None if it is.
        since: up to which time a database was read before, as its stamp tells; None to read all.
    """

    path: str
    beside: tuple[str, ...] = ()
    refused: Refused | None = None
    since: str | None = None


def _nothing(_path: str, _content: bytes) -> None: ...


def _id_of(trace: str) -> str:
    return f"kp:trace:{trace}"


@dataclass(frozen=True)
class Format:
    """A system's form of traces.

    Attributes:
        name: on the command line.
        holds: what it has by itself, in words.
        decides: of success, confidence and task_domain, those that need no rule.
        inputs: chooses among the paths of a source, sorted, those that are read; may ask what
            files tell.
        tells: takes a file's path and content, and gives what `inputs` has to know of them: little,
            and of JSON's kinds.
        units: reads an input, whose files are on this machine: its path, and those beside it. May
            raise an UnreadableError, or any error of a damaged file: what came before is void.
        draft: takes all units of a trace, each once and in no special order.
        id_of: gives a trace's id in the archive from its native one.
        rows: reads a database: its URL, and `since` of its input. Of what it refuses, each has an
            id. None for a format of files alone, whose `inputs` choose no database.
    """

    name: str
    holds: str
    inputs: Callable[[Sequence[str], Look], Iterator[Input]]
    units: Callable[[Path, Sequence[Path]], Iterator[Unit | Refused | PassedOver]]
    draft: Callable[[str, Sequence[Unit], Rules], Draft | Refused | PassedOver]
    tells: Callable[[str, bytes], Any] = _nothing
    decides: frozenset[str] = frozenset()
    id_of: Callable[[str], str] = _id_of
    rows: Callable[[str, str | None], Iterator[Unit | Refused | PassedOver]] | None = None

    def read(self, given: Input, here: Here) -> Generator[Unit | Refused | PassedOver]:
        """Read an input, wherever its files are; see `units` and `rows`."""
        if self.rows and is_database(given.path):
            yield from self.rows(given.path, given.since)
            return
        with ExitStack() as held:
            paths = given.path, *given.beside
            file, *beside = [held.enter_context(here(each)) for each in paths]
            yield from self.units(file, beside)


def by_ending(*endings: str) -> Callable[[Sequence[str], Look], Iterator[Input]]:
    """Choose the files with these endings, each by itself."""

    def inputs(paths: Sequence[str], _: Look) -> Iterator[Input]:
        yield from (Input(path) for path in paths if path.lower().endswith(endings))

    return inputs
