"""The settings of a run: the only place for their names, defaults, bounds and descriptions.

The models are the tables of a project's file. They define the fields of `RescoreConfig`, the
options of the command line and their help, the keywords in Python, Prefect's form, and the file
that `init` writes. They also check the settings that a warehouse keeps.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from kp_batch.embedding.precision import Precision
from kp_batch.errors import SettingError
from kp_batch.faults import Place, faults_in, faults_of
from kp_batch.json_values import SHARE
from kp_batch.limits import parse_limit, parse_share
from kp_batch.novelty.cache_settings import format_cache_by, parse_cache_by
from kp_batch.scoring.profiles import ProfileVersions, load_profiles, parse_profiles
from kp_batch.text import format_duration, parse_duration, parse_keep
from kp_batch.warehouse.audits import Audits as AuditSet
from kp_batch.warehouse.audits import load_audits, parse_audits

EMBEDDERS = ("minilm", "hashing", "none")  # any other value is the name of a model
NONE = "none"  # a value; leaving it out means something else
BUILT_IN = "default"  # means the built-in profiles
NO_WAIT = timedelta(0)
_WORKERS = 1_024  # of one machine


@dataclass(frozen=True)
class Metavar:
    """The placeholder for a type's value in help."""

    name: str


def _with_absolute_folder(embedder: str, info: ValidationInfo) -> str:
    """Return the full path of a model's folder, because it is part of what names scores."""
    folder = Path(info.context or "").resolve() / embedder
    return str(folder) if embedder not in EMBEDDERS and folder.is_dir() else embedder


def _parse_exclusion(text: str) -> str:
    from kp_batch.archive.excluding import parse_exclusion  # and Polars, which takes long to import

    return parse_exclusion(text)


def _parse_text(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _parse_duration(value: Any) -> timedelta | None:
    if isinstance(value, timedelta):
        if value <= timedelta(0) or value % timedelta(seconds=1):
            raise ValueError(f"a duration must be a positive number of whole seconds, got {value}")
        return value
    if value is None or isinstance(value, str):
        return None if value is None else parse_duration(value)
    raise ValueError(f"a duration must be a text such as 90m, got {value!r}")


def _parse_keep(value: Any) -> timedelta | None:
    is_text = isinstance(value, str) and value != NONE
    return parse_keep(value) if is_text else _parse_duration(value)


def _parse_wait(value: Any) -> timedelta:
    """Parse how long to wait; True means without end, and False not at all."""
    if isinstance(value, bool) or value == "true":
        return timedelta.max if value else NO_WAIT
    if value in (NO_WAIT, timedelta.max):
        return value
    if isinstance(value, str | timedelta):
        return _parse_duration(value) or NO_WAIT
    raise ValueError(f"a wait must be true, false or a duration such as 90m, got {value!r}")


def _format_wait(wait: timedelta) -> bool | str:
    return wait == timedelta.max if wait in (NO_WAIT, timedelta.max) else format_duration(wait)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_workers(ray: str | None) -> str | None:
    if ray is not None and re.fullmatch(r"-?[0-9]+", ray) and not 1 <= int(ray) <= _WORKERS:
        raise ValueError(f"it must be from 1 to {_WORKERS:,} workers, got {ray}")
    return ray


def _load_or_parse(
    load: Callable[[str | Path], Any], parse: Callable[[Mapping[str, Any], str], Any], what: str
) -> BeforeValidator:
    """Load the file, or the set that a word means, or take the tables of such a file themselves."""

    def validate(value: Any) -> Any:
        if isinstance(value, str | Path):
            return load(value)
        if isinstance(value, Mapping):
            return parse(cast("Mapping[str, Any]", value), f"the table of {what} that was given")
        return value

    return BeforeValidator(validate)


def _json_of(*types: str) -> WithJsonSchema:
    """Return the JSON type that a form shows for a type."""
    several: list[dict[str, Any]] = [{"type": each} for each in types]
    return WithJsonSchema({"anyOf": several} if several[1:] else several[0])


ONE_OR_MORE = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
Glob = Annotated[str, AfterValidator(_parse_exclusion), Metavar("GLOB")]
Duration = Annotated[
    timedelta | None,
    BeforeValidator(_parse_duration),
    PlainSerializer(format_duration, return_type=str),
    _json_of("string"),
    Metavar("DURATION"),
]
# The validator that stands last is called first.
Keep = Annotated[Duration, BeforeValidator(_parse_keep)]
CacheBy = Annotated[
    tuple[str, ...],
    _parse_text(parse_cache_by),
    AfterValidator(lambda names: parse_cache_by(format_cache_by(names))),  # of Python, too
    PlainSerializer(format_cache_by, return_type=str),
    _json_of("string"),
]
Profiles = Annotated[
    ProfileVersions,
    _load_or_parse(
        lambda file: load_profiles(None if str(file) == BUILT_IN else file),
        parse_profiles,
        "profiles",
    ),
    PlainSerializer(ProfileVersions.as_json),
    _json_of("string"),
    Metavar("FILE"),
]
Audits = Annotated[
    AuditSet,
    _load_or_parse(
        lambda file: AuditSet({}) if str(file) == NONE else load_audits(file),
        parse_audits,
        "audits",
    ),
    PlainSerializer(AuditSet.as_json),
    _json_of("string"),
    Metavar("FILE"),
]
Wait = Annotated[
    timedelta,
    BeforeValidator(_parse_wait),
    PlainSerializer(_format_wait),
    _json_of("boolean", "string"),
    Metavar("[DURATION]"),
]
Ray = Annotated[
    str | None,
    BeforeValidator(lambda value: str(value) if _is_whole(value) else value),
    AfterValidator(_check_workers),
    _json_of("string", "integer", "null"),
]
CacheSize = Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)]
Threshold = Annotated[float, Field(ge=SHARE.least, le=SHARE.most)]
Limit = Annotated[
    str | None,
    BeforeValidator(lambda value: value if value is None else parse_limit(value)),
    _json_of("integer", "string"),
    Metavar("LIMIT"),
]
Share = Annotated[str, BeforeValidator(parse_share), _json_of("number", "string"), Metavar("SHARE")]


def metavar_of(field: FieldInfo) -> str | None:
    """Return the placeholder for a setting's value in help, or for each of its values."""
    of_each = [getattr(each, "__metadata__", ()) for each in get_args(field.annotation)]
    marks = (mark for marks in (field.metadata, *of_each) for mark in marks)
    return next((mark.name for mark in marks if isinstance(mark, Metavar)), None)


def field_of(place: Place) -> str:
    """Return the field name of a place in settings."""
    return str(place[0]) if place else ""


def option_of(place: Place) -> str:
    """Return the option of a place in settings."""
    return f"--{field_of(place).replace('_', '-')}" if place else ""


class SettingsModel(BaseModel):
    """Settings by their names; others are refused."""

    # Most commands check few tables: the checks of a table are built at its first use.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def checked(
        cls,
        values: object,
        named: Callable[[Place], str] | None = None,
        said: str = "{}",
        error: type[SettingError] = SettingError,
    ) -> Self:
        """Read values by their names, or return a table as it is.

        Args:
            values: the values, for example of a form.
            named: returns the user's name of a place in them; None: the option.
            said: the message, with `{}` for the faults.
            error: the type of the error.

        Raises:
            SettingError: some settings are unknown or not possible; the message lists all of them.
            KpBatchError: a file that a setting names has faults.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as invalid:
            faults = faults_of(invalid, cls, named or option_of)
            raise error(said.format(faults)) from invalid

    @property
    def given(self) -> dict[str, Any]:
        """Return the values that are not left out."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class SettingsTable(SettingsModel):
    """`[settings]`: those of `Settings`, except weights and audits, which have their own tables."""

    embedder: Annotated[str, AfterValidator(_with_absolute_folder)] = Field(
        "minilm",
        min_length=1,
        description="minilm, hashing, none, or any sentence-transformers folder or id.",
    )
    precision: Precision = Field(
        "float32",
        description="float32, or bf16, which is faster on a processor or GPU that supports it.",
    )
    cache_size: CacheSize = Field(1_000, description="How many vectors a cache holds.")
    ttl: Duration = Field(
        None,
        description="How long a vector stays in a cache, such as 90m, 12h or 7d; none: no limit.",
    )
    cache_by: CacheBy = Field(
        (),
        description="Which traces share a cache: those with the same agent_id, framework, "
        "task_domain, or key of a folder such as host=a; + joins several; none: all.",
    )
    threshold: Threshold = Field(
        0.75,
        description="The score that traces must reach, 0 to 1, for example to be exported.",
    )
    trace_text: bool = Field(
        default=True,
        description="Show texts of traces in the report; compare and explain always do.",
    )
    reject_text: bool = Field(
        default=True,
        description="Keep the JSON of rejected rows, and quote its values in their messages; this "
        "applies to newly read rows.",
    )


class Settings(SettingsTable):
    """What the warehouse keeps: its first run sets it, and later runs may change it."""

    profiles: Profiles = Field(
        default_factory=load_profiles,
        description="A TOML file of weight profiles, or default for the built-in ones.",
    )
    audits: Audits = Field(
        default_factory=partial(AuditSet, {}),
        description="A TOML file of audits, SQL for rows that must not be published; none removes "
        "them.",
    )


class RunOptions(SettingsModel):
    """`[run]`: how runs are made."""

    exclude: Annotated[tuple[Glob, ...], ONE_OR_MORE] = Field(
        (),
        description="Leave out files and folders that match, such as broken/*.parquet. Their "
        "traces stay until a run prunes, and no limit counts them.",
    )
    prune: bool = Field(
        default=False,
        description="Remove the traces of files that are gone, unreadable or excluded.",
    )
    ray: Ray = Field(
        None,
        min_length=1,
        examples=["auto"],
        description="Work on Ray: with this number of workers on this machine, on the cluster at "
        "this address, or on the running one (auto).",
    )
    wait: Wait = Field(
        default=NO_WAIT,
        description="Wait while another run writes to the warehouse; with a duration such as 30m, "
        "at most this long.",
    )
    keep: Keep = Field(
        None,
        examples=["30d"],
        description="After a successful run, remove what is older than this time, such as 30d, "
        "as kp-batch vacuum does; none: nothing.",
    )
    report: bool = Field(
        default=False,
        description="Write report.html into the warehouse after the run, even if it fails.",
    )


class Limits(SettingsModel):
    """`[limits]`: a run that exceeds one fails, and publishes no scores."""

    max_reject_share: Share = Field(
        "5%",
        description="Fail if more than this share of all rows is rejected. The same share limits "
        "newly read rows, if ten or more of them are rejected.",
    )
    max_new_rejects: Limit = Field(
        None,
        description="Fail if more newly read rows than this are rejected: a number, or a share "
        "such as 5%.",
    )
    max_removed: Limit = Field(
        None,
        description="Fail if more published traces than this would be removed, not counting pruned "
        "and forgotten ones. By default, 5% or 10, whichever is more.",
    )
    max_unreadable: Limit = Field(
        None,
        description="Fail if more files than this are unreadable, not counting those that already "
        "were at the last successful run.",
    )
    max_gone: Limit = Field(
        None,
        description="Fail if more files than this are gone since the last successful run.",
    )
    timeout: Duration = Field(
        None,
        examples=["4h"],
        description="End the command after this time, such as 30m or 4h. Calls in Python and flows "
        "have no timeout.",
    )


class ProjectTables(SettingsModel):
    """The tables of a project's file, except those of profiles and audits."""

    settings: SettingsTable = Field(default_factory=SettingsTable)
    run: RunOptions = Field(default_factory=RunOptions)
    limits: Limits = Field(default_factory=Limits)
    imports: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, content: Mapping[str, Any], folder: Path) -> tuple["ProjectTables", list[str]]:
        """Read the tables of a file's content; return them, and their faults.

        Args:
            content: the content; other tables in it are ignored.
            folder: the folder of the file, from which paths start.
        """
        tables = {name: content[name] for name in cls.model_fields if name in content}
        try:
            return cls.model_validate(tables, context=folder), []
        except ValidationError as error:
            return cls(), faults_in(error, cls, _place)


def _place(place: Place) -> str:
    """Return a place in the file for messages, such as `[limits] max_gone`."""
    table, *keys = map(str, place)
    return " ".join((f"[{table}]" if table in TABLES else table, *keys))


# The tables with settings of a run, by their names in the file.
TABLES: Mapping[str, type[SettingsModel]] = {
    "settings": SettingsTable,
    "run": RunOptions,
    "limits": Limits,
}
