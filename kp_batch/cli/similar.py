"""`similar` and `redundancy`: what resembles what in the whole archive."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.explain import print_lines
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    count_option,
    json_line,
    json_option,
    warehouse_option,
)
from kp_batch.log import echo
from kp_batch.text import parse_similarity


class _TraceOrFile(NamedFile):
    """An existing file, or - for stdin, opened; everything else is the name of a trace, a text."""

    def convert(
        self,
        value: str | os.PathLike[str] | IO[Any],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        if isinstance(value, str) and value != "-" and not _is_file(value):
            return value
        return super().convert(value, param, ctx)


def _is_file(name: str) -> bool:
    with suppress(OSError):  # an id may be too long for a file's name
        return Path(name).exists() and not Path(name).is_dir()
    return False


@kp_batch.command()
@click.argument("trace", metavar="TRACE|FILE", type=_TraceOrFile("rb"))
@warehouse_option
@count_option("-n", "most", default=10, help="List at most this many.")
@json_option
def similar(trace: str | IO[bytes], warehouse: Path, most: int, *, as_json: bool) -> None:
    """Find the traces that are most similar to one.

    Searches the whole archive. TRACE is an id or its beginning. FILE, or - for stdin, has new
    traces as JSONL; --json then prints a line for each.
    """
    from kp_batch.operations.similar import similar_text, similar_to_lines, similar_to_trace

    to_text = json_line if as_json else similar_text
    if isinstance(trace, str):
        echo(to_text(similar_to_trace(warehouse, trace, most)))
    else:
        answers = similar_to_lines(warehouse, trace, datetime.now(UTC), most)
        print_lines(trace, answers, to_text, "cannot be compared")


@kp_batch.command()
@warehouse_option
@click.option(
    "--similarity",
    type=Parsed(parse_similarity),
    metavar="COSINE",
    default="0.95",
    show_default=True,
    help="The lowest similarity of a near repeat.",
)
@json_option
def redundancy(warehouse: Path, similarity: float, *, as_json: bool) -> None:
    """Find the share of traces that repeat an earlier one.

    Near repeats count, too. Above 50,000 different texts, the share is an estimate with its
    interval.
    """
    from kp_batch.operations.redundancy import redundancy as redundancy_of

    result = redundancy_of(warehouse, similarity)
    echo(json_line(result) if as_json else str(result))
