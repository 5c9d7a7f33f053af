"""What an archive knows of its imports: `_import/state.json`, and the files that it names.

Files beside it are written once, under the number of their import, and count from the moment that
`state.json` names them. An import commits twice: what it has read, before any day is changed, and
that it is done. After a kill between the two, the next one builds the same traces again.
"""

import json
import shutil
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kp_batch.errors import KpBatchError
from kp_batch.imports.archive import OWN, Archive
from kp_batch.imports.records import FORGOTTEN, traces_of
from kp_batch.storage.store import store_at
from kp_batch.storage.urls import is_url
from kp_batch.text import one_line

STATE = f"{OWN}/state.json"
_SOURCES = pl.Schema(
    {
        **dict.fromkeys(("path", "fingerprint", "seen", "sniffed"), pl.String()),
        "since": pl.Int64(),
    }
)
_ANEW = "import the sources into a new folder, and remove this one"
_File = Annotated[str, Field(pattern=r"^[0-9]{6,}-[a-z]+\.parquet$")]


@dataclass(frozen=True)
class KnownSource:
    """A file of a source, as it was when it was read.

    Attributes:
        fingerprint: what it was then, with those that are read with it; another one where it has
            to be read again. None if it was only looked into.
        since: the number of the import that replaced what it had told before.
        seen: what it was when it was looked into.
        sniffed: what it told then, as JSON; see `Format.sniff`.
    """

    fingerprint: str | None = None
    since: int | None = None
    seen: str | None = None
    sniffed: str | None = None


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SkippedSegment(_Model):
    """A segment of records of what is no agent's trace."""

    name: _File
    read: datetime  # when its records were read


class ImportState(_Model):
    """The state of an archive; see `kp_batch.imports.records` for its segments."""

    version: Literal[2] = 2
    format: str = ""  # '' before the first import
    importer: int = 0
    rules: str = "{}"
    number: int = 0  # of the last import that stored what it has read
    is_done: bool = True  # whether that came to its end
    records: tuple[_File, ...] = ()
    skipped: tuple[SkippedSegment, ...] = ()
    sources: _File | None = None
    forgotten: _File | None = None
    standing: dict[str, int] = {}  # how much of each kind is refused in all
    closed: int = 0  # folders that could not be looked into

    @classmethod
    def of(cls, archive: Archive) -> Self:
        """The state of an archive.

        Raises:
            KpBatchError: it is damaged, or of another version; or it is lost, and the days are not.
        """
        path = archive.local_path(STATE)
        if not path.exists():
            if archive.days():
                raise KpBatchError(
                    f"{archive.name} has days, and no {STATE} of this version that tells what they "
                    f"were made of; {_ANEW}"
                )
            return cls()
        try:
            return cls.model_validate_json(path.read_bytes())
        except (ValidationError, UnicodeDecodeError) as error:
            reason = one_line(str(error))
            raise KpBatchError(
                f"{archive.name}/{STATE} is damaged, or of another version ({reason}); {_ANEW}"
            ) from error

    def save(self, archive: Archive) -> None:
        """Let this state count from now on, and remove the files that it does not name."""
        with archive.writing(STATE) as written:
            written.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + "\n", "utf-8")
        archive.remove(name for name in archive.own() - {STATE} if name not in self._files())

    def _files(self) -> set[str]:
        named = (*self.segments, self.sources, self.forgotten)
        return {f"{OWN}/{name}" for name in named if name}

    @property
    def segments(self) -> list[str]:
        """The names of all segments."""
        return [*self.records, *(each.name for each in self.skipped)]

    @property
    def made_by(self) -> dict[str, str]:
        """The metadata of what an import writes."""
        told = {"format": self.format, "importer": self.importer, "rules": self.rules}
        return {f"kp_batch.{name}": str(each) for name, each in told.items()}

    def known_sources(self, archive: Archive) -> dict[str, KnownSource]:
        """The files that were read, or looked into, by their paths."""
        rows = _read(archive, self.sources, _SOURCES).iter_rows(named=True)
        return {row.pop("path"): KnownSource(**row) for row in rows}

    def what_is_forgotten(self, archive: Archive) -> pl.DataFrame:
        """Rows of `records.FORGOTTEN`."""
        return _read(archive, self.forgotten, FORGOTTEN)


def state_file(archive: Archive, name: str) -> Path:
    """The path on this machine of a file that a state names.

    Raises:
        KpBatchError: it is missing.
        OSError: it cannot be fetched.
    """
    path = archive.local_path(f"{OWN}/{name}")
    if not path.exists():
        raise _damaged(archive, name, "it is missing")
    return path


def _read(archive: Archive, name: str | None, schema: pl.Schema) -> pl.DataFrame:
    if name is None:
        return pl.DataFrame(schema=schema)
    with reading_state(archive):
        return pl.read_parquet(state_file(archive, name), schema=schema, glob=False)


@contextmanager
def reading_state(archive: Archive) -> Generator[None]:
    """Name the archive where a file of its state is damaged."""
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        raise _damaged(archive, "*.parquet", str(error)) from error


def _damaged(archive: Archive, name: str, reason: str) -> KpBatchError:
    return KpBatchError(f"{archive.name}/{OWN}/{name} cannot be read: {one_line(reason)}; {_ANEW}")


def store_file(archive: Archive, number: int, kind: str, made: Path) -> str:
    """Store a file under the number of its import; returns its name."""
    with _storing(archive, number, kind) as (name, written):
        shutil.move(made, written)
    return name


def store_frame(archive: Archive, number: int, kind: str, frame: pl.DataFrame) -> str | None:
    """Likewise, store rows; None where there are none."""
    if frame.is_empty():
        return None
    with _storing(archive, number, kind) as (name, written):
        frame.write_parquet(written)
    return name


@contextmanager
def _storing(archive: Archive, number: int, kind: str) -> Generator[tuple[str, Path]]:
    """Give the name of a file, and the path to write it under."""
    name = f"{number:06d}-{kind}.parquet"
    with archive.writing(f"{OWN}/{name}") as written:
        yield name, written


def store_sources(archive: Archive, number: int, sources: Mapping[str, KnownSource]) -> str | None:
    """Likewise, store what is known of the files of sources."""
    rows = [{"path": path, **vars(sources[path])} for path in sorted(sources)]
    return store_frame(archive, number, "sources", pl.DataFrame(rows, schema=_SOURCES))


def holds(archive: str, ids: Collection[str]) -> bool:
    """Whether an archive keeps what was told of any of these traces; not, if none was imported.

    So may one that cannot be looked into, and one in a bucket, whose records are not fetched.

    Args:
        archive: its folder, or a file or a glob within; or a URL.
        ids: of the traces.
    """
    try:
        if is_url(archive):
            return any(each.path == STATE for each in store_at(archive).objects(OWN))
        near = (Path(archive), Path(archive).parent)
        folder = next((each for each in near if (each / STATE).is_file()), None)
        return folder is not None and _tells_of(Archive(str(folder), folder), ids)
    except (KpBatchError, OSError):
        return True


def _tells_of(archive: Archive, ids: Collection[str]) -> bool:
    paths = [state_file(archive, name) for name in ImportState.of(archive).segments]
    traces = {name for each in ids for name in (each, each.removeprefix("kp:trace:"))}
    is_told = pl.col("trace").is_in(list(traces)) & pl.col("file").is_not_null()
    with reading_state(archive):
        return not traces_of(paths, is_told).is_empty()
