"""The options of commands: those that several share, the settings of a run, and completion."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click

from kp_batch.errors import SettingError
from kp_batch.files import NAMED_PIPE, PROJECT_FILE, is_named_pipe
from kp_batch.text import parse_count, printable
from kp_batch.warehouse.author import parse_note
from kp_batch.warehouse.bucket.location import folder_of, shown, url_of

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig
    from kp_batch.project import ProjectFile
    from kp_batch.settings import SettingsModel

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
# Keys of a command's context: the project's file, or None; its content, once it is read; and the
# id of its warehouse.
_FILE, _PROJECT, _WAREHOUSE_ID = "kp_batch.file", "kp_batch.project", "kp_batch.warehouse_id"
_DEFAULT = click.core.ParameterSource.DEFAULT
# A run and a migration refresh the copy, and `status` asks the bucket: they check the warehouse's
# id themselves.
_CHECK_THEMSELVES = ("run", "status", "migrate")
_NO_OPTIONS = ("project", "warehouse_id")  # settings that a project's file alone has
_DURATION = re.compile("none|[0-9.]+[a-z]?")  # what a wait may be followed by
_IMPORT_FORMATS = (  # of `conversion.formats.FORMATS`, which take long to import
    *("atif", "auto", "claude-code", "codex", "inspect", "knowledgepulse"),
    *("langfuse", "langsmith", "messages", "mlflow", "otlp", "phoenix", "pi"),
)
_RUNS = """
    SELECT run_id FROM runs WHERE starts_with(run_id, $beginning)
    ORDER BY number DESC LIMIT 100
"""
_DOMAINS = """
    SELECT task_domain FROM distributions
    WHERE run_id = latest() AND starts_with(task_domain, $beginning)
    ORDER BY task_domain LIMIT 100
"""


class WarehouseFolder(click.Path):
    """A folder; for a warehouse in a bucket, its local copy."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        return Path(os.fsdecode(super().convert(folder_of(value), param, ctx)))


class NamedFile(click.File):
    """A file, or - for stdin; a named pipe is refused, since opening it would wait."""

    def convert(
        self,
        value: str | os.PathLike[str] | IO[Any],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        if isinstance(value, str) and is_named_pipe(value):
            self.fail(f"{value!r}: {NAMED_PIPE}", param, ctx)
        return super().convert(value, param, ctx)


class Parsed(click.ParamType[T]):
    """The result of a function of a text; the message of its ValueError is for the user."""

    name = "text"

    def __init__(self, parse: Callable[[str], T]) -> None:
        self._parse = parse

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """See `click.ParamType`."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _find_project(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    file = value or (Path(PROJECT_FILE) if Path(PROJECT_FILE).is_file() else None)
    context.meta[_FILE] = file


def _refreshed(context: click.Context, _: click.Parameter, folder: Path | None) -> Path | None:
    """Return a warehouse's folder; for a bucket, its local copy, made equal to it."""
    reads_copy = context.resilient_parsing or context.command.name in _CHECK_THEMSELVES
    if folder and url_of(folder) and not reads_copy:
        from kp_batch.warehouse.bucket.mirror import refresh

        refresh(folder)
    return folder


def warehouse_of_project(
    context: click.Context, parameter: click.Parameter, value: Path | None
) -> Path | None:
    """Return the given warehouse, or the project's, refreshed and checked; see `_meant`."""
    if context.resilient_parsing:
        return value
    return _refreshed(context, parameter, _meant(context, parameter, value))


def _meant(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return the given warehouse, or the project's, whose id must be the expected one.

    Raises:
        click.MissingParameter: there is neither.
        IdentityError: another warehouse is there.
    """
    project = the_project(context)
    if value is not None and not (project and project.is_of(shown(value))):
        return value
    if project is None:
        needed = f"Name it, or work in the folder of a {PROJECT_FILE}, which kp-batch init makes."
        raise click.MissingParameter(needed, context, parameter)
    if project.warehouse is None:
        raise click.MissingParameter(f"{project.name} names none.", context, parameter)
    from kp_batch.warehouse.manifest import check_identity

    folder: Path = value or parameter.type.convert(project.warehouse, parameter, context)
    context.meta[_WAREHOUSE_ID] = project.warehouse_id
    if context.command.name not in _CHECK_THEMSELVES:
        check_identity(folder, project.warehouse_id)
    return folder


# Commands that can do without a warehouse have their own help for this option.
option_of_warehouse = partial(
    click.option,
    "--warehouse",
    envvar="KP_BATCH_WAREHOUSE",
    show_envvar=True,
    type=WarehouseFolder(file_okay=False, readable=False, path_type=Path),
    callback=_refreshed,
)
project_option = click.option(
    "--project",
    envvar="KP_BATCH_PROJECT",
    show_envvar=True,
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    is_eager=True,  # the warehouse may be its
    expose_value=False,
    callback=_find_project,
    help="The project's file. Other options override it.",
    show_default=f"{PROJECT_FILE} in this folder, if it exists",
)


def warehouse_option_of(
    callback: Callable[[click.Context, click.Parameter, Path | None], Path | None] | None = None,
    **attributes: Any,
) -> Callable[[C], C]:
    """Return the options --project and --warehouse of a command."""

    def decorated(command: C) -> C:
        of_warehouse = option_of_warehouse(
            callback=callback or warehouse_of_project,
            help="The folder of the tables, or its URL in a bucket.",
            show_default="that of the project",
            **attributes,
        )
        return project_option(of_warehouse(command))

    return decorated


warehouse_option = warehouse_option_of()
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
note_option = click.option("--note", type=Parsed(parse_note), help="A line to store with the run.")
option_of_format = partial(click.option, "--format", "output_format", show_default=True)
rows_as_json_option = click.option("--json", "as_json", is_flag=True, help="Print a list of rows.")
format_option = option_of_format(
    type=click.Choice(["table", "line", "csv"]),
    default="table",
    help="line prints each value on its own line, as table does for rows that are too wide.",
)
count_option = partial(click.option, type=Parsed(parse_count), metavar="N", show_default=True)


def json_line(result: object) -> str:
    """Write a result as one line of JSON.

    NaN and infinity, which JSON lacks, are `NaN` and `Infinity`, as Python and pydantic read them.
    """
    return json.dumps(result, default=asdict)


GROUPS = (  # of the options of a run
    "settings that stay with the warehouse",
    "of this run alone",
    "limits, above which the run fails",
)


def group_of(name: str) -> str:
    """Return the group of an option, one of `GROUPS`, by the name of its setting or its own."""
    from kp_batch.settings import Limits, Settings

    kept, of_run, limits = GROUPS
    if name in Settings.model_fields:
        return kept
    return limits if name in Limits.model_fields else of_run


def the_project(context: click.Context | None = None) -> "ProjectFile | None":
    """Return the project that is given or found; its file is read once.

    Raises:
        SettingError: the file cannot be read, or has faults before its tables.
    """
    meta = (context or click.get_current_context()).meta
    file: Path | None = meta.get(_FILE)
    if file and _PROJECT not in meta:
        from kp_batch.project import load_project

        meta[_PROJECT] = load_project(file)
    return meta.get(_PROJECT)


def settings_from_elsewhere(warehouse: Path) -> str | None:
    """Return a sentence if the project whose settings are used has another warehouse."""
    project = the_project()
    if project is None or project.is_of(warehouse):
        return None
    return f"{shown(warehouse)} uses the settings of {project.name}, which is for another warehouse"


def expected_warehouse_id() -> str | None:
    """Return the id that the project's warehouse must have; None for any."""
    return click.get_current_context().meta.get(_WAREHOUSE_ID)


class SettingsCommand(click.Command):
    """A command with an option for each setting, `without` some.

    The options are made on demand: importing pydantic takes longer than printing help.
    """

    def __init__(self, *args: Any, without: Collection[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._without = without

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        for title, options in self.grouped(ctx).items():
            with formatter.section(title[0].upper() + title[1:]):
                formatter.write_dl(
                    [record for each in options if (record := each.get_help_record(ctx))]
                )

    def grouped(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """The options by the titles of `GROUPS`, without empty groups."""
        groups: dict[str, list[click.Parameter]] = {title: [] for title in GROUPS}
        for param in self.get_params(ctx):
            if param.get_help_record(ctx):
                groups[group_of(param.name or "")].append(param)
        return {title: options for title, options in groups.items() if options}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what follows --wait as its duration only if it is one: it may be ARCHIVE."""
        pairs = zip(args, [*args[1:], ""], strict=False)
        whole = [
            "--wait=true" if each == "--wait" and not _DURATION.fullmatch(after) else each
            for each, after in pairs
        ]
        return super().parse_args(ctx, whole)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return ARCHIVE, --project and --warehouse, the other settings, and further options."""
        own = super().get_params(ctx)
        excluded = {*self._without, *_NO_OPTIONS, *(option.name for option in own)}
        settings = [option for option in _options() if option.name not in excluded]
        return [*own[:3], *filter(self.offers, settings), *own[3:]]

    def offers(self, option: click.Option) -> bool:
        """Whether the command takes this setting."""
        return option.name not in self._without


class FileSettingsCommand(SettingsCommand):
    """A command with an option for each setting that a table of a project's file can hold."""

    def offers(self, option: click.Option) -> bool:
        """See `SettingsCommand`."""
        from kp_batch.settings import TABLES

        return any(option.name in table.model_fields for table in TABLES.values())


class TableCommand(click.Command):
    """A command with an option for each value of a table, made on demand as well.

    Args:
        table: a function that imports the table.
        completions: functions that complete values in a shell, by their names.
    """

    def __init__(
        self,
        *args: Any,
        table: "Callable[[], type[SettingsModel]]",
        completions: Mapping[str, Callable[..., list[str]]] = MappingProxyType({}),
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._table, self._completions = table, completions

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, with the others before --json and --help."""
        own = super().get_params(ctx)
        table = self._table()
        others = [self._option_of(table, name) for name in table.model_fields]
        return [*own[:-2], *others, *own[-2:]]

    def _option_of(self, table: "type[SettingsModel]", name: str) -> click.Option:
        default, complete = table.model_fields[name].default, self._completions.get(name)
        shown = {"default": default, "show_default": True} if isinstance(default, str) else {}
        return _option(table, name, [_named(name)], shell_complete=complete, **shown)


@cache
def _options() -> tuple[click.Option, ...]:
    from kp_batch.config import RescoreConfig
    from kp_batch.settings import NONE

    least = RescoreConfig.model_validate({"archive": [""], "warehouse": ""})
    defaults = least.model_dump(mode="json") | {"profiles": "the built-in ones", "audits": NONE}
    return tuple(_option_of_run(name, defaults[name]) for name in RescoreConfig.model_fields)


def _option_of_run(name: str, default: Any) -> click.Option:
    """Return the option of a run's setting; its default is that of a new warehouse."""
    from kp_batch.config import RescoreConfig
    from kp_batch.settings import TABLES, Settings
    from kp_batch.warehouse.reasons import in_words

    field, is_kept = RescoreConfig.model_fields[name], name in Settings.model_fields
    option = _named(name)
    # What a project's file turns on, an option turns off again.
    if field.annotation is bool and any(name in table.model_fields for table in TABLES.values()):
        option += f"/--no-{option[2:]}"
    return _option(
        RescoreConfig,
        name,
        ["-o", option] if name == "output" else [option],
        default=None if is_kept or default is False else default,
        show_default=f"{in_words(default)} in a new warehouse" if is_kept else True,
    )


def _option(
    table: "type[SettingsModel]", name: str, names: Sequence[str], **attributes: Any
) -> click.Option:
    from kp_batch.settings import metavar_of

    field = table.model_fields[name]
    form, metavar = _form(field.annotation), metavar_of(field)
    return click.Option(names, help=field.description, metavar=metavar, **form, **attributes)


def _named(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _form(annotation: Any) -> dict[str, Any]:
    """Return what click needs for a setting's type; others are texts, parsed by their types."""
    if annotation is bool:
        return {"is_flag": True}
    if get_origin(annotation) is Literal:
        return {"type": click.Choice(get_args(annotation))}
    if get_origin(annotation) is tuple:
        return {"multiple": True}
    return {"type": annotation} if annotation in (int, float) else {}


class FaultySettingsError(SettingError, click.UsageError):
    """Settings that cannot be are wrong usage."""


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the command that are not defaults."""
    context = click.get_current_context()
    return {
        name: value
        for name, value in values.items()
        if value is not None and context.get_parameter_source(name) is not _DEFAULT
    }


def config_of(settings: dict[str, Any]) -> "RescoreConfig":
    """Validate the settings of a run, without those that are defaults.

    Raises:
        ProfileError: the profiles file has faults.
        FaultySettingsError: a setting is out of its bounds; the message lists all that are.
    """
    from kp_batch.config import RescoreConfig

    found = {"project": the_project(), "warehouse": settings["warehouse"]}
    values = found | given(settings)
    return RescoreConfig.checked(values, error=FaultySettingsError)


# Shell completion of arguments. The shell waits, and shows everything that is printed: so this
# reads kp.duckdb as it is, and drops errors.


def complete_runs(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Return names of runs, the newest first."""
    names = _query_names(context, _RUNS, beginning)
    return [*_starting(("latest", "previous"), beginning), *names]


def complete_domains(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Return the domains of the current scores."""
    return _query_names(context, _DOMAINS, beginning)


def complete_questions(_context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Return names of questions."""
    from kp_batch.warehouse.questions import questions as all_questions

    return _starting((question.name for question in all_questions()), beginning)


def complete_formats(_context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Return formats of imports."""
    return _starting(_IMPORT_FORMATS, beginning)


def _starting(names: Iterable[str], beginning: str) -> list[str]:
    return [name for name in names if name.startswith(beginning)]


def _query_names(context: click.Context, query: str, beginning: str) -> list[str]:
    """Query the warehouse that the command line names so far."""
    import duckdb

    from kp_batch.warehouse.manifest import copy_catalog

    try:
        with (
            TemporaryDirectory() as folder,
            duckdb.connect(
                str(copy_catalog(context.params["warehouse"], folder)), read_only=True
            ) as catalog,
        ):
            rows = catalog.execute(query, {"beginning": beginning}).fetchall()
    except Exception:  # noqa: BLE001 (the command itself will report it)
        return []
    return [name for (name,) in rows if name == printable(name)]
