"""Reads the rows of `runs`, and compares the formulas and encoders of two runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any, Self

from kp_batch.warehouse.audits import AuditResult
from kp_batch.warehouse.reasons import Reason, formula_changes

# Columns of `runs` that hold JSON. `inputs` stays in the table: it may have an entry for each file
# of the archive, and nothing takes it apart.
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

# The work of a run among `RunCounts`; the others describe the archive.
_PUBLISHED = ("rescored", "reweighted", "removed", "partitions")
_WORK = ("embedded", "reused", "replayed", *_PUBLISHED)


@dataclass(frozen=True)
class RunCounts:
    """The counts of a run: of the archive, and of its work."""

    files: int  # of the archive
    rows: int  # that count, those of `rows_kept` among them
    accepted: int  # traces that have a score
    embedded: int  # texts without a vector
    reused: int  # texts with one that the replay reads
    replayed: int
    rescored: int  # scored anew, for any reason
    reweighted: int  # of these: their weights alone differ
    removed: int
    partitions: int  # days that are written anew
    duplicates: int  # accepted rows whose trace comes again with the same content
    superseded: int  # likewise with other content, later in the archive
    rejected: int  # rows that cannot be scored
    unreadable: int  # files, those in folders that cannot be read among them
    rejected_by_code: dict[str, int]
    unreadable_files: list[str]
    rows_kept: int = 0  # of files that are gone, unreadable or excluded, and were read before
    rows_of_earlier: int = 0  # of these, as an earlier kp_batch read them: it took less of each
    gone: int = 0  # files whose content is in no file that can be read
    excluded: int = 0  # likewise; others that are excluded are not counted
    cut: int = 0  # of the unreadable files: those whose end alone cannot be read
    windows: int | None = None  # embedded for these texts; None: the encoder reads texts whole

    @property
    def without_work(self) -> "RunCounts":
        """The counts of a run of the same archive that had nothing to do."""
        return replace(self, windows=None, **dict.fromkeys(_WORK, 0))

    @property
    def unpublished(self) -> "RunCounts":
        """The counts of a run that has embedded and replayed all this, and published no score."""
        return replace(self, **dict.fromkeys(_PUBLISHED, 0))

    @property
    def numbers(self) -> dict[str, int]:
        """The counts by name, those that are numbers."""
        return {name: count for name, count in asdict(self).items() if isinstance(count, int)}


@dataclass(frozen=True)
class RunRecord:
    """One row of `runs`, its JSON read."""

    run_id: str
    started_at: datetime
    finished_at: datetime
    status: str  # done | failed
    reason: str | None  # why it failed
    note: str | None  # of who ran it
    user: str  # who ran it
    config: Mapping[str, Any]  # the settings, by the names of RescoreConfig
    changes: Sequence[Mapping[str, Any]]  # why it had anything to do: see `reasons.Reason`
    counts: RunCounts | None  # None: it failed before its plan was made
    seconds: Mapping[str, float]  # of each step, by its name
    versions: Mapping[str, Any]  # of the formulas and of the libraries
    fingerprints: Mapping[str, Mapping[str, int]]  # the number of scores by id, by kind of id
    published: Mapping[str, Any]  # `publication`, its name in the log, its `number`, `settings`
    audits: Sequence[AuditResult]  # without the rows

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `runs`, whose other columns are ignored."""
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
        """Whether it is the run of a forget, which has the settings that were current."""
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
    """The runs that are done, in the order in which they were published."""
    done = (record for record in records if record.status == "done")
    return sorted(done, key=lambda record: record.number)


def last_done(records: Iterable[RunRecord]) -> RunRecord | None:
    """The run that is done and was published last; None if no run is done."""
    done = done_runs(records)
    return done[-1] if done else None


def incomparable(first: RunRecord, second: RunRecord) -> list[Reason]:
    """Why the scores of two runs do not compare: other formulas, or another encoder."""
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
    """The name in a profile's id, `NAME-DIGEST-vN`; the name may hold dashes itself."""
    return profile_id.rsplit("-", 2)[0]
