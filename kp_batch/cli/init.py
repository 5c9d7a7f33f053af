"""`init`: begins a project."""

from pathlib import Path
from shlex import quote
from typing import Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import SettingsCommand, config_of, option_of_warehouse
from kp_batch.log import echo
from kp_batch.settings import PROJECT_FILE
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown

_NOT_OF_FILES = ("preview", "output", "allow", "accept", "note", "profiles", "audits")


@kp_batch.command(cls=SettingsCommand, without=_NOT_OF_FILES)
@click.argument("archive", nargs=-1, required=True)
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
    help="Write prefect.yaml and its flows, too, which deploy it as a nightly run of Prefect.",
)
def init(file: Path, *, prefect: bool, **settings: Any) -> None:
    """Begin a project over ARCHIVE: write its file, every value explained, and make its warehouse.

    Then kp-batch run, plan, sql and all others need no argument in its folder.
    """
    from kp_batch.operations.init import begin_project

    config = config_of(settings)
    warehouse_id = begin_project(config, file, prefect=prefect)
    beside = "" if file == Path(PROJECT_FILE) else f" --project {quote(str(file))}"
    echo(
        f"{printable(str(file))} is the project of {shown(config.warehouse)}, warehouse "
        f"{warehouse_id}: look through it, then: kp-batch run{beside}",
        err=True,
    )
    if prefect:
        echo(
            f"{printable(str(file.with_name('prefect.yaml')))} deploys it from its folder: "
            "prefect --no-prompt deploy --name nightly",
            err=True,
        )
