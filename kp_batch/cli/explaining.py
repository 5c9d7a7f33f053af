"""`explain` and `score`: what the score of one trace is made of."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.breakdown_text import scored_text
from kp_batch.cli.explanation_text import explanation_text
from kp_batch.cli.options import json_line, json_option, option_of_warehouse, warehouse_option
from kp_batch.errors import TraceError
from kp_batch.log import echo
from kp_batch.text import number, printable, time_of

if TYPE_CHECKING:
    from kp_batch.operations.score import FindNeighbours
    from kp_batch.scoring.profiles import ProfileVersions


@kp_batch.command()
@click.argument("trace")
@warehouse_option
@json_option
def explain(trace: str, warehouse: Path, *, as_json: bool) -> None:
    """Tell why TRACE, an id or the beginning of one, has its score, and what it resembled."""
    from kp_batch.operations.explain import explain as explain_trace

    explanation = explain_trace(warehouse, trace)
    echo(json_line(explanation) if as_json else explanation_text(explanation))


class _Time(click.ParamType[datetime]):
    """A time as ISO 8601 has it; without a zone it is UTC."""

    name = "time"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """See `click.ParamType`."""
        time = time_of(value)
        return time or self.fail(f"{value!r} is no time such as 2026-01-31T12:00:00Z", param, ctx)


class _Value(click.ParamType[tuple[str, str | None]]):
    """One of the values that tell caches apart; none after the = stands for a missing one."""

    name = "value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        """See `click.ParamType`."""
        name, equals, given = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not KEY=VALUE, such as host=a", param, ctx)
        return name, given or None


@kp_batch.command()
@click.argument("file", type=click.File("rb"))
@click.option("--profiles", metavar="FILE", help="Weight by a TOML file of profiles.")
@option_of_warehouse(help="Meet the cache of this warehouse, and take its profiles.")
@click.option(
    "--at", type=_Time(), metavar="TIME", help="Score it as at this time.  [default: now]"
)
@click.option(
    "--group",
    multiple=True,
    type=_Value(),
    metavar="KEY=VALUE",
    help="Meet the cache of this value, where the warehouse keeps several (--cache-by); without "
    "VALUE, that of the traces that have none. Left out, it is the trace's own.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="A line of JSON a trace, or text.",
)
def score(  # noqa: PLR0913 (each is an option)
    file: IO[bytes],
    *,
    profiles: str | None,
    warehouse: Path | None,
    at: datetime | None,
    group: tuple[tuple[str, str | None], ...],
    output_format: str,
) -> None:
    """Score new traces: FILE, or - for stdin, is one as JSON, or JSONL.

    With a warehouse each is scored as if it came next there; the warehouse stays as it is.
    Without one it is scored as a live engine would score its first.
    """
    from kp_batch.operations.score import Unscored, score_lines

    moment = at or datetime.now(UTC)
    lines = unscored = 0
    first = ""
    if len(dict(group)) < len(group):
        raise click.UsageError("--group gives one of its keys twice")
    with _scorer(warehouse, profiles, moment, dict(group)) as (versions, find_neighbours):
        for told in score_lines(file, versions, moment, find_neighbours):
            lines += 1
            if isinstance(told, Unscored):
                unscored += 1
                first = first or f"the first on line {told.line:,}: {told.message}"
            echo(json_line(told) if output_format == "json" else scored_text(told))
    if not lines:
        raise TraceError(f"there is no trace in {printable(file.name)}")
    if unscored:
        raise TraceError(f"{unscored:,} of {number(lines, 'trace')} cannot be scored, {first}")


@contextmanager
def _scorer(
    warehouse: Path | None,
    profiles: str | None,
    moment: datetime,
    group: Mapping[str, str | None],
) -> Generator[tuple["ProfileVersions", "FindNeighbours"]]:
    """The weights, and what is met."""
    from kp_batch.operations.score import no_neighbours
    from kp_batch.scoring.profiles import load_profiles

    given = load_profiles(profiles) if profiles else None
    if warehouse is None:
        if group:
            raise click.UsageError("--group is of a warehouse; name it with --warehouse")
        yield given or load_profiles(), no_neighbours
        return
    from kp_batch.operations.warehouse_cache import warehouse_cache

    with warehouse_cache(warehouse, moment, group) as (own, find_neighbours):
        yield given or own, find_neighbours
