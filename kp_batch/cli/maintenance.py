"""`catalog`, `vacuum`, `forget` and `rollback`: the upkeep of a warehouse."""

import re
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import complete_runs, json_line, json_option, warehouse_option
from kp_batch.cli.result_texts import forgotten_text, removed_text, rolled_back_text
from kp_batch.cli.supervise import logged
from kp_batch.errors import KpBatchError
from kp_batch.log import echo
from kp_batch.novelty.settings import parse_ttl
from kp_batch.text import number
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.layout import Layout

_NEEDS = (
    "who opens it needs DuckDB's extension for that store (INSTALL httpfs, or azure), credentials "
    "(CREATE SECRET), and this file made again after each run"
)


@kp_batch.command()
@warehouse_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Make that file instead, of a bucket's warehouse too: its views name the objects.",
)
def catalog(warehouse: Path, output: Path | None) -> None:
    """Make kp.duckdb anew for other clients, after the folder was moved or the file was lost."""
    from kp_batch.warehouse.publication import make_catalog, rebuild
    from kp_batch.warehouse.reader import connect

    if output:
        make_catalog(warehouse, output)
        needs = f"; {_NEEDS}" if url_of(warehouse) else ""
        echo(f"{output} shows what is published in {shown(warehouse)}{needs}", err=True)
        return
    tables = number(len(rebuild(warehouse).tables), "table")
    with connect(warehouse) as connection:
        last = connection.execute("SELECT max_by(run_id, number) FROM runs")
        [(run_id,)] = last.fetchall()
    as_left = f", as run {run_id} left them" if run_id else ""
    echo(f"kp.duckdb is made for {shown(warehouse)}: {tables}{as_left}", err=True)


@kp_batch.command()
@warehouse_option
@click.option(
    "--keep",
    default="30d",
    show_default=True,
    help="What runs of this time left stays readable with --as-of: 12h, 30d.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be removed; change nothing.")
def vacuum(warehouse: Path, keep: str, dry_run: bool) -> None:  # noqa: FBT001 (click passes it)
    """Remove old versions, vectors that nothing needs, and the raw rows of old rejects."""
    kept = _time(keep)
    from kp_batch.operations.vacuum import vacuum as vacuum_warehouse
    from kp_batch.warehouse.manifest import require_manifest

    require_manifest(warehouse)  # where no warehouse is, not even a log is made
    with nullcontext() if dry_run else logged(Layout(warehouse).log):
        removed = vacuum_warehouse(warehouse, kept, datetime.now(UTC), dry_run=dry_run)
    echo(removed_text(removed, dry_run=dry_run))


@kp_batch.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@warehouse_option
@click.option(
    "--from", "file", type=click.File("rb"), help="A file of ids, one a line; - is stdin."
)
@click.option("--unseen-too", is_flag=True, help="Keep ids out of later runs that were never seen.")
@click.option("--dry-run", is_flag=True, help="Tell what would be done; change nothing.")
def forget(
    ids: tuple[str, ...],
    warehouse: Path,
    file: IO[bytes] | None,
    unseen_too: bool,  # noqa: FBT001 (click passes it)
    dry_run: bool,  # noqa: FBT001 (likewise)
) -> None:
    """Remove traces for good, as if they had never been in the archive.

    An unknown ID changes nothing and fails, unless --unseen-too is given.
    """
    asked = _ids(ids, file)
    from kp_batch.operations.forget import forget as forget_traces
    from kp_batch.warehouse.manifest import require_manifest

    require_manifest(warehouse)
    with nullcontext() if dry_run else logged(Layout(warehouse).log):
        forgotten = forget_traces(
            warehouse, asked, unseen_too=unseen_too, with_page=True, dry_run=dry_run
        )
    echo(forgotten_text(forgotten, dry_run=dry_run))
    if forgotten.refusal:
        raise KpBatchError(forgotten.refusal)


@kp_batch.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@warehouse_option
@click.option("--dry-run", is_flag=True, help="Tell what would be undone; change nothing.")
@json_option
def rollback(run: str, warehouse: Path, *, dry_run: bool, as_json: bool) -> None:
    """Publish again what RUN left: its scores, rejects, files and settings.

    A RUN is its id, the beginning of it, latest (the last one that is done) or previous. The next
    run goes on from there, with what the archive holds by then: --dry-run tells that, too.
    """
    from kp_batch.operations.rollback import rollback as roll_back
    from kp_batch.warehouse.manifest import require_manifest

    require_manifest(warehouse)
    with nullcontext() if dry_run else logged(Layout(warehouse).log):
        result = roll_back(warehouse, run, with_page=True, dry_run=dry_run)
    echo(json_line(result) if as_json else rolled_back_text(result, dry_run=dry_run))


def _time(text: str) -> timedelta:
    """Read how long runs stay readable."""
    if re.fullmatch(r"\s*[0-9]+\s*m\s*", text, re.IGNORECASE):
        raise click.UsageError(
            f"--keep: {text!r} may be minutes or months; write hours or days, such as 12h or 30d"
        )
    with suppress(ValueError):
        if kept := parse_ttl(text):
            return kept
    raise click.UsageError(f"--keep: a time such as 12h or 30d, got {text!r}")


def _ids(given: Sequence[str], file: IO[bytes] | None) -> list[str]:
    """The ids of the command line and those of a file, one a line; an empty one is none."""
    try:
        lines = file.read().decode("utf-8-sig").split("\n") if file else []
        "".join(given).encode()
    except UnicodeError as error:
        raise click.UsageError(f"ids are UTF-8, and some are not: {error}") from error
    ids = [each for each in (*given, *(line.removesuffix("\r") for line in lines)) if each]
    if not ids:
        raise click.UsageError("no id is given; name some, or a file of ids with --from FILE")
    return ids
