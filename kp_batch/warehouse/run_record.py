"""Read the rows of `runs`, and compare the formulas and encoders of two runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any, Self

from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.reasons import Reason, formula_changes

# Columns of `runs` with JSON. `inputs` stays in the table: it may have an entry for each file of
# the archive, and nothing parses it.
_JSON = (
    "config",
    "changes",
    "counts",
    "seconds",
    "versions",
    "fingerprints",
    "published",
    "audits",
)

# The counts of work; the others in `RunCounts` describe the archive.
_PUBLISHED = ("rescored", "reweighted", "removed", "partitions")
_WORK = ("embedded", "reused", "replayed", *_PUBLISHED)


@dataclass(frozen=True)
class RunCounts:
    """The counts of a run: of the archive, and of its work."""

    files: int  # in the archive
    rows: int  # rows that count, including `rows_kept`
    accepted: int  # traces with a score
    embedded: int  # texts without a vector
    reused: int  # texts whose vector exists, and that the replay reads
    replayed: int
    rescored: int  # scored again, for any reason
    reweighted: int  # of these, those with only different weights
    removed: int
    partitions: int  # days that are written
    duplicates: int  # accepted rows whose trace comes later again with the same content
    superseded: int  # accepted rows whose trace comes later again with other content
    rejected: int  # rows that cannot be scored
    unreadable: int  # files, including those in unreadable folders
    rejected_by_code: dict[str, int]
    unreadable_files: list[str]
    rows_kept: int = 0  # rows in files that were read before, and are gone, unreadable or excluded
    rows_of_earlier: int = 0  # of these, those read by an earlier kp_batch
    gone: int = 0  # files whose content is in no readable file
    excluded: int = 0  # excluded files whose content is in no readable file
    cut: int = 0  # unreadable files of which only the end cannot be read
    windows: int | None = None  # embedded windows; None: the encoder reads whole texts

    @property
    def without_work(self) -> "RunCounts":
        """Return the counts of a run of the same archive with nothing to do."""
        return replace(self, windows=None, **dict.fromkeys(_WORK, 0))

    @property
    def unpublished(self) -> "RunCounts":
        """Return the counts of a run that has done the work, but published no scores."""
        return replace(self, **dict.fromkeys(_PUBLISHED, 0))

    @property
    def numbers(self) -> dict[str, int]:
        """Return the counts by name, without those that are not numbers."""
        return {name: count for name, count in asdict(self).items() if isinstance(count, int)}


@dataclass(frozen=True)
class RunRecord:
    """One row of `runs`, with its JSON parsed."""

    run_id: str
    started_at: datetime
    finished_at: datetime
    status: str  # done | failed
    reason: str | None  # why it failed
    note: str | None  # the note of who ran it
    user: str  # who ran it
    config: Mapping[str, Any]  # the settings, by the names of RescoreConfig
    changes: Sequence[Mapping[str, Any]]  # why it had work to do: see `reasons.Reason`
    counts: RunCounts | None  # None: it failed before its plan was made
    seconds: Mapping[str, float]  # seconds of each step, by its name
    versions: Mapping[str, Any]  # versions of formulas and libraries
    fingerprints: Mapping[str, Mapping[str, int]]  # for each kind of id, the number of scores by id
    published: Mapping[str, Any]  # `publication`, its name in the log, its `number`, `settings`
    audits: Sequence[AuditResult]  # without the rows

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `runs`; its other columns are ignored."""
        values = {field.name: row[field.name] for field in fields(cls)}
        values |= {name: json.loads(values[name]) for name in _JSON}
        counts = values.pop("counts")
        audits = tuple(AuditResult(**result) for result in values.pop("audits"))
        return cls(**values, counts=RunCounts(**counts) if counts else None, audits=audits)

    @property
    def number(self) -> int:
        """The number of its publication, which orders the runs, whatever the clocks say."""
        return self.published["number"]

    @property
    def forgets(self) -> bool:
        """Whether it is the run of a forget, which keeps the current settings."""
        return any(change["code"] == "forgotten" for change in self.changes)

    @property
    def embedder(self) -> str:
        """The embedder in the run's config."""
        return self.config["embedder"]

    @property
    def precision(self) -> str:
        """The precision in the run's config."""
        return self.config["precision"]

    @property
    def shows_text(self) -> bool:
        """Whether the report shows texts of traces."""
        return self.config["trace_text"]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The warehouse's settings after the run."""
        return self.published["settings"]


def done_runs(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the runs that are done, in the order in which they were published."""
    done = (record for record in records if record.status == "done")
    return sorted(done, key=lambda record: record.number)


def last_done(records: Iterable[RunRecord]) -> RunRecord | None:
    """Return the done run that was published last; None if no run is done."""
    done = done_runs(records)
    return done[-1] if done else None


def incomparable(first: RunRecord, second: RunRecord) -> list[Reason]:
    """Yield why the scores of two runs are not comparable: other formulas, or another encoder."""
    changed = formula_changes(first.versions, second.versions)
    if same_encoders(first, second):
        return [*changed]
    old, new = (sorted(record.fingerprints["encoder_id"]) for record in (first, second))
    words = f"encoder {', '.join(old)} \N{RIGHTWARDS ARROW} {', '.join(new)}"
    return [*changed, Reason("encoder", words, old, new)]


def same_encoders(first: RunRecord, second: RunRecord) -> bool:
    """Whether the scores of two runs have the same encoders, or one of them has no scores."""
    old, new = (record.fingerprints["encoder_id"].keys() for record in (first, second))
    return not old or not new or old == new


def profile_name(profile_id: str) -> str:
    """Return the name in a profile's id, `NAME-DIGEST-vN`; the name may contain dashes."""
    return profile_id.rsplit("-", 2)[0]
