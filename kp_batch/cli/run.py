"""`run`, `plan` and `demo`."""

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kp_batch.cli.group import in_process, json_option, kp_batch, log_of, warehouse_option
from kp_batch.cli.query import ask

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig

DEMO_QUERIES = {
    "How do scores differ by domain?": (
        "SELECT task_domain, count(*) AS traces, round(avg(score), 3) AS mean_score, "
        "count(*) FILTER (meets_threshold) AS worth_sharing FROM scores GROUP BY ALL ORDER BY ALL"
    ),
    "Which traces are worth sharing most?": (
        "SELECT left(trace_id, 17) AS trace, task_domain, round(novelty, 3) AS novelty, "
        "n_tools, round(score, 3) AS score FROM scores ORDER BY score DESC LIMIT 5"
    ),
    "What is least novel without being a copy, and what was it like?": (
        "SELECT left(trace_id, 17) AS trace, round(max_similarity, 6) AS max_similarity, "
        "left(nearest_trace_id, 17) AS nearest, round(nearest_age_s / 60) AS minutes_ago "
        "FROM scores WHERE max_similarity < 0.9999 ORDER BY novelty LIMIT 5"
    ),
}

_SETTINGS: tuple[Callable[[Any], Any], ...] = (
    click.argument("archive", nargs=-1, required=True),
    warehouse_option,
    click.option(
        "--embedder",
        default="minilm",
        show_default=True,
        help="minilm, hashing, none, or any sentence-transformers folder or id.",
    ),
    click.option(
        "--cache-size", type=int, default=1_000, show_default=True, help="Vectors it holds."
    ),
    click.option(
        "--ttl", default="none", show_default=True, help="The cache's: none, 90m, 12h, 7d."
    ),
    click.option("--profiles", metavar="FILE", help="A TOML file of weight profiles."),
    click.option(
        "--threshold", type=float, default=0.75, show_default=True, help="A score worth sharing."
    ),
    click.option("--since", metavar="DATE", help="Restate no day before this one."),
    click.option("--until", metavar="DATE", help="Restate no day after this one."),
    click.option(
        "--prune", is_flag=True, help="Remove the traces of files that are gone or unreadable."
    ),
    click.option(
        "--max-reject-share",
        type=float,
        default=0.05,
        show_default=True,
        help="More rejected rows than this share of the archive fail the run.",
    ),
    json_option,
)


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda inner, option: option(inner), reversed(_SETTINGS), command)


@kp_batch.command()
@_settings
@click.option("--wait", is_flag=True, help="Wait while another run writes to the warehouse.")
def run(as_json: bool, **settings: Any) -> None:  # noqa: FBT001 (click passes it)
    """Rescore ARCHIVE: Parquet or JSONL files, folders, globs or URLs."""
    summary = _run(settings)
    click.echo(json.dumps(summary) if as_json else _as_text(summary))


@kp_batch.command()
@_settings
def plan(as_json: bool, **settings: Any) -> None:  # noqa: FBT001 (click passes it)
    """Tell what a run over ARCHIVE would do, and why; changes nothing."""
    config = _checked(settings)
    with TemporaryDirectory() as folder:  # removed also where a signal ends the other process
        told = in_process("plan", {"config": config.model_dump(mode="json"), "folder": folder})
    text = told.pop("text")
    click.echo(json.dumps(told) if as_json else text)


@kp_batch.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kp-batch-demo"),
    show_default=True,
    help="Where the sample archive and its warehouse go.",
)
def demo(folder: Path) -> None:
    """Make a sample archive, score it with the real model, and ask a few questions."""
    from kp_batch.sample import write_sample

    archive, warehouse = folder / "archive", folder / "warehouse"
    write_sample(archive, traces=600, days=21, seed=7)
    click.echo(_as_text(_run({"archive": (str(archive),), "warehouse": warehouse})))
    for question, query in DEMO_QUERIES.items():
        click.echo(f"\n{question}\n  {query}")
        ask(warehouse, query, "table")


def _run(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the flow with these settings."""
    click.echo("kp-batch: starting", err=True)
    config = _checked(settings)
    from kp_batch.warehouse.layout import make_folder

    make_folder(config.warehouse)
    arguments = {"config": config.model_dump(mode="json")}
    return in_process("run", arguments, log_of(config.warehouse))


def _checked(settings: dict[str, Any]) -> "RescoreConfig":
    from pydantic import ValidationError

    from kp_batch.config import RescoreConfig

    try:
        return RescoreConfig(**settings)
    except ValidationError as error:
        raise click.UsageError("; ".join(map(_fault, error.errors()))) from error


def _fault(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return message
    return f"--{str(error['loc'][0]).replace('_', '-')}: {message}"


def _as_text(summary: dict[str, Any]) -> str:
    from kp_batch.pipeline.summary import as_text

    return as_text(summary)
