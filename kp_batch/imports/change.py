"""A change of an archive: new records, and what follows from them: segments, traces, days."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import polars as pl

from kp_batch.imports.destination import Archive
from kp_batch.imports.job import ImportJob
from kp_batch.imports.join import Join, Segments
from kp_batch.imports.known import (
    check_ids,
    check_paths,
    lies_in,
    refused_files,
)
from kp_batch.imports.records import (
    FORGOTTEN,
    contents_only_in,
    count_missing,
    files_of,
    is_in,
    traces_of,
)
from kp_batch.imports.refusals import NAMES
from kp_batch.imports.rereading import Replaced, read_again, whole_files
from kp_batch.imports.state import (
    ImportState,
    KnownSource,
    SkippedSegment,
    reading_state,
    state_file,
    store_file,
    store_frame,
    store_sources,
)
from kp_batch.imports.waiting import Waiting
from kp_batch.log import warn

_SKIPPED_FOR = timedelta(days=30)  # that records of skipped traces are kept


def now() -> datetime:
    """The clock of imports."""
    return datetime.now(UTC)


def is_expired(skipped: SkippedSegment) -> bool:
    """Whether the records of skipped traces were kept for long enough."""
    return skipped.read < now() - _SKIPPED_FOR


def waiting_of(state: ImportState, archive: Archive) -> Waiting:
    """The traces of an archive that wait."""
    return Waiting(state.waiting_rows(archive), now())


@dataclass(frozen=True)
class Forgotten:
    """What was forgotten."""

    traces: int  # that are removed, or built of fewer records
    records: int  # of sources that are kept out from now on
    files_changed: int  # of the archive


class ArchiveChange:
    """One change of an archive, which nobody else changes meanwhile.

    Args:
        archive: that is changed.
        state: of the archive, as it will be but for new segments.
        known: the files of sources, as they will be known.
        job: has read the new records, and builds traces.
        folder: for what does not fit into memory; it is there.
    """

    def __init__(
        self,
        archive: Archive,
        state: ImportState,
        known: Mapping[str, KnownSource],
        job: ImportJob,
        folder: Path,
    ) -> None:
        self._archive, self._state, self._known = archive, state, known
        self._job, self._folder = job, folder
        self._forgotten = state.forgotten_rows(archive)
        self._waiting = waiting_of(state, archive)
        self._live = [segment for segment in state.skipped if not is_expired(segment)]
        self._segments = self._paths([*state.records, *(segment.name for segment in self._live)])
        self._standing: dict[str, int] = {}

    def _paths(self, names: Sequence[str]) -> list[Path]:
        return [state_file(self._archive, name) for name in names]

    def count_deleted(self, files: Collection[str]) -> int:
        """How many traces files had before, and do not have now."""
        new = self._job.new
        read = [*new.records.runs(), *new.present.runs()]
        with reading_state(self._archive):
            return count_missing(self._segments, read, files)

    def check_known(self, traces: Sequence[str], files: Sequence[str]) -> None:
        """Refuse traces and files, or folders of these, of which nothing is kept; see `forget`.

        Raises:
            KpBatchError: names some of them.
        """
        with reading_state(self._archive):
            if traces:
                forgotten = self._forgotten.filter(pl.col("digest").is_null())["trace"]
                known = pl.concat([traces_of(self._segments), forgotten]).unique()
                id_of = self._job.form.id_of
                check_ids([*map(id_of, traces)], {*map(id_of, known)})
            if files:
                known_files = {path for path, each in self._known.items() if each.fingerprint}
                known_files.update(files_of(self._segments))
                check_paths(files, known_files.union(refused_files(self._archive)))

    def forget(self, traces: Sequence[str], files: Sequence[str]) -> Forgotten:
        """Forget traces, and records that no other files have; see `run.forget`."""
        read = [x.importer for path, x in self._known.items() if lies_in(path, files)]
        importer = min((x for x in read if x is not None), default=self._state.importer)
        with reading_state(self._archive):
            contents = contents_only_in(files, self._segments)
            told = traces_of(self._segments, is_in(files))
        contents = contents.with_columns(importer=pl.lit(importer, pl.Int64))
        ids = pl.DataFrame({"trace": traces}, schema={"trace": pl.String})
        forgotten = pl.concat([self._forgotten, ids, contents], how="diagonal")
        forgotten = forgotten.unique(["trace", "digest"], keep="first", maintain_order=True)
        self._forgotten = forgotten.sort(FORGOTTEN.names(), nulls_last=True)
        touched = pl.concat([ids["trace"], contents["trace"]]).unique()
        self._job.new.touch(pl.concat([touched, told]).unique())
        for trace in traces:
            self._job.refusals.read_trace(self._job.form.id_of(trace))
        self._job.refusals.forgotten += files
        self.build(gone=files)
        self.write_refusals()
        return Forgotten(len(touched), len(contents), self.store())

    def whole(self, files: Mapping[str, bool]) -> set[str]:
        """Of streams that were read again, those that are replaced; see `whole_files`."""
        with reading_state(self._archive):
            return whole_files(files, self._segments, self._job.new.records.runs())

    def read_again(self, files: Collection[str]) -> set[str]:
        """Those of the files that told of a trace which was read again."""
        with reading_state(self._archive):
            return read_again(files, self._segments, self._job.new.records.runs())

    def build(
        self,
        *,
        all_anew: bool = False,
        replaced: Replaced = Replaced(),  # noqa: B008 (it is frozen)
        gone: Sequence[str] | None = None,
    ) -> None:
        """Build the traces that have new records, or of which records are void now.

        Args:
            all_anew: whether all traces are built.
            replaced: what was read again.
            gone: files, and folders of files, that are forgotten, where anything is: then no
                segment stays as it is.
        """
        new, state = self._job.new, self._state
        rewritten = [path for path, known in self._known.items() if known.since == new.number]
        is_rewritten = all_anew or bool(replaced.files) or gone is not None
        self._old = self._old_segments(replaced, gone or (), is_rewritten=is_rewritten)
        with reading_state(self._archive):
            changed = pl.col("file").is_in([*rewritten, *replaced.files])
            new.touch(traces_of(self._segments, changed))
            if not state.is_done:
                new.touch(traces_of(self._segments, pl.col("told") == state.number))
            if self._job.rules.root:
                new.touch(self._waiting.settled)
            folder = self._folder / "segments"
            self._join = Join(new, self._old, self._waiting, folder, all_anew=all_anew)
            self._join.build(self._job.build)

    def _old_segments(
        self, replaced: Replaced, gone: Sequence[str], *, is_rewritten: bool
    ) -> Segments:
        """The segments of before; the new one takes in those that are not much larger."""
        paths = self._paths(self._state.records)
        unchanged, size = len(paths), self._job.new.bytes()
        while unchanged and (is_rewritten or paths[unchanged - 1].stat().st_size <= 2 * size):
            unchanged -= 1
            size += paths[unchanged].stat().st_size
        today = now().date()
        again = [x.name for x in self._live if is_rewritten or x.read.date() == today]
        is_of_another = pl.col("importer").ne_missing(self._state.importer)
        is_of_another &= pl.col("digest").is_not_null()
        return Segments(
            unchanged=paths[:unchanged],
            rewritten=paths[unchanged:],
            skipped=self._paths([x.name for x in self._live if x.name not in again]),
            skipped_rewritten=self._paths(again),
            since={path: known.since for path, known in self._known.items() if known.since},
            replaced=replaced,
            is_registry=self._job.form.source == "registry",
            forgotten=self._forgotten,
            gone=gone,
            closed=self._forgotten.filter(is_of_another)["trace"],
        )

    def write_refusals(self) -> dict[str, int]:
        """Write the refusals into the archive; returns how many of each kind there are in all."""
        self._standing = self._job.refusals.write(self._archive)
        if self._job.refusals.has_damaged_lines:
            names = " or ".join(NAMES.values())
            warn(f"{self._archive.name} has damaged lines in {names}; they are left out")
        return self._standing

    @property
    def kept(self) -> int:
        """How many traces were built of records that this import has not read."""
        return self._join.kept

    def count_expired(self) -> int:
        """How many skipped traces go, as they had no new record for so long."""
        expired = [segment.name for segment in self._state.skipped if segment not in self._live]
        if not expired:
            return 0
        others = [*self._old.unchanged, *self._old.skipped, *self._join.paths]
        return len(set(traces_of(self._paths(expired))).difference(traces_of(others)))

    def store(self, *, kept: int = 0) -> int:
        """Store the records, then days, then that it is done; returns how many days changed.

        Args:
            kept: traces that the next import has to tell of, if this one is killed meanwhile.
        """
        archive, number = self._archive, self._job.new.number
        unchanged = {path.name for path in (*self._old.unchanged, *self._old.skipped)}
        records = [name for name in self._state.records if name in unchanged]
        skipped = [segment for segment in self._state.skipped if segment.name in unchanged]
        kept_path, skipped_path = self._join.paths
        if self._join.rows[0]:
            records.append(store_file(archive, number, "records", partial(shutil.move, kept_path)))
        if self._join.rows[1]:
            name = store_file(archive, number, "skipped", partial(shutil.move, skipped_path))
            skipped.append(SkippedSegment(name=name, read=now()))
        changes = {
            "number": number,
            "is_done": False,
            "kept": kept,
            "records": tuple(records),
            "skipped": tuple(skipped),
            "sources": store_sources(archive, number, self._known),
            "forgotten": store_frame(archive, number, "forgotten", self._forgotten),
            "waiting": store_frame(archive, number, "waiting", self._waiting.rows()),
        }
        state = self._state.model_copy(update=changes)
        state.save(archive)
        changed = self._job.days.upsert(archive, state.metadata)
        done = {"is_done": True, "kept": 0, "standing": self._standing}
        state.model_copy(update=done).save(archive)
        return changed
