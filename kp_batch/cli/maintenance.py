"""`catalog`, `vacuum` and `forget`: the upkeep of a warehouse."""

import time
from pathlib import Path

import click

from kp_batch.cli.commands import FORGET, VACUUM
from kp_batch.cli.group import kp_batch, warehouse_option
from kp_batch.cli.result_texts import removed_text
from kp_batch.cli.supervisor import child_result
from kp_batch.text import number
from kp_batch.warehouse.layout import Layout


@kp_batch.command()
@warehouse_option
def catalog(warehouse: Path) -> None:
    """Make kp.duckdb anew for other clients, after the folder was moved or the file was lost."""
    from kp_batch.warehouse.publication import rebuild
    from kp_batch.warehouse.reader import connect

    tables = number(len(rebuild(warehouse).tables), "table")
    with connect(warehouse) as connection:
        last = connection.execute("SELECT max_by(run_id, (started_at, run_id)) FROM runs")
        [(run_id,)] = last.fetchall()
    as_left = f", as run {run_id} left them" if run_id else ""
    click.echo(f"kp.duckdb is made for {warehouse}: {tables}{as_left}", err=True)


@kp_batch.command()
@warehouse_option
@click.option(
    "--keep",
    default="30d",
    show_default=True,
    help="What runs of this time left stays readable with --as-of.",
)
def vacuum(warehouse: Path, keep: str) -> None:
    """Remove old versions, vectors that nothing needs, and the raw rows of old rejects."""
    from kp_batch.novelty.settings import parse_ttl
    from kp_batch.warehouse.manifest import require_manifest

    try:
        kept = parse_ttl(keep)
    except ValueError:
        kept = None
    if kept is None:
        raise click.UsageError(f"--keep: a time such as 30d or 12h, got {keep!r}")
    require_manifest(warehouse)  # where no warehouse is, not even a log is made
    log = Layout(warehouse).log
    with child_result(VACUUM, log, str(warehouse), kept.total_seconds()) as removed:
        click.echo(removed_text(removed))


@kp_batch.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@warehouse_option
def forget(ids: tuple[str, ...], warehouse: Path) -> None:
    """Remove traces for good, as if they had never been in the archive."""
    began = time.time()
    from kp_batch.pipeline.summary import as_text
    from kp_batch.warehouse.manifest import require_manifest

    require_manifest(warehouse)
    log = Layout(warehouse).log
    with child_result(FORGET, log, str(warehouse), ids, began=began) as summary:
        click.echo(as_text(summary))
