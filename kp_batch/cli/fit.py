"""`fit`: the weights that order labels best."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    Parsed,
    count_option,
    json_line,
    json_option,
    warehouse_option,
)
from kp_batch.log import echo
from kp_batch.text import time_of


def _begin(text: str) -> datetime:
    """Parse the time from which weights apply; a day is its midnight in UTC."""
    if time_of(f"{text}Z") or not (begin := time_of(text)):
        raise ValueError(f"{text!r} is neither a day such as 2026-01-31, nor a time with a zone")
    return begin


@kp_batch.command()
@click.argument("labels", type=click.Path(path_type=Path))
@warehouse_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Write all profiles. Domains with evidence get the fitted weights.",
)
@click.option(
    "--from",
    "begin",
    type=Parsed(_begin),
    metavar="DAY",
    help="The traces from then on get the fitted weights.",
    show_default="all traces",
)
@click.option(
    "--profiles",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Compare with the profiles of this file, not with the published ones.",
)
@count_option(
    "--suggest", "suggest", default=None, help="Suggest so many traces to label next, one a task."
)
@json_option
def fit(labels: Path, warehouse: Path, *, as_json: bool, **options: Any) -> None:
    """Find the weights that order LABELS best.

    Tests them on labels held out, and says whether the evidence suffices to change any weights.
    LABELS is CSV, Parquet or JSON lines with trace_id, label (yes or no, or a number) and perhaps
    weight. Changes nothing in the warehouse.
    """
    from kp_batch.operations.fit import FitOptions, fit_weights

    result = fit_weights(warehouse, labels, FitOptions(**options))
    echo(json_line(result) if as_json else str(result))
