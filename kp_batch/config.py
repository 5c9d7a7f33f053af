"""The settings of a run: the one place for their names, defaults, bounds and descriptions.

What the warehouse keeps of them is in `settings`. The command line's help and Prefect's form both
show the descriptions.
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from kp_batch.embedding.precision import Precision
from kp_batch.errors import SettingError
from kp_batch.faults import Place, faults_of
from kp_batch.novelty.settings import format_cache_by, parse_cache_by
from kp_batch.project import Project, load_project
from kp_batch.runs.limits import parse_limit, parse_share
from kp_batch.scoring.profiles import ProfileVersions, load_profiles, parse_profiles
from kp_batch.settings import CACHE_SIZE, EMBEDDERS, SETTINGS, SHARE
from kp_batch.text import format_duration, parse_duration
from kp_batch.warehouse.audits import Audits as AuditSet
from kp_batch.warehouse.audits import load_audits, parse_audits
from kp_batch.warehouse.author import parse_note
from kp_batch.warehouse.bucket.location import folder_of, shown

NONE = "none"  # a value, unlike what is left out
BUILT_IN = "default"  # stands for the built-in profiles
_WORKERS = 1_024  # of one machine
_NO_WAIT = timedelta(0)
# What is said of a form that names neither a warehouse nor a project.
_PARTIAL = (
    "; a config that is given replaces all of the deployment's: repeat in it what that has, such "
    "as project"
)
# What a project does to its own warehouse alone.
_OF_ONE_WAREHOUSE = ("archive", "exclude", "prune")


def _with_absolute_folder(embedder: str) -> str:
    """Name a model's folder in full: the next run may start in another folder."""
    is_folder = embedder not in EMBEDDERS and Path(embedder).is_dir()
    return str(Path(embedder).absolute()) if is_folder else embedder


def _parse_exclusion(text: str) -> str:
    from kp_batch.archive.excluding import parse_exclusion  # and Polars, which takes long to import

    return parse_exclusion(text)


def _parse_text(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _in_whole_seconds(duration: timedelta | None) -> timedelta | None:
    if duration is not None and (duration <= timedelta(0) or duration % timedelta(seconds=1)):
        raise ValueError(f"a duration is a positive number of whole seconds, got {duration}")
    return duration


def _parse_wait(value: Any) -> Any:
    """True waits without an end, False and none not at all."""
    if value is True or value == "true":
        return timedelta.max
    if value is False:
        return _NO_WAIT
    wait = parse_duration(value) or _NO_WAIT if isinstance(value, str) else value
    if isinstance(wait, timedelta):
        return wait if wait in (_NO_WAIT, timedelta.max) else _in_whole_seconds(wait)
    raise ValueError(f"a wait is true, false or a duration such as 90m, got {value!r}")


def _format_wait(wait: timedelta) -> bool | str:
    return wait == timedelta.max if wait in (_NO_WAIT, timedelta.max) else format_duration(wait)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_workers(ray: str | None) -> str | None:
    if ray is not None and re.fullmatch(r"-?[0-9]+", ray) and not 1 <= int(ray) <= _WORKERS:
        raise ValueError(f"from 1 to {_WORKERS:,} workers, got {ray}")
    return ray


def _load_or_parse(
    load: Callable[[str | Path], Any], parse: Callable[[Mapping[str, Any], str], Any], what: str
) -> BeforeValidator:
    """Load a file, or what a word stands for, or take the tables of such a file themselves."""

    def validate(value: Any) -> Any:
        if isinstance(value, str | Path):
            return load(value)
        if isinstance(value, Mapping):
            return parse(cast("Mapping[str, Any]", value), f"the table of {what} that was given")
        return value

    return BeforeValidator(validate)


ProjectFile = Annotated[
    InstanceOf[Project] | None,
    PlainSerializer(lambda project: str(project.file) if project else None),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "path"}, {"type": "null"}]}),
]
Embedder = Annotated[str, AfterValidator(_with_absolute_folder)]
Ttl = Annotated[
    timedelta | None,
    _parse_text(parse_duration),
    AfterValidator(_in_whole_seconds),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string"}),
]
Duration = Annotated[
    timedelta | None,
    _parse_text(parse_duration),
    AfterValidator(_in_whole_seconds),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
]
CacheBy = Annotated[
    tuple[str, ...],
    _parse_text(parse_cache_by),
    AfterValidator(lambda names: parse_cache_by(format_cache_by(names))),  # of Python, too
    PlainSerializer(format_cache_by, return_type=str),
    WithJsonSchema({"type": "string"}),
]
Profiles = Annotated[
    ProfileVersions,
    _load_or_parse(
        lambda file: load_profiles(None if str(file) == BUILT_IN else file),
        parse_profiles,
        "profiles",
    ),
    PlainSerializer(ProfileVersions.as_json),
    WithJsonSchema({"type": "string"}),
]
Wait = Annotated[
    timedelta,
    BeforeValidator(_parse_wait),
    PlainSerializer(_format_wait),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string"}]}),
]
Ray = Annotated[
    str | None,
    BeforeValidator(lambda value: str(value) if _is_whole(value) else value),
    AfterValidator(_check_workers),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
]
Audits = Annotated[
    AuditSet,
    _load_or_parse(
        lambda file: AuditSet({}) if str(file) == NONE else load_audits(file),
        parse_audits,
        "audits",
    ),
    PlainSerializer(AuditSet.as_json),
    WithJsonSchema({"type": "string"}),
]
Note = Annotated[
    str | None, AfterValidator(lambda value: None if value is None else parse_note(value))
]
Limit = Annotated[
    str | None,
    BeforeValidator(lambda value: value if value is None else parse_limit(value)),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
]
Share = Annotated[
    str,
    BeforeValidator(parse_share),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]


def _setting(description: str, **form: Any) -> Any:
    """A setting of the warehouse. Its schema has no default: Prefect's form would send it."""

    def without_default(schema: dict[str, Any]) -> None:
        schema.pop("default", None)
        schema["description"] += " Left out, it stays as the warehouse has it."

    return Field(description=description, json_schema_extra=without_default, **form)


def _as_form(schema: dict[str, Any]) -> None:
    """Let Prefect's form ask for nothing, since a project may have it, and send no default."""
    schema.pop("required", None)
    for each in schema["properties"].values():
        each.pop("default", None)


class RescoreConfig(BaseModel):
    """The settings of one run; `with_defaults` fills in those of `SETTINGS` that were left out.

    Examples:
        >>> config = kp.RescoreConfig(archive=("archive",), warehouse="warehouse", ttl="12h")
        >>> config.ttl, config.cache_size
        (datetime.timedelta(seconds=43200), 1000)
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=_as_form,
    )

    project: ProjectFile = Field(
        None,
        description="A kp_batch.toml, whose values hold unless they are given beside it.",
    )
    archive: tuple[str, ...] = Field(
        (),
        description="Parquet or JSONL files, folders, globs or URLs. Left out, they are those of "
        "the project, or, without one, of the last run.",
    )
    warehouse: Annotated[Path, BeforeValidator(folder_of)] = Field(
        description="The folder of the tables, or its URL in a bucket. Left out, it is that of the "
        "project."
    )
    warehouse_id: str | None = Field(
        None, description="Of the warehouse that has to be there; none: any, or a new one."
    )
    exclude: tuple[Annotated[str, AfterValidator(_parse_exclusion)], ...] = Field(
        (),
        description="Leave out files and folders of the archive that match this glob, such as "
        "broken/*.parquet; their traces stay until --prune, and no limit counts them.",
    )
    embedder: Embedder = _setting(
        "minilm, hashing, none, or any sentence-transformers folder or id.",
        default="minilm",
        min_length=1,
    )
    precision: Precision = _setting(
        "In which a model computes: float32, or bf16, which is faster where the processor or the "
        "GPU has it.",
        default="float32",
    )
    cache_size: int = _setting(
        "Vectors that the cache holds.",
        default=1_000,
        ge=CACHE_SIZE.least,
        le=CACHE_SIZE.most,
        strict=True,
    )
    ttl: Ttl = _setting("Time to live in the cache: none, 90m, 12h, 7d.", default=None)
    cache_by: CacheBy = _setting(
        "Traces that are equal in this share a cache: none (all of them), agent_id, framework, "
        "task_domain, or a key of the files' paths such as host=a; + joins several.",
        default=(),
    )
    profiles: Profiles = _setting(
        "A TOML file of weight profiles, or default for the built-in ones.",
        default_factory=load_profiles,
    )
    threshold: float = _setting(
        "A score worth sharing.", default=0.75, ge=SHARE.least, le=SHARE.most
    )
    text: bool = _setting(
        "Show texts of traces in the report; compare and explain always do.", default=True
    )
    audits: Audits = _setting(
        "A TOML file of audits, SQL for the rows that must not be published, or none to end them.",
        default_factory=partial(AuditSet, {}),
    )
    preview: bool = Field(
        default=False,
        description="Do all the work and publish nothing: show how the scores would move, and what "
        "audits find.",
    )
    output: Path | None = Field(
        None, description="With --preview: where the report of it goes, a file."
    )
    allow: tuple[str, ...] = Field((), description="Let the audit NAME pass this once.")
    prune: bool = Field(
        default=False,
        description="Remove the traces of files that are gone, unreadable or excluded.",
    )
    restore_vectors: bool = Field(
        default=False,
        description="Make missing or damaged vectors of all published traces; changes no score.",
    )
    max_reject_share: Share = Field(
        "5%",
        description="More rejected rows than this share of all, 5% or 0.05, fail the run; so do "
        "ten or more that are more than this share of the newly read ones.",
    )
    max_new_rejects: Limit = Field(
        None,
        description="More rejected rows among the newly read ones than this, 5 or 5%, fail the "
        "run.",
    )
    max_removed: Limit = Field(
        None,
        description="More removed traces than this, 5 or 5% of the published ones, fail the run; "
        "unless given, more than 5% and more than ten do. Pruned and forgotten ones do not count.",
    )
    max_unreadable: Limit = Field(
        None,
        description="More unreadable files than this, 5 or 5%, fail the run; those that the last "
        "done run found unreadable as well do not count.",
    )
    max_gone: Limit = Field(
        None,
        description="More files gone since the last done run than this, 5 or 5%, fail the run.",
    )
    ray: Ray = Field(
        None,
        min_length=1,
        description="Do the parts of the work on Ray: in this number of workers here, on the "
        "cluster at this address, or on the one that runs (auto).",
    )
    wait: Wait = Field(
        default=_NO_WAIT,
        description="Wait while another run writes to the warehouse; with a duration such as 90s, "
        "30m or 2h, at most this long.",
    )
    timeout: Duration = Field(
        None,
        description="End the command if it is not over after so long, as 90s, 30m or 4h; a call in "
        "Python, or a flow, is not ended.",
    )
    accept: bool = Field(
        default=False,
        description="Accept that settings of the project bring back what a rollback undid.",
    )
    note: Note = Field(None, description="A line to keep with the run, such as why it is made.")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        """Leave out the settings of the warehouse that are null, as forms send them."""
        if not isinstance(values, Mapping):
            return values
        settings = {
            name: value
            for name, value in cast("Mapping[str, Any]", values).items()
            if value is not None or name not in SETTINGS
        }
        is_named = isinstance(settings.get("project"), str | Path | Project)
        return _with_project(settings) if is_named else settings

    @model_validator(mode="after")
    def _in_order(self) -> "RescoreConfig":
        if self.output and not self.preview:
            message = "-o is for the report of a --preview: add that, or take kp-batch report -o"
            raise ValueError(message)
        return self

    @property
    def wait_s(self) -> float:
        """The seconds that another run is waited for; without end, infinity."""
        return inf if self.wait == timedelta.max else self.wait.total_seconds()

    @property
    def workers(self) -> int | None:
        """The number of Ray workers of this machine; None: no Ray, or a cluster."""
        return int(self.ray) if self.ray and self.ray.isdecimal() else None

    @field_serializer("warehouse", when_used="json")
    def _named(self, warehouse: Path) -> str:
        return shown(warehouse)

    @property
    def settings(self) -> dict[str, Any]:
        """Those that the warehouse keeps: JSON values by the names of `SETTINGS`."""
        return self.model_dump(mode="json", include=set(SETTINGS))

    def with_defaults(self, settings: Mapping[str, Any]) -> "RescoreConfig":
        """The config with every setting that was left out as the warehouse has it.

        Args:
            settings: the warehouse's; empty for a new one, which takes the defaults. Those that
                only an earlier kp_batch had are ignored.

        Raises:
            SettingError: a setting of the warehouse is out of its bounds.
        """
        if self.project:  # it leaves nothing to the warehouse
            return self
        own = {name: getattr(self, name) for name in self.model_fields_set}
        defaults = {name: settings[name] for name in SETTINGS if name in settings}
        try:
            return RescoreConfig.model_validate({**defaults, **own})
        except ValidationError as error:
            raise SettingError(
                f"{faults(error, RescoreConfig)}; what is left out is as the warehouse has it: "
                "kp-batch settings"
            ) from error

    @classmethod
    def read(cls, form: object) -> "RescoreConfig":
        """Read the config from the values of a form, or take it as it is.

        Raises:
            SettingError: a value is out of its bounds, or unknown; the message lists all that are.
            ProfileError: the profiles file has faults.
        """
        try:
            return cls.model_validate(form)
        except ValidationError as error:
            is_partial = any(fault["type"] == "missing" for fault in error.errors())
            raise SettingError(
                f"the settings of the run have faults: {faults(error, RescoreConfig)}"
                f"{_PARTIAL if is_partial else ''}"
            ) from error


def read_values(values: Mapping[str, Any]) -> RescoreConfig:
    """Read the config from values by the names of its fields.

    Raises:
        SettingError: some are unknown, or cannot be; the message lists all that are.
        ProfileError: a file of profiles has faults.
    """
    try:
        return RescoreConfig.model_validate(values)
    except ValidationError as error:
        raise SettingError(faults_of(error, RescoreConfig, _field)) from error


def read_project(file: Path | str | Project) -> Project:
    """Read a project's file, unless it is read already, and check its values.

    Raises:
        KpBatchError: it is missing or has faults; the message lists all of one kind.
    """
    project = file if isinstance(file, Project) else load_project(Path(file))
    try:
        RescoreConfig.model_validate({"warehouse": "", **project.values})
    except ValidationError as error:
        found = faults_of(error, RescoreConfig, project.place)
        raise SettingError(f"the project file {project.name} has faults: {found}") from error
    return project


def defaults() -> dict[str, Any]:
    """The settings of a new warehouse: JSON values by the names of `SETTINGS`."""
    return RescoreConfig.model_validate({"warehouse": ""}).settings


def _with_project(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a project and those given beside it; all settings, by their defaults."""
    project = read_project(given["project"])
    own = {name: value for name, value in given.items() if value not in (None, (), [])}
    fields = RescoreConfig.model_fields
    default = {name: fields[name].get_default(call_default_factory=True) for name in SETTINGS}
    of_file = {**project.values}
    if project.is_of(own.get("warehouse", of_file.get("warehouse"))):
        of_file["warehouse_id"] = project.warehouse_id
    else:  # another one may hold the traces of another archive
        for name in _OF_ONE_WAREHOUSE:
            of_file.pop(name, None)
    return {**default, **of_file, **own, "project": project}


def faults(error: ValidationError, model: type[BaseModel]) -> str:
    """All faults of settings, each with the name of its option."""
    return faults_of(error, model, _option)


def _field(place: Place) -> str:
    return str(place[0]) if place else ""


def _option(place: Place) -> str:
    return f"--{_field(place).replace('_', '-')}" if place else ""
