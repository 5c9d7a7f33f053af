"""Reads the rows of `runs`, and tells how the settings and formulas of two runs differ."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

# Columns of `runs` that hold JSON. `inputs` stays in the table: it may have an entry for each file
# of the archive, and nothing takes it apart.
_JSON = ("config", "counts", "seconds", "versions", "fingerprints", "published")
_FORMULAS = ("facts", "encoder", "replay", "scoring")
_SETTINGS = ("cache_size", "ttl", "threshold")


@dataclass(frozen=True)
class RunCounts:
    """What a run found and did, in numbers."""

    files: int  # of the archive
    rows: int  # of all content that counts
    accepted: int  # traces that have a score
    embedded: int  # texts without a vector
    reused: int  # texts with one that the replay reads
    replayed: int
    restated: int  # scored anew, for any reason
    reweighted: int  # of these: their weights alone differ
    removed: int
    partitions: int  # days that are written anew
    duplicates: int  # accepted rows whose trace stands again with the same content
    superseded: int  # likewise with other content, later in the archive
    rejected: int  # rows that cannot be scored
    rejected_by_code: dict[str, int]
    unreadable_files: list[str]

    @property
    def numbers(self) -> dict[str, int]:
        """The counts by name, without the last two."""
        return {name: each for name, each in asdict(self).items() if isinstance(each, int)}


@dataclass(frozen=True)
class RunRecord:
    """One row of `runs`, its JSON read."""

    run_id: str
    started_at: datetime
    finished_at: datetime
    status: str  # done | failed
    reason: str | None  # why it failed
    config: Mapping[str, Any]  # the settings, by the names of RescoreConfig
    counts: RunCounts | None  # None: it failed before its plan was made
    seconds: Mapping[str, float]  # of each step, by its name
    versions: Mapping[str, Any]  # of the formulas and of the libraries
    fingerprints: Mapping[str, Mapping[str, int]]  # how many scores bear each id, by kind of id
    published: Mapping[str, Any]  # the manifest as this run left it

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `runs`, whose other columns are ignored."""
        values = {field.name: row[field.name] for field in fields(cls)}
        values |= {name: json.loads(values[name]) for name in _JSON}
        counted = values.pop("counts")
        return cls(**values, counts=RunCounts(**counted) if counted else None)

    @property
    def embedder(self) -> str:
        """The embedder that the run was asked to use."""
        return self.config["embedder"]


def done_runs(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs that are done, in the order in which they started."""
    done = (record for record in records if record.status == "done")
    return sorted(done, key=lambda record: (record.started_at, record.run_id))


def last_done(records: Iterable[RunRecord]) -> RunRecord | None:
    """The run that is done and started last; None if no run is done."""
    done = done_runs(records)
    return done[-1] if done else None


def differences(first: RunRecord, second: RunRecord) -> list[str]:
    """Why the scores of two runs do not compare: other formulas, or another encoder.

    Returns:
        A few words for each difference; nothing if the scores compare.
    """
    differing = [
        f"{name} {first.versions[name]} and {second.versions[name]}"
        for name in _FORMULAS
        if first.versions[name] != second.versions[name]
    ]
    encoders = [", ".join(record.fingerprints["encoder_id"]) for record in (first, second)]
    if encoders[0] != encoders[1]:
        differing.append(f"encoders {encoders[0]} and {encoders[1]}")
    return differing


def changed_settings(
    first: RunRecord, second: RunRecord, domains: Iterable[str | None]
) -> list[str]:
    """Which settings differ between two runs: the cache, the threshold, the weights.

    Args:
        first: the earlier run.
        second: the later run.
        domains: those that both runs scored. If the scores of only one run bear a profile named
            like one of these domains, it was added or removed; any other profile may have come or
            gone with its domain.

    Returns:
        A few words for each setting that differs.
    """
    changed = [
        f"{name.replace('_', ' ')} {first.config[name]} \N{RIGHTWARDS ARROW} {second.config[name]}"
        for name in _SETTINGS
        if first.config[name] != second.config[name]
    ]
    before, after = (_profiles(record) for record in (first, second))
    in_both = before.keys() & after.keys()
    in_one = (before.keys() ^ after.keys()) & set(domains)
    other = [name for name in in_both | in_one if before.get(name) != after.get(name)]
    return [*changed, *(f"weights of {name}" for name in sorted(other))]


def profile_name(profile_id: str) -> str:
    """The name in a profile's id, `NAME-DIGEST-vN`; the name may hold dashes itself."""
    return profile_id.rsplit("-", 2)[0]


def _profiles(record: RunRecord) -> dict[str, set[str]]:
    """The ids of the profiles that the run's scores bear, by the profiles' names."""
    found: dict[str, set[str]] = {}
    for profile_id in record.fingerprints["profile_id"]:
        found.setdefault(profile_name(profile_id), set()).add(profile_id)
    return found
