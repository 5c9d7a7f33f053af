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
    """Parse the time from which weights apply; a day means its midnight in UTC."""
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
    help="Write all profiles; domains with enough evidence get the fitted weights.",
)
@click.option(
    "--from",
    "begin",
    type=Parsed(_begin),
    metavar="DAY",
    help="Apply the fitted weights to traces from this day or time on.",
    show_default="all traces",
)
@click.option(
    "--profiles",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Compare with the profiles in this file instead of the published ones.",
)
@count_option(
    "--suggest", "suggest", default=None, help="Suggest N traces to label next, one per task."
)
@json_option
def fit(labels: Path, warehouse: Path, *, as_json: bool, **options: Any) -> None:
    """Find the weights that order LABELS best.

    Tests them on held-out labels, and says whether the evidence suffices to change any weights.
    LABELS is a CSV, Parquet or JSONL file with the columns trace_id, label (yes or no, or a number)
    and optionally weight. Does not change the warehouse.
    """
    from kp_batch.operations.fit import FitOptions, fit_weights

    result = fit_weights(warehouse, labels, FitOptions(**options))
    echo(json_line(result) if as_json else str(result))
