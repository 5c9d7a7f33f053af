"""`sweep`: what other caches and thresholds would do to the scores."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import click

from kp_batch.cli.command import json_line
from kp_batch.cli.commands import SWEEP
from kp_batch.cli.exporting import written
from kp_batch.cli.group import json_option, kp_batch, warehouse_option
from kp_batch.cli.supervisor import child_result
from kp_batch.cli.sweep_text import sweep_text
from kp_batch.novelty.settings import format_ttl, parse_ttl
from kp_batch.text import printable

T = TypeVar("T")
_ENDING = ".html"


def _several(
    read: Callable[[str], T],
) -> Callable[[click.Context, click.Parameter, str | None], Sequence[T]]:
    """Read the values of an option, which have commas between them; none where it is left out."""

    def read_all(_: click.Context, __: click.Parameter, text: str | None) -> Sequence[T]:
        try:
            return [read(each.strip()) for each in text.split(",")] if text is not None else []
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return read_all


def _size(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):
        raise ValueError(f"a cache size is a whole number from 1 on, got {text!r}")
    return int(text)


def _ttl(text: str) -> str:
    return format_ttl(parse_ttl(text))


def _threshold(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) > 1:
        raise ValueError(f"a threshold is a number from 0 to 1, got {text!r}")
    return float(text)


def _page(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    if output is not None and Path(output).suffix.lower() != _ENDING:
        raise click.BadParameter(f"a page ends with {_ENDING}, got {output!r}")
    return output


@kp_batch.command()
@warehouse_option
@click.option(
    "--cache-size",
    "sizes",
    metavar="SIZE,...",
    callback=_several(_size),
    help="Vectors that the cache holds: 200,1000,5000.",
)
@click.option(
    "--ttl",
    "ttls",
    metavar="TTL,...",
    callback=_several(_ttl),
    help="Times to live in the cache: none,12h,7d.",
)
@click.option(
    "--threshold",
    "thresholds",
    metavar="SCORE,...",
    callback=_several(_threshold),
    help="Scores worth sharing: 0.7,0.75.",
)
@click.option(
    "-o", "--output", metavar="FILE.html", callback=_page, help="A page with charts and the table."
)
@json_option
def sweep(  # noqa: PLR0913 (each is an option)
    warehouse: Path,
    *,
    sizes: Sequence[int],
    ttls: Sequence[str],
    thresholds: Sequence[float],
    output: str | None,
    as_json: bool,
) -> None:
    """Tell what other caches and thresholds would do to the scores; changes nothing.

    Every combination of the given values is compared with the one in force, from the stored
    vectors; what is left out stays as the warehouse has it. Encoder and weights are those in force.
    """
    asked = {"sizes": sizes, "ttls": ttls, "thresholds": thresholds}
    # The folder and the file are removed even where a signal ends the other process.
    with (
        TemporaryDirectory() as folder,
        written(output) if output else nullcontext() as page,
        child_result(SWEEP, None, str(warehouse), folder, asked, page and str(page)) as found,
    ):
        click.echo(json_line(found) if as_json else sweep_text(found))
    if output:
        click.echo(f"kp-batch: the page is in {printable(output)}", err=True)
