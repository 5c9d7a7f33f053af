"""Weight profiles: how much each dimension counts, by domain, and from which date."""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, date, datetime, time
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from kp_batch.arguments import typed
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import ProfileError
from kp_batch.faults import unknown_key
from kp_batch.files import read_toml
from kp_batch.json_values import SHARE
from kp_batch.text import count_of, time_of

# Raise it with any change to the composite or to an override's effect; part of every profile_id.
SCORING_VERSION = 1
DEFAULT = "default"
_SUM_TOLERANCE = 1e-9
_FROM = "from"  # next to the four weights


@dataclass(frozen=True)
class WeightProfile:
    """The `name` of a profile, and its weights.

    These are `complexity`, `novelty`, `tool_diversity` and `outcome_confidence`, each from 0 to 1.
    They sum to 1 within 1e-9.

    Examples:
        >>> code = kp.WeightProfile("code", 0.2, 0.3, 0.3, 0.2)
        >>> code == kp.load_profiles().versions["code"][0].profile
        True
    """

    name: str
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float

    @property
    def profile_id(self) -> str:
        """The name, a digest of the exact weights, and the version of the formula.

        Examples:
            >>> code.profile_id
            'code-91fc44825369-v1'
        """
        digest = hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}-v{SCORING_VERSION}"


class Version(NamedTuple):
    """The weights of a name from a time on, until its next version."""

    valid_from: datetime | None  # in UTC; None for the beginning
    profile: WeightProfile

    @property
    def date(self) -> str | None:
        """`valid_from` as text, short for the start of a day; texts sort as the times do."""
        moment = self.valid_from
        return _date_text(moment) if moment else None


@dataclass(frozen=True)
class ProfileVersions:
    """The weights of every name at all times; `default` has weights from the beginning.

    A domain takes the weights of its name. It takes those of `default` if its name has none, or
    none yet.
    """

    versions: Mapping[str, tuple[Version, ...]]  # by name, ascending in time

    def at(self, moment: datetime) -> dict[str, WeightProfile]:
        """Return the profiles that are current at a time with a zone, by name."""
        return {name: version.profile for name, version in self.versions_at(moment).items()}

    def versions_at(self, moment: datetime) -> dict[str, Version]:
        """Return the versions that are current at a time with a zone, by name."""
        return {
            name: version
            for name, version in self.named  # the last one that has begun
            if version.valid_from is None or version.valid_from <= moment
        }

    @property
    def profiles(self) -> tuple[WeightProfile, ...]:
        """All profiles, without duplicates."""
        return tuple(dict.fromkeys(version.profile for _, version in self.named))

    @property
    def moments(self) -> list[datetime]:
        """The times at which any weights begin, ascending."""
        return sorted({version.valid_from for _, version in self.named if version.valid_from})

    @property
    def named(self) -> Iterator[tuple[str, Version]]:
        """Yield all versions, each with its name."""
        return ((name, version) for name, versions in self.versions.items() for version in versions)

    def as_json(self) -> dict[str, Any]:
        """Return the weights as JSON; `parse_profiles` makes the same versions from it."""
        tables = {
            name: [_table(version) for version in versions]
            for name, versions in self.versions.items()
        }
        return {
            name: entries[0] if len(entries) == 1 and _FROM not in entries[0] else entries
            for name, entries in tables.items()
        }


@typed
def load_profiles(path: Path | str | None = None) -> ProfileVersions:
    """Load the five built-in profiles, and merge those of a TOML file over them.

    Args:
        path: a file with a table `[profiles.NAME]` of four weights; or with several tables
            `[[profiles.NAME]]`, each valid from the time `from`, which the first one may leave out.
            None: the built-in profiles alone.

    Returns:
        An object with `at(moment)`: the profiles by name at a time; `versions`: all versions of
        each name; `profiles`: each profile once; `as_json()`: tables for `profiles=`.

    Raises:
        ProfileError: the file is missing, unreadable or has faults, which the message lists.

    Examples:
        >>> tables = kp.load_profiles().as_json()
        >>> tables["code"]
        {'complexity': 0.2, 'novelty': 0.3, 'tool_diversity': 0.3, 'outcome_confidence': 0.2}
    """
    if path is None:
        return ProfileVersions(_built_in())
    _, content = read_toml(path, "the profiles file", ProfileError)
    return _over_built_in(content, f"the profiles file {path}")


def extended_profiles(
    profiles: Any, source: str = "the table of profiles that was given"
) -> ProfileVersions:
    """Merge the tables of some profiles over the built-in ones, as `load_profiles` does.

    Args:
        profiles: the tables by name.
        source: where they are, for the message.

    Raises:
        ProfileError: they have faults; the message lists all of them.
    """
    return _over_built_in({"profiles": profiles}, source)


def _over_built_in(content: Mapping[str, Any], source: str) -> ProfileVersions:
    return ProfileVersions({**_built_in(), **_parsed(content, source)})


def parse_profiles(profiles: Mapping[str, Any], source: str) -> ProfileVersions:
    """Read profiles from JSON values, or take them as they are.

    Args:
        profiles: by name, each a `WeightProfile`, or JSON as `ProfileVersions.as_json` returns it;
            `default` is the built-in one if it is missing.
        source: where they are, for the message.

    Raises:
        ProfileError: they have faults; the message lists all of them.
    """
    plain = {
        name: _table(Version(None, value)) if isinstance(value, WeightProfile) else value
        for name, value in profiles.items()
    }
    default = {DEFAULT: _built_in()[DEFAULT]}
    return ProfileVersions(default | _parsed({"profiles": plain}, source))


def _table(version: Version) -> dict[str, Any]:
    begins, profile = version
    dated: dict[str, Any] = {} if begins is None else {_FROM: version.date}
    return dated | {dimension: getattr(profile, dimension) for dimension in DIMENSIONS}


def _date_text(moment: datetime) -> str:
    """Return the text of a time in UTC; see `Version.date`."""
    return moment.date().isoformat() if moment.timetz() == time(tzinfo=UTC) else moment.isoformat()


@cache
def _built_in() -> dict[str, tuple[Version, ...]]:
    text = files("kp_batch.scoring").joinpath("profiles.toml").read_text("utf-8")
    return _parsed(tomllib.loads(text), "the built-in profiles file")


def _parsed(content: Mapping[str, Any], source: str) -> dict[str, tuple[Version, ...]]:
    faults = list(_faults(content))
    if faults:
        counted = count_of(len(faults), "fault")
        raise ProfileError(f"{source} has {counted}: {'; '.join(faults)}")
    return {name: _versions(name, profile) for name, profile in content["profiles"].items()}


def _versions(name: str, profile: Any) -> tuple[Version, ...]:
    """Read tables without a fault; built-in weights are valid before a dated first one."""
    versions = tuple(
        Version(_begin(table), WeightProfile(name, *(float(table[key]) for key in DIMENSIONS)))
        for table in _tables(profile)
    )
    return versions if versions[0].valid_from is None else (*_built_in().get(name, ()), *versions)


def _tables(profile: Any) -> Sequence[Any]:
    return cast("list[Any]", profile) if isinstance(profile, list) else [profile]


def _begin(table: Mapping[str, Any]) -> datetime | None:
    """Return the time from which a table is valid, in UTC; None for the beginning.

    Raises:
        ValueError: it is neither a day nor a time with a zone.
    """
    if _FROM not in table:
        return None
    value = table[_FROM]  # TOML has its own days and times
    text = value.isoformat() if isinstance(value, date) else value
    if time_of(f"{text}Z"):
        raise ValueError(f"from has no time zone: write {text}Z, for example")
    if not (begin := time_of(text)):
        raise ValueError(
            f"from must be a day such as 2026-01-31, or a time with a zone, got {value!r}"
        )
    return begin


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield all faults of a parsed file."""
    for key in sorted(content.keys() - {"profiles"}):
        yield f"unknown key {key!r} (write profiles as [profiles.NAME])"
    profiles = content.get("profiles")
    if not isinstance(profiles, dict) or not profiles:
        yield "no [profiles.NAME] table"
        return
    for name, profile in cast("dict[str, Any]", profiles).items():
        if not name:
            yield "a profile without a name"
        tables = _tables(profile)
        if not tables:
            yield f"{name}: no table of weights"
        for place, table in enumerate(tables, 1):
            label = name if len(tables) == 1 else f"{name} (entry {place})"
            if isinstance(table, dict):
                yield from _weight_faults(label, cast("dict[str, Any]", table))
            else:
                yield f"{label}: expected a table of four weights, got {table!r}"
        yield from _date_faults(name, tables)


def _weight_faults(name: str, weights: dict[str, Any]) -> Iterator[str]:
    keys = (*DIMENSIONS, _FROM)
    yield from (unknown_key(name, key, keys) for key in sorted(weights.keys() - {*keys}))
    for dimension in DIMENSIONS:
        if dimension not in weights:
            yield f"{name}: {dimension} is missing"
        elif not SHARE.allows(weights[dimension]):
            yield f"{name}: {dimension} must be a number from 0 to 1, got {weights[dimension]!r}"
    if all(SHARE.allows(weights.get(dimension)) for dimension in DIMENSIONS):
        total = math.fsum(weights[dimension] for dimension in DIMENSIONS)
        if abs(total - 1) > _SUM_TOLERANCE:
            yield f"{name}: the weights sum to {total:.12g}, not 1"


def _date_faults(name: str, tables: Sequence[Any]) -> Iterator[str]:
    """Yield the faults of the dates of a name's tables."""
    begins: list[datetime] = []
    for place, table in enumerate(tables, 1):
        if not isinstance(table, dict):
            continue
        label = name if len(tables) == 1 else f"{name} (entry {place})"
        try:
            begin = _begin(cast("dict[str, Any]", table))
        except ValueError as error:
            yield f"{label}: {error}"
            continue
        if begin:
            begins.append(begin)
        elif place > 1:
            yield f"{label}: from is missing, which the first entry alone may leave out"
    for before, after in pairwise(begins):
        if before == after:
            yield f"{name}: two entries from {_date_text(after)}"
        elif before > after:
            yield f"{name}: the entry from {_date_text(after)} stands after {_date_text(before)}"
