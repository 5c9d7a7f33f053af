"""`explain` and `score`: what the score of one trace is made of."""

from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    json_line,
    json_option,
    option_of_warehouse,
    warehouse_option,
)
from kp_batch.errors import TraceError, UnreadableError
from kp_batch.log import echo
from kp_batch.text import count_of, printable, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kp_batch.operations.score import Unscored

T = TypeVar("T")


@kp_batch.command()
@click.argument("trace")
@warehouse_option
@click.option("--candidate", is_flag=True, help="Explain the score of the candidate.")
@json_option
def explain(trace: str, warehouse: Path, *, candidate: bool, as_json: bool) -> None:
    """Explain the score of TRACE, an id or its beginning.

    Shows the parts of the score, the most similar traces, and the runs that changed it.
    """
    from kp_batch.operations.explain import explain as explain_trace

    explanation = explain_trace(warehouse, trace, candidate=candidate)
    echo(json_line(explanation) if as_json else str(explanation))


def _moment(text: str) -> datetime:
    """A time as ISO 8601 has it; without a zone it is UTC."""
    if time := time_of(text):
        return time
    raise ValueError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")


def _key_and_value(text: str) -> tuple[str, str | None]:
    """A key of caches and its value; None if nothing follows the =."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"{text!r} is not KEY=VALUE, such as host=a")
    return key, value or None


@kp_batch.command()
@click.argument("file", type=NamedFile("rb"))
@click.option("--profiles", metavar="FILE", help="A TOML file of weight profiles.")
@option_of_warehouse(help="Score with the cache and the profiles of this warehouse.")
@click.option(
    "--at",
    type=Parsed(_moment),
    metavar="TIME",
    help="Score as if it were this time.  [default: now]",
)
@click.option(
    "--group",
    multiple=True,
    type=Parsed(_key_and_value),
    metavar="KEY=VALUE",
    help="If there are several caches (--cache-by), score with the cache of VALUE; without VALUE, "
    "with the cache of traces that have no value.  [default: the trace's own]",
)
@json_option
def score(  # noqa: PLR0913 (each is an option)
    file: IO[bytes],
    *,
    profiles: str | None,
    warehouse: Path | None,
    at: datetime | None,
    group: tuple[tuple[str, str | None], ...],
    as_json: bool,
) -> None:
    """Score new traces. FILE, or - for stdin, has one as JSON, or several as JSONL.

    Writes nothing. With a warehouse, each trace is scored as if it came next there. Without one,
    each is scored as the first trace of a live engine. --json prints a line for each.
    """
    from kp_batch.operations.score import score_lines, scored_text
    from kp_batch.operations.warehouse_cache import scoring
    from kp_batch.scoring.profiles import load_profiles

    moment = at or datetime.now(UTC)
    if len(dict(group)) < len(group):
        raise click.UsageError("--group has the same key twice")
    if group and warehouse is None:
        raise click.UsageError("--group needs a warehouse; name it with --warehouse")
    weights = load_profiles(profiles) if profiles else None
    with scoring(warehouse, weights, moment, dict(group)) as (versions, find_neighbours):
        answers = score_lines(file, versions, moment, find_neighbours)
        print_lines(file, answers, json_line if as_json else scored_text, "cannot be scored")


def print_lines(
    file: IO[bytes],
    answers: "Iterable[T | Unscored]",
    to_text: "Callable[[T | Unscored], str]",
    refusal: str,
) -> None:
    """Print the answer to each line of a file of traces; `refusal` is for lines without one.

    Raises:
        TraceError: the file has no trace, or is of another kind, or some have no answer.
    """
    from kp_batch.operations.score import Unscored

    lines = unscored = 0
    first = ""
    try:
        for answer in answers:
            lines += 1
            if isinstance(answer, Unscored):
                unscored += 1
                first = first or f", the first on line {answer.line:,}: {answer.message}"
            echo(to_text(answer))
    except UnreadableError as error:
        raise TraceError(f"{printable(file.name)} {refusal}: {error}") from error
    if not lines:
        message = f"there is no trace in {printable(file.name)}; give one, or one per line"
        raise TraceError(message)
    if unscored:
        raise TraceError(f"{unscored:,} of {count_of(lines, 'trace')} {refusal}{first}")
