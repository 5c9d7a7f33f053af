"""`sweep`: what other caches and thresholds would do to the scores."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import Parsed, json_line, json_option, warehouse_option
from kp_batch.log import echo
from kp_batch.novelty.cache_settings import format_cache_by, parse_cache_by
from kp_batch.operations.sweep_result import sweep_text
from kp_batch.text import format_duration, parse_duration

T = TypeVar("T")


def _list_of(parse: Callable[[str], T]) -> Parsed[list[T]]:
    """The values of an option, with commas between them."""
    return Parsed(lambda text: [parse(value.strip()) for value in text.split(",")])


def _size(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):
        raise ValueError(f"a cache size is a whole number from 1 on, got {text!r}")
    return int(text)


def _threshold(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) > 1:
        raise ValueError(f"a threshold is a number from 0 to 1, got {text!r}")
    return float(text)


@kp_batch.command()
@warehouse_option
@click.option(
    "--cache-by",
    metavar="NAME,...",
    type=_list_of(lambda text: format_cache_by(parse_cache_by(text))),
    help="Whose traces share a cache: none,agent_id,agent_id+host.",
)
@click.option(
    "--cache-size",
    "sizes",
    metavar="SIZE,...",
    type=_list_of(_size),
    help="Vectors that the cache holds: 200,1000,5000.",
)
@click.option(
    "--ttl",
    "ttls",
    metavar="TTL,...",
    type=_list_of(lambda text: format_duration(parse_duration(text))),
    help="Times to live in the cache: none,12h,7d.",
)
@click.option(
    "--threshold",
    "thresholds",
    metavar="SCORE,...",
    type=_list_of(_threshold),
    help="Scores worth sharing: 0.7,0.75.",
)
@json_option
def sweep(  # noqa: PLR0913 (each is an option)
    warehouse: Path,
    *,
    cache_by: Sequence[str] | None,
    sizes: Sequence[int] | None,
    ttls: Sequence[str] | None,
    thresholds: Sequence[float] | None,
    as_json: bool,
) -> None:
    """Show what other caches and thresholds would do to the scores; changes nothing.

    Every combination of the given values is compared with the one in force, from the stored
    vectors; what is left out stays as the warehouse has it. Encoder and weights are those in force.
    Where the archive has recorded scores, it tells how well each cache fits them.
    """
    from kp_batch.operations.sweep import sweep as sweep_of

    result = sweep_of(
        warehouse,
        cache_by=cache_by or (),
        sizes=sizes or (),
        ttls=ttls or (),
        thresholds=thresholds or (),
    )
    echo(json_line(result) if as_json else sweep_text(result))
