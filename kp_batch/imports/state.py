"""What an archive knows of its imports: `_import/state.json`, and the files that it names.

The other files are written once, under the number of their import, and count from the moment that
`state.json` names them. An import commits twice: its records, before any day is changed, and that
it is done. After a kill between the two, the next one builds the same traces again.
"""

import json
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kp_batch.archive.folders import Glob
from kp_batch.errors import KpBatchError
from kp_batch.faults import faults_of
from kp_batch.imports.destination import OWN, Archive
from kp_batch.imports.records import FORGOTTEN, traces_of
from kp_batch.imports.waiting import WAITING
from kp_batch.storage.store import store_at
from kp_batch.storage.urls import is_url
from kp_batch.text import one_line

STATE = f"{OWN}/state.json"
_SOURCES = pl.Schema(
    {
        **dict.fromkeys(("path", "fingerprint", "seen", "sniffed"), pl.String()),
        **dict.fromkeys(("since", "importer"), pl.Int64()),
    }
)
_ANEW = "import the sources into a new folder, and remove this one"
_File = Annotated[str, Field(pattern=r"^[0-9]{6,}-[a-z]+\.parquet$")]


@dataclass(frozen=True)
class KnownSource:
    """A file of a source, as it was when it was read.

    Attributes:
        fingerprint: its stamp then, with those of its sidecars; another one where it has to be
            read again. None if it was only sniffed.
        since: the number of the import that replaced the records that it had before.
        seen: its stamp when it was sniffed.
        sniffed: what came of that, as JSON; see `Format.sniff`.
        importer: the version that read it; if it was only sniffed, the version that did so.
    """

    fingerprint: str | None = None
    since: int | None = None
    seen: str | None = None
    sniffed: str | None = None
    importer: int | None = None


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SkippedSegment(_Model):
    """A segment of records of traces that are no agent's."""

    name: _File
    read: datetime  # when its records were read


class ImportState(_Model):
    """The state of an archive; see `kp_batch.imports.records` for its segments."""

    version: Literal[2] = 2
    format: str = ""  # '' before the first import
    importer: int = 0
    rules: str = "{}"
    number: int = 0  # of the last import that stored its records
    is_done: bool = True  # whether that import stored its days, too
    kept: int = 0  # of that import, until it is done; see `summary.Imported`
    records: tuple[_File, ...] = ()
    skipped: tuple[SkippedSegment, ...] = ()
    sources: _File | None = None
    forgotten: _File | None = None
    waiting: _File | None = None
    standing: dict[str, int] = {}  # how many refusals of each kind there are in all
    closed: int = 0  # folders that could not be read

    @classmethod
    def of(cls, archive: Archive) -> Self:
        """The state of an archive.

        Raises:
            KpBatchError: it is damaged, or of another version; or it is lost, and the days are not.
        """
        path = archive.local_path(STATE)
        if not path.exists():
            if archive.has_days():
                raise KpBatchError(
                    f"{archive.name} has days, and no {STATE} of this version that tells what they "
                    f"were made of; {_ANEW}"
                )
            return cls()
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            reason = faults_of(error, cls, lambda place: ".".join(map(str, place)))
            raise KpBatchError(
                f"{archive.name}/{STATE} is damaged, or of another version ({reason}); {_ANEW}"
            ) from error

    def save(self, archive: Archive) -> None:
        """Replace the state of the archive, and remove the files that this one does not name."""
        with archive.writing(STATE) as path:
            path.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + "\n", "utf-8")
        files = (*self.segments, self.sources, self.forgotten, self.waiting)
        archive.remove(archive.state_files() - {STATE, *(f"{OWN}/{name}" for name in files)})

    @property
    def segments(self) -> list[str]:
        """The names of all segments."""
        return [*self.records, *(segment.name for segment in self.skipped)]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the files of days."""
        return {f"kp_batch.{x}": str(getattr(self, x)) for x in ("format", "importer", "rules")}

    def known_sources(self, archive: Archive) -> dict[str, KnownSource]:
        """The files that were read or sniffed, by their paths."""
        sources = _read(archive, self.sources, _SOURCES)
        # Archives that do not tell it were read by one version.
        rows = sources.with_columns(pl.col("importer").fill_null(self.importer))
        return {row.pop("path"): KnownSource(**row) for row in rows.iter_rows(named=True)}

    def forgotten_rows(self, archive: Archive) -> pl.DataFrame:
        """Rows of `records.FORGOTTEN`."""
        return _read(archive, self.forgotten, FORGOTTEN)

    def waiting_rows(self, archive: Archive) -> pl.DataFrame:
        """Rows of `waiting.WAITING`."""
        return _read(archive, self.waiting, WAITING)


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
        path = state_file(archive, name)
        return pl.read_parquet(path, schema=schema, glob=False, missing_columns="insert")


@contextmanager
def reading_state(archive: Archive) -> Generator[None]:
    """Name the archive where a file of its state is damaged."""
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        raise _damaged(archive, "*.parquet", str(error)) from error


def _damaged(archive: Archive, name: str, reason: str) -> KpBatchError:
    return KpBatchError(f"{archive.name}/{OWN}/{name} cannot be read: {one_line(reason)}; {_ANEW}")


def store_file(archive: Archive, number: int, kind: str, write: Callable[[Path], object]) -> str:
    """Write a file under the number of its import; returns its name."""
    name = f"{number:06d}-{kind}.parquet"
    with archive.writing(f"{OWN}/{name}") as path:
        write(path)
    return name


def store_frame(archive: Archive, number: int, kind: str, frame: pl.DataFrame) -> str | None:
    """Write rows likewise; None where there are none."""
    return None if frame.is_empty() else store_file(archive, number, kind, frame.write_parquet)


def store_sources(archive: Archive, number: int, sources: Mapping[str, KnownSource]) -> str | None:
    """Write what is known of the files of sources likewise."""
    rows = [{"path": path, **vars(sources[path])} for path in sorted(sources)]
    return store_frame(archive, number, "sources", pl.DataFrame(rows, schema=_SOURCES))


def holds(archive: str, ids: Collection[str]) -> bool | None:
    """Whether an archive has records of any of these traces; not, if none was imported.

    None if nobody knows: it is not there, or cannot be read, or is in a bucket, whose records are
    not fetched.

    Args:
        archive: its folder, or a file or a glob within; or a URL.
        ids: of the traces.
    """
    try:
        if is_url(archive):
            is_imported = any(each.path == STATE for each in store_at(archive).objects(OWN))
            return None if is_imported else False
        path = Path(Glob.of(archive).folder)
        if not path.exists():
            return None
        folder = next((each for each in (path, path.parent) if (each / STATE).is_file()), None)
        return folder is not None and _has_records(Archive(str(folder), folder), ids)
    except (KpBatchError, OSError):
        return None


def _has_records(archive: Archive, ids: Collection[str]) -> bool:
    segments = [state_file(archive, name) for name in ImportState.of(archive).segments]
    traces = {name for id_ in ids for name in (id_, id_.removeprefix("kp:trace:"))}
    is_record = pl.col("trace").is_in(list(traces)) & pl.col("file").is_not_null()
    with reading_state(archive):
        return not traces_of(segments, is_record).is_empty()
