"""The command itself: how it begins, how it ends, and the options that several commands share."""

import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from kp_batch.failures import explained
from kp_batch.text import printable_lines
from kp_batch.warehouse.bucket.location import folder_of, url_of


class Warehouse(click.Path):
    """A folder; of a warehouse in a bucket, its copy here, as the bucket is now."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        folder = Path(os.fsdecode(super().convert(folder_of(value), param, ctx)))
        # A run does so when it begins, and what a shell completes is read from the copy as it is.
        if url_of(folder) and ctx and ctx.command.name != "run" and not ctx.resilient_parsing:
            from kp_batch.warehouse.bucket.mirror import refresh

            refresh(folder)
        return folder


# Where a command can do without a warehouse it says what it takes one for.
option_of_warehouse = partial(
    click.option,
    "--warehouse",
    envvar="KP_BATCH_WAREHOUSE",
    show_envvar=True,
    type=Warehouse(file_okay=False, readable=False, path_type=Path),
)
warehouse_option = option_of_warehouse(
    required=True, help="The folder of the tables, or its URL in a bucket."
)
format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "line", "csv", "json"]),
    default="table",
    show_default=True,
    help="line: one for each value, as of a table that is wider than the terminal.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="JSON on stdout, of the form that schema tells."
)


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PUBLISHING = {"forget", "run", "vacuum"}  # commands; all others publish nothing
_WHOLE = "what is published is whole, and kp-batch runs tells by which runs"


class EndedBySignal(BaseException):
    """The user, or the system, ended the command."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kp-batch")
def kp_batch() -> None:
    """Rescore archives of AI reasoning traces, and ask about the scores."""


def main() -> None:
    """Run the command line and leave with its exit status."""
    for number in ENDING:
        # What nohup starts goes on where its terminal is closed.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        kp_batch.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _leave(error.exit_code)
    except EndedBySignal as error:
        number = signal.Signals(error.args[0])
        whole = f"; {_WHOLE}" if {*sys.argv[1:2]} & _PUBLISHING else ""
        _leave(128 + number, f"ended by {number.name}{whole}")
    except BrokenPipeError:
        sys.stdout = None  # whoever read our output has left; so do we, without a word
        _leave(1)
    except Exception as error:  # noqa: BLE001 (none is worth a traceback)
        _leave(1, str(explained(error)))


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise EndedBySignal(number)


def _leave(status: int, message: str | None = None) -> NoReturn:
    with suppress(OSError):  # its terminal may be closed
        if message:
            click.echo(f"kp-batch: {printable_lines(message)}", err=True)
    sys.exit(status)
