"""`init`: begin a project."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import FileSettingsCommand, config_of, option_of_warehouse
from kp_batch.files import PROJECT_FILE
from kp_batch.log import echo
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig

_COMMANDLINE = click.core.ParameterSource.COMMANDLINE


@kp_batch.command(cls=FileSettingsCommand)
@click.argument("archive", nargs=-1)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(PROJECT_FILE),
    show_default=True,
    help="The project's file.",
)
@option_of_warehouse(
    default="warehouse", show_default=True, help="The folder of the tables, or its URL in a bucket."
)
@click.option(
    "--prefect",
    is_flag=True,
    help="Also write prefect.yaml, for a nightly run of Prefect.",
)
def init(file: Path, *, prefect: bool, **settings: Any) -> None:
    """Create a project for ARCHIVE.

    Writes the project's file, and creates its warehouse. In the same folder, commands then need
    neither ARCHIVE nor --warehouse. In an existing project, --prefect without ARCHIVE writes only
    prefect.yaml.
    """
    from kp_batch.operations.init import begin_project, deploy_project

    if prefect and file.exists() and not settings["archive"]:
        _refuse_settings(file)
        deploy_project(file)
    else:
        if not settings["archive"]:
            raise click.MissingParameter(param_hint="ARCHIVE", param_type="argument")
        config = config_of(settings)
        _print_next_step(file, config, begin_project(config, file, prefect=prefect))
    if prefect:
        echo(
            f"{printable(str(file.with_name('prefect.yaml')))} deploys it; run in its folder: "
            "prefect --no-prompt deploy --name nightly",
            err=True,
        )


def _refuse_settings(file: Path) -> None:
    """Refuse settings for an existing project, which has them in its file."""
    context = click.get_current_context()
    given = [
        parameter.opts[-1]
        for parameter in context.command.get_params(context)
        if parameter.name not in {"file", "prefect"}
        and context.get_parameter_source(parameter.name or "") is _COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{printable(str(file))} already exists: change it, and leave out {', '.join(given)}"
        )


def _print_next_step(file: Path, config: "RescoreConfig", warehouse_id: str) -> None:
    option = "" if file == Path(PROJECT_FILE) else f" --project {quote(str(file))}"
    echo(
        f"{printable(str(file))} is the project of {shown(config.warehouse)}, warehouse "
        f"{warehouse_id}: look through it, then: kp-batch run{option}",
        err=True,
    )
