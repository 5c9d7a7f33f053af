"""`catalog`, `vacuum`, `forget`, `migrate` and `rollback`: the upkeep of a warehouse."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from logging import WARNING
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    complete_runs,
    expected_warehouse_id,
    json_line,
    json_option,
    note_option,
    the_project,
    warehouse_option,
)
from kp_batch.cli.supervise import logged
from kp_batch.errors import KpBatchError, SettingError
from kp_batch.files import decoded
from kp_batch.log import echo, echo_line, echo_result
from kp_batch.text import count_of, parse_keep
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.layout import Layout

if TYPE_CHECKING:
    from kp_batch.operations.rollback import RollbackResult

_NEEDS = (
    "to open it, use DuckDB with the extension for that store (INSTALL httpfs, or azure) and "
    "credentials (CREATE SECRET); make this file again after each run"
)


@kp_batch.command()
@warehouse_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this file instead. For a warehouse in a bucket, this file reads the bucket.",
)
def catalog(warehouse: Path, output: Path | None) -> None:
    """Rebuild kp.duckdb for other clients.

    Use this if the folder was moved or the file is lost.
    """
    from kp_batch.warehouse.publication import make_catalog, rebuild
    from kp_batch.warehouse.reader import connect

    if output:
        make_catalog(warehouse, output)
        needs = f"; {_NEEDS}" if url_of(warehouse) else ""
        echo(f"{output} shows what is published in {shown(warehouse)}{needs}", err=True)
        return
    tables = count_of(len(rebuild(warehouse).tables), "table")
    with connect(warehouse) as connection:
        last = connection.execute("SELECT max_by(run_id, number) FROM runs")
        [(run_id,)] = last.fetchall()
    as_left = f", as run {run_id} left them" if run_id else ""
    echo(f"kp.duckdb is made for {shown(warehouse)}: {tables}{as_left}", err=True)


@kp_batch.command()
@warehouse_option
@click.option(
    "--keep",
    type=Parsed(parse_keep),
    default="30d",
    show_default=True,
    help="How long --as-of can read the tables of a run, such as 12h or 30d.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; change nothing.")
@json_option
def vacuum(warehouse: Path, keep: timedelta, *, dry_run: bool, as_json: bool) -> None:
    """Remove old versions, unused vectors and old raw rows.

    Raw rows are the JSON of rejected rows.
    """
    from kp_batch.pipeline.vacuum import vacuum as vacuum_warehouse
    from kp_batch.warehouse.vacuum_result import removed_text

    with _upkeep(warehouse, dry_run=dry_run):
        removed = vacuum_warehouse(warehouse, keep, datetime.now(UTC), dry_run=dry_run)
    echo_result(json_line(removed) if as_json else removed_text(removed, dry_run=dry_run))


@kp_batch.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@warehouse_option
@click.option(
    "--from", "file", type=NamedFile("rb"), help="A file with one id per line, or - for stdin."
)
@click.option("--unseen-too", is_flag=True, help="Keep unknown ids out of later runs, too.")
@note_option
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@json_option
def forget(  # noqa: PLR0913 (each is an option)
    ids: tuple[str, ...],
    warehouse: Path,
    file: IO[bytes] | None,
    note: str | None,
    *,
    unseen_too: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove traces for good.

    Scores are then as if these traces had never been in the archive. If an ID is unknown, the
    command fails and changes nothing. --unseen-too accepts unknown IDs, and creates the warehouse
    if there is none.
    """
    all_ids = _ids(ids, file)
    from kp_batch.operations.forget import forget as forget_traces
    from kp_batch.operations.forget import forgotten_text

    is_missing = unseen_too and not Layout(warehouse).manifest.exists()
    with nullcontext() if is_missing else _upkeep(warehouse, dry_run=dry_run):
        forgotten = forget_traces(
            warehouse, all_ids, unseen_too=unseen_too, note=note, dry_run=dry_run
        )
    echo_result(json_line(forgotten) if as_json else forgotten_text(forgotten, dry_run=dry_run))
    if forgotten.status == "refused":
        raise KpBatchError(forgotten.reason or "")


@kp_batch.command()
@warehouse_option
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@json_option
def migrate(warehouse: Path, *, dry_run: bool, as_json: bool) -> None:
    """Upgrade a warehouse to the format of this version.

    Keeps settings, vectors, forgotten ids and all runs that --as-of can read. An interrupted
    upgrade leaves the old warehouse intact; run it again.
    """
    from kp_batch.operations.migrate import migrate as migrate_warehouse
    from kp_batch.warehouse.lock import may_write

    changes_nothing = dry_run or not Layout(warehouse).manifest.exists() or not may_write(warehouse)
    with nullcontext() if changes_nothing else logged(Layout(warehouse).output):
        result = migrate_warehouse(warehouse, expected_warehouse_id(), dry_run=dry_run)
    echo_result(json_line(result) if as_json else str(result))


@kp_batch.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@warehouse_option
@note_option
@click.option("--dry-run", is_flag=True, help="Print what would be undone; change nothing.")
@json_option
def rollback(run: str, warehouse: Path, note: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Publish the tables of RUN again.

    Restores its scores, rejects, files and settings. RUN is an id or its beginning, previous, or a
    time such as 2026-03-01T02:00 (in UTC unless a zone follows): the last run that had succeeded by
    then. --dry-run also shows what the next run would do after the rollback.
    """
    from kp_batch.operations.rollback import excluded_by, plan_rollback, rolled_back_text
    from kp_batch.operations.rollback import rollback as roll_back

    with _upkeep(warehouse, dry_run=dry_run):
        if dry_run:
            result = plan_rollback(warehouse, run, excluded_by(the_project(), warehouse))
        else:
            result = roll_back(warehouse, run, note=note)
    has_project = the_project() is not None
    text = rolled_back_text(result, dry_run=dry_run, has_project=has_project)
    echo_result(json_line(result) if as_json else text)
    if text := _project_warning(warehouse, result):
        echo_line(text, WARNING)


def _project_warning(warehouse: Path, result: "RollbackResult") -> str | None:
    """Return a warning if the project would bring back what was undone, or cannot be read."""
    try:
        lines = _lines_bringing_back(warehouse, result)
    except SettingError as error:  # of the project's file; the rollback itself is done
        return f"{error}; it is unknown whether the project would bring back what this undoes"
    if not lines:
        return None
    return (
        f"the project would bring back what this undoes: {', '.join(lines)}; change it there, or "
        "run once with --ignore-rollback; until then, runs fail"
    )


def _lines_bringing_back(warehouse: Path, result: "RollbackResult") -> list[str]:
    project = the_project()
    if project is None or not result.rolled_back.undone:
        return []
    from kp_batch.config import RescoreConfig
    from kp_batch.runs.rolled_back import bringing_back
    from kp_batch.warehouse.snapshot import published

    [target] = published(warehouse).find_runs(result.rolled_back.to_run)
    config = RescoreConfig.model_validate({"project": project, "warehouse": warehouse})
    return bringing_back(config, target.settings, result.rolled_back.undone)


def _upkeep(warehouse: Path, *, dry_run: bool) -> AbstractContextManager[None]:
    """Log a command that changes something; require a warehouse."""
    from kp_batch.warehouse.manifest import require_manifest

    require_manifest(warehouse)
    return nullcontext() if dry_run else logged(Layout(warehouse).output)


def _ids(ids: Sequence[str], file: IO[bytes] | None) -> list[str]:
    """Return the ids of the command line and of a file with one per line, without empty ones."""
    try:
        lines = decoded(file.read()).split("\n") if file else []
        "".join(ids).encode()
    except ValueError as error:
        raise click.UsageError(f"ids are UTF-8, but some are not: {error}") from error
    ids = [*filter(None, (*ids, *(line.removesuffix("\r") for line in lines)))]
    if not ids:
        raise click.UsageError("no id is given; name some, or a file of ids with --from FILE")
    return ids
