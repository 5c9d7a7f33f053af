"""The command line: arguments in, tables and messages out. Heavy imports stand where they work."""

import signal
import sys
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from kp_batch import log
from kp_batch.cli.supervise import ending_signals, print_message, supervised
from kp_batch.errors import explained
from kp_batch.log import telling, user_err, user_out

_MODULES = (  # of the commands, in their order
    *("run", "query", "explain", "sweep"),
    *("maintain", "import_", "export", "schema"),
)
_PUBLISHING = {"forget", "rollback", "run", "vacuum"}  # commands; all others publish nothing
LONG = {
    *("run", "plan", "demo", "compare", "verify", "explain", "score", "sweep"),
    *("audit", "vacuum", "forget", "rollback", "import", "export"),
}
_WHOLE = "; what is published is whole, and kp-batch runs tells by which runs"


class EndedBySignal(BaseException):
    """The user, or the system, ended the command."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kp-batch")
def kp_batch() -> None:
    """Rescore archives of AI reasoning traces, and ask about the scores."""


def main() -> NoReturn:
    """Run the command line and leave with its exit status."""
    name, *rest = sys.argv[1:] or [""]
    if name in LONG and not {"-h", "--help"} & {*rest}:
        try:
            sys.exit(supervised(long_status, whole=_WHOLE if name in _PUBLISHING else ""))
        except OSError as error:  # there is no room for another process, or for its files
            print_message(str(explained(error)))
            sys.exit(1)
    for number in ending_signals():
        signal.signal(number, _end)
    sys.exit(status())


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    for each in ending_signals():
        signal.signal(each, signal.SIG_IGN)
    raise EndedBySignal(number)


def long_status() -> int:
    """Do it as the child of a supervisor."""
    log.show_on_stderr()
    code = status()
    from kp_batch.storage.store import TRAFFIC

    if TRAFFIC.requests and not code:  # what failed says why in its last line
        log.info(f"object storage: {TRAFFIC}")
    return code


def status() -> int:
    """Do what the command line says, and tell what it fails over; gives the exit status."""
    try:
        for name in _MODULES:
            import_module(f"kp_batch.cli.{name}")  # it adds its commands to the group
        kp_batch.main(standalone_mode=False)
        if out := user_out():
            with telling("stdout"):
                out.flush()
    except click.ClickException as error:
        with suppress(OSError):  # who reads our output has left
            error.show(user_err())
        return error.exit_code
    except EndedBySignal as error:
        print_message(f"ended by {signal.Signals(error.args[0]).name}")
        return 128 + error.args[0]
    except BrokenPipeError:
        sys.stdout = None  # whoever read our output has left; so do we, without a word
        return 1
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 (none is worth a traceback, Rust's panics neither)
        print_message(str(explained(error)))
        return 1
    return 0
