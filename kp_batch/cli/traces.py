"""`sample` and `score`: synthetic traces, and single ones."""

import json
from pathlib import Path
from typing import Any

import click

from kp_batch.cli.group import kp_batch
from kp_batch.errors import TraceError


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

    paths = write_sample(folder, **shape)
    click.echo(f"kp-batch: {shape['traces']:,} traces in {len(paths)} files in {folder}", err=True)


@kp_batch.command()
@click.argument("file", type=click.File("rb"))
def score(file: Any) -> None:
    """Score one trace, FILE.json or - for stdin, as a live engine would score its first."""
    try:
        trace = json.load(file)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file.name} is no JSON: {error}") from error
    from kp_batch.live import compare_profiles, evaluate_value

    if not isinstance(trace, dict):
        raise TraceError(f"{file.name} holds no JSON object; give one trace")
    by_profile = compare_profiles(trace)
    click.echo(json.dumps({"score": evaluate_value(trace), "by_profile": by_profile}))
