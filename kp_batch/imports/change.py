"""A change of an archive: what is told anew, and what follows from it: segments, traces, days."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from kp_batch.imports.archive import Archive
from kp_batch.imports.job import ImportJob
from kp_batch.imports.records import (
    FORGOTTEN,
    Join,
    Segments,
    no_longer_told,
    told_by_these_alone,
    traces_of,
)
from kp_batch.imports.rejects import NAMES
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
from kp_batch.log import warn

_SKIPPED_FOR = timedelta(days=30)  # that records of what is passed over are kept


def now() -> datetime:
    """The clock of imports."""
    return datetime.now(UTC)


def is_expired(skipped: SkippedSegment) -> bool:
    """Whether records of what is passed over were kept for long enough."""
    return skipped.read < now() - _SKIPPED_FOR


@dataclass(frozen=True)
class Forgotten:
    """What was taken back."""

    traces: int  # that are gone, or built of what is left
    records: int  # of sources that are kept out from now on
    files_changed: int  # of the archive


class ArchiveChange:
    """One change of an archive, which nobody else changes meanwhile.

    Args:
        archive: that is changed.
        state: of the archive, as it will be but for what is told.
        known: the files of sources, as they will be known.
        job: has read what is new, and builds traces.
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
        self._forgotten = state.what_is_forgotten(archive)
        self._live = [each for each in state.skipped if not is_expired(each)]
        names = (*state.records, *(each.name for each in self._live))
        self._told = [state_file(archive, name) for name in names]
        self._standing: dict[str, int] = {}

    def no_longer_told(self, files: Collection[str]) -> int:
        """Of how many traces files told before, and do not now."""
        read = [*self._job.new.runs(), *self._job.present.runs()]
        with reading_state(self._archive):
            return no_longer_told(self._told, read, files)

    def forget(self, traces: Sequence[str], files: Sequence[str]) -> Forgotten:
        """Take back traces, and what these files alone told; see `run.forget`."""
        with reading_state(self._archive):
            alone = told_by_these_alone(self._told, files)
        ids = pl.DataFrame({"trace": traces}, schema={"trace": pl.String})
        gone = pl.concat([self._forgotten, ids, alone], how="diagonal").unique()
        self._forgotten = gone.sort(FORGOTTEN.names(), nulls_last=True)
        touched = pl.concat([ids["trace"], alone["trace"]]).unique()
        self._job.new.touch(touched)
        for trace in traces:
            self._job.refusals.read_trace(self._job.form.id_of(trace))
        self._job.refusals.gone += files
        self.build(is_rewritten=True)
        self.write_refusals()
        return Forgotten(len(touched), len(alone), self.store())

    def build(self, *, all_anew: bool = False, is_rewritten: bool = False) -> None:
        """Build the traces of which something new is told, or something told before is void.

        Args:
            all_anew: whether all traces are built.
            is_rewritten: whether no segment stays as it is.
        """
        new, state = self._job.new, self._state
        replaced = [path for path, each in self._known.items() if each.since == new.number]
        self._old = self._segments(is_rewritten=is_rewritten or all_anew)
        with reading_state(self._archive):
            new.touch(traces_of(self._told, pl.col("file").is_in(replaced)))
            if not state.is_done:
                new.touch(traces_of(self._told, pl.col("told") == state.number))
            self._join = Join(new, self._old, self._folder / "segments", all_anew=all_anew)
            self._join.build(self._job.build)

    def _segments(self, *, is_rewritten: bool) -> Segments:
        """The segments of before; the new one takes in those that are not much larger."""
        paths = [state_file(self._archive, name) for name in self._state.records]
        stay, size = len(paths), self._job.new.bytes()
        while stay and (is_rewritten or paths[stay - 1].stat().st_size <= 2 * size):
            stay -= 1
            size += paths[stay].stat().st_size
        today = now().date()
        again = [each for each in self._live if is_rewritten or each.read.date() == today]
        return Segments(
            standing=paths[:stay],
            rewritten=paths[stay:],
            skipped=[state_file(self._archive, x.name) for x in self._live if x not in again],
            skipped_again=[state_file(self._archive, each.name) for each in again],
            since={path: each.since for path, each in self._known.items() if each.since},
            is_registry=self._job.form.source == "registry",
            forgotten=self._forgotten,
        )

    def write_refusals(self) -> dict[str, int]:
        """Tell in the archive what is refused; returns how much of each kind is, in all."""
        self._standing = self._job.refusals.write(self._archive)
        if self._job.refusals.left_out:
            named = " or ".join(NAMES.values())
            warn(f"{self._archive.name} has damaged lines in {named}; they are left out")
        return self._standing

    def expired(self) -> int:
        """How many traces go that are no agent's, as nothing was told of them for so long."""
        gone = [each.name for each in self._state.skipped if each not in self._live]
        traces = traces_of([state_file(self._archive, name) for name in gone])
        stay = [*self._old.standing, *self._old.skipped, *self._join.paths]
        return len(set(traces).difference(traces_of(stay) if gone else ()))

    def store(self) -> int:
        """Store what is told, then days, then that it is done; returns how many days are others."""
        archive, number = self._archive, self._job.new.number
        stay = {each.name for each in (*self._old.standing, *self._old.skipped)}
        records = [name for name in self._state.records if name in stay]
        skipped = [each for each in self._state.skipped if each.name in stay]
        kept, aside = self._join.paths
        if self._join.rows[0]:
            records.append(store_file(archive, number, "records", kept))
        if self._join.rows[1]:
            name = store_file(archive, number, "skipped", aside)
            skipped.append(SkippedSegment(name=name, read=now()))
        told = {
            "number": number,
            "is_done": False,
            "records": tuple(records),
            "skipped": tuple(skipped),
            "sources": store_sources(archive, number, self._known),
            "forgotten": store_frame(archive, number, "forgotten", self._forgotten),
        }
        state = self._state.model_copy(update=told)
        state.save(archive)
        changed = self._job.days.upsert(archive, state.made_by)
        state.model_copy(update={"is_done": True, "standing": self._standing}).save(archive)
        return changed
