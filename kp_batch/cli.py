"""The command line: arguments in, tables and messages out. Heavy imports stand where they work."""

import json
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from kp_batch.errors import KpBatchError

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
_RUNS = """
    SELECT run_id, status, started_at, date_diff('millisecond', started_at, finished_at) / 1000
        AS seconds, counts->>'accepted' AS accepted, counts->>'rejected' AS rejected,
        counts->>'embedded' AS embedded, config->>'embedder' AS embedder, reason
    FROM runs ORDER BY started_at DESC
"""


class EndedBySignal(BaseException):
    """The user, or the system, ended the command."""


def main() -> None:
    """Run the command line and leave with its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        kp_batch.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _leave(error.exit_code)
    except EndedBySignal as error:
        number = signal.Signals(error.args[0])
        _leave(128 + number, f"ended by {number.name}; what is published is whole")
    except BrokenPipeError:
        sys.stdout = None  # whoever read our output has left; so do we, without a word
        _leave(1)
    except (KpBatchError, OSError) as error:
        _leave(1, str(error))


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise EndedBySignal(number)


def _leave(status: int, message: str | None = None) -> NoReturn:
    if message:
        click.echo(f"kp-batch: {message}", err=True)
    sys.exit(status)


_warehouse = click.option(
    "--warehouse",
    required=True,
    envvar="KP_BATCH_WAREHOUSE",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the tables.",
)
_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kp-batch")
def kp_batch() -> None:
    """Rescore archives of AI reasoning traces, and ask about the scores."""


@kp_batch.command()
@click.argument("archive", nargs=-1, required=True)
@_warehouse
@click.option(
    "--embedder",
    default="minilm",
    show_default=True,
    help="minilm, hashing, none, or any sentence-transformers folder or id.",
)
@click.option("--cache-size", type=int, default=1_000, show_default=True, help="Vectors it holds.")
@click.option("--ttl", default="none", show_default=True, help="The cache's: none, 90m, 12h, 7d.")
@click.option("--profiles", metavar="FILE", help="A TOML file of weight profiles.")
@click.option(
    "--threshold", type=float, default=0.75, show_default=True, help="A score worth sharing."
)
@click.option(
    "--max-reject-share",
    type=float,
    default=0.05,
    show_default=True,
    help="More rejected rows than this share of the archive fail the run.",
)
@click.option("--wait", is_flag=True, help="Wait while another run writes to the warehouse.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def run(as_json: bool, **settings: Any) -> None:  # noqa: FBT001 (click passes it)
    """Rescore ARCHIVE: Parquet or JSONL files, folders, globs or URLs."""
    summary = _run(settings)
    click.echo(json.dumps(summary) if as_json else _as_text(summary))


@kp_batch.command()
@click.argument("query")
@_warehouse
@_format
def sql(query: str, warehouse: Path, output_format: str) -> None:
    """Ask QUERY of the views scores, rejects, profiles and runs."""
    _ask(warehouse, query, output_format)


@kp_batch.command()
@_warehouse
@_format
def runs(warehouse: Path, output_format: str) -> None:
    """List the runs, the last one first."""
    _ask(warehouse, _RUNS, output_format)


@kp_batch.command()
@_warehouse
def catalog(warehouse: Path) -> None:
    """Make kp.duckdb anew, after the folder was moved or the file was lost."""
    from kp_batch.warehouse.catalog import rebuild

    manifest = rebuild(warehouse)
    click.echo(f"kp.duckdb is made for {warehouse}: {json.dumps(manifest.tables)}", err=True)


@kp_batch.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--traces", type=click.IntRange(min=1), default=600, show_default=True)
@click.option("--days", type=click.IntRange(min=1), default=21, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option("--dirty", type=click.FloatRange(0, 1), default=0.0, help="Share of faulty rows.")
def sample(folder: Path, **shape: Any) -> None:
    """Make a synthetic archive in FOLDER, one Parquet file a day."""
    from kp_batch.sample import write_sample

    paths = write_sample(folder, **shape)
    click.echo(f"kp-batch: {shape['traces']:,} traces in {len(paths)} files in {folder}", err=True)


@kp_batch.command()
@click.argument("file", type=click.File("rb"))
def score(file: Any) -> None:
    """Score one trace, FILE.json or - for stdin, as a live engine would score its first."""
    from kp_batch.errors import TraceError

    try:
        trace = json.load(file)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file.name} is no JSON: {error}") from error
    from kp_batch.live import compare_profiles, evaluate_value

    if not isinstance(trace, dict):
        raise TraceError(f"{file.name} holds no JSON object; give one trace")
    by_profile = compare_profiles(trace)
    click.echo(json.dumps({"score": evaluate_value(trace), "by_profile": by_profile}))


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
        _ask(warehouse, query, "table")


def _run(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the flow with these settings."""
    click.echo("kp-batch: starting", err=True)
    config = _checked(settings)
    from flows.process import run_in_process

    return run_in_process(config.model_dump(mode="json"), config.warehouse)


def _checked(settings: dict[str, Any]) -> "RescoreConfig":
    from pydantic import ValidationError

    from kp_batch.config import RescoreConfig

    try:
        return RescoreConfig(**settings)
    except ValidationError as error:
        raise click.UsageError("; ".join(map(_fault, error.errors()))) from error


def _fault(error: Any) -> str:
    option = str(error["loc"][0]).replace("_", "-")
    return f"--{option}: {error['msg'].removeprefix('Value error, ')}"


def _ask(warehouse: Path, query: str, output_format: str) -> None:
    from kp_batch.warehouse.query import write_answer

    width = shutil.get_terminal_size((120, 24)).columns
    write_answer(warehouse, query, output_format, sys.stdout, width)


def _as_text(summary: dict[str, Any]) -> str:
    from flows.summary import as_text

    return as_text(summary)
