"""What all calls from Python share: settings by their names in Python, and errors for users."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from inspect import Parameter, signature
from itertools import chain
from numbers import Real
from os import PathLike
from typing import Any, TypeAlias, TypeVar

from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError, explain_fixable
from kp_batch.forked import refuse_forked
from kp_batch.log import listening
from kp_batch.scoring.profiles import extended_profiles
from kp_batch.settings import Settings, field_of

Profiles = str | PathLike[str] | Mapping[str, Any]  # a TOML file, `default`, or its tables
Traces: TypeAlias = Any  # anything that has traces: see `kp_batch.score`
Archive = str | PathLike[str] | Sequence[str | PathLike[str]]
Several = str | tuple[str, ...] | list[str]
Duration = str | timedelta
_Parsed = TypeVar("_Parsed")


Setting: TypeAlias = Any  # the value of a setting of `RescoreConfig`

# Of a run's settings, what the place, the method or its caller has.
_OTHERS = {"project", "archive", "warehouse", "warehouse_id", "preview", "output", "timeout"}
KEYWORDS = tuple(name for name in RescoreConfig.model_fields if name not in _OTHERS)


def show_settings(method: Callable[..., Any], *without: str) -> None:
    """Name the settings of a run in the signature of a method, instead of `**settings`.

    Settings that the warehouse keeps have the default None: they stay as they are.
    """
    *own, _ = signature(method).parameters.values()
    fields = RescoreConfig.model_fields.items()
    settings = [
        Parameter(
            *(name, Parameter.KEYWORD_ONLY),
            default=None if name in Settings.model_fields else field.default,
            annotation=Setting,
        )
        for name, field in fields
        if name in KEYWORDS and name not in without
    ]
    vars(method)["__signature__"] = signature(method).replace(parameters=[*own, *settings])


def config_of(values: Mapping[str, Any]) -> RescoreConfig:
    """Return the config of a run, given its settings by their names in Python.

    Raises:
        SettingError: some are unknown or invalid; the message lists all.
        ProfileError: a file of profiles has faults.
    """
    given = dict(values)
    if given.get("archive"):
        several = (each if isinstance(each, (list, tuple)) else [each] for each in given["archive"])
        given["archive"] = tuple(map(str, chain.from_iterable(several)))
        if not given["archive"]:  # left out it would be that of the last run
            raise SettingError("archive is an empty list; name a file, a folder, a glob or a URL")
    if isinstance(tables := given.get("profiles"), Mapping):  # as those of a file
        given["profiles"] = extended_profiles(tables)
    return RescoreConfig.checked(given, field_of)


def parsed(parse: Callable[[Any], _Parsed], **argument: Any) -> _Parsed:
    """Parse an argument as the command parses its option; None and a timedelta stay.

    Raises:
        SettingError: the value is invalid; the message names the argument.
    """
    [(name, value)] = argument.items()
    try:
        return parse(value) if isinstance(value, (str, Real)) else value
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from error


@contextmanager
def called(*, progress: bool = False) -> Generator[list[str]]:
    """Collect warnings in the yielded list instead of printing them, and explain errors.

    Args:
        progress: whether to show progress bars.

    Raises:
        KpBatchError: also if the disk, the network or another program is at fault.
    """
    refuse_forked()
    with listening(progress=progress) as warnings:
        try:
            yield warnings
        except (Exception, PanicException) as error:
            fixable = explain_fixable(error)
            if fixable is None or fixable is error:
                raise
            raise fixable from error
