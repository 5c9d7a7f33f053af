"""The settings of one run, from a project's file, forms, options and Python; see `settings`."""

from collections.abc import Mapping
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from kp_batch.project import ProjectFile, load_project
from kp_batch.settings import ONE_OR_MORE, Limits, Metavar, RunOptions, Settings, SettingsModel
from kp_batch.warehouse.author import parse_note
from kp_batch.warehouse.bucket.location import folder_of, shown

# The error of a form that names neither a warehouse nor a project.
_PARTIAL = (
    "; a config that is given replaces all of the deployment's: repeat in it what that has, such "
    "as project"
)
# What a project does to its own warehouse only.
_OF_ONE_WAREHOUSE = ("archive", "exclude", "prune", "keep")

GivenProject = Annotated[
    InstanceOf[ProjectFile] | None,
    PlainSerializer(lambda project: str(project.file) if project else None),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "path"}, {"type": "null"}]}),
]
Note = Annotated[
    str | None, AfterValidator(lambda value: None if value is None else parse_note(value))
]


def _as_form(schema: dict[str, Any]) -> None:
    """Require nothing in Prefect's form, because a project may have it, and send no defaults."""
    schema.pop("required", None)
    for name, each in schema["properties"].items():
        each.pop("default", None)
        if name in Settings.model_fields:
            each["description"] += " By default, the warehouse's value."


class Places(SettingsModel):
    """The keys before the tables of a project's file, and the file itself."""

    project: GivenProject = Field(None, description="The project's file. Other values override it.")
    archive: Annotated[tuple[str, ...], ONE_OR_MORE] = Field(
        (),
        description="Parquet or JSONL files, folders, globs or URLs. By default, the project's, "
        "or that of the last run.",
    )
    warehouse: Annotated[Path, BeforeValidator(folder_of)] = Field(
        description="The folder of the tables, or its URL in a bucket. By default, the project's."
    )
    warehouse_id: str | None = Field(
        None, description="The id that the warehouse must have; none: any, or a new one."
    )


class RescoreConfig(Limits, RunOptions, Settings, Places):
    """The settings of one run; `with_defaults` adds the missing ones of a warehouse.

    Examples:
        >>> config = kp.RescoreConfig(archive=("archive",), warehouse="warehouse", ttl="12h")
        >>> config.ttl, config.cache_size
        (datetime.timedelta(seconds=43200), 1000)
    """

    model_config = ConfigDict(json_schema_extra=_as_form)

    preview: bool = Field(
        default=False,
        description="Do all the work, publish nothing, and show how the scores would change.",
    )
    output: Annotated[Path | None, Metavar("FILE")] = Field(
        None, description="With --preview, write its report to this file."
    )
    allow_audit: Annotated[tuple[Annotated[str, Metavar("NAME")], ...], ONE_OR_MORE] = Field(
        (), description="Let the audit NAME pass this once."
    )
    restore_vectors: bool = Field(
        default=False,
        description="Compute missing or damaged vectors of published traces again.",
    )
    ignore_rollback: bool = Field(
        default=False,
        description="Run even if the project brings back what a rollback undid.",
    )
    note: Note = Field(None, description="A line to store with the run.")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        """Drop settings of the warehouse that are null, which is how forms leave them out."""
        if not isinstance(values, Mapping):
            return values
        settings = {
            name: value
            for name, value in cast("Mapping[str, Any]", values).items()
            if value is not None or name not in Settings.model_fields
        }
        is_named = isinstance(settings.get("project"), str | Path | ProjectFile)
        return _with_project(settings) if is_named else settings

    @model_validator(mode="after")
    def _in_order(self) -> "RescoreConfig":
        if self.output and not self.preview:
            message = "-o is for the report of a --preview: add that, or take kp-batch report -o"
            raise ValueError(message)
        return self

    @property
    def wait_s(self) -> float:
        """The seconds to wait for another run; infinity to wait without end."""
        return inf if self.wait == timedelta.max else self.wait.total_seconds()

    @property
    def workers(self) -> int | None:
        """The number of Ray workers on this machine; None without Ray, or on a cluster."""
        return int(self.ray) if self.ray and self.ray.isdecimal() else None

    @field_serializer("warehouse", when_used="json")
    def _named(self, warehouse: Path) -> str:
        return shown(warehouse)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the warehouse keeps: JSON values by the names of `Settings`."""
        return self.model_dump(mode="json", include=set(Settings.model_fields))

    def with_defaults(self, settings: Mapping[str, Any]) -> "RescoreConfig":
        """Return the config with every left-out setting as the warehouse has it.

        Args:
            settings: those of the warehouse; empty for a new one, which takes the defaults.
                Settings that only an earlier kp_batch had are ignored.

        Raises:
            SettingError: a setting of the warehouse is out of its bounds.
        """
        if self.project:  # a project sets everything itself
            return self
        kept = {name: settings[name] for name in Settings.model_fields if name in settings}
        said = "{}; what is left out is as the warehouse has it: kp-batch settings"
        return RescoreConfig.checked(kept | self.given, said=said)

    @classmethod
    def read(cls, form: object) -> "RescoreConfig":
        """Read the config from the values of a form, or return it as it is.

        Raises:
            SettingError: a value is out of its bounds, or unknown; the message lists all of them.
            ProfileError: the profiles file has faults.
        """
        names = form.keys() if isinstance(form, Mapping) else {"warehouse"}
        is_partial = names.isdisjoint({"project", "warehouse"})
        said = f"the settings of the run have faults: {{}}{_PARTIAL if is_partial else ''}"
        return cls.checked(form, said=said)


def read_project(file: Path | str | ProjectFile) -> ProjectFile:
    """Read a project's file, unless it is read already, and check its values.

    Raises:
        KpBatchError: the file is missing or has faults; the message lists all of one kind.
    """
    project = file if isinstance(file, ProjectFile) else load_project(Path(file))
    _ = project.values
    return project


def defaults() -> dict[str, Any]:
    """Return the settings of a new warehouse: JSON values by the names of `Settings`."""
    return Settings().model_dump(mode="json")


def _with_project(given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of a project with those given, and add the defaults of all settings."""
    project = read_project(given["project"])
    own = {name: value for name, value in given.items() if value not in (None, (), [])}
    of_file = {**project.values}
    if project.is_of(own.get("warehouse", of_file.get("warehouse"))):
        of_file["warehouse_id"] = project.warehouse_id
    else:  # another warehouse may hold the traces of another archive
        for name in _OF_ONE_WAREHOUSE:
            of_file.pop(name, None)
    return {**vars(Settings()), **of_file, **own, "project": project}
