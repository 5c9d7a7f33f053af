"""What every call from Python has: settings by their names in Python, and errors for users."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig, read_values
from kp_batch.errors import SettingError, explain_mendable
from kp_batch.forked import refuse_forked
from kp_batch.log import listening
from kp_batch.scoring.profiles import extended_profiles

Profiles = str | PathLike[str] | Mapping[str, Any]  # a TOML file, `default`, or its tables
Traces: TypeAlias = Any  # anything that has traces: see `kp_batch.score`
Archive = str | PathLike[str] | Sequence[str | PathLike[str]]
Several = str | tuple[str, ...] | list[str]
Duration = str | timedelta


class Settings(TypedDict, total=False):
    """The settings of a run: the names, and the meanings, of `kp-batch run`'s options."""

    exclude: Several
    embedder: str
    precision: str
    cache_size: int
    ttl: str | timedelta
    cache_by: Several
    profiles: Profiles
    threshold: float
    text: bool
    audits: Profiles
    allow: Several
    prune: bool
    restore_vectors: bool
    max_reject_share: str | float
    max_new_rejects: str | int
    max_removed: str | int
    max_unreadable: str | int
    max_gone: str | int
    ray: str | int
    wait: bool | str | timedelta
    accept: bool
    note: str


_LISTS = ("archive", "exclude", "allow")


def config_of(values: Mapping[str, Any]) -> RescoreConfig:
    """The settings of a run by their names in Python.

    Raises:
        SettingError: some are unknown, or cannot be; the message lists all.
        ProfileError: a file of profiles has faults.
    """
    given = {
        name: (value,) if name in _LISTS and isinstance(value, str | Path) else value
        for name, value in values.items()
    }
    if given.get("archive"):
        several = (each if isinstance(each, (list, tuple)) else [each] for each in given["archive"])
        given["archive"] = tuple(map(str, chain.from_iterable(several)))
        if not given["archive"]:  # left out it would be that of the last run
            raise SettingError("archive is an empty list; name a file, a folder, a glob or a URL")
    if isinstance(tables := given.get("profiles"), Mapping):  # as those of a file
        given["profiles"] = extended_profiles(tables, "the table of profiles that was given")
    return read_values(given)


def note_of(note: str | None) -> str | None:
    """A line to keep with a run.

    Raises:
        SettingError: it cannot be one.
    """
    return config_of({"warehouse": "", "note": note}).note


def check(**holds: bool) -> None:
    """Refuse values that cannot be.

    Raises:
        SettingError: one cannot.
    """
    bounds = {"similarity": "above 0, up to 1"}
    for name in (name for name, is_held in holds.items() if not is_held):
        raise SettingError(f"{name} is {bounds.get(name, 'at least 1')}")


@contextmanager
def called(*, progress: bool = False) -> Generator[list[str]]:
    """Work for a caller in Python: what it warns of is in the list, and nothing is printed.

    Args:
        progress: whether bars are shown.

    Raises:
        KpBatchError: also where the disk, the network or another program is at fault.
    """
    refuse_forked()
    with listening(progress=progress) as warnings:
        try:
            yield warnings
        except (Exception, PanicException) as error:
            mendable = explain_mendable(error)
            if mendable is None or mendable is error:
                raise
            raise mendable from error
