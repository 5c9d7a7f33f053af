"""The command line. Heavy imports are local, so that commands start fast."""

import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from kp_batch import log
from kp_batch.cli.supervise import SENT, ending_signals, print_message, send, supervised
from kp_batch.cli.unanswered import print_unanswered
from kp_batch.errors import ResourceError, SettingError, explain_error
from kp_batch.log import echo_line, user_err, user_out, writing_to
from kp_batch.log_lines import FORMATS, LOG_FORMAT, follow, is_json
from kp_batch.text import WITH_ESCAPES
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.run_result import RunResult, now

_MODULES = (  # of the commands, in their order
    *("init", "run", "query", "explain", "similar", "sweep"),
    *("fit", "maintain", "import_", "export"),
)
GROUPS = {  # of the commands, as help lists them
    "Operate": (
        *("init", "run", "plan", "status", "runs", "rollback", "audit", "vacuum", "forget"),
        *("migrate", "settings", "catalog", "demo"),
    ),
    "Ask": ("sql", "explain", "compare", "report"),
    "Study": ("sweep", "fit", "similar", "redundancy", "verify", "score"),
    "Move": ("import", "import-formats", "import-forget", "export"),
}
# All other commands publish nothing.
_PUBLISHING = {"forget", "migrate", "rollback", "run", "vacuum"}
SUPERVISED = {
    *("run", "plan", "demo", "compare", "verify", "explain", "score", "similar"),
    *("redundancy", "sweep", "fit", "audit", "vacuum", "forget", "rollback"),
    *("migrate", "import", "import-forget", "export"),
}
_BEGAN = now()
_HELP = {"-h", "--help", "--version"}
_INTACT = "; what is published is intact; kp-batch runs shows which run published it"


class EndedBySignal(BaseException):
    """The user, or the system, ended the command."""


class _InGroups(click.Group):
    """A group whose help lists its commands in `GROUPS`."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click passes it)
        """See `click.Group`."""
        limit = formatter.width - max(map(len, self.commands)) - 4  # what is left of a line
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(limit)) for name in names]
                )


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click passes it)
    if value:
        from importlib.metadata import version

        from kp_batch.warehouse.manifest import FORMAT_VERSION

        click.echo(f"kp-batch {version('kp-batch')} (warehouse format {FORMAT_VERSION})")
        context.exit()


@click.group(
    cls=_InGroups,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and the format of warehouses that it writes.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    envvar=LOG_FORMAT,
    show_default=True,
    show_envvar=True,
    expose_value=False,  # see `_take_log_format`
    help="Print each line on stderr as words, or as a JSON object.",
)
def kp_batch() -> None:
    """Rescore archives of AI reasoning traces, and ask about the scores."""


def main() -> NoReturn:
    """Run the command line and leave with its exit status."""
    # Help needs docstrings, which -OO removes.
    if sys.flags.optimize > 1 and os.environ.pop("PYTHONOPTIMIZE", None):
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 (the same command again)
    # NumPy's threads wait for their first work in a loop of 2**26 turns: 100 ms of a small run.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
    # Without this, Pydantic searches the metadata of all packages for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Imported objects stay: searching them for cycles 200 times took a tenth of a small run.
    gc.set_threshold(50_000)
    for stream in (sys.stdout, sys.stderr):  # either may be closed, and so None
        if isinstance(stream, TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
            stream.reconfigure(errors=WITH_ESCAPES)
    _take_log_format()
    name, *rest = sys.argv[1:] or [""]
    if name in SUPERVISED and _HELP.isdisjoint(rest):
        note = _INTACT if name in _PUBLISHING else ""
        try:
            sys.exit(supervised(run_supervised, note=note, answer=_answer))
        except (OSError, MemoryError) as error:  # no room for another process, or for its files
            _answer(_result().failed(error))
            print_message(str(explain_error(error)))
            sys.exit(1)
    for number in ending_signals():
        signal.signal(number, _raise_ended)
    sys.exit(run_command())


def _take_log_format() -> None:
    """Move --log-format from the words of the command line to the environment."""
    match sys.argv[1:]:
        case ["--log-format", value, *rest]:
            os.environ[LOG_FORMAT] = value
        case [word, *rest] if word.startswith("--log-format="):
            os.environ[LOG_FORMAT] = word.partition("=")[2]
        case rest:
            pass
    sys.argv[1:] = rest


def _raise_ended(number: int, _frame: FrameType | None) -> NoReturn:
    for other in ending_signals():
        signal.signal(other, signal.SIG_IGN)
    raise EndedBySignal(number)


def run_supervised() -> int:
    """Run the command as the child of a supervisor, and return the exit status."""
    log.show_on_stderr()
    return run_command()


def _answer(ended: RunResult) -> None:
    """Print the object of `run --json`."""
    print_unanswered(sys.argv[1:], ended)


def _result() -> RunResult:
    """Return the state of this command, as far as it is known here."""
    warehouse = SENT.get("warehouse")
    place = shown(Path(warehouse)) if warehouse else None
    return RunResult.here("running", started_at=_BEGAN, warehouse=place)


def _answer_for(error: BaseException) -> None:
    """Print the object of this command for the error that ends it, unless one is printed."""
    if SENT.get("answered"):
        return
    if isinstance(error, click.ClickException) and not isinstance(error, SettingError):
        error = SettingError(error.format_message())
    _answer(_result().failed(error))
    send(answered=True)


def _print_wrong_usage(error: click.ClickException) -> None:
    if is_json():
        echo_line(error.format_message(), logging.ERROR)
    else:
        error.show(user_err())


def run_command() -> int:
    """Run the command, print the error that ends it, and return the exit status."""
    SENT.clear()
    follow(send)
    try:
        for name in _MODULES:
            import_module(f"kp_batch.cli.{name}")  # it adds its commands to the group
        kp_batch.main(standalone_mode=False)
        if out := user_out():
            with writing_to("stdout"):
                out.flush()
    except click.ClickException as error:
        _answer_for(error)
        with suppress(OSError, ResourceError):  # nobody reads our output any more
            _print_wrong_usage(error)
        return error.exit_code
    except EndedBySignal as error:
        print_message(f"ended by {signal.Signals(error.args[0]).name}")
        return 128 + error.args[0]
    except BrokenPipeError:
        sys.stdout = None  # nobody reads our output any more: end without a message
        return 1
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 (none is worth a traceback, Rust's panics neither)
        _answer_for(error)
        print_message(str(explain_error(error)))
        return 1
    return 0
