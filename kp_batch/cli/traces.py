"""`sample`: synthetic traces."""

from pathlib import Path
from typing import Any

import click

from kp_batch.cli import kp_batch
from kp_batch.text import number


@kp_batch.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--traces",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    help="How many.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=21,
    show_default=True,
    help="Over so many days, from 2026-01-05 on.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=7,
    show_default=True,
    help="The same seed makes the same traces.",
)
@click.option(
    "--dirty", type=click.FloatRange(0, 1), default=0.0, help="Share of rows with a fault."
)
def sample(folder: Path, **shape: Any) -> None:
    """Make a synthetic archive in FOLDER, one Parquet file a day."""
    from kp_batch.sample import write_sample

    files = len(write_sample(folder, **shape))
    told = f"{number(shape['traces'], 'trace')} in {number(files, 'file')}"
    click.echo(f"kp-batch: {told} in {folder}", err=True)
